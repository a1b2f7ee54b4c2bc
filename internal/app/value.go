package app

import (
	"fmt"
	"strconv"
	"strings"
)

// Origin is where a value was decided: the place to change it.
type Origin struct {
	File string // relative to the project, with slashes; empty: no file of it
	Line int    // from 1; 0: the whole file
	Env  string // the environment variable that was read on the way; empty: none
	// Set is where Env was set, when that is not File: "the environment".
	Set string
	// Default names whose default it is where nobody wrote the value, such as
	// "Laravel 11"; empty: somebody wrote it.
	Default string
}

// String is the origin for people: "config/queue.php:67", ".env:12 (REDIS_DB)",
// "the environment (REDIS_DB)", "default of Laravel 11".
func (o Origin) String() string {
	var b strings.Builder
	switch {
	case o.Default != "":
		b.WriteString("default of " + o.Default)
	case o.Set != "":
		b.WriteString(o.Set)
	case o.Line > 0:
		fmt.Fprintf(&b, "%s:%d", o.File, o.Line)
	default:
		b.WriteString(o.File)
	}
	if o.Env != "" {
		fmt.Fprintf(&b, " (%s)", o.Env)
	}
	if o.Default != "" && o.File != "" {
		fmt.Fprintf(&b, ", not set in %s", o.File)
	} else if o.Set != "" && o.Line > 0 {
		fmt.Fprintf(&b, ", read in %s:%d", o.File, o.Line)
	}
	return b.String()
}

// Kind is what a value is. The zero Kind is a value that cannot be known
// without running the application.
type Kind int

// The kinds of values.
const (
	Unknown Kind = iota
	Null
	Bool
	Int
	Float
	String
	Map // of PHP's arrays, lists too: their keys are 0, 1, 2, …
)

// Value is one value of a configuration, with where it comes from. A nil Value
// is one that is not there; all methods may be called on it.
type Value struct {
	Kind  Kind
	Text  string            // of a scalar: as PHP prints it; of an unknown value: its expression
	Keys  []string          // of a Map, in its order
	Items map[string]*Value // of a Map
	From  Origin
	// Key is where the key that the value stands under is written; the zero Origin
	// for what is in no file.
	Key Origin
}

// Get follows a path of keys separated by dots. It is nil where nothing is
// there, or only something that is not known.
func (v *Value) Get(path string) *Value {
	for path != "" && v != nil {
		if v.Kind != Map {
			return nil
		}
		if whole, ok := v.Items[path]; ok { // a key may itself hold dots
			return whole
		}
		key, rest, _ := strings.Cut(path, ".")
		v, path = v.Items[key], rest
	}
	return v
}

// Set puts item under key of a Map.
func (v *Value) Set(key string, item *Value) {
	if v.Items == nil {
		v.Items = map[string]*Value{}
	}
	if _, ok := v.Items[key]; !ok {
		v.Keys = append(v.Keys, key)
	}
	v.Items[key] = item
}

// List are the items of a Map, in its order. A scalar is a list of one, as most
// options of the frameworks take it; null, and what is not there, is none.
func (v *Value) List() []*Value {
	switch {
	case v == nil || v.Kind == Null:
		return nil
	case v.Kind != Map:
		return []*Value{v}
	}
	list := make([]*Value, 0, len(v.Keys))
	for _, key := range v.Keys {
		list = append(list, v.Items[key])
	}
	return list
}

// Known reports whether v is there and what it is can be read.
func (v *Value) Known() bool { return v != nil && v.Kind != Unknown }

// Str is v as PHP makes a string of it; "" for null, arrays and what is not known.
func (v *Value) Str() string {
	if v == nil || v.Kind == Unknown || v.Kind == Map || v.Kind == Null {
		return ""
	}
	if v.Kind == Bool && v.Text == "false" {
		return ""
	}
	return v.Text
}

// Int is v as a whole number; ok is false when it is none.
func (v *Value) Int() (n int, ok bool) {
	if v == nil || v.Kind != Int && v.Kind != String && v.Kind != Float {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(v.Text), 64)
	return int(f), err == nil
}

// True is what PHP's if makes of v; false for what is not known.
func (v *Value) True() bool {
	if v == nil {
		return false
	}
	switch v.Kind {
	case Bool:
		return v.Text == "true"
	case Int, Float, String:
		return v.Text != "" && v.Text != "0"
	case Map:
		return len(v.Keys) > 0
	}
	return false
}

// Origin is where v was decided; the zero Origin when it is not there.
func (v *Value) Origin() Origin {
	if v == nil {
		return Origin{}
	}
	return v.From
}

// String is v for people. Secrets are the caller's to keep back.
func (v *Value) String() string {
	switch {
	case v == nil:
		return "not set"
	case v.Kind == Unknown:
		return "not known (" + v.Text + ")"
	case v.Kind == Null:
		return "null"
	case v.Kind == Map:
		return fmt.Sprintf("[%s]", strings.Join(v.Keys, ", "))
	case v.Kind == String && v.Text == "":
		return `""`
	}
	return v.Text
}

func scalar(kind Kind, text string, from Origin) *Value {
	return &Value{Kind: kind, Text: text, From: from}
}

func unknown(expression string, from Origin) *Value {
	return &Value{Kind: Unknown, Text: expression, From: from}
}
