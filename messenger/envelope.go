package messenger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"zabor/internal/php"
	"zabor/step"
	"zabor/worker"
)

// envelope is a message as Symfony's serializer has made it: the object
// {"body": …, "headers": …} of a stream entry or of a delayed member. The JSON
// of both is kept as it was written.
type envelope struct {
	bodyJSON, headersJSON json.RawMessage
	body                  string
	headers               []header // in their order
	uniqid                string   // of a delayed member
}

// header is one header. Of a value that is no string value is its JSON.
type header struct {
	name, value string
	raw         json.RawMessage // as it was written; nil: value is new
}

func (e *envelope) header(name string) string {
	for _, h := range e.headers {
		if h.name == name {
			return h.value
		}
	}
	return ""
}

// readEnvelope reads the JSON of an entry or of a delayed member.
func readEnvelope(text []byte) (*envelope, error) {
	if err := strictJSON(text); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("the JSON is null")
	}
	e := &envelope{bodyJSON: object["body"], headersJSON: object["headers"]}
	if e.bodyJSON == nil {
		// PHP takes an object without body for the body.
		e.bodyJSON = quote(string(text))
	}
	if e.headersJSON == nil || string(e.headersJSON) == "null" {
		e.headersJSON = json.RawMessage("[]")
	}
	if err := json.Unmarshal(e.bodyJSON, &e.body); err != nil || string(e.bodyJSON) == "null" {
		return nil, errors.New("the body is not a string")
	}
	if raw := object["uniqid"]; raw != nil {
		_ = json.Unmarshal(raw, &e.uniqid) // any value will do; only our own is looked at
	}
	var err error
	if e.headersJSON[0] == '"' {
		// The raw form of an entry with fields of its own, see readEntry.
		text, err := unquote(e.headersJSON)
		if err != nil || !json.Valid([]byte(text)) {
			return nil, errors.New("the headers are not JSON")
		}
		e.headersJSON = json.RawMessage(text)
	}
	e.headers, err = readHeaders(e.headersJSON)
	return e, err
}

// readHeaders reads a JSON object of strings in its order; PHP writes an empty
// one as [].
func readHeaders(raw []byte) ([]header, error) {
	if bytes.Equal(bytes.Join(bytes.Fields(raw), nil), []byte("[]")) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the headers are not an object")
	}
	var headers []header
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		h := header{name: name.(string)}
		if err := d.Decode(&h.raw); err != nil {
			return nil, err
		}
		if json.Unmarshal(h.raw, &h.value) != nil {
			h.value = string(h.raw)
		}
		headers = append(headers, h)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return headers, nil
}

func writeHeaders(headers []header) []byte {
	if len(headers) == 0 {
		return []byte("[]")
	}
	b := []byte("{")
	for i, h := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		value := h.raw
		if value == nil {
			value = quote(h.value)
		}
		b = append(append(append(b, quote(h.name)...), ':'), value...)
	}
	return append(b, '}')
}

// deliveredHeader is a header that says that a call for the message may have
// acted. PHP looks at no header that it does not know, and no signature covers it.
const deliveredHeader = "Zabor-Delivered"

func (e *envelope) deliveredBefore() bool {
	return slices.ContainsFunc(e.headers, func(h header) bool { return h.name == deliveredHeader })
}

// delivered returns e with the header, behind the others. Their bytes stay.
func (e *envelope) delivered() *envelope {
	if e.deliveredBefore() {
		return e
	}
	d := *e
	field := append(append(quote(deliveredHeader), ':'), quote("1")...)
	d.headersJSON = slices.Concat([]byte("{"), field, []byte("}"))
	if len(e.headers) > 0 {
		end := bytes.LastIndexByte(e.headersJSON, '}')
		d.headersJSON = slices.Concat(e.headersJSON[:end], []byte(","), field, e.headersJSON[end:])
	}
	d.headers = append(slices.Clone(e.headers), header{name: deliveredHeader, value: "1"})
	return &d
}

// withoutOurs returns e without zabor's own headers, and whether it had any.
func (e *envelope) withoutOurs() (out *envelope, changed bool) {
	headers := slices.DeleteFunc(slices.Clone(e.headers), func(h header) bool { return h.name == deliveredHeader || h.name == originHeader })
	if len(headers) == len(e.headers) {
		return e, false
	}
	n := *e
	n.headers, n.headersJSON = headers, writeHeaders(headers)
	return &n, true
}

// json is the envelope as a stream entry holds it, before the wrapper.
func (e *envelope) json() []byte {
	return fmt.Appendf(nil, `{"body":%s,"headers":%s}`, e.bodyJSON, e.headersJSON)
}

// member is the envelope as a member of the delayed set. uniqid keeps equal
// messages apart.
func (e *envelope) member(uniqid string) []byte {
	return fmt.Appendf(nil, `{"body":%s,"headers":%s,"uniqid":%s}`, e.bodyJSON, e.headersJSON, quote(uniqid))
}

