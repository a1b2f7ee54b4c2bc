package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pointer is a JSON pointer (RFC 6901), split into its unescaped tokens.
type pointer []string

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// parsePointer reads a pointer to something inside a document, so one that is
// not empty.
func parsePointer(text string) (pointer, error) {
	if text == "" {
		return nil, errors.New("is not set; it is a JSON pointer into the answer, such as /data/0/id")
	}
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("%q is not a JSON pointer; it begins with a slash, such as /data/0/id", text)
	}
	tokens := strings.Split(text[1:], "/")
	for i, token := range tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return nil, fmt.Errorf("%q is not a JSON pointer; a tilde in a name is written ~0, a slash ~1", text)
		}
		tokens[i] = unescapePointer.Replace(token)
	}
	return tokens, nil
}

// in returns the value that p points to in document, and whether it is there.
func (p pointer) in(document any) (any, bool) {
	v := document
	for _, token := range p {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[token]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at) || strconv.Itoa(i) != token {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// scalarIn is the text of the string, number or boolean that p points to; empty
// when there is none. Numbers are as they were written.
func (p pointer) scalarIn(document any) string {
	v, _ := p.in(document)
	text, _ := scalar(v)
	return text
}

// scalar is v as text, if it is a string, a number or a boolean.
func scalar(v any) (text string, ok bool) {
	switch v.(type) {
	case nil, map[string]any, []any:
		return "", false
	}
	text, err := asText(v)
	if n, isNumber := v.(json.Number); isNumber {
		return n.String(), true
	}
	return text, err == nil
}

// id is the non-empty string or number that p points to; empty when there is
// none. One with a control character is none either: it goes into addresses, SQL
// and terminals.
func (p pointer) id(document any) string {
	if v, _ := p.in(document); v == true || v == false {
		return ""
	}
	s := p.scalarIn(document)
	if strings.TrimSpace(s) == "" || strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	return s
}

// decodeJSON reads body as exactly one JSON value. Nothing but the document's
// own end tells a whole body from one that was cut where the end of the
// connection is the end of the body.
func decodeJSON(body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// decodeAnswer is decodeJSON for what a provider says. An object that has a property
// twice has no one meaning (RFC 8259, section 4), and is none.
func decodeAnswer(body []byte) (any, error) {
	v, err := decodeJSON(body)
	if err == nil && properties(v) != colons(body) {
		err = distinct(body)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// properties is how many properties the objects in v have, to any depth.
func properties(v any) int {
	n := 0
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			n += properties(one)
		}
	case map[string]any:
		n = len(v)
		for _, one := range v {
			n += properties(one)
		}
	}
	return n
}

// colons is how many colons stand in body, which is JSON, outside of its texts:
// one behind the name of each property.
func colons(body []byte) int {
	n, inText := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case c == ':' && !inText:
			n++
		}
	}
	return n
}

// distinct is an error when an object in body, which is one JSON value, has a
// property twice.
func distinct(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var open []map[string]bool // of the objects that are open; nil: a list
	name := false              // what comes next is a property's name, or the end of the object
	for t, err := d.Token(); err == nil; t, err = d.Token() {
		inObject := len(open) > 0 && open[len(open)-1] != nil
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			name = len(open) > 0 && open[len(open)-1] != nil
			continue
		case string:
			if inObject && name {
				if open[len(open)-1][t] {
					return fmt.Errorf("%.60q is there twice", t)
				}
				open[len(open)-1][t] = true
				name = false
				continue
			}
		}
		name = inObject
	}
	return nil
}
