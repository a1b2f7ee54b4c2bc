package php

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Marshal writes v as PHP's serialize does, with back-references numbered anew:
// an object that occurs again is written as r:, a shared [Ref] as R:. What
// [Unmarshal] has read from PHP is written back byte by byte.
//
// It is an error if v has a part that PHP cannot read: a nil value, a key that
// is neither Int nor String, nesting deeper than [MaxDepth], or a back-reference
// next to a [Custom], whose own numbering is unknown.
func Marshal(v Value) ([]byte, error) {
	w := writer{seen: map[any]int{}}
	if err := w.value(v, 0); err != nil {
		return nil, fmt.Errorf("php serialization: %w", err)
	}
	if len(w.out) > MaxSize {
		return nil, fmt.Errorf("php serialization of %d bytes: at most %d are written", len(w.out), MaxSize)
	}
	return w.out, nil
}

type writer struct {
	out    []byte
	n      int         // values numbered so far
	seen   map[any]int // *Object, *Custom, Enum or *Ref: its number
	opaque int         // number of the first Custom; 0: none
}

func (w *writer) value(v Value, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("more than %d arrays and objects inside each other, or an array inside itself", MaxDepth)
	}
	if ref, ok := v.(*Ref); ok {
		if n, ok := w.seen[ref]; ok {
			return w.reference('R', n) // takes no number
		}
		w.seen[ref] = w.n + 1
		v = ref.Value
	}
	w.n++
	switch v.(type) {
	case *Object, *Custom, Enum:
		if n, ok := w.seen[v]; ok {
			return w.reference('r', n)
		}
		w.seen[v] = w.n
	}
	switch v := v.(type) {
	case Null:
		w.text("N;")
	case Bool:
		if v {
			w.text("b:1;")
		} else {
			w.text("b:0;")
		}
	case Int:
		w.int(v)
	case Float:
		if err := v.check(); err != nil {
			return err
		}
		w.text("d:", string(v), ";")
	case String:
		w.str('s', string(v))
		w.text(";")
	case Enum:
		if err := v.check(); err != nil {
			return err
		}
		w.str('E', v.Class+":"+v.Case)
		w.text(";")
	case *Array:
		w.text("a")
		return w.items(v.Items, depth)
	case *Object:
		if v.Class == "" {
			return errors.New("an object without a class")
		}
		w.str('O', v.Class)
		return w.items(v.Items, depth)
	case *Custom:
		return w.custom(v)
	default:
		return fmt.Errorf("a %T is not a value", v) // nil, a Ref in a Ref
	}
	return nil
}

func (w *writer) items(items []Item, depth int) error {
	w.text(":", strconv.Itoa(len(items)), ":{")
	for _, it := range items {
		switch key := it.Key.(type) {
		case Int:
			w.int(key)
		case String:
			w.str('s', string(key))
			w.text(";")
		default:
			return fmt.Errorf("a %T as key", key)
		}
		if err := w.value(it.Value, depth+1); err != nil {
			return err
		}
	}
	w.text("}")
	return nil
}

func (w *writer) custom(c *Custom) error {
	if c.Class == "" {
		return errors.New("an object without a class")
	}
	if c.slot != w.n && strings.ContainsAny(c.Data, "rR") &&
		(strings.Contains(c.Data, "r:") || strings.Contains(c.Data, "R:")) {
		return fmt.Errorf("object of class %s with its own serialization has moved from number %d to %d and may refer to other values by number", c.Class, c.slot, w.n)
	}
	if w.opaque == 0 {
		w.opaque = w.n
	}
	w.str('C', c.Class)
	w.text(":", strconv.Itoa(len(c.Data)), ":{", c.Data, "}")
	return nil
}

func (w *writer) reference(kind byte, n int) error {
	if w.opaque != 0 && n > w.opaque {
		return fmt.Errorf("%c:%d would refer past value %d, whose class numbers values in a way of its own", kind, n, w.opaque)
	}
	w.out = append(w.out, kind, ':')
	w.out = strconv.AppendInt(w.out, int64(n), 10)
	w.out = append(w.out, ';')
	return nil
}

func (w *writer) text(parts ...string) {
	for _, p := range parts {
		w.out = append(w.out, p...)
	}
}

func (w *writer) int(n Int) {
	w.text("i:", strconv.FormatInt(int64(n), 10), ";")
}

// str writes k:LENGTH:"TEXT".
func (w *writer) str(kind byte, s string) {
	w.text(string(kind), ":", strconv.Itoa(len(s)), `:"`, s, `"`)
}
