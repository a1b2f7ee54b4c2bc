package main

import (
	"log/slog"

	"zabor"
	"zabor/internal/config"
)

// proc is what every door of a running process shares.
type proc struct {
	log     *slog.Logger
	say     func(format string, args ...any) // gets the progress of a start
	version string
	reload  func() (*config.Config, error) // reads the configuration again

	send  func(zabor.Alert) // to the alert addresses; nil: alerts go to the log only
	lost  func() int64      // messages of alerts that no address has taken; nil: none are sent
	count func(zabor.Alert) // for the metrics; nil: there are none

	// seed spoils the fence's store, so that tests see whether "zabor prove"
	// finds it out. It is nil in every program but theirs.
	seed func(zabor.Store) zabor.Store
}
