package failures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// Transports are the failure transports of the configured queues. They are for one
// goroutine: the messages of steps are listed once and kept.
type Transports struct {
	File   *config.Config
	Store  *sqlstore.Store
	Queues []worker.Queue
	Open   map[string]connect.Queue // by name
	All    []*Transport
	steps  []*step.Step
	byKey  map[zabor.Key][]Entry // the messages of steps; nil: not listed yet
}

// New returns the failure transports of open queues. There is no need to
// close.
func New(file *config.Config, store *sqlstore.Store, queues []connect.Queue) *Transports {
	f := &Transports{File: file, Store: store, steps: file.Compiled(), Open: map[string]connect.Queue{}}
	for _, q := range queues {
		f.Open[q.Name()] = q
		f.Queues = append(f.Queues, q.Queue)
		f.All = append(f.All, transports(q.Queue, store)...)
	}
	return f
}

// Key returns the key of m by its step; false: m has no key.
func (f *Transports) Key(m *worker.Message) (zabor.Key, bool) {
	s := f.StepOf(m)
	if s == nil {
		return zabor.Key{}, false
	}
	k, err := s.Key(m.Message)
	return k, err == nil
}

// StepOf returns the step of m. It is nil for a message without a step, or not decoded.
func (f *Transports) StepOf(m *worker.Message) *step.Step {
	if m.Err != nil {
		return nil
	}
	i := slices.IndexFunc(f.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	if i < 0 {
		return nil
	}
	return f.steps[i]
}

// Describe returns a few words about m: its id, queue, class and key.
func (f *Transports) Describe(queue string, m Failed) string {
	what := m.Kind
	if m.Class != "" {
		what = console.Printable(m.Class)
	}
	if k, ok := f.Key(m.Message); ok {
		what += ", " + k.String()
	}
	return fmt.Sprintf("%s of queue %s (%s)", console.Printable(m.FailedID), queue, what)
}

// Entry is a failed message and where it is.
type Entry struct {
	In *Transport
	Failed
	OldKey bool // it was parked for the row, and its step makes another key today
}

// ForRow returns the messages of the row of k, filtered by asks. A message with
// the id parked comes first, the others the newest first. parked may be empty.
func (f *Transports) ForRow(ctx context.Context, k zabor.Key, parked string, asks func(Entry) bool) ([]Entry, error) {
	for _, t := range f.All {
		if t.MoveOn == nil || parked == "" {
			continue
		}
		// A Laravel job has its id in failed_jobs too: this spares a look at
		// all of them.
		m, err := t.Entry(ctx, parked)
		switch {
		case errors.Is(err, ErrNoEntry):
		case err != nil:
			return nil, fmt.Errorf("queue %s: %w", t.Queue, err)
		case m.Message.ID == parked && f.StepOf(m.Message) != nil:
			key, ok := f.Key(m.Message)
			if one := (Entry{In: t, Failed: m, OldKey: !ok || key != k}); asks(one) {
				return []Entry{one}, nil
			}
		}
	}
	if err := f.list(ctx); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(f.byKey[k]), func(m Entry) bool { return !asks(m) })
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(rank(a, parked), rank(b, parked)) })
	return all, nil
}

// rank is 0 for the message with this id, else 1.
func rank(m Entry, id string) int {
	if m.Message.ID == id {
		return 0
	}
	return 1
}

// list reads all messages of steps, once.
func (f *Transports) list(ctx context.Context) error {
	if f.byKey != nil {
		return nil
	}
	byKey := map[zabor.Key][]Entry{}
	for m, err := range f.Keyed(ctx) {
		if err != nil {
			return err
		}
		byKey[m.Key] = append(byKey[m.Key], m.Entry)
	}
	f.byKey = byKey
	return nil
}

// Keyed is a failed message of a step, with its key.
type Keyed struct {
	Entry
	Key zabor.Key
}

// Keyed gives the messages of steps, transport by transport, the newest first. It ends
// with the first error.
func (f *Transports) Keyed(ctx context.Context) iter.Seq2[Keyed, error] {
	return func(yield func(Keyed, error) bool) {
		for _, t := range f.All {
			if t.MoveOn == nil {
				continue
			}
			for m, err := range t.Entries(ctx, "") {
				if err != nil {
					yield(Keyed{}, fmt.Errorf("failure transport of queue %s: %w", t.Queue, err))
					return
				}
				if k, ok := f.Key(m.Message); ok && !yield(Keyed{Entry{In: t, Failed: m}, k}, nil) {
					return
				}
			}
		}
	}
}

// Find returns the message of each id. An id without a message, or with one in two
// queues, is an error.
func (f *Transports) Find(ctx context.Context, ids []string) ([]Entry, error) {
	var all []Entry
	for _, id := range ids {
		var hits []Entry
		for _, t := range f.All {
			m, err := t.Entry(ctx, id)
			switch {
			case errors.Is(err, ErrNoEntry):
			case err != nil:
				return nil, exit.Unreachable(fmt.Errorf("queue %s: failed message %s: %w", t.Queue, console.Printable(id), err), `nothing was changed; "zabor failed list --queue `+t.Queue+`" shows the same error until it is mended`)
			default:
				hits = append(hits, Entry{In: t, Failed: m})
			}
		}
		switch len(hits) {
		case 0:
			return nil, exit.Bad(fmt.Errorf("no failed message has the id %s: nothing was changed", console.Printable(id)), `"zabor failed list" shows them all; one that was retried or forgotten is not there any more`)
		case 1:
			if !slices.ContainsFunc(all, func(a Entry) bool { return a.In == hits[0].In && a.FailedID == hits[0].FailedID }) {
				all = append(all, hits[0])
			}
		default:
			return nil, exit.Usage(fmt.Errorf("the queues %s and %s both have a failed message %s: nothing was changed", hits[0].In.Queue, hits[1].In.Queue, console.Printable(id)), "name one of them with --queue")
		}
	}
	return all, nil
}

// AlreadyDone returns why a worker would not call for m; empty: it would
// call. Such a message had better stay: PHP's workers do not know its row.
func (f *Transports) AlreadyDone(ctx context.Context, m Entry) (why string, err error) {
	if errors.Is(m.Err, worker.ErrUnreadable) {
		return m.Err.Error(), nil
	}
	k, ok := f.Key(m.Message)
	if !ok {
		return "", nil
	}
	row, err := f.Store.Reports().Row(ctx, k)
	if err != nil {
		return "", exit.Store(err)
	}
	switch {
	case row == nil, row.State == zabor.Released, row.State == zabor.Declined:
		return "", nil
	case row.Reference != "":
		return fmt.Sprintf("its row is %s, reference %s", row.State, console.Printable(row.Reference)), nil
	}
	return fmt.Sprintf("its row is %s", row.State), nil
}

// State describes the row of a failed message. charges reports whether the message may ask
// for a charge unknown to any row in wait of a person.
func (f *Transports) State(ctx context.Context, m Failed) (text string, charges bool, err error) {
	key, ok := f.Key(m.Message)
	if !ok {
		mayBe := m.Class == "" || m.Kind == Unreadable || slices.ContainsFunc(f.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
		return "a message without a key", mayBe, nil
	}
	row, err := f.Store.Reports().Row(ctx, key)
	switch {
	case err != nil:
		return "", false, exit.Store(err)
	case row == nil:
		return console.Printable(key.String()) + " has no row", true, nil
	}
	return console.Printable(key.String()) + " is " + string(row.State), row.State != zabor.Held && row.State != zabor.Released, nil
}
