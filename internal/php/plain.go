package php

import (
	"errors"
	"fmt"
	"strconv"
)

// maxPlain bounds the values that a reader of Plain's result meets. Without a
// bound a short text of nested back-references has more values than memory.
const maxPlain = 1 << 20

// Plain turns v into values without PHP's particulars: nil, bool, int64,
// float64, string (any bytes), []any, map[string]any and [Enum].
//
// An array with the keys 0 to n-1 in order is a []any, every other array and
// every object a map, objects by bare property names; a [Custom] is an empty
// map. References are followed, and what is shared in v is shared in the result,
// which must therefore not be changed.
//
// It is an error if two keys or properties have the same bare name, or if a
// value holds itself.
func Plain(v Value) (any, error) {
	p := plainer{done: map[Value]plain{}}
	r, err := p.value(v)
	return r.v, err
}

type plain struct {
	v any
	n int // values that it consists of, each counted as often as it is reached
}

type plainer struct {
	done map[Value]plain // *Ref and *Object; n is 0 while it is being made
}

func (p *plainer) value(v Value) (plain, error) {
	switch v.(type) {
	case *Ref, *Object, *Array:
		if r, ok := p.done[v]; ok {
			if r.n == 0 {
				return plain{}, errors.New("php value holds itself")
			}
			return r, nil
		}
		p.done[v] = plain{}
		r, err := p.compound(v)
		if err != nil {
			return plain{}, err
		}
		if r.n > maxPlain {
			return plain{}, fmt.Errorf("php value has more than %d parts", maxPlain)
		}
		p.done[v] = r
		return r, nil
	}
	s, err := scalar(v)
	return plain{s, 1}, err
}

func (p *plainer) compound(v Value) (plain, error) {
	switch v := v.(type) {
	case *Ref:
		return p.value(v.Value)
	case *Array:
		if isList(v.Items) {
			return p.list(v.Items)
		}
		return p.items("array", v.Items)
	case *Object:
		return p.items(v.Class, v.Items)
	}
	panic("unreachable: not compound")
}

func (p *plainer) list(items []Item) (plain, error) {
	list, n := make([]any, len(items)), 1
	for i, it := range items {
		r, err := p.value(it.Value)
		if err != nil {
			return plain{}, err
		}
		list[i] = r.v
		n += min(r.n, maxPlain+1-n) // stays above the bound once it is
	}
	return plain{list, n}, nil
}

func (p *plainer) items(owner string, items []Item) (plain, error) {
	m, n := make(map[string]any, len(items)), 1
	for _, it := range items {
		name, ok := keyName(owner, it.Key)
		if !ok {
			return plain{}, fmt.Errorf("php %s: %q is not a property's name", owner, it.Key)
		}
		if _, ok := m[name]; ok {
			return plain{}, fmt.Errorf("php %s: two values of the name %q", owner, name)
		}
		r, err := p.value(it.Value)
		if err != nil {
			return plain{}, err
		}
		m[name] = r.v
		n += min(r.n, maxPlain+1-n)
	}
	return plain{m, n}, nil
}

func keyName(owner string, key Value) (string, bool) {
	switch k := key.(type) {
	case Int:
		return strconv.FormatInt(int64(k), 10), true
	case String:
		if owner == "array" {
			return string(k), true
		}
		return Bare(string(k))
	}
	return "", false
}

func isList(items []Item) bool {
	for i, it := range items {
		if it.Key != Int(i) {
			return false
		}
	}
	return true
}

func scalar(v Value) (any, error) {
	switch v := v.(type) {
	case Null:
		return nil, nil
	case Bool:
		return bool(v), nil
	case Int:
		return int64(v), nil
	case Float:
		return v.Float64()
	case String:
		return string(v), nil
	case Enum:
		return v, nil
	case *Custom:
		return map[string]any{}, nil
	}
	return nil, fmt.Errorf("a %T is not a php value", v)
}
