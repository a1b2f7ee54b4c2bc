package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"text/tabwriter"

	"zabor"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/sqlstore"
	"zabor/step"
)

type fenceCommand struct {
	List fenceList `cmd:"" help:"List rows of this installation, in key order."`
	Show fenceShow `cmd:"" help:"Show all that is known of one row."`
	Look fenceLook `cmd:"" help:"Ask the provider whether the money of a settled row went back; for webhooks."`

	Settle  fenceSettle  `cmd:"" help:"Decide that it went through, with the provider's reference."`
	Decline fenceDecline `cmd:"" help:"Decide that it did not go through, and shall not; also before there is a row."`
	Release fenceRelease `cmd:"" help:"Decide that it did not go through and may be called again."`
	Hold    fenceHold    `cmd:"" help:"Forbid calls until somebody has decided."`
	Decide  fenceDecide  `cmd:"" help:"Take many decisions from a CSV."`
}

type fenceList struct {
	State []string `sep:"," placeholder:"STATE" help:"Only rows in these states: captured, pending, settled, declined, released, doubt, held."`
	Scope *string  `placeholder:"SCOPE" help:"Only rows of this inner scope."`
	Order string   `placeholder:"ORDER" help:"Only rows of this order."`
	Step  string   `placeholder:"STEP" help:"Only rows of this step, with all its parts."`
	CSV   bool     `name:"csv" xor:"form" help:"Comma-separated values with a head line."`
	JSON  bool     `name:"json" xor:"form" help:"One JSON array."`
}

func (c *fenceList) Run(p *program) error {
	filter := sqlstore.Filter{Order: c.Order, Step: c.Step, Limit: 500}
	for _, s := range c.State {
		state, ok := zabor.ParseState(s)
		if !ok {
			return exit.Usage(fmt.Errorf("--state %s: no such state", s), "write captured, pending, settled, declined, released, doubt or held")
		}
		filter.States = append(filter.States, state)
	}
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	filter.Within = file.Scope
	if c.Scope != nil {
		scope := step.JoinScope(file.Scope, *c.Scope)
		filter.Scope = &scope
	}
	out := c.printer(p)
	for {
		rows, err := store.Reports().List(p.ctx, filter)
		if err != nil {
			return exit.Store(err)
		}
		for _, row := range rows {
			if err := out.row(row); err != nil {
				return err
			}
			filter.After = row.Key
		}
		if len(rows) < filter.Limit {
			return out.end()
		}
	}
}

// listPrinter writes rows one by one: a long list needs no memory.
type listPrinter struct {
	row func(zabor.Row) error
	end func() error
}

func (c *fenceList) printer(p *program) listPrinter {
	switch {
	case c.JSON:
		separator := "["
		return listPrinter{
			row: func(r zabor.Row) error {
				text, err := json.Marshal(console.NewRow(r))
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.stdout, "%s%s", separator, text)
				separator = ",\n"
				return err
			},
			end: func() error {
				if separator == "[" {
					fmt.Fprint(p.stdout, "[")
				}
				_, err := fmt.Fprintln(p.stdout, "]")
				return err
			},
		}
	case c.CSV:
		w := csv.NewWriter(p.stdout)
		w.Write([]string{"scope", "order", "step", "state", "reference", "provider", "provider_key", "attempts", "amount", "currency", "captured_at", "settled_at", "lease_until", "reason"})
		return listPrinter{
			row: func(r zabor.Row) error {
				return w.Write([]string{console.KeyCell(r.Scope), console.KeyCell(r.Order), console.KeyCell(r.Step), string(r.State), console.Cell(r.Reference), console.Cell(r.Provider), r.ProviderKey,
					strconv.Itoa(r.Tries), strconv.FormatInt(r.Amount.Minor, 10), r.Amount.Currency,
					console.Time(r.CapturedAt), console.Time(r.ClosedAt()), console.Time(r.Open.SendUntil), console.Cell(r.Reason)})
			},
			end: func() error { w.Flush(); return w.Error() },
		}
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ORDER\tSTEP\tSTATE\tREFERENCE\tAMOUNT\tATTEMPTS\tCAPTURED\tREASON")
	return listPrinter{
		row: func(r zabor.Row) error {
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", console.Printable(r.Order), console.Printable(r.Step), r.State,
				console.Printable(r.Reference), console.Money(r.Amount), r.Tries, console.Time(r.CapturedAt), console.Printable(r.Reason))
			return err
		},
		end: w.Flush,
	}
}
