package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"zabor/audit"
	"zabor/internal/app"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/provider"
	"zabor/sqlstore"
)

func (a *auditor) openConfigured() error {
	file, store, err := a.openFence()
	if err != nil {
		if f, ok := errors.AsType[*exit.Error](err); ok && len(a.Exports) > 0 {
			return &exit.Error{Code: f.Code, Err: f.Err, Hint: f.Hint + "; --env-file FILE gives the file's variables, and in a folder without a zabor.yaml an export is looked at alone"}
		}
		return err
	}
	if a.c.Replica != "" {
		store.Close()
		if store, err = openNamed("replica", a.c.Replica); err != nil {
			return err
		}
	}
	for i, e := range a.Exports {
		a.Exports[i].Units = file.Units(e.Provider)
		if _, known := file.Providers[e.Provider]; e.Provider != "" && !known {
			store.Close()
			return exit.Usage(fmt.Errorf("--provider-export %s=%s: %s has no provider of that name", e.Provider, e.Path, file.Path), "the name before = is the one under providers:")
		}
	}
	a.File, a.Store, a.close = file, store, func() { store.Close() }
	if err := a.openLists(); err != nil {
		a.close()
		return err
	}
	return nil
}

// openLists opens the providers with lists to read.
func (a *auditor) openLists() error {
	providers, err := connect.OpenProviders(a.File, a.Secrets(a.File))
	if err != nil {
		return err
	}
	for _, name := range a.c.ProviderList {
		one, known := providers[name]
		switch {
		case !known:
			return exit.Usage(fmt.Errorf("--provider-list %s: %s has no provider of that name", name, a.File.Path), "the name is the one under providers:")
		case !one.Lists():
			return exit.Usage(fmt.Errorf("--provider-list %s: %s", name, a.noList(name)), "zabor audit --provider-export "+name+"=FILE")
		case slices.ContainsFunc(a.Exports, func(e audit.Export) bool { return e.Provider == name }):
			return exit.Usage(fmt.Errorf("--provider-list %s and an export of the same provider: each would be missing in the other", name), "give one of the two")
		}
		a.Lists = append(a.Lists, one)
	}
	return nil
}

// noList says why the provider of this name cannot be listed.
func (a *auditor) noList(name string) string {
	if known, ok := provider.BuiltinNamed(a.File.Providers[name].Profile); ok {
		return known.Why["list"]
	}
	return "its profile has no list: describe one, or export the payments"
}

func (a *auditor) openApplication() error {
	if a.c.PaymentsQuery == "" {
		return nil
	}
	var err error
	switch {
	case a.c.Database != "":
		a.App, err = openNamed("database", a.c.Database)
	case a.c.App != "":
		a.App, err = openApp(a.c.App)
	case a.File.Database != "":
		if a.App, err = sqlstore.Open(string(a.File.Database)); err != nil {
			err = exit.Usage(fmt.Errorf("%s: database: %w", a.File.Path, err), "")
		}
	default:
		a.App = a.Store
		return nil
	}
	if err != nil {
		return err
	}
	before := a.close
	a.close = func() { a.App.Close(); before() }
	return nil
}

// openNamed opens the database at the address in the environment variable name.
func openNamed(flag, name string) (*sqlstore.Store, error) {
	value, err := address(flag, name)
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.Open(value)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--%s %s: %w", flag, name, err), "")
	}
	return store, nil
}

// openApp opens the database of an application's own configuration.
func openApp(path string) (*sqlstore.Store, error) {
	project, err := app.Open(path, app.Options{Lookup: os.LookupEnv})
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--app: %w", err), "")
	}
	const hint = "--database NAME, with the name of an environment variable that holds the address"
	found := project.DatabaseAddress()
	if found == nil {
		return nil, exit.Usage(fmt.Errorf("--app %s: its database is not known without running it", path), hint)
	}
	store, err := sqlstore.Open(found.Str())
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--app %s: the address at %s: %w", path, found.From, err), hint)
	}
	return store, nil
}
