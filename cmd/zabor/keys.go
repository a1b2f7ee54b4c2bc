package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"sync"
	"time"

	"zabor"
	"zabor/dashboard"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/keyschema"
	"zabor/laravel"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

type schemaCommand struct {
	Show   schemaShow   `cmd:"" default:"withargs" help:"Show the key schema of each step: in force, configured, and what stands in the way of a change."`
	Accept schemaAccept `cmd:"" help:"Put the configured key schema of steps in force although rows are open or messages are there. Messages of the old schema that may have been called for are held when they come."`
}

type schemaShow struct {
	JSON bool `name:"json" help:"One JSON array."`
}

// schemaJSON is the documented shape of a step's schema.
type schemaJSON struct {
	Step       string          `json:"step"`
	Epoch      int             `json:"epoch"`    // 0: none is in force
	InForce    *step.KeySchema `json:"in_force"` // null: none
	Configured *step.KeySchema `json:"configured"`
	Changed    bool            `json:"changed"`
	Blocked    string          `json:"blocked,omitempty"` // why it does not come into force by itself
	Open       int64           `json:"open_rows"`
	Messages   map[string]int  `json:"messages,omitempty"` // by queue and place
}

func (c *schemaShow) Run(p *program) error {
	i, r, closeAll, err := p.reviewKeys()
	if err != nil {
		return err
	}
	defer closeAll()
	all := []schemaJSON{}
	for _, s := range i.Steps {
		schema := s.KeySchema()
		one := schemaJSON{Step: s.Name(), Configured: &schema}
		for _, was := range r.Records.Of(i.Scope) {
			if was.Step == s.Name() {
				one.Epoch, one.InForce = was.Epoch, &was.Schema
			}
		}
		for _, change := range r.Changes {
			if change.Step == s {
				one.Changed, one.Open, one.Messages = true, change.Open, change.Messages
				if err := change.Err(i.Scope); err != nil {
					one.Blocked = err.Error()
				}
			}
		}
		all = append(all, one)
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(all)
	}
	for _, one := range all {
		state := "in force"
		switch {
		case one.Changed && one.Blocked == "":
			state = "changed; it comes into force with the next start"
		case one.Changed:
			state = "changed, and not accepted"
		case one.InForce == nil:
			state = "new; it comes into force with the next start"
		}
		fmt.Fprintf(p.stdout, "step %s: %s\n", one.Step, state)
		if one.InForce != nil {
			fmt.Fprintf(p.stdout, "  in force (%d): %s\n", one.Epoch, one.InForce)
		}
		fmt.Fprintf(p.stdout, "  configured: %s\n", one.Configured)
		if one.Blocked != "" {
			fmt.Fprintf(p.stdout, "  %s\n", console.Printable(one.Blocked))
		}
	}
	return nil
}

type schemaAccept struct {
	Step []string `arg:"" help:"The steps."`
	Yes  bool     `help:"Do not ask."`
}

func (c *schemaAccept) Run(p *program) error {
	i, r, closeAll, err := p.reviewKeys()
	if err != nil {
		return err
	}
	defer closeAll()
	for _, change := range r.Changes {
		if slices.Contains(c.Step, change.Step.Name()) {
			fmt.Fprintf(p.stderr, "zabor: step %s: old: %s; new: %s\n", change.Step.Name(), change.Was(), change.Next.Schema)
			if in := change.InTheWay(); in != "" {
				fmt.Fprintf(p.stderr, "zabor: step %s: %s\n", change.Step.Name(), console.Printable(in))
			}
		}
	}
	if err := console.Confirm(p.stderr, c.Yes); err != nil {
		return err
	}
	done, err := i.Accept(p.ctx, r, c.Step)
	if err != nil {
		return keysFailure(err)
	}
	for _, one := range done {
		fmt.Fprintf(p.stdout, "step %s: the new key schema is in force. %d messages of the old one are held when they come. %d settled orders lie under the old one: they meet no fence if they are sent again\n", one.Step, one.Held, one.Settled)
	}
	return nil
}

// reviewKeys compares the configured key schemas with those in force.
func (p *program) reviewKeys() (*keyschema.Installation, *keyschema.Review, func(), error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := store.Setup().Check(p.ctx); err != nil {
		store.Close()
		return nil, nil, nil, exit.Store(err)
	}
	list, closeQueues, err := p.queues(file, store)
	if err != nil {
		store.Close()
		return nil, nil, nil, err
	}
	closeAll := func() { closeQueues(); store.Close() }
	i := p.installation(file, store, list)
	r, err := i.Review(p.ctx, false)
	if err != nil {
		closeAll()
		return nil, nil, nil, keysFailure(err)
	}
	return i, r, closeAll, nil
}

// installation is what the key schemas of file belong to.
func (p *proc) installation(file *config.Config, store *sqlstore.Store, list []connect.Queue) *keyschema.Installation {
	i := &keyschema.Installation{Store: store, Scope: file.Scope, Steps: file.Compiled(), Messages: p.everyMessage(store)}
	for _, q := range list {
		address := string(file.Redis)
		if s := file.Queues[q.Name()].Symfony; s != nil {
			address = string(s.DSN)
		}
		i.Queues = append(i.Queues, keyschema.Queue{
			Name: q.Name(), Redis: q.Redis, Key: q.ScopeKey(), Location: serverOf(address) + " " + q.Location(),
		})
	}
	return i
}

