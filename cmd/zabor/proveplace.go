package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/prove"
	"zabor/sqlstore"
)

// place is where the proof happens: embedded, or where the command line names a
// configuration, on its servers. A host's ZABOR_CONFIG is for its workers: a person
// typing two words does not mean this host's Redis and database.
func (p *program) place(dir string) (place *prove.Place, closePlace func() error, err error) {
	if !p.named("config") {
		place, closePlace, err = prove.Embedded(p.ctx, dir)
	} else {
		place, closePlace, err = p.ownPlace(dir)
	}
	if err != nil {
		return nil, nil, err
	}
	place.Version = version
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ZABOR_") { // the variables of this command are not for its workers
			place.Env = append(place.Env, variable)
		}
	}
	place.Program, err = os.Executable()
	return place, closePlace, err
}

// ownPlace is a place on the servers of the configuration. Only the proof takes from
// its queues there.
func (p *program) ownPlace(dir string) (*prove.Place, func() error, error) {
	file, err := p.load()
	if err != nil {
		return nil, nil, err
	}
	list, closeConnections, err := connect.Connections(file)
	if err != nil {
		return nil, nil, err
	}
	on := prove.Installation{Fence: string(file.Fence), RedisURL: string(file.Redis), Keys: map[string]string{}, Fencing: fencing(file)}
	for _, s := range list { // in the order of their names
		on.Keys[s.QueueName] = s.Key
		if s.Config != nil && on.Stream == nil {
			on.Stream, on.DSN = s.Redis, string(file.Queues[s.QueueName].Symfony.DSN)
		}
	}
	closePlace := func() error { closeConnections(); return nil }
	if file.Redis != "" {
		client, err := connect.Redis(string(file.Redis))
		if err != nil {
			closeConnections()
			return nil, nil, exit.Usage(fmt.Errorf("%s: redis: %w", file.Path, err), "")
		}
		on.Redis = client
		closePlace = func() error { client.Close(); closeConnections(); return nil }
	}
	place, remove, err := prove.OnServers(p.ctx, dir, on)
	closeAll := func() error {
		if remove == nil {
			return closePlace()
		}
		return errors.Join(remove(), closePlace())
	}
	if err != nil {
		_ = closeAll() // it has removed its own data
		return nil, nil, placeFailure(err)
	}
	return place, closeAll, nil
}

// fencing returns the settings of the file for the proof's fence: of the first queue of each
// framework the setting of missing rows. The proof's queues are not shared.
func fencing(file *config.Config) prove.Fencing {
	f := prove.Fencing{
		EncryptionKey: string(file.EncryptionKey), Journal: file.Journal != "", Attempts: file.Attempts,
		MissingRow: map[prove.Queue]string{prove.Laravel: "doubt", prove.Symfony: "doubt"},
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(file.Queues))) {
		q, framework := file.Queues[name], prove.Laravel
		if q.Symfony != nil {
			framework = prove.Symfony
		}
		f.MissingRow[framework] = q.MissingRow
	}
	return f
}

// placeFailure is why no proof can happen on an installation's servers.
func placeFailure(err error) error {
	if _, ok := errors.AsType[*sqlstore.Problem](err); ok || errors.Is(err, sqlstore.ErrScratchTaken) || errors.Is(err, prove.ErrTaken) {
		return exit.Usage(err, "nothing was run; the proof needs a Redis prefix and a database, schema or folder of its own, see docs/prove.md; without -c it needs no server")
	}
	return exit.Unreachable(err, "nothing was run; are the servers up, and are the addresses right?")
}
