package app

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML reads the documents of a YAML file.
func parseYAML(path string, content []byte) ([]*Value, *Notice) {
	if len(content) > largestYAML {
		return nil, &Notice{File: path, What: fmt.Sprintf("not read: YAML larger than %d KiB", largestYAML>>10)}
	}
	if line := tooDeep(content); line > 0 {
		return nil, &Notice{File: path, Line: line, What: fmt.Sprintf("not read: YAML that is nested deeper than %d levels", deepestYAML)}
	}
	file, err := parser.ParseBytes(content, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if quoted := quoteFlow(content); !bytes.Equal(quoted, content) {
			if again, left := parser.ParseBytes(quoted, 0, parser.AllowDuplicateMapKey()); left == nil {
				file, err = again, nil
			}
		}
	}
	if err != nil {
		n := Notice{File: path, What: "not YAML: " + firstLine(err.Error())}
		if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			n.What = "not YAML: " + syntax.Message
			if t := syntax.Token; t != nil && t.Position != nil {
				n.Line = t.Position.Line
			}
		}
		return nil, &n
	}
	y := yamlReader{path: path, anchors: map[string]*Value{}, sizes: map[*Value]int{}}
	var list []*Value
	for _, document := range file.Docs {
		if document.Body != nil {
			list = append(list, y.value(document.Body))
		}
	}
	return list, nil
}

// A map on one line, and where its next key begins.
var (
	flowMap = regexp.MustCompile(`^(\s*(?:- +)?[^\s:'"{#]+:\s+\{\s*)(.*?)(\s*\}\s*)$`)
	flowKey = regexp.MustCompile(`(^|,\s+)[\w.@-]+:\s+`)
)

// quoteFlow is content with quotes around values of maps on one line that have
// brackets within them, as Symfony takes regular expressions: {id: [0-9]+}.
func quoteFlow(content []byte) []byte {
	lines := strings.SplitAfter(string(content), "\n")
	for i, line := range lines {
		m := flowMap.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		var b strings.Builder
		b.WriteString(m[1])
		keys := flowKey.FindAllStringIndex(m[2], -1)
		for n, at := range keys {
			end := len(m[2])
			if n+1 < len(keys) {
				end = keys[n+1][0]
			}
			value := m[2][at[1]:end]
			if strings.ContainsAny(value, "[]{}") && !strings.ContainsAny(value[:1], `'"`) && !(value[0] == '[' && strings.HasSuffix(value, "]")) && !(value[0] == '{' && strings.HasSuffix(value, "}")) {
				value = "'" + strings.ReplaceAll(value, "'", "''") + "'"
			}
			b.WriteString(m[2][at[0]:at[1]] + value)
		}
		if len(keys) > 0 && keys[0][0] == 0 {
			lines[i] = b.String() + m[3] + line[len(strings.TrimRight(line, "\r\n")):]
		}
	}
	return []byte(strings.Join(lines, ""))
}

// largestYAML is the largest YAML file that is parsed, in bytes.
const largestYAML = 256 << 10

// mostAliased is how many values a file's aliases may stand for, all together.
const mostAliased = 100_000

// deepestYAML is how deep a YAML file may be nested: its parser calls itself for
// each level.
const deepestYAML = 200

// tooDeep is the line in which a YAML file is nested too deeply; 0: there is none.
// It counts what may open a level, in texts too: no configuration comes near.
func tooDeep(content []byte) int {
	var indents []int
	flow, line := 0, 0
	for text := range bytes.Lines(content) {
		line++
		rest := bytes.TrimLeft(text, " \t")
		indent := len(text) - len(rest)
		if len(bytes.TrimSpace(rest)) == 0 || rest[0] == '#' {
			continue
		}
		for len(indents) > 0 && indents[len(indents)-1] >= indent {
			indents = indents[:len(indents)-1]
		}
		indents = append(indents, indent)
		for _, mark := range [][]byte{[]byte("- "), []byte("? "), []byte(": ")} {
			if n := bytes.Count(rest, mark); n > deepestYAML {
				return line
			}
		}
		for _, c := range rest {
			switch c {
			case '[', '{':
				flow++
			case ']', '}':
				flow = max(0, flow-1)
			}
			if flow > deepestYAML {
				return line
			}
		}
		if len(indents) > deepestYAML {
			return line
		}
	}
	return 0
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

type yamlReader struct {
	path    string
	anchors map[string]*Value
	sizes   map[*Value]int // of what was anchored, with all that is in it
	aliased int            // values that aliases have stood for
}

// size is how many values v is made of.
func (y *yamlReader) size(v *Value) int {
	if n, ok := y.sizes[v]; ok {
		return n
	}
	n := 1
	for _, item := range v.Items {
		n += y.size(item)
	}
	return n
}

func (y *yamlReader) origin(n ast.Node) Origin {
	o := Origin{File: y.path}
	if t := n.GetToken(); t != nil && t.Position != nil {
		o.Line = t.Position.Line
	}
	return o
}

func (y *yamlReader) value(n ast.Node) *Value {
	at := y.origin(n)
	switch n := n.(type) {
	case *ast.MappingNode:
		v := &Value{Kind: Map, From: at}
		for _, pair := range n.Values {
			y.pair(v, pair)
		}
		return v
	case *ast.MappingValueNode:
		v := &Value{Kind: Map, From: at}
		y.pair(v, n)
		return v
	case *ast.SequenceNode:
		v := &Value{Kind: Map, From: at}
		for i, item := range n.Values {
			v.Set(strconv.Itoa(i), y.value(item))
		}
		return v
	case *ast.StringNode:
		return scalar(String, n.Value, at)
	case *ast.LiteralNode:
		return scalar(String, n.Value.Value, at)
	case *ast.IntegerNode:
		return scalar(Int, fmt.Sprint(n.Value), at)
	case *ast.FloatNode:
		return scalar(Float, n.GetToken().Value, at)
	case *ast.BoolNode:
		return boolean(n.Value, at)
	case *ast.NullNode:
		return scalar(Null, "", at)
	case *ast.AnchorNode:
		v := y.value(n.Value)
		y.sizes[v] = y.size(v)
		y.anchors[n.Name.GetToken().Value] = v
		return v
	case *ast.AliasNode:
		if v := y.anchors[n.Value.GetToken().Value]; v != nil {
			if y.aliased += y.size(v); y.aliased > mostAliased {
				return unknown("more than an alias may stand for", at)
			}
			return v
		}
	case *ast.TagNode:
		if n.Value != nil { // !php/const and the like: what it names, not what it is worth
			v := y.value(n.Value)
			if strings.HasPrefix(n.GetToken().Value, "!php") {
				return unknown(n.GetToken().Value+" "+v.Str(), at)
			}
			return v
		}
	}
	return unknown(n.String(), at)
}

func (y *yamlReader) pair(v *Value, pair *ast.MappingValueNode) {
	if _, ok := pair.Key.(*ast.MergeKeyNode); ok {
		merged := y.value(pair.Value)
		for _, key := range merged.Keys {
			if v.Items[key] == nil {
				v.Set(key, merged.Items[key])
			}
		}
		return
	}
	item := *y.value(pair.Value)
	item.Key = y.origin(pair.Key)
	v.Set(keyText(pair.Key), &item)
}

func keyText(n ast.MapKeyNode) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}
