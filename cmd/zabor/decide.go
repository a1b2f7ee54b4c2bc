package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"zabor"
	"zabor/internal/config"
	"zabor/sqlstore"
	"zabor/step"
)

// decision is what all decisions take.
type decision struct {
	Order  string `arg:"" help:"The order id, byte for byte."`
	Step   string `arg:"" help:"The step, with its part where it has one."`
	Scope  string `placeholder:"SCOPE" help:"The step's own scope, where it has one."`
	Reason string `required:"" placeholder:"TEXT" help:"Why; it is kept with the decision."`
	By     string `placeholder:"NAME" help:"Who decides; else the user of this session."`
	Yes    bool   `help:"Do not ask."`
	JSON   bool   `name:"json" help:"Print the row afterwards as one JSON object."`
}

type fenceSettle struct {
	decision
	Reference string `arg:"" help:"The provider's own id of what it did."`
}

type fenceDecline struct{ decision }
type fenceHold struct{ decision }
type fenceRelease struct {
	decision
	IHaveCheckedTheProvider bool `help:"The provider was asked, and did nothing; demanded where a call may have been made."`
}

func (c *fenceSettle) Run(p *program) error {
	return p.decide(c.decision, zabor.Decision{Action: zabor.Settle, Reference: c.Reference})
}
func (c *fenceDecline) Run(p *program) error {
	return p.decide(c.decision, zabor.Decision{Action: zabor.Decline})
}
func (c *fenceHold) Run(p *program) error {
	return p.decide(c.decision, zabor.Decision{Action: zabor.Hold})
}
func (c *fenceRelease) Run(p *program) error {
	return p.decide(c.decision, zabor.Decision{Action: zabor.Release, CheckedProvider: c.IHaveCheckedTheProvider})
}

// decide shows the row as it is, says what will happen, and writes the decision
// about exactly that row.
func (p *program) decide(c decision, d zabor.Decision) error {
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	fence, err := p.decisionFence(file, store)
	if err != nil {
		return err
	}
	d.Key = zabor.Key{Scope: step.JoinScope(file.Scope, c.Scope), Order: c.Order, Step: c.Step}
	d.Reason = c.Reason
	if d.By, err = decider(c.By); err != nil {
		return err
	}
	if d.Seen, err = p.present(store, d); err != nil {
		return err
	}
	if err := p.confirm(c.Yes); err != nil {
		return err
	}
	row, err := fence.Decide(p.ctx, d)
	if err != nil {
		return p.decisionFailure(d, err)
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(fenceJSON(row))
	}
	fmt.Fprintf(p.stdout, "%s is %s now\n", printable(row.Key.String()), row.State)
	return nil
}

// decider is who decides: the one named, else the user of this session.
func decider(by string) (string, error) {
	if by == "" {
		by = os.Getenv("USER")
	}
	if by == "" {
		return "", usage(errors.New("nobody knows who decides: $USER is not set"), "add --by NAME")
	}
	return by, nil
}

// present shows the row that d is about and what d will do to it, and returns
// the claim of the row as it was shown. Only a decline may be without a row.
func (p *program) present(store *sqlstore.Store, d zabor.Decision) (zabor.Claim, error) {
	row, err := store.Load(p.ctx, d.Key)
	if err != nil && (!errors.Is(err, zabor.ErrNoRow) || d.Action != zabor.Decline) {
		return zabor.Claim{}, p.decisionFailure(d, err)
	}
	fmt.Fprintf(p.stderr, "zabor: %s\n", announce(row, d))
	return row.Claim, nil
}

// decisionFence is a fence that decides: it calls nobody.
func (p *program) decisionFence(file *config.Config, store *sqlstore.Store) (*zabor.Fence, error) {
	if err := store.Check(p.ctx); err != nil {
		return nil, storeFailure(err)
	}
	secret, err := store.Secret(p.ctx)
	if err != nil {
		return nil, storeFailure(err)
	}
	return &zabor.Fence{Store: store, Secret: secret, Alert: p.alert, Hook: file.Hook}, nil
}

// announce says what a decision will do to row.
func announce(row zabor.Row, d zabor.Decision) string {
	is := fmt.Sprintf("%s has no row", printable(d.Key.String()))
	if row.State != "" {
		is = fmt.Sprintf("%s (%s) is %s: %s", printable(d.Key.String()), moneyText(row.Amount), row.State, printable(row.Reason))
	}
	will := map[zabor.Action]string{
		zabor.Settle:  "it will be settled with the reference " + printable(d.Reference) + "; nothing is ever called for it again",
		zabor.Decline: "it will be declined: no money moved, and nothing is ever called for it again",
		zabor.Hold:    "it will be held: nothing is called for it until somebody has decided",
		zabor.Release: "it will be free: when its message is delivered, it is called once more, under the same provider key",
	}[d.Action]
	if d.Action == zabor.Release && row.Attempts() > 0 {
		will += "; whoever looked at the provider before " + timeText(row.SendUntil.Add(row.AbsentAfter)) + " may have looked too early"
	}
	if d.Action == zabor.Release && row.State == zabor.Declined {
		will = "a new attempt will be wanted: when its message is delivered, it is called once more, under a new provider key"
	}
	return is + "\nzabor: " + will
}

