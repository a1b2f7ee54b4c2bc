package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"zabor/audit"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/preflight"
	"zabor/internal/serve"
	"zabor/internal/takeover"
	"zabor/step"
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

// Help is what zabor import --help says beside the flags.
func (*importCommand) Help() string {
	return "Once, before the first start on a queue, with its PHP workers stopped. What --payments-query and --provider-export name was charged before: it gets settled rows, so that no message charges it again. A message that another worker has had (reserved, delivered before, waiting for a retry, or failed) " +
		"may have been charged by it; where no payment explains it and there is no row, one is written that is held for a person. Nothing is called, no message is moved, and no hook runs. It may be run again: what has a row is left alone."
}

// importResult is what an import did; its JSON is documented.
type importResult struct {
	DryRun     bool                 `json:"dry_run"`
	Payments   []takeover.Source    `json:"payments"`
	Problems   []takeover.Problem   `json:"problems"` // examples, a hundred at most
	Queues     []takeover.Inventory `json:"queues"`
	WithoutKey []takeover.Unkeyed   `json:"without_key"` // examples, a hundred at most for each queue
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
		// The rows' keys are those that the steps make now.
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
	// First what explains messages, then the messages.
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
		keys := p.Keys(file, store, nil) // queues are marked by the first start
		keys.Steps = slices.DeleteFunc(keys.Steps, func(s *step.Step) bool { return !i.Saw(s.Name()) })
		r, err := p.CheckKeys(p.ctx, keys, true)
		if err == nil {
			err = keys.Adopt(p.ctx, r)
		}
		if err != nil {
			return serve.KeysError(err)
		}
	}
	return c.report(p, result, paid)
}

func (c *importCommand) report(p *program, r importResult, paid *takeover.Payments) error {
	without, unseen := 0, []string(nil)
	for _, q := range r.Queues {
		without += q.WithoutKey
		if q.NoTransport {
			unseen = append(unseen, q.Queue)
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(r); err != nil {
			return err
		}
	} else {
		if paid != nil {
			if err := printPayments(p.stdout, paid, r.DryRun); err != nil {
				return err
			}
		}
		if err := r.print(p.stdout); err != nil {
			return err
		}
	}
	if paid != nil && paid.Unsure > 0 {
		return exit.Bad(fmt.Errorf("%d keys have two payments, or a row that says something else than the payment: none was chosen", paid.Unsure),
			"look them up at the provider, refund what was charged twice, and decide: zabor fence settle ORDER STEP REFERENCE --reason TEXT")
	}
	if len(unseen) > 0 {
		return exit.Bad(fmt.Errorf("there is no table of failed messages for queue %s: what failed before zabor came was not seen, and no row holds it", strings.Join(unseen, ", ")),
			"where the application keeps it elsewhere (a file, DynamoDB), look there, and retry none of it; make the table, or name it under failed:, and import again")
	}
	if without == 0 {
		return nil
	}
	return exit.Bad(fmt.Errorf("%d messages of steps have been with another worker, and no key can be made of them: no row holds them", without),
		"a worker parks them and calls nothing. Where you mend the configuration so that they get a key, run the import again before they are retried")
}

func (r importResult) print(to io.Writer) error {
	held := "held now"
	if r.DryRun {
		held = "would be held"
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "queue\tmessages\tof no step\tnobody has had\thave a row\t%s\twithout a key\t\n", held)
	for _, q := range r.Queues {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", q.Queue, q.Messages, q.NoStep, q.Fresh, q.Row, q.Held, q.WithoutKey)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, q := range r.Queues {
		if q.FreshPaid > 0 {
			fmt.Fprintf(to, "queue %s: %d of the messages that nobody has had are of orders that were paid (%s): somebody has retried failed messages in PHP, or they were sent twice. "+
				"A payment explains these, and they are not charged again. Of the other %d, PHP may have charged those that were retried: docs/switching.md, \"Somebody has retried\", before a worker starts\n",
				q.Queue, q.FreshPaid, strings.Join(q.PaidOrders, ", "), q.Fresh-q.FreshPaid)
		}
	}
	for _, u := range r.WithoutKey {
		fmt.Fprintf(to, "queue %s, %s: message %s of %s: %s\n", u.Queue, u.Where, console.Printable(u.ID), console.Printable(u.Class), console.Printable(u.Reason))
	}
	return nil
}

// printPayments prints the part of the report that is about payments.
func printPayments(to io.Writer, p *takeover.Payments, dryRun bool) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	now := "now"
	if dryRun {
		now = "to be"
	}
	fmt.Fprintf(w, "payments from\tread\t%s settled\thave a row\t%s held\tcontradict a row\tskipped\t\n", now, now)
	for _, s := range p.Sources {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Source, s.Read, s.Settled, s.Row, s.Held, s.Contradicted, s.Skipped)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range p.Sources {
		for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
			fmt.Fprintf(to, "%s: skipped %d: %s\n", s.Source, s.Reasons[reason], reason)
		}
	}
	for _, one := range p.Problems {
		fmt.Fprintf(to, "%s: %s (%s)\n", one.Key.Plain(), console.Printable(one.What), strings.Join(one.Places, ", "))
	}
	_, err := fmt.Fprintln(to)
	return err
}

// exports are the files that the flags name.
func (c *importCommand) exports(p *program, file *config.Config) ([]audit.Export, error) {
	if c.PaymentsQuery == "" && len(c.ProviderExport) == 0 {
		return nil, nil
	}
	exports, err := p.readExports(c.ProviderExport, c.Columns)
	if err != nil {
		return nil, err
	}
	for n, e := range exports {
		if _, known := file.Providers[e.Provider]; e.Provider != "" && !known {
			return nil, exit.Usage(fmt.Errorf("--provider-export %s=%s: %s has no provider of that name", e.Provider, e.Path, file.Path), "the name before = is the one under providers:")
		}
		if e.Provider == "" && len(file.Providers) == 1 {
			exports[n].Provider = slices.Collect(maps.Keys(file.Providers))[0]
		}
		exports[n].Units = file.Units(e.Provider)
	}
	return exports, nil
}
