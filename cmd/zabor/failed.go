package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"zabor"
	"zabor/dashboard"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

type failedCommand struct {
	List   failedList   `cmd:"" help:"List what the failure transports of the configured queues hold, the newest first."`
	Retry  failedRetry  `cmd:"" help:"Put messages back on their queues, and only then take them out of the failure transport. Nothing is called: a worker takes them, and meets the fence."`
	Forget failedForget `cmd:"" help:"Delete messages from the failure transport. Nothing is called, and no row of the fence changes."`
}

// failureTransport is where messages of one queue lie that were given up.
type failureTransport interface {
	// entries gives its messages, the newest first, and ends with the first
	// error: those that are older than the one with the given mark, which need not
	// be there any more; empty: all.
	entries(ctx context.Context, mark string) iter.Seq2[failedMessage, error]
	// entry is the message of that id, or errNoEntry.
	entry(ctx context.Context, id string) (failedMessage, error)
	// retry puts the message back on its queue and then deletes it. After an
	// error it is in one of the two, with worker.ErrBoth in both.
	retry(ctx context.Context, id string) error
	// forget deletes the message, or is errNoEntry.
	forget(ctx context.Context, id string) error
}

var errNoEntry = errors.New("there is no such failed message")

// failedMessage is a message in a failure transport.
type failedMessage struct {
	id     string
	mark   string // where it stands, see failureTransport.entries
	kind   string // failed_jobs, messenger or unreadable
	at     time.Time
	reason string
	*worker.Message
}

// laravelFailures are a Laravel queue's rows of failed_jobs.
type laravelFailures struct{ *laravel.Source }

func (f laravelFailures) entries(ctx context.Context, mark string) iter.Seq2[failedMessage, error] {
	return converted(f.FailedBefore(ctx, mark), f.message)
}

func (f laravelFailures) message(j laravel.FailedJob) failedMessage {
	return failedMessage{id: j.UUID, mark: j.Mark(), kind: "failed_jobs", at: j.At, reason: j.Reason, Message: f.Decode(j.Payload)}
}

func (f laravelFailures) entry(ctx context.Context, id string) (failedMessage, error) {
	j, err := f.FailedJob(ctx, id)
	if err != nil {
		return failedMessage{}, absent(err, laravel.ErrNoFailedJob)
	}
	return f.message(j), nil
}

func (f laravelFailures) retry(ctx context.Context, id string) error {
	return absent(f.Retry(ctx, id), laravel.ErrNoFailedJob)
}

func (f laravelFailures) forget(ctx context.Context, id string) error {
	return absent(f.Forget(ctx, id), laravel.ErrNoFailedJob)
}

// symfonyFailures are a Symfony transport's messages in its failure transport.
type symfonyFailures struct{ *messenger.Source }

func (f symfonyFailures) entries(ctx context.Context, mark string) iter.Seq2[failedMessage, error] {
	return converted(f.FailedBefore(ctx, mark), f.message)
}

func (f symfonyFailures) message(m messenger.FailedMessage) failedMessage {
	return failedMessage{id: m.ID, mark: m.ID, kind: "messenger", at: m.At, reason: m.Reason, Message: m.Message}
}

func (f symfonyFailures) entry(ctx context.Context, id string) (failedMessage, error) {
	m, err := f.FailedMessage(ctx, id)
	if err != nil {
		return failedMessage{}, absent(err, messenger.ErrNotKept)
	}
	return f.message(m), nil
}

func (f symfonyFailures) retry(ctx context.Context, id string) error {
	return absent(f.Retry(ctx, id), messenger.ErrNotKept)
}

func (f symfonyFailures) forget(ctx context.Context, id string) error {
	return absent(f.Forget(ctx, id), messenger.ErrNotKept)
}

// unreadables are a queue's entries of zabor_unreadable.
type unreadables struct {
	store *sqlstore.Store
	queue string
	push  func(ctx context.Context, raw []byte) error
}

func (u *unreadables) entries(ctx context.Context, mark string) iter.Seq2[failedMessage, error] {
	const page = 100
	return func(yield func(failedMessage, error) bool) {
		last := sqlstore.KeptUnreadable{}
		if at, id, marked := strings.Cut(mark, "-"); marked {
			micros, _ := strconv.ParseInt(at, 10, 64)
			last.At, last.ID = time.UnixMicro(micros), id
		}
		for {
			kept, err := u.store.Quarantine().List(ctx, u.queue, last, page)
			if err != nil {
				yield(failedMessage{}, err)
				return
			}
			for _, k := range kept {
				if last = k; !yield(u.message(k), nil) {
					return
				}
			}
			if len(kept) < page {
				return
			}
		}
	}
}

