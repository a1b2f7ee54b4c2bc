package app

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/VKCOM/php-parser/pkg/ast"
	"github.com/VKCOM/php-parser/pkg/conf"
	"github.com/VKCOM/php-parser/pkg/errors"
	"github.com/VKCOM/php-parser/pkg/parser"
	"github.com/VKCOM/php-parser/pkg/version"
)

// syntax is a PHP file taken apart: its tree, and what names mean in it.
type syntax struct {
	path      string // for origins
	content   []byte
	root      *ast.Root
	namespace string
	aliases   map[string]string // of use statements, by lower-case alias
	broken    []Notice          // what the parser did not understand; the tree is without it
}

// parsePHP reads a PHP file of the syntax up to PHP 8.5, see [lowered]. What it cannot
// read is in broken, never silently left out.
func parsePHP(path string, content []byte) *syntax {
	s := &syntax{path: path, content: content, aliases: map[string]string{}}
	root, problems := parse(content)
	if len(problems) > 0 {
		if older, names := lowered(content); !bytes.Equal(older, content) {
			if again, left := parse(older); len(left) < len(problems) {
				root, problems = again, left
				rename(root, names)
			}
		}
	}
	for i, p := range problems {
		if i > 0 {
			break // one error throws the parser off for the rest
		}
		line := 0
		if p.Pos != nil {
			line = p.Pos.StartLine
		}
		s.broken = append(s.broken, Notice{File: path, Line: line, What: "PHP that is not understood: " + p.Msg})
	}
	if root == nil {
		root = &ast.Root{}
		if len(problems) == 0 {
			s.broken = append(s.broken, Notice{File: path, What: "PHP that is not understood"})
		}
	}
	s.root = root
	s.names()
	return s
}

// rename gives identifiers the names that they had.
func rename(root *ast.Root, names map[int]string) {
	if root == nil || len(names) == 0 {
		return
	}
	walk(root, func(n ast.Vertex) bool {
		p := n.GetPosition()
		if p == nil {
			return true
		}
		if name, ok := names[p.StartPos]; ok {
			switch n := n.(type) {
			case *ast.Identifier:
				n.Value = []byte(name)
			case *ast.NamePart:
				n.Value = []byte(name)
			}
		}
		return true
	})
}

