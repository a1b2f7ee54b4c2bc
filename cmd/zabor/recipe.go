package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"zabor/internal/config"
	"zabor/sqlstore"
)

// A step's recipe says what its keys are made of. The table keeps every recipe
// that its rows were made by: under another one each charge is a new charge, so
// a worker whose recipe is not among them must not start while rows of the old
// ones are open.

// newKeys are the steps whose keys were once made in another way.
func newKeys(ctx context.Context, c *config.Config, store *sqlstore.Store) (map[string]bool, error) {
	steps := map[string]bool{}
	for _, s := range c.Compiled() {
		known, _, err := store.Meta(ctx, recipeName(s.Name()))
		if err != nil {
			return nil, storeFailure(err)
		}
		if bytes.Contains(known, []byte("\n")) {
			steps[s.Name()] = true
		}
	}
	return steps, nil
}

func recipeName(step string) string { return "recipe:" + step }

// checkRecipes refuses steps whose keys are made in a new way while there are
// open rows that were made in an old one. Accepted recipes are written down.
func checkRecipes(ctx context.Context, c *config.Config, store *sqlstore.Store, accept []string) error {
	configured := map[string]bool{}
	for _, s := range c.Compiled() {
		configured[s.Name()] = true
	}
	for name := range accept {
		if !configured[accept[name]] {
			return usage(fmt.Errorf("--new-step %s: no such step in %s", accept[name], c.Path), "")
		}
	}
	openSteps, err := store.OpenSteps(ctx, c.Scope)
	if err != nil {
		return storeFailure(err)
	}
	for _, s := range c.Compiled() {
		known, _, err := store.Meta(ctx, recipeName(s.Name()))
		if err != nil {
			return storeFailure(err)
		}
		recipe := []byte(s.Recipe())
		if slices.ContainsFunc(bytes.Split(known, []byte("\n")), func(r []byte) bool { return bytes.Equal(r, recipe) }) {
			continue
		}
		if !slices.Contains(accept, s.Name()) {
			open, err := store.CountOpen(ctx, "", s.Name())
			if err != nil {
				return storeFailure(err)
			}
			if len(known) > 0 && open > 0 {
				return newStep(s.Name(), fmt.Errorf("step %s: its keys are made in a new way, and %d open rows were made in the old one: a message of theirs would be charged as a new one (now: %s; before: %s)",
					s.Name(), open, recipe, strings.ReplaceAll(string(known), "\n", "; ")))
			}
			for old, n := range openSteps {
				if len(known) == 0 && !configured[old] {
					return newStep(s.Name(), fmt.Errorf("step %s is new, and step %s, which is not configured any more, has %d open rows: if it was renamed, their messages would be charged as new ones", s.Name(), old, n))
				}
			}
		}
		if len(known) > 0 {
			recipe = slices.Concat(known, []byte("\n"), recipe)
		}
		if err := store.SetMeta(ctx, recipeName(s.Name()), recipe); err != nil {
			return storeFailure(err)
		}
	}
	return nil
}

func newStep(name string, err error) error {
	return usage(err, fmt.Sprintf("nothing was started; decide the open rows first (\"zabor fence list --state captured,doubt,pending,released,held\"), or accept the new keys with \"zabor migrate --new-step %s\"", name))
}
