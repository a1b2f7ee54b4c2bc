// Package tenancy knows where applications write whose a message is.
package tenancy

import (
	"slices"
	"strings"
)

// Named reports whether a field of this name has the id of a tenant: of one of several
// shops, merchants or companies in one application.
func Named(field string) bool {
	name := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(field))
	name = strings.TrimPrefix(name, "current")
	for _, suffix := range []string{"uuid", "id", "key"} {
		if whose, ok := strings.CutSuffix(name, suffix); ok {
			name = whose
			break
		}
	}
	return slices.Contains([]string{"tenant", "merchant", "shop", "store", "company", "organization", "organisation", "team", "workspace", "website"}, name)
}
