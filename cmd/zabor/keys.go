package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/serve"
	"zabor/keyschema"
	"zabor/step"
)

type schemaCommand struct {
	Show   schemaShow   `cmd:"" default:"withargs" help:"Show the key schema of each step: in force, configured, and what stands in the way of a change."`
	Accept schemaAccept `cmd:"" help:"Put the configured key schema of steps in force although rows are open or messages are there. Messages of the old schema that may have been called for are held when they come."`
}

type schemaShow struct {
	JSON bool `name:"json" help:"One JSON array."`
}

// schemaJSON is the documented shape of a step's schema.
type schemaJSON struct {
	Step       string          `json:"step"`
	Epoch      int             `json:"epoch"`    // 0: not in force
	InForce    *step.KeySchema `json:"in_force"` // null: not in force
	Configured *step.KeySchema `json:"configured"`
	Changed    bool            `json:"changed"`
	Blocked    string          `json:"blocked,omitempty"` // why it does not come into force by itself
	Open       int64           `json:"open_rows"`
	Messages   map[string]int  `json:"messages,omitempty"` // by queue and place
}

func (c *schemaShow) Run(p *program) error {
	i, r, closeAll, err := p.reviewKeys()
	if err != nil {
		return err
	}
	defer closeAll()
	all := []schemaJSON{}
	for _, s := range i.Steps {
		schema := s.KeySchema()
		one := schemaJSON{Step: s.Name(), Configured: &schema}
		for _, was := range r.Records.Of(i.Scope) {
			if was.Step == s.Name() {
				one.Epoch, one.InForce = was.Epoch, &was.Schema
			}
		}
		for _, change := range r.Changes {
			if change.Step == s {
				one.Changed, one.Open, one.Messages = true, change.Open, change.Messages
				if err := change.Err(i.Scope); err != nil {
					one.Blocked = err.Error()
				}
			}
		}
		all = append(all, one)
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(all)
	}
	for _, one := range all {
		state := "in force"
		switch {
		case one.Changed && one.Blocked == "":
			state = "changed; it comes into force with the next start"
		case one.Changed:
			state = "changed, and not accepted"
		case one.InForce == nil:
			state = "new; it comes into force with the next start"
		}
		fmt.Fprintf(p.stdout, "step %s: %s\n", one.Step, state)
		if one.InForce != nil {
			fmt.Fprintf(p.stdout, "  in force (%d): %s\n", one.Epoch, one.InForce)
		}
		fmt.Fprintf(p.stdout, "  configured: %s\n", one.Configured)
		if one.Blocked != "" {
			fmt.Fprintf(p.stdout, "  %s\n", console.Printable(one.Blocked))
		}
	}
	return nil
}

type schemaAccept struct {
	Step []string `arg:"" help:"The steps."`
	Yes  bool     `help:"Do not ask."`
}

func (c *schemaAccept) Run(p *program) error {
	i, r, closeAll, err := p.reviewKeys()
	if err != nil {
		return err
	}
	defer closeAll()
	for _, change := range r.Changes {
		if slices.Contains(c.Step, change.Step.Name()) {
			fmt.Fprintf(p.stderr, "zabor: step %s: old: %s; new: %s\n", change.Step.Name(), change.Was(), change.Next.Schema)
			if in := change.InTheWay(); in != "" {
				fmt.Fprintf(p.stderr, "zabor: step %s: %s\n", change.Step.Name(), console.Printable(in))
			}
		}
	}
	if err := console.Confirm(p.stderr, c.Yes); err != nil {
		return err
	}
	done, err := i.Accept(p.ctx, r, c.Step)
	if err != nil {
		return serve.KeysError(err)
	}
	for _, one := range done {
		fmt.Fprintf(p.stdout, "step %s: the new key schema is in force. %d messages of the old one are held when they come. %d settled orders lie under the old one: they meet no fence if they are sent again\n", one.Step, one.Held, one.Settled)
	}
	return nil
}

// reviewKeys compares the configured key schemas with those in force.
func (p *program) reviewKeys() (*keyschema.Installation, *keyschema.Review, func(), error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := store.Setup().Check(p.ctx); err != nil {
		store.Close()
		return nil, nil, nil, exit.Store(err)
	}
	list, closeQueues, err := p.Queues(file, store)
	if err != nil {
		store.Close()
		return nil, nil, nil, err
	}
	closeAll := func() { closeQueues(); store.Close() }
	i := p.Keys(file, store, list)
	r, err := i.Review(p.ctx, false)
	if err != nil {
		closeAll()
		return nil, nil, nil, serve.KeysError(err)
	}
	return i, r, closeAll, nil
}
