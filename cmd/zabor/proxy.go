package main

import (
	"fmt"

	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/internal/serve"
	"zabor/sqlstore"
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
	return p.Doors(p.ctx, file, store, "proxy", serve.Options{StopAt: c.StopAt})
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
	return p.Doors(p.ctx, file, store, "serve", serve.Options{AcceptEviction: c.AcceptEviction})
}

// openFor opens the fence for a process without an end of its own. choose refuses a
// configuration, or takes out its unwanted parts.
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
