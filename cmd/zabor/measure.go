package main

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

	"zabor/internal/config"
	"zabor/metrics"
	"zabor/worker"
)

// measure wires the metrics into c.
func (p *program) measure(c *core) error {
	m, err := newMetrics(c.file)
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

// newMetrics makes the metrics of a process with this configuration.
func newMetrics(file *config.Config) (*metrics.Metrics, error) {
	text, err := os.ReadFile(file.Path)
	if err != nil {
		return nil, usage(err, "")
	}
	sum := sha256.Sum256(text)
	return metrics.New(version, hex.EncodeToString(sum[:6])), nil
}

// serveMetrics answers at the configured address until ctx ends; it does nothing
// where there is none. done waits for the end.
func (p *program) serveMetrics(ctx context.Context, c *core, queues []worker.Queue) (done func(), err error) {
	if c.metrics == nil {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", c.file.Metrics.Listen)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: metrics.listen: %w", c.file.Path, err), "write an address that is free on this host, or take metrics: out")
	}
	checks := []metrics.Check{{Name: "fence", Well: c.store.Check}}
	state := metrics.State{
		Rows: func(ctx context.Context) ([]metrics.Rows, error) {
			counts, err := c.store.CountUnclosed(ctx, c.file.Scope)
			var rows []metrics.Rows
			for _, one := range counts {
				rows = append(rows, metrics.Rows{State: one.State, N: one.Rows, Oldest: one.ReadAt.Sub(one.Oldest)})
			}
			return rows, err
		},
		Paused:    func(name string) time.Duration { left, _ := c.fence.Paused(name); return left },
		Providers: slices.Sorted(maps.Keys(c.providers)), AlertsLost: p.lost,
	}
	for _, q := range queues {
		depth := func(ctx context.Context) (ready, reserved, delayed int64, err error) {
			d, err := q.Depth(ctx)
			return d.Ready, d.Reserved, d.Delayed, err
		}
		state.Queues = append(state.Queues, metrics.Queue{Name: q.Name(), Depth: depth})
		checks = append(checks, metrics.Check{Name: "queue " + q.Name(), Well: func(ctx context.Context) error { _, err := q.Depth(ctx); return err }})
	}
	c.metrics.Watch(state)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.metrics.Serve(ctx, listener, checks); err != nil {
			p.log.Error("the metrics are not served any more", "error", err)
		}
	}()
	p.log.Info("metrics", "address", listener.Addr().String())
	return func() { <-ended }, nil
}
