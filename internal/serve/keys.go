package serve

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
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/keyschema"
	"zabor/laravel"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// Keys returns the key schemas of file and their queues.
func (p *Process) Keys(file *config.Config, store *sqlstore.Store, list []connect.Queue) *keyschema.Installation {
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

// serverOf returns the server of an address of Redis, without its credentials.
func serverOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host + " " + u.Query().Get("master_name") + u.Query().Get("sentinel_master")
}

// everyMessage gives the messages on all queues of the configuration and in their failure
// transports, also on queues of other processes.
func (p *Process) everyMessage(store *sqlstore.Store) func(context.Context) iter.Seq2[keyschema.Message, error] {
	return func(ctx context.Context) iter.Seq2[keyschema.Message, error] {
		return func(yield func(keyschema.Message, error) bool) {
			file, err := p.Reload()
			if err != nil {
				yield(keyschema.Message{}, err)
				return
			}
			list, closeAll, err := p.Queues(file, store)
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

// everything gives the messages of s and of its failure transport, up to the first error.
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

// KeysError returns err about key schemas as a command reports it.
func KeysError(err error) error {
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

// CheckKeys refuses a start, or an import, if key schemas may not come into force.
func (p *Process) CheckKeys(ctx context.Context, i *keyschema.Installation, importing bool) (*keyschema.Review, error) {
	r, err := i.Review(ctx, importing)
	if err == nil {
		err = r.Err(i.Scope)
	}
	if err != nil {
		return nil, KeysError(err)
	}
	return r, nil
}

// AdoptKeys puts the key schemas in force of the steps with imported true: rows were
// written by them. No queue is marked.
func (p *Process) AdoptKeys(ctx context.Context, file *config.Config, store *sqlstore.Store, imported func(step string) bool) error {
	keys := p.Keys(file, store, nil)
	keys.Steps = slices.DeleteFunc(keys.Steps, func(s *step.Step) bool { return !imported(s.Name()) })
	r, err := p.CheckKeys(ctx, keys, true)
	if err == nil {
		err = keys.Adopt(ctx, r)
	}
	if err != nil {
		return KeysError(err)
	}
	return nil
}

// guardKeys puts the key schemas in force. Until stop is called the fence captures only
// under them, and the database knows of this living process.
func (p *Process) guardKeys(live context.Context, c *core, list []connect.Queue, status func() dashboard.Status) (keys *keyschema.Guard, stop func(), err error) {
	i := p.Keys(c.file, c.store, list)
	r, err := p.CheckKeys(live, i, false)
	if err != nil {
		return nil, nil, err
	}
	if err := i.Adopt(live, r); err != nil {
		return nil, nil, KeysError(err)
	}
	for _, change := range r.Changes {
		p.Log.Warn("the key schema was changed: nothing was open, and no message was there", "step", change.Step.Name(), "old", change.Was(), "new", change.Next.Schema.String())
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
	keys.Taken = func(why error) {
		p.Alert(zabor.Alert{
			Severity: zabor.Critical, Code: "foreign-consumer",
			Text: why.Error() + ". This process calls nothing any more; what both have had may be charged twice",
			Next: "stop one of the two; then look at the orders that both have: zabor audit --provider-export FILE",
		})
	}
	keys.Journal = c.fence.Journal
	keys.Older = func(now, seen uint64) {
		p.Alert(zabor.Alert{
			Severity: zabor.Critical, Code: "database-older",
			Text: fmt.Sprintf("the fence's database is an older one, or another: it counts %d beats of zabor's processes, and %d were seen (a fail-over that lost commits, or a backup). Rows of charges that were made since then may be missing, and nothing else tells of them", now, seen),
			Next: "zabor audit --provider-export FILE",
		})
	}
	if err := keys.Beat(live); err != nil {
		return nil, nil, exit.Store(err)
	}
	for _, why := range keys.Refused() {
		p.Log.Warn("nothing is called for this step yet", "reason", why)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(live))
	var wg sync.WaitGroup
	wg.Go(func() {
		keys.Run(ctx, live, func(err error) {
			p.Log.Warn("cannot confirm the key schemas in force; if that lasts, nothing is called", "error", err)
		})
	})
	wg.Go(func() {
		c.answers.Run(ctx, func(err error) {
			p.Log.Warn("the count of providers' answers is not saved; the next beat tries again", "error", err)
		})
	})
	return keys, func() { cancel(); wg.Wait() }, nil
}
