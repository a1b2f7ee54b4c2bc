package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"zabor"
	"zabor/dashboard"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/metrics"
	"zabor/seal"
	"zabor/sqlstore"
	"zabor/tracing"
)

// The pace at which stored answers are erased: a page of rows, a rest, and a long one
// behind the last page.
const (
	answersPage  = 500
	answersRest  = time.Second
	answersEvery = time.Hour
)

// eraseAnswers erases stored answers of the installation after their time, until ctx ends.
// Each process goes through all rows.
func (p *Process) eraseAnswers(ctx context.Context, store *sqlstore.Store, scope string, keep time.Duration) {
	for from := (time.Time{}); ; {
		n, next, err := store.EraseAnswers(ctx, scope, keep, from, answersPage)
		rest := answersRest
		if from = next; from.IsZero() {
			rest = answersEvery
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.Log.Warn("cannot erase stored answers; trying again", "error", err)
			rest = time.Minute
		case n > 0:
			p.Log.Info("stored answers erased", "number", n, "keep_answers", keep)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

// core is the fence of a process, with its resolver.
type core struct {
	file      *config.Config
	store     *sqlstore.Store
	secrets   *config.Rotation
	providers connect.Providers
	fence     *zabor.Fence
	resolver  *zabor.Resolver
	metrics   *metrics.Metrics // nil: not configured
	answers   *dashboard.Answers
	tracer    *tracing.Tracer // nil: not configured
}

// newCore checks the database and makes the fence and the resolver.
func (p *Process) newCore(ctx context.Context, file *config.Config, store *sqlstore.Store) (*core, error) {
	if err := store.Setup().Check(ctx); err != nil {
		return nil, exit.Store(err)
	}
	secret, err := store.Setup().Secret(ctx)
	if err != nil {
		return nil, exit.Store(err)
	}
	if err := store.Setup().RememberKey(ctx); err != nil {
		return nil, exit.Store(err)
	}
	secrets := p.Secrets(file)
	providers, err := connect.OpenProviders(file, secrets)
	if err != nil {
		return nil, err
	}
	fence := &zabor.Fence{Store: store, Secret: secret, Observer: zabor.Observer{Alert: p.renewing(store)}, Hook: file.Hook, Address: providers.Endpoint}
	if p.Seed != nil {
		fence.Store = p.Seed(store)
	}
	if file.Journal != "" {
		if fence.Journal, err = zabor.OpenJournal(file.Journal); err != nil {
			return nil, journalFailure(file.Path, err)
		}
		place := seal.Place{"journal"}
		fence.Journal.Seal = func(plain []byte) []byte { return file.Keys().Seal(plain, place) }
		fence.Journal.Open = func(sealed []byte) ([]byte, error) { return file.Keys().Open(sealed, place) }
	}
	c := &core{
		file: file, store: store, secrets: secrets, providers: providers, fence: fence,
		resolver: &zabor.Resolver{Fence: fence, Scope: file.Scope, Lookup: dashboard.NoteLookups(store, providers.Lookup), Replay: providers.Call},
	}
	c.answers = dashboard.NewAnswers(store, file.Scope, p.Alert)
	if file.Metrics != nil {
		if err := p.measure(c); err != nil {
			return nil, err
		}
	}
	fence.Called = c.answers.Count(fence.Called)
	if err := p.trace(ctx, c, secret); err != nil {
		return nil, err
	}
	return c, nil
}

// replayOnce saves the journal before the first message is taken. Else a message would
// meet a row without its success.
func (p *Process) replayOnce(ctx context.Context, fence *zabor.Fence) error {
	saved, err := fence.ReplayJournal(ctx)
	if err != nil {
		return exit.Unreachable(err, "nothing was taken; start again when the database is there")
	}
	if saved > 0 {
		p.Log.Warn("saved from the journal", "successes", saved)
	}
	return nil
}

// resolve decides doubtful rows, saves the journal, and erases stored
// answers, until ctx ends.
func (p *Process) resolve(ctx context.Context, c *core) {
	var wg sync.WaitGroup
	wg.Go(func() { p.replay(ctx, c.fence) })
	wg.Go(func() { p.eraseAnswers(ctx, c.store, c.file.Scope, c.file.KeepAnswers) })
	for _, r := range c.resolvers() {
		wg.Go(func() {
			r.Run(ctx, func(err error) { p.Log.Warn("cannot resolve", "error", err) })
		})
	}
	wg.Wait()
}

// resolvers returns one resolver for each provider: a slow provider delays no other
// rows. One more is for rows of providers no longer configured.
func (c *core) resolvers() []*zabor.Resolver {
	others := *c.resolver
	others.Providers, others.Others, others.Replay = slices.Sorted(maps.Keys(c.providers)), true, nil
	all := []*zabor.Resolver{&others}
	for name, one := range c.providers {
		r := *c.resolver
		if r.Providers = []string{name}; !one.Replays() {
			r.Replay = nil // also for rows of a time when it was thought to keep keys
		}
		all = append(all, &r)
	}
	return all
}

// replay saves the journal again and again while the process runs.
func (p *Process) replay(ctx context.Context, fence *zabor.Fence) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		saved, err := fence.ReplayJournal(ctx)
		if err != nil && ctx.Err() == nil {
			p.Log.Warn("cannot save from the journal; trying again", "error", err)
		}
		if saved > 0 {
			p.Log.Warn("saved from the journal", "successes", saved)
		}
	}
}

// close sends the last spans.
func (c *core) close(p *Process) {
	if c.tracer == nil {
		return
	}
	if err := c.tracer.Close(); err != nil {
		p.Log.Warn("the last spans are lost", "error", err)
	}
}

// renewing returns the alerts of the fence. After a row that has vanished no connection
// stays with the server that has lost it.
func (p *Process) renewing(store *sqlstore.Store) func(zabor.Alert) {
	store.Pool().OnMove(func(from, to string) {
		p.Alert(zabor.Alert{
			Severity: zabor.Warning, Code: "database-moved",
			Text: fmt.Sprintf("the fence's database is at another server than before, or that was started again: it was %s, and is %s; no connection to the old one is left. If its replication is asynchronous, what was committed last may be lost", from, to),
			Next: "zabor audit --provider-export FILE",
		})
	})
	return func(a zabor.Alert) {
		if a.Code == "row-vanished" {
			store.Pool().Renew()
		}
		p.Alert(a)
	}
}

// journalFailure is the error of a journal's folder that cannot be written. A full disk
// is no fault of the configuration: the same start works when there is room.
func journalFailure(path string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return exit.Unreachable(fmt.Errorf("%s: %w", path, err), "nothing was started; make room on the disk of the folder under journal:, or write another folder there")
	}
	return exit.Usage(fmt.Errorf("%s: %w", path, err), "make the folder writable for this user, or write another one under journal:")
}
