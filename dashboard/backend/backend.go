// Package backend answers the dashboard's pages for an installation. It calls no
// provider.
package backend

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/user"
	"slices"

	"zabor"
	"zabor/dashboard"
	"zabor/dashboard/access"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/metrics"
	"zabor/provider"
	"zabor/sqlstore"
	"zabor/worker"
)

// Backend answers the pages of one installation. It may be used concurrently.
type Backend struct {
	Log     *slog.Logger
	Alert   func(zabor.Alert)
	Version string
	File    *config.Config
	Store   *sqlstore.Store
	Fence   *zabor.Fence
	Queues  []connect.Queue // of the configuration; open
}

// Serve listens and serves the dashboard until ctx ends. ended waits for the end.
func (o *Backend) Serve(ctx context.Context) (ended func() error, err error) {
	board, err := o.dashboard()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.File.Dashboard.Listen)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: dashboard.listen: %w", o.File.Path, err), "write an address that is free on this host")
	}
	done := make(chan error, 1)
	go func() { done <- board.Serve(ctx, listener) }()
	o.Log.Info("the dashboard listens", "address", "http://"+listener.Addr().String(), "users", len(o.File.Dashboard.Users), "second_person", o.File.Dashboard.SecondPerson)
	return func() error { return <-done }, nil
}

func (o *Backend) dashboard() (*dashboard.Dashboard, error) {
	c := o.File.Dashboard
	proxies, err := access.ParseProxies(c.TrustedProxies)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: dashboard.trusted_proxies: %w", o.File.Path, err), "")
	}
	guard, err := access.New(access.Options{Users: c.Accounts(), Alone: alone(), URL: string(c.URL), Proxies: proxies, Log: o.Log})
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: dashboard: %w", o.File.Path, err), "")
	}
	options := dashboard.Options{
		Store: o.Store, Scope: o.File.Scope, Version: o.Version, Guard: guard, SecondPerson: c.SecondPerson, Log: o.Log, OrderURL: c.OrderURL,
		Look: o.look, Take: o.take, Audit: o.audit, Doctor: o.Doctor,
		Health: metrics.Health(Checks(o.Store, connect.WorkerQueues(o.Queues)), func(reasons map[string]string) {
			o.Log.Warn("not ready", "reasons", reasons)
		}),
	}
	for _, name := range slices.Sorted(maps.Keys(o.File.Providers)) {
		options.Providers = append(options.Providers, o.provider(name))
	}
	for _, q := range o.Queues {
		kind := "laravel"
		if q.Config != nil {
			kind = "symfony"
		}
		options.Queues = append(options.Queues, dashboard.Queue{Name: q.Name(), Kind: kind, Depth: depthOf(q)})
	}
	if len(o.Queues) > 0 {
		options.Find = o.find
		options.Failed = dashboard.Failures{List: o.failedList, Older: o.failedOlder, Count: o.failedCount, Times: o.failedTimes, One: o.failedOne, Retry: o.retry, Forget: o.forget}
	}
	return dashboard.New(options)
}

// alone returns the name for decisions on a dashboard without users.
func alone() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if access.CheckName(name) != nil {
		return "local"
	}
	return name
}

// provider returns a configured provider as the pages show it.
func (o *Backend) provider(name string) dashboard.Provider {
	configured := o.File.Providers[name]
	one := dashboard.Provider{Name: name}
	known, ok := provider.BuiltinNamed(configured.Profile)
	if !ok { // the application's own: what its pages find is not known
		return one
	}
	test := known.IsTest(configured.Account, string(configured.Secret))
	one.Title, one.Mode = known.Title, "LIVE"
	if test {
		one.Mode = "TEST"
	}
	one.Console = func(row zabor.Row) dashboard.Console {
		clues, query := known.Console.Search(row), ""
		if len(clues) > 0 {
			query = clues[0].Text
		}
		return dashboard.Console{URL: known.Console.Find(query, row.Account, test), Search: clues, How: known.Console.How}
	}
	return one
}

// depthOf counts what a queue holds. The age of its first ready message is known where the
// framework writes it: in a stream's ids, and in payloads of Laravel 12 and of Horizon.
func depthOf(q connect.Queue) func(context.Context) (dashboard.Depth, error) {
	return func(ctx context.Context) (dashboard.Depth, error) {
		d, err := q.Depth(ctx)
		depth := dashboard.Depth{Ready: d.Ready, Reserved: d.Reserved, Delayed: d.Delayed}
		if err != nil || d.Ready == 0 {
			return depth, err
		}
		depth.Oldest, _ = connect.OldestReady(ctx, q.Queue) // the counts are good without it
		return depth, nil
	}
}

// Checks are the conditions of a working process: the fence's database and
// every queue.
func Checks(store *sqlstore.Store, queues []worker.Queue) []metrics.Check {
	all := []metrics.Check{{Name: "fence", Well: store.Setup().Check}}
	for _, q := range queues {
		all = append(all, metrics.Check{Name: "queue " + q.Name(), Well: func(ctx context.Context) error { _, err := q.Depth(ctx); return err }})
	}
	return all
}
