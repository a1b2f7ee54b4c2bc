// Package decision takes the decisions of people about rows, and moves the messages of
// these rows. It calls no provider.
package decision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/sqlstore"
)

// The checkpoints of a decision, after those of the worker.
const (
	Decided zabor.Checkpoint = "decided" // the row is written, its message lies where it was
	Moving  zabor.Checkpoint = "carried" // a message went where it belongs, without a note yet
)

// Decider takes decisions for one request or command: it keeps its list of the
// failed messages. It is for one goroutine.
type Decider struct {
	File     *config.Config
	Store    *sqlstore.Store
	Fence    *zabor.Fence
	Failures *failures.Transports              // nil: messages are left alone
	Kept     string                            // why they are; empty: they are not
	At       func(zabor.Checkpoint, zabor.Key) // for tests; never nil
}

// Planned is a decision about a row as read, with the moves of its messages.
type Planned struct {
	zabor.Decision
	Row          zabor.Row
	dispositions []disposition
	Same         []zabor.Row // rows of other orders with the reference of a settle
}

// Plan reads the row of d and finds its messages. Only a decline may be without a row. If
// d names an outdated claim of the row, the error is zabor.ErrStale, with the
// row as it is.
func (k *Decider) Plan(ctx context.Context, d zabor.Decision) (Planned, error) {
	row, err := k.Store.Load(ctx, d.Key)
	if err != nil && (!errors.Is(err, zabor.ErrNoRow) || d.Action != zabor.Decline) {
		return Planned{}, Failure(Planned{Decision: d}, err)
	}
	if d.Seen == (zabor.Claim{}) {
		d.Seen = row.Claim
	}
	m := Planned{Decision: d, Row: row}
	if d.Seen != row.Claim {
		return m, fmt.Errorf("%s: %w: it is %s now", d.Key, zabor.ErrStale, row.State)
	}
	if m.Same, err = k.ofReference(ctx, d, row); err != nil {
		return Planned{}, exit.Store(err)
	}
	if k.Failures == nil || d.Action == zabor.Hold {
		return m, nil
	}
	list, err := k.Failures.ForRow(ctx, d.Key, row.Parked, func(one failures.Entry) bool { return k.asks(d, row, one) })
	if err != nil {
		return Planned{}, exit.Unreachable(err, "nothing was changed; --keep decides the row alone and leaves its message where it is")
	}
	m.dispositions = k.dispositions(d, row, list)
	return m, nil
}

// fewRows is how many rows a sentence names.
const fewRows = 3

// ofReference returns rows of other orders with the reference of d, a settle.
// Rows at another provider or account are left out, as far as these are known.
func (k *Decider) ofReference(ctx context.Context, d zabor.Decision, row zabor.Row) ([]zabor.Row, error) {
	if d.Action != zabor.Settle || d.Made(row) {
		return nil, nil
	}
	found, err := k.Store.Reports().OfReference(ctx, k.File.Scope, d.Reference, fewRows+1)
	return slices.DeleteFunc(found, func(r zabor.Row) bool {
		sameOrder := r.Order == d.Key.Order && r.Scope == d.Key.Scope
		elsewhere := r.Provider != "" && row.Provider != "" && (r.Provider != row.Provider || r.Account != row.Account)
		return sameOrder || elsewhere
	}), err
}

// WantsProof reports whether m is refused only because the person has not claimed to
// have looked at the provider.
func (m Planned) WantsProof() bool {
	said := m.Decision
	said.CheckedProvider = true
	may, mayThen := m.Check(m.Row), said.Check(m.Row)
	return may != nil && (mayThen == nil || may.Error() != mayThen.Error())
}

// Refused returns why m would be refused, as its row was read. nil: it would
// not be.
func (m Planned) Refused() error {
	if m.Row.State == "" || m.Made(m.Row) {
		return nil
	}
	if err := m.Check(m.Row); err != nil {
		return fmt.Errorf("%s: %w", m.Key, err)
	}
	for _, r := range m.Same {
		if r.State != zabor.Held && r.Provider == m.Row.Provider && r.Account == m.Row.Account {
			return fmt.Errorf("%s: %w: the reference %s is that of %s: look both orders up at the provider", m.Key, zabor.ErrRefused, console.Printable(m.Reference), r.Key)
		}
	}
	return nil
}

// Take takes the decision unless the row is so already, and then moves its messages. It
// can be repeated: no step is done twice.
func (k *Decider) Take(ctx context.Context, m Planned) (zabor.Row, []Moved, error) {
	row := m.Row
	var err error
	if m.Made(row) {
		if row.HookDue != "" {
			if err := k.Fence.RunHook(ctx, row); err != nil {
				return row, nil, hookFailed(m, err)
			}
			row.HookDue = ""
		}
	} else if row, err = k.Fence.Decide(ctx, m.Decision); err != nil {
		return row, nil, err
	}
	k.At(Decided, m.Key)
	if row.HookDue != "" && m.Action != zabor.Hold {
		return row, nil, hookFailed(m, errors.New("its history has the error of the hook "+row.HookDue))
	}
	var all []Moved
	for _, f := range m.dispositions {
		c, err := k.move(ctx, row, f)
		if err != nil {
			return row, all, exit.Bad(fmt.Errorf("%s is %s now, and its message %s of queue %s is not where it belongs: %w", m.Key, row.State, console.Printable(f.FailedID), f.In.Queue, err),
				"type the same command again: what is done is not done twice")
		}
		all = append(all, c)
	}
	return row, all, nil
}

// Failure returns err as a command reports it: with the undone part, and the next
// command to type. An [exit.Error] stays as it is.
func Failure(m Planned, err error) error {
	show := m.Key.ShowCommand()
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, zabor.ErrNoRow):
		return exit.Bad(fmt.Errorf("%s has no row: there is nothing to decide; nothing was changed", m.Key), show+"; a charge that nobody has begun, such as a delayed one, is forbidden by: zabor fence decline ORDER STEP --reason TEXT")
	case errors.Is(err, zabor.ErrStale):
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), "look at it again: "+show)
	case errors.Is(err, zabor.ErrRefused) && m.WantsProof():
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), "when you have looked, add --i-have-checked-the-provider")
	case errors.Is(err, zabor.ErrRefused) && len(m.Same) > 0:
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), show+"; "+m.Same[0].Key.ShowCommand())
	case errors.Is(err, zabor.ErrRefused):
		return exit.Bad(fmt.Errorf("%w; nothing was changed", err), show)
	}
	return exit.Store(err)
}

// NewFence returns a fence for decisions: it makes no call.
func NewFence(ctx context.Context, file *config.Config, store *sqlstore.Store, alert func(zabor.Alert)) (*zabor.Fence, error) {
	if err := store.Setup().Check(ctx); err != nil {
		return nil, exit.Store(err)
	}
	secret, err := store.Setup().Secret(ctx)
	if err != nil {
		return nil, exit.Store(err)
	}
	return &zabor.Fence{Store: store, Secret: secret, Observer: zabor.Observer{Alert: alert}, Hook: file.Hook}, nil
}
