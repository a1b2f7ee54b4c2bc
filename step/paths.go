package step

import (
	"encoding/json"
	"strings"
	"text/template/parse"

	"zabor/provider"
)

// texts are the texts of a request: each is a template, or holds templates to
// any depth.
func texts(r provider.RequestSpec) []any { return []any{r.Path, r.Form, r.JSON} }

// templatePaths adds to used the paths of the properties that templates name.
func templatePaths(used map[string]bool, values ...any) {
	eachNode(values, func(n parse.Node) {
		if field, ok := n.(*parse.FieldNode); ok {
			used[strings.Join(field.Ident, ".")] = true
		}
	})
}

// namesPrepared reports whether a template has {{prepared}}.
func namesPrepared(values ...any) bool {
	found := false
	eachNode(values, func(n parse.Node) {
		name, ok := n.(*parse.IdentifierNode)
		found = found || ok && name.Ident == "prepared"
	})
	return found
}

// eachNode shows visit what stands for a value in the templates among values.
// What cannot be parsed has an error of its own elsewhere, and no nodes.
func eachNode(values []any, visit func(parse.Node)) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			if !strings.Contains(v, "{{") {
				continue
			}
			tree := parse.New("")
			tree.Mode = parse.SkipFuncCheck
			if tree, err := tree.Parse(v, "{{", "}}", map[string]*parse.Tree{}); err == nil {
				walk(tree.Root, visit)
			}
		case map[string]string:
			for _, text := range v {
				eachNode([]any{text}, visit)
			}
		case map[string]any:
			for _, value := range v {
				eachNode([]any{value}, visit)
			}
		case []any:
			eachNode(v, visit)
		}
	}
}

// walk goes through what a request's template may hold: texts, pipelines,
// parentheses and if.
func walk(n parse.Node, visit func(parse.Node)) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				walk(child, visit)
			}
		}
	case *parse.ActionNode:
		walk(n.Pipe, visit)
	case *parse.IfNode:
		walk(n.Pipe, visit)
		walk(n.List, visit)
		walk(n.ElseList, visit)
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			for _, arg := range cmd.Args {
				walk(arg, visit)
			}
		}
	default:
		visit(n)
	}
}

// roundedWithin returns a number in v, to any depth, that may be another one
// than was sent.
func roundedWithin(v any) (json.Number, bool) {
	switch v := v.(type) {
	case json.Number:
		return v, rounded(v)
	case []any:
		for _, entry := range v {
			if n, ok := roundedWithin(entry); ok {
				return n, true
			}
		}
	case map[string]any:
		for _, entry := range v {
			if n, ok := roundedWithin(entry); ok {
				return n, true
			}
		}
	}
	return "", false
}

// enumWithin returns an enum in v, to any depth.
func enumWithin(v any) (Enum, bool) {
	switch v := v.(type) {
	case Enum:
		return v, true
	case []any:
		for _, entry := range v {
			if e, ok := enumWithin(entry); ok {
				return e, true
			}
		}
	case map[string]any:
		for _, entry := range v {
			if e, ok := enumWithin(entry); ok {
				return e, true
			}
		}
	}
	return Enum{}, false
}
