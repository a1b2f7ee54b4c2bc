package messenger

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"zabor/internal/php"
)

// Names in a serialized envelope.
const (
	envelopeClass   = `Symfony\Component\Messenger\Envelope`
	stampsProperty  = php.String("\x00" + envelopeClass + "\x00stamps")
	messageProperty = php.String("\x00" + envelopeClass + "\x00message")
)

// document is a body of Symfony's PhpSerializer: a serialized Envelope.
type document struct {
	root    *php.Object
	stamps  *php.Array  // class name => list of stamps
	message *php.Object // the application's
}

// readDocument reads a body: serialize, then addslashes, then base64 if that is
// not UTF-8.
func readDocument(body string) (*document, error) {
	if body == "" || body == "0" {
		return nil, errors.New("the body is empty")
	}
	slashed := []byte(body)
	if !strings.HasSuffix(body, "}") {
		var err error
		if slashed, err = base64.StdEncoding.DecodeString(body); err != nil {
			return nil, errors.New("the body is neither a serialized envelope nor the base64 of one, and there is no header type")
		}
	}
	v, err := php.Unmarshal(stripSlashes(slashed))
	if err != nil {
		return nil, fmt.Errorf("the body: %w", err)
	}
	root, ok := v.(*php.Object)
	if !ok || root.Class != envelopeClass {
		return nil, errors.New("the body is not a serialized " + envelopeClass)
	}
	d := &document{root: root, stamps: &php.Array{}}
	for _, it := range root.Items {
		// Where a property is there twice the later one counts, as in PHP.
		switch value := php.Deref(it.Value); it.Key {
		case messageProperty:
			d.message, ok = value.(*php.Object)
		case stampsProperty:
			d.stamps, ok = value.(*php.Array)
		}
		if !ok {
			return nil, errors.New("the envelope's message or stamps have another type")
		}
	}
	if d.message == nil {
		return nil, errors.New("the envelope has no message")
	}
	return d, nil
}

// body writes the document as PhpSerializer does.
func (d *document) body() (string, error) {
	b, err := php.Marshal(d.root)
	if err != nil {
		return "", err
	}
	slashed := addSlashes(b)
	if !utf8.Valid(slashed) {
		return base64.StdEncoding.EncodeToString(slashed), nil
	}
	return string(slashed), nil
}

// addSlashes is PHP's addslashes.
func addSlashes(b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/8)
	for _, c := range b {
		switch c {
		case '\'', '"', '\\':
			out = append(out, '\\', c)
		case 0:
			out = append(out, '\\', '0')
		default:
			out = append(out, c)
		}
	}
	return out
}

// stripSlashes is PHP's stripslashes.
func stripSlashes(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' {
			if i++; i == len(b) {
				break
			}
			if c = b[i]; c == '0' {
				c = 0
			}
		}
		out = append(out, c)
	}
	return out
}
