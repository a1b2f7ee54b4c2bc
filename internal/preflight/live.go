package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"zabor/doctor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/takeover"
	"zabor/provider"
	"zabor/sqlstore"
)

// Installation is the subject of [Installation.Live].
type Installation struct {
	File      *config.Config
	Store     *sqlstore.Store
	Queues    []connect.Queue
	Providers connect.Providers
	Keys      func() error // checks the key schemas; an exit.Error

	list
}

// Live makes all checks of a start, all checks of servers by zabor doctor, and asks
// whether each statement could run, and whether the providers take the credentials.
func (l *Installation) Live(ctx context.Context) ([]Check, error) {
	// A missing file is no server out of reach; tables
	// in it cannot be asked.
	if missing, ok := errors.AsType[*sqlstore.Problem](l.Store.Setup().Exists(ctx)); ok {
		l.add(Wrong, "fence", missing.Found, missing.Fix+"; the rest is asked then")
		return l.list, nil
	}
	if err := l.servers(ctx); err != nil {
		return nil, err
	}
	l.tables(ctx)
	l.keys()
	l.journal()
	if err := l.statements(ctx); err != nil {
		return nil, err
	}
	for _, q := range l.Queues {
		l.queue(ctx, q)
	}
	l.providers(ctx)
	return l.list, nil
}

// servers examines the servers of the file as zabor doctor does.
func (l *Installation) servers(ctx context.Context) error {
	var servers Servers
	defer servers.Close()
	if err := servers.AddFile(l.File); err != nil {
		return err
	}
	for _, one := range servers.redis {
		l.examined(ctx, one.Where, func(ctx context.Context) ([]doctor.Finding, error) { return doctor.ExamineRedis(ctx, one) })
	}
	for _, one := range servers.databases {
		l.examined(ctx, one.where, func(ctx context.Context) ([]doctor.Finding, error) { return one.examine(ctx, nil) })
	}
	return nil
}

// examined adds the findings about one server.
func (l *Installation) examined(ctx context.Context, where string, examine func(context.Context) ([]doctor.Finding, error)) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	findings, err := examine(ctx)
	for _, f := range findings {
		status := Warning
		// Zabor's own consumers have names of their own, and whether one of PHP's still
		// lives is asked by itself: the dead one's entries keep its name in the group.
		if f.Severity == doctor.Error && f.Code != "ZB140" {
			status = Wrong
		}
		l.add(status, f.Where, f.Code+": "+f.Found, f.Fix)
	}
	switch {
	case err != nil:
		l.add(Unreachable, where, err.Error(), fixServer)
	case len(findings) == 0:
		l.add(Good, where, "", "")
	}
}

// tables checks the rights on the fence's tables and on the failure transports.
func (l *Installation) tables(ctx context.Context) {
	for _, t := range sqlstore.Tables() {
		l.table(ctx, "fence", l.Store, t, "zabor migrate")
	}
	for _, q := range l.Queues {
		t, what := failedTable(l.File.Queues[q.Name()]), "queues."+q.Name()+".failed"
		if t.Name != "" {
			l.table(ctx, what, q.FailedIn, t, "make it as the framework does (php artisan queue:failed-table and migrate; messenger:setup-transports), or name it under "+what)
		}
	}
}

// failedTable returns the table of a queue's failed messages. Without one its name is
// empty.
func failedTable(q *config.Queue) sqlstore.Table {
	uses := []string{"SELECT", "INSERT", "DELETE"}
	failed := config.Failed{}
	if q.Failed != nil {
		failed = *q.Failed
	}
	switch {
	case failed.Stream != "":
		return sqlstore.Table{}
	case q.Symfony != nil:
		return sqlstore.Table{Name: cmp.Or(failed.Table, "messenger_messages"), Column: "headers", Uses: append(uses, "UPDATE")}
	}
	return sqlstore.Table{Name: cmp.Or(failed.Table, "failed_jobs"), Column: "exception", Uses: uses}
}

// keys checks the key schemas against the existing rows.
func (l *Installation) keys() {
	if err := l.Keys(); err != nil {
		l.failed("steps", err)
		return
	}
	l.add(Good, "steps", "", "")
}

