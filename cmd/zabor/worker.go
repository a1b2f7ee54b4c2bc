package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/stopat"
	"zabor/internal/takeover"
	"zabor/sqlstore"
	"zabor/tracing"
	"zabor/worker"
)

type workerCommand struct {
	Queue          []string `placeholder:"NAME" help:"Only these queues of the configuration."`
	AcceptEviction bool     `help:"Start although Redis may drop messages when memory is short (maxmemory-policy allkeys-…)."`
	Drain          bool     `help:"End when the queues hold nothing and no row is captured or in doubt; list what is held or parked, and exit 1 if there is any."`
	StopAt         string   `hidden:"" help:"For tests: stop the process (SIGSTOP) at MOMENT or MOMENT:ORDER, once."`
}

func (c *workerCommand) Run(p *program) error {
	p.serves = !c.Drain
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := c.choose(file); err != nil {
		return err
	}
	return p.runWorker(p.ctx, file, store, workerOptions{AcceptEviction: c.AcceptEviction, Drain: c.Drain, StopAt: c.StopAt, Left: p.stderr})
}

// names are those of queues.
func names(list []connect.Queue) (all []string) {
	for _, q := range list {
		all = append(all, q.Name())
	}
	return all
}

// choose keeps only the queues that the flags name.
func (c *workerCommand) choose(file *config.Config) error {
	if err := knownQueues(file, "--queue", c.Queue); err != nil {
		return err
	}
	if len(c.Queue) > 0 {
		maps.DeleteFunc(file.Queues, func(name string, _ *config.Queue) bool { return !slices.Contains(c.Queue, name) })
	}
	return nil
}

// knownQueues demands that file has queues, and those that flag names.
func knownQueues(file *config.Config, flag string, names []string) error {
	if len(file.Queues) == 0 {
		return exit.Usage(fmt.Errorf("%s: no queues are configured", file.Path), "write them under queues:")
	}
	for _, name := range names {
		if file.Queues[name] == nil {
			return exit.Usage(fmt.Errorf("%s %s: no such queue in %s; there is %v", flag, name, file.Path, slices.Sorted(maps.Keys(file.Queues))), "")
		}
	}
	return nil
}

// workerOptions say how a worker runs.
type workerOptions struct {
	AcceptEviction bool      // start on a Redis that may drop messages
	Drain          bool      // end when the queues are empty and no row is open
	StopAt         string    // for tests: the checkpoint at which the process stops itself; empty: none
	Left           io.Writer // gets what a drain leaves for a person
}

// runWorker takes messages from the queues of file until live ends, or with Drain until
// there is nothing left. It returns after all that is under way has ended.
func (p *proc) runWorker(live context.Context, file *config.Config, store *sqlstore.Store, o workerOptions) error {
	endAlerts, err := p.alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	core, err := p.newCore(live, file, store)
	if err != nil {
		return err
	}
	defer core.close(p)
	w, list, closeAll, err := p.newWorker(live, core)
	if err != nil {
		return err
	}
	defer closeAll()
	if o.StopAt != "" {
		stop := stopat.Checkpoint(o.StopAt)
		w.Fence.At, w.At = stop, stop
		for _, q := range list {
			q.Redis.AddHook(stopat.AckHook(stop))
		}
	}
	if err := p.ready(live, core, w, list, o.AcceptEviction); err != nil {
		return err
	}
	keys, stopKeys, err := p.guardKeys(live, core, list, p.statusOf("worker", core, w.Lanes, names(list)))
	if err != nil {
		return err
	}
	defer stopKeys()
	w.KeysChanged, w.Holds = keys.Changed, keys.Holds
	if err := p.recover(live, core.fence); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(live)
	defer cancel()
	served, err := p.serveMetrics(ctx, core, w.Queues)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(served)
	wg.Go(func() { p.resolve(ctx, core) })
	wg.Go(func() { p.work(ctx, w, list) })
	p.log.Info("started", "lanes", w.Lanes, "seconds_to_stop", secondsToStop(file))
	stopping := context.AfterFunc(live, func() { p.log.Info("stopping: what is under way is finished", "seconds_at_most", secondsToStop(file)) })
	defer stopping()
	if o.Drain {
		err = drained(ctx, p.log, file, store, w.Queues)
		cancel()
	}
	wg.Wait()
	if err != nil || !o.Drain {
		return err
	}
	left, parked, err := takeover.LeftOver(live, o.Left, failures.New(file, store, list), list, "the queues are drained; \"zabor failed list\" shows the same error until it is mended", zabor.Held, zabor.Released)
	switch {
	case err != nil:
		return err
	case left > 0:
		return exit.Bad(fmt.Errorf("drained; %d rows are held or parked for a person, and %d more messages have failed whose keys zabor knows", left, parked), "zabor fence list --state held,released; zabor failed list")
	case parked > 0:
		return exit.Bad(fmt.Errorf("drained; %d messages have failed whose keys zabor knows: PHP's own retry would charge for them without a fence", parked),
			"zabor failed list shows them; \"zabor failed retry ID\" while a worker of zabor's runs, or \"zabor failed forget ID --reason TEXT --yes\"")
	}
	for _, s := range list {
		if err := takeover.Release(live, file.Scope, store, s); err != nil {
			return err
		}
	}
	return nil
}

