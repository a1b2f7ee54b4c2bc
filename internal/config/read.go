package config

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// setting is one key of the file that was read.
type setting struct {
	path  path
	key   position // of the key, or of a list's entry
	value position
}

// reader fills a File from YAML and collects every finding on its way.
type reader struct {
	file     string
	env      Env
	findings []Finding
	settings []*setting
	byPath   map[string]*setting
	secrets  []secret
}

// secret is a value that was put into the setting at path and must not be shown.
type secret struct{ path, name, value string }

func (r *reader) find(at position, p path, what, fix string) {
	r.findings = append(r.findings, Finding{File: r.file, Line: at.line, Column: at.column, Key: p.String(), What: what, Fix: fix})
}

// findMasked is find for a text that may quote what was put into the setting at
// p, around it or within it: each value is shown as it stands in the file.
func (r *reader) findMasked(at position, p path, what, fix string) {
	longestFirst := slices.SortedStableFunc(slices.Values(r.secrets), func(a, b secret) int { return len(b.value) - len(a.value) })
	for _, s := range longestFirst {
		if s.value == "" || !within(s.path, p.String()) && !within(p.String(), s.path) {
			continue
		}
		quoted := strconv.Quote(s.value)
		what = strings.NewReplacer(s.value, "${"+s.name+"}", quoted[1:len(quoted)-1], "${"+s.name+"}").Replace(what)
	}
	r.find(at, p, what, fix)
}

func (r *reader) note(p path, key ast.Node, value ast.Node) {
	if _, known := r.byPath[p.String()]; known { // an entry of a list keeps its own key
		return
	}
	s := &setting{path: p, key: place(key), value: place(value)}
	r.settings = append(r.settings, s)
	r.byPath[p.String()] = s
}

// place is where n begins.
func place(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return position{t.Position.Line, max(1, t.Position.Column)}
	}
	return position{}
}

// custom is a type of the file that reads itself.
type custom interface {
	read(r *reader, n ast.Node, p path)
}

var durationType = reflect.TypeFor[time.Duration]()

// read puts n into v, as tag says.
func (r *reader) read(n ast.Node, p path, v reflect.Value, tag reflect.StructTag) {
	if r.indirect(n, p) {
		return
	}
	custom, isCustom := v.Addr().Interface().(custom)
	_, isNull := n.(*ast.NullNode)
	switch {
	case isNull && v.Type() != reflect.TypeFor[Scalar]() && v.Type() != reflect.TypeFor[Tree]():
		r.find(place(n), p, "no value", "write one, or take the key out")
		return
	case isCustom:
		custom.read(r, n, p)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.read(n, p, v.Elem(), tag)
	case reflect.Struct:
		r.readStruct(n, p, v)
	case reflect.Map:
		r.readMap(n, p, v, tag)
	case reflect.Slice:
		r.readList(n, p, v, tag)
	default:
		r.readScalar(n, p, v, tag)
	}
}

// indirect refuses what YAML takes from elsewhere: a file about money is read
// as it stands.
func (r *reader) indirect(n ast.Node, p path) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		r.find(place(n), p, "YAML's anchors, aliases and tags are not read here", "write the value out")
		return true
	}
	return false
}

func (r *reader) readStruct(n ast.Node, p path, v reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.wrongType(n, p, "a group of settings", "keys: "+strings.Join(keysOf(v.Type()), ", "))
		setDefaults(v)
		return
	}
	setDefaults(v)
	seen := map[string]bool{}
	for _, entry := range m.Values {
		name, ok := r.key(entry, p, seen)
		if !ok {
			continue
		}
		field, ok := fieldOf(v.Type(), name)
		if !ok {
			fix := "the keys here are " + strings.Join(keysOf(v.Type()), ", ")
			if like := nearest(name, keysOf(v.Type())); like != "" {
				fix = "did you mean " + like + "?"
			}
			r.find(place(entry.Key), p.child(name), "unknown key", fix)
			continue
		}
		child := p.child(name)
		target := v.FieldByIndex(field.Index)
		r.note(child, entry.Key, entry.Value)
		value, errors := reflect.New(field.Type).Elem(), len(r.findings)
		r.read(entry.Value, child, value, field.Tag)
		if len(r.findings) == errors || !value.IsZero() {
			target.Set(value) // else the default stays, so that one error does not look like two
		}
	}
	for _, field := range reflect.VisibleFields(v.Type()) {
		name := keyOf(field)
		if field.Tag.Get("need") != "" && !seen[name] {
			r.find(place(n), p.child(name), "is missing", need(field))
		}
	}
}

// need is what to write for a setting that is missing.
func need(field reflect.StructField) string {
	doc, _, _ := strings.Cut(field.Tag.Get("doc"), "\n")
	if doc == "" {
		return "write it"
	}
	return "write it: " + strings.TrimSuffix(doc, ".")
}

