package messenger

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"
)

// strictJSON is an error for what PHP's json_decode refuses but encoding/json
// would read as another text: an order id must not change on the way.
func strictJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("the JSON is not UTF-8")
	}
	for rest := raw; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 || i+1 >= len(rest) {
			return nil
		}
		unit, ok := escapedUnit(rest[i:])
		switch {
		case !ok:
			rest = rest[i+2:]
			continue
		case unit >= 0xdc00 && unit <= 0xdfff:
			return errors.New("the JSON has half a surrogate pair")
		case unit >= 0xd800 && unit <= 0xdbff:
			low, ok := escapedUnit(rest[i+6:])
			if !ok || low < 0xdc00 || low > 0xdfff {
				return errors.New("the JSON has half a surrogate pair")
			}
			rest = rest[i+12:]
		default:
			rest = rest[i+6:]
		}
	}
}

// escapedUnit reads \uXXXX at the start of s.
func escapedUnit(s []byte) (uint64, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	return n, err == nil
}

// jsonObject reads an object whose numbers stay as they are written.
func jsonObject(raw []byte) (map[string]any, error) {
	if err := strictJSON(raw); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more follows the JSON object")
	}
	if object == nil {
		return nil, errors.New("the JSON is null")
	}
	return object, nil
}
