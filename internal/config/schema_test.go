package config

import (
	"fmt"
	"regexp"
	"slices"
)

// against lists what of v the schema does not take. It reads the part of JSON
// Schema that Schema writes.
func against(s map[string]any, v any, where string) (wrong []string) {
	if forms, ok := s["anyOf"].([]any); ok {
		if !slices.ContainsFunc(forms, func(form any) bool { return len(against(form.(map[string]any), v, where)) == 0 }) {
			return []string{fmt.Sprintf("%s: %v is none of %v", where, v, forms)}
		}
		return nil
	}
	say := func(format string, args ...any) { wrong = append(wrong, where+": "+fmt.Sprintf(format, args...)) }
	if constant, ok := s["const"]; ok && fmt.Sprint(constant) != fmt.Sprint(v) {
		say("%v is not %v", v, constant)
	}
	if words, ok := s["enum"].([]any); ok && !slices.Contains(words, v) {
		say("%v is none of %v", v, words)
	}
	switch s["type"] {
	case "object":
		m, ok := v.(map[string]any)
		if !ok {
			say("%T is no object", v)
			break
		}
		properties, _ := s["properties"].(map[string]any)
		for name, value := range m {
			if p, ok := properties[name].(map[string]any); ok {
				wrong = append(wrong, against(p, value, where+"."+name)...)
			} else if p, ok := s["additionalProperties"].(map[string]any); ok {
				wrong = append(wrong, against(p, value, where+"."+name)...)
			} else {
				say("%s is no key", name)
			}
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := m[name.(string)]; !ok {
				say("%s is missing", name)
			}
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			say("%T is no array", v)
		}
		for i, entry := range list {
			wrong = append(wrong, against(s["items"].(map[string]any), entry, fmt.Sprintf("%s[%d]", where, i))...)
		}
	case "string":
		text, ok := v.(string)
		if !ok {
			say("%T is no string", v)
		} else if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
			say("%q does not match %s", text, pattern)
		}
	case "integer":
		n, ok := v.(uint64)
		if !ok {
			say("%T is no integer", v)
			break
		}
		if low, ok := s["minimum"].(float64); ok && float64(n) < low {
			say("%d is below %v", n, low)
		}
		if high, ok := s["maximum"].(float64); ok && float64(n) > high {
			say("%d is above %v", n, high)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			say("%T is no boolean", v)
		}
	}
	return wrong
}
