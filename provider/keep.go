package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"zabor"
)

// Keep says how much of an answer is kept in the row, to be given again on a
// repeat. The status is, and the header fields of keptHeaders; no other field,
// so that no cookie and no token is. The zero Keep keeps bodies of up to 64 KiB
// whole.
type Keep struct {
	// Body is how long a body may be, in bytes, to be kept; a longer one is not
	// kept at all. 0: 64 KiB. Below zero: none is kept.
	Body int
	// Redact are names of properties whose values are not kept, wherever in the
	// JSON of a body they stand; every other byte is. A body that is not JSON is
	// then not kept.
	Redact []string
}

const defaultKept = 64 << 10

// NotKept is a header field of an answer whose body was not kept.
const NotKept = "Zabor-Body-Not-Kept"

// Redacted stands in a kept body in place of a value that may not be kept.
const Redacted = `"[redacted]"`

// keptHeaders are the header fields of an answer that a repeat may need, or a
// person who asks the provider. None of them is a secret.
var keptHeaders = []string{"Content-Type", "Location", "Request-Id", "X-Request-Id", "Paypal-Debug-Id", "Cko-Request-Id", "Original-Request"}

func (k Keep) orDefault() Keep {
	k.Body = cmp.Or(k.Body, defaultKept)
	return k
}

// of is a as it is kept in the row; the body only where it may be kept whole, but
// for what is redacted, and neither it nor a header field where it tells a card's
// number or code. document is the body as JSON; nil: it is none.
func (k Keep) of(a answer, document any) *zabor.Answer {
	kept := &zabor.Answer{Status: a.status}
	for _, name := range keptHeaders {
		for _, value := range a.header.Values(name) {
			if _, holds := maskPath(value); !holds {
				kept.Header = append(kept.Header, zabor.HeaderField{Name: name, Value: value})
			}
		}
	}
	switch {
	case len(a.body) > k.Body, tellsCard(a.body, document):
	case len(k.Redact) == 0:
		kept.Body = a.body
	default:
		kept.Body = redact(a.body, k.Redact)
	}
	if kept.Body == nil && len(a.body) > 0 {
		kept.Header = append(kept.Header, zabor.HeaderField{Name: NotKept, Value: "true"})
	}
	return kept
}

// redact is a JSON document without the values of the named properties; nil: body
// is no JSON.
func redact(body []byte, names []string) []byte {
	if _, err := decodeJSON(body); err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var out []byte
	done := 0                             // up to where body is in out
	type level struct{ object, key bool } // key: a property's name comes next
	var open []level
	for {
		token, err := d.Token()
		if err != nil {
			return append(out, body[done:]...) // the end: body is one JSON value
		}
		in := len(open) - 1
		switch token {
		case json.Delim('{'), json.Delim('['):
			if in >= 0 {
				open[in].key = open[in].object
			}
			object := token == json.Delim('{')
			open = append(open, level{object, object})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:in]
			continue
		}
		if in < 0 || !open[in].object {
			continue
		}
		name, isText := token.(string)
		isName := open[in].key
		open[in].key = !isName
		if !isName || !isText || !slices.Contains(names, name) {
			continue
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		end := int(d.InputOffset())
		out = append(append(out, body[done:end-len(value)]...), Redacted...)
		done = end
		open[in].key = true
	}
}
