package serve

import (
	"context"

	"zabor/dashboard"
	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/decision"
	"zabor/sqlstore"
)

// Dashboard serves the dashboard alone until ctx ends.
func (p *Process) Dashboard(ctx context.Context, file *config.Config, store *sqlstore.Store) error {
	endAlerts, err := p.Alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	fence, err := decision.NewFence(ctx, file, store, p.Alert)
	if err != nil {
		return err
	}
	list, closeAll, err := p.Queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	served, err := p.measureDashboard(ctx, file, store, connect.WorkerQueues(list))
	if err != nil {
		return err
	}
	ended, err := (&backend.Backend{Log: p.Log, Alert: p.Alert, Version: p.Version, File: file, Store: store, Fence: fence, Queues: list}).Serve(ctx)
	if err != nil {
		return err
	}
	defer served()
	stopTelling := p.tellAlive(ctx, store, func() dashboard.Status { return p.status("dashboard", file.Scope) })
	defer stopTelling()
	return ended()
}
