package messenger

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Serializer is how phpredis wraps each value of a stream, the DSN's option
// serializer. Members of the delayed set are never wrapped. (Symfony's own
// serializer, which makes the body, is another thing.)
type Serializer int

// phpredis' serializers.
const (
	SerializerNone     Serializer = 0
	SerializerPHP      Serializer = 1 // s:LENGTH:"…";
	SerializerIgbinary Serializer = 2
	serializerMsgpack  Serializer = 3
	SerializerJSON     Serializer = 4
)

// wrap wraps the JSON of a message for a stream entry.
func (s Serializer) wrap(text []byte) []byte {
	switch s {
	case SerializerPHP:
		return fmt.Appendf(nil, `s:%d:"%s";`, len(text), text)
	case SerializerIgbinary:
		head := []byte{0, 0, 0, 2}
		switch n := len(text); {
		case n <= math.MaxUint8:
			head = append(head, 0x11, byte(n))
		case n <= math.MaxUint16:
			head = binary.BigEndian.AppendUint16(append(head, 0x12), uint16(n))
		default:
			head = binary.BigEndian.AppendUint32(append(head, 0x13), uint32(n))
		}
		return append(head, text...)
	case SerializerJSON:
		return quote(string(text))
	}
	return text
}

// unwrap takes the wrapper off, whichever it is: PHP reads more than one too.
func unwrap(value []byte) ([]byte, error) {
	switch {
	case len(value) == 0:
		return nil, errors.New("the value is empty")
	case value[0] == '{':
		return value, nil
	case value[0] == '"':
		text, err := unquote(value)
		return []byte(text), err
	case bytes.HasPrefix(value, []byte("s:")):
		length, rest, ok := bytes.Cut(value[2:], []byte(`:"`))
		n, err := strconv.Atoi(string(length))
		if !ok || err != nil || n != len(rest)-2 || !bytes.HasSuffix(rest, []byte(`";`)) {
			return nil, errors.New(`the value starts like s:LENGTH:"…"; but its length is not so`)
		}
		return rest[:n], nil
	case bytes.HasPrefix(value, []byte{0, 0, 0, 1}), bytes.HasPrefix(value, []byte{0, 0, 0, 2}):
		return unwrapIgbinary(value[4:])
	}
	return nil, errors.New("the value is neither JSON nor wrapped as phpredis does")
}

func unwrapIgbinary(value []byte) ([]byte, error) {
	if len(value) > 1 && value[0] >= 0x11 && value[0] <= 0x13 {
		size := 1 << (value[0] - 0x11)
		if rest := value[1:]; len(rest) >= size {
			var n uint64
			for _, b := range rest[:size] {
				n = n<<8 | uint64(b)
			}
			if uint64(len(rest)-size) == n {
				return rest[size:], nil
			}
		}
	}
	return nil, errors.New("the igbinary value is not one string")
}

// quote writes s as a JSON string; s must be UTF-8.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// unquote reads a JSON string as PHP does, which refuses what encoding/json
// replaces: bytes that are not UTF-8, and half a surrogate pair.
func unquote(raw []byte) (string, error) {
	if err := strictJSON(raw); err != nil {
		return "", err
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}
