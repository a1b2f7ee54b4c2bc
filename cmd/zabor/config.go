package main

import (
	"encoding/json"
	"fmt"

	"zabor/internal/config"
	"zabor/internal/connect"
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
	// What the wiring itself refuses, such as a transport's DSN, is a finding
	// too; nothing is connected to.
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	list, closeAll, err := p.queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	secrets := p.secrets(file)
	providers, err := connect.OpenProviders(file, secrets)
	if err != nil {
		return err
	}
	if _, err := p.newProxy(&core{file: file, secrets: secrets, providers: providers}); err != nil {
		return err
	}
	if err := p.checkPlaces(file, list); err != nil {
		return err
	}
	sender, err := p.sender(file)
	if err != nil {
		return err
	}
	p.closeSender(sender)
	warnings := file.Warnings()
	var live []liveCheck
	if c.Live {
		if live, err = p.live(file, store, list, providers); err != nil {
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
		return liveError(live)
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
	return liveError(live)
}

type configSchema struct{}

func (c *configSchema) Run(p *program) error {
	_, err := p.stdout.Write(config.Schema())
	return err
}
