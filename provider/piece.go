package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"
)

// piece is one text of a request: literal text and templates, each of which is
// escaped for the place where it stands. As html/template does, the parsed tree
// is rewritten once: every value is fetched through a function that refuses a
// missing one, and every output goes through the escaper of its place.
type piece struct {
	where string             // the spec's key, for errors
	plain string             // the text, where it has no template
	tmpl  *template.Template // nil: plain
	keeps bool               // the value keeps its type
}

// place is where a piece's text ends up; it names the escaper in pieceFuncs.
type place string

const (
	inPath  place = "_path"
	inQuery place = "_query"
	inForm  place = "_form" // not escaped: the whole value is, with its literal text
	inJSON  place = "_json"
)

const keep = "_keep" // in place of an escaper: the value itself

// execution is the dot of one execution of a piece.
type execution struct {
	vars *Vars
	kept any
}

func newPiece(where, text string, at place, rowOnly bool) (*piece, error) {
	p := &piece{where: where, plain: text}
	if !strings.Contains(text, "{{") {
		return p, checkLiteral(where, text, at)
	}
	trees, err := parse.Parse(where, text, "{{", "}}", knownFuncs())
	if err != nil {
		return nil, fmt.Errorf("%s: %s", where, inOurWords(strings.TrimPrefix(err.Error(), "template: "+where+":1: ")))
	}
	tree := trees[where]
	if tree == nil || len(trees) > 1 {
		return nil, fmt.Errorf("%s: define and block are not taken in a request", where)
	}
	r := rewriter{where: where, at: at, out: string(at), rowOnly: rowOnly}
	if at == inJSON && len(tree.Root.Nodes) == 1 && tree.Root.Nodes[0].Type() == parse.NodeAction {
		p.keeps, r.out = true, keep
	}
	if err := r.list(tree.Root); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	p.tmpl, err = template.New(where).Funcs(pieceFuncs()).AddParseTree(where, tree)
	return p, err
}

// inOurWords says what a text of the template parser means in a configuration.
func inOurWords(text string) string {
	name, ok := strings.CutSuffix(strings.TrimPrefix(text, `function "`), `" not defined`)
	if !ok {
		return text
	}
	return fmt.Sprintf("{{%s}} is unknown; write {{.%s}} for a property of the message, or one of {{order}} {{step}} {{scope}} {{minor}} {{major}} {{currency}} {{provider_key}} {{prepared}} {{reference}}", name, name)
}

// text is the piece's text with the values of v, escaped for its place.
func (p *piece) text(v *Vars) (string, error) {
	out, _, err := p.execute(v)
	return out, err
}

// value is the piece's value in a JSON document.
func (p *piece) value(v *Vars) (any, error) {
	out, kept, err := p.execute(v)
	if p.keeps {
		return kept, err
	}
	return out, err
}

func (p *piece) execute(v *Vars) (string, any, error) {
	if p.tmpl == nil {
		return p.plain, nil, nil
	}
	var out strings.Builder
	e := &execution{vars: v}
	if err := p.tmpl.Execute(&out, e); err != nil {
		var short *valueError
		if errors.As(err, &short) {
			err = short
		}
		return "", nil, fmt.Errorf("%s: %w", p.where, err)
	}
	return out.String(), e.kept, nil
}

// valueError is what is wrong with a value, without the template's own words
// around it.
type valueError struct{ text string }

func (e *valueError) Error() string { return e.text }

func missing(what string) error { return &valueError{what + " is missing"} }

// rewriter checks and rewrites the tree of one piece.
type rewriter struct {
	where   string
	at      place
	out     string // function that each output goes through
	rowOnly bool
}

func (r *rewriter) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			if err := checkLiteral(r.where, string(n.Text), r.at); err != nil {
				return err
			}
		case *parse.ActionNode:
			if err := r.pipe(n.Pipe, false); err != nil {
				return err
			}
			n.Pipe.Cmds = append(n.Pipe.Cmds, command(r.out, &parse.DotNode{NodeType: parse.NodeDot}))
		case *parse.IfNode:
			if err := r.pipe(n.Pipe, true); err != nil {
				return err
			}
			if err := errors.Join(r.list(n.List), r.list(n.ElseList)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is not taken in a request", n)
		}
	}
	return nil
}

// pipe rewrites a pipeline. May is whether its value may be missing.
func (r *rewriter) pipe(p *parse.PipeNode, may bool) error {
	if len(p.Decl) > 0 {
		return fmt.Errorf("{{%s}}: variables are not taken in a request", p)
	}
	for i, cmd := range p.Cmds {
		mayBeMissing := i+1 == len(p.Cmds) && may || i+1 < len(p.Cmds) && takesMissing(p.Cmds[i+1])
		if err := r.command(cmd, i == 0, mayBeMissing); err != nil {
			return err
		}
	}
	return nil
}

func (r *rewriter) command(c *parse.CommandNode, first, may bool) error {
	name, isFunc := c.Args[0].(*parse.IdentifierNode)
	if isFunc && rowValues[name.Ident] == nil {
		may = takesMissing(c)
		for i, arg := range c.Args[1:] {
			var err error
			if c.Args[i+1], err = r.value(arg, may); err != nil {
				return err
			}
		}
		return nil
	}
	if !first || len(c.Args) > 1 {
		return fmt.Errorf("{{%s}}: %s takes no argument", c, c.Args[0])
	}
	value, err := r.value(c.Args[0], may)
	c.Args[0] = value
	return err
}

