package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/laravel"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// Inventory counts the messages of a queue and of its failure transport. Messages is the
// sum of NoStep, Fresh, Row, Held and WithoutKey. Its JSON is documented.
type Inventory struct {
	Queue      string `json:"queue"`
	Messages   int    `json:"messages"`
	NoStep     int    `json:"no_step"`     // of no step, or unreadable
	Fresh      int    `json:"fresh"`       // of a step, and no other worker has had them
	Row        int    `json:"row"`         // had by others, and have a row
	Held       int    `json:"held"`        // had by others, without a row before
	WithoutKey int    `json:"without_key"` // had by others, and no key can be made

	FreshPaid int `json:"fresh_paid"` // of Fresh, those with a paid order: retried by PHP, or sent twice

	NoTransport bool `json:"no_transport"` // there is no table of failed messages to look at

	Had      map[worker.Place]int `json:"-"` // of Held and WithoutKey, by place
	Examples []Unkeyed            `json:"-"` // of WithoutKey, a hundred at most

	PaidOrders []string `json:"-"` // a few of FreshPaid
}

// Unkeyed is a message without a key: no row can hold it.
type Unkeyed struct {
	Queue  string       `json:"queue"`
	Where  worker.Place `json:"where"` // ready, reserved, delayed or failed
	ID     string       `json:"id"`
	Class  string       `json:"class"`
	Reason string       `json:"reason"`
}

// hadText counts the messages of other workers by place.
func (v Inventory) hadText() string {
	var parts []string
	for _, place := range []worker.Place{worker.Ready, worker.Reserved, worker.Delayed, Failed} {
		if n := v.Had[place]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, place))
		}
	}
	return strings.Join(parts, ", ")
}

// Failed is the failure transport, beside the places of a queue.
const Failed worker.Place = "failed"

// Importer writes rows for calls made, or possibly made, before zabor
// took from a queue. It changes no existing row: the first evidence wins.
type Importer struct {
	file     *config.Config
	store    *sqlstore.Store
	fence    *zabor.Fence
	steps    []*step.Step
	log      *slog.Logger
	say      func(format string, args ...any)
	readOnly bool
	payments *Payments // may be nil

	seenSteps map[string]bool         // steps of imported keys
	passOver  func(class string) bool // classes to count as without a step; may be nil
}

// note remembers the step of k.
func (i *Importer) note(k zabor.Key) {
	name, _, _ := strings.Cut(k.Step, ":")
	i.seenSteps[name] = true
}

// Saw reports whether the import has met a key of the step of this name.
func (i *Importer) Saw(step string) bool { return i.seenSteps[step] }

// Options say how an [Importer] works.
type Options struct {
	ReadOnly bool // nothing is written
	Log      *slog.Logger
	Say      func(format string, args ...any) // gets the progress
}