// shortID is how many digits of an unreadable message's id are shown.
const shortID = 16

func (u *unreadables) message(k sqlstore.KeptUnreadable) failedMessage {
	return failedMessage{id: k.ID[:shortID], mark: fmt.Sprintf("%d-%s", k.At.UnixMicro(), k.ID), kind: "unreadable", at: k.At, reason: k.Reason,
		Message: &worker.Message{ID: k.ID, Raw: k.Bytes, Err: worker.ErrUnreadable}}
}

func (u *unreadables) entry(ctx context.Context, id string) (failedMessage, error) {
	k, err := u.store.Quarantine().Load(ctx, u.queue, id)
	if err != nil {
		return failedMessage{}, absent(err, sqlstore.ErrNoUnreadable)
	}
	return u.message(k), nil
}

func (u *unreadables) retry(ctx context.Context, id string) error {
	m, err := u.entry(ctx, id)
	if err != nil {
		return err
	}
	if err := u.push(ctx, m.Raw); err != nil {
		return err
	}
	if err := u.store.Quarantine().Forget(ctx, u.queue, m.ID); err != nil && !errors.Is(err, sqlstore.ErrNoUnreadable) {
		return fmt.Errorf("%w: %w", worker.ErrBoth, err)
	}
	return nil
}

func (u *unreadables) forget(ctx context.Context, id string) error {
	m, err := u.entry(ctx, id)
	if err != nil {
		return err
	}
	return absent(u.store.Quarantine().Forget(ctx, u.queue, m.ID), sqlstore.ErrNoUnreadable)
}

func absent(err, none error) error {
	if errors.Is(err, none) {
		return errNoEntry
	}
	return err
}

// converted converts what a sequence gives, up to its first error.
func converted[A, B any](all iter.Seq2[A, error], convert func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for one, err := range all {
			if err != nil {
				var none B
				yield(none, err)
				return
			}
			if !yield(convert(one), nil) {
				return
			}
		}
	}
}

// failures are the failure transports of the configured queues.
type failures struct {
	file       *config.Config
	store      *sqlstore.Store
	queues     []worker.Queue
	places     map[string]connect.Queue // by name
	transports []*queueTransport
	steps      []*step.Step
	byKey      map[zabor.Key][]found // the messages of steps; nil: not listed yet
	close      func()
}

type queueTransport struct {
	queue string
	failureTransport
	// moveOn puts a message on another queue of the same connection and then
	// deletes it, as retry does. Nil: here are no messages that could go on.
	moveOn func(ctx context.Context, id, queue string) error
}

// kind is where its messages lie: failed_jobs, messenger or unreadable.
func (t *queueTransport) kind() string {
	switch t.failureTransport.(type) {
	case laravelFailures:
		return "failed_jobs"
	case symfonyFailures:
		return "messenger"
	}
	return "unreadable"
}

// openFailures opens the failure transports of the named queues; none named: of
// all.
func (p *program) openFailures(names []string) (*failures, error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, err
	}
	f, err := p.failuresOf(file, store, names)
	if err != nil {
		store.Close()
		return nil, err
	}
	return f, nil
}

func (p *program) failuresOf(file *config.Config, store *sqlstore.Store, names []string) (*failures, error) {
	choice := workerCommand{Queue: names}
	if err := choice.choose(file); err != nil {
		return nil, err
	}
	queues, closeQueues, err := p.queues(file, store)
	if err != nil {
		return nil, err
	}
	f := failuresIn(file, store, queues)
	f.close = func() { closeQueues(); store.Close() }
	return f, nil
}

// failuresIn are the failure transports of queues that are open. There is nothing
// to close.
func failuresIn(file *config.Config, store *sqlstore.Store, queues []connect.Queue) *failures {
	f := &failures{file: file, store: store, steps: file.Compiled(), places: map[string]connect.Queue{}, close: func() {}}
	for _, q := range queues {
		f.places[q.Name()] = q
		f.queues = append(f.queues, q.Queue)
		f.transports = append(f.transports, transports(q.Queue, store)...)
	}
	return f
}

