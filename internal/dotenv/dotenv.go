// Package dotenv reads dotenv files as Laravel and Symfony write them.
package dotenv

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Read reads the dotenv file at path.
//
// A line is NAME=value, with an optional export; # begins a comment. '…' is taken
// as it stands, and "…" knows \n, \t, \", \\ and \$. ${NAME} outside '…' is a
// variable of the environment, else of an earlier line; an unknown one stays. The
// unquoted values null, (null), empty and (empty) are empty. environment may be
// nil. An error names the line and holds no value.
func Read(path string, environment func(string) (string, bool)) (map[string]string, error) {
	values, _, err := ReadLines(path, environment)
	return values, err
}

// ReadLines is [Read] with the line on which each variable is set, from 1.
func ReadLines(path string, environment func(string) (string, bool)) (values map[string]string, lines map[string]int, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("environment file: %w", err)
	}
	values, lines, line, err := parse(string(content), environment)
	if err != nil {
		return nil, nil, fmt.Errorf("%s:%d: %w", path, line, err)
	}
	return values, lines, nil
}

// parse parses a dotenv text; line is the line of the error.
func parse(text string, environment func(string) (string, bool)) (values map[string]string, lines map[string]int, line int, err error) {
	values, lines = map[string]string{}, map[string]int{}
	known := func(name string) (string, bool) {
		if environment != nil {
			if v, ok := environment(name); ok {
				return v, true
			}
		}
		v, ok := values[name]
		return v, ok
	}
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for line = 1; text != ""; line++ {
		name, rest, found := strings.Cut(firstLine(text), "=")
		name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "export "))
		if name == "" && !found || strings.HasPrefix(name, "#") {
			text = afterLine(text)
			continue
		}
		if !found {
			return nil, nil, line, errors.New("no = in the line: write NAME=value")
		}
		if !IsName(name) {
			return nil, nil, line, errors.New("what stands before = is not a name: letters, digits and _ make one")
		}
		text = text[strings.IndexByte(text, '=')+1:]
		rest = strings.TrimLeft(rest, " \t")
		var value string
		switch {
		case strings.HasPrefix(rest, "'"), strings.HasPrefix(rest, `"`):
			text = strings.TrimLeft(text, " \t")
			quoted, size := quotedValue(text, known)
			if size == 0 {
				return nil, nil, line, fmt.Errorf("the value of %s has no closing quote", name)
			}
			behind := strings.TrimSpace(firstLine(text[size:]))
			if behind != "" && !strings.HasPrefix(behind, "#") {
				return nil, nil, line, fmt.Errorf("something stands behind the closing quote of %s", name)
			}
			lines[name] = line
			line += strings.Count(text[:size], "\n")
			value, text = quoted, text[size:]
		default:
			lines[name] = line
			value = bareValue(rest, known)
		}
		values[name] = value
		text = afterLine(text)
	}
	return values, lines, 0, nil
}

// quotedValue reads the quoted value at the start of s and how many bytes it
// takes with its quotes; 0: it does not end.
func quotedValue(s string, known func(string) (string, bool)) (string, int) {
	if s[0] == '\'' {
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 {
			return "", 0
		}
		return s[1 : end+1], end + 2
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), i + 1
		case c == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 't':
				b.WriteByte('\t')
			case '"', '\\', '$':
				b.WriteByte(s[i])
			default:
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
		default:
			value, size := reference(s[i:], known)
			b.WriteString(value)
			i += size - 1
		}
	}
	return "", 0
}

func bareValue(s string, known func(string) (string, bool)) string {
	if strings.HasPrefix(s, "#") {
		return ""
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '#' && (s[i-1] == ' ' || s[i-1] == '\t') {
			s = s[:i]
			break
		}
	}
	s = strings.TrimSpace(s)
	switch strings.ToLower(s) {
	case "null", "(null)", "empty", "(empty)":
		return ""
	}
	var b strings.Builder
	for s != "" {
		value, size := reference(s, known)
		b.WriteString(value)
		s = s[size:]
	}
	return b.String()
}

// reference reads the ${NAME} at the start of s, or the one byte that stands
// there, and how many bytes it took.
func reference(s string, known func(string) (string, bool)) (string, int) {
	if strings.HasPrefix(s, "${") {
		if name, _, ok := strings.Cut(s[2:], "}"); ok && IsName(name) {
			if value, ok := known(name); ok {
				return value, len(name) + 3
			}
		}
	}
	return s[:1], 1
}

// IsName reports whether s can name a variable: letters, digits and _, no digit first.
func IsName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func afterLine(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	return rest
}
