package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"zabor"
	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/stopat"
	"zabor/proxy"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

type proxyCommand struct {
	StopAt string `hidden:"" help:"For tests: stop the process (SIGSTOP) at MOMENT or MOMENT:ORDER, once."`
}

func (c *proxyCommand) Run(p *program) error {
	file, store, err := p.openFor(func(file *config.Config) error {
		if file.Proxy == nil {
			return exit.Usage(fmt.Errorf("%s: no proxy is configured", file.Path), `write proxy: {listen: "127.0.0.1:8070"}`)
		}
		file.Queues = nil // those are the worker's
		file.Dashboard = nil
		return nil
	})
	if err != nil {
		return err
	}
	defer store.Close()
	return p.runDoors(p.ctx, file, store, "proxy", workerOptions{StopAt: c.StopAt})
}

type serveCommand struct {
	AcceptEviction bool `help:"Start although Redis may drop messages when memory is short (maxmemory-policy allkeys-…)."`
}

func (c *serveCommand) Run(p *program) error {
	file, store, err := p.openFor(func(file *config.Config) error {
		if file.Proxy == nil && len(file.Queues) == 0 {
			return exit.Usage(fmt.Errorf("%s: neither queues nor a proxy are configured", file.Path), "write them under queues: and proxy:; for the dashboard alone type \"zabor dashboard\"")
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer store.Close()
	return p.runDoors(p.ctx, file, store, "serve", workerOptions{AcceptEviction: c.AcceptEviction})
}

// openFor opens the fence for a process that runs until a signal. choose says what is wrong
// with the configuration, or takes out what is not wanted.
func (p *program) openFor(choose func(*config.Config) error) (*config.Config, *sqlstore.Store, error) {
	p.serves = true
	file, store, err := p.openFence()
	if err != nil {
		return nil, nil, err
	}
	if err := choose(file); err != nil {
		store.Close()
		return nil, nil, err
	}
	return file, store, nil
}

// runDoors runs the doors that file has, over one fence, until live ends. kind is what the
// process says of itself.
func (p *proc) runDoors(live context.Context, file *config.Config, store *sqlstore.Store, kind string, o workerOptions) error {
	endAlerts, err := p.alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	stopping := context.AfterFunc(live, func() { p.log.Info("stopping: what is under way is finished", "seconds_at_most", secondsToStop(file)) })
	defer stopping()
	// The doors are closed first; what is in doubt is decided until they are.
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
		if err := p.recover(live, core.fence); err != nil {
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
		if pages, err = (&backend.Backend{Log: p.log, Alert: p.alert, Version: p.version, File: file, Store: store, Fence: core.fence, Queues: list}).Serve(behind); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	wg.Go(served)
	wg.Go(func() {
		if err := pages(); err != nil {
			p.log.Error("the dashboard is not served any more", "error", err)
		}
	})
	wg.Go(func() { p.resolve(behind, core) })
	if w != nil {
		p.log.Info("started", "lanes", w.Lanes, "seconds_to_stop", secondsToStop(file))
		p.work(ctx, w, list)
	}
	failed := open.wait()
	end()
	wg.Wait()
	return failed
}

// openProxy is a proxy that takes callers.
type openProxy struct {
	*proxy.Proxy
	ended func() error // waits for it
}

// openProxy lets door take callers until ctx ends; done is called when it takes
// none any more, for whatever reason.
func (p *proc) openProxy(ctx context.Context, done func(), door *proxy.Proxy, file *config.Config) (*openProxy, error) {
	secure, err := file.Proxy.ServerTLS(func(err error) { p.log.Error(err.Error()) })
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: %w", file.Path, err), "")
	}
	listener, err := net.Listen("tcp", file.Proxy.Listen)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: proxy.listen: %w", file.Path, err), "write an address that is free on this host")
	}
	if secure == nil && !loopback(listener.Addr()) {
		p.log.Warn("the proxy's token and the requests go over the network unencrypted; write tls: under proxy:, or put it behind something that speaks TLS", "listen", file.Proxy.Listen)
	}
	failed := make(chan error, 1)
	go func() {
		defer done() // one door that fails closes the others
		err := door.Serve(ctx, listener, secure)
		if err != nil {
			err = fmt.Errorf("proxy: %w", err)
		}
		if file.Proxy.Observe {
			p.log.Info("observed", "counts", door.Observed())
		}
		failed <- err
	}()
	p.log.Info("the proxy listens", "address", listener.Addr().String(), "observe", file.Proxy.Observe, "seconds_to_stop", secondsToStop(file))
	if file.Proxy.Observe {
		p.log.Warn("observe: everything passes, and nothing is fenced")
	}
	return &openProxy{door, sync.OnceValue(func() error { return <-failed })}, nil
}

// wait waits until o takes no callers any more, and says why it failed. There may
// be none.
func (o *openProxy) wait() error {
	if o == nil {
		return nil
	}
	return o.ended()
}

// close waits likewise, once cancel has ended it.
func (o *openProxy) close(cancel func()) {
	cancel()
	_ = o.wait()
}

// observeWithout lets everything pass while the fence's database is away, and gives
// the core once it is there: a start in an outage must not stop what is only
// watched. The core is nil where ctx ends before. why is what is wrong.
func (p *proc) observeWithout(ctx context.Context, cancel func(), file *config.Config, store *sqlstore.Store, why error) (*openProxy, *core, error) {
	secrets := p.secrets(file)
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
	p.log.Warn("the fence's database is away: everything passes, and nothing is recorded until it is there", "error", why)
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
			if err = p.recover(ctx, made.fence); err == nil {
				door.Attach(made.fence)
				p.log.Info("the fence's database is there: what passes is recorded")
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

// checkProxy checks that the proxy of file can be made.
func (p *proc) checkProxy(file *config.Config, secrets *config.Rotation, providers connect.Providers) error {
	_, err := p.newProxy(&core{file: file, secrets: secrets, providers: providers})
	return err
}

// newProxy wires the proxy; nil: none is configured. It may be made of a core
// without a fence to see whether it can be.
func (p *proc) newProxy(c *core) (*proxy.Proxy, error) {
	x := c.file.Proxy
	if x == nil {
		return nil, nil
	}
	upstreams := map[string]proxy.Upstream{}
	for name, one := range c.providers {
		upstreams[name] = proxy.Upstream{Provider: one, Account: c.file.Providers[name].Account, Volatile: x.Volatile[name]}
	}
	steps := c.file.Compiled()
	options := proxy.Options{
		Fence: c.fence, Upstreams: upstreams, Scope: c.file.Scope,
		Attempts: c.file.Attempts, HoldAfter: c.file.HoldAfter, PendingFor: c.file.PendingFor,
		Check: func(scoped bool, k zabor.Key) error { return checkProxied(steps, scoped, k) },
		Show:  func(row zabor.Row) any { return console.NewRow(row) },
		Allow: x.Allow, Unfenced: x.Unfenced,
		Trusted: x.TLS != nil && x.TLS.ClientCA != "",
		Observe: x.Observe, MaxBody: x.MaxBody, Log: p.log,
	}
	if x.Token != "" {
		options.Token = c.secrets.ProxyToken
	}
	c.traceProxy(&options)
	door, err := proxy.New(options)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: proxy.%w", c.file.Path, err), "")
	}
	return door, nil
}

// checkProxied demands of a key whose step is configured what the step demands
// of its messages, and that its hooks need no message.
func checkProxied(steps []*step.Step, scoped bool, k zabor.Key) error {
	name, _, part := strings.Cut(k.Step, ":")
	for _, s := range steps {
		if scoped && s.HasPart() && k.Order == s.Name() { // zabor:1001:refund:R-7
			return fmt.Errorf("%s is a step, and stands where the order belongs: write a colon within a part as %%3A: zabor:ORDER:%s%%3A%s", s.Name(), s.Name(), k.Step)
		}
		if s.Name() != name {
			continue
		}
		switch {
		case s.HasPart() && !part:
			return fmt.Errorf("step %s has parts, so that two of an order are two: write %s:ID", name, name)
		case s.HasScope() && !scoped:
			return fmt.Errorf("step %s has a scope of its own: write it into Zabor-Scope", name)
		case len(s.Binds()) > 0:
			return fmt.Errorf("the hooks of step %s bind %s of a message, and a proxied call has none: let them bind the row alone", name, strings.Join(s.Binds(), ", "))
		}
	}
	return nil
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
