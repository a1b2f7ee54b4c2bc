package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Env is where ${NAME} is looked up. The zero Env knows no variables.
type Env struct {
	// Lookup is the environment, such as os.LookupEnv.
	Lookup func(name string) (value string, set bool)
	// File holds the variables of a dotenv file, see [ReadEnvFile]. The
	// environment wins.
	File map[string]string

	files secretFiles // nil: nobody asks which files were read
}

// errNotSet: a variable is set nowhere.
var errNotSet = errors.New("is not set")

// get returns the value of name: the variable, else the content of the file
// that name_FILE names, else that of the file name in $CREDENTIALS_DIRECTORY,
// without its last newline. The dotenv file is asked only where the
// environment has none of them. errNotSet: there is none; two at once are an
// error. No error holds a value.
func (e Env) get(name string) (string, error) {
	environment := e.Lookup
	if environment == nil {
		environment = func(string) (string, bool) { return "", false }
	}
	dotenv := func(name string) (string, bool) { v, ok := e.File[name]; return v, ok }

	value, err := e.lookup(environment, name)
	if !errors.Is(err, errNotSet) {
		return value, err
	}
	return e.lookup(dotenv, name)
}

func (e Env) lookup(variable func(string) (string, bool), name string) (string, error) {
	value, isSet := variable(name)
	var found []string
	if isSet {
		found = append(found, name)
	}
	file, isFile := variable(name + "_FILE")
	if isFile {
		found = append(found, name+"_FILE")
	}
	if dir, ok := variable("CREDENTIALS_DIRECTORY"); ok && dir != "" {
		credential := filepath.Join(dir, name)
		if _, err := os.Stat(credential); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, "the file "+name+" in $CREDENTIALS_DIRECTORY")
			file = credential
		}
	}
	switch {
	case len(found) > 1:
		return "", fmt.Errorf("%s are both set: unset one of them", strings.Join(found, " and "))
	case len(found) == 0:
		return "", errNotSet
	case isSet:
		return value, nil
	}
	content, err := e.readSecret(file)
	if err != nil {
		var pathError *fs.PathError
		if errors.As(err, &pathError) {
			err = pathError.Err // the path may itself be something that nobody should read
		}
		return "", fmt.Errorf("%s: the file cannot be read: %w", found[0], err)
	}
	text := strings.TrimSuffix(string(content), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}

// ReadEnvFile reads a dotenv file as Laravel and Symfony write it: NAME=value
// lines, with # comments, an optional export, '…' taken as it stands and "…"
// with \n, \t, \", \\ and \$. ${NAME} outside '…' is a variable of an earlier
// line, or of the environment, which wins; an unknown one stays as it stands.
// The unquoted values null, (null), empty and (empty) are empty. Errors name
// the line and hold no value.
func ReadEnvFile(path string, environment func(string) (string, bool)) (map[string]string, error) {
	values, _, err := ReadEnvLines(path, environment)
	return values, err
}

// ReadEnvLines is [ReadEnvFile] with the line on which each variable is set.
func ReadEnvLines(path string, environment func(string) (string, bool)) (values map[string]string, lines map[string]int, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("environment file: %w", err)
	}
	values, lines, line, err := parseEnv(string(content), environment)
	if err != nil {
		return nil, nil, fmt.Errorf("%s:%d: %w", path, line, err)
	}
	return values, lines, nil
}

// parseEnv parses a dotenv text; line is that of the error.
func parseEnv(text string, environment func(string) (string, bool)) (values map[string]string, lines map[string]int, line int, err error) {
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
		if !isName(name) {
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
		if name, _, ok := strings.Cut(s[2:], "}"); ok && isName(name) {
			if value, ok := known(name); ok {
				return value, len(name) + 3
			}
		}
	}
	return s[:1], 1
}

func isName(s string) bool {
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
