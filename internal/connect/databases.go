package connect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/sqlstore"
	"zabor/step"
)

// Databases opens the application's databases, each once. The fence's is among them
// where the file names no other one.
type Databases struct {
	file  *config.Config
	fence *sqlstore.Store
	open  map[config.Address]*sqlstore.Store
}

// NewDatabases returns the databases of file; fence is the fence's own. None is
// opened yet.
func NewDatabases(file *config.Config, fence *sqlstore.Store) *Databases {
	return &Databases{file: file, fence: fence, open: map[config.Address]*sqlstore.Store{}}
}

// At returns the application's database at address. An empty address means the file's
// database:, or without one the fence. An error names the setting key.
func (a *Databases) At(address config.Address, key string) (*sqlstore.Store, error) {
	address = cmp.Or(address, a.file.Database)
	if address == "" || address == a.file.Fence {
		return a.fence, nil
	}
	if known := a.open[address]; known != nil {
		return known, nil
	}
	store, err := sqlstore.Open(string(address))
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: %s: %w", a.file.Path, key, err), "")
	}
	a.open[address] = store
	return store, nil
}

// failed is the database of q's failure transport.
func (a *Databases) failed(name string, q *config.Queue) (*sqlstore.Store, error) {
	if q.Failed != nil && q.Failed.Database != "" {
		return a.At(q.Failed.Database, "queues."+name+".failed.database")
	}
	return a.At("", "database")
}

// Reachable connects to each open database, within ten seconds.
func (a *Databases) Reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for address, store := range a.open {
		if err := store.DB().PingContext(ctx); err != nil {
			return exit.Unreachable(fmt.Errorf("the application's database %s: %w", address, err), "nothing was taken; is the server up, and is its address right?")
		}
	}
	return nil
}

// Close closes each database but the fence's.
func (a *Databases) Close() {
	for _, store := range a.open {
		store.Close()
	}
}

// Steps returns the compiled steps of the file. Their load: reads the application's
// database.
func Steps(databases *Databases) ([]*step.Step, error) {
	application, err := databases.At("", "database")
	if err != nil {
		return nil, err
	}
	steps := databases.file.Compiled()
	for _, s := range steps {
		s.DB = application.DB()
	}
	return steps, nil
}