// transports are the failure transports of one queue.
func transports(q worker.Queue, store *sqlstore.Store) []*queueTransport {
	raw := &unreadables{store: store, queue: q.Name()}
	own, bytes := &queueTransport{queue: q.Name()}, &queueTransport{queue: q.Name(), failureTransport: raw}
	switch source := q.Source.(type) {
	case *laravel.Source:
		raw.push = func(ctx context.Context, raw []byte) error { _, err := source.Push(ctx, raw); return err }
		own.failureTransport = laravelFailures{source}
		own.moveOn = func(ctx context.Context, id, queue string) error {
			return absent(source.MoveOn(ctx, id, queue), laravel.ErrNoFailedJob)
		}
	case *messenger.Source:
		raw.push = source.Push
		own.failureTransport = symfonyFailures{source}
		own.moveOn = func(ctx context.Context, id, queue string) error {
			return absent(source.MoveOn(ctx, id, queue), messenger.ErrNotKept)
		}
	default:
		panic(fmt.Sprintf("a queue of type %T", source)) // queues makes no other
	}
	return []*queueTransport{own, bytes}
}

// key is the key that m's step makes, as far as it can be made.
func (f *failures) key(m failedMessage) (zabor.Key, bool) {
	s := f.stepOf(m)
	if s == nil {
		return zabor.Key{}, false
	}
	k, err := s.Key(m.Message.Message)
	return k, err == nil
}

// stepOf is the step of m; nil: it has none, or m cannot be read.
func (f *failures) stepOf(m failedMessage) *step.Step {
	if m.Err != nil {
		return nil
	}
	i := slices.IndexFunc(f.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	if i < 0 {
		return nil
	}
	return f.steps[i]
}

// untaken reports whether m may have been with another worker, without a row to say
// so: zabor has not taken over its class of messages yet. Put back, it would look like
// one that nobody has had.
func (f *failures) untaken(ctx context.Context, m found) (bool, error) {
	k, ok := f.key(m.failedMessage)
	if !ok {
		return false, nil
	}
	row, err := f.store.Reports().Row(ctx, k)
	if err != nil {
		return false, exit.Store(err)
	}
	if row != nil {
		return false, nil
	}
	mark, err := readMarker(ctx, f.file, f.store, f.places[m.in.queue])
	return !mark.takes(m.Class), err
}

// idle says why nothing would be called for m, which had better stay where it is; empty:
// it had not. PHP's workers, if any are left, know nothing of its row.
func (f *failures) idle(ctx context.Context, m found) (why string, err error) {
	k, ok := f.key(m.failedMessage)
	if !ok {
		return "", nil
	}
	row, err := f.store.Reports().Row(ctx, k)
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

// told says what m is, for a line about it.
func (f *failures) told(queue string, m failedMessage) string {
	what := m.kind
	if m.Class != "" {
		what = console.Printable(m.Class)
	}
	if k, ok := f.key(m); ok {
		what += ", " + k.String()
	}
	return fmt.Sprintf("%s of queue %s (%s)", console.Printable(m.id), queue, what)
}

// found is a failed message and where it is.
type found struct {
	in *queueTransport
	failedMessage
	oldKey bool // it was parked for the row, and its step makes another key today
}

// of are the messages of the row of k that ask for what the row is about: the one
// with the given id, that was parked for it last, before the others, which are the
// newest first. parked may be empty.
func (f *failures) of(ctx context.Context, k zabor.Key, parked string, asks func(found) bool) ([]found, error) {
	for _, t := range f.transports {
		if t.moveOn == nil || parked == "" {
			continue
		}
		// A Laravel job has its id in failed_jobs too, which spares a look at
		// all of them.
		m, err := t.entry(ctx, parked)
		switch {
		case errors.Is(err, errNoEntry):
		case err != nil:
			return nil, fmt.Errorf("queue %s: %w", t.queue, err)
		case m.Message.ID == parked && f.stepOf(m) != nil:
			key, ok := f.key(m)
			if one := (found{in: t, failedMessage: m, oldKey: !ok || key != k}); asks(one) {
				return []found{one}, nil
			}
		}
	}
	if err := f.list(ctx); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(f.byKey[k]), func(m found) bool { return !asks(m) })
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(unlike(a, parked), unlike(b, parked)) })
	return all, nil
}

func unlike(m found, id string) int {
	if m.Message.ID == id {
		return 0
	}
	return 1
}

