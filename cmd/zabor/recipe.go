package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zabor/internal/config"
	"zabor/sqlstore"
	"zabor/step"
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
	written, err := newRecipes(ctx, c, store, accept)
	if err != nil {
		return err
	}
	for name, recipes := range written {
		if err := store.SetMeta(ctx, name, recipes); err != nil {
			return storeFailure(err)
		}
	}
	return nil
}

// newRecipes are the recipes that [checkRecipes] writes, by their names in the table,
// and its refusal.
func newRecipes(ctx context.Context, c *config.Config, store *sqlstore.Store, accept []string) (map[string][]byte, error) {
	configured := map[string]bool{}
	for _, s := range c.Compiled() {
		configured[s.Name()] = true
	}
	for name := range accept {
		if !configured[accept[name]] {
			return nil, usage(fmt.Errorf("--new-step %s: no such step in %s", accept[name], c.Path), "")
		}
	}
	written := map[string][]byte{}
	openSteps, err := store.OpenSteps(ctx, c.Scope)
	if err != nil {
		return nil, storeFailure(err)
	}
	for _, s := range c.Compiled() {
		known, _, err := store.Meta(ctx, recipeName(s.Name()))
		if err != nil {
			return nil, storeFailure(err)
		}
		recipe := []byte(s.Recipe())
		if slices.ContainsFunc(bytes.Split(known, []byte("\n")), func(r []byte) bool { return bytes.Equal(r, recipe) }) {
			continue
		}
		if !slices.Contains(accept, s.Name()) {
			open, err := store.CountOpen(ctx, "", s.Name())
			if err != nil {
				return nil, storeFailure(err)
			}
			if len(known) > 0 && open > 0 {
				return nil, newStep(s.Name(), fmt.Errorf("step %s: its keys are made in a new way, and %d open rows were made in the old one: a message of theirs would be charged as a new one (now: %s; before: %s)",
					s.Name(), open, recipe, strings.ReplaceAll(string(known), "\n", "; ")))
			}
			for old, n := range openSteps {
				if len(known) == 0 && !configured[old] {
					return nil, newStep(s.Name(), fmt.Errorf("step %s is new, and step %s, which is not configured any more, has %d open rows: if it was renamed, their messages would be charged as new ones", s.Name(), old, n))
				}
			}
		}
		if len(known) > 0 {
			recipe = slices.Concat(known, []byte("\n"), recipe)
		}
		written[recipeName(s.Name())] = recipe
	}
	return written, nil
}

func newStep(name string, err error) error {
	return usage(err, fmt.Sprintf("nothing was started; decide the open rows first (\"zabor fence list --state captured,doubt,pending,released,held\"), or accept the new keys with \"zabor migrate --new-step %s\"", name))
}

// What an import has written protects the messages whose keys are made as they were
// then, and its settled rows are closed. So the recipes of its steps are kept apart
// until a first start: under others an import is wanted again.

func importedRecipes(c *config.Config) string { return "imported:" + c.Scope + "/" }

// rememberImport writes the recipes of the steps that an import has come upon, in the
// place of those of an earlier one.
func rememberImport(ctx context.Context, c *config.Config, store *sqlstore.Store, steps []*step.Step, met map[string]bool) error {
	recipes := map[string]string{}
	for _, s := range steps {
		if met[s.Name()] {
			recipes[importedRecipes(c)+s.Name()] = s.Recipe()
		}
	}
	return setImported(ctx, c, store, recipes)
}

// forgetImport is for the end of a first start.
func forgetImport(ctx context.Context, c *config.Config, store *sqlstore.Store) error {
	return setImported(ctx, c, store, nil)
}

func setImported(ctx context.Context, c *config.Config, store *sqlstore.Store, recipes map[string]string) error {
	old, err := store.Metas(ctx, importedRecipes(c))
	if err != nil {
		return storeFailure(err)
	}
	for name := range old {
		if recipes[name] == "" && len(old[name]) > 0 {
			err = errors.Join(err, store.SetMeta(ctx, name, nil))
		}
	}
	for name, recipe := range recipes {
		if recipe != string(old[name]) {
			err = errors.Join(err, store.SetMeta(ctx, name, []byte(recipe)))
		}
	}
	if err != nil {
		return storeFailure(err)
	}
	return nil
}

// checkImported refuses a start whose keys are not made as those of the import before
// it were.
func checkImported(ctx context.Context, c *config.Config, store *sqlstore.Store) error {
	recipes, err := store.Metas(ctx, importedRecipes(c))
	if err != nil {
		return storeFailure(err)
	}
	now := map[string]string{}
	for _, s := range c.Compiled() {
		now[importedRecipes(c)+s.Name()] = s.Recipe()
	}
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		was, is := string(recipes[name]), now[name]
		if was == "" || was == is {
			continue
		}
		found := fmt.Errorf("step %s: its keys are made in a new way since the import: what was paid or held then would be charged as new (now: %s; at the import: %s)", strings.TrimPrefix(name, importedRecipes(c)), is, was)
		if is == "" {
			found = fmt.Errorf("step %s, for which the import has written rows, is not configured any more: if it was renamed, what was paid or held then would be charged as new", strings.TrimPrefix(name, importedRecipes(c)))
		}
		return usage(found, "nothing was started; write back what was, or import again, with the same --payments-query and --provider-export: rows of the new keys are made then")
	}
	return nil
}
