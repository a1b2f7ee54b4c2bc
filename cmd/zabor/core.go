package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/metrics"
	"zabor/seal"
	"zabor/sqlstore"
	"zabor/tracing"
)

// core is what every door stands on: the fence, and what decides its doubtful
// rows.
type core struct {
	file      *config.Config
	store     *sqlstore.Store
	secrets   *config.Rotation
	providers connect.Providers
	fence     *zabor.Fence
	resolver  *zabor.Resolver
	metrics   *metrics.Metrics // nil: nobody asks for them
	tracer    *tracing.Tracer  // nil: nobody wants traces
}

// newCore checks the database and wires the fence and the resolver.
func (p *proc) newCore(ctx context.Context, file *config.Config, store *sqlstore.Store) (*core, error) {
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
	secrets := p.secrets(file)
	providers, err := connect.OpenProviders(file, secrets)
	if err != nil {
		return nil, err
	}
	fence := &zabor.Fence{Store: store, Secret: secret, Observer: zabor.Observer{Alert: p.alert}, Hook: file.Hook, Address: providers.Endpoint}
	if p.seed != nil {
		fence.Store = p.seed(store)
	}
	if file.Journal != "" {
		if fence.Journal, err = zabor.OpenJournal(file.Journal); err != nil {
			return nil, exit.Usage(fmt.Errorf("%s: %w", file.Path, err), "make the folder writable for this user, or write another one under journal:")
		}
		place := seal.Place{"journal"}
		fence.Journal.Seal = func(plain []byte) []byte { return file.Keys().Seal(plain, place) }
		fence.Journal.Open = func(sealed []byte) ([]byte, error) { return file.Keys().Open(sealed, place) }
	}
	c := &core{
		file: file, store: store, secrets: secrets, providers: providers, fence: fence,
		resolver: &zabor.Resolver{Fence: fence, Scope: file.Scope, Lookup: providers.Lookup, Replay: providers.Call},
	}
	if file.Metrics != nil {
		if err := p.measure(c); err != nil {
			return nil, err
		}
	}
	if err := p.trace(ctx, c, secret); err != nil {
		return nil, err
	}
	return c, nil
}

// recover saves what the journal holds, before anything is taken: whoever asked
// for a success that is still in it would meet a row that does not know of it.
func (p *proc) recover(ctx context.Context, fence *zabor.Fence) error {
	saved, err := fence.ReplayJournal(ctx)
	if err != nil {
		return exit.Unreachable(err, "nothing was taken; start again when the database is there")
	}
	if saved > 0 {
		p.log.Warn("saved from the journal", "successes", saved)
	}
	return nil
}

// resolve decides what is in doubt, saves what an outage of the database leaves
// in the journal, and erases stored answers, until ctx ends.
func (p *proc) resolve(ctx context.Context, c *core) {
	var wg sync.WaitGroup
	wg.Go(func() { p.replay(ctx, c.fence) })
	wg.Go(func() { p.eraseAnswers(ctx, c.store, c.file.Scope, c.file.KeepAnswers) })
	for _, r := range c.resolvers() {
		wg.Go(func() {
			r.Run(ctx, func(err error) { p.log.Warn("cannot resolve", "error", err) })
		})
	}
	wg.Wait()
}

// resolvers is one for each provider, so that one that hangs delays nobody else's
// rows, and one for rows whose provider is not in the configuration any more.
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

// replay saves what comes into the journal while the program runs.
func (p *proc) replay(ctx context.Context, fence *zabor.Fence) {
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
			p.log.Warn("cannot save from the journal; trying again", "error", err)
		}
		if saved > 0 {
			p.log.Warn("saved from the journal", "successes", saved)
		}
	}
}