// value rewrites a node that stands for a value.
func (r *rewriter) value(n parse.Node, may bool) (parse.Node, error) {
	must := &parse.BoolNode{NodeType: parse.NodeBool, True: !may}
	dot := &parse.DotNode{NodeType: parse.NodeDot}
	switch n := n.(type) {
	case *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return n, nil
	case *parse.PipeNode:
		return n, r.pipe(n, may)
	case *parse.IdentifierNode:
		if rowValues[n.Ident] != nil {
			return parenthesised(command("_row", dot, must, text(n.Ident))), nil
		}
	case *parse.FieldNode:
		if r.rowOnly {
			return nil, fmt.Errorf("%s: a look-up sees only the row: order, step, scope, provider_key, prepared, reference, target, currency, minor, major", n)
		}
		args := []parse.Node{dot, must}
		for _, name := range n.Ident {
			args = append(args, text(name))
		}
		return parenthesised(command("_property", args...)), nil
	}
	return nil, fmt.Errorf("%s is not taken in a request", n)
}

// takesMissing reports whether c is a function that can be given a missing
// value.
func takesMissing(c *parse.CommandNode) bool {
	name, ok := c.Args[0].(*parse.IdentifierNode)
	return ok && slices.Contains([]string{"default", "and", "or", "not"}, name.Ident)
}

func command(name string, args ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Args: append([]parse.Node{parse.NewIdentifier(name)}, args...)}
}

func parenthesised(c *parse.CommandNode) *parse.PipeNode {
	return &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{c}}
}

func text(s string) *parse.StringNode {
	return &parse.StringNode{NodeType: parse.NodeString, Quoted: fmt.Sprintf("%q", s), Text: s}
}

// firstRune is the first sign of text, which is not empty; a byte where it is not
// UTF-8.
func firstRune(text string) string {
	_, n := utf8.DecodeRuneInString(text)
	return text[:n]
}

// checkLiteral refuses text that the author of the configuration must have
// escaped.
func checkLiteral(where, text string, at place) error {
	if at == inPath || at == inQuery {
		if i := strings.IndexFunc(text, unsafeInPath); i >= 0 {
			return fmt.Errorf("%s: %q must be percent-encoded", where, firstRune(text[i:]))
		}
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s: not UTF-8", where)
	}
	return nil
}

// rowValues are the functions without arguments that come from the row; nil:
// not known.
var rowValues = map[string]func(*Vars) (any, error){
	"order":        func(v *Vars) (any, error) { return known(v.Order), nil },
	"step":         func(v *Vars) (any, error) { return known(v.Step), nil },
	"scope":        func(v *Vars) (any, error) { return v.Scope, nil },
	"provider_key": func(v *Vars) (any, error) { return known(v.ProviderKey), nil },
	"prepared":     func(v *Vars) (any, error) { return known(v.Prepared), nil },
	"reference":    func(v *Vars) (any, error) { return known(v.Reference), nil },
	"currency":     func(v *Vars) (any, error) { return known(v.Money.Currency), nil },
	"target":       func(v *Vars) (any, error) { return known(v.Target), nil },
	"major": func(v *Vars) (any, error) {
		if v.Money.Currency == "" {
			return nil, nil
		}
		return v.Units.major(v.Money)
	},
	"minor": func(v *Vars) (any, error) {
		if v.Money.Currency == "" {
			return nil, nil
		}
		return v.Units.minor(v.Money)
	},
}

func known(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// userFuncs are the functions that a template may name, beside rowValues and
// Go's own eq, ne, and, or, not.
func userFuncs() template.FuncMap {
	return template.FuncMap{
		"lower": func(v any) (string, error) { s, err := asText(v); return strings.ToLower(s), err },
		"upper": func(v any) (string, error) { s, err := asText(v); return strings.ToUpper(s), err },
		"default": func(otherwise, v any) any {
			if v == nil || v == "" {
				return otherwise
			}
			return v
		},
	}
}

func knownFuncs() map[string]any {
	known := map[string]any{"eq": true, "ne": true, "and": true, "or": true, "not": true}
	maps.Copy(known, userFuncs())
	for name := range rowValues {
		known[name] = true
	}
	return known
}

// pieceFuncs are the functions that a rewritten tree calls.
func pieceFuncs() template.FuncMap {
	funcs := userFuncs()
	funcs["_row"] = func(e *execution, must bool, name string) (any, error) {
		v, err := rowValues[name](e.vars)
		if v == nil && err == nil && must {
			err = missing(name)
		}
		return v, err
	}
	funcs["_property"] = func(e *execution, must bool, path ...string) (any, error) {
		var v any = e.vars.Data
		for i, name := range path {
			object, _ := v.(map[string]any)
			if v = object[name]; v == nil && must {
				return nil, missing("." + strings.Join(path[:i+1], "."))
			}
		}
		return v, nil
	}
	funcs[keep] = func(e *execution, v any) (string, error) {
		if v == nil {
			return "", missing("the value")
		}
		var err error
		e.kept, err = exact(v)
		return "", err
	}
	funcs[string(inJSON)] = func(_ *execution, v any) (string, error) {
		s, err := asText(v)
		if err == nil && !utf8.ValidString(s) {
			err = errNotUTF8
		}
		return s, err
	}
	funcs[string(inPath)] = func(_ *execution, v any) (string, error) {
		s, err := asText(v)
		if err == nil && s == "" {
			err = &valueError{"an empty value in the path would lead elsewhere"}
		}
		return url.PathEscape(s), err
	}
	funcs[string(inQuery)] = func(_ *execution, v any) (string, error) { s, err := asText(v); return url.QueryEscape(s), err }
	funcs[string(inForm)] = func(_ *execution, v any) (string, error) { return asText(v) }
	return funcs
}
