package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// listPrinter writes rows one by one, so that a long list needs no memory.
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
				return w.Write([]string{zabor.EncodeText(r.Scope), zabor.EncodeText(r.Order), zabor.EncodeText(r.Step), string(r.State), r.Reference, r.Provider, r.ProviderKey,
					strconv.Itoa(r.Tries), strconv.FormatInt(r.Amount.Minor, 10), r.Amount.Currency,
					console.Time(r.CapturedAt), console.Time(r.ClosedAt()), console.Time(r.Open.SendUntil), r.Reason})
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

type fenceShow struct {
	Order string `arg:"" help:"The order id, byte for byte."`
	Step  string `arg:"" help:"The step, with its part where it has one: refund:R-7."`
	Scope string `placeholder:"SCOPE" help:"The step's own scope, where it has one."`
	JSON  bool   `name:"json" help:"One JSON object."`
}

func (c *fenceShow) Run(p *program) error {
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	key := zabor.Key{Scope: step.JoinScope(file.Scope, c.Scope), Order: c.Order, Step: c.Step}
	row, err := store.Load(p.ctx, key)
	if errors.Is(err, zabor.ErrNoRow) {
		return exit.Bad(fmt.Errorf("%s has no row: nothing was ever called for it through this fence", key),
			"keys are compared byte for byte, with their scope; \"zabor fence list --order "+c.Order+"\" shows all rows of an order")
	}
	if err != nil {
		return exit.Store(err)
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(console.NewRow(row))
	}
	notes, err := store.History().Of(p.ctx, key)
	if err != nil {
		return exit.Store(err)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, console.Printable(value))
		}
	}
	line("key", key.String())
	line("state", string(row.State))
	line("why", row.Reason)
	line("reference", row.Reference)
	line("other reference", row.OtherReference)
	line("amount", console.Money(row.Amount))
	line("provider", row.Provider)
	line("account", row.Account)
	line("provider key", row.ProviderKey)
	if fromBefore(row) {
		line("attempts", "none of zabor's: it is from before, and if there was a call, somebody else has made it")
		line("imported", console.Time(row.CapturedAt))
	} else {
		line("attempts", fmt.Sprintf("%d (calls that did nothing are not counted)", row.Tries))
		line("sends that may have acted", strconv.Itoa(row.Unproven))
		line("generation", strconv.Itoa(row.Generation))
		line("captured", console.Time(row.CapturedAt))
		line("may have sent until", console.Time(row.Open.SendUntil))
	}
	line("in this state since", console.Time(row.StateSince))
	line("parked message", row.Parked)
	line("request", requestText(row))
	line("answer", answerText(row))
	for _, n := range notes {
		line("note", strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", console.Time(n.At), n.By, n.Kind, n.Text)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if hint := nextStep(row); hint != "" {
		fmt.Fprintf(p.stderr, "zabor: hint: %s\n", hint)
	}
	return nil
}

// requestText says what is kept of row's request.
func requestText(row zabor.Row) string {
	switch {
	case row.Open.Sealed.Request != nil:
		return "kept, and cannot be read: " + row.Open.Sealed.Why
	case row.Open.Request != nil:
		return "kept while the row is open"
	case row.State.Closed() || row.Tries == 0:
		return ""
	}
	return "not kept, since it holds what may not be (a card number): it is never sent again, only looked up"
}

// answerText says what is kept of the provider's answer to row.
func answerText(row zabor.Row) string {
	switch a := row.Answer; {
	case a == nil:
		return ""
	case a.Sealed != nil:
		return fmt.Sprintf("%d, kept, and cannot be read: %s", a.Status, a.Why)
	case a.Erased:
		return fmt.Sprintf("%d, erased when its time (keep_answers) was over; the reference stays", a.Status)
	}
	return fmt.Sprintf("%d, %d bytes", row.Answer.Status, len(row.Answer.Body))
}

// fromBefore reports whether row was imported and zabor has never called for it.
func fromBefore(row zabor.Row) bool {
	return row.Cause == zabor.ByImport || row.Cause == zabor.ByConflict && row.Open.Lease == 0
}

// nextStep says what a person may do about row.
func nextStep(row zabor.Row) string {
	switch {
	case row.State == zabor.Held && fromBefore(row):
		return fmt.Sprintf("look order %s up at %s, by number, amount and time: the call was not zabor's, and had another key; then \"zabor fence settle %s %s REFERENCE --reason TEXT\", or decline, or release", row.Order, cmp.Or(row.Provider, "the provider"), row.Order, row.Step)
	case row.State == zabor.Held && row.Cause == zabor.ByConflict:
		return fmt.Sprintf("look up at %s all that the row's reason names, and order %s by the key %s and by number, amount and time: one payment is for one order; then \"zabor fence settle %s %s REFERENCE --reason TEXT\", or decline", row.Provider, row.Order, row.ProviderKey, row.Order, row.Step)
	case row.State == zabor.Held:
		return fmt.Sprintf("look order %s up at %s, by the key %s and by number, amount and time, since the call of a worker that is not zabor's had another key; then \"zabor fence settle %s %s REFERENCE --reason TEXT\", or decline, or release", row.Order, row.Provider, row.ProviderKey, row.Order, row.Step)
	case row.State == zabor.Doubt:
		return "a running worker looks it up at the provider; what cannot be decided is held for a person"
	}
	return ""
}
