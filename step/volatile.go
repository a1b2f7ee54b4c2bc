package step

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"zabor/provider"
)

// compileVolatile reads what may differ in two requests that are the same. A
// property of which only volatile fields are made is exempt too.
func (s *Step) compileVolatile() error {
	s.volatile = map[string]bool{}
	known := map[string]bool{}
	loose, fixed := map[string]bool{}, map[string]bool{}
	for _, spec := range []*provider.RequestSpec{s.spec.Prepare, &s.spec.Request} {
		if spec == nil {
			continue
		}
		path, query, _ := strings.Cut(spec.Path, "?")
		templatePaths(fixed, path)
		for name, value := range topFields(*spec, query) {
			known[name] = true
			if slices.Contains(s.spec.Volatile, name) {
				templatePaths(loose, value)
			} else {
				templatePaths(fixed, value)
			}
		}
		if list, ok := spec.JSON.([]any); ok {
			templatePaths(fixed, list)
		}
	}
	templatePaths(fixed, s.spec.Provider)
	identity := []string{s.spec.Order, s.spec.Scope, s.spec.Part, s.spec.Amount, s.spec.Currency}
	for _, path := range identity {
		fixed[path] = true
	}
	if s.selects != nil {
		for _, name := range s.selects.names {
			fixed[name] = true
		}
	}
	isFixed := func(path string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(fixed)), func(other string) bool { return overlap(path, other) })
	}
	for path := range loose {
		if !isFixed(path) {
			s.exempt = append(s.exempt, path)
		}
	}
	for _, name := range s.spec.Volatile {
		path, isProperty := strings.CutPrefix(name, ".")
		switch {
		case !isProperty && !known[name]:
			return fmt.Errorf("no body and no query has the field %q at its top; a property of the message is written with a point before it, such as .requestedAt", name)
		case !isProperty:
			s.volatile[name] = true
			continue
		}
		if err := checkPath(path); err != nil {
			return err
		}
		if slices.ContainsFunc(identity, func(other string) bool { return overlap(path, other) }) {
			return fmt.Errorf("%s: the key or the money is made of it, and always counts; take it out", name)
		}
		s.exempt = append(s.exempt, path)
	}
	for _, path := range []string{s.spec.Order, s.spec.Scope, s.spec.Part} {
		if path != "" {
			s.exempt = append(s.exempt, path)
		}
	}
	slices.Sort(s.exempt)
	return nil
}

// topFields are the top-level fields of spec's body and of query, with their
// templates.
func topFields(spec provider.RequestSpec, query string) map[string]any {
	top := map[string]any{}
	for field := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(field, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if field != "" {
			top[name] = []any{top[name], name, value}
		}
	}
	for name, value := range spec.Form {
		top[name] = []any{top[name], value}
	}
	if object, ok := spec.JSON.(map[string]any); ok {
		for name, value := range object {
			top[name] = []any{top[name], value}
		}
	}
	return top
}

// overlap reports whether two paths are the same, or one leads into the other.
func overlap(a, b string) bool {
	return a != "" && b != "" && (a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+"."))
}

// blank is data with null in place of what the paths lead to, whether or not it
// is there. What they lead through is copied; a list is left as it is.
func blank(data map[string]any, paths []string) map[string]any {
	if len(paths) == 0 {
		return data
	}
	if data = maps.Clone(data); data == nil {
		data = map[string]any{}
	}
	for _, path := range paths {
		name, rest, deeper := strings.Cut(path, ".")
		inner, isObject := data[name].(map[string]any)
		switch {
		case !deeper:
			data[name] = nil
		case isObject:
			data[name] = blank(inner, []string{rest})
		}
	}
	return data
}
