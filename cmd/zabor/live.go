package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"zabor/doctor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/takeover"
	"zabor/provider"
	"zabor/sqlstore"
)

// What zabor config check --live asks servers: all that a start asks, all that
// zabor doctor asks them, whether every statement could run, and whether the
// providers take the credentials. Nothing is changed anywhere.

// liveStatus is how a check ended.
type liveStatus string

const (
	liveGood        liveStatus = "ok"
	liveWarning     liveStatus = "warning"
	liveWrong       liveStatus = "wrong"
	liveUnreachable liveStatus = "unreachable"
	liveUnchecked   liveStatus = "not checked"
)

// liveCheck is one thing that was asked; its JSON is documented.
type liveCheck struct {
	Status liveStatus `json:"status"`
	What   string     `json:"what"`  // such as queues.payments, steps.charge.load, providers.stripe
	Found  string     `json:"found"` // empty: as it should be
	Fix    string     `json:"fix"`
}

// liveChecks collects them.
type liveChecks struct {
	*program
	file  *config.Config
	store *sqlstore.Store
	list  []liveCheck
}

// add adds a check; an error of several lines becomes one.
func (l *liveChecks) add(status liveStatus, what, found, fix string) {
	l.list = append(l.list, liveCheck{status, what, strings.Join(strings.Fields(found), " "), fix})
}

// failed adds an error of a start's check, which knows whether a server was away.
func (l *liveChecks) failed(what string, err error) {
	status, hint := liveWrong, ""
	if f, ok := errors.AsType[*exit.Error](err); ok {
		hint = f.Hint
		if f.Code == exit.NotReached {
			status = liveUnreachable
		}
	}
	for line := range strings.Lines(err.Error()) {
		l.add(status, what, strings.TrimSpace(line), hint)
	}
}

// live asks all servers of file.
func (p *program) live(file *config.Config, store *sqlstore.Store, queues []connect.Queue, providers connect.Providers) ([]liveCheck, error) {
	l := &liveChecks{program: p, file: file, store: store}
	// A file that is not there yet is no server that is away; nothing that is kept
	// in it can be asked.
	if missing, ok := errors.AsType[*sqlstore.Problem](store.Setup().Exists(p.ctx)); ok {
		l.add(liveWrong, "fence", missing.Found, missing.Fix+"; the rest is asked then")
		return l.list, nil
	}
	if err := l.servers(); err != nil {
		return nil, err
	}
	l.tables(queues)
	l.keys(queues)
	l.journal()
	if err := l.statements(); err != nil {
		return nil, err
	}
	for _, q := range queues {
		l.queue(q)
	}
	l.providers(providers)
	return l.list, nil
}

// servers asks what zabor doctor does of the servers that the file names.
func (l *liveChecks) servers() error {
	var servers doctorServers
	defer servers.close()
	if err := servers.file(l.file); err != nil {
		return err
	}
	for _, one := range servers.redis {
		l.server(one.Where, func(ctx context.Context) ([]doctor.Finding, error) { return doctor.ExamineRedis(ctx, one) })
	}
	for _, one := range servers.databases {
		l.server(one.where, func(ctx context.Context) ([]doctor.Finding, error) { return one.examine(ctx, nil) })
	}
	return nil
}

func (l *liveChecks) server(where string, examine func(context.Context) ([]doctor.Finding, error)) {
	ctx, cancel := context.WithTimeout(l.ctx, doctorWait)
	defer cancel()
	findings, err := examine(ctx)
	for _, f := range findings {
		status := liveWarning
		// Zabor's own consumers have names of their own, and whether one of PHP's still
		// lives is asked by itself: the dead one's entries keep its name in the group.
		if f.Severity == doctor.Error && f.Code != "ZB140" {
			status = liveWrong
		}
		l.add(status, f.Where, f.Code+": "+f.Found, f.Fix)
	}
	switch {
	case err != nil:
		l.add(liveUnreachable, where, err.Error(), "is the server up, and is its address right?")
	case len(findings) == 0:
		l.add(liveGood, where, "", "")
	}
}

// tables asks whether the fence's tables and the failure transports may be used.
func (l *liveChecks) tables(queues []connect.Queue) {
	for _, t := range sqlstore.Tables() {
		l.table("fence", l.store, t, "zabor migrate")
	}
	for _, q := range queues {
		t, what := failedTable(l.file.Queues[q.Name()]), "queues."+q.Name()+".failed"
		if t.Name != "" {
			l.table(what, q.FailedIn, t, "make it as the framework does (php artisan queue:failed-table and migrate; messenger:setup-transports), or name it under "+what)
		}
	}
}

// failedTable is a queue's table of what has failed; without a name: it has none.
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

// keys asks whether keys are made as those of the rows that are there.
func (l *liveChecks) keys(queues []connect.Queue) {
	if _, err := l.checkKeys(l.installation(l.file, l.store, queues), false); err != nil {
		l.failed("steps", err)
		return
	}
	l.add(liveGood, "steps", "", "")
}

// journal asks whether this user may write the journal's folder, or make it.
func (l *liveChecks) journal() {
	if l.file.Journal == "" {
		return
	}
	const fix = "make the folder writable for the user of the worker, or write another one under journal:"
	at := filepath.Clean(l.file.Journal)
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	switch {
	case err != nil:
		l.add(liveWrong, "journal", err.Error(), fix)
	case !info.IsDir():
		l.add(liveWrong, "journal", at+" is no folder", fix)
	case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		l.add(liveWrong, "journal", "this user may not write "+at, fix)
	default:
		l.add(liveGood, "journal", "", "")
	}
}

