package main

import (
	"encoding/json"
	"fmt"

	"zabor/internal/config"
)

type configCommand struct {
	Check  configCheck  `cmd:"" help:"Read the file; name every finding with line, key and fix."`
	Schema configSchema `cmd:"" help:"Print the JSON Schema of the file."`
}

type configCheck struct {
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
	providers, err := p.providers(file)
	if err != nil {
		return err
	}
	if _, err := p.newProxy(&core{file: file, providers: providers}); err != nil {
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
	warnings, unbuilt := file.Warnings(), file.Unbuilt()
	if c.JSON {
		if unbuilt == nil {
			unbuilt = []config.Finding{}
		}
		if warnings == nil {
			warnings = []config.Finding{}
		}
		limits := file.Limits()
		if limits == nil {
			limits = []config.StepLimit{}
		}
		return json.NewEncoder(p.stdout).Encode(map[string]any{
			"file": file.Path, "valid": true, "not_acted_on": unbuilt, "warnings": warnings, "limits": limits,
		})
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
	for _, f := range unbuilt {
		fmt.Fprintln(p.stdout, f)
	}
	if len(unbuilt) > 0 {
		fmt.Fprintf(p.stdout, "%s is valid; %d of its settings are not acted on in this version, and \"zabor worker\" refuses to start with them\n", file.Path, len(unbuilt))
		return nil
	}
	fmt.Fprintf(p.stdout, "%s is valid\n", file.Path)
	return nil
}

type configSchema struct{}

func (c *configSchema) Run(p *program) error {
	_, err := p.stdout.Write(config.Schema())
	return err
}