// ready checks what must be so before any message is taken.
func (p *proc) ready(ctx context.Context, c *core, w *worker.Worker, list []connect.Queue, acceptEviction bool) error {
	if err := p.startUp(ctx, c.file, list, acceptEviction); err != nil {
		return err
	}
	if _, err := p.checkKeys(ctx, p.installation(c.file, c.store, list), false); err != nil {
		return err
	}
	return takeover.TakeOver(ctx, c.file, c.store, w.Steps, takeover.Options{Log: p.log, Say: p.say}, list)
}

// work takes messages until ctx ends and those in hand are done, and watches who
// else takes any.
func (p *proc) work(ctx context.Context, w *worker.Worker, list []connect.Queue) {
	var wg sync.WaitGroup
	for _, s := range list {
		if !s.Shared && len(w.Steps) > 0 {
			wg.Go(func() { takeover.WatchOthers(ctx, p.log, p.alert, s) })
		}
	}
	w.Run(ctx)
	wg.Wait()
}

// newWorker wires the worker and its queues. closeAll ends their connections.
func (p *proc) newWorker(ctx context.Context, c *core) (w *worker.Worker, list []connect.Queue, closeAll func(), err error) {
	if list, closeAll, err = p.queues(c.file, c.store); err != nil {
		return nil, nil, nil, err
	}
	databases := connect.NewDatabases(c.file, c.store)
	closeQueues := closeAll
	closeAll = func() { closeQueues(); databases.Close() }
	steps, err := connect.Steps(databases)
	if err == nil {
		err = databases.Reachable(ctx)
	}
	if err != nil {
		closeAll()
		return nil, nil, nil, err
	}
	w = &worker.Worker{
		Fence:   c.fence,
		Queues:  connect.WorkerQueues(list),
		Lanes:   c.file.Lanes,
		Steps:   steps,
		Bus:     connect.Bus(c.file),
		Call:    c.providers.Call,
		Backoff: c.file.Backoff,
		Log:     p.log,
		Unreadable: func(ctx context.Context, queue string, raw []byte, reason string) error {
			return c.store.Quarantine().Save(ctx, sqlstore.Unreadable{Queue: queue, Bytes: raw, Reason: reason})
		},
	}
	c.fence.Alert = func(a zabor.Alert) { w.Told(a); p.alert(a) }
	c.traceWorker(w)
	c.countTaken(w)
	return w, list, closeAll, nil
}

// secondsToStop is how long a stop can take: the longest call, its saving,
// the answer to the queue, the delivery of alerts, and the last spans.
func secondsToStop(file *config.Config) int {
	stop := longestCall(file) + zabor.SaveTimeout + worker.AnswerTimeout + alertsTime
	if wantsTraces(file) {
		stop += tracing.CloseTime
	}
	return int(stop / time.Second)
}

// longestCall is the longest that one call may take.
func longestCall(file *config.Config) time.Duration {
	longest := time.Duration(0)
	for _, s := range file.Compiled() {
		longest = max(longest, s.Timeout())
	}
	if file.Proxy != nil {
		for _, one := range file.Providers {
			longest = max(longest, one.Timeout)
		}
	}
	return longest
}

// drained waits until the queues hold nothing and no row of this installation
// is captured or in doubt.
func drained(ctx context.Context, log *slog.Logger, file *config.Config, store *sqlstore.Store, queues []worker.Queue) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	told := time.Now().Add(-50 * time.Second)
	for {
		empty, tell := true, time.Since(told) > time.Minute
		if tell {
			told = time.Now()
		}
		for _, q := range queues {
			depth, err := q.Depth(ctx)
			if err == nil && depth.Empty() {
				continue
			}
			empty = false
			if tell && err == nil {
				log.Info("draining: not empty yet; delayed messages are waited for", "queue", q.Name(), "ready", depth.Ready, "reserved", depth.Reserved, "delayed", depth.Delayed)
			}
		}
		if empty {
			open, err := store.Reports().Unresolved(ctx, file.Scope)
			if err == nil && open == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return exit.Bad(errors.New("stopped before the queues were drained"), "")
		case <-tick.C:
		}
	}
}
