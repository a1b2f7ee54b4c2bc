package app

import (
	"math/big"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/VKCOM/php-parser/pkg/ast"
)

// evaluator finds the value of a PHP expression as configuration files write
// them: literals, arrays, env(), Str::slug(), paths, and the operators between
// them. What needs the running application is Unknown.
type evaluator struct {
	*syntax
	env *environment
}

// returned is the value that the file returns; nil where it returns none.
func (e *evaluator) returned() *Value {
	var found *Value
	walk(e.root, func(n ast.Vertex) bool {
		switch n := n.(type) {
		case *ast.StmtReturn:
			if found == nil && n.Expr != nil {
				found = e.value(n.Expr)
			}
			return false
		case *ast.Root, *ast.StmtNamespace:
			return true
		}
		return false
	})
	return found
}

func (e *evaluator) value(n ast.Vertex) *Value {
	at := e.origin(n)
	switch n := n.(type) {
	case *ast.ScalarString:
		return scalar(String, unquote(string(n.Value)), at)
	case *ast.ScalarLnumber:
		return number(string(n.Value), at)
	case *ast.ScalarDnumber:
		return scalar(Float, strings.ReplaceAll(string(n.Value), "_", ""), at)
	case *ast.ScalarEncapsed, *ast.ScalarHeredoc:
		return e.joined(n, at)
	case *ast.ExprConstFetch:
		switch strings.ToLower(parts(n.Const)) {
		case "true":
			return scalar(Bool, "true", at)
		case "false":
			return scalar(Bool, "false", at)
		case "null":
			return scalar(Null, "", at)
		}
	case *ast.ExprClassConstFetch:
		if strings.EqualFold(text(n.Const), "class") {
			if name := e.class(n.Class); name != "" {
				return scalar(String, name, at)
			}
		}
	case *ast.ExprArray:
		return e.array(n, at)
	case *ast.ExprBrackets:
		return e.value(n.Expr)
	case *ast.ExprErrorSuppress:
		return e.value(n.Expr)
	case *ast.ExprUnaryMinus:
		if v := e.value(n.Expr); v.Kind == Int || v.Kind == Float {
			return scalar(v.Kind, strings.TrimPrefix("-"+v.Text, "--"), at)
		}
	case *ast.ExprBooleanNot:
		if v := e.value(n.Expr); v.Known() {
			return boolean(!v.True(), v.From)
		}
	case *ast.ExprCastInt:
		if v := e.value(n.Expr); v.Known() {
			whole, _ := v.Int()
			if v.Kind == Bool && v.True() {
				whole = 1
			}
			return scalar(Int, strconv.Itoa(whole), v.From)
		}
	case *ast.ExprCastString:
		if v := e.value(n.Expr); v.Known() && v.Kind != Map {
			return scalar(String, v.Str(), v.From)
		}
	case *ast.ExprCastBool:
		if v := e.value(n.Expr); v.Known() {
			return boolean(v.True(), v.From)
		}
	case *ast.ExprCastDouble:
		if v := e.value(n.Expr); v.Known() {
			return scalar(Float, v.Str(), v.From)
		}
	case *ast.ExprCastArray:
		v := e.value(n.Expr)
		if v.Kind == Map {
			return v
		}
		if v.Known() {
			list := &Value{Kind: Map, From: v.From}
			for i, item := range v.List() {
				list.Set(strconv.Itoa(i), item)
			}
			return list
		}
	case *ast.ExprBinaryConcat:
		left, right := e.value(n.Left), e.value(n.Right)
		if left.Known() && right.Known() && left.Kind != Map && right.Kind != Map {
			return scalar(String, left.Str()+right.Str(), decided(at, left, right))
		}
	case *ast.ExprBinaryMul, *ast.ExprBinaryPlus, *ast.ExprBinaryMinus, *ast.ExprBinaryDiv:
		if v := e.arithmetic(n, at); v != nil {
			return v
		}
	case *ast.ExprBinaryCoalesce:
		left := e.value(n.Left)
		if left.Kind == Null {
			return e.value(n.Right)
		}
		return left
	case *ast.ExprTernary:
		cond := e.value(n.Cond)
		switch {
		case !cond.Known():
		case cond.True() && n.IfTrue == nil:
			return cond
		case cond.True():
			return e.value(n.IfTrue)
		default:
			return e.value(n.IfFalse)
		}
	case *ast.ExprFunctionCall:
		if v := e.function(strings.ToLower(parts(n.Function)), n.Args, at); v != nil {
			return v
		}
	case *ast.ExprStaticCall:
		class := e.class(n.Class)
		short := class[strings.LastIndexByte(class, '\\')+1:]
		if v := e.function(strings.ToLower(short+"::"+text(n.Call)), n.Args, at); v != nil {
			return v
		}
	}
	return unknown(e.source(n), at)
}

