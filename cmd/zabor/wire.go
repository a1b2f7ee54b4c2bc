package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"zabor/internal/config"
	"zabor/internal/dotenv"
	"zabor/internal/exit"
	"zabor/sqlstore"
)

// load reads the configuration that the flags name.
func (p *program) load() (*config.Config, error) {
	path, err := config.Find(p.cli.Config, os.LookupEnv)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usage(err, "name the file with -c FILE; zabor.example.yaml has every key")
	}
	if err != nil {
		return nil, exit.Usage(err, "")
	}
	env := config.Env{Lookup: os.LookupEnv}
	if p.cli.EnvFile != "" {
		if env.File, err = dotenv.Read(p.cli.EnvFile, os.LookupEnv); err != nil {
			return nil, exit.Usage(err, "")
		}
	}
	c, err := config.Load(path, env)
	if err != nil {
		if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil, exit.Usage(err, "\"zabor init APPLICATION > zabor.yaml\" makes one; -c FILE and ZABOR_CONFIG name another")
		}
		return nil, exit.Usage(err, "nothing was started; zabor.example.yaml has every key, and docs/providers.md says what a provider needs")
	}
	return c, nil
}

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
