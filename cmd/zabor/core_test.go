package main

import (
	"testing"

	"zabor"
	"zabor/provider"
)

// Each row is resolved by one resolver of a process, whose provider nobody else waits
// for; also a row of a provider that the configuration does not name any more.
func TestEachRowHasOneResolver(t *testing.T) {
	c := &core{resolver: &zabor.Resolver{Scope: "shop"}, providers: map[string]*provider.Provider{"stripe": {}, "adyen": {}}}
	of := map[string]*zabor.Resolver{}
	for _, name := range []string{"stripe", "adyen", "gone", ""} {
		for _, r := range c.resolvers() {
			if r.Scope != "shop" {
				t.Errorf("a resolver of scope %q, want shop", r.Scope)
			}
			if !r.Of(name) {
				continue
			}
			if of[name] != nil {
				t.Errorf("two resolvers for the rows of %q", name)
			}
			of[name] = r
		}
		if of[name] == nil {
			t.Errorf("no resolver for the rows of %q", name)
		}
	}
	if of["stripe"].Of("adyen") || of["adyen"].Of("gone") {
		t.Error("a provider shares its resolver")
	}
}