// Open returns an importer for the installation of file. It checks the fence's tables
// and connects to the application's databases.
func Open(ctx context.Context, file *config.Config, databases *connect.Databases, store *sqlstore.Store, o Options) (*Importer, error) {
	if err := store.Setup().Check(ctx); err != nil {
		return nil, exit.Store(err)
	}
	secret, err := store.Setup().Secret(ctx)
	if err != nil {
		return nil, exit.Store(err)
	}
	if !o.ReadOnly {
		if err := store.Setup().RememberKey(ctx); err != nil {
			return nil, exit.Store(err)
		}
	}
	steps, err := connect.Steps(databases)
	if err == nil {
		err = databases.Reachable(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &Importer{
		file: file, store: store, steps: steps, readOnly: o.ReadOnly, log: o.Log, say: o.Say, seenSteps: map[string]bool{},
		fence: &zabor.Fence{Store: store, Secret: secret},
	}, nil
}

// mostScans bounds the scans of a queue. Without other workers a
// second scan finds no new message.
const mostScans = 10

// Queue holds the messages of other workers on s and in its failure transport. Messages
// move while it reads, so it scans again until a scan finds no new message.
func (i *Importer) Queue(ctx context.Context, s connect.Queue) (Inventory, error) {
	found, err := i.scan(ctx, s)
	for n := 1; err == nil && !i.readOnly; n++ {
		var more Inventory
		if more, err = i.scan(ctx, s); more.Held == 0 {
			break
		}
		found.Held, found.Messages = found.Held+more.Held, found.Messages+more.Held
		if n == mostScans {
			return found, exit.Bad(fmt.Errorf("queue %s: each of %d looks found messages that another worker has had: somebody still takes from it", s.Name(), mostScans),
				"what was found is held; stop all workers of the queue, and import again")
		}
	}
	return found, err
}

// scan goes once through the messages of s.
func (i *Importer) scan(ctx context.Context, s connect.Queue) (Inventory, error) {
	v := Inventory{Queue: s.Name(), Had: map[worker.Place]int{}}
	if !s.Shared {
		// With PHP workers at work, their messages are theirs to finish. A message
		// left by them is held by the next worker.
		for m, err := range s.Look(ctx) {
			if err != nil {
				return v, exit.Unreachable(err, "what was held until then stays; import again when Redis is there")
			}
			if err := i.add(ctx, &v, m.Message, m.Place, m.DeliveredBefore); err != nil {
				return v, err
			}
		}
	}
	for m, err := range failures.Own(s.Queue, i.store).Entries(ctx, "") {
		if s.FailedIn.NoTable(err) {
			i.log.Warn("there is no failure transport: nothing can have failed there before, and nothing can be parked there; make its table, or name it under failed:", "queue", s.Name(), "error", err)
			v.NoTransport = true
			break
		}
		if err != nil {
			return v, exit.Usage(fmt.Errorf("queue %s: what failed on it cannot be read: %w", s.Name(), err),
				fmt.Sprintf("a failed charge that is retried would be made again, so nothing was started; mend the table, or name it under queues.%s.failed", s.Name()))
		}
		if err := i.add(ctx, &v, m.Message, Failed, true); err != nil {
			return v, err
		}
	}
	if source, ok := s.Source.(*laravel.Source); ok && !v.NoTransport {
		for j, err := range source.FailedElsewhere(ctx) {
			if err != nil {
				return v, exit.Usage(fmt.Errorf("queue %s: what failed on its other connections cannot be read: %w", s.Name(), err), "nothing was started; mend the table")
			}
			if err := i.add(ctx, &v, source.Decode(j.Payload), Failed, true); err != nil {
				return v, err
			}
		}
	}
	i.say("\r%-79s\r", "")
	return v, nil
}

// add counts m, and holds its row if another worker has had m.
func (i *Importer) add(ctx context.Context, v *Inventory, m *worker.Message, place worker.Place, had bool) error {
	if v.Messages++; v.Messages%100 == 0 {
		i.say("\rqueue %s: %d messages, %d held", v.Queue, v.Messages, v.Held)
	}
	at := slices.IndexFunc(i.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	switch {
	case at < 0, i.passOver != nil && i.passOver(m.Class):
		v.NoStep++
		return nil
	case !had:
		v.Fresh++
		return i.addFresh(ctx, v, i.steps[at], m)
	}
	e, err := i.effect(ctx, i.steps[at], m)
	if err != nil {
		return err
	}
	if e.Key.Order == "" {
		v.WithoutKey++
		v.Had[place]++
		if len(v.Examples) < 100 {
			_, err := i.steps[at].Key(m.Message)
			v.Examples = append(v.Examples, Unkeyed{v.Queue, place, m.ID, m.Class, errors.Join(m.Err, err).Error()})
		}
		return nil
	}
	i.note(e.Key)
	inserted, err := i.hold(ctx, e, fmt.Sprintf("%s on queue %s when zabor came to it (message %s): another worker has had it, and may have made the call", place, v.Queue, m.ID))
	if err != nil {
		return err
	}
	if !inserted {
		v.Row++
		return nil
	}
	v.Held++
	v.Had[place]++
	return nil
}

// addFresh counts m if a payment explains its order. m looks as if no worker had it, and
// a retry by PHP makes a failed message look so.
func (i *Importer) addFresh(ctx context.Context, v *Inventory, s *step.Step, m *worker.Message) error {
	if i.payments == nil {
		return nil
	}
	k, err := s.Key(m.Message)
	if errors.Join(m.Err, err) != nil {
		return nil //nolint:nilerr // without a key no payment explains it, and a worker parks it
	}
	paid, err := i.payments.Ledger.Knows(ctx, k)
	if err != nil || !paid {
		return err
	}
	if v.FreshPaid++; len(v.PaidOrders) < 5 {
		v.PaidOrders = append(v.PaidOrders, console.Printable(k.Order))
	}
	return nil
}

// effect returns the effect of m. Without a Render the request cannot be made any more;
// without a key no row can.
func (i *Importer) effect(ctx context.Context, s *step.Step, m *worker.Message) (zabor.Effect, error) {
	if m.Err != nil {
		return zabor.Effect{}, nil //nolint:nilerr // no key can be made of what cannot be read; it is counted as such
	}
	e, err := s.Effect(ctx, m.Message)
	if err == nil {
		return e, nil
	}
	if !errors.Is(err, step.ErrRefused) && !errors.Is(err, step.ErrNoRow) {
		return e, exit.Unreachable(fmt.Errorf("message %s of %s: %w", m.ID, m.Class, err), "what was held until then stays; import again when the database is there")
	}
	return zabor.Effect{Key: e.Key, Fingerprint: zabor.Fingerprint{Message: e.Fingerprint.Message}}, nil
}

// hold writes the row of e unless there is one. A read-only importer says whether it
// would.
func (i *Importer) hold(ctx context.Context, e zabor.Effect, reason string) (inserted bool, err error) {
	if !i.readOnly {
		_, inserted, err = i.fence.Import(ctx, e, reason)
	} else if _, err = i.store.Load(ctx, e.Key); errors.Is(err, zabor.ErrNoRow) {
		if i.payments == nil {
			return true, nil
		}
		explained, err := i.payments.Ledger.Knows(ctx, e.Key)
		return !explained, err
	}
	if err != nil {
		return false, exit.Store(err)
	}
	return inserted, nil
}
