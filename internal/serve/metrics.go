package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/metrics"
	"zabor/sqlstore"
	"zabor/worker"
)

// measureDashboard answers at metrics.listen for a dashboard alone; it
// does not listen without an address. done waits for the end.
func (p *Process) measureDashboard(ctx context.Context, file *config.Config, store *sqlstore.Store, queues []worker.Queue) (done func(), err error) {
	if file.Metrics == nil {
		return func() {}, nil
	}
	m, err := p.newMetrics(file)
	if err != nil {
		return nil, err
	}
	listener, err := p.listenMetrics(file)
	if err != nil {
		return nil, err
	}
	p.count = m.Alert
	m.Watch(p.watched(file, store, queues))
	return p.serveAt(ctx, m, listener, backend.Checks(store, queues)), nil
}

// measure wires the metrics into c.
func (p *Process) measure(c *core) error {
	m, err := p.newMetrics(c.file)
	if err != nil {
		return err
	}
	c.metrics = m
	c.fence.Store = m.Store(c.fence.Store)
	c.fence.Called = m.Called
	c.resolver.Lookup, c.resolver.Replay = m.Lookup(c.resolver.Lookup), m.Replay(c.resolver.Replay)
	p.count = m.Alert
	return nil
}

// countTaken lets w's messages be counted as they are taken.
func (c *core) countTaken(w *worker.Worker) {
	if c.metrics == nil {
		return
	}
	for _, q := range w.Queues {
		c.metrics.Takes(q.Name())
	}
	w.Taken = c.metrics.Taken
}

// newMetrics makes the metrics of a process with this configuration.
func (p *Process) newMetrics(file *config.Config) (*metrics.Metrics, error) {
	text, err := os.ReadFile(file.Path)
	if err != nil {
		return nil, exit.Usage(err, "")
	}
	sum := sha256.Sum256(text)
	return metrics.New(p.Version, hex.EncodeToString(sum[:6])), nil
}

// serveMetrics answers at the configured address until ctx ends; it does not listen
// without one. done waits for the end.
func (p *Process) serveMetrics(ctx context.Context, c *core, queues []worker.Queue) (done func(), err error) {
	if c.metrics == nil {
		return func() {}, nil
	}
	listener, err := p.listenMetrics(c.file)
	if err != nil {
		return nil, err
	}
	state := p.watched(c.file, c.store, queues)
	state.Paused = func(name string) time.Duration { left, _ := c.fence.Paused(name); return left }
	state.Unsaved = c.answers.Unsaved
	state.Providers = slices.Sorted(maps.Keys(c.providers))
	c.metrics.Watch(state)
	return p.serveAt(ctx, c.metrics, listener, backend.Checks(c.store, queues)), nil
}

// listenMetrics listens at metrics.listen: one address for one process of a host.
func (p *Process) listenMetrics(file *config.Config) (net.Listener, error) {
	listener, err := net.Listen("tcp", file.Metrics.Listen)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: metrics.listen: %w", file.Path, err),
			"each process of this file on one host has its own address: write listen: ${ZABOR_METRICS:-127.0.0.1:9464}, and start this one with another ZABOR_METRICS")
	}
	return listener, nil
}

// watched returns the readers of the fence and the queues for a scrape.
func (p *Process) watched(file *config.Config, store *sqlstore.Store, queues []worker.Queue) metrics.State {
	state := metrics.State{
		Rows: func(ctx context.Context) ([]metrics.Rows, error) {
			counts, err := store.Reports().Unclosed(ctx, file.Scope, metrics.Ages()...)
			var rows []metrics.Rows
			for _, one := range counts {
				rows = append(rows, metrics.Rows{State: one.State, N: one.Rows, Oldest: one.ReadAt.Sub(one.Oldest), Older: one.Older})
			}
			return rows, err
		},
		AlertsLost: p.lost,
	}
	for _, q := range queues {
		depth := func(ctx context.Context) (ready, reserved, delayed int64, err error) {
			d, err := q.Depth(ctx)
			return d.Ready, d.Reserved, d.Delayed, err
		}
		state.Queues = append(state.Queues, metrics.Queue{Name: q.Name(), Depth: depth, Oldest: func(ctx context.Context) (time.Time, error) { return connect.OldestReady(ctx, q) }})
	}
	return state
}

// serveAt answers at listener until ctx ends. done waits for the end.
func (p *Process) serveAt(ctx context.Context, m *metrics.Metrics, listener net.Listener, checks []metrics.Check) (done func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.Serve(ctx, listener, checks); err != nil {
			p.Log.Error("the metrics are not served any more", "error", err)
		}
	}()
	p.Log.Info("metrics", "address", listener.Addr().String())
	return func() { <-ended }
}