// confirm asks, where there is somebody to ask.
func (p *program) confirm(yes bool) error {
	if yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usage(errors.New("nothing was changed: there is no terminal to ask on"), "add --yes")
	}
	fmt.Fprint(p.stderr, "zabor: go on? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return bad(errors.New("nothing was changed"), "")
	}
	return nil
}

func (p *program) decisionFailure(d zabor.Decision, err error) error {
	show := d.Key.ShowCommand()
	switch {
	case errors.Is(err, zabor.ErrNoRow):
		return bad(fmt.Errorf("%s has no row: there is nothing to decide; nothing was changed", d.Key), show)
	case errors.Is(err, zabor.ErrStale):
		return bad(fmt.Errorf("%w; nothing was changed", err), "look at it again: "+show)
	case errors.Is(err, zabor.ErrRefused) && d.Action == zabor.Release && !d.CheckedProvider:
		return bad(fmt.Errorf("%w; nothing was changed", err), "when you have looked, add --i-have-checked-the-provider")
	case errors.Is(err, zabor.ErrRefused):
		return bad(fmt.Errorf("%w; nothing was changed", err), show)
	}
	return storeFailure(err)
}

type fenceDecide struct {
	File string `arg:"" help:"A CSV with the head line order,step,scope,action,reference,reason,checked; checked is yes for a release of which the provider was asked. - is standard input."`
	By   string `placeholder:"NAME" help:"Who decides; else the user of this session."`
	Yes  bool   `help:"Do not ask."`
}

// Run takes the decisions one by one. Those that cannot be taken are listed; the
// others are taken all the same.
func (c *fenceDecide) Run(p *program) error {
	in := io.Reader(os.Stdin)
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return usage(err, "")
		}
		defer f.Close()
		in = f
	}
	decisions, err := readDecisions(in)
	if err != nil {
		return usage(fmt.Errorf("%s: %w; nothing was changed", c.File, err), "")
	}
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	fence, err := p.decisionFence(file, store)
	if err != nil {
		return err
	}
	by, err := decider(c.By)
	if err != nil {
		return err
	}
	for i, d := range decisions {
		d.By = by
		d.Key.Scope = step.JoinScope(file.Scope, d.Key.Scope)
		if d.Seen, err = p.present(store, d); err != nil {
			return err
		}
		decisions[i] = d
	}
	if err := p.confirm(c.Yes); err != nil {
		return err
	}
	refused := 0
	for _, d := range decisions {
		row, err := fence.Decide(p.ctx, d)
		switch {
		case err == nil:
			fmt.Fprintf(p.stdout, "%s is %s now\n", printable(row.Key.String()), row.State)
		case errors.Is(err, zabor.ErrRefused), errors.Is(err, zabor.ErrStale), errors.Is(err, zabor.ErrNoRow):
			refused++
			fmt.Fprintf(p.stdout, "%s: not decided: %v\n", printable(d.Key.String()), err)
		default:
			return storeFailure(err)
		}
	}
	if refused > 0 {
		return bad(fmt.Errorf("%d of %d were not decided", refused, len(decisions)), "look at them again, and send only those")
	}
	return nil
}

// readDecisions reads the whole file before anything is changed.
func readDecisions(r io.Reader) ([]zabor.Decision, error) {
	records := csv.NewReader(r)
	head, err := records.Read()
	if err != nil {
		return nil, fmt.Errorf("no head line: %w", err)
	}
	column := func(name string) int { return slices.Index(head, name) }
	for _, name := range []string{"order", "step", "action", "reason"} {
		if column(name) < 0 {
			return nil, fmt.Errorf("line 1: no column %s; there is %s", name, strings.Join(head, ", "))
		}
	}
	var decisions []zabor.Decision
	for line := 2; ; line++ {
		fields, err := records.Read()
		if errors.Is(err, io.EOF) {
			return decisions, nil
		}
		if err != nil {
			return nil, err
		}
		field := func(name string) string {
			if i := column(name); i >= 0 {
				return fields[i]
			}
			return ""
		}
		d := zabor.Decision{
			Key:    zabor.Key{Scope: field("scope"), Order: field("order"), Step: field("step")},
			Action: zabor.Action(field("action")), Reference: field("reference"), Reason: field("reason"),
			CheckedProvider: field("checked") == "yes",
		}
		if !slices.Contains([]zabor.Action{zabor.Settle, zabor.Decline, zabor.Release, zabor.Hold}, d.Action) {
			return nil, fmt.Errorf("line %d: action %q: write settle, decline, release or hold", line, d.Action)
		}
		if d.Reason == "" {
			return nil, fmt.Errorf("line %d: no reason", line)
		}
		if (d.Action == zabor.Settle) != (d.Reference != "") {
			return nil, fmt.Errorf("line %d: settle, and only settle, takes a reference", line)
		}
		decisions = append(decisions, d)
	}
}
