package serve

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/stopat"
	"zabor/proxy"
	"zabor/sqlstore"
	"zabor/worker"
)

// Doors runs the doors of file until live ends. kind is the name of the process in its
// status: proxy or serve.
func (p *Process) Doors(live context.Context, file *config.Config, store *sqlstore.Store, kind string, o Options) error {
	endAlerts, err := p.Alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	stopping := context.AfterFunc(live, func() { p.Log.Info("stopping: what is under way is finished", "seconds_at_most", SecondsToStop(file)) })
	defer stopping()
	// The doors are closed first; doubtful rows are decided until then.
	ctx, cancel := context.WithCancel(live)
	defer cancel()
	core, err := p.newCore(live, file, store)
	var open *openProxy
	if exit.IsUnreachable(err) && len(file.Queues) == 0 && file.Proxy != nil && file.Proxy.Observe {
		open, core, err = p.observeWithout(ctx, cancel, file, store, err)
	}
	if err != nil || core == nil {
		return err
	}
	defer core.close(p)
	if o.StopAt != "" {
		core.fence.At = stopat.Checkpoint(o.StopAt)
	}
	door, err := p.newProxy(core)
	if err != nil {
		return err
	}
	var w *worker.Worker
	var list []connect.Queue
	if len(file.Queues) > 0 {
		var closeAll func()
		if w, list, closeAll, err = p.newWorker(live, core); err != nil {
			return err
		}
		defer closeAll()
		if err := p.ready(live, core, w, list, o.AcceptEviction); err != nil {
			return err
		}
	}
	lanes := 0
	if w != nil {
		lanes = w.Lanes
	}
	status := p.statusOf(kind, core, lanes, names(list))
	if w == nil && file.Proxy.Observe { // nothing is fenced
		defer p.tellAlive(live, store, status)()
	} else {
		keys, stopKeys, err := p.guardKeys(live, core, list, status)
		if err != nil {
			return err
		}
		defer stopKeys()
		if w != nil {
			w.KeysChanged, w.Holds = keys.Changed, keys.Holds
		}
	}
	if open == nil {
		if err := p.replayOnce(live, core.fence); err != nil {
			return err
		}
		if door != nil {
			if open, err = p.openProxy(ctx, cancel, door, file); err != nil {
				return err
			}
		}
	}
	defer open.close(cancel)

	behind, end := context.WithCancel(context.WithoutCancel(live))
	defer end()
	var queues []worker.Queue
	if w != nil {
		queues = w.Queues
	}
	served, err := p.serveMetrics(behind, core, queues)
	if err != nil {
		return err
	}
	pages := func() error { return nil }
	if file.Dashboard != nil {
		if pages, err = (&backend.Backend{Log: p.Log, Alert: p.Alert, Version: p.Version, File: file, Store: store, Fence: core.fence, Queues: list}).Serve(behind); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	wg.Go(served)
	wg.Go(func() {
		if err := pages(); err != nil {
			p.Log.Error("the dashboard is not served any more", "error", err)
		}
	})
	wg.Go(func() { p.resolve(behind, core) })
	if w != nil {
		p.Log.Info("started", "lanes", w.Lanes, "seconds_to_stop", SecondsToStop(file))
		p.work(ctx, w, list)
	}
	failed := open.wait()
	end()
	wg.Wait()
	return failed
}

// openProxy is a proxy with its listener.
type openProxy struct {
	*proxy.Proxy
	ended func() error // waits for it
}

// openProxy lets door take callers until ctx ends. done is called after the last
// one, for any reason.
func (p *Process) openProxy(ctx context.Context, done func(), door *proxy.Proxy, file *config.Config) (*openProxy, error) {
	secure, err := file.Proxy.ServerTLS(func(err error) { p.Log.Error(err.Error()) })
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: %w", file.Path, err), "")
	}
	listener, err := net.Listen("tcp", file.Proxy.Listen)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: proxy.listen: %w", file.Path, err), "write an address that is free on this host")
	}
	if secure == nil && !loopback(listener.Addr()) {
		p.Log.Warn("the proxy's token and the requests go over the network unencrypted; write tls: under proxy:, or put it behind something that speaks TLS", "listen", file.Proxy.Listen)
	}
	failed := make(chan error, 1)
	go func() {
		defer done() // a failed door closes the others
		err := door.Serve(ctx, listener, secure)
		if err != nil {
			err = fmt.Errorf("proxy: %w", err)
		}
		if file.Proxy.Observe {
			p.Log.Info("observed", "counts", door.Observed())
		}
		failed <- err
	}()
	p.Log.Info("the proxy listens", "address", listener.Addr().String(), "observe", file.Proxy.Observe, "seconds_to_stop", SecondsToStop(file))
	if file.Proxy.Observe {
		p.Log.Warn("observe: everything passes, and nothing is fenced")
	}
	return &openProxy{door, sync.OnceValue(func() error { return <-failed })}, nil
}

// wait waits until o takes no callers any more, and returns why it failed. o may be nil.
func (o *openProxy) wait() error {
	if o == nil {
		return nil
	}
	return o.ended()
}

// close ends o with cancel, and waits.
func (o *openProxy) close(cancel func()) {
	cancel()
	_ = o.wait()
}

// observeWithout lets all calls pass while the fence's database is away: a start in an
// outage must not stop calls under observation. It returns the core once the database
// is there, and nil if ctx ends before. why is the error of the database.
func (p *Process) observeWithout(ctx context.Context, cancel func(), file *config.Config, store *sqlstore.Store, why error) (*openProxy, *core, error) {
	secrets := p.Secrets(file)
	providers, err := connect.OpenProviders(file, secrets)
	if err != nil {
		return nil, nil, err
	}
	door, err := p.newProxy(&core{file: file, secrets: secrets, providers: providers})
	if err != nil {
		return nil, nil, err
	}
	open, err := p.openProxy(ctx, cancel, door, file)
	if err != nil {
		return nil, nil, err
	}
	p.Log.Warn("the fence's database is away: everything passes, and nothing is recorded until it is there", "error", why)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, nil, open.wait()
		case <-tick.C:
		}
		made, err := p.newCore(ctx, file, store)
		if err == nil {
			if err = p.replayOnce(ctx, made.fence); err == nil {
				door.Attach(made.fence)
				p.Log.Info("the fence's database is there: what passes is recorded")
				return open, made, nil
			}
			made.close(p)
		}
		if !exit.IsUnreachable(err) {
			open.close(cancel)
			return nil, nil, err
		}
	}
}
