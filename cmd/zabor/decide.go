package main

import (
	"encoding/json"
	"fmt"

	"zabor"
	"zabor/internal/console"
	"zabor/internal/decision"
	"zabor/step"
)

// decisionFlags are the flags of all decisions.
type decisionFlags struct {
	Order  string `arg:"" help:"The order id, byte for byte."`
	Step   string `arg:"" help:"The step, with its part where it has one."`
	Scope  string `placeholder:"SCOPE" help:"The step's own scope, where it has one."`
	Reason string `required:"" placeholder:"TEXT" help:"Why; it is kept with the decision."`
	By     string `placeholder:"NAME" help:"Who decides; else the user of this session."`
	Yes    bool   `help:"Do not ask."`
	JSON   bool   `name:"json" help:"Print the row afterwards as one JSON object, with what became of its messages."`
	StopAt string `hidden:"" help:"For tests: stop the process (SIGSTOP) at MOMENT, once."`
}

type fenceSettle struct {
	decisionFlags
	keep
	Reference string `arg:"" help:"The provider's own id of what it did."`
}

type fenceDecline struct {
	decisionFlags
	keep
	checked
}
type fenceHold struct{ decisionFlags }
type fenceRelease struct {
	decisionFlags
	keep
	checked
}

// checked is the proof for a decline or a release of a row with a possible call.
type checked struct {
	IHaveCheckedTheProvider bool `help:"The provider was asked, and did nothing; demanded if a call may have been made."`
}

// keep is the flag of decisions with an effect on messages.
type keep struct {
	Keep bool `help:"Leave the message where it lies."`
}

func (c *fenceSettle) Run(p *program) error {
	return p.decide(c.decisionFlags, c.Keep, zabor.Decision{Action: zabor.Settle, Reference: c.Reference})
}
func (c *fenceDecline) Run(p *program) error {
	return p.decide(c.decisionFlags, c.Keep, zabor.Decision{Action: zabor.Decline, CheckedProvider: c.IHaveCheckedTheProvider})
}
func (c *fenceHold) Run(p *program) error {
	return p.decide(c.decisionFlags, false, zabor.Decision{Action: zabor.Hold})
}
func (c *fenceRelease) Run(p *program) error {
	return p.decide(c.decisionFlags, c.Keep, zabor.Decision{Action: zabor.Release, CheckedProvider: c.IHaveCheckedTheProvider})
}

// decide shows the row as it is, announces the effect, writes the decision about
// exactly this row, and moves its messages.
func (p *program) decide(c decisionFlags, keep bool, d zabor.Decision) error {
	k, closeAll, err := p.openDecider(keep, c.StopAt)
	if err != nil {
		return err
	}
	defer closeAll()
	d.Key = zabor.Key{Scope: step.JoinScope(k.File.Scope, c.Scope), Order: c.Order, Step: c.Step}
	d.Reason = c.Reason
	if d.By, err = whoDecides(c.By); err != nil {
		return err
	}
	m, err := k.Plan(p.ctx, d)
	if err != nil {
		return err
	}
	if err := m.Refused(); err != nil {
		return decision.Failure(m, err)
	}
	announce(p.ctx, p.stderr, k, m)
	if err := console.Confirm(p.stderr, c.Yes); err != nil {
		return err
	}
	row, messages, err := k.Take(p.ctx, m)
	if err != nil {
		return decision.Failure(m, err)
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(newDecidedJSON(row, messages))
	}
	p.printDecided(row, messages)
	return nil
}

// decidedJSON is the documented shape of a decided row.
type decidedJSON struct {
	console.Row
	Messages []decision.Moved `json:"messages"` // out of a failure transport
}

func newDecidedJSON(row zabor.Row, messages []decision.Moved) decidedJSON {
	if messages == nil {
		messages = []decision.Moved{}
	}
	return decidedJSON{console.NewRow(row), messages}
}

func (p *program) printDecided(row zabor.Row, messages []decision.Moved) {
	fmt.Fprintf(p.stdout, "%s is %s now\n", console.Printable(row.Key.String()), row.State)
	for _, m := range messages {
		fmt.Fprintln(p.stdout, m)
	}
}
