package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/sqlstore"
	"zabor/worker"
)

// The moments of a decision, after those of the worker.
const (
	decidedMoment zabor.Checkpoint = "decided" // the row is written, its message lies where it was
	carriedMoment zabor.Checkpoint = "carried" // a message went where it belongs, and nothing says so
)

// desk is where people decide. It calls no provider.
type desk struct {
	*program
	file     *config.Config
	store    *sqlstore.Store
	fence    *zabor.Fence
	failures *failures.Transports // nil: messages are left alone
	kept     string               // why they are; empty where they are not
	at       func(zabor.Checkpoint, zabor.Key)
	close    func()
}

// openDesk opens the fence and the failure transports. keep: messages stay where
// they are.
func (p *program) openDesk(keep bool, stop string) (*desk, error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, err
	}
	k := &desk{program: p, file: file, store: store, at: stopAt(stop), close: func() { store.Close() }}
	if k.fence, err = p.decisionFence(file, store); err != nil {
		k.close()
		return nil, err
	}
	switch {
	case keep:
		k.kept = "its message stays where it is (--keep)"
	case len(file.Queues) == 0:
		k.kept = "no queues are configured: its message is not looked for"
	default:
		var closeQueues func()
		if k.failures, closeQueues, err = p.failuresOf(file, store, nil); err != nil {
			k.close()
			return nil, err
		}
		k.close = func() { closeQueues(); store.Close() }
	}
	return k, nil
}

// matter is a decision about a row as it was looked at, and what follows for the
// messages that lie in a failure transport.
type matter struct {
	zabor.Decision
	row   zabor.Row
	fates []fate
	same  []zabor.Row // rows of other orders that have the reference of a settle
}

// fate is what becomes of a message in a failure transport.
type fate struct {
	failures.Entry
	to   string // queue that it goes to; empty: none, it is deleted
	then bool   // to is where its step lets it go on; else its own queue
	why  string
}

// look reads the row that d is about and finds its messages. Only a decline may be
// without a row. Where d names the claim that somebody has seen, it must still be
// the row's: else the error is zabor.ErrStale, and the row is that of the matter.
func (k *desk) look(d zabor.Decision) (matter, error) {
	row, err := k.store.Load(k.ctx, d.Key)
	if err != nil && (!errors.Is(err, zabor.ErrNoRow) || d.Action != zabor.Decline) {
		return matter{}, k.decisionFailure(matter{Decision: d}, err)
	}
	if d.Seen == (zabor.Claim{}) {
		d.Seen = row.Claim
	}
	m := matter{Decision: d, row: row}
	if d.Seen != row.Claim {
		return m, fmt.Errorf("%s: %w: it is %s now", d.Key, zabor.ErrStale, row.State)
	}
	if m.same, err = k.ofReference(d, row); err != nil {
		return matter{}, exit.Store(err)
	}
	if k.failures == nil || d.Action == zabor.Hold {
		return m, nil
	}
	list, err := k.failures.ForRow(k.ctx, d.Key, row.Parked, func(one failures.Entry) bool { return k.asks(d, row, one) })
	if err != nil {
		return matter{}, exit.Unreachable(err, "nothing was changed; --keep decides the row alone and leaves its message where it is")
	}
	m.fates = k.fates(d, row, list)
	return m, nil
}

// fewRows are as many as are named in a sentence.
const fewRows = 3

// ofReference are rows of other orders that have the reference by which d settles row,
// at the same provider and account as far as they are known.
func (k *desk) ofReference(d zabor.Decision, row zabor.Row) ([]zabor.Row, error) {
	if d.Action != zabor.Settle || d.Made(row) {
		return nil, nil
	}
	found, err := k.store.Reports().OfReference(k.ctx, k.file.Scope, d.Reference, fewRows+1)
	return slices.DeleteFunc(found, func(r zabor.Row) bool {
		sameOrder := r.Order == d.Key.Order && r.Scope == d.Key.Scope
		elsewhere := r.Provider != "" && row.Provider != "" && (r.Provider != row.Provider || r.Account != row.Account)
		return sameOrder || elsewhere
	}), err
}

