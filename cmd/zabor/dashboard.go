package main

import (
	"fmt"

	"zabor/internal/exit"
)

type dashboardCommand struct{}

func (c *dashboardCommand) Run(p *program) error {
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if file.Dashboard == nil {
		return exit.Usage(fmt.Errorf("%s: no dashboard is configured", file.Path), `write dashboard: {listen: "127.0.0.1:8071"}`)
	}
	return p.Dashboard(p.ctx, file, store)
}