func (l *liveChecks) table(what string, store *sqlstore.Store, t sqlstore.Table, make string) {
	ctx, cancel := context.WithTimeout(l.ctx, doctorWait)
	defer cancel()
	lacks, err := store.Setup().Lacks(ctx, t)
	what += ", table " + t.Name
	switch {
	case errors.Is(err, sqlstore.ErrNoTable):
		l.add(liveWrong, what, err.Error(), make)
	case err != nil:
		l.add(liveUnreachable, what, err.Error(), "is the server up, and is its address right?")
	case len(lacks) > 0:
		l.add(liveWrong, what, "this user may not "+strings.Join(lacks, ", "), "GRANT "+strings.Join(lacks, ", ")+" ON "+t.Name)
	default:
		l.add(liveGood, what, "", "")
	}
}

// statements lets the databases look at the SQL of all steps.
func (l *liveChecks) statements() error {
	databases := connect.NewDatabases(l.file, l.store)
	defer databases.Close()
	application, err := databases.At("", "database")
	if err != nil {
		return err
	}
	for _, s := range l.file.Compiled() {
		for _, one := range s.SQL() {
			on := l.store
			if one.Field == "load" {
				on = application
			}
			ctx, cancel := context.WithTimeout(l.ctx, doctorWait)
			err := on.Setup().Prepare(ctx, one.Query, one.Parameters)
			cancel()
			what := "steps." + s.Name() + "." + one.Field
			switch {
			case err == nil:
				l.add(liveGood, what, "", "")
			case on.Unreachable(err):
				l.add(liveUnreachable, what, err.Error(), "is the server up, and is its address right?")
			default:
				f := l.file.Finding(what, err.Error(), "")
				l.add(liveWrong, what, fmt.Sprintf("%s:%d: %v", f.File, f.Line, err), "mend the statement, or let this user run it")
			}
		}
	}
	return nil
}

// queue asks what a start asks of a queue.
func (l *liveChecks) queue(q connect.Queue) {
	what := "queues." + q.Name()
	before := len(l.list)
	told := &gatherer{told: func(text, fix string) { l.add(liveWarning, what, text, fix) }}
	quiet := *l.program
	quiet.log = slog.New(told)
	ctx, cancel := context.WithTimeout(l.ctx, doctorWait)
	defer cancel()
	for err := range quiet.checkQueue(ctx, q, false) {
		l.failed(what, err)
	}
	if c := q.Config; c != nil && q.Redis.Exists(ctx, c.Stream).Val() == 0 {
		l.add(liveWarning, what, "there is no stream "+c.Stream+" yet", "nothing, if the application has not sent anything to it; else it sends somewhere else")
	}
	if m, err := takeover.ReadMarker(ctx, l.file.Scope, l.store, q); err == nil && len(m.New(l.file.Compiled())) > 0 {
		found := "zabor has never taken from it"
		if m.Owned() {
			found = "zabor has not taken " + strings.Join(m.New(l.file.Compiled()), ", ") + " from it so far"
		}
		l.add(liveWarning, what, found, "zabor peek "+q.Name()+", then "+takeover.ImportCommand(l.file.Path, q)+" --dry-run; it is left out here whether anybody has had its messages")
	}
	if len(l.list) == before {
		l.add(liveGood, what, "", "")
	}
}

// providers asks whether they take the credentials.
func (l *liveChecks) providers(all connect.Providers) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		what := "providers." + name
		switch err := all[name].Probe(l.ctx); {
		case err == nil:
			l.add(liveGood, what, "", "")
		case errors.Is(err, provider.ErrNoProbe):
			l.add(liveUnchecked, what, err.Error(), "make one small charge, and refund it")
		case errors.Is(err, provider.ErrUnreached):
			l.add(liveUnreachable, what, err.Error(), "is its address right, and may this host go there?")
		default:
			l.add(liveWrong, what, err.Error(), "write the right ones under "+what)
		}
	}
}

// gatherer is told of the warnings that a start would log.
type gatherer struct{ told func(text, fix string) }

func (g *gatherer) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (g *gatherer) WithAttrs([]slog.Attr) slog.Handler               { return g }
func (g *gatherer) WithGroup(string) slog.Handler                    { return g }

func (g *gatherer) Handle(_ context.Context, r slog.Record) error {
	text, fix := r.Message, ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "queue":
		case "fix":
			fix = a.Value.String()
		default:
			text += fmt.Sprintf(" (%s %v)", a.Key, a.Value)
		}
		return true
	})
	g.told(text, fix)
	return nil
}

// printLive prints the checks, those that want something last.
func printLive(to io.Writer, list []liveCheck) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, c := range list {
		if c.Status == liveGood {
			fmt.Fprintf(w, "%s\t%s\n", c.Status, c.What)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range list {
		if c.Status == liveGood {
			continue
		}
		fmt.Fprintf(to, "%s  %s: %s\n", c.Status, c.What, console.Printable(c.Found))
		if c.Fix != "" {
			fmt.Fprintf(to, "    %s\n", console.Printable(c.Fix))
		}
	}
	return nil
}

// liveError is the exit of the checks.
func liveError(list []liveCheck) error {
	n := map[liveStatus]int{}
	for _, c := range list {
		n[c.Status]++
	}
	switch {
	case n[liveUnreachable] > 0:
		return exit.Unreachable(fmt.Errorf("%d checks could not be made, since a server was not reached; %d found something wrong", n[liveUnreachable], n[liveWrong]), "what is said of the others is true; nothing was changed")
	case n[liveWrong] > 0:
		return exit.Bad(fmt.Errorf("%d checks found something wrong; nothing was changed", n[liveWrong]), "")
	}
	return nil
}
