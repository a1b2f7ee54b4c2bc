package main

import (
	"encoding/json"
	"fmt"

	"zabor/internal/console"
	"zabor/internal/exit"
)

type alertCommand struct {
	Test alertTest `cmd:"" help:"Send a test to each alert address and say what became of it."`
}

type alertTest struct {
	JSON bool `name:"json" help:"One JSON array: address, delivered, error."`
}

func (c *alertTest) Run(p *program) error {
	file, err := p.load()
	if err != nil {
		return err
	}
	sender, err := p.Sender(file)
	if err != nil {
		return err
	}
	defer p.CloseSender(sender)
	results := sender.Test()
	if len(results) == 0 {
		return exit.Usage(fmt.Errorf("%s: there are no alert addresses: alerts go to the log only", file.Path), "write them under alerts:, such as alerts: [\"${ALERT_URL}\"]")
	}
	type line struct {
		Address   string `json:"address"`
		Delivered bool   `json:"delivered"`
		Error     string `json:"error,omitempty"`
	}
	lines, failed := make([]line, len(results)), 0
	for i, r := range results {
		lines[i] = line{Address: r.Address, Delivered: r.Err == nil}
		if r.Err != nil {
			lines[i].Error = r.Err.Error()
			failed++
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(lines); err != nil {
			return err
		}
	} else {
		for _, l := range lines {
			if l.Delivered {
				fmt.Fprintf(p.stdout, "%s: delivered\n", console.Printable(l.Address))
			} else {
				fmt.Fprintf(p.stdout, "%s: not delivered: %s\n", console.Printable(l.Address), console.Printable(l.Error))
			}
		}
	}
	if failed > 0 {
		return exit.Bad(fmt.Errorf("%d of %d alert addresses did not take the test", failed, len(results)), "alerts to them would be in zabor's log only")
	}
	return nil
}