func number(digits string, at Origin) *Value {
	digits = strings.ToLower(strings.ReplaceAll(digits, "_", ""))
	if n, ok := new(big.Int).SetString(digits, 0); ok {
		return scalar(Int, n.String(), at)
	}
	return unknown(digits, at)
}

func boolean(b bool, from Origin) *Value { return scalar(Bool, strconv.FormatBool(b), from) }

// decided is the origin of what was made of several values: the one that an
// environment variable decided, else the expression itself.
func decided(at Origin, values ...*Value) Origin {
	for _, v := range values {
		if v.From.Env != "" && v.From.Default == "" && (v.From.Set != "" || v.From.File != at.File) {
			return v.From
		}
	}
	for _, v := range values {
		if v.From.Env != "" {
			return v.From
		}
	}
	return at
}

func (e *evaluator) array(n *ast.ExprArray, at Origin) *Value {
	v := &Value{Kind: Map, From: at}
	next := 0
	for _, item := range n.Items {
		item, ok := item.(*ast.ExprArrayItem)
		if !ok || item.Val == nil {
			continue
		}
		if item.EllipsisTkn != nil {
			for _, spread := range e.value(item.Val).List() {
				v.Set(strconv.Itoa(next), spread)
				next++
			}
			continue
		}
		value := e.value(item.Val)
		key := strconv.Itoa(next)
		if item.Key != nil {
			k := e.value(item.Key)
			if !k.Known() {
				continue
			}
			key = k.Str()
			value.Key = e.origin(item.Key)
		}
		if i, err := strconv.Atoi(key); err == nil && i >= next {
			next = i + 1
		}
		v.Set(key, value)
	}
	return v
}

func (e *evaluator) joined(n ast.Vertex, at Origin) *Value {
	var b strings.Builder
	var list []ast.Vertex
	switch n := n.(type) {
	case *ast.ScalarEncapsed:
		list = n.Parts
	case *ast.ScalarHeredoc:
		list = n.Parts
	}
	for _, part := range list {
		piece, ok := part.(*ast.ScalarEncapsedStringPart)
		if !ok {
			return unknown(e.source(n), at)
		}
		b.WriteString(unquote(`"` + string(piece.Value) + `"`))
	}
	return scalar(String, b.String(), at)
}

func (e *evaluator) arithmetic(n ast.Vertex, at Origin) *Value {
	var l, r ast.Vertex
	var op func(x, y int) int
	switch n := n.(type) {
	case *ast.ExprBinaryMul:
		l, r, op = n.Left, n.Right, func(x, y int) int { return x * y }
	case *ast.ExprBinaryPlus:
		l, r, op = n.Left, n.Right, func(x, y int) int { return x + y }
	case *ast.ExprBinaryMinus:
		l, r, op = n.Left, n.Right, func(x, y int) int { return x - y }
	case *ast.ExprBinaryDiv:
		l, r, op = n.Left, n.Right, func(x, y int) int {
			if y == 0 {
				return 0
			}
			return x / y
		}
	}
	left, right := e.value(l), e.value(r)
	x, ok1 := left.Int()
	y, ok2 := right.Int()
	if !ok1 || !ok2 {
		return nil
	}
	return scalar(Int, strconv.Itoa(op(x, y)), decided(at, left, right))
}