// readEntry reads the fields of a stream entry. raw is the value of the field
// message as it is in Redis; of an entry without that field it is a JSON object
// of all its fields, where a value that is not UTF-8 is {"base64": …}.
func readEntry(fields map[string]string) (raw []byte, e *envelope, err error) {
	value, ok := fields["message"]
	if ok {
		text, err := unwrap([]byte(value))
		if err == nil {
			e, err = readEnvelope(text)
		}
		return []byte(value), e, err
	}
	object := map[string]any{}
	for name, value := range fields {
		object[name] = value
		if !utf8.ValidString(value) {
			object[name] = map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(value))}
		}
	}
	raw, err = json.Marshal(object)
	if err != nil {
		return raw, nil, err
	}
	// Symfony 8.2 also takes body and headers as fields of their own.
	body, ok := fields["body"]
	if !ok {
		return raw, nil, errors.New("the entry has neither a field message nor a field body")
	}
	e = &envelope{body: body, headersJSON: json.RawMessage("[]")}
	if utf8.ValidString(body) {
		e.bodyJSON = quote(body)
	}
	if headers := fields["headers"]; headers != "" {
		if err := strictJSON([]byte(headers)); err != nil {
			return raw, nil, err
		}
		if !json.Valid([]byte(headers)) {
			return raw, nil, errors.New("the field headers is not JSON")
		}
		e.headersJSON = json.RawMessage(headers)
		if e.headers, err = readHeaders(e.headersJSON); err != nil {
			return raw, nil, err
		}
	}
	return raw, e, nil
}

// Decode reads a message from its bytes, [worker.Message.Raw]: the field message of
// a stream entry. Its ID is empty and it has no Receipt. DeliveredBefore is what
// the stamps say; a delivery counter is not in the bytes.
func Decode(raw []byte) *worker.Message {
	m := &worker.Message{Raw: raw}
	text, err := unwrap(raw)
	var e *envelope
	if err == nil {
		e, err = readEnvelope(text)
	}
	if err != nil {
		m.Err = unreadable(err.Error())
		return m
	}
	m.Message, m.Err = e.decode()
	return m
}

// Header names of Symfony's JSON serializer.
const (
	typeHeader  = "type"
	stampPrefix = "X-Message-Stamp-"
)

// decode reads the message out of the envelope. An error that is
// [worker.ErrUnreadable]: PHP cannot read it either, or it was made by a
// serializer of the application. Any other error: PHP can read it, zabor cannot.
func (e *envelope) decode() (step.Message, error) {
	class := e.header(typeHeader)
	if class == "" {
		return e.decodePHP()
	}
	m := step.Message{Class: strings.TrimPrefix(class, `\`)}
	m.DeliveredBefore = e.deliveredBefore()
	for _, stamp := range []string{redeliveryStamp, sentToFailureStamp, handledStamp} {
		m.DeliveredBefore = m.DeliveredBefore || e.header(stampPrefix+stamp) != ""
	}
	m.Traceparent, m.Tracestate = e.trace()
	m.Beside = e.stampsBeside()
	if e.body == "" || e.body == "0" {
		return m, unreadable("the body is empty")
	}
	if format := e.header("Content-Type"); format != "" && format != "application/json" {
		return m, fmt.Errorf("the body is %.60s: only application/json is read", format)
	}
	data, err := jsonObject([]byte(e.body))
	if err != nil {
		return m, unreadable("the body: " + err.Error())
	}
	m.Data = data
	return m, nil
}

func (e *envelope) decodePHP() (step.Message, error) {
	doc, err := readDocument(e.body)
	if err != nil {
		return step.Message{}, unreadable(err.Error())
	}
	m := step.Message{Class: strings.TrimPrefix(doc.message.Class, `\`), DeliveredBefore: e.deliveredBefore()}
	for _, it := range doc.stamps.Items {
		switch it.Key {
		case php.String(redeliveryStamp), php.String(sentToFailureStamp), php.String(handledStamp):
			m.DeliveredBefore = true
		}
		class, ok := it.Key.(php.String)
		traces := m.Traceparent == "" && mayTrace(string(class))
		if !ok || !traces && !ofApplication(string(class)) {
			continue
		}
		if stamps, err := php.Plain(it.Value); err == nil {
			if traces {
				m.Traceparent, m.Tracestate = traceIn(stamps)
			}
			m.Beside = withStamp(m.Beside, string(class), stamps)
		}
	}
	plain, err := php.Plain(doc.message)
	if err != nil {
		return m, err
	}
	m.Data, _ = plain.(map[string]any)
	return m, nil
}

// ofApplication reports whether a stamp's class is not the framework's own.
func ofApplication(class string) bool { return !strings.HasPrefix(class, `Symfony\`) }

// withStamp is beside with the last of the stamps of a class of the application's.
func withStamp(beside map[string]any, class string, stamps any) map[string]any {
	list, _ := stamps.([]any)
	if len(list) == 0 || !ofApplication(class) {
		return beside
	}
	properties, ok := list[len(list)-1].(map[string]any)
	if !ok {
		return beside
	}
	if beside == nil {
		beside = map[string]any{}
	}
	beside[class] = properties
	return beside
}

// stampsBeside are the application's stamps in the headers of the JSON serializer.
func (e *envelope) stampsBeside() (beside map[string]any) {
	for _, h := range e.headers {
		class, ok := strings.CutPrefix(h.name, stampPrefix)
		if !ok || !ofApplication(class) {
			continue
		}
		d := json.NewDecoder(strings.NewReader(h.value))
		d.UseNumber()
		var stamps any
		if d.Decode(&stamps) == nil {
			beside = withStamp(beside, class, stamps)
		}
	}
	return beside
}

func unreadable(why string) error { return fmt.Errorf("%w: %s", worker.ErrUnreadable, why) }
