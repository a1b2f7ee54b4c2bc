package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// Schema is the JSON Schema (draft 2020-12) of the file, for editors. It is
// made of the same description as the reader, and is wider where only the
// reader can tell.
func Schema() []byte {
	schema := objectSchema(reflect.TypeFor[File]())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "zabor.yaml"
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(schema) // maps, slices and texts: it cannot fail
	return out.Bytes()
}

type schema = map[string]any

// withVariable is s, or a text with a variable in it.
func withVariable(s schema) schema {
	return schema{"anyOf": []any{s, schema{"type": "string", "pattern": `\$\{`}}}
}

func objectSchema(t reflect.Type) schema {
	properties := schema{}
	var required []string
	for _, field := range reflect.VisibleFields(t) {
		name := keyOf(field)
		if name == "" {
			continue
		}
		s := schemaOf(field.Type, field.Tag)
		if doc := field.Tag.Get("doc"); doc != "" {
			s["description"] = doc
		}
		if words := strings.Fields(field.Tag.Get("default")); len(words) > 0 {
			s["default"] = defaultOf(field.Type, words)
		}
		if field.Tag.Get("need") != "" {
			required = append(required, name)
		}
		properties[name] = s
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func defaultOf(t reflect.Type, words []string) any {
	if t.Kind() == reflect.Slice {
		return words
	}
	if n, err := strconv.Atoi(words[0]); err == nil && t.Kind() == reflect.Int {
		return n
	}
	return words[0]
}

func schemaOf(t reflect.Type, tag reflect.StructTag) schema {
	if t.Kind() == reflect.Pointer {
		return schemaOf(t.Elem(), tag)
	}
	if own, ok := reflect.New(t).Interface().(interface{ schema() schema }); ok {
		return own.schema()
	}
	switch {
	case t == durationType:
		return durationSchema(tag)
	case t.Kind() == reflect.Struct:
		return objectSchema(t)
	case t.Kind() == reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOf(t.Elem(), "")}
	case t.Kind() == reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem(), tag)}
	case t.Kind() == reflect.Bool:
		return withVariable(schema{"type": "boolean"})
	case t.Kind() == reflect.Int:
		s := schema{"type": "integer"}
		low, high := bounds(reflect.New(t).Elem(), tag)
		s["minimum"] = low
		if tag.Get("max") != "" {
			s["maximum"] = high
		}
		return withVariable(s)
	}
	if words := strings.Fields(tag.Get("enum")); len(words) > 0 {
		return withVariable(schema{"enum": words})
	}
	return schema{"type": "string"}
}

func durationSchema(tag reflect.StructTag) schema {
	forms := []any{
		schema{"type": "string", "pattern": `^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$|\$\{`},
		schema{"const": 0},
	}
	if strings.HasSuffix(tag.Get("yaml"), ",seconds") {
		forms[1] = schema{"type": "integer", "minimum": 1}
	}
	return schema{"anyOf": forms}
}

func (Classes) schema() schema {
	class := schema{"type": "string"}
	return schema{"anyOf": []any{class, schema{"type": "array", "items": class, "minItems": 1}}}
}

func (Amount) schema() schema {
	one := func(key string) schema {
		return schema{"type": "object", "properties": schema{key: schema{"type": "string"}}, "required": []string{key}, "additionalProperties": false}
	}
	return schema{"anyOf": []any{schema{"type": "string"}, one("major"), one("minor")}}
}

func (Hook) schema() schema {
	return schema{"anyOf": []any{schema{"type": "string"}, objectSchema(reflect.TypeFor[Hook]())}}
}

func (KeepApart) schema() schema {
	return schema{"anyOf": []any{schema{"type": "string"}, objectSchema(reflect.TypeFor[KeepApart]())}}
}

func (Scalar) schema() schema {
	return schema{"type": []string{"string", "number", "boolean", "null"}}
}

func (Tree) schema() schema { return schema{} }
