package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"zabor/dashboard"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/step"

	"zabor"
)

type fenceShow struct {
	Order string `arg:"" help:"The order id, byte for byte."`
	Step  string `arg:"" help:"The step, with its part where it has one: refund:R-7."`
	Scope string `placeholder:"SCOPE" help:"The step's own scope, where it has one."`
	JSON  bool   `name:"json" help:"One JSON object."`
}

// requestText says how much of row's request is kept.
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

// answerText says how much of the provider's answer to row is kept.
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

// nextStep returns the next step of a person about row.
func nextStep(row zabor.Row, imported bool) string {
	switch {
	case row.State == zabor.Held && imported:
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
	notes, err := store.History().Of(p.ctx, key)
	if err != nil {
		return exit.Store(err)
	}
	events, imported := dashboard.History(row, notes), dashboard.Imported(row, notes)
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(struct {
			console.Row
			Imported bool              `json:"imported"`
			History  []dashboard.Event `json:"history"`
		}{console.NewRow(row), imported, events})
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
	if imported {
		line("imported", console.Time(row.CapturedAt)+": not zabor's call. Search before that time; the key does not help")
		line("attempts", "none of zabor's")
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
	for _, e := range events {
		by := ""
		if e.By != "" {
			by = " by " + e.By
		}
		line("history", strings.TrimSuffix(fmt.Sprintf("%s %s%s: %s", console.Time(e.At), e.What, by, e.Text), ": "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if hint := nextStep(row, imported); hint != "" {
		fmt.Fprintf(p.stderr, "zabor: hint: %s\n", hint)
	}
	return nil
}
