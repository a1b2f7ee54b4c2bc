package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/preflight"
	"zabor/internal/stopat"
	"zabor/internal/takeover"
	"zabor/sqlstore"
	"zabor/worker"
)

// names returns the names of list.
func names(list []connect.Queue) (all []string) {
	for _, q := range list {
		all = append(all, q.Name())
	}
	return all
}

// Options say how the doors run. Their zero value runs until the context ends.
type Options struct {
	AcceptEviction bool      // start on a Redis with eviction
	Drain          bool      // end when the queues are empty and no row is open
	StopAt         string    // for tests: the checkpoint of a stop by SIGSTOP; may be empty
	Left           io.Writer // gets the list of work for a person after a drain
}

// Worker takes messages from the queues of file until live ends, or with Drain until there
// is no work left. It returns after all calls under way have ended.
func (p *Process) Worker(live context.Context, file *config.Config, store *sqlstore.Store, o Options) error {
	endAlerts, err := p.Alerts(file)
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
	if err := p.replayOnce(live, core.fence); err != nil {
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
	p.Log.Info("started", "lanes", w.Lanes, "seconds_to_stop", SecondsToStop(file))
	stopping := context.AfterFunc(live, func() { p.Log.Info("stopping: what is under way is finished", "seconds_at_most", SecondsToStop(file)) })
	defer stopping()
	if o.Drain {
		err = drained(ctx, p.Log, file, store, w.Queues)
		cancel()
	}
	wg.Wait()
	if err != nil || !o.Drain {
		return err
	}
	left, parked, err := takeover.LeftOver(live, o.Left, failures.New(file, store, list), "the queues are drained; \"zabor failed list\" shows the same error until it is mended", zabor.Held, zabor.Released)
	switch {
	case err != nil:
		return err
	case left > 0:
		return exit.Bad(fmt.Errorf("drained; %d rows are held or parked for a person, and %d more messages of steps, or unreadable ones, have failed", left, parked), "zabor fence list --state held,released; zabor failed list")
	case parked > 0:
		return exit.Bad(fmt.Errorf("drained; %d messages of steps, or unreadable ones, have failed: nobody has made these charges, and PHP's own retry would make them without a fence", parked),
			"zabor failed list shows them; \"zabor failed retry ID\" while a worker of zabor's runs, or \"zabor failed forget ID --reason TEXT --yes\"")
	}
	for _, s := range list {
		if err := takeover.Release(live, file.Scope, store, s); err != nil {
			return err
		}
	}
	return nil
}

// ready checks the servers, the key schemas and the queues before any message is taken.
func (p *Process) ready(ctx context.Context, c *core, w *worker.Worker, list []connect.Queue, acceptEviction bool) error {
	if err := p.startUp(ctx, c.file, list, acceptEviction); err != nil {
		return err
	}
	if _, err := p.CheckKeys(ctx, p.Keys(c.file, c.store, list), false); err != nil {
		return err
	}
	return takeover.TakeOver(ctx, c.file, c.store, w.Steps, takeover.Options{Log: p.Log, Say: p.Say}, list)
}

// work takes messages until ctx ends and those in hand are done. It watches for other
// consumers.
func (p *Process) work(ctx context.Context, w *worker.Worker, list []connect.Queue) {
	var wg sync.WaitGroup
	for _, s := range list {
		wg.Go(func() { preflight.WatchEviction(ctx, p.Alert, s) })
		if !s.Shared && len(w.Steps) > 0 {
			wg.Go(func() { takeover.WatchOthers(ctx, p.Log, p.Alert, s) })
		}
	}
	w.Run(ctx)
	wg.Wait()
}

// newWorker makes the worker and its queues. closeAll ends their connections.
func (p *Process) newWorker(ctx context.Context, c *core) (w *worker.Worker, list []connect.Queue, closeAll func(), err error) {
	if list, closeAll, err = p.Queues(c.file, c.store); err != nil {
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
		Log:     p.Log,
		Unreadable: func(ctx context.Context, queue string, raw []byte, reason string) error {
			return c.store.Quarantine().Save(ctx, sqlstore.Unreadable{Queue: queue, Bytes: raw, Reason: reason})
		},
	}
	told := c.fence.Alert
	c.fence.Alert = func(a zabor.Alert) { w.Told(a); told(a) }
	c.traceWorker(w)
	c.countTaken(w)
	return w, list, closeAll, nil
}

// drained waits until the queues are empty and no row of the installation is captured or
// in doubt.
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
