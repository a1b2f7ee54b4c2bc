package main

import (
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/preflight"
	"zabor/internal/takeover"
)

type importCommand struct {
	PaymentsQuery  string   `placeholder:"SQL" help:"What was charged before: a SELECT on the application's own payments, with columns order and, as far as there are, scope, step, reference, amount (minor units) or major, currency."`
	ProviderExport []string `placeholder:"[NAME=]FILE" help:"What was charged before, as the provider lists it: files as of zabor audit. NAME is the provider's in the configuration."`
	Columns        string   `placeholder:"MAP" help:"What the export's columns mean, as of zabor audit."`
	Step           string   `placeholder:"NAME" help:"The step of payments that name none. Else the one that is configured."`
	Queue          []string `placeholder:"NAME" help:"Only these queues of the configuration."`
	DryRun         bool     `help:"Say what would be written; nothing is."`
	JSON           bool     `name:"json" help:"One JSON object."`
}

// Help returns the text of zabor import --help beside the flags.
func (*importCommand) Help() string {
	return "Once, before the first start on a queue, with its PHP workers stopped. What --payments-query and --provider-export name was charged before: it gets settled rows, so that no message charges it again. A message that another worker has had (reserved, delivered before, waiting for a retry, or failed) " +
		"may have been charged by it; where no payment explains it and there is no row, one is written that is held for a person. Nothing is called, no message is moved, and no hook runs. It may be run again: what has a row is left alone."
}

func (c *importCommand) Run(p *program) error {
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	choice := workerCommand{Queue: c.Queue}
	if err := choice.choose(file); err != nil {
		return err
	}
	databases := connect.NewDatabases(file, store)
	defer databases.Close()
	i, err := takeover.Open(p.ctx, file, databases, store, takeover.Options{ReadOnly: c.DryRun, Log: p.Log, Say: console.Progress(p.stderr)})
	if err != nil {
		return err
	}
	list, closeAll, err := p.Queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	if !c.DryRun {
		// The keys of the rows are made by the steps of now.
		if _, err := p.CheckKeys(p.ctx, p.Keys(file, store, list), true); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := preflight.Require(p.Log, s.Name(), preflight.Others(p.ctx, s)); err != nil {
			return err
		}
	}
	result := importResult{DryRun: c.DryRun, Payments: []takeover.Source{}, Problems: []takeover.Problem{}, Queues: []takeover.Inventory{}, WithoutKey: []takeover.Unkeyed{}}
	// First the payments as explanations, then the messages.
	exports, err := c.exports(p, file)
	if err != nil {
		return err
	}
	paid, err := i.Payments(p.ctx, takeover.PaymentsFrom{Query: c.PaymentsQuery, Exports: exports, Step: c.Step}, databases)
	if err != nil {
		return err
	}
	if paid != nil {
		defer paid.Ledger.Close()
		result.Payments, result.Problems = paid.Sources, append(result.Problems, paid.Problems...)
	}
	for _, s := range list {
		found, err := i.Queue(p.ctx, s)
		if err != nil {
			return err
		}
		if !c.DryRun {
			if err := takeover.MarkImported(p.ctx, file.Scope, store, s); err != nil {
				return err
			}
		}
		result.Queues = append(result.Queues, found)
		result.WithoutKey = append(result.WithoutKey, found.Examples...)
	}
	if !c.DryRun {
		if err := p.AdoptKeys(p.ctx, file, store, i.Saw); err != nil {
			return err
		}
	}
	return c.report(p, result, paid)
}