func blank(b []byte) {
	for i := range b {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
}

// largestPHP is the largest PHP file that is parsed, in bytes: what its parser needs
// grows faster than the file.
const largestPHP = 512 << 10

func parse(content []byte) (root *ast.Root, problems []*errors.Error) {
	switch {
	case len(content) > largestPHP:
		return nil, []*errors.Error{errors.NewError(fmt.Sprintf("a file larger than %d KiB", largestPHP>>10), nil)}
	case brackets(content) > deepest:
		return nil, []*errors.Error{errors.NewError(fmt.Sprintf("nested deeper than %d levels", deepest), nil)}
	}
	defer func() {
		if r := recover(); r != nil { // a file of others must not end the program
			root, problems = nil, append(problems, errors.NewError(fmt.Sprint(r), nil))
		}
	}()
	if bytes.HasSuffix(content, []byte("<")) {
		content = append(bytes.Clone(content), '\n') // the parser never comes to an end that begins a tag
	}
	node, err := parser.Parse(content, conf.Config{
		Version:          &version.Version{Major: 8, Minor: 1},
		ErrorHandlerFunc: func(e *errors.Error) { problems = append(problems, e) },
	})
	if err != nil {
		problems = append(problems, errors.NewError(err.Error(), nil))
	}
	if root, _ = node.(*ast.Root); root != nil && deeper(root, deepest) {
		return nil, append(problems, errors.NewError(fmt.Sprintf("nested deeper than %d levels", deepest), nil))
	}
	return root, problems
}

// deepest is how deep a tree may be: what reads one calls itself for each level.
const deepest = 2_000

// brackets is how many are open at most, those in texts too.
func brackets(content []byte) (most int) {
	open := 0
	for _, c := range content {
		switch c {
		case '(', '[', '{':
			open++
			most = max(most, open)
		case ')', ']', '}':
			open = max(0, open-1)
		}
	}
	return most
}

// deeper reports whether a tree has more than so many levels.
func deeper(root ast.Vertex, levels int) bool {
	row := []ast.Vertex{root}
	for range levels {
		var next []ast.Vertex
		for _, n := range row {
			if n != nil && !reflect.ValueOf(n).IsNil() {
				next = append(next, children(n)...)
			}
		}
		if row = next; len(row) == 0 {
			return false
		}
	}
	return true
}

// names collects the namespace and the use statements.
func (s *syntax) names() {
	walk(s.root, func(n ast.Vertex) bool {
		switch n := n.(type) {
		case *ast.StmtNamespace:
			s.namespace = parts(n.Name)
		case *ast.StmtUseList:
			if n.Type == nil {
				s.use("", n.Uses)
			}
			return false
		case *ast.StmtGroupUseList:
			if n.Type == nil {
				s.use(parts(n.Prefix)+`\`, n.Uses)
			}
			return false
		case *ast.StmtClass, *ast.StmtFunction, *ast.StmtEnum, *ast.StmtInterface, *ast.StmtTrait:
			return false
		}
		return true
	})
}

func (s *syntax) use(prefix string, uses []ast.Vertex) {
	for _, u := range uses {
		u, ok := u.(*ast.StmtUse)
		if !ok || u.Type != nil {
			continue
		}
		full := prefix + parts(u.Use)
		alias := full[strings.LastIndexByte(full, '\\')+1:]
		if u.Alias != nil {
			alias = text(u.Alias)
		}
		s.aliases[strings.ToLower(alias)] = strings.TrimPrefix(full, `\`)
	}
}

// class is the full name of the class that a name node means, without a leading
// backslash; "" for what is no name (static::, a variable).
func (s *syntax) class(n ast.Vertex) string {
	switch n := n.(type) {
	case *ast.NameFullyQualified:
		return parts(n)
	case *ast.NameRelative:
		return strings.TrimPrefix(s.namespace+`\`+parts(n), `\`)
	case *ast.Name:
		name := parts(n)
		first, rest, more := strings.Cut(name, `\`)
		if full, ok := s.aliases[strings.ToLower(first)]; ok {
			if more {
				return full + `\` + rest
			}
			return full
		}
		if s.namespace == "" {
			return name
		}
		return s.namespace + `\` + name
	case *ast.Nullable:
		return s.class(n.Expr)
	case *ast.Union:
		for _, t := range n.Types { // the class of a "Class|null"
			if name := s.class(t); name != "" && !builtin(name) {
				return name
			}
		}
	}
	return ""
}

// builtin reports whether a type is PHP's own, such as string.
func builtin(name string) bool {
	name = name[strings.LastIndexByte(name, '\\')+1:]
	switch strings.ToLower(name) {
	case "string", "int", "float", "bool", "array", "null", "mixed", "callable", "iterable", "object", "void", "never", "false", "true", "self", "static", "parent":
		return true
	}
	return false
}

// source is the text of a node, on one line.
func (s *syntax) source(n ast.Vertex) string {
	p := n.GetPosition()
	if p == nil || p.StartPos < 0 || p.EndPos > len(s.content) || p.StartPos > p.EndPos {
		return ""
	}
	return strings.Join(strings.Fields(string(s.content[p.StartPos:p.EndPos])), " ")
}

// origin is the place of a node.
func (s *syntax) origin(n ast.Vertex) Origin { return Origin{File: s.path, Line: line(n)} }

func line(n ast.Vertex) int {
	if n == nil || reflect.ValueOf(n).IsNil() || n.GetPosition() == nil {
		return 0
	}
	return n.GetPosition().StartLine
}

// parts is a name as it is written, without a leading backslash.
func parts(n ast.Vertex) string {
	var list []ast.Vertex
	switch n := n.(type) {
	case *ast.Name:
		list = n.Parts
	case *ast.NameFullyQualified:
		list = n.Parts
	case *ast.NameRelative:
		list = n.Parts
	}
	var names []string
	for _, p := range list {
		names = append(names, text(p))
	}
	return strings.Join(names, `\`)
}

// text is the word of an identifier, a part of a name, or a variable's name with
// its dollar.
func text(n ast.Vertex) string {
	switch n := n.(type) {
	case *ast.Identifier:
		return string(n.Value)
	case *ast.NamePart:
		return string(n.Value)
	case *ast.ExprVariable:
		return text(n.Name)
	case *ast.Name, *ast.NameFullyQualified, *ast.NameRelative:
		return parts(n)
	}
	return ""
}

// walk visits n and all below it, in the order of the source. Where visit says
// false, it does not go below.
func walk(n ast.Vertex, visit func(ast.Vertex) bool) {
	if n == nil || reflect.ValueOf(n).IsNil() || !visit(n) {
		return
	}
	for _, child := range children(n) {
		walk(child, visit)
	}
}

func children(n ast.Vertex) []ast.Vertex {
	var list []ast.Vertex
	fields := reflect.ValueOf(n).Elem()
	for i := range fields.NumField() {
		if !fields.Type().Field(i).IsExported() {
			continue
		}
		switch child := fields.Field(i).Interface().(type) {
		case ast.Vertex:
			if child != nil {
				list = append(list, child)
			}
		case []ast.Vertex:
			list = append(list, child...)
		}
	}
	return list
}
