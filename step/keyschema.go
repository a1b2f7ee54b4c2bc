package step

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zabor"
)

// KeySchema is everything that the keys of one step are made of. Its String is
// canonical: two schemas with the same String make the same key of every message.
type KeySchema struct {
	Installation keyText `json:"installation"`
	Step         keyText `json:"step"`
	Order        keyText `json:"order"`
	Scope        keyText `json:"scope,omitempty"`
	Part         keyText `json:"part,omitempty"`

	// Defaults are the defaults of the paths above, by path, as they stand in a key.
	Defaults map[keyText]keyText `json:"defaults,omitempty"`
	// Enums are the values of all enums: the message tells which of them a path leads to.
	Enums map[keyText]map[keyText]keyText `json:"enums,omitempty"`
}

// keyText is any bytes, as printable text in JSON.
type keyText string

func (t keyText) MarshalText() ([]byte, error) { return []byte(zabor.EncodeText(string(t))), nil }

func (t *keyText) UnmarshalText(text []byte) error {
	s, err := zabor.DecodeText(string(text))
	*t = keyText(s)
	return err
}

// KeySchema is what the step's keys are made of.
func (s *Step) KeySchema() KeySchema {
	k := KeySchema{
		Installation: keyText(s.spec.Installation), Step: keyText(s.spec.Name),
		Order: keyText(s.spec.Order), Scope: keyText(s.spec.Scope), Part: keyText(s.spec.Part),
	}
	for _, path := range k.paths() {
		v, ok := lookup(s.spec.Defaults, path)
		if !ok {
			continue
		}
		// A default that is no order id makes no key either.
		if text, err := identity(v, false); err == nil {
			if k.Defaults == nil {
				k.Defaults = map[keyText]keyText{}
			}
			k.Defaults[keyText(path)] = keyText(text)
		}
	}
	for class, cases := range s.spec.Enums {
		for name, value := range cases {
			if k.Enums == nil {
				k.Enums = map[keyText]map[keyText]keyText{}
			}
			if k.Enums[keyText(class)] == nil {
				k.Enums[keyText(class)] = map[keyText]keyText{}
			}
			k.Enums[keyText(class)][keyText(name)] = keyText(value)
		}
	}
	return k
}

// paths are the paths that lead to parts of a key.
func (k KeySchema) paths() []string {
	paths := []string{string(k.Order)}
	for _, path := range []keyText{k.Scope, k.Part} {
		if path != "" {
			paths = append(paths, string(path))
		}
	}
	return paths
}

// String is the schema as JSON in one line.
func (k KeySchema) String() string {
	text, err := json.Marshal(k)
	if err != nil {
		panic(err) // it holds texts alone
	}
	return string(text)
}

// ParseKeySchema reads the text of [KeySchema.String].
func ParseKeySchema(text string) (KeySchema, error) {
	var k KeySchema
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return KeySchema{}, fmt.Errorf("key schema %.200q: %w", text, err)
	}
	return k, nil
}

// Extends reports whether k makes the key that old makes of every message that has one
// under old. So k is old, or old with more defaults and enum cases.
func (k KeySchema) Extends(old KeySchema) bool {
	within := func(more, less map[keyText]keyText) bool {
		for name, value := range less {
			if got, ok := more[name]; !ok || got != value {
				return false
			}
		}
		return true
	}
	for class, cases := range old.Enums {
		if !within(k.Enums[class], cases) {
			return false
		}
	}
	return k.Installation == old.Installation && k.Step == old.Step && k.Order == old.Order &&
		k.Scope == old.Scope && k.Part == old.Part && within(k.Defaults, old.Defaults)
}

// Key is the key that a step of this schema makes of m. The error is that of [Step.Key].
func (k KeySchema) Key(m Message) (zabor.Key, error) {
	s := Step{spec: Spec{
		Installation: string(k.Installation), Name: string(k.Step),
		Order: string(k.Order), Scope: string(k.Scope), Part: string(k.Part),
		Defaults: map[string]any{}, Enums: map[string]map[string]string{},
	}}
	for _, path := range slices.Sorted(maps.Keys(k.Defaults)) {
		put(s.spec.Defaults, string(path), string(k.Defaults[path]))
	}
	for class, cases := range k.Enums {
		values := map[string]string{}
		for name, value := range cases {
			values[string(name)] = string(value)
		}
		s.spec.Enums[string(class)] = values
	}
	return s.Key(m)
}

// put makes lookup(data, path) give v.
func put(data map[string]any, path string, v any) {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		data[name] = v
		return
	}
	within, ok := data[name].(map[string]any)
	if !ok {
		within = map[string]any{}
		data[name] = within
	}
	put(within, rest, v)
}
