package php

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits of what is read and written. PHP's own payloads are far below.
const (
	MaxSize  = 16 << 20 // bytes of a document
	MaxDepth = 512      // arrays and objects inside each other
)

// Unmarshal reads one serialized value, which must be all of b. Back-references
// are resolved: r: becomes the same *Object once more, R: a shared *Ref.
//
// It is stricter than PHP, which takes forms that it never writes (i:+5;, S:,
// trailing bytes). The error names the byte at which reading stopped.
func Unmarshal(b []byte) (Value, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("php serialization of %d bytes: at most %d are read", len(b), MaxSize)
	}
	r := reader{in: b}
	root := []Item{{}}
	err := r.value(holder{&root, 0}, 0)
	if err == nil && r.pos < len(b) {
		err = fmt.Errorf("%d bytes follow the value", len(b)-r.pos)
	}
	if err != nil {
		return nil, fmt.Errorf("php serialization, byte %d: %w", r.pos, err)
	}
	return root[0].Value, nil
}

// holder is the place that a value is in: a later R: turns the value there into
// a reference. It is not a pointer to the Item since Items move as they grow.
type holder struct {
	items *[]Item
	i     int
}

func (h holder) get() Value  { return (*h.items)[h.i].Value }
func (h holder) set(v Value) { (*h.items)[h.i].Value = v }

type reader struct {
	in     []byte
	pos    int
	slots  []holder // value number n of the document is in slots[n-1]
	opaque int      // number of the first Custom, behind which numbers are unknown; 0: none
}

// value reads one value into h. Every value but an R: takes the next number,
// before the values inside it do; keys take none.
func (r *reader) value(h holder, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("more than %d arrays and objects inside each other", MaxDepth)
	}
	if r.pos+1 >= len(r.in) {
		return errCut
	}
	kind := r.in[r.pos]
	if kind == 'N' {
		r.slots = append(r.slots, h)
		h.set(Null{})
		return r.expect("N;")
	}
	if r.in[r.pos+1] != ':' {
		return fmt.Errorf("no value starts with %q", r.in[r.pos:r.pos+2])
	}
	if kind != 'R' {
		r.slots = append(r.slots, h)
	}
	switch kind {
	case 'i':
		n, err := r.int()
		if err != nil {
			return err
		}
		h.set(Int(n))
		return nil
	case 's':
		s, err := r.str()
		if err != nil {
			return err
		}
		h.set(String(s))
		return r.expect(";")
	case 'b':
		text, err := r.until(';')
		if err != nil {
			return err
		}
		if text != "0" && text != "1" {
			return fmt.Errorf("bool %q is neither 0 nor 1", clip(text))
		}
		h.set(Bool(text == "1"))
		return nil
	case 'd':
		text, err := r.until(';')
		if err != nil {
			return err
		}
		if err := Float(text).check(); err != nil {
			return err
		}
		h.set(Float(text))
		return nil
	case 'E':
		name, err := r.str()
		if err != nil {
			return err
		}
		class, kase, _ := strings.Cut(name, ":")
		e := Enum{class, kase}
		if err := e.check(); err != nil {
			return err
		}
		h.set(e)
		return r.expect(";")
	case 'a':
		r.pos += len("a:")
		a := &Array{}
		h.set(a)
		return r.items(&a.Items, depth)
	case 'O':
		class, err := r.class()
		if err != nil {
			return err
		}
		o := &Object{Class: class}
		h.set(o)
		return r.items(&o.Items, depth)
	case 'C':
		return r.custom(h)
	case 'r', 'R':
		return r.reference(h, kind == 'R')
	}
	return fmt.Errorf("values of kind %q are not supported", kind)
}

// items reads what follows a: or O:…: and is the same in both.
func (r *reader) items(items *[]Item, depth int) error {
	n, err := r.length(':')
	if err != nil {
		return err
	}
	if err := r.expect("{"); err != nil {
		return err
	}
	for i := range n {
		key, err := r.key()
		if err != nil {
			return err
		}
		*items = append(*items, Item{Key: key})
		if err := r.value(holder{items, i}, depth+1); err != nil {
			return err
		}
	}
	return r.expect("}")
}

func (r *reader) key() (Value, error) {
	switch {
	case bytes.HasPrefix(r.in[r.pos:], []byte("i:")):
		n, err := r.int()
		return Int(n), err
	case bytes.HasPrefix(r.in[r.pos:], []byte("s:")):
		s, err := r.str()
		if err != nil {
			return nil, err
		}
		return String(s), r.expect(";")
	}
	return nil, errors.New("neither an integer nor a string as key")
}

