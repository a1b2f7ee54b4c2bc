// Package php reads and writes the part of PHP's serialize format that queue
// payloads use. It never makes an object of the application: a serialized
// object is a class name and a list of properties, nothing runs.
package php

import "strings"

// Value is one serialized value: [Null], [Bool], [Int], [Float], [String],
// [Enum], *[Array], *[Object], *[Custom] or *[Ref].
//
// Identity is part of a value, as it is in PHP: an *Object (or *Custom) that
// occurs twice is one object with two holders, an *Array belongs to one holder,
// and two holders that share a *Ref are one PHP variable.
type Value interface{ value() }

// Null is PHP's null.
type Null struct{}

// Bool is PHP's bool.
type Bool bool

// Int is PHP's int, always of 64 bits.
type Int int64

// Float is the text of a PHP float as it is on the wire, such as "0.1",
// "1.5E+300", "-INF" or "NAN": a number that was only carried along is written
// back digit by digit.
type Float string

// String is PHP's string: any bytes.
type String string

// Enum is an enum case (PHP 8.1). A case is a single object, so equal Enums are
// the same one. Its backing value is not on the wire.
type Enum struct{ Class, Case string }

// Array is PHP's ordered array: a list, a map or both.
type Array struct{ Items []Item }

// Object is an object of any class: its properties in their order.
type Object struct {
	Class string
	Items []Item // a key is nearly always a String, see Bare
}

// Custom is an object of a class with the old Serializable interface. Its data
// is opaque, and may hold back-references that only the class understands.
type Custom struct {
	Class, Data string
	slot        int // number of this value in the document that it was read from
}

// Ref is a PHP reference (&). Holders that share one see the same variable.
type Ref struct{ Value Value }

// Item is one element of an array or one property of an object.
type Item struct {
	Key   Value // Int or String
	Value Value
}

func (Null) value()    {}
func (Bool) value()    {}
func (Int) value()     {}
func (Float) value()   {}
func (String) value()  {}
func (Enum) value()    {}
func (*Array) value()  {}
func (*Object) value() {}
func (*Custom) value() {}
func (*Ref) value()    {}

// Deref returns what a reference refers to, and any other value itself.
func Deref(v Value) Value {
	if r, ok := v.(*Ref); ok {
		return r.Value // a Ref never holds a Ref
	}
	return v
}

// Bare returns a property's name without its visibility: PHP writes a protected
// property as NUL * NUL name and a private one as NUL class NUL name. It is
// false for a name that starts with a NUL and has no second one.
func Bare(name string) (string, bool) {
	if !strings.HasPrefix(name, "\x00") {
		return name, true
	}
	_, bare, ok := strings.Cut(name[1:], "\x00")
	return bare, ok
}

// Prop returns the property of that bare name, whatever its visibility, and
// behind a reference what it refers to. It is false if there is no such
// property or more than one (a class and its parent may each have a private
// one; [Plain] makes an error of it).
func (o *Object) Prop(bare string) (Value, bool) {
	var found Value
	for _, it := range o.Items {
		name, ok := it.Key.(String)
		if !ok {
			continue
		}
		if b, ok := Bare(string(name)); !ok || b != bare {
			continue
		}
		if found != nil {
			return nil, false
		}
		found = Deref(it.Value)
	}
	return found, found != nil
}
