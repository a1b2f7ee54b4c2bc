// Package peek foretells the way of a message through a worker. It is read-only.
package peek

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/takeover"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// Verdict is the way of a message.
type Verdict string

// The verdicts.
const (
	Call           Verdict = "call"          // capture a row, and call the provider
	AnswerExisting Verdict = "repeat"        // ack without a call: it is done
	Wait           Verdict = "wait"          // a call may have been made, and its result is found out first
	Hold           Verdict = "hold"          // park it for a person, without a call
	Forward        Verdict = "forward"       // move it to a queue of PHP's workers
	Refuse         Verdict = "refuse"        // park it: it has no step, or the step cannot run
	CannotDecode   Verdict = "cannot decode" // keep its bytes in zabor_unreadable
)

// Failed is the place of messages in the failure transport.
const Failed = takeover.Failed

// Message is a message with its verdict. Its JSON is documented.
type Message struct {
	Queue    string       `json:"queue"`
	Place    worker.Place `json:"place"` // ready, reserved, delayed or failed; file: it came from one
	ID       string       `json:"id"`
	Class    string       `json:"class"`
	Until    *time.Time   `json:"until,omitempty"`  // end of the reserve or of the delay
	Holder   string       `json:"holder,omitempty"` // its consumer
	Key      *console.Key `json:"key"`              // null: it has no key
	State    zabor.State  `json:"state,omitempty"`  // of its row; empty: it has no row
	Verdict  Verdict      `json:"verdict"`
	Reason   string       `json:"reason,omitempty"`
	Warning  string       `json:"warning,omitempty"`
	Target   string       `json:"target,omitempty"` // of forward
	Amount   string       `json:"amount,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Request  *Request     `json:"request"` // null: it cannot be made, or is not wanted
}

// Request is a request as it would be sent, without its secrets.
type Request struct {
	Method string            `json:"method"`
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
}

// Peeker foretells a worker. It is for one goroutine.
type Peeker struct {
	File      *config.Config
	Store     *sqlstore.Store
	Migrated  bool
	fence     *zabor.Fence
	steps     []*step.Step
	bus       worker.Bus
	providers connect.Providers
	markers   map[string]takeover.Marker // by queue; read once
}

// New returns a peeker for the installation of file. It needs no tables yet.
func New(ctx context.Context, file *config.Config, databases *connect.Databases, store *sqlstore.Store, secrets *config.Rotation) (*Peeker, error) {
	k := &Peeker{File: file, Store: store, Migrated: true, bus: connect.Bus(file), markers: map[string]takeover.Marker{}}
	secret, err := store.Setup().Secret(ctx)
	switch {
	case errors.Is(err, sqlstore.ErrNotMigrated):
		k.Migrated, secret = false, make([]byte, zabor.MinSecret)
	case err != nil:
		return nil, exit.Store(err)
	}
	k.fence = &zabor.Fence{Store: store, Secret: secret}
	if k.providers, err = connect.OpenProviders(file, secrets); err != nil {
		return nil, err
	}
	if k.steps, err = connect.Steps(databases); err == nil {
		err = databases.Reachable(ctx)
	}
	return k, err
}

// Plan returns the way of m, a message at place on q.
func (k *Peeker) Plan(ctx context.Context, q connect.Queue, m *worker.Message, place worker.Place) (Message, error) {
	one := Message{Queue: q.Name(), Place: place, ID: m.ID, Class: m.Class}
	at := slices.IndexFunc(k.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	switch {
	case at < 0:
		fate, target, why := k.bus.Fate(m)
		one.Target, one.Reason = target, why
		one.Verdict = map[worker.Fate]Verdict{worker.Forwarded: Forward, worker.KeptAsItIs: CannotDecode, worker.Refused: Refuse, worker.Parked: Refuse}[fate]
		return one, nil
	case errors.Is(m.Err, worker.ErrUnreadable):
		one.Verdict, one.Reason = CannotDecode, m.Err.Error()
		return one, nil
	case m.Err != nil:
		one.Verdict, one.Reason = Refuse, m.Err.Error()
		return one, nil //nolint:nilerr // the reason is told
	}
	e, err := k.steps[at].Effect(ctx, m.Message)
	if err != nil && !errors.Is(err, step.ErrRefused) && !errors.Is(err, step.ErrNoRow) {
		return one, exit.Unreachable(fmt.Errorf("message %s of %s: %w", m.ID, m.Class, err), "nothing was changed; does load: run on this database?")
	}
	if e.Key.Order == "" {
		one.Verdict, one.Reason = Refuse, err.Error()
		return one, nil
	}
	if path := k.steps[at].Unscoped(m.Message); path != "" {
		one.Warning = worker.Unscoped(k.steps[at], path)
	}
	key := console.NewKey(e.Key)
	one.Key = &key
	row, found := k.row(ctx, e.Key)
	if found != nil {
		return one, found
	}
	before := m.DeliveredBefore || place == Failed
	if before && row == nil {
		takenOver, err := k.takenOver(ctx, q, m.Class)
		if err != nil {
			return one, err
		}
		if !takenOver && (place == Failed || !q.Shared) {
			one.Verdict, one.Reason = Hold, "another worker has had it, and may have made the call: \"zabor import\" holds it before a worker starts"
			k.show(&one, e)
			return one, nil
		}
	}
	if e.MissingRow == zabor.Doubt {
		e.MissingRow = q.MissingRow
	}
	next, calls, foreseen := k.fence.Plan(row, e)
	if row != nil {
		one.State = row.State
		one.Amount, one.Provider = console.Money(row.Amount), row.Provider
	}
	switch {
	case calls:
		one.Verdict = Call
	case errors.Is(err, step.ErrNoRow) && errors.Is(foreseen, zabor.ErrNoRow):
		one.Verdict, one.Reason = Wait, err.Error()+"; the message may have come before it, and waits some minutes"
		return one, nil
	case err != nil && (errors.Is(foreseen, zabor.ErrNoRow) || errors.Is(foreseen, zabor.ErrReleased)):
		one.Verdict, one.Reason = Refuse, err.Error()
		return one, nil
	case foreseen == nil:
		one.Verdict, one.Reason = AnswerExisting, doneText(next)
	case zabor.Park(foreseen):
		one.Verdict, one.Reason = Hold, foreseen.Error()
	default:
		one.Verdict, one.Reason = Wait, foreseen.Error()
	}
	if row == nil || calls {
		k.showRow(&one, e, next)
	}
	return one, nil
}

// doneText describes a closed row.
func doneText(row zabor.Row) string {
	if row.Reference != "" {
		return fmt.Sprintf("%s, reference %s: acked without a call", row.State, row.Reference)
	}
	return fmt.Sprintf("%s: acked without a call", row.State)
}

// row returns the row of key; nil: key has no row.
func (k *Peeker) row(ctx context.Context, key zabor.Key) (*zabor.Row, error) {
	if !k.Migrated {
		return nil, nil
	}
	row, err := k.Store.Reports().Row(ctx, key)
	if err != nil {
		return nil, exit.Store(err)
	}
	return row, nil
}

// takenOver reports whether q was taken over, with messages of class.
func (k *Peeker) takenOver(ctx context.Context, q connect.Queue, class string) (bool, error) {
	if !k.Migrated {
		return false, nil
	}
	m, asked := k.markers[q.Name()]
	if !asked {
		var err error
		if m, err = takeover.ReadMarker(ctx, k.File.Scope, k.Store, q); err != nil {
			return false, err
		}
		k.markers[q.Name()] = m
	}
	return m.Takes(class), nil
}

// show adds the request of e, although it would not be sent now.
func (k *Peeker) show(one *Message, e zabor.Effect) {
	if e.Render == nil {
		return
	}
	e.MissingRow = zabor.Captured
	if next, _, err := k.fence.Plan(nil, e); err == nil {
		k.showRow(one, e, next)
	}
}

// showRow adds the request of row.
func (k *Peeker) showRow(one *Message, e zabor.Effect, row zabor.Row) {
	one.Amount, one.Provider = console.Money(e.Amount), e.Provider
	from, ok := k.providers[row.Provider]
	if !ok || row.Open.Request == nil {
		return
	}
	preview, err := from.Preview(row)
	if err != nil {
		one.Verdict, one.Reason = Refuse, "nothing would be sent: "+err.Error()
		return
	}
	hide := func(text string) string {
		text = k.File.Hide(text)
		if !k.Migrated {
			for _, key := range []string{row.ProviderKey, row.Open.PrepareKey} {
				if key != "" {
					text = strings.ReplaceAll(text, key, "(made by zabor migrate)")
				}
			}
		}
		return text
	}
	one.Request = &Request{Method: preview.Method, URL: hide(preview.URL), Body: hide(preview.Body), Header: map[string]string{}}
	for _, field := range preview.Header {
		one.Request.Header[field.Name] = hide(field.Value)
	}
}
