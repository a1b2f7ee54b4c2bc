package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML reads the documents of a YAML file.
func parseYAML(path string, content []byte) ([]*Value, *Notice) {
	file, err := parser.ParseBytes(content, 0, parser.AllowDuplicateMapKey())
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
	y := yamlReader{path: path, anchors: map[string]*Value{}}
	var list []*Value
	for _, document := range file.Docs {
		if document.Body != nil {
			list = append(list, y.value(document.Body))
		}
	}
	return list, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

type yamlReader struct {
	path    string
	anchors map[string]*Value
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
		y.anchors[n.Name.GetToken().Value] = v
		return v
	case *ast.AliasNode:
		if v := y.anchors[n.Value.GetToken().Value]; v != nil {
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