// journal checks the right to write the journal's folder, or to make it.
func (l *Installation) journal() {
	if l.File.Journal == "" {
		return
	}
	const fix = "make the folder writable for the user of the worker, or write another one under journal:"
	at := filepath.Clean(l.File.Journal)
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	switch {
	case err != nil:
		l.add(Wrong, "journal", err.Error(), fix)
	case !info.IsDir():
		l.add(Wrong, "journal", at+" is no folder", fix)
	case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		l.add(Wrong, "journal", "this user may not write "+at, fix)
	default:
		l.add(Good, "journal", "", "")
	}
}

// table checks the existence of t and the rights on it; make says how to make it.
func (l *Installation) table(ctx context.Context, what string, store *sqlstore.Store, t sqlstore.Table, make string) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lacks, err := store.Setup().Lacks(ctx, t)
	what += ", table " + t.Name
	switch {
	case errors.Is(err, sqlstore.ErrNoTable):
		l.add(Wrong, what, err.Error(), make)
	case err != nil:
		l.add(Unreachable, what, err.Error(), fixServer)
	case len(lacks) > 0:
		l.add(Wrong, what, "this user may not "+strings.Join(lacks, ", "), "GRANT "+strings.Join(lacks, ", ")+" ON "+t.Name)
	default:
		l.add(Good, what, "", "")
	}
}

// statements lets the databases prepare the SQL of all steps.
func (l *Installation) statements(ctx context.Context) error {
	databases := connect.NewDatabases(l.File, l.Store)
	defer databases.Close()
	application, err := databases.At("", "database")
	if err != nil {
		return err
	}
	for _, s := range l.File.Compiled() {
		for _, one := range s.SQL() {
			on := l.Store
			if one.Field == "load" {
				on = application
			}
			ctx, cancel := context.WithTimeout(ctx, wait)
			err := on.Setup().Prepare(ctx, one.Query, one.Parameters)
			cancel()
			what := "steps." + s.Name() + "." + one.Field
			switch {
			case err == nil:
				l.add(Good, what, "", "")
			case on.Unreachable(err):
				l.add(Unreachable, what, err.Error(), fixServer)
			default:
				f := l.File.Finding(what, err.Error(), "")
				l.add(Wrong, what, fmt.Sprintf("%s:%d: %v", f.File, f.Line, err), "mend the statement, or let this user run it")
			}
		}
	}
	return nil
}

// queue checks a queue as a start does.
func (l *Installation) queue(ctx context.Context, q connect.Queue) {
	what := "queues." + q.Name()
	before := len(l.list)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	l.master(ctx, q) // eviction is said of the server
	l.first(ctx, l.File.Compiled(), q)
	l.others(ctx, q)
	l.empty(ctx, q)
	if c := q.Config; c != nil && q.Redis.Exists(ctx, c.Stream).Val() == 0 {
		l.add(Warning, what, "there is no stream "+c.Stream+" yet", "nothing, if the application has not sent anything to it; else it sends somewhere else")
	}
	if m, err := takeover.ReadMarker(ctx, l.File.Scope, l.Store, q); err == nil && len(m.New(l.File.Compiled())) > 0 {
		found := "zabor has never taken from it"
		if m.Owned() {
			found = "zabor has not taken " + strings.Join(m.New(l.File.Compiled()), ", ") + " from it so far"
		}
		l.add(Warning, what, found, "zabor peek "+q.Name()+", then "+takeover.ImportCommand(l.File.Path, q)+" --dry-run; it is left out here whether anybody has had its messages")
	}
	if len(l.list) == before {
		l.add(Good, what, "", "")
	}
}

// providers checks the credentials at the providers.
func (l *Installation) providers(ctx context.Context) {
	all := l.Providers
	for _, name := range slices.Sorted(maps.Keys(all)) {
		what := "providers." + name
		switch err := all[name].Probe(ctx); {
		case err == nil:
			l.add(Good, what, "", "")
		case errors.Is(err, provider.ErrNoProbe):
			l.add(Unchecked, what, err.Error(), "make one small charge, and refund it")
		case errors.Is(err, provider.ErrUnreached):
			l.add(Unreachable, what, err.Error(), "is its address right, and may this host go there?")
		default:
			l.add(Wrong, what, err.Error(), "write the right ones under "+what)
		}
	}
}