// serverOf is the server of an address of Redis, without its credentials.
func serverOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host + " " + u.Query().Get("master_name") + u.Query().Get("sentinel_master")
}

// everyMessage gives what lies on all queues of the configuration's file and in their
// failure transports, whichever queues this process takes from.
func (p *proc) everyMessage(store *sqlstore.Store) func(context.Context) iter.Seq2[keyschema.Message, error] {
	return func(ctx context.Context) iter.Seq2[keyschema.Message, error] {
		return func(yield func(keyschema.Message, error) bool) {
			file, err := p.reload()
			if err != nil {
				yield(keyschema.Message{}, err)
				return
			}
			list, closeAll, err := p.queues(file, store)
			if err != nil {
				yield(keyschema.Message{}, err)
				return
			}
			defer closeAll()
			for _, q := range list {
				for m, err := range everything(ctx, q, store) {
					if !yield(m, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// everything gives the messages of s and of its failure transport, up to the first
// error.
func everything(ctx context.Context, s connect.Queue, store *sqlstore.Store) iter.Seq2[keyschema.Message, error] {
	return func(yield func(keyschema.Message, error) bool) {
		give := func(m *worker.Message, place worker.Place) bool {
			return yield(keyschema.Message{Message: m.Message, IDs: []string{m.ID, m.RetryOf}, Queue: s.Name(), Place: string(place), Err: m.Err}, nil)
		}
		for m, err := range s.Look(ctx) {
			if err != nil {
				yield(keyschema.Message{}, exit.Unreachable(err, "nothing was started, and nothing was changed; is Redis up?"))
				return
			}
			if !give(m.Message, m.Place) {
				return
			}
		}
		failed := func(err error) {
			yield(keyschema.Message{}, exit.Usage(fmt.Errorf("queue %s: what failed on it cannot be read: %w", s.Name(), err), "nothing was started, and nothing was changed; mend the table, or name it under failed:"))
		}
		for m, err := range failures.Own(s.Queue, store).Entries(ctx, "") {
			if s.FailedIn.NoTable(err) {
				return
			}
			if err != nil {
				failed(err)
				return
			}
			if !give(m.Message, keyschema.Failed) {
				return
			}
		}
		source, ok := s.Source.(*laravel.Source)
		if !ok {
			return
		}
		for j, err := range source.FailedElsewhere(ctx) {
			if err != nil {
				failed(err)
				return
			}
			if !give(source.Decode(j.Payload), keyschema.Failed) {
				return
			}
		}
	}
}

// keysFailure is an error about key schemas as the command reports it.
func keysFailure(err error) error {
	if f, ok := errors.AsType[*exit.Error](err); ok {
		return f
	}
	if r, ok := errors.AsType[*keyschema.Refusal](err); ok {
		return exit.Usage(r.Err, r.Next)
	}
	if _, ok := errors.AsType[*keyschema.QueueError](err); ok {
		return exit.Unreachable(err, "nothing was taken, and nothing was changed; is Redis up, and is its address right?")
	}
	return exit.Store(err)
}

// checkKeys refuses a start, or an import, with key schemas that may not come into
// force.
func (p *proc) checkKeys(ctx context.Context, i *keyschema.Installation, importing bool) (*keyschema.Review, error) {
	r, err := i.Review(ctx, importing)
	if err == nil {
		err = r.Err(i.Scope)
	}
	if err != nil {
		return nil, keysFailure(err)
	}
	return r, nil
}

// guardKeys puts the key schemas in force, and lets the fence capture only under those
// that are, until stop is called. It also tells that this process is alive.
func (p *proc) guardKeys(live context.Context, c *core, list []connect.Queue, status func() dashboard.Status) (keys *keyschema.Guard, stop func(), err error) {
	i := p.installation(c.file, c.store, list)
	r, err := p.checkKeys(live, i, false)
	if err != nil {
		return nil, nil, err
	}
	if err := i.Adopt(live, r); err != nil {
		return nil, nil, keysFailure(err)
	}
	for _, change := range r.Changes {
		p.log.Warn("the key schema was changed: nothing was open, and no message was there", "step", change.Step.Name(), "old", change.Was(), "new", change.Next.Schema.String())
	}
	longest := time.Duration(0)
	for _, q := range list {
		longest = max(longest, q.Reserve)
	}
	keys = i.NewGuard(r, zabor.Lease(longestCall(c.file))+longest, func(said keyschema.Said) ([]byte, error) {
		return json.Marshal(struct {
			dashboard.Status
			Said keyschema.Said `json:"key_schemas"`
		}{status(), said})
	})
	c.fence.Refuse = keys.Refuse
	if err := keys.Beat(live); err != nil {
		return nil, nil, exit.Store(err)
	}
	for _, why := range keys.Refused() {
		p.log.Warn("nothing is called for this step yet", "reason", why)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(live))
	var wg sync.WaitGroup
	wg.Go(func() {
		keys.Run(ctx, live, func(err error) {
			p.log.Warn("cannot confirm the key schemas in force; if that lasts, nothing is called", "error", err)
		})
	})
	return keys, func() { cancel(); wg.Wait() }, nil
}
