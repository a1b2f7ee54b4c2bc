package serve

import (
	"context"
	"crypto/rand"
	"os"
	"time"

	"zabor/dashboard"
	"zabor/sqlstore"
)

// tellAlive keeps a sign of life of this process in the fence's database, until the
// returned function is called.
func (p *Process) tellAlive(parent context.Context, store *sqlstore.Store, status func() dashboard.Status) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	var id [16]byte
	rand.Read(id[:])
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		dashboard.Tell(ctx, store, id, status, func(err error) {
			p.Log.Warn("the dashboard cannot be told that this process is alive; nothing depends on it", "error", err)
		})
	}()
	return func() { cancel(); <-ended }
}

func (p *Process) status(kind, scope string) dashboard.Status {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return dashboard.Status{Kind: kind, Scope: scope, Host: host, PID: os.Getpid(), Version: p.Version}
}

// statusOf returns the status of a process with calls to providers.
func (p *Process) statusOf(kind string, c *core, lanes int, queues []string) func() dashboard.Status {
	return func() dashboard.Status {
		s := p.status(kind, c.file.Scope)
		s.Lanes, s.Queues, s.Calls = lanes, queues, map[string]dashboard.Breaks{}
		for name := range c.providers {
			var b dashboard.Breaks
			if left, why := c.fence.Paused(name); left > 0 {
				b = dashboard.Breaks{Until: time.Now().Add(left).UTC(), Why: why}
			}
			s.Calls[name] = b
		}
		return s
	}
}
