package step

import (
	"encoding/json"
	"strings"
	"text/template/parse"
)

// templatePaths adds to used the paths of the properties that templates name.
// Each value is a text, or holds texts to any depth. They have been compiled
// before, so what cannot be parsed names none.
func templatePaths(used map[string]bool, values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			if !strings.Contains(v, "{{") {
				continue
			}
			tree := parse.New("")
			tree.Mode = parse.SkipFuncCheck
			if tree, err := tree.Parse(v, "{{", "}}", map[string]*parse.Tree{}); err == nil {
				nodePaths(used, tree.Root)
			}
		case map[string]string:
			for _, text := range v {
				templatePaths(used, text)
			}
		case map[string]any:
			for _, value := range v {
				templatePaths(used, value)
			}
		case []any:
			templatePaths(used, v...)
		}
	}
}

// nodePaths walks over what a request's template may hold: texts, pipelines,
// parentheses and if.
func nodePaths(used map[string]bool, n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				nodePaths(used, child)
			}
		}
	case *parse.ActionNode:
		nodePaths(used, n.Pipe)
	case *parse.IfNode:
		nodePaths(used, n.Pipe)
		nodePaths(used, n.List)
		nodePaths(used, n.ElseList)
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			for _, arg := range cmd.Args {
				nodePaths(used, arg)
			}
		}
	case *parse.FieldNode:
		used[strings.Join(n.Ident, ".")] = true
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
