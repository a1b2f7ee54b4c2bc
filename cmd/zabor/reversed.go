package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"zabor"
	"zabor/audit"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/provider"
	"zabor/sqlstore"
	"zabor/step"
)

// reversed notes in the settled row of a key what its provider says of money that went
// back, and alerts; once for each thing that it says. The row stays settled: it is never
// called again for it. told is false if that was noted before.
func (p *program) reversed(ctx context.Context, store *sqlstore.Store, row zabor.Row, what string) (told bool, err error) {
	notes, err := store.History().Of(ctx, row.Key)
	if err != nil {
		return false, exit.Store(err)
	}
	what = fmt.Sprintf("%s says of %s: %s", row.Provider, row.Reference, what)
	for _, n := range notes {
		if n.Kind == sqlstore.Reversed && n.Text == what {
			return false, nil
		}
	}
	if err := store.Note(ctx, row.Key, zabor.Note{Epoch: row.Claim.Epoch, Kind: sqlstore.Reversed, Text: what}); err != nil {
		return false, exit.Store(err)
	}
	p.Alert(zabor.Alert{
		Severity: zabor.Warning, Code: "reversed", Key: row.Key, State: row.State, Amount: row.Amount, Provider: row.Provider,
		Text: "the money of a settled row went back: " + what + "; the row stays settled, and nothing is called for it",
		Next: row.ShowCommand(),
	})
	return true, nil
}

// noteReversed notes what an audit has found of money that went back.
func (a *auditor) noteReversed(ctx context.Context, ledger *audit.Ledger) error {
	for d, err := range ledger.Differences(ctx) {
		if err != nil {
			return err
		}
		if d.Kind != audit.Reversed {
			continue
		}
		row, err := a.Store.Load(ctx, d.Key)
		switch {
		case errors.Is(err, zabor.ErrNoRow):
			continue
		case err != nil:
			return exit.Store(err)
		case row.State != zabor.Settled || row.Reference != d.Reference:
			continue // it has changed since it was read
		}
		what, _, _ := strings.Cut(d.Place, ", ")
		if _, err := a.reversed(ctx, a.Store, row, what); err != nil {
			return err
		}
	}
	return nil
}

type fenceLook struct {
	Order     string `arg:"" optional:"" help:"The order id, byte for byte."`
	Step      string `arg:"" optional:"" help:"The step, with its part where it has one: refund:R-7."`
	Scope     string `placeholder:"SCOPE" help:"The step's own scope, where it has one."`
	Reference string `placeholder:"ID" help:"In place of order and step: the provider's id, as its webhook has it."`
}

// Help is what zabor fence look --help says beside the flags.
func (*fenceLook) Help() string {
	return "Ask the provider about a settled row, by a request that moves no money: was its money refunded, reversed or charged back since? " +
		"It is for the handler of a webhook. What the provider says is noted in the row, and alerted once. The row stays settled: nothing is called for it again."
}

func (c *fenceLook) Run(p *program) error {
	if (c.Order == "" || c.Step == "") == (c.Reference == "") {
		return exit.Usage(errors.New("which row? write order and step, or --reference"), `zabor fence look ORDER STEP, or zabor fence look --reference ID`)
	}
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	keys := []zabor.Key{{Scope: step.JoinScope(file.Scope, c.Scope), Order: c.Order, Step: c.Step}}
	if c.Reference != "" {
		rows, err := store.Reports().OfReference(p.ctx, file.Scope, c.Reference, 0)
		if err != nil {
			return exit.Store(err)
		}
		keys = keys[:0]
		for _, row := range rows {
			keys = append(keys, row.Key)
		}
		if len(keys) == 0 {
			return exit.Bad(fmt.Errorf("no row has the reference %s; nothing was asked", console.Printable(c.Reference)), "is it the payment's own id? a webhook about a refund or a dispute names the payment in another field")
		}
	}
	providers, err := connect.OpenProviders(file, p.Secrets(file))
	if err != nil {
		return err
	}
	endAlerts, err := p.Alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	for _, key := range keys {
		if err := c.look(p, store, providers, key); err != nil {
			return err
		}
	}
	return nil
}

func (c *fenceLook) look(p *program, store *sqlstore.Store, providers connect.Providers, key zabor.Key) error {
	row, err := store.Load(p.ctx, key)
	switch one := providers[row.Provider]; {
	case errors.Is(err, zabor.ErrNoRow):
		return exit.Bad(fmt.Errorf("%s has no row; nothing was asked", key), "keys are compared byte for byte, with their scope")
	case err != nil:
		return exit.Store(err)
	case row.State != zabor.Settled:
		fmt.Fprintf(p.stdout, "%s is %s: a running worker or proxy finds out what came of it; nothing was asked\n", console.Printable(key.String()), row.State)
		return nil
	case one == nil:
		return exit.Bad(fmt.Errorf("%s was settled at %s, which is not configured; nothing was asked", key, console.Printable(row.Provider)), "write the provider under providers:")
	default:
		what, err := one.WentBack(p.ctx, row)
		switch {
		case errors.Is(err, provider.ErrNoObject):
			return exit.Bad(fmt.Errorf("%s, reference %s: %s has no request for it, or does not know it there", key, console.Printable(row.Reference), row.Provider), "look it up in the provider's dashboard; zabor audit --provider-list or --provider-export finds what went back too")
		case err != nil:
			return exit.Unreachable(err, "nothing was noted; try again")
		case what == "":
			fmt.Fprintf(p.stdout, "%s is settled, and %s says nothing of money that went back\n", console.Printable(key.String()), row.Provider)
			return nil
		}
		told, err := p.reversed(p.ctx, store, row, what)
		if err != nil {
			return err
		}
		known := ""
		if !told {
			known = ", as was noted before"
		}
		fmt.Fprintf(p.stdout, "%s: %s says of %s: %s%s; the row stays settled\n", console.Printable(key.String()), row.Provider, console.Printable(row.Reference), console.Printable(what), known)
		return nil
	}
}
