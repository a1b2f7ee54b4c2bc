package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
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
	JSON   bool   `name:"json" help:"Print the row afterwards as one JSON object, with what became of its messages."`
	StopAt string `hidden:"" help:"For tests: stop the process (SIGSTOP) at MOMENT, once."`
}

type fenceSettle struct {
	decision
	keep
	Reference string `arg:"" help:"The provider's own id of what it did."`
}

type fenceDecline struct {
	decision
	keep
	checked
}
type fenceHold struct{ decision }
type fenceRelease struct {
	decision
	keep
	checked
}

// checked is the proof that a decline and a release of a row take that may have acted.
type checked struct {
	IHaveCheckedTheProvider bool `help:"The provider was asked, and did nothing; demanded if a call may have been made."`
}

// keep is what decisions take that say what becomes of a message.
type keep struct {
	Keep bool `help:"Leave the message where it lies."`
}

func (c *fenceSettle) Run(p *program) error {
	return p.decide(c.decision, c.Keep, zabor.Decision{Action: zabor.Settle, Reference: c.Reference})
}
func (c *fenceDecline) Run(p *program) error {
	return p.decide(c.decision, c.Keep, zabor.Decision{Action: zabor.Decline, CheckedProvider: c.IHaveCheckedTheProvider})
}
func (c *fenceHold) Run(p *program) error {
	return p.decide(c.decision, false, zabor.Decision{Action: zabor.Hold})
}
func (c *fenceRelease) Run(p *program) error {
	return p.decide(c.decision, c.Keep, zabor.Decision{Action: zabor.Release, CheckedProvider: c.IHaveCheckedTheProvider})
}

// decide shows the row as it is, says what will happen, writes the decision about
// exactly that row, and lets its message go where it belongs.
func (p *program) decide(c decision, keep bool, d zabor.Decision) error {
	k, err := p.openDesk(keep, c.StopAt)
	if err != nil {
		return err
	}
	defer k.close()
	d.Key = zabor.Key{Scope: step.JoinScope(k.file.Scope, c.Scope), Order: c.Order, Step: c.Step}
	d.Reason = c.Reason
	if d.By, err = decider(c.By); err != nil {
		return err
	}
	m, err := k.look(d)
	if err != nil {
		return err
	}
	if err := k.may(m); err != nil {
		return p.decisionFailure(m, err)
	}
	k.announce(m)
	if err := console.Confirm(p.stderr, c.Yes); err != nil {
		return err
	}
	row, messages, err := k.take(m)
	if err != nil {
		return p.decisionFailure(m, err)
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
	Messages []carried `json:"messages"` // that were in a failure transport
}

func newDecidedJSON(row zabor.Row, messages []carried) decidedJSON {
	if messages == nil {
		messages = []carried{}
	}
	return decidedJSON{console.NewRow(row), messages}
}

func (p *program) printDecided(row zabor.Row, messages []carried) {
	fmt.Fprintf(p.stdout, "%s is %s now\n", console.Printable(row.Key.String()), row.State)
	for _, m := range messages {
		fmt.Fprintln(p.stdout, m)
	}
}

// decider is who decides: the one named, else the user of this session, else the one
// whose process this is.
func decider(by string) (string, error) {
	if by == "" {
		by = os.Getenv("USER")
	}
	if u, err := user.Current(); by == "" && err == nil {
		by = u.Username
	}
	if by == "" {
		return "", exit.Usage(errors.New("nobody knows who decides: $USER is not set, and this process's user has no name"), "add --by NAME")
	}
	return by, nil
}

// decisionFence is a fence that decides: it calls nobody.
func (p *program) decisionFence(file *config.Config, store *sqlstore.Store) (*zabor.Fence, error) {
	if err := store.Setup().Check(p.ctx); err != nil {
		return nil, exit.Store(err)
	}
	secret, err := store.Setup().Secret(p.ctx)
	if err != nil {
		return nil, exit.Store(err)
	}
	return &zabor.Fence{Store: store, Secret: secret, Observer: zabor.Observer{Alert: p.alert}, Hook: file.Hook}, nil
}

// announce says what a decision will do to row.
func announce(row zabor.Row, d zabor.Decision) []string {
	is := fmt.Sprintf("%s has no row", console.Printable(d.Key.String()))
	if row.State != "" {
		is = console.Printable(d.Key.String())
		if amount := console.Money(row.Amount); amount != "" {
			is += " (" + amount + ")"
		}
		is += fmt.Sprintf(" is %s: %s", row.State, console.Printable(row.Reason))
	}
	will := map[zabor.Action]string{
		zabor.Settle:  "it will be settled with the reference " + console.Printable(d.Reference) + "; nothing is ever called for it again",
		zabor.Decline: "it will be declined: no money moved, and nothing is ever called for it again",
		zabor.Hold:    "it will be held: nothing is called for it until somebody has decided",
		zabor.Release: "it will be free: when its message is delivered, it is called once more, under the same provider key",
	}[d.Action]
	switch {
	case d.Made(row):
		will = "it is so already, and nothing is decided anew"
	case d.Action == zabor.Release && newKey(row):
		will = "a new attempt will be wanted: when its message is delivered, it is called once more, under a new provider key"
	case (d.Action == zabor.Release || d.Action == zabor.Decline) && row.MayHaveActed():
		will += "; whoever looked at the provider before " + console.Time(row.Open.SendUntil.Add(row.Open.AbsentAfter)) + " may have looked too early"
		if row.Open.AbsentAfter == 0 {
			will += ", and whoever found nothing later has no proof either: zabor knows no time after which this provider surely shows every call"
		}
	}
	return []string{is, will}
}

// newKey reports whether a release of row allows any request, under a new key.
func newKey(row zabor.Row) bool {
	return row.State == zabor.Declined && row.Cause != zabor.ByPerson && !row.MayHaveActed()
}

func (p *program) decisionFailure(m matter, err error) error {
	show := m.Key.ShowCommand()
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, zabor.ErrNoRow):
		return exit.Bad(fmt.Errorf("%s has no row: there is nothing to decide; nothing was changed", m.Key), show+"; a charge that nobody has begun, such as a delayed one, is forbidden by: zabor fence decline ORDER STEP --reason TEXT")
	case errors.Is(err, zabor.ErrStale):
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), "look at it again: "+show)
	case errors.Is(err, zabor.ErrRefused) && m.wantsProof():
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), "when you have looked, add --i-have-checked-the-provider")
	case errors.Is(err, zabor.ErrRefused) && len(m.same) > 0:
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), show+"; "+m.same[0].Key.ShowCommand())
	case errors.Is(err, zabor.ErrRefused):
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), show)
	}
	return exit.Store(err)
}

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
	Action   string    `json:"action"`
	Decided  bool      `json:"decided"` // the row is as it was to be
	State    string    `json:"state"`   // of the row now; empty: there is none
	Messages []carried `json:"messages"`
	Error    string    `json:"error"` // empty: all was done
}