func (r *reader) readMap(n ast.Node, p path, v reflect.Value, tag reflect.StructTag) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.wrongType(n, p, "a map", "name: value")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	seen := map[string]bool{}
	for _, entry := range m.Values {
		name, ok := r.key(entry, p, seen)
		if !ok {
			continue
		}
		if k := v.Type().Key(); k == reflect.TypeFor[Class]() || k == reflect.TypeFor[Pattern]() {
			class, ok := r.class(entry.Key, name, p, k == reflect.TypeFor[Pattern]())
			if !ok {
				continue
			}
			name = class
		}
		if name == "" {
			r.find(place(entry.Key), p, "a key is empty", "write a name")
			continue
		}
		child := p.child(name)
		r.note(child, entry.Key, entry.Value)
		value := reflect.New(v.Type().Elem()).Elem()
		r.read(entry.Value, child, value, tag)
		if value.Kind() == reflect.Pointer && value.IsNil() {
			continue // it has a finding
		}
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), value)
	}
}

func (r *reader) readList(n ast.Node, p path, v reflect.Value, tag reflect.StructTag) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.wrongType(n, p, "a list", "["+strings.TrimSpace(n.String())+"]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, len(list.Values)))
	for i, entry := range list.Values {
		child := p.index(i)
		r.note(child, entry, entry)
		value := reflect.New(v.Type().Elem()).Elem()
		r.read(entry, child, value, tag)
		v.Set(reflect.Append(v, value))
	}
}

// key is the name of entry, unless it has been there before.
func (r *reader) key(entry *ast.MappingValueNode, p path, seen map[string]bool) (string, bool) {
	if _, ok := entry.Key.(*ast.MergeKeyNode); ok {
		r.find(place(entry.Key), p, "YAML's merge keys are not read here", "write the keys out")
		return "", false
	}
	name := entry.Key.GetToken().Value
	if seen[name] {
		r.find(place(entry.Key), p.child(name), "stands here twice", "take one of them out")
		return "", false
	}
	seen[name] = true
	return name, true
}

func (r *reader) wrongType(n ast.Node, p path, want, write string) {
	r.find(place(n), p, describe(n)+" where "+want+" belongs", "write "+write)
}

// describe is n for people, as it stands in the file: variables are not put in.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		return "a group of settings"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return strconv.Quote(n.Value)
	case *ast.LiteralNode:
		return strconv.Quote(n.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.NullNode:
		return "nothing"
	}
	return n.GetToken().Value
}

