// Package sqlstore keeps the fence's rows in MySQL or MariaDB, PostgreSQL or
// SQLite. There is one [Store]; the databases differ in a few strings and codes,
// which are in mysql.go, postgres.go and sqlite.go.
//
// No error is judged by its text. Where a connection is lost, it is not known
// whether the statement was committed; then the same statement is sent again, on
// another connection, and the claim in the row tells whose write is there.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"

	"zabor"
	"zabor/seal"
)

var _ zabor.Store = (*Store)(nil)

// What callers branch on, with errors.Is.
var (
	// ErrReadOnly: the server takes no writes: a replica, or a primary that was
	// demoted. Nothing was written by the statement that met it.
	ErrReadOnly = errors.New("the database server is read-only: give the address of the primary")
	// ErrNotMigrated: a table of the fence is missing.
	ErrNotMigrated = errors.New(`the fence's tables are missing or incomplete: run "zabor migrate"`)
	// ErrUnreachable: no connection to the server could be made.
	ErrUnreachable = errors.New("the fence's database cannot be reached")
)

// Bounds of one operation. A statement that waits for another's lock ends by
// itself after lockWait; the time of a try is above that, so that a try that
// runs out of time means a connection that is dead.
const (
	defaultLockWait = 5 * time.Second
	tryMargin       = 5 * time.Second
	maxTries        = 6
	maxConns        = 16
)

// Store is the fence's table in one database. It may be used concurrently.
type Store struct {
	db       *sql.DB
	dialect  *dialect
	text     statements
	lockWait time.Duration
	file     string     // SQLite's, where Open was given it; empty otherwise
	given    bool       // db is the caller's: its sessions are checked and not set, and Close leaves it open
	servers  *oneServer // of its connections; nil: SQLite, or db is the caller's
	alive    *sql.Conn  // keeps a database in memory; nil: it is somewhere else
	keys     *seal.Keys

	prepared sync.Map    // SQL text to *sql.Stmt
	waits    atomic.Bool // the server knows no SKIP LOCKED

	line gathering // writes that wait to share a commit
}

// dialect is what one database does in its own way.
type dialect struct {
	name                   string
	now                    string                                           // microseconds since 1970 by the database's clock, when the statement runs
	greatest               string                                           // the function that returns the greater of two numbers
	lock                   string                                           // what makes a SELECT wait for writers; SQLite: the transaction does
	skip                   string                                           // what makes it lock, and leave out what another has locked; SQLite: it waits for the one writer
	after                  func(k zabor.Key) (condition string, args []any) // the key is after k
	setMeta                string                                           // what makes an INSERT into zabor_meta overwrite
	none                   string                                           // the empty binary text
	recent                 string                                           // behind the table's name: the index of captures is used, whatever the planner takes the table for
	div                    string                                           // the operator that divides whole numbers into whole ones
	pipelined              bool                                             // many statements may be sent before the first is answered
	manyValues, manyCases  bool                                             // one INSERT, and one UPDATE by CASE, may write many rows
	insertNew, elseNothing string                                           // before and behind an INSERT that passes over a duplicate
	numbered               bool                                             // placeholders are $1, $2 … instead of ?

	judge    func(error) fault                                // by the driver's code
	mistaken func(context.Context, *sql.Tx) error             // what is wrong with the statement before although it ran; nil: that cannot be
	batch    func(context.Context, *Store, []statement) error // runs all, or none where one misses
	check    func(context.Context, *sql.DB, *problems) error
	goose    goose.Dialect
	alone    string // waits until no other migration runs, and says whether; empty: a migration is one transaction
	together string // the end of it

	// For [MigrationSQL]: goose's table of versions, true in it, and the row of the
	// secret as expressions.
	versions, yes           string
	secretName, secretBytes string
}

// fault is what the code of an error says about the statement that met it.
type fault uint8

const (
	unknown   fault = iota // it may have been committed, or may be if it is sent again
	duplicate              // the key, of this table, is there
	readOnly               // the server takes no writes
	missing                // no such table
	unfit                  // the server refuses a value, or so long a statement
	refused                // the server refuses it, now and when it is sent again
)

// Open returns the store at address. It makes no connection yet: [Setup.Check]
// does. The address is one of
//
//	mysql://user:password@host:3306/database     also mariadb, mysqli, pdo-mysql
//	postgres://user:password@host:5432/database  also postgresql, pgsql, pdo-pgsql
//	sqlite:///absolute/path.db, sqlite:relative.db
//
// with the parameters that Doctrine writes (serverVersion and charset say nothing
// to zabor and are passed over; unix_socket, sslmode), tls for MySQL (true,
// skip-verify, preferred), every parameter of libpq for PostgreSQL, and
// lock_wait: how long a statement waits for another's lock, 1s to 60s, 5s where
// it is not given. It should be below the shortest time-out of a call. The
// address must lead to the server itself, not to a pooler that changes sessions
// between statements. An error never holds the address's password.
func Open(address string) (*Store, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	s, err := newStore(a.dialect)
	if err != nil {
		return nil, err
	}
	s.lockWait = a.lockWait
	var one *oneServer
	switch a.dialect {
	case "mysql":
		one, err = openMySQL(a)
	case "postgres":
		one, err = openPostgres(a)
	default:
		s.db, s.file, err = openSQLite(a)
	}
	if err != nil {
		return nil, err
	}
	if one != nil {
		s.pool(one)
	}
	return s, nil
}

