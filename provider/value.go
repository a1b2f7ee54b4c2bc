package provider

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

var errNotUTF8 = &valueError{"the value is not UTF-8, which JSON cannot hold"}

// exact is v as a value of a JSON document, to any depth: numbers as exact
// decimals, and no type that is not understood.
func exact(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errNotUTF8
		}
		return v, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = exact(v[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			if !utf8.ValidString(name) {
				return nil, errNotUTF8
			}
			var err error
			if out[name], err = exact(v[name]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	text, err := numberText(v)
	return json.Number(text), err
}

// asText is v as part of a text: strings as they are, numbers as exact decimals
// without an exponent, booleans as true and false. Lists, objects, null and
// types that are not understood are errors.
func asText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", missing("the value")
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case []any:
		return "", &valueError{"a list cannot be put into a text"}
	case map[string]any:
		return "", &valueError{"an object cannot be put into a text"}
	}
	return numberText(v)
}

func numberText(v any) (string, error) {
	switch v := v.(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(v), nil
	case float32:
		return floatText(float64(v), 32)
	case float64:
		return floatText(v, 64)
	case json.Number:
		s := v.String()
		if strings.ContainsAny(s, "eE") || !json.Valid([]byte(s)) {
			return "", &valueError{fmt.Sprintf("the number %q is not written as a plain decimal", s)}
		}
		return s, nil
	}
	return "", &valueError{fmt.Sprintf("a value of type %T cannot be put into a request; a PHP enum needs an entry in enums", v)}
}

// floatText is the shortest decimal that reads back as f.
func floatText(f float64, bits int) (string, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "", &valueError{"a number that is infinite or none cannot be put into a request"}
	}
	return strconv.FormatFloat(f, 'f', -1, bits), nil
}
