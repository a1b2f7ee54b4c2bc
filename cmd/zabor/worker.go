package main

import (
	"fmt"
	"maps"
	"slices"

	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/internal/serve"
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
	return p.Worker(p.ctx, file, store, serve.Options{AcceptEviction: c.AcceptEviction, Drain: c.Drain, StopAt: c.StopAt, Left: p.stderr})
}

// choose keeps only the queues of the flags.
func (c *workerCommand) choose(file *config.Config) error {
	if err := knownQueues(file, "--queue", c.Queue); err != nil {
		return err
	}
	if len(c.Queue) > 0 {
		maps.DeleteFunc(file.Queues, func(name string, _ *config.Queue) bool { return !slices.Contains(c.Queue, name) })
	}
	return nil
}

// knownQueues demands queues in file, among them the names of flag.
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