// newStore is a store without connections.
func newStore(dialectName string) (*Store, error) {
	d, err := dialectNamed(dialectName)
	if err != nil {
		return nil, err
	}
	s := &Store{dialect: d, text: newStatements(d), lockWait: defaultLockWait}
	return s, nil
}

func dialectNamed(name string) (*dialect, error) {
	switch name {
	case "mysql":
		return mysqlDialect(), nil
	case "postgres":
		return postgresDialect(), nil
	case "sqlite":
		return sqliteDialect(), nil
	}
	return nil, fmt.Errorf("no database is called %q: mysql, postgres or sqlite", name)
}

// Close ends all connections, except those of a pool that was given to [New]. A
// write that is under way may or may not be committed.
func (s *Store) Close() error {
	if s.given {
		var errs []error
		s.prepared.Range(func(query, statement any) bool {
			s.prepared.Delete(query)
			errs = append(errs, statement.(*sql.Stmt).Close())
			return true
		})
		return errors.Join(errs...)
	}
	if s.alive != nil {
		return errors.Join(s.alive.Close(), s.db.Close())
	}
	return s.db.Close()
}

// DB is the pool of connections, for SQL that rides along.
func (s *Store) DB() *sql.DB { return s.db }

// NoTable reports whether err is the database's answer that a table does not exist.
func (s *Store) NoTable(err error) bool {
	if err != nil && s.dialect.name == "sqlite" { // which has no code of its own for it
		return strings.Contains(err.Error(), "no such table")
	}
	return s.dialect.judge(err) == missing
}

// Dialect is "mysql" (MariaDB too), "postgres" or "sqlite".
func (s *Store) Dialect() string { return s.dialect.name }

// repeat runs try until it ends well or sending it again is of no use, a bounded
// number of times. Every statement of this package may be repeated: inserts have
// a key and updates a claim, so a repeat of one that was committed changes
// nothing. That is also why the silent retries of database/sql do no harm.
func (s *Store) repeat(ctx context.Context, try func(context.Context) error) error {
	limit := s.lockWait + tryMargin
	start := time.Now()
	pause := 10 * time.Millisecond
	for n := 1; ; n++ {
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		err := try(tryCtx)
		cancel()
		if err == nil {
			return nil
		}
		fault := s.dialect.judge(err)
		switch {
		case isHook(err) && (fault != unknown || n == hookTries):
			return err // its own; a deadlock may not come again
		case isHook(err):
		case fault == readOnly:
			return fmt.Errorf("%w (%w)", ErrReadOnly, err)
		case fault == missing:
			return fmt.Errorf("%w (%w)", ErrNotMigrated, err)
		case fault == unfit:
			return fmt.Errorf("%w (%w)", zabor.ErrUnfit, err)
		case fault == refused:
			return err
		}
		if final(err) || ctx.Err() != nil || n == maxTries || time.Since(start) > 2*limit {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause + rand.N(pause)):
		}
		pause *= 2
	}
}

// hookTries bounds how often a hook is tried in one write.
const hookTries = 3

func isHook(err error) bool {
	_, ok := errors.AsType[*zabor.HookError](err)
	return ok
}

// final reports whether err is this package's own answer rather than a failure.
func final(err error) bool {
	return errors.Is(err, zabor.ErrNoRow) || errors.Is(err, zabor.ErrStale) || errors.Is(err, zabor.ErrUnfit)
}

// finish is ctx without its cancelling, but with its deadline. A write that was
// sent is found out, although whoever asked for it is being stopped: an insert
// left unknown would be a doubt about a call that nobody made.
func finish(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// statement is query prepared. The driver prepares it again on each connection.
func (s *Store) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := s.prepared.Load(query); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	kept, there := s.prepared.LoadOrStore(query, st)
	if there {
		err = st.Close() //nolint:sqlclosecheck // another goroutine was faster: this one is not needed
	}
	return kept.(*sql.Stmt), err
}

// exec runs one statement in a transaction of its own and returns how many rows
// it hit.
func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	st, err := s.statement(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// write sends an insert beside the fence, again where its outcome is not known.
// A row that is there already is no error: an earlier try's, or as good.
func (s *Store) write(ctx context.Context, query string, args ...any) error {
	return s.repeat(ctx, func(ctx context.Context) error {
		_, err := s.exec(ctx, query, args...)
		if s.dialect.judge(err) == duplicate {
			return nil
		}
		return err
	})
}

// query runs a SELECT and passes each row to scan.
func (s *Store) query(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	st, err := s.statement(ctx, query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
