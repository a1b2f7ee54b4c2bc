package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// refuse is an error of a message that no retry mends.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRefused, fmt.Errorf(format, args...))
}

// lookup follows a dotted path from property to property; a number is a list's
// index. It reports whether something is there.
func lookup(data map[string]any, path string) (any, bool) {
	var at any = data
	for name := range strings.SplitSeq(path, ".") {
		switch within := at.(type) {
		case map[string]any:
			next, ok := within[name]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(within) || strconv.Itoa(i) != name {
				return nil, false
			}
			at = within[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// missing says that path leads nowhere in data, and what is there instead.
// Values are not shown: they may be anything.
func missing(data map[string]any, path string) error {
	where, names := "", data
	for name := range strings.SplitSeq(path, ".") {
		next, ok := names[name].(map[string]any)
		if !ok {
			break
		}
		where += name + "."
		names = next
	}
	there := slices.Sorted(maps.Keys(names))
	for i := range there {
		there[i] = where + there[i]
	}
	list := "nothing"
	if len(there) > 0 {
		list = strings.Join(there, ", ")
	}
	return fmt.Errorf("there is no %s; there is %s; a property that Laravel leaves out because it is the class's default belongs in the step's defaults", path, list)
}

// identity is v as a part of a key: a text as it stands, a whole number as its
// decimal digits, so that 7 and "7" are the same. Whatever may be a mistake or
// may have been rounded is refused: two orders must never share a key, nor one
// order have two.
func identity(v any, rewritten bool) (string, error) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "", errors.New("it is empty")
		}
		return v, nil
	case int64:
		if v == 0 {
			return "", errors.New("it is the number 0")
		}
		return strconv.FormatInt(v, 10), nil
	case json.Number:
		if !isInteger(v.String()) {
			return "", fmt.Errorf("the number %s is not a whole one written in digits", v)
		}
		if v == "0" || v == "-0" {
			return "", errors.New("it is the number 0")
		}
		if rewritten && digits(v.String()) >= 15 {
			return "", fmt.Errorf("the number %s of %d digits may have been rounded by an earlier delivery: send it as text", v, digits(v.String()))
		}
		return v.String(), nil
	case float64:
		return "", fmt.Errorf("it is the float %s: send it as text or as a whole number", strconv.FormatFloat(v, 'g', -1, 64))
	}
	return "", fmt.Errorf("it is %s: only a text or a whole number names an order", kind(v))
}

// isInteger reports whether s is a JSON number without fraction and exponent.
func isInteger(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// digits counts the digits of a number's significand.
func digits(s string) int {
	s, _, _ = strings.Cut(strings.ToLower(s), "e")
	n := 0
	for _, c := range s {
		if '0' <= c && c <= '9' {
			n++
		}
	}
	return n
}

// rounded reports whether a JSON number may be another one than was sent: an
// earlier pop by PHP writes 14 significant digits.
func rounded(n json.Number) bool {
	s := strings.ToLower(n.String())
	if strings.Contains(s, "e") {
		return true
	}
	if strings.Contains(s, ".") {
		return digits(strings.TrimLeft(strings.TrimPrefix(s, "-"), "0.")) >= 14
	}
	return digits(s) >= 15
}

// kind names the type of v for people.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a text"
	case int64, json.Number:
		return "a number"
	case float64:
		return "a float"
	case Enum:
		return fmt.Sprintf("the case %[1]s of enum %[2]s, whose value is not in the message (write enums: {'%[2]s': {%[1]s: …}} with what it is worth)", v.Case, v.Class)
	case []any:
		return "a list"
	case map[string]any:
		return "an object with " + strings.Join(slices.Sorted(maps.Keys(v)), ", ")
	}
	return fmt.Sprintf("a %T", v)
}
