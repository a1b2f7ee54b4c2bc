package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/preflight"
	"zabor/provider"
)

type configCommand struct {
	Check  configCheck  `cmd:"" help:"Read the file; name every finding with line, key and fix."`
	Schema configSchema `cmd:"" help:"Print the JSON Schema of the file."`
}

type configCheck struct {
	Live bool `help:"Ask the servers too, with nothing that changes anything: whether every SQL statement could run, grants, Redis, other consumers, and whether the providers take the credentials."`
	JSON bool `name:"json" help:"One JSON object."`
}

func (c *configCheck) Run(p *program) error {
	// A refusal by the wiring itself, as of a transport's DSN, is a finding
	// too; it connects to no server.
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	list, closeAll, err := p.Queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	secrets := p.Secrets(file)
	providers, err := connect.OpenProviders(file, secrets)
	if err != nil {
		return err
	}
	if err := p.CheckProxy(file, secrets, providers); err != nil {
		return err
	}
	if err := preflight.File(p.Log, file, list); err != nil {
		return err
	}
	sender, err := p.Sender(file)
	if err != nil {
		return err
	}
	p.CloseSender(sender)
	warnings := file.Warnings()
	var live []preflight.Check
	if c.Live {
		i := &preflight.Installation{File: file, Store: store, Queues: list, Providers: providers, Keys: func() error {
			_, err := p.CheckKeys(p.ctx, p.Keys(file, store, list), false)
			return err
		}}
		if live, err = i.Live(p.ctx); err != nil {
			return err
		}
	}
	if c.JSON {
		if warnings == nil {
			warnings = []config.Finding{}
		}
		limits := file.Limits()
		if limits == nil {
			limits = []provider.StepLimit{}
		}
		found := map[string]any{"file": file.Path, "valid": true, "warnings": warnings, "limits": limits}
		if c.Live {
			found["live"] = live
		}
		if err := json.NewEncoder(p.stdout).Encode(found); err != nil {
			return err
		}
		return preflight.Err(live)
	}
	for _, f := range warnings {
		fmt.Fprintf(p.stdout, "%s (a warning)\n", f)
	}
	if limits := file.Limits(); len(limits) > 0 {
		fmt.Fprintln(p.stdout, "What no code can promise:")
		for _, l := range limits {
			fmt.Fprintf(p.stdout, "  %s at %s: %s\n", l.Step, l.Provider, l.Text)
		}
	}
	if err := printLive(p.stdout, live); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s is valid\n", file.Path)
	return preflight.Err(live)
}

// printLive prints the checks, the good ones first.
func printLive(to io.Writer, list []preflight.Check) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, c := range list {
		if c.Status == preflight.Good {
			fmt.Fprintf(w, "%s\t%s\n", c.Status, c.What)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range list {
		if c.Status == preflight.Good {
			continue
		}
		fmt.Fprintf(to, "%s  %s: %s\n", c.Status, c.What, console.Printable(c.Found))
		if c.Fix != "" {
			fmt.Fprintf(to, "    %s\n", console.Printable(c.Fix))
		}
	}
	return nil
}

type configSchema struct{}

func (c *configSchema) Run(p *program) error {
	_, err := p.stdout.Write(config.Schema())
	return err
}
