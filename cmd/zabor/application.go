package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/sqlstore"
)

// applications opens the application's databases where they are not the fence's:
// failure transports and load are there. Each is opened once.
type applications struct {
	file  *config.Config
	fence *sqlstore.Store
	open  map[config.Address]*sqlstore.Store
}

func newApplications(file *config.Config, fence *sqlstore.Store) *applications {
	return &applications{file: file, fence: fence, open: map[config.Address]*sqlstore.Store{}}
}

// at is the application's database at address; empty: at the file's database:,
// and where there is none, the fence's. key is that of the setting, for the error.
func (a *applications) at(address config.Address, key string) (*sqlstore.Store, error) {
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
func (a *applications) failed(name string, q *config.Queue) (*sqlstore.Store, error) {
	if q.Failed != nil && q.Failed.Database != "" {
		return a.at(q.Failed.Database, "queues."+name+".failed.database")
	}
	return a.at("", "database")
}

// reachable connects to every database that was opened.
func (a *applications) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for address, store := range a.open {
		if err := store.DB().PingContext(ctx); err != nil {
			return exit.Unreachable(fmt.Errorf("the application's database %s: %w", address, err), "nothing was taken; is the server up, and is its address right?")
		}
	}
	return nil
}

func (a *applications) close() {
	for _, store := range a.open {
		store.Close()
	}
}