func (r *reader) custom(h holder) error {
	class, err := r.class()
	if err != nil {
		return err
	}
	n, err := r.length(':')
	if err != nil {
		return err
	}
	if err := r.expect("{"); err != nil {
		return err
	}
	if n > len(r.in)-r.pos {
		return errCut
	}
	c := &Custom{Class: class, Data: string(r.in[r.pos : r.pos+n]), slot: len(r.slots)}
	r.pos += n
	if r.opaque == 0 {
		r.opaque = c.slot
	}
	h.set(c)
	return r.expect("}")
}

func (r *reader) reference(h holder, variable bool) error {
	start := r.pos
	r.pos += len("r:")
	n, err := r.length(';')
	if err != nil {
		return err
	}
	if n < 1 || n > len(r.slots) {
		return fmt.Errorf("%s refers to a value that is not there", r.in[start:r.pos])
	}
	if r.opaque != 0 && n > r.opaque {
		return fmt.Errorf("%s refers past value %d, whose class numbers values in a way of its own", r.in[start:r.pos], r.opaque)
	}
	target := r.slots[n-1]
	v := target.get()
	if v == nil {
		return fmt.Errorf("%s refers to itself", r.in[start:r.pos])
	}
	if !variable {
		switch v := Deref(v).(type) {
		case *Object, *Custom, Enum:
			h.set(v)
			return nil
		}
		return fmt.Errorf("%s does not refer to an object", r.in[start:r.pos])
	}
	ref, ok := v.(*Ref)
	if !ok {
		ref = &Ref{v}
		target.set(ref)
	}
	h.set(ref)
	return nil
}

var errCut = errors.New("the text ends in the middle of a value")

func (r *reader) expect(s string) error {
	if !bytes.HasPrefix(r.in[r.pos:], []byte(s)) {
		return fmt.Errorf("%q is missing", s)
	}
	r.pos += len(s)
	return nil
}

// until reads past "k:" and returns the text up to the next end.
func (r *reader) until(end byte) (string, error) {
	rest := r.in[r.pos+len("k:"):]
	i := bytes.IndexByte(rest, end)
	if i < 0 {
		return "", errCut
	}
	r.pos += len("k:") + i + 1
	return string(rest[:i]), nil
}

func (r *reader) int() (int64, error) {
	text, err := r.until(';')
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, fmt.Errorf("%q is not an integer of 64 bits as PHP writes it", clip(text))
	}
	return n, nil
}

// length reads a count of bytes, items or values and the end after it. What
// is counted takes at least a byte each, so more than there are is refused.
func (r *reader) length(end byte) (int, error) {
	i := bytes.IndexByte(r.in[r.pos:], end)
	if i < 0 {
		return 0, errCut
	}
	text := string(r.in[r.pos : r.pos+i])
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%q is not a length", clip(text))
	}
	r.pos += i + 1
	return int(n), nil
}

// str reads k:LENGTH:"TEXT".
func (r *reader) str() (string, error) {
	r.pos += len("k:")
	n, err := r.length(':')
	if err != nil {
		return "", err
	}
	if err := r.expect(`"`); err != nil {
		return "", err
	}
	if n > len(r.in)-r.pos {
		return "", errCut
	}
	s := string(r.in[r.pos : r.pos+n])
	r.pos += n
	return s, r.expect(`"`)
}

func (r *reader) class() (string, error) {
	name, err := r.str()
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", errors.New("an object without a class")
	}
	return name, r.expect(":")
}

func (e Enum) check() error {
	if e.Class == "" || e.Case == "" || strings.Contains(e.Class, ":") {
		return fmt.Errorf("enum case %q is not class:case", clip(e.Class+":"+e.Case))
	}
	return nil
}

// check is nil for the texts that PHP reads as a float.
func (f Float) check() error {
	switch f {
	case "NAN", "INF", "-INF":
		return nil
	}
	if f == "" || strings.Trim(string(f), "0123456789+-.eE") != "" {
		return fmt.Errorf("%q is not a float", clip(string(f)))
	}
	if _, err := f.Float64(); err != nil {
		return fmt.Errorf("%q is not a float", clip(string(f)))
	}
	return nil
}

// Float64 returns the nearest float64, ±Inf where the number is too large.
func (f Float) Float64() (float64, error) {
	switch f {
	case "NAN":
		return math.NaN(), nil
	case "INF":
		return math.Inf(1), nil
	case "-INF":
		return math.Inf(-1), nil
	}
	x, err := strconv.ParseFloat(string(f), 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return x, err
}

// clip keeps errors short when the input is not.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
