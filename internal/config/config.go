// Package config reads zabor.yaml: strictly, with every finding at once, each
// with its line, its column and what to write instead.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Config is a file that was read and found valid, with what is made of it.
// It is not changed after Load.
type Config struct {
	File
	Path string // of the file, as it was given

	built
	all   []*setting          // that are in the file
	index map[string]*setting // by path
	put   []secret            // what variables have put into providers and steps

	// For [Rotation]: what it was read from.
	content []byte
	env     Env
	files   secretFiles
}

// Find is the file to read: the one named by flag, else by $ZABOR_CONFIG, else
// ./zabor.yaml or /etc/zabor/zabor.yaml, whichever is there. It is
// fs.ErrNotExist when there is none.
func Find(flag string, lookup func(string) (string, bool)) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if path, ok := lookup("ZABOR_CONFIG"); ok && path != "" {
		return path, nil
	}
	places := []string{"./zabor.yaml", "/etc/zabor/zabor.yaml"}
	for _, path := range places {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no configuration: neither -c nor $ZABOR_CONFIG is given, and there is no %s: %w", strings.Join(places, " and no "), fs.ErrNotExist)
}

// Load reads the file at path. The error is an [Errors] with all that keeps the
// file from being used, unless it cannot be read at all.
func Load(path string, env Env) (*Config, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("configuration: %w", err)
	case !info.Mode().IsRegular(): // a pipe may never end
		return nil, fmt.Errorf("configuration: %s is no regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("configuration: %s has %d bytes, at most %d", path, info.Size(), maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, content, env)
}

// Bounds of a file. The parser needs the square of the depth in memory.
const (
	maxFile  = 1 << 20 // bytes
	maxDepth = 64      // lists and maps within each other
)

// deep is the first line of a YAML text that nests more than maxDepth lists and maps; 0:
// none does. It reads brackets and leading dashes alone: indentation is bounded by the
// length of the file.
func deep(content []byte) int {
	depth, line, quote, dashes := 0, 1, byte(0), 0
	before, comment := true, false // only dashes so far in this line; behind its #
	for i, b := range content {
		switch {
		case b == '\n':
			line, dashes, before, comment = line+1, 0, true, false
		case comment:
		case quote != 0:
			if b == quote && (quote == '\'' || content[i-1] != '\\') {
				quote = 0
			}
		case b == '#' && (i == 0 || strings.IndexByte(" \t\n", content[i-1]) >= 0):
			comment = true
		case b == '[' || b == '{':
			depth++
		case b == ']' || b == '}':
			depth = max(0, depth-1)
		case depth > 0 && (b == '"' || b == '\''):
			quote = b
		case before && b == '-':
			dashes++
		}
		before = before && (b == ' ' || b == '-' || b == '\n')
		if depth > maxDepth || dashes > maxDepth {
			return line
		}
	}
	return 0
}

// Parse is Load for a content that is at hand; path is for the findings.
func Parse(path string, content []byte, env Env) (*Config, error) {
	env.files = secretFiles{}
	r := &reader{file: path, env: env, byPath: map[string]*setting{}}
	c := &Config{Path: path, content: content, env: env, files: env.files}
	if body := r.parse(content); body != nil {
		r.read(body, nil, reflect.ValueOf(&c.File).Elem(), "")
		c.all, c.index, c.put = r.settings, r.byPath, secretsOf(r.secrets)
		v := &validator{Config: c, reader: r}
		v.validate()
	}
	if len(r.findings) > 0 {
		inOrder(r.findings)
		return nil, Errors(r.findings)
	}
	return c, nil
}

// parse is the file's one document; nil: there are findings.
func (r *reader) parse(content []byte) ast.Node {
	if line := deep(content); line > 0 {
		r.find(position{line: line, column: 1}, nil, fmt.Sprintf("more than %d lists and maps within each other", maxDepth), "no key of zabor.yaml nests so: is a bracket or a quote missing?")
		return nil
	}
	file, err := parser.ParseBytes(content, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, what, fix := position{line: 1, column: 1}, err.Error(), ""
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			what = syntax.Message
			if t := syntax.Token; t != nil && t.Position != nil {
				at = position{t.Position.Line, max(1, t.Position.Column)}
			}
		}
		for _, known := range syntaxErrors {
			if strings.Contains(what, known.says) {
				what, fix = cmp.Or(known.means, what), known.fix
				break
			}
		}
		r.find(at, nil, "not YAML: "+what, fix)
		return nil
	}
	var bodies []ast.Node
	for _, document := range file.Docs {
		if document.Body != nil {
			bodies = append(bodies, document.Body)
		}
	}
	switch len(bodies) {
	case 0:
		r.find(position{line: 1, column: 1}, nil, "the file is empty", "write at least fence: and what the command uses; zabor init PATH prints a file")
		return nil
	case 1:
		return bodies[0]
	}
	r.find(place(bodies[1]), nil, "the file holds several documents", "take the line --- out")
	return nil
}

// syntaxErrors are texts of the YAML parser, what they mean for a person, and what to do.
// An empty meaning keeps the parser's text.
var syntaxErrors = [...]struct{ says, means, fix string }{
	{"escape character", "", singleQuotes},
	{"cannot start any token", "a tab stands where the line is indented", "indent by blanks"},
	{"value is not allowed in this context", "the line is indented by fewer or more blanks than its neighbours", "give all keys of one group the same number of blanks"},
	{"non-map value is specified", "a key without a colon and a blank behind it", "write KEY: VALUE"},
	{"could not find end character", "a quote is not closed", "close it, or write the text without quotes"},
	{"must be specified", "a list or a map is not closed", "close it by ] or }"},
	{"reserved character", "", "write the text in single quotes"},
	{"directive", "a text begins with %", "write it in single quotes"},
	{"flow map content", "a { begins a map here", "write a template in double quotes: \"{{order}}\""},
}

// Finding is one about the setting of that key, for those who find out more than
// the file itself says.
func (c *Config) Finding(key, what, fix string) Finding {
	f := Finding{File: c.Path, Key: key, What: what, Fix: fix}
	if s, ok := c.index[key]; ok {
		f.Line, f.Column = s.value.line, s.value.column
	}
	return f
}

// at is where the value of the setting at p stands, or that of the nearest
// setting around it that is there.
func (c *Config) at(p path) position {
	for n := len(p); n > 0; n-- {
		if s, ok := c.index[p[:n].String()]; ok {
			return s.value
		}
	}
	return position{line: 1, column: 1}
}
