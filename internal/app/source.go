package app

import (
	"slices"
	"strings"

	"github.com/VKCOM/php-parser/pkg/ast"
)

// Class is a class, interface, trait or enum of the application.
type Class struct {
	Name       string // with its namespace, without a leading backslash
	Kind       string // class, interface, trait or enum
	File       string
	Line       int
	Extends    string
	Implements []string
	Traits     []string
	Attributes []Attribute
	Properties []Property // those of the constructor too
	Methods    []*Method
	Cases      []Case // of an enum
}

// Case is one case of an enum.
type Case struct{ Name, Value string } // Value is empty for a pure enum

// Attribute is a PHP attribute.
type Attribute struct {
	Name string
	Args []Arg
	Line int
}

// Property is a property of a class, or a parameter.
type Property struct {
	Name    string // without a dollar
	Type    string // the class, or PHP's own type as it is written; may be empty
	Default *Value // nil: none
	Line    int
	// Constructor: it is one of the constructor's parameters.
	Constructor bool
}

// Method is a method with its body.
type Method struct {
	Name       string
	Class      *Class
	Params     []Property
	Attributes []Attribute
	Line, End  int
	Calls      []*Call // in the order of the source; the last of a chain first
	Strings    []Literal
	Assigns    []Assign
	Body       string // its source
	Returns    string // the class that it says it returns; may be empty
}

// Literal is a string in the source.
type Literal struct {
	Text string
	Line int
}

// Assign is a variable or property that is given a value.
type Assign struct {
	Var  string // as it is written: $key, $this->key
	Text string // the source of the value
	Line int
}

// Call is a call of a function, a static method, a method, or of a constructor.
type Call struct {
	Name  string   // as it is written; "new" of a constructor
	Class string   // of a static call and a constructor: the class; of a method: the class of Root, where it is known
	Root  string   // what the chain begins with, as it is written: $this->stripe, Http; empty for a function
	On    *Call    // the call whose result it is called on, such as the timeout(3) of timeout(3)->post(…)
	Via   []string // properties between Root and the call: $this->stripe->paymentIntents->create
	Args  []Arg
	Line  int // of its name
}

// Arg is an argument of a call.
type Arg struct {
	Name  string // where it is named
	Text  string // its source
	Value *Value // its value, Unknown where only the running application has it
}

// Arg is the argument of that name or at that place; nil: not given.
func (c *Call) Arg(name string, i int) *Arg {
	for j := range c.Args {
		if name != "" && c.Args[j].Name == name {
			return &c.Args[j]
		}
	}
	if i >= 0 && i < len(c.Args) && c.Args[i].Name == "" {
		return &c.Args[i]
	}
	return nil
}

// Chain is c and the calls before it, the last first.
func (c *Call) Chain() []*Call {
	var list []*Call
	for ; c != nil; c = c.On {
		list = append(list, c)
	}
	return list
}

// Method is the class's own method of that name; nil: it has none.
func (c *Class) Method(name string) *Method {
	for _, m := range c.Methods {
		if strings.EqualFold(m.Name, name) {
			return m
		}
	}
	return nil
}

// Property is the class's own property; nil: it has none.
func (c *Class) Property(name string) *Property {
	for i := range c.Properties {
		if c.Properties[i].Name == name {
			return &c.Properties[i]
		}
	}
	return nil
}

// Attribute is the class's attribute whose class has that short name; nil: none.
func (c *Class) Attribute(short string) *Attribute { return attribute(c.Attributes, short) }

// Attribute is the method's attribute whose class has that short name; nil: none.
func (m *Method) Attribute(short string) *Attribute { return attribute(m.Attributes, short) }

func attribute(list []Attribute, short string) *Attribute {
	for i := range list {
		if Short(list[i].Name) == short {
			return &list[i]
		}
	}
	return nil
}

// Short is a class name without its namespace.
func Short(class string) string { return class[strings.LastIndexByte(class, '\\')+1:] }

