package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Version is what this program knows of the table's protocol. A min_version
// above it in the meta table keeps the program away, so that old versions can be
// drained before a new one writes what they do not understand.
const Version = 1

// Problem is one reason not to start on this database.
type Problem struct {
	Found string // what is there
	Fix   string // what to do
	Err   error  // what to branch on; may be nil
}

func (p *Problem) Error() string { return p.Found + ": " + p.Fix }

func (p *Problem) Unwrap() error { return p.Err }

func isProblem(err error) bool {
	_, ok := errors.AsType[*Problem](err)
	return ok
}

// problems collects findings.
type problems []error

func (p *problems) add(err error, fix, found string, args ...any) {
	*p = append(*p, &Problem{Found: fmt.Sprintf(found, args...), Fix: fix, Err: err})
}

// Check looks at the server before anything relies on it: that it takes writes
// and keeps what it has committed, and that the fence's tables are there and of
// a shape in which a key can be there only once. The error is [ErrUnreachable],
// or joins every [*Problem] that was found; nothing was changed.
func (s Setup) Check(ctx context.Context) error {
	if err := s.s.reachable(ctx); err != nil {
		return err
	}
	var found problems
	if s.s.given {
		if err := s.s.checkGiven(ctx, &found); isProblem(err) {
			return err
		} else if err != nil {
			return s.s.uncheckable(err)
		}
	}
	if err := s.s.dialect.check(ctx, s.s.db, &found); err != nil {
		return s.s.uncheckable(err)
	}
	for _, p := range found {
		if errors.Is(p, ErrNotMigrated) {
			return errors.Join(found...)
		}
	}
	if err := s.s.checkVersion(ctx, &found); err != nil {
		return s.s.uncheckable(err)
	}
	if err := s.s.checkKeys(ctx, &found); err != nil {
		return s.s.uncheckable(err)
	}
	var unusable *Problem
	if _, err := s.s.Setup().Secret(ctx); errors.As(err, &unusable) {
		found = append(found, unusable)
	} else if err != nil {
		return s.s.uncheckable(err)
	}
	return errors.Join(found...)
}

// Exists reports a file of SQLite that is not there, as a [*Problem] that is
// [ErrNotMigrated], and a server that cannot be reached. It asks nothing else.
func (s Setup) Exists(ctx context.Context) error { return s.s.reachable(ctx) }

func (s *Store) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.lockWait+tryMargin)
	defer cancel()
	if err := s.db.PingContext(ctx); err != nil {
		if s.file != "" && s.dialect.judge(err) == missing {
			return &Problem{Found: fmt.Sprintf("there is no database file %s, or it cannot be opened", s.file), Fix: `run "zabor migrate"`, Err: ErrNotMigrated}
		}
		return fmt.Errorf("%w (%w)", ErrUnreachable, err)
	}
	return nil
}

// Unreachable reports whether err, of a statement on s, says that the server is
// away, or says nothing.
func (s *Store) Unreachable(err error) bool { return s.dialect.judge(err) == unknown }

// Pooled reports whether err is that of a pooler before PostgreSQL which takes a
// parameter of the session away, or gives the session's statements to several servers.
func Pooled(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "08P01" || e.Code == "42P05" || e.Code == "26000")
}

// uncheckable is the error of a server that went away, or refused to tell.
func (s *Store) uncheckable(err error) error {
	if s.dialect.judge(err) == unknown {
		return fmt.Errorf("%w (%w)", ErrUnreachable, err)
	}
	return fmt.Errorf("check the fence's database: %w", err)
}

func (s *Store) checkVersion(ctx context.Context, found *problems) error {
	value, ok, err := s.Meta().Get(ctx, metaMinVersion)
	if err != nil || !ok {
		return err
	}
	least, err := strconv.Atoi(string(value))
	if err != nil {
		found.add(nil, "set it to a number", "min_version in zabor_meta is %q", value)
	} else if least > Version {
		found.add(nil, "install the newer version here too", "the fence's table asks for protocol version %d, and this program knows %d", least, Version)
	}
	return nil
}

// tables lists what must be there.
func tables() []string {
	return []string{"zabor_fences", "zabor_meta", "zabor_notes", "zabor_processes", "zabor_references", "zabor_unreadable"}
}

// checkTables compares what is there with what must be.
func checkTables(there []string, found *problems) {
	var absent []string
	for _, name := range tables() {
		if !slices.Contains(there, name) {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		found.add(ErrNotMigrated, `run "zabor migrate"`, "no table %s", strings.Join(absent, ", "))
	}
}

// uniqueKeys holds the columns of each unique index of zabor_fences that counts.
type uniqueKeys map[string][]string

// checkKey demands one unique index over exactly the key.
func checkKey(keys uniqueKeys, found *problems) {
	for _, columns := range keys {
		slices.Sort(columns)
		if slices.Equal(columns, []string{"order_id", "scope", "step"}) {
			return
		}
	}
	found.add(nil, "make (scope, order_id, step) its primary key; until then one order may be charged twice",
		"zabor_fences has no primary or unique key over exactly scope, order_id and step, all whole and not null")
}
