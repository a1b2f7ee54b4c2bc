package main

import (
	"fmt"
	"strings"

	"zabor/internal/exit"
	"zabor/sqlstore"
)

type migrateCommand struct {
	Print  string   `placeholder:"DATABASE" enum:",mysql,postgres,sqlite" default:"" help:"Print the SQL for mysql, postgres or sqlite, for a database administrator; nothing is connected to."`
	GiveUp []string `placeholder:"QUEUE" help:"Give QUEUE back to PHP without a whole drain: the next start on it looks at all of it anew. Lists what PHP's workers would charge a second time, and exits 1 if there is any; with zabor's workers stopped."`
}

func (c *migrateCommand) Run(p *program) error {
	if c.Print != "" {
		text, err := sqlstore.MigrationSQL(c.Print)
		if err != nil {
			return exit.Usage(err, "")
		}
		_, err = fmt.Fprintln(p.stdout, strings.TrimSpace(text))
		return err
	}
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if len(c.GiveUp) > 0 {
		if err := knownQueues(file, "--give-up", c.GiveUp); err != nil {
			return err
		}
	}
	before, err := store.Setup().Migrated(p.ctx)
	if err != nil {
		return exit.Store(err)
	}
	if err := store.Setup().Migrate(p.ctx); err != nil {
		return exit.Store(err)
	}
	if err := store.Setup().Check(p.ctx); err != nil {
		return exit.Store(err)
	}
	after, err := store.Setup().Migrated(p.ctx)
	if err != nil {
		return exit.Store(err)
	}
	done := "were up to date: nothing was changed"
	switch {
	case before == 0:
		done = "were made"
	case before < after:
		done = fmt.Sprintf("were brought from migration %d to %d", before, after)
	}
	if _, err = fmt.Fprintf(p.stdout, "the tables of the fence in %s %s\n", file.Fence, done); err != nil || len(c.GiveUp) == 0 {
		return err
	}
	return p.releaseQueues(file, store, c.GiveUp)
}
