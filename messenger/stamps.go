package messenger

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"zabor/internal/php"
)

const (
	stampNamespace     = `Symfony\Component\Messenger\Stamp\`
	redeliveryStamp    = stampNamespace + "RedeliveryStamp"
	sentToFailureStamp = stampNamespace + "SentToFailureTransportStamp"
	handledStamp       = stampNamespace + "HandledStamp"
	errorDetailsStamp  = stampNamespace + "ErrorDetailsStamp"
	delayStamp         = stampNamespace + "DelayStamp"
)

// maxStamps is how many stamps of a class Symfony keeps: the first, the last
// eight and the new one.
const maxStamps = 10

// failureClass is what Symfony's failed:show prints as the exception's class. It
// need not exist in PHP.
const failureClass = `zabor\Parked`

// stamp is one stamp to append, in both serializers' forms.
type stamp struct {
	class      string
	properties []php.Item // by bare names; all are private
	json       any
}

// parkedStamps are what Symfony appends to a message on its way into the failure
// transport, in its order. They make messenger:failed:show print the reason and
// messenger:failed:retry find the handlers of the transport that it came from.
func parkedStamps(transport, reason string, now time.Time) []stamp {
	now = now.UTC()
	property := func(name string, v php.Value) php.Item { return php.Item{Key: php.String(name), Value: v} }
	return []stamp{{
		class: errorDetailsStamp,
		properties: []php.Item{
			property("exceptionClass", php.String(failureClass)),
			property("exceptionCode", php.Int(0)),
			property("exceptionMessage", php.String(reason)),
			property("flattenException", php.Null{}),
		},
		json: struct {
			ExceptionClass   string  `json:"exceptionClass"`
			ExceptionCode    int     `json:"exceptionCode"`
			ExceptionMessage string  `json:"exceptionMessage"`
			FlattenException *string `json:"flattenException"`
		}{failureClass, 0, reason, nil},
	}, {
		class:      sentToFailureStamp,
		properties: []php.Item{property("originalReceiverName", php.String(transport))},
		json: struct {
			Name string `json:"originalReceiverName"`
		}{transport},
	}, {
		class:      delayStamp,
		properties: []php.Item{property("delay", php.Int(0))},
		json: struct {
			Delay int `json:"delay"`
		}{0},
	}, {
		class: redeliveryStamp,
		properties: []php.Item{
			property("retryCount", php.Int(0)),
			property("redeliveredAt", &php.Object{Class: "DateTimeImmutable", Items: []php.Item{
				property("date", php.String(now.Format("2006-01-02 15:04:05.000000"))),
				property("timezone_type", php.Int(3)),
				property("timezone", php.String("UTC")),
			}}),
		},
		json: struct {
			Count int    `json:"retryCount"`
			At    string `json:"redeliveredAt"`
		}{0, now.Format("2006-01-02T15:04:05-07:00")},
	}}
}

// parked is the envelope with the stamps of the failure transport: in the body of
// PhpSerializer, whose back-references are numbered anew, or in the headers of the
// JSON serializer, whose body stays as it is. A signed envelope is signed anew
// with the first of secrets.
//
// Where stamps cannot be added without harm the envelope is returned as it is:
// it is signed with none of secrets, or its body holds an object of a
// class with PHP's old Serializable whose back-references are unknown. PHP's
// failed:retry runs it all the same, failed:show has no reason to show.
func (e *envelope) parked(transport, reason string, secrets []string, now time.Time) (*envelope, error) {
	signed := e.header(signHeader) != ""
	if signed && !e.signedBy(secrets) {
		return e, nil
	}
	p := *e
	p.headers = append([]header(nil), e.headers...)
	stamps := parkedStamps(transport, reason, now)
	if e.header(typeHeader) != "" {
		for _, s := range stamps {
			if err := p.stampHeader(s); err != nil {
				return nil, err
			}
		}
	} else {
		d, err := readDocument(e.body)
		if err != nil {
			return nil, err
		}
		for _, s := range stamps {
			d.stamp(s)
		}
		if p.body, err = d.body(); err != nil {
			return e, nil //nolint:nilerr // it cannot be written anew: it is parked as it is
		}
	}
	if signed {
		p.sign(secrets[0])
	}
	p.bodyJSON, p.headersJSON = quote(p.body), writeHeaders(p.headers)
	return &p, nil
}

// outside is the envelope without the stamp that says that it is in a failure
// transport, and whether it had one. Where the stamp cannot be taken off without
// harm, as in [envelope.parked], the envelope is as it was.
func (e *envelope) outside(secrets []string) (out *envelope, changed bool) {
	signed := e.header(signHeader) != ""
	if signed && !e.signedBy(secrets) {
		return e, false
	}
	p := *e
	p.headers = slices.Clone(e.headers)
	if e.header(typeHeader) != "" {
		p.headers = slices.DeleteFunc(p.headers, func(h header) bool { return h.name == stampPrefix+sentToFailureStamp })
		changed = len(p.headers) < len(e.headers)
	} else if d, err := readDocument(e.body); err == nil {
		n := len(d.stamps.Items)
		d.stamps.Items = slices.DeleteFunc(d.stamps.Items, func(it php.Item) bool { return it.Key == php.String(sentToFailureStamp) })
		changed = len(d.stamps.Items) < n
		if p.body, err = d.body(); err != nil {
			return e, false
		}
	}
	if !changed {
		return e, false
	}
	if signed {
		p.sign(secrets[0])
	}
	p.bodyJSON, p.headersJSON = quote(p.body), writeHeaders(p.headers)
	return &p, true
}

// skip reports whether a stamp is there already: the first failure transport
// stays the origin, and the same error is not told twice.
func skip(class string, last, next []byte) bool {
	switch class {
	case sentToFailureStamp:
		return last != nil
	case errorDetailsStamp:
		return last != nil && string(last) == string(next)
	}
	return false
}

// stampHeader appends s to its header's JSON list, which it makes where there is none.
func (e *envelope) stampHeader(s stamp) error {
	next, err := json.Marshal(s.json)
	if err != nil {
		return err
	}
	name := stampPrefix + s.class
	var list []json.RawMessage
	if old := e.header(name); old != "" {
		if err := json.Unmarshal([]byte(old), &list); err != nil {
			return unreadable("header " + name + " is not a list")
		}
	}
	var last []byte
	if len(list) > 0 {
		last = list[len(list)-1]
	}
	if skip(s.class, last, next) {
		return nil
	}
	list = appendLimited(list, next)
	value, err := json.Marshal(list)
	if err != nil {
		return err
	}
	for i := range e.headers {
		if e.headers[i].name == name {
			e.headers[i] = header{name: name, value: string(value)}
			return nil
		}
	}
	// Behind the type and the other stamps, where Symfony writes it.
	at := 0
	for i, h := range e.headers {
		if h.name == typeHeader || strings.HasPrefix(h.name, stampPrefix) {
			at = i + 1
		}
	}
	e.headers = slices.Insert(e.headers, at, header{name: name, value: string(value)})
	return nil
}

// stamp appends s to the list of its class.
func (d *document) stamp(s stamp) {
	next := &php.Object{Class: s.class}
	for _, p := range s.properties {
		name := php.String("\x00" + s.class + "\x00" + string(p.Key.(php.String)))
		next.Items = append(next.Items, php.Item{Key: name, Value: p.Value})
	}
	var list *php.Array
	for _, it := range d.stamps.Items {
		if it.Key == php.String(s.class) {
			list, _ = php.Deref(it.Value).(*php.Array)
		}
	}
	if list == nil {
		list = &php.Array{}
		d.stamps.Items = append(d.stamps.Items, php.Item{Key: php.String(s.class), Value: list})
	}
	var last, now []byte
	if n := len(list.Items); n > 0 {
		// An error leaves nil, and the stamp is not skipped for being the same.
		last, _ = php.Marshal(list.Items[n-1].Value)
		now, _ = php.Marshal(next)
	}
	if skip(s.class, last, now) {
		return
	}
	list.Items = appendLimited(list.Items, php.Item{Value: next})
	for i := range list.Items {
		list.Items[i].Key = php.Int(i)
	}
}

func appendLimited[T any](list []T, next T) []T {
	if n := len(list); n >= maxStamps {
		list = append(list[:1:1], list[n-(maxStamps-2):]...)
	}
	return append(list, next)
}