// list reads all messages of steps, once.
func (f *failures) list(ctx context.Context) error {
	if f.byKey != nil {
		return nil
	}
	byKey := map[zabor.Key][]found{}
	for m, err := range f.keyed(ctx) {
		if err != nil {
			return err
		}
		byKey[m.key] = append(byKey[m.key], m.found)
	}
	f.byKey = byKey
	return nil
}

// keyed is a failed message from which a step makes a key.
type keyed struct {
	found
	key zabor.Key
}

// keyed gives the messages of steps, transport by transport and there the newest
// first, and ends with the first error.
func (f *failures) keyed(ctx context.Context) iter.Seq2[keyed, error] {
	return func(yield func(keyed, error) bool) {
		for _, t := range f.transports {
			if t.moveOn == nil {
				continue
			}
			for m, err := range t.entries(ctx, "") {
				if err != nil {
					yield(keyed{}, fmt.Errorf("failure transport of queue %s: %w", t.queue, err))
					return
				}
				if k, ok := f.key(m); ok && !yield(keyed{found{in: t, failedMessage: m}, k}, nil) {
					return
				}
			}
		}
	}
}

// find is the message that each id names.
func (f *failures) find(ctx context.Context, ids []string) ([]found, error) {
	var all []found
	for _, id := range ids {
		var hits []found
		for _, t := range f.transports {
			m, err := t.entry(ctx, id)
			switch {
			case errors.Is(err, errNoEntry):
			case err != nil:
				return nil, exit.Unreachable(fmt.Errorf("queue %s: failed message %s: %w", t.queue, console.Printable(id), err), `nothing was changed; "zabor failed list --queue `+t.queue+`" shows the same error until it is mended`)
			default:
				hits = append(hits, found{in: t, failedMessage: m})
			}
		}
		switch len(hits) {
		case 0:
			return nil, exit.Bad(fmt.Errorf("no failed message has the id %s: nothing was changed", console.Printable(id)), `"zabor failed list" shows them all; one that was retried or forgotten is not there any more`)
		case 1:
			if !slices.ContainsFunc(all, func(a found) bool { return a.in == hits[0].in && a.id == hits[0].id }) {
				all = append(all, hits[0])
			}
		default:
			return nil, exit.Usage(fmt.Errorf("the queues %s and %s both have a failed message %s: nothing was changed", hits[0].in.queue, hits[1].in.queue, console.Printable(id)), "name one of them with --queue")
		}
	}
	return all, nil
}

type failedList struct {
	Queue []string `placeholder:"NAME" help:"Only of these queues."`
	Limit int      `default:"1000" help:"At most this many of each queue and failure transport, the newest; how many more there are is said on standard error. 0: all."`
	JSON  bool     `name:"json" help:"One JSON array."`
}

// failedJSON is the documented shape of a failed message.
type failedJSON struct {
	ID        string       `json:"id"`
	Queue     string       `json:"queue"`
	Transport string       `json:"transport"` // failed_jobs, messenger or unreadable
	Class     string       `json:"class"`
	Key       *console.Key `json:"key"` // null: no step makes one of it
	FailedAt  *string      `json:"failed_at"`
	Reason    string       `json:"reason"` // its first line
}

func (c *failedList) Run(p *program) error {
	if c.Limit < 0 {
		return exit.Usage(fmt.Errorf("failed list: --limit %d", c.Limit), "at least 1, or 0 for all")
	}
	f, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer f.close()
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	separator := "["
	row := func(queue string, m failedMessage) error {
		reason, _, _ := strings.Cut(m.reason, "\n")
		k, known := f.key(m)
		if !c.JSON {
			key := ""
			if known {
				key = console.Printable(k.String())
			}
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", console.Printable(m.id), queue, m.kind, console.Printable(m.Class), key, console.Time(m.at), console.Printable(reason))
			return err
		}
		one := failedJSON{ID: m.id, Queue: queue, Transport: m.kind, Class: m.Class, FailedAt: console.JSONTime(m.at), Reason: reason}
		if known {
			key := console.NewKey(k)
			one.Key = &key
		}
		text, err := json.Marshal(one)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%s%s", separator, text)
		separator = ",\n"
		return err
	}
	if !c.JSON {
		fmt.Fprintln(w, "ID\tQUEUE\tIN\tCLASS\tKEY\tFAILED\tREASON")
	}
	var broken []error // the other transports are listed all the same
	var more []string
	for _, t := range f.transports {
		n, kind := 0, ""
		for m, err := range t.entries(p.ctx, "") {
			if err != nil {
				broken = append(broken, fmt.Errorf("queue %s: %w", t.queue, err))
				break
			}
			n, kind = n+1, m.kind
			if c.Limit > 0 && n > c.Limit {
				continue // only counted
			}
			if err := row(t.queue, m); err != nil {
				return err
			}
		}
		if c.Limit > 0 && n > c.Limit {
			more = append(more, fmt.Sprintf("zabor: queue %s: %d more in %s, older than those listed\n", t.queue, n-c.Limit, kind))
		}
	}
	if c.JSON {
		if separator == "[" {
			fmt.Fprint(p.stdout, "[")
		}
		fmt.Fprintln(p.stdout, "]")
	} else if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(p.stderr, strings.Join(more, ""))
	if len(broken) > 0 {
		return exit.Unreachable(errors.Join(broken...), "the list is not complete; nothing was changed")
	}
	return nil
}

