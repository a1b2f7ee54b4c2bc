package serve

import (
	"context"
	"slices"
	"testing"

	"zabor"
	"zabor/internal/connect"
	"zabor/provider"
)

// Each row is resolved by one resolver of a process, whose provider nobody else waits
// for; also a row of a provider that the configuration does not name any more.
func TestEachRowHasOneResolver(t *testing.T) {
	never := func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{} }
	c := &core{resolver: &zabor.Resolver{Scope: "shop", Replay: never}, providers: connect.Providers{}}
	for _, name := range []string{"stripe", "worldpay"} {
		builtin, _ := provider.BuiltinNamed(name)
		var err error
		if c.providers[name], err = provider.New(name, builtin.Base, provider.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	of := map[string]*zabor.Resolver{}
	for _, name := range []string{"stripe", "worldpay", "gone", ""} {
		for _, r := range c.resolvers() {
			if r.Scope != "shop" {
				t.Errorf("a resolver of scope %q, want shop", r.Scope)
			}
			if slices.Contains(r.Providers, name) == r.Others {
				continue
			}
			if of[name] != nil {
				t.Errorf("two resolvers for the rows of %q", name)
			}
			of[name] = r
		}
		if of[name] != nil && (of[name].Replay != nil) != (name == "stripe") {
			t.Errorf("the resolver of %q sends again: %t; only Stripe keeps keys", name, of[name].Replay != nil)
		}
		if of[name] == nil {
			t.Errorf("no resolver for the rows of %q", name)
		}
	}
}
