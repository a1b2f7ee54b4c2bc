package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"zabor"
)

// RequestSpec is a request as it is written in the configuration. The text of
// path, form and JSON values are templates in Go's syntax, of which fields,
// functions, pipelines, parentheses and if are taken:
//
//   - {{.a.b}} is a property of [Vars.Data];
//   - {{order}} {{step}} {{scope}} {{provider_key}} {{prepared}} {{reference}}
//     {{currency}} {{minor}} {{major}} come from the row;
//   - {{lower x}}, {{upper x}}, {{default "text" x}} (for an x that is missing,
//     null or ""), {{if x}} with eq, ne, and, or, not.
//
// A value that is missing is an error, and so is one that is null where a text
// is made of it, or empty where it would leave a segment of the path empty.
//
// Values in path and query are escaped, and one in the path stays one segment;
// the literal text around them must be written as it is sent. Form values are
// escaped whole.
// In JSON, a text that is one template and nothing else keeps the value's type;
// any other makes a string. Names of form fields and JSON properties are taken
// as they are. Both come out sorted by name, so that the same values always give
// the same bytes.
type RequestSpec struct {
	Method string            `yaml:"method"` // empty: POST
	Path   string            `yaml:"path"`   // below the profile's base_url, with its query
	Form   map[string]string `yaml:"form"`   // at most one of Form and JSON; neither: no body
	JSON   any               `yaml:"json"`
}

// Vars are the values that a request is made of.
type Vars struct {
	// Data holds the message's properties and what was loaded. Values are nil,
	// bool, string, json.Number, any kind of Go number, []any and
	// map[string]any. Other types are refused when they are used.
	Data map[string]any

	Order, Step, Scope  string // Scope may be empty
	ProviderKey         string
	Prepared, Reference string // empty: not known, so an error where it is used
	Money               zabor.Money
	Target              string // what the call acts on, in a look-up
	Units               Units  // the provider's, for {{minor}} and {{major}}; nil: those of ISO 4217
}

// Template makes requests of one [RequestSpec]. It may be used concurrently.
type Template struct {
	method string
	path   *piece
	query  *piece // nil: none
	form   []formField
	json   any // the spec's JSON with a *piece for each string; nil: none
}

type formField struct {
	name  string // escaped
	value *piece
}

// NewTemplate checks all that can be checked without values. An error names the
// spec's key and what to change.
func NewTemplate(s RequestSpec) (*Template, error) {
	return newTemplate(s, false)
}

// newLookupTemplate is that of a look-up, which sees only the row. With a body it
// is a POST.
func newLookupTemplate(path string, body map[string]any, form map[string]string) (*Template, error) {
	switch {
	case body != nil:
		return newTemplate(RequestSpec{Method: http.MethodPost, Path: path, JSON: body}, true)
	case form != nil:
		return newTemplate(RequestSpec{Method: http.MethodPost, Path: path, Form: form}, true)
	}
	return newTemplate(RequestSpec{Method: http.MethodGet, Path: path}, true)
}

func newTemplate(s RequestSpec, rowOnly bool) (*Template, error) {
	t := &Template{method: s.Method}
	if t.method == "" {
		t.method = http.MethodPost
	}
	if err := (Request{Method: t.method, Path: "/"}).validate(); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(s.Path, "/") {
		return nil, fmt.Errorf("path %q: it begins with a slash", s.Path)
	}
	path, query, hasQuery := strings.Cut(s.Path, "?")
	var err error
	if t.path, err = newPiece("path", path, inPath, rowOnly); err != nil {
		return nil, err
	}
	if hasQuery {
		if t.query, err = newPiece("path", query, inQuery, rowOnly); err != nil {
			return nil, err
		}
	}
	if len(s.Form) > 0 && s.JSON != nil {
		return nil, errors.New("form and json exclude each other")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Form)) {
		value, err := newPiece("form."+name, s.Form[name], inForm, rowOnly)
		if err != nil {
			return nil, err
		}
		t.form = append(t.form, formField{url.QueryEscape(name), value})
	}
	t.json, err = compileJSON("json", s.JSON, rowOnly)
	return t, err
}

// compileJSON is v with a *piece in place of each string.
func compileJSON(where string, v any, rowOnly bool) (any, error) {
	switch v := v.(type) {
	case string:
		return newPiece(where, v, inJSON, rowOnly)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = compileJSON(fmt.Sprintf("%s.%d", where, i), item, rowOnly); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if strings.Contains(name, "{{") {
				return nil, fmt.Errorf("%s: the name %q is a template; only values are", where, name)
			}
			var err error
			if out[name], err = compileJSON(where+"."+name, item, rowOnly); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	v, err := exact(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return v, nil
}

// Render makes the request. An error names the spec's key and the value that is
// missing or cannot be used; it does not show values of v.
func (t *Template) Render(v Vars) (Request, error) {
	r := Request{Method: t.method}
	var err error
	if r.Path, err = t.path.text(&v); err != nil {
		return Request{}, err
	}
	if t.query != nil {
		query, err := t.query.text(&v)
		if err != nil {
			return Request{}, err
		}
		r.Path += "?" + query
	}
	switch {
	case len(t.form) > 0:
		r.ContentType = formType
		r.Body, err = t.renderForm(&v)
	case t.json != nil:
		r.ContentType = "application/json"
		r.Body, err = t.renderJSON(&v)
	}
	if err != nil {
		return Request{}, err
	}
	return r, r.validate()
}

func (t *Template) renderForm(v *Vars) ([]byte, error) {
	var out bytes.Buffer
	for i, field := range t.form {
		if i > 0 {
			out.WriteByte('&')
		}
		value, err := field.value.text(v)
		if err != nil {
			return nil, err
		}
		out.WriteString(field.name + "=" + url.QueryEscape(value))
	}
	return out.Bytes(), nil
}

func (t *Template) renderJSON(v *Vars) ([]byte, error) {
	document, err := fill(t.json, v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(document); err != nil {
		return nil, fmt.Errorf("json: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// fill is the compiled document with the value of each piece.
func fill(document any, v *Vars) (any, error) {
	var err error
	switch d := document.(type) {
	case *piece:
		return d.value(v)
	case []any:
		out := make([]any, len(d))
		for i := range d {
			if out[i], err = fill(d[i], v); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(d))
		for name := range d {
			if out[name], err = fill(d[name], v); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return document, nil
}