type failedRetry struct {
	ID    []string `arg:"" optional:"" help:"Ids as listed."`
	All   bool     `help:"All that are listed, but for what is held, in doubt or paid, for which nothing would be called, and for the unreadable ones, which would come back: name those."`
	Queue []string `placeholder:"NAME" help:"Only of these queues."`

	By     string `placeholder:"NAME" help:"Who does it; else the user of this session. It is kept in the history of the message's row."`
	Reason string `placeholder:"TEXT" help:"Why; it is kept with the name."`
}

func (c *failedRetry) Run(p *program) error {
	if c.All == (len(c.ID) > 0) {
		return exit.Usage(errors.New("failed retry: give ids, or --all"), `"zabor failed list" shows the ids`)
	}
	by, err := decider(c.By)
	if err != nil {
		return err
	}
	f, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer f.close()
	messages, err := c.chosen(p.ctx, f)
	if err != nil {
		return err
	}
	if messages, err = c.withoutIdle(p, f, messages); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%d messages go back to the end of their queues; nothing is called here: a worker takes them, and meets the fence\n", len(messages))
	return p.each(messages, func(m found) (string, error) {
		return "is on its queue again: " + f.told(m.in.queue, m.failedMessage), f.move(p.ctx, m, dashboard.Move{By: by, Reason: c.Reason}, m.in.retry)
	})
}

// withoutIdle are those of messages that are to be put back, and says which are not. None
// is put back while there are some that an import must hold first.
func (c *failedRetry) withoutIdle(p *program, f *failures, messages []found) (wanted []found, err error) {
	untaken := 0
	for _, m := range messages {
		is, err := f.untaken(p.ctx, m)
		if err != nil {
			return nil, err
		}
		if is {
			untaken++
			fmt.Fprintf(p.stdout, "not imported yet: %s\n", f.told(m.in.queue, m.failedMessage))
			continue
		}
		why := ""
		if c.All {
			if why, err = f.idle(p.ctx, m); err != nil {
				return nil, err
			}
		}
		if why != "" {
			fmt.Fprintf(p.stdout, "left where it is: %s: %s\n", f.told(m.in.queue, m.failedMessage), why)
			continue
		}
		wanted = append(wanted, m)
	}
	if untaken > 0 {
		return nil, exit.Usage(fmt.Errorf("%d messages may have been charged by another worker, and have no row: put back, they would look like new ones; nothing was put back", untaken),
			"zabor import holds them; then a person decides, or a payment settles them")
	}
	if n := len(messages) - len(wanted); n > 0 {
		fmt.Fprintf(p.stdout, "%d messages are left where they are: nothing would be called for them; a decision (zabor fence) moves them, and \"zabor failed retry ID\" puts one back all the same\n", n)
	}
	return wanted, nil
}

// chosen are the messages to retry, the oldest first.
func (c *failedRetry) chosen(ctx context.Context, f *failures) ([]found, error) {
	if !c.All {
		return f.find(ctx, c.ID)
	}
	var all []found
	for _, t := range f.transports {
		if _, ok := t.failureTransport.(*unreadables); ok {
			continue
		}
		first := len(all)
		for m, err := range t.entries(ctx, "") {
			if err != nil {
				return nil, exit.Unreachable(fmt.Errorf("queue %s: %w", t.queue, err), "nothing was changed")
			}
			m.Raw, m.reason = nil, "" // there may be many
			all = append(all, found{in: t, failedMessage: m})
		}
		slices.Reverse(all[first:])
	}
	return all, nil
}