// warnings say what whoever decides m must know before, and m does not change.
func (m matter) warnings() []string {
	if len(m.same) == 0 {
		return nil
	}
	var rows []string
	for _, r := range m.same[:min(len(m.same), fewRows)] {
		rows = append(rows, fmt.Sprintf("%s (%s)", console.Printable(r.Key.String()), strings.TrimSuffix(string(r.State)+", "+console.Money(r.Amount), ", ")))
	}
	return []string{fmt.Sprintf("the reference %s stands in the row of another order already: %s. One reference is one payment: if it paid for that order, it did not pay for this one too", console.Printable(m.Reference), strings.Join(rows, ", "))}
}

// asks reports whether m asks for what row is about once d is taken. Another
// request under the same key is not answered by it.
func (k *desk) asks(d zabor.Decision, row zabor.Row, m failures.Entry) bool {
	any := row.Fingerprint.Message == "" || d.Action == zabor.Release && (newKey(row) || !row.MayHaveActed())
	return any || m.OldKey || k.failures.StepOf(m.Failed.Message).Fingerprint(m.Message.Message) == row.Fingerprint.Message
}

// fates says what d does with the messages of row.
func (k *desk) fates(d zabor.Decision, row zabor.Row, list []failures.Entry) []fate {
	goneOn := row.Forwarded
	var fates []fate
	for _, m := range list {
		s := k.failures.StepOf(m.Failed.Message)
		f := fate{Entry: m}
		switch {
		case d.Action == zabor.Release:
			f.to, f.why = m.In.Queue, "a worker calls once more for it there"
		case m.Chained && d.Action == zabor.Decline:
			f.why = "its chain ends"
		case s.Then() != "" && !goneOn:
			f.to, f.then, goneOn = s.Then(), true, true
		case m.Chained && s.Then() == "":
			f.to, f.why = m.In.Queue, "a worker acks it there without a call, and its chain goes on"
		}
		fates = append(fates, f)
		if d.Action == zabor.Release {
			break // one call, one message
		}
	}
	return fates
}

// String says what f will do.
func (f fate) String() string {
	text := fmt.Sprintf("its message %s of queue %s ", console.Printable(f.FailedID), f.In.Queue)
	switch {
	case f.to == "":
		text += "is deleted from " + f.Kind
	case f.then:
		text += "goes on to " + f.to + ", and is then deleted from " + f.Kind
	default:
		text += "goes back to the end of its queue, and is then deleted from " + f.Kind
	}
	if f.why != "" {
		text += ": " + f.why
	}
	return text
}

// wantsProof reports whether m is refused only because the person has not said that
// they have looked at the provider.
func (m matter) wantsProof() bool {
	said := m.Decision
	said.CheckedProvider = true
	may, mayThen := m.Check(m.row), said.Check(m.row)
	return may != nil && (mayThen == nil || may.Error() != mayThen.Error())
}

// may says why m is refused before anything of it is promised; nil: it is not, as the
// row was looked at.
func (k *desk) may(m matter) error {
	if m.row.State == "" || m.Made(m.row) {
		return nil
	}
	if err := m.Check(m.row); err != nil {
		return fmt.Errorf("%s: %w", m.Key, err)
	}
	for _, r := range m.same {
		if r.State != zabor.Held && r.Provider == m.row.Provider && r.Account == m.row.Account {
			return fmt.Errorf("%s: %w: the reference %s is that of %s: look both orders up at the provider", m.Key, zabor.ErrRefused, console.Printable(m.Reference), r.Key)
		}
	}
	return nil
}

// announce says what m will do.
func (k *desk) announce(m matter) {
	fmt.Fprintf(k.stderr, "zabor: %s\n", strings.Join(k.prospect(m), "\nzabor: "))
	for _, warning := range m.warnings() {
		fmt.Fprintf(k.stderr, "zabor: warning: %s\n", warning)
	}
}

// prospect is what m will do, in lines.
func (k *desk) prospect(m matter) []string {
	lines := announce(m.row, m.Decision)
	if state := entered[m.Action]; !m.Made(m.row) && k.hasHook(m.row, m.Key, state) {
		lines = append(lines, fmt.Sprintf("the step's hook %s runs in the same transaction", state))
	}
	switch {
	case m.Action == zabor.Hold:
	case k.failures == nil:
		lines = append(lines, k.kept)
	case len(m.fates) == 0:
		lines = append(lines, k.elsewhere(m))
	}
	for _, f := range m.fates {
		lines = append(lines, f.String())
	}
	return lines
}

// entered is the state whose hook an action runs; a release has none.
var entered = map[zabor.Action]zabor.State{zabor.Settle: zabor.Settled, zabor.Decline: zabor.Declined, zabor.Hold: zabor.Held}

