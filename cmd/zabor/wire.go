package main

import (
	"fmt"
	"os"
	"regexp"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/sqlstore"
)

// load reads the configuration of the flags.
func (p *program) load() (*config.Config, error) { return connect.Load(p.cli.Config, p.cli.EnvFile) }

// openFence reads the configuration and opens the fence's database.
func (p *program) openFence() (*config.Config, *sqlstore.Store, error) {
	c, err := p.load()
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.Open(string(c.Fence))
	if err != nil {
		return nil, nil, exit.Usage(fmt.Errorf("%s: fence: %w", c.Path, err), "")
	}
	store.Encrypt(c.Keys())
	return c, store, nil
}

// openFailures opens the failure transports of the named queues; without names: of
// all.
func (p *program) openFailures(names []string) (f *failures.Transports, closeAll func(), err error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, nil, err
	}
	f, closeQueues, err := p.failuresOf(file, store, names)
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return f, func() { closeQueues(); store.Close() }, nil
}

// failuresOf opens the failure transports of the named queues of file; without names: of
// all. The store stays open when closeQueues is called.
func (p *program) failuresOf(file *config.Config, store *sqlstore.Store, names []string) (f *failures.Transports, closeQueues func(), err error) {
	choice := workerCommand{Queue: names}
	if err := choice.choose(file); err != nil {
		return nil, nil, err
	}
	queues, closeQueues, err := p.Queues(file, store)
	if err != nil {
		return nil, nil, err
	}
	return failures.New(file, store, queues), closeQueues, nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// address returns the value of an environment variable. The argument
// may be an address itself, with a password: it is not repeated.
func address(flag, name string) (string, error) {
	if !variableName.MatchString(name) {
		return "", exit.Usage(fmt.Errorf("--%s takes the name of an environment variable, and what was given is none", flag), "export SHOP_ADDRESS='…' first, and then --"+flag+" SHOP_ADDRESS: an address on the command line is seen by everybody on the machine")
	}
	value := os.Getenv(name)
	if value == "" {
		return "", exit.Usage(fmt.Errorf("--%s: the environment variable %s is not set", flag, name), "")
	}
	return value, nil
}