type failedForget struct {
	ID     []string `arg:"" help:"Ids as listed."`
	Queue  []string `placeholder:"NAME" help:"Only of these queues."`
	Reason string   `placeholder:"TEXT" help:"Why nobody needs them: it is kept with the name, in the history of the message's row. Demanded with --yes."`
	By     string   `placeholder:"NAME" help:"Who does it; else the user of this session."`
	Yes    bool     `help:"Do it; else only say what would be deleted."`
}

func (c *failedForget) Run(p *program) error {
	by, err := decider(c.By)
	switch {
	case err != nil:
		return err
	case c.Yes && strings.TrimSpace(c.Reason) == "":
		return exit.Usage(errors.New("failed forget: there is no reason; nothing was deleted"), `add --reason "TEXT": why nobody needs them any more`)
	}
	f, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer f.close()
	messages, err := f.find(p.ctx, c.ID)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fmt.Fprintf(p.stdout, "to be deleted for good: %s\n", f.told(m.in.queue, m.failedMessage))
	}
	if !c.Yes {
		return exit.Usage(fmt.Errorf("nothing was deleted: %d messages would be", len(messages)), `add --yes and --reason "TEXT"; what their rows in the fence say stays as it is`)
	}
	return p.each(messages, func(m found) (string, error) {
		return "deleted: " + f.told(m.in.queue, m.failedMessage), f.move(p.ctx, m, dashboard.Move{Forget: true, By: by, Reason: c.Reason}, m.in.forget)
	})
}

// move does one thing with m, and notes who does it and why.
func (f *failures) move(ctx context.Context, m found, one dashboard.Move, do func(context.Context, string) error) error {
	one.Message = dashboard.FailedMessage{FailedID: dashboard.FailedID{Queue: m.in.queue, Transport: m.kind, ID: m.id}, Class: m.Class}
	if k, ok := f.key(m.failedMessage); ok {
		one.Message.Key = &k
	}
	return one.Do(ctx, f.store, f.file.Scope, func(ctx context.Context) error { return do(ctx, m.id) })
}

// each does one thing to each message, says so, and stops at the first that
// fails. One that is gone meanwhile was somebody else's, and one that a worker has is
// left to it.
func (p *program) each(messages []found, do func(found) (string, error)) error {
	done, inHand := 0, 0
	for _, m := range messages {
		what, err := do(m)
		switch {
		case errors.Is(err, errNoEntry):
			fmt.Fprintf(p.stdout, "gone meanwhile: %s of queue %s\n", console.Printable(m.id), m.in.queue)
			continue
		case errors.Is(err, messenger.ErrInHand):
			inHand++
			fmt.Fprintf(p.stdout, "not done: %s of queue %s: %v\n", console.Printable(m.id), m.in.queue, err)
			continue
		case errors.Is(err, dashboard.ErrNotNoted):
			return exit.Store(fmt.Errorf("failed message %s of queue %s: %w; %d of %d were done before it", console.Printable(m.id), m.in.queue, err, done, len(messages)))
		case err == nil:
			done++
			fmt.Fprintln(p.stdout, what)
			continue
		}
		err = fmt.Errorf("failed message %s of queue %s: %w; %d of %d were done before it", console.Printable(m.id), m.in.queue, err, done, len(messages))
		switch {
		case errors.Is(err, worker.ErrBoth):
			return exit.Bad(err, fmt.Sprintf("the worker meets the fence for it; then run \"zabor failed forget %s --queue %s --reason TEXT --yes\"", m.id, m.in.queue))
		case done > 0, errors.Is(err, worker.ErrUnreadable):
			return exit.Bad(err, fmt.Sprintf("it is where it was; \"zabor failed list --queue %s\" shows what is left", m.in.queue))
		}
		return exit.Unreachable(err, fmt.Sprintf("it is where it was, unless the answer alone was lost; \"zabor failed list --queue %s\" shows it", m.in.queue))
	}
	fmt.Fprintf(p.stdout, "%d of %d done\n", done, len(messages))
	if inHand > 0 {
		return exit.Bad(fmt.Errorf("%d messages are in the hands of workers that take from the failure transport, and were left there", inHand), "stop those workers (messenger:consume failed), or wait until they are done; then type the same command again")
	}
	return nil
}