// classes reads the classes of a file.
func (s *syntax) classes() []*Class {
	var list []*Class
	walk(s.root, func(n ast.Vertex) bool {
		var c *Class
		switch n := n.(type) {
		case *ast.StmtClass:
			if n.Name == nil {
				return true
			}
			c = s.newClass("class", n.Name, n.AttrGroups, n.Stmts)
			if n.Extends != nil {
				c.Extends = s.class(n.Extends)
			}
			c.Implements = s.classNames(n.Implements)
		case *ast.StmtInterface:
			c = s.newClass("interface", n.Name, n.AttrGroups, n.Stmts)
			c.Implements = s.classNames(n.Extends)
		case *ast.StmtTrait:
			c = s.newClass("trait", n.Name, n.AttrGroups, n.Stmts)
		case *ast.StmtEnum:
			c = s.newClass("enum", n.Name, n.AttrGroups, n.Stmts)
			c.Implements = s.classNames(n.Implements)
		default:
			return true
		}
		list = append(list, c)
		return false
	})
	return list
}

func (s *syntax) newClass(kind string, name ast.Vertex, attributes, body []ast.Vertex) *Class {
	c := &Class{Name: strings.TrimPrefix(s.namespace+`\`+text(name), `\`), Kind: kind, File: s.path, Line: line(name), Attributes: s.attributes(attributes)}
	e := evaluator{syntax: s}
	for _, n := range body {
		switch n := n.(type) {
		case *ast.StmtTraitUse:
			c.Traits = append(c.Traits, s.classNames(n.Traits)...)
		case *ast.EnumCase:
			one := Case{Name: text(n.Name)}
			if n.Expr != nil {
				one.Value = e.value(n.Expr).Str()
			}
			c.Cases = append(c.Cases, one)
		case *ast.StmtPropertyList:
			for _, p := range n.Props {
				p, ok := p.(*ast.StmtProperty)
				if !ok {
					continue
				}
				one := Property{Name: strings.TrimPrefix(text(p.Var), "$"), Type: s.typeName(n.Type), Line: line(p)}
				if p.Expr != nil {
					one.Default = e.value(p.Expr)
				}
				c.Properties = append(c.Properties, one)
			}
		case *ast.StmtClassMethod:
			m := s.method(c, n)
			c.Methods = append(c.Methods, m)
			if strings.EqualFold(m.Name, "__construct") {
				for i, p := range n.Params {
					if p, ok := p.(*ast.Parameter); ok && len(p.Modifiers) > 0 {
						promoted := m.Params[i]
						promoted.Constructor = true
						c.Properties = append(c.Properties, promoted)
					}
				}
			}
		}
	}
	c.assigned(s, body)
	for _, n := range body {
		if n, ok := n.(*ast.StmtClassMethod); ok {
			s.body(c, c.Method(text(n.Name)), n)
		}
	}
	return c
}

// assigned gives properties without a type the class that the constructor puts
// there.
func (c *Class) assigned(s *syntax, body []ast.Vertex) {
	constructor := c.Method("__construct")
	if constructor == nil {
		return
	}
	for _, n := range body {
		n, ok := n.(*ast.StmtClassMethod)
		if !ok || !strings.EqualFold(text(n.Name), "__construct") || n.Stmt == nil {
			continue
		}
		walk(n.Stmt, func(n ast.Vertex) bool {
			a, ok := n.(*ast.ExprAssign)
			if !ok {
				return true
			}
			f, ok := a.Var.(*ast.ExprPropertyFetch)
			if !ok || text(f.Var) != "$this" {
				return true
			}
			name, class := text(f.Prop), ""
			switch from := a.Expr.(type) {
			case *ast.ExprNew:
				class = s.class(from.Class)
			case *ast.ExprVariable:
				for _, p := range constructor.Params {
					if "$"+p.Name == text(from) {
						class = p.Type
						if own := c.Property(name); own != nil {
							own.Constructor = true
						}
					}
				}
			}
			switch own := c.Property(name); {
			case own == nil:
				c.Properties = append(c.Properties, Property{Name: name, Type: class, Line: line(a)})
			case own.Type == "":
				own.Type = class
			}
			return true
		})
	}
}

func (s *syntax) method(c *Class, n *ast.StmtClassMethod) *Method {
	m := &Method{Name: text(n.Name), Class: c, Line: line(n.Name), Attributes: s.attributes(n.AttrGroups)}
	if p := n.GetPosition(); p != nil {
		m.End = p.EndLine
	}
	m.Params, m.Returns = s.params(n.Params), s.typeName(n.ReturnType)
	return m
}

func (s *syntax) params(list []ast.Vertex) []Property {
	e := evaluator{syntax: s}
	var params []Property
	for _, p := range list {
		one := Property{}
		if p, ok := p.(*ast.Parameter); ok {
			one = Property{Name: strings.TrimPrefix(text(p.Var), "$"), Type: s.typeName(p.Type), Line: line(p.Var)}
			if p.DefaultValue != nil {
				one.Default = e.value(p.DefaultValue)
			}
		}
		params = append(params, one)
	}
	return params
}

func (s *syntax) typeName(n ast.Vertex) string {
	if n == nil {
		return ""
	}
	name := s.class(n)
	if builtin(name) {
		return strings.ToLower(Short(name))
	}
	if name == "" {
		return s.source(n)
	}
	return name
}

func (s *syntax) classNames(list []ast.Vertex) []string {
	var names []string
	for _, n := range list {
		if name := s.class(n); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (s *syntax) attributes(groups []ast.Vertex) []Attribute {
	var list []Attribute
	for _, g := range groups {
		g, ok := g.(*ast.AttributeGroup)
		if !ok {
			continue
		}
		for _, a := range g.Attrs {
			if a, ok := a.(*ast.Attribute); ok {
				list = append(list, Attribute{Name: s.class(a.Name), Args: s.args(a.Args), Line: line(a)})
			}
		}
	}
	return list
}

func (s *syntax) args(list []ast.Vertex) []Arg {
	e := evaluator{syntax: s}
	var args []Arg
	for _, n := range list {
		a, ok := n.(*ast.Argument)
		if !ok || a.Expr == nil {
			continue
		}
		one := Arg{Text: s.source(a.Expr), Value: e.value(a.Expr)}
		if a.Name != nil {
			one.Name = text(a.Name)
		}
		args = append(args, one)
	}
	return args
}

// body reads the calls and strings of a method.
func (s *syntax) body(c *Class, m *Method, n *ast.StmtClassMethod) {
	if n.Stmt == nil {
		return
	}
	m.Body = string(s.content[max(0, n.Stmt.GetPosition().StartPos):min(len(s.content), n.Stmt.GetPosition().EndPos)])
	types := map[string]string{}
	for _, p := range m.Params {
		types["$"+p.Name] = p.Type
	}
	for _, p := range c.Properties {
		types["$this->"+p.Name] = p.Type
	}
	types["$this"] = c.Name
	walk(n.Stmt, func(n ast.Vertex) bool { // first what variables are
		switch n := n.(type) {
		case *ast.ExprAssign:
			if made, ok := n.Expr.(*ast.ExprNew); ok && made.Class != nil {
				types[s.source(n.Var)] = s.class(made.Class)
			}
		case *ast.ExprClosure:
			for _, p := range s.params(n.Params) {
				types["$"+p.Name] = p.Type
			}
		}
		return true
	})
	b := bodyReader{syntax: s, types: types, seen: map[ast.Vertex]*Call{}, made: map[string]ast.Vertex{}}
	assigned := map[string]int{}
	walk(n.Stmt, func(n ast.Vertex) bool { // then what was called to get them
		if n, ok := n.(*ast.ExprAssign); ok {
			name := s.source(n.Var)
			if assigned[name]++; assigned[name] > 1 {
				delete(b.made, name) // of several, any
				return true
			}
			switch n.Expr.(type) {
			case *ast.ExprMethodCall, *ast.ExprNullsafeMethodCall, *ast.ExprStaticCall, *ast.ExprFunctionCall, *ast.ExprPropertyFetch, *ast.ExprNullsafePropertyFetch, *ast.ExprVariable:
				b.made[name] = n.Expr
			}
		}
		return true
	})
	walk(n.Stmt, func(n ast.Vertex) bool {
		switch n := n.(type) {
		case *ast.ScalarString:
			m.Strings = append(m.Strings, Literal{Text: unquote(string(n.Value)), Line: line(n)})
		case *ast.ExprAssign:
			m.Assigns = append(m.Assigns, Assign{Var: s.source(n.Var), Text: s.source(n.Expr), Line: line(n.Expr)})
		case *ast.ScalarEncapsedStringPart:
			m.Strings = append(m.Strings, Literal{Text: string(n.Value), Line: line(n)})
		}
		if call := b.call(n); call != nil {
			m.Calls = append(m.Calls, call)
		}
		return true
	})
}

type bodyReader struct {
	*syntax
	types map[string]string
	seen  map[ast.Vertex]*Call
	made  map[string]ast.Vertex // the one expression that a variable or property was given
	deep  int
}

// call is the call that n is; nil: it is none.
func (b *bodyReader) call(n ast.Vertex) *Call {
	if c, ok := b.seen[n]; ok {
		return c
	}
	var c *Call
	switch n := n.(type) {
	case *ast.ExprFunctionCall:
		name := parts(n.Function)
		if name == "" {
			return nil
		}
		c = &Call{Name: Short(name), Args: b.args(n.Args), Line: line(n.Function)}
	case *ast.ExprNew:
		c = &Call{Name: "new", Class: b.class(n.Class), Args: b.args(n.Args), Line: line(n)}
		c.Root = c.Class
	case *ast.ExprStaticCall:
		c = &Call{Name: text(n.Call), Class: b.class(n.Class), Args: b.args(n.Args), Line: line(n.Call)}
		c.Root = c.Class
	case *ast.ExprMethodCall:
		c = &Call{Name: text(n.Method), Args: b.args(n.Args), Line: line(n.Method)}
		b.receiver(c, n.Var)
	case *ast.ExprNullsafeMethodCall:
		c = &Call{Name: text(n.Method), Args: b.args(n.Args), Line: line(n.Method)}
		b.receiver(c, n.Var)
	default:
		return nil
	}
	b.seen[n] = c
	return c
}

// receiver finds what a method is called on.
func (b *bodyReader) receiver(c *Call, on ast.Vertex) {
	b.deep++
	defer func() { b.deep-- }()
	for steps := 0; ; steps++ {
		source := b.source(on)
		if class, ok := b.types[source]; ok && class != "" && !builtin(class) {
			c.Root, c.Class = source, class
			break
		}
		if made := b.made[source]; made != nil && steps < 20 && b.deep < 20 {
			on = made
			continue
		}
		if class, ok := b.types[source]; ok {
			c.Root, c.Class = source, class
			break
		}
		var property ast.Vertex
		switch n := on.(type) {
		case *ast.ExprBrackets:
			on = n.Expr
			continue
		case *ast.ExprPropertyFetch:
			on, property = n.Var, n.Prop
		case *ast.ExprNullsafePropertyFetch:
			on, property = n.Var, n.Prop
		}
		if property != nil {
			c.Via = append(c.Via, text(property))
			continue
		}
		if c.On = b.call(on); c.On != nil {
			c.Root, c.Class = c.On.Root, c.On.Class
		} else {
			c.Root = b.source(on)
		}
		break
	}
	slices.Reverse(c.Via)
}