// text is the text of a scalar as it stands in the file, and whether it is
// text rather than a number or a truth value.
func text(n ast.Node) (s string, isText, isScalar bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

func (r *reader) readScalar(n ast.Node, p path, v reflect.Value, tag reflect.StructTag) {
	s, isText, isScalar := text(n)
	if v.Kind() == reflect.String {
		if !isText {
			r.wrongType(n, p, "text", textInstead(n, isScalar))
			return
		}
		if v.Type() == reflect.TypeFor[Pattern]() {
			if class, ok := r.class(n, s, p, true); ok {
				v.SetString(class)
			}
			return
		}
		if s, ok := r.expand(n, s, p, v.Type()); ok {
			v.SetString(s)
			r.check(n, p, v, tag)
		}
		return
	}
	if !isScalar {
		r.wrongType(n, p, nameOf(v, tag), example(v, tag))
		return
	}
	if isText {
		var ok bool
		if s, ok = r.expand(n, s, p, v.Type()); !ok {
			return
		}
	}
	if !parse(s, v, tag) {
		r.find(place(n), p, describe(n)+" is not "+nameOf(v, tag), "write "+example(v, tag))
		return
	}
	r.check(n, p, v, tag)
}

func textInstead(n ast.Node, isScalar bool) string {
	if isScalar {
		return "it in quotes: " + strconv.Quote(n.GetToken().Value)
	}
	return "one text"
}

// expand puts the variables into s, as it belongs into a value of type t.
func (r *reader) expand(n ast.Node, s string, p path, t reflect.Type) (string, bool) {
	if !hasReference(s) {
		return s, true
	}
	var quote func([]piece, int, string) (string, error)
	switch t {
	case reflect.TypeFor[Address]():
		quote = inAddress
	case reflect.TypeFor[Template]():
		quote = inTemplate
	case reflect.TypeFor[PathTemplate]():
		quote = inPathTemplate
	}
	expanded, err := expand(s, r.env, func(pieces []piece, i int, value string) (string, error) {
		put, err := value, error(nil)
		if quote != nil {
			put, err = quote(pieces, i, value)
		}
		r.secrets = append(r.secrets, secret{p.String(), pieces[i].name, value}, secret{p.String(), pieces[i].name, put})
		return put, err
	})
	if err != nil {
		r.find(place(n), p, strconv.Quote(s), err.Error())
		return "", false
	}
	return expanded, true
}

// check holds v against the bounds of its tag.
func (r *reader) check(n ast.Node, p path, v reflect.Value, tag reflect.StructTag) {
	if words := strings.Fields(tag.Get("enum")); len(words) > 0 && v.Kind() == reflect.String && !slices.Contains(words, v.String()) {
		fix := "write one of " + strings.Join(words, ", ")
		if s, _, _ := text(n); nearest(s, words) != "" {
			fix = "did you mean " + nearest(s, words) + "?"
		}
		r.find(place(n), p, describe(n)+" is not known here", fix)
	}
	if v.Kind() != reflect.Int && v.Type() != durationType {
		return
	}
	low, high := bounds(v, tag)
	if v.Int() < low || v.Int() > high {
		r.find(place(n), p, describe(n)+" is out of bounds", "write "+rangeOf(v, tag))
	}
}

func bounds(v reflect.Value, tag reflect.StructTag) (low, high int64) {
	limit := func(name string, other int64) int64 {
		bound := reflect.New(v.Type()).Elem()
		if s := tag.Get(name); s == "" || !parse(s, bound, tag) {
			return other
		}
		return bound.Int()
	}
	return limit("min", 0), limit("max", 1<<63-1)
}

func rangeOf(v reflect.Value, tag reflect.StructTag) string {
	low, high := tag.Get("min"), tag.Get("max")
	switch {
	case low == "":
		return "0 or more"
	case high == "":
		return low + " or more"
	}
	return low + " to " + high
}

// parse reads s into v, which is an int, a bool or a duration.
func parse(s string, v reflect.Value, tag reflect.StructTag) bool {
	switch {
	case v.Type() == durationType:
		d, ok := parseDuration(s, strings.HasSuffix(tag.Get("yaml"), ",seconds"))
		v.SetInt(int64(d))
		return ok
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(s)
		if err != nil || !decimal.MatchString(s) {
			return false
		}
		v.SetInt(int64(n))
		return true
	case v.Kind() == reflect.Bool:
		v.SetBool(s == "true")
		return s == "true" || s == "false"
	case v.Kind() == reflect.String:
		v.SetString(s)
		return true
	}
	return false
}

var (
	decimal       = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,18})$`)
	durationParts = regexp.MustCompile(`^(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?(?:(\d{1,9})ms)?$`)
)

// parseDuration reads 90s, 1h, 1h30m, 250ms or 90d; with seconds also a bare
// number of seconds. A bare 0 is no time at all.
func parseDuration(s string, seconds bool) (time.Duration, bool) {
	if s == "0" {
		return 0, true
	}
	if seconds && decimal.MatchString(s) && len(s) <= 9 {
		n, _ := strconv.Atoi(s)
		return time.Duration(n) * time.Second, n > 0
	}
	parts := durationParts.FindStringSubmatch(s)
	if s == "" || parts == nil {
		return 0, false
	}
	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond} {
		if parts[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(parts[i+1], 10, 64)
		if err != nil || n > int64((1<<63-1-d)/unit) {
			return 0, false
		}
		d += time.Duration(n) * unit
	}
	return d, true
}

func nameOf(v reflect.Value, tag reflect.StructTag) string {
	switch {
	case v.Type() == durationType:
		return "a duration"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}

func example(v reflect.Value, tag reflect.StructTag) string {
	switch {
	case v.Type() == durationType && strings.HasSuffix(tag.Get("yaml"), ",seconds"):
		return "90s, 1h, or the framework's seconds, 90"
	case v.Type() == durationType:
		return "a number with its unit: 90s, 5m, 1h or 90d"
	case v.Kind() == reflect.Int:
		return rangeOf(v, tag)
	case v.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}

// setDefaults gives the fields of struct v their defaults.
func setDefaults(v reflect.Value) {
	for _, field := range reflect.VisibleFields(v.Type()) {
		words := strings.Fields(field.Tag.Get("default"))
		target := v.FieldByIndex(field.Index)
		if len(words) == 0 {
			continue
		}
		if target.Kind() != reflect.Slice {
			parse(words[0], target, field.Tag)
			continue
		}
		for _, word := range words {
			entry := reflect.New(target.Type().Elem()).Elem()
			parse(word, entry, field.Tag)
			target.Set(reflect.Append(target, entry))
		}
	}
}

func keyOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
	return name
}

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for _, field := range reflect.VisibleFields(t) {
		if name := keyOf(field); name != "" && name == key {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// keysOf lists the keys of struct t, in its order.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		if name := keyOf(field); name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

const singleQuotes = `use single quotes: 'App\Jobs\Charge'; in double quotes a backslash begins an escape`

var className = regexp.MustCompile(`^[A-Za-z_\x80-\x{10ffff}][A-Za-z0-9_\x80-\x{10ffff}]*(\\[A-Za-z_\x80-\x{10ffff}][A-Za-z0-9_\x80-\x{10ffff}]*)*$`)

// class is the class name s of node n; a pattern may be * or end in *.
func (r *reader) class(n ast.Node, s string, p path, pattern bool) (string, bool) {
	t := n.GetToken()
	name := strings.TrimPrefix(s, `\`)
	bare := name
	if pattern {
		bare = strings.TrimSuffix(strings.TrimSuffix(name, "*"), `\`)
	}
	if t.Type == token.DoubleQuoteType && strings.Contains(strings.ReplaceAll(t.Origin, `\\`, ""), `\`) {
		r.find(place(n), p, strings.TrimSpace(t.Origin)+" is in double quotes", singleQuotes)
		return "", false
	}
	if bare == "" && name == "*" && pattern || className.MatchString(bare) {
		return name, true
	}
	r.find(place(n), p, describe(n)+" is not the name of a class", `write it as PHP does: 'App\Jobs\Charge'`)
	return "", false
}

func (c *Classes) read(r *reader, n ast.Node, p path) {
	entries := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		entries = list.Values
	}
	for i, entry := range entries {
		at := p
		if len(entries) > 1 {
			at = p.index(i)
			r.note(at, entry, entry)
		}
		s, isText, _ := text(entry)
		if !isText {
			r.wrongType(entry, at, "the name of a class", `'App\Jobs\Charge'`)
			continue
		}
		if class, ok := r.class(entry, s, at, false); ok {
			*c = append(*c, Class(class))
		}
	}
	if len(entries) == 0 {
		r.find(place(n), p, "the list is empty", "write at least one class")
	}
}

func (a *Amount) read(r *reader, n ast.Node, p path) {
	if s, isText, _ := text(n); isText {
		a.Path = Path(s)
		return
	}
	m, ok := n.(*ast.MappingNode)
	if ok && len(m.Values) == 1 {
		key := m.Values[0].Key.GetToken().Value
		if s, isText, _ := text(m.Values[0].Value); isText && (key == "major" || key == "minor") {
			r.note(p.child(key), m.Values[0].Key, m.Values[0].Value)
			a.Path, a.Major = Path(s), key == "major"
			return
		}
	}
	r.find(place(n), p, "an amount is the path to it", "write a path to minor units, such as cents, or {major: total} for a decimal")
}

func (h *Hook) read(r *reader, n ast.Node, p path) {
	if s, isText, _ := text(n); isText {
		h.Rows = 1
		if s, ok := r.expand(n, s, p, reflect.TypeFor[SQL]()); ok {
			h.SQL = SQL(s)
		}
		return
	}
	r.readStruct(n, p, reflect.ValueOf(h).Elem())
}

func (k *KeepApart) read(r *reader, n ast.Node, p path) {
	if s, isText, _ := text(n); isText {
		if s, ok := r.expand(n, s, p, reflect.TypeFor[string]()); ok {
			k.Prefix = s
		}
		return
	}
	r.readStruct(n, p, reflect.ValueOf(k).Elem())
}

func (s *Scalar) read(r *reader, n ast.Node, p path) {
	if v, ok := r.scalar(n, p, reflect.TypeFor[string]()); ok {
		s.Value = v
	}
}

// scalar is n as nil, bool, int64, json.Number or string; strings with their
// variables put in, as into a value of type t.
func (r *reader) scalar(n ast.Node, p path, t reflect.Type) (any, bool) {
	s, isText, isScalar := text(n)
	switch {
	case isText:
		s, ok := r.expand(n, s, p, t)
		return s, ok
	case n.Type() == ast.NullType:
		return nil, true
	case isScalar && n.Type() == ast.BoolType:
		return s == "true", true
	case isScalar && decimal.MatchString(s):
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i, true
		}
	case isScalar && json.Valid([]byte(s)):
		return json.Number(s), true
	}
	r.find(place(n), p, describe(n)+" cannot stand here", "write text in quotes, a plain decimal number, true, false or null")
	return nil, false
}

func (t *Tree) read(r *reader, n ast.Node, p path) { t.Value = r.tree(n, p) }

func (r *reader) tree(n ast.Node, p path) any {
	if r.indirect(n, p) {
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		m := map[string]any{}
		seen := map[string]bool{}
		for _, entry := range n.Values {
			if name, ok := r.key(entry, p, seen); ok {
				r.note(p.child(name), entry.Key, entry.Value)
				m[name] = r.tree(entry.Value, p.child(name))
			}
		}
		return m
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for i, entry := range n.Values {
			r.note(p.index(i), entry, entry)
			list = append(list, r.tree(entry, p.index(i)))
		}
		return list
	}
	v, _ := r.scalar(n, p, reflect.TypeFor[Template]())
	return v
}
