package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"zabor"
	"zabor/internal/console"
	"zabor/internal/decision"
	"zabor/internal/exit"
)

type fenceDecide struct {
	File string `arg:"" help:"A CSV with the head line order,step,scope,action,reference,reason,checked; checked is yes for a release or a decline about which the provider was asked. Of the scope the inner part does. A line without an action is left alone. - is standard input."`
	keep
	By   string `placeholder:"NAME" help:"Who decides; else the user of this session."`
	Yes  bool   `help:"Do not ask."`
	JSON bool   `name:"json" help:"One JSON array with what became of each."`
}

// manyJSON is the documented shape of one of many decisions.
type manyJSON struct {
	console.Key
	Action   string           `json:"action"`
	Decided  bool             `json:"decided"` // the row is as it was to be
	State    string           `json:"state"`   // of the row now; empty: it has no row
	Messages []decision.Moved `json:"messages"`
	Error    string           `json:"error"` // empty: all was done
}

// Run takes the decisions one by one. Refused ones are listed; the
// others are taken all the same.
func (c *fenceDecide) Run(p *program) error {
	in := io.Reader(os.Stdin)
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return exit.Usage(err, "")
		}
		defer f.Close()
		in = f
	}
	decisions, undecided, err := decision.ReadCSV(in)
	if err != nil {
		return exit.Usage(fmt.Errorf("%s: %w; nothing was changed", c.File, err), "")
	}
	by, err := whoDecides(c.By)
	if err != nil {
		return err
	}
	k, closeAll, err := p.openDecider(c.Keep, "")
	if err != nil {
		return err
	}
	defer closeAll()
	var matters []decision.Planned
	for _, d := range decisions {
		d.By = by
		d.Key.Scope = decision.WholeScope(k.File.Scope, d.Key.Scope)
		m, err := k.Plan(p.ctx, d)
		if err != nil {
			return err
		}
		announce(p.ctx, p.stderr, k, m)
		matters = append(matters, m)
	}
	if undecided > 0 {
		fmt.Fprintf(p.stderr, "zabor: %d lines have no action and are left alone\n", undecided)
	}
	if err := console.Confirm(p.stderr, c.Yes); err != nil {
		return err
	}
	return c.take(p, k, matters)
}

func (c *fenceDecide) take(p *program, k *decision.Decider, matters []decision.Planned) error {
	undone, told := 0, []manyJSON{}
	for _, m := range matters {
		row, messages, err := k.Take(p.ctx, m)
		_, partly := errors.AsType[*exit.Error](err)
		refused := errors.Is(err, zabor.ErrRefused) || errors.Is(err, zabor.ErrStale) || errors.Is(err, zabor.ErrNoRow)
		if err != nil && !partly && !refused {
			if len(told) == 0 {
				return exit.Store(err)
			}
			return exit.Bad(fmt.Errorf("%s: the fence's database: %w; %d of %d were looked at before", m.Key, err, len(told), len(matters)), "send the file again: what is done is not done twice")
		}
		one := manyJSON{console.NewKey(m.Key), string(m.Action), !refused, string(row.State), messages, ""}
		if messages == nil {
			one.Messages = []decision.Moved{}
		}
		if err != nil {
			undone++
			one.Error = err.Error()
		}
		told = append(told, one)
		switch {
		case c.JSON:
		case refused:
			fmt.Fprintf(p.stdout, "%s: not decided: %v\n", console.Printable(m.Key.String()), err)
		default:
			p.printDecided(row, messages)
			if err != nil {
				fmt.Fprintf(p.stdout, "%s: not done with: %v\n", console.Printable(m.Key.String()), err)
			}
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(told); err != nil {
			return err
		}
	}
	if undone > 0 {
		return exit.Bad(fmt.Errorf("%d of %d were not decided, or their messages are not where they belong", undone, len(matters)), "look at them again, and send the file again: what is done is not done twice")
	}
	return nil
}
