// Package serve runs zabor's doors: the worker, the proxy and the dashboard, over one fence.
//
// A start checks the servers first, then claims the queues and the key schemas, and saves
// the journal. Then the doors open, and the resolvers run beside them. A stop closes the
// doors first.
package serve

import (
	"log/slog"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/sqlstore"
)

// Process is the common part of the doors of a process. Its exported fields are set before its
// first method is called; Seed may be nil.
type Process struct {
	Log     *slog.Logger
	Say     func(format string, args ...any) // gets the progress of a start
	Version string
	Reload  func() (*config.Config, error) // reads the configuration again

	send  func(zabor.Alert) // to the alert addresses; nil: alerts go to the log only
	lost  func() int64      // counts undelivered alerts; nil: alerts are not sent
	count func(zabor.Alert) // for the metrics; may be nil

	// Seed spoils the fence's store, so that tests see whether "zabor prove"
	// finds it out. It is nil in every program but theirs.
	Seed func(zabor.Store) zabor.Store
}

// Queues opens the queues of c, see [connect.Queues].
func (p *Process) Queues(c *config.Config, store *sqlstore.Store) (list []connect.Queue, closeAll func(), err error) {
	return connect.Queues(c, store, p.Log, p.Alert)
}

// Secrets follows the files of the secrets of c.
func (p *Process) Secrets(c *config.Config) *config.Rotation {
	return c.Rotation(func(err error) { p.Log.Error(err.Error()) })
}
