package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"zabor/dashboard"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/takeover"
)

type failedRetry struct {
	ID    []string `arg:"" optional:"" help:"Ids as listed."`
	All   bool     `help:"All that are listed, but for what is held, in doubt or paid, for which nothing would be called, and for what still cannot be read, which would come back: name those."`
	Queue []string `placeholder:"NAME" help:"Only of these queues."`

	By     string `placeholder:"NAME" help:"Who does it; else the user of this session. It is kept in the history of the message's row."`
	Reason string `placeholder:"TEXT" help:"Why; it is kept with the name."`
}

type failedForget struct {
	ID     []string `arg:"" help:"Ids as listed."`
	Queue  []string `placeholder:"NAME" help:"Only of these queues."`
	Reason string   `placeholder:"TEXT" help:"Why nobody needs them: it is kept with the name, in the history of the message's row. Demanded with --yes."`
	By     string   `placeholder:"NAME" help:"Who does it; else the user of this session."`
	Yes    bool     `help:"Do it; else only say what would be deleted."`
}

// worthRetrying returns the messages to put back, and prints the others. It returns no message
// while an import must hold some of them first.
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

// noted does one thing with m, with a note of the person and the reason.
func noted(ctx context.Context, f *failures.Transports, m failures.Entry, one dashboard.Move, do func(context.Context, string) error) error {
	one.Message = dashboard.FailedMessage{FailedID: dashboard.FailedID{Queue: m.In.Queue, Transport: m.Kind, ID: m.FailedID}, Class: m.Class}
	if k, ok := f.Key(m.Message); ok {
		one.Message.Key = &k
	}
	return one.Do(ctx, f.Store, f.File.Scope, func(ctx context.Context) error { return do(ctx, m.FailedID) })
}

// each does one thing to each message, says so, and stops at the first
// error. A message gone meanwhile was another person's, and a message in a worker's hands is
// left to it.
func (p *program) each(messages []failures.Entry, do func(failures.Entry) (string, error)) error {
	done, inHand := 0, 0
	for _, m := range messages {
		what, err := do(m)
		switch {
		case errors.Is(err, failures.ErrNoEntry):
			fmt.Fprintf(p.stdout, "gone meanwhile: %s of queue %s\n", console.Printable(m.FailedID), m.In.Queue)
			continue
		case errors.Is(err, failures.ErrInHand):
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
		case errors.Is(err, failures.ErrBoth):
			return exit.Bad(err, fmt.Sprintf("the worker meets the fence for it; then run \"zabor failed forget %s --queue %s --reason TEXT --yes\"", m.FailedID, m.In.Queue))
		case done > 0, errors.Is(err, failures.ErrUnreadable):
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