func (k *desk) hasHook(row zabor.Row, key zabor.Key, state zabor.State) bool {
	row.Key, row.State, row.HookDue = key, state, ""
	hook, err := k.file.Hook(row)
	return state != "" && (hook != nil || err != nil)
}

// elsewhere says where m's message may be that is in no failure transport.
func (k *desk) elsewhere(m matter) string {
	then := "a worker acks it there without a call"
	if m.Action == zabor.Release {
		then = "a worker calls once more for it there"
	}
	for _, q := range k.failures.Queues {
		for seen, err := range q.Look(k.ctx) {
			if err != nil {
				return fmt.Sprintf("no message of it is in a failure transport; whether one is still on queue %s cannot be seen: %v", q.Name(), err)
			}
			if key, ok := k.failures.Key(seen.Message); ok && key == m.Key {
				return fmt.Sprintf("its message is still on queue %s (%s): %s", q.Name(), seen.Place, then)
			}
		}
	}
	switch {
	case m.Action == zabor.Release:
		return "no message of it is in a failure transport or on a queue: the application must send it again, or nothing is called"
	case m.row.Forwarded:
		return "its message has gone on already"
	}
	return "no message of it is in a failure transport or on a queue: one that comes is acked without a call"
}

// carried is what became of a message, as it is printed.
type carried struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Transport string `json:"transport"` // failed_jobs or messenger: where it was
	Did       string `json:"did"`       // deleted, put back, gone on, or gone meanwhile
	To        string `json:"to"`        // queue on which it is now; empty: none
}

func (c carried) String() string {
	text := fmt.Sprintf("message %s of queue %s: %s", console.Printable(c.ID), c.Queue, c.Did)
	if c.To != "" {
		text += " to " + c.To
	}
	return text
}

// take takes the decision, unless the row is already as it would have it, and lets
// each message go where it belongs. It is safe to be repeated: what is done is not
// done twice.
func (k *desk) take(m matter) (zabor.Row, []carried, error) {
	row := m.row
	var err error
	if m.Made(row) {
		if row.HookDue != "" {
			if err := k.fence.RunHook(k.ctx, row); err != nil {
				return row, nil, k.untold(m, err)
			}
			row.HookDue = ""
		}
	} else if row, err = k.fence.Decide(k.ctx, m.Decision); err != nil {
		return row, nil, err
	}
	k.at(decidedMoment, m.Key)
	if row.HookDue != "" && m.Action != zabor.Hold {
		return row, nil, k.untold(m, errors.New("its history has the error of the hook "+row.HookDue))
	}
	var all []carried
	for _, f := range m.fates {
		c, err := k.carry(row, f)
		if err != nil {
			return row, all, exit.Bad(fmt.Errorf("%s is %s now, and its message %s of queue %s is not where it belongs: %w", m.Key, row.State, console.Printable(f.FailedID), f.In.Queue, err),
				"type the same command again: what is done is not done twice")
		}
		all = append(all, c)
	}
	return row, all, nil
}

// untold is the error of a decision whose hook failed.
func (k *desk) untold(m matter, err error) error {
	return exit.Bad(fmt.Errorf("%s is decided, and the shop was not told: %w; its message stays where it is", m.Key, err),
		"a running worker tries the hook again until it works; mend what it complains of, and type the same command again to move the message")
}

// carry lets a message go where it belongs. It goes there first and is deleted
// second.
func (k *desk) carry(row zabor.Row, f fate) (carried, error) {
	c := carried{ID: f.FailedID, Queue: f.In.Queue, Transport: f.Kind, Did: "deleted", To: f.to}
	var err error
	switch {
	case f.to == "":
		err = f.In.Forget(k.ctx, f.FailedID)
	case f.then:
		c.Did = "gone on"
		err = f.In.MoveOn(k.ctx, f.FailedID, f.to)
		k.at(carriedMoment, row.Key)
		if err == nil || errors.Is(err, worker.ErrBoth) {
			err = errors.Join(err, k.fence.Forwarded(k.ctx, row.Key, row.Generation))
		}
	default:
		c.Did = "put back"
		err = f.In.Retry(k.ctx, f.FailedID)
		k.at(carriedMoment, row.Key)
	}
	if errors.Is(err, failures.ErrNoEntry) {
		return carried{ID: f.FailedID, Queue: f.In.Queue, Transport: f.Kind, Did: "gone meanwhile"}, nil
	}
	return c, err
}