// function is the value of a call that configuration files use; nil: not known.
func (e *evaluator) function(name string, args []ast.Vertex, at Origin) *Value {
	arg := func(i int) *Value {
		if i < len(args) {
			if a, ok := args[i].(*ast.Argument); ok && a.Expr != nil {
				return e.value(a.Expr)
			}
		}
		return nil
	}
	switch name {
	case "env", "env::get":
		if v := arg(0); v.Known() {
			return e.environment(v.Str(), arg(1), at)
		}
	case "str::slug", "str_slug":
		if v := arg(0); v.Known() {
			separator := "-"
			if s := arg(1); s.Known() {
				separator = s.Str()
			}
			return scalar(String, slug(v.Str(), separator), decided(at, v))
		}
	case "strtolower", "str::lower":
		if v := arg(0); v.Known() {
			return scalar(String, strings.ToLower(v.Str()), decided(at, v))
		}
	case "base_path", "storage_path", "database_path", "app_path", "config_path", "public_path", "resource_path":
		folder := map[string]string{"base_path": "", "app_path": "app"}
		dir, ok := folder[name]
		if !ok {
			dir = strings.TrimSuffix(name, "_path")
		}
		return scalar(String, path.Join(".", dir, arg(0).Str()), at)
	case "explode":
		if separator, v := arg(0), arg(1); separator.Known() && v.Known() {
			list := &Value{Kind: Map, From: decided(at, v)}
			for i, part := range strings.Split(v.Str(), separator.Str()) {
				list.Set(strconv.Itoa(i), scalar(String, part, list.From))
			}
			return list
		}
	case "array_filter", "array_values", "app::config", "value":
		if v := arg(0); v.Known() {
			return v
		}
	case "array_merge", "array_replace":
		merged := &Value{Kind: Map, From: at}
		for i := range args {
			v := arg(i)
			if v == nil || v.Kind != Map {
				return nil
			}
			for _, key := range v.Keys {
				if _, err := strconv.Atoi(key); err == nil && name == "array_merge" {
					merged.Set(strconv.Itoa(len(merged.Keys)), v.Items[key])
				} else {
					merged.Set(key, v.Items[key])
				}
			}
		}
		return merged
	case "extension_loaded", "class_exists", "defined":
		return boolean(true, at)
	}
	return nil
}

// environment is what Laravel's env() returns.
func (e *evaluator) environment(name string, otherwise *Value, at Origin) *Value {
	if e.env == nil {
		return unknown("env('"+name+"')", at)
	}
	value, from, ok := e.env.get(name)
	if !ok {
		if otherwise == nil {
			otherwise = scalar(Null, "", at)
		}
		v := *otherwise
		if v.From.Env == "" && v.Kind != Map {
			v.From = Origin{File: at.File, Line: at.Line, Env: name + " is not set"}
		}
		return &v
	}
	from.Env = name
	if from.File == "" {
		from.File, from.Line = at.File, at.Line
	}
	switch strings.ToLower(value) {
	case "true", "(true)":
		return scalar(Bool, "true", from)
	case "false", "(false)":
		return scalar(Bool, "false", from)
	case "null", "(null)":
		return scalar(Null, "", from)
	case "empty", "(empty)":
		return scalar(String, "", from)
	}
	return scalar(String, value, from)
}

// slug is Laravel's Str::slug for ASCII; letters of other alphabets, which
// Laravel transliterates, are kept as they are.
func slug(s, separator string) string {
	flip := "_"
	if separator == "_" {
		flip = "-"
	}
	s = strings.ReplaceAll(strings.ReplaceAll(s, flip, separator), "@", separator+"at"+separator)
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(s) {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r):
			if gap && b.Len() > 0 {
				b.WriteString(separator)
			}
			gap = false
			b.WriteRune(r)
		case unicode.IsSpace(r), strings.ContainsRune(separator, r):
			gap = true
		}
	}
	return b.String()
}

// unquote is the value of a PHP string literal with its quotes.
func unquote(s string) string {
	if len(s) < 2 {
		return s
	}
	quote, s := s[0], s[1:len(s)-1]
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch {
		case s[i] == '\\' || s[i] == quote:
			b.WriteByte(s[i])
		case quote == '"' && s[i] == 'n':
			b.WriteByte('\n')
		case quote == '"' && s[i] == 't':
			b.WriteByte('\t')
		case quote == '"' && s[i] == '$':
			b.WriteByte('$')
		default:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
