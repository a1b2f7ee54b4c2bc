package step

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zabor/internal/tenancy"
)

// beside reports whether a path leads to what a framework keeps beside the message, and
// not to a property: /tenant_id, /context/tenant_id, /App\TenantStamp/tenantId.
func beside(path string) bool { return strings.HasPrefix(path, "/") }

func checkScope(path string) error {
	if !beside(path) {
		return checkPath(path)
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || strings.ContainsAny(name, " \t\n{}$") {
			return fmt.Errorf("%q leads to nothing beside a message; /tenant_id does, or /context/tenant_id, or /App\\TenantStamp/tenantId", path)
		}
	}
	return nil
}

// lookupBeside follows a path that begins with a slash.
func lookupBeside(m Message, path string) (any, error) {
	var at any = m.Beside
	names := strings.Split(path[1:], "/")
	for i, name := range names {
		within, _ := at.(map[string]any)
		next, ok := within[name]
		if !ok {
			there := "nothing"
			if len(within) > 0 {
				there = strings.Join(slices.Sorted(maps.Keys(within)), ", ")
			}
			return nil, fmt.Errorf("beside the message there is no %s; there is %s", strings.Join(names[:i+1], "/"), there)
		}
		at = next
	}
	if at == nil {
		return nil, errors.New(path + " is null")
	}
	return at, nil
}

// tenantBeside is the path of the tenant that a framework has noted beside m, and its id;
// empty: there is none.
func tenantBeside(m Message) (path string, id any) {
	for _, name := range slices.Sorted(maps.Keys(m.Beside)) {
		switch v := m.Beside[name].(type) {
		case map[string]any:
			for _, inner := range slices.Sorted(maps.Keys(v)) {
				if _, deeper := v[inner].(map[string]any); tenancy.Named(inner) && v[inner] != nil && !deeper {
					return "/" + name + "/" + inner, v[inner]
				}
			}
		case nil, []any:
		default:
			if tenancy.Named(name) {
				return "/" + name, v
			}
		}
	}
	return "", nil
}

// Unscoped is the path of the tenant that m names while the keys of s have no scope of
// its own; empty: it names none, or the keys have one. Two tenants can have an order of
// the same number: then the second one is never charged.
func (s *Step) Unscoped(m Message) string {
	if s.spec.Scope != "" {
		return ""
	}
	if path, _ := tenantBeside(m); path != "" {
		return path
	}
	for _, name := range slices.Sorted(maps.Keys(m.Data)) {
		if tenancy.Named(name) && m.Data[name] != nil && name != s.spec.Order && name != s.spec.Part {
			return name
		}
	}
	return ""
}

// besidePart is the tenant beside m as a part of its fingerprint: an order of the same
// number of another tenant is another request. A tenant in the scope is in the key.
func (s *Step) besidePart(m Message, parts []part) []part {
	path, id := tenantBeside(m)
	if path == "" || path == s.spec.Scope {
		return parts
	}
	return append(parts, part{"message." + path, canonical(id)})
}
