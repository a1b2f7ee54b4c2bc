package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"zabor/dashboard"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/takeover"
	"zabor/messenger"
	"zabor/sqlstore"
	"zabor/worker"
)

type failedCommand struct {
	List   failedList   `cmd:"" help:"List what the failure transports of the configured queues hold, the newest first."`
	Retry  failedRetry  `cmd:"" help:"Put messages back on their queues, and only then take them out of the failure transport. Nothing is called: a worker takes them, and meets the fence."`
	Forget failedForget `cmd:"" help:"Delete messages from the failure transport. Nothing is called, and no row of the fence changes."`
}

// openFailures opens the failure transports of the named queues; none named: of
// all.
func (p *program) openFailures(names []string) (f *failures.Transports, closeAll func(), err error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, nil, err
	}
	f, closeQueues, err := p.failuresOf(file, store, names)
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return f, func() { closeQueues(); store.Close() }, nil
}

// failuresOf opens the failure transports of the named queues of file; none named: of
// all. The store stays open when closeQueues is called.
func (p *program) failuresOf(file *config.Config, store *sqlstore.Store, names []string) (f *failures.Transports, closeQueues func(), err error) {
	choice := workerCommand{Queue: names}
	if err := choice.choose(file); err != nil {
		return nil, nil, err
	}
	queues, closeQueues, err := p.Queues(file, store)
	if err != nil {
		return nil, nil, err
	}
	return failures.New(file, store, queues), closeQueues, nil
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
	f, closeAll, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer closeAll()
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	separator := "["
	row := func(queue string, m failures.Failed) error {
		reason, _, _ := strings.Cut(m.Reason, "\n")
		k, known := f.Key(m.Message)
		if !c.JSON {
			key := ""
			if known {
				key = console.Printable(k.String())
			}
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", console.Printable(m.FailedID), queue, m.Kind, console.Printable(m.Class), key, console.Time(m.At), console.Printable(reason))
			return err
		}
		one := failedJSON{ID: m.FailedID, Queue: queue, Transport: m.Kind, Class: m.Class, FailedAt: console.JSONTime(m.At), Reason: reason}
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
	for _, t := range f.All {
		n, kind := 0, ""
		for m, err := range t.Entries(p.ctx, "") {
			if err != nil {
				broken = append(broken, fmt.Errorf("queue %s: %w", t.Queue, err))
				break
			}
			n, kind = n+1, m.Kind
			if c.Limit > 0 && n > c.Limit {
				continue // only counted
			}
			if err := row(t.Queue, m); err != nil {
				return err
			}
		}
		if c.Limit > 0 && n > c.Limit {
			more = append(more, fmt.Sprintf("zabor: queue %s: %d more in %s, older than those listed\n", t.Queue, n-c.Limit, kind))
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
	by, err := whoDecides(c.By)
	if err != nil {
		return err
	}
	f, closeAll, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer closeAll()
	messages, err := c.chosen(p.ctx, f)
	if err != nil {
		return err
	}
	if messages, err = c.worthRetrying(p, f, messages); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%d messages go back to the end of their queues; nothing is called here: a worker takes them, and meets the fence\n", len(messages))
	return p.each(messages, func(m failures.Entry) (string, error) {
		return "is on its queue again: " + f.Describe(m.In.Queue, m.Failed), noted(p.ctx, f, m, dashboard.Move{By: by, Reason: c.Reason}, m.In.Retry)
	})
}

// worthRetrying are those of messages that are to be put back, and says which are not. None
// is put back while there are some that an import must hold first.
func (c *failedRetry) worthRetrying(p *program, f *failures.Transports, messages []failures.Entry) (wanted []failures.Entry, err error) {
	untaken := 0
	for _, m := range messages {
		is, err := takeover.NotImported(p.ctx, f, m)
		if err != nil {
			return nil, err
		}
		if is {
			untaken++
			fmt.Fprintf(p.stdout, "not imported yet: %s\n", f.Describe(m.In.Queue, m.Failed))
			continue
		}
		why := ""
		if c.All {
			if why, err = f.AlreadyDone(p.ctx, m); err != nil {
				return nil, err
			}
		}
		if why != "" {
			fmt.Fprintf(p.stdout, "left where it is: %s: %s\n", f.Describe(m.In.Queue, m.Failed), why)
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
func (c *failedRetry) chosen(ctx context.Context, f *failures.Transports) ([]failures.Entry, error) {
	if !c.All {
		return f.Find(ctx, c.ID)
	}
	var all []failures.Entry
	for _, t := range f.All {
		if t.Kind() == failures.Unreadable {
			continue
		}
		first := len(all)
		for m, err := range t.Entries(ctx, "") {
			if err != nil {
				return nil, exit.Unreachable(fmt.Errorf("queue %s: %w", t.Queue, err), "nothing was changed")
			}
			m.Raw, m.Reason = nil, "" // there may be many
			all = append(all, failures.Entry{In: t, Failed: m})
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
	by, err := whoDecides(c.By)
	switch {
	case err != nil:
		return err
	case c.Yes && strings.TrimSpace(c.Reason) == "":
		return exit.Usage(errors.New("failed forget: there is no reason; nothing was deleted"), `add --reason "TEXT": why nobody needs them any more`)
	}
	f, closeAll, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer closeAll()
	messages, err := f.Find(p.ctx, c.ID)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fmt.Fprintf(p.stdout, "to be deleted for good: %s\n", f.Describe(m.In.Queue, m.Failed))
	}
	if !c.Yes {
		return exit.Usage(fmt.Errorf("nothing was deleted: %d messages would be", len(messages)), `add --yes and --reason "TEXT"; what their rows in the fence say stays as it is`)
	}
	return p.each(messages, func(m failures.Entry) (string, error) {
		return "deleted: " + f.Describe(m.In.Queue, m.Failed), noted(p.ctx, f, m, dashboard.Move{Forget: true, By: by, Reason: c.Reason}, m.In.Forget)
	})
}

// noted does one thing with m, and notes who does it and why.
func noted(ctx context.Context, f *failures.Transports, m failures.Entry, one dashboard.Move, do func(context.Context, string) error) error {
	one.Message = dashboard.FailedMessage{FailedID: dashboard.FailedID{Queue: m.In.Queue, Transport: m.Kind, ID: m.FailedID}, Class: m.Class}
	if k, ok := f.Key(m.Message); ok {
		one.Message.Key = &k
	}
	return one.Do(ctx, f.Store, f.File.Scope, func(ctx context.Context) error { return do(ctx, m.FailedID) })
}

// each does one thing to each message, says so, and stops at the first that
// fails. One that is gone meanwhile was somebody else's, and one that a worker has is
// left to it.
func (p *program) each(messages []failures.Entry, do func(failures.Entry) (string, error)) error {
	done, inHand := 0, 0
	for _, m := range messages {
		what, err := do(m)
		switch {
		case errors.Is(err, failures.ErrNoEntry):
			fmt.Fprintf(p.stdout, "gone meanwhile: %s of queue %s\n", console.Printable(m.FailedID), m.In.Queue)
			continue
		case errors.Is(err, messenger.ErrInHand):
			inHand++
			fmt.Fprintf(p.stdout, "not done: %s of queue %s: %v\n", console.Printable(m.FailedID), m.In.Queue, err)
			continue
		case errors.Is(err, dashboard.ErrNotNoted):
			return exit.Store(fmt.Errorf("failed message %s of queue %s: %w; %d of %d were done before it", console.Printable(m.FailedID), m.In.Queue, err, done, len(messages)))
		case err == nil:
			done++
			fmt.Fprintln(p.stdout, what)
			continue
		}
		err = fmt.Errorf("failed message %s of queue %s: %w; %d of %d were done before it", console.Printable(m.FailedID), m.In.Queue, err, done, len(messages))
		switch {
		case errors.Is(err, worker.ErrBoth):
			return exit.Bad(err, fmt.Sprintf("the worker meets the fence for it; then run \"zabor failed forget %s --queue %s --reason TEXT --yes\"", m.FailedID, m.In.Queue))
		case done > 0, errors.Is(err, worker.ErrUnreadable):
			return exit.Bad(err, fmt.Sprintf("it is where it was; \"zabor failed list --queue %s\" shows what is left", m.In.Queue))
		}
		return exit.Unreachable(err, fmt.Sprintf("it is where it was, unless the answer alone was lost; \"zabor failed list --queue %s\" shows it", m.In.Queue))
	}
	fmt.Fprintf(p.stdout, "%d of %d done\n", done, len(messages))
	if inHand > 0 {
		return exit.Bad(fmt.Errorf("%d messages are in the hands of workers that take from the failure transport, and were left there", inHand), "stop those workers (messenger:consume failed), or wait until they are done; then type the same command again")
	}
	return nil
}