// Run takes the decisions one by one. Those that cannot be taken are listed; the
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
	decisions, undecided, err := readDecisions(in)
	if err != nil {
		return exit.Usage(fmt.Errorf("%s: %w; nothing was changed", c.File, err), "")
	}
	by, err := decider(c.By)
	if err != nil {
		return err
	}
	k, err := p.openDesk(c.Keep, "")
	if err != nil {
		return err
	}
	defer k.close()
	var matters []matter
	for _, d := range decisions {
		d.By = by
		d.Key.Scope = wholeScope(k.file.Scope, d.Key.Scope)
		m, err := k.look(d)
		if err != nil {
			return err
		}
		k.announce(m)
		matters = append(matters, m)
	}
	if undecided > 0 {
		fmt.Fprintf(p.stderr, "zabor: %d lines have no action and are left alone\n", undecided)
	}
	if err := console.Confirm(p.stderr, c.Yes); err != nil {
		return err
	}
	return c.take(k, matters)
}

// wholeScope is a key's whole scope: a list of rows has it so, people who write a
// file of their own write the inner one, as --scope takes it.
func wholeScope(installation, scope string) string {
	if scope != "" && (scope[0] == '/' || installation != "" && zabor.Key{Scope: scope}.In(installation)) {
		return scope
	}
	return step.JoinScope(installation, scope)
}

func (c *fenceDecide) take(k *desk, matters []matter) error {
	undone, told := 0, []manyJSON{}
	for _, m := range matters {
		row, messages, err := k.take(m)
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
			one.Messages = []carried{}
		}
		if err != nil {
			undone++
			one.Error = err.Error()
		}
		told = append(told, one)
		switch {
		case c.JSON:
		case refused:
			fmt.Fprintf(k.stdout, "%s: not decided: %v\n", console.Printable(m.Key.String()), err)
		default:
			k.printDecided(row, messages)
			if err != nil {
				fmt.Fprintf(k.stdout, "%s: not done with: %v\n", console.Printable(m.Key.String()), err)
			}
		}
	}
	if c.JSON {
		if err := json.NewEncoder(k.stdout).Encode(told); err != nil {
			return err
		}
	}
	if undone > 0 {
		return exit.Bad(fmt.Errorf("%d of %d were not decided, or their messages are not where they belong", undone, len(matters)), "look at them again, and send the file again: what is done is not done twice")
	}
	return nil
}

// readDecisions reads the whole file before anything is changed, and counts the
// lines in which nothing is decided.
func readDecisions(r io.Reader) (decisions []zabor.Decision, undecided int, err error) {
	records := csv.NewReader(r)
	head, err := records.Read()
	if err != nil {
		return nil, 0, fmt.Errorf("no head line: %w", err)
	}
	column := func(name string) int { return slices.Index(head, name) }
	for _, name := range []string{"order", "step", "action", "reason"} {
		if column(name) < 0 {
			return nil, 0, fmt.Errorf("line 1: no column %s; there is %s", name, strings.Join(head, ", "))
		}
	}
	for line := 2; ; line++ {
		fields, err := records.Read()
		if errors.Is(err, io.EOF) {
			return decisions, undecided, nil
		}
		if err != nil {
			return nil, 0, err
		}
		field := func(name string) string {
			if i := column(name); i >= 0 {
				return fields[i]
			}
			return ""
		}
		if field("action") == "" {
			undecided++
			continue
		}
		var key zabor.Key
		for name, part := range map[string]*string{"scope": &key.Scope, "order": &key.Order, "step": &key.Step} {
			if *part, err = zabor.DecodeText(field(name)); err != nil {
				return nil, 0, fmt.Errorf("line %d: %s: %w", line, name, err)
			}
		}
		d := zabor.Decision{
			Key:    key,
			Action: zabor.Action(field("action")), Reference: field("reference"), Reason: field("reason"),
			CheckedProvider: field("checked") == "yes",
		}
		if !slices.Contains([]zabor.Action{zabor.Settle, zabor.Decline, zabor.Release, zabor.Hold}, d.Action) {
			return nil, 0, fmt.Errorf("line %d: action %q: write settle, decline, release or hold", line, d.Action)
		}
		if d.Reason == "" {
			return nil, 0, fmt.Errorf("line %d: no reason", line)
		}
		if (d.Action == zabor.Settle) != (d.Reference != "") {
			return nil, 0, fmt.Errorf("line %d: settle, and only settle, takes a reference", line)
		}
		decisions = append(decisions, d)
	}
}
