package main

import (
	"context"
	"fmt"

	"zabor/dashboard"
	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/decision"
	"zabor/internal/exit"
	"zabor/sqlstore"
	"zabor/worker"
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
	return p.runDashboard(p.ctx, file, store)
}

// runDashboard serves the dashboard alone until ctx ends.
func (p *proc) runDashboard(ctx context.Context, file *config.Config, store *sqlstore.Store) error {
	endAlerts, err := p.alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	fence, err := decision.NewFence(ctx, file, store, p.alert)
	if err != nil {
		return err
	}
	list, closeAll, err := p.queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	served, err := p.measureDashboard(ctx, file, store, connect.WorkerQueues(list))
	if err != nil {
		return err
	}
	ended, err := (&backend.Backend{Log: p.log, Alert: p.alert, Version: p.version, File: file, Store: store, Fence: fence, Queues: list}).Serve(ctx)
	if err != nil {
		return err
	}
	defer served()
	stopTelling := p.tellAlive(ctx, store, func() dashboard.Status { return p.status("dashboard", file.Scope) })
	defer stopTelling()
	return ended()
}

// measureDashboard answers at metrics.listen for a dashboard that runs alone; it
// does nothing where there is none. done waits for the end.
func (p *proc) measureDashboard(ctx context.Context, file *config.Config, store *sqlstore.Store, queues []worker.Queue) (done func(), err error) {
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
