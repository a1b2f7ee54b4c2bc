package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Scratch is a place beside a fence, on the same server, for tables that are
// thrown away: a database of MySQL or MariaDB, a schema of PostgreSQL, a folder
// beside SQLite's file. Nothing in it touches the fence's own tables, which have
// the same names elsewhere.
type Scratch struct {
	Address string // of a [Store] in it

	name   string
	d      scratchDialect
	db     *sql.DB   // at the fence's address; SQLite: nil
	lock   *sql.Conn // holds the place while it is open
	folder string    // SQLite's
	file   *os.File  // SQLite's lock
}

// ErrScratchTaken says that another program is using the place now.
var ErrScratchTaken = errors.New("another program is using it now: wait for its end")

// scratchMark is the table, or the file, that tells a scratch place from one that
// somebody else has made under its name.
const scratchMark = "zabor_scratch"

// scratchDialect is what one database does in its own way.
type scratchDialect struct {
	what           string // it is called there
	lock           string // whether the name is ours, until the connection ends
	tables         string // names of the tables in it
	there          string // how many there are of it
	create, remove string
	grant          string
	markTable      string
}

func scratchMySQL(name, database string) scratchDialect {
	return scratchDialect{
		what:      "database",
		lock:      "SELECT GET_LOCK('" + scratchMark + "_" + name + "', 0)",
		tables:    "SELECT table_name FROM information_schema.tables WHERE table_schema = '" + name + "'",
		there:     "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '" + name + "'",
		create:    "CREATE DATABASE " + name,
		remove:    "DROP DATABASE " + name,
		grant:     "GRANT ALL ON `" + strings.ReplaceAll(name, "_", `\_`) + "`.* TO the user of " + database,
		markTable: name + "." + scratchMark,
	}
}

func scratchPostgres(name, database string) scratchDialect {
	return scratchDialect{
		what:      "schema",
		lock:      "SELECT pg_try_advisory_lock(hashtext('" + scratchMark + "'), hashtext('" + name + "'))",
		tables:    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('" + name + "') AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f')",
		there:     "SELECT COUNT(*) FROM pg_namespace WHERE nspname = '" + name + "'",
		create:    "CREATE SCHEMA " + name,
		remove:    "DROP SCHEMA " + name + " CASCADE",
		grant:     "GRANT CREATE ON DATABASE " + database + " TO the user of its address",
		markTable: name + "." + scratchMark,
	}
}

// OpenScratch makes an empty place of the given name beside the fence at address,
// and holds it until it is removed or this program ends. The name is of small
// letters and underscores. What an earlier program has left under it is removed
// first; a place that this function has not made is an error and is not touched.
// The error is a [*Problem] where the place may not be made, names
// [ErrScratchTaken] while another holds it, and [ErrUnreachable] where no
// connection could be made.
func OpenScratch(ctx context.Context, address, name string) (*Scratch, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if a.dialect == "sqlite" {
		return openScratchFolder(a, name)
	}
	_, rest, _ := strings.Cut(address, ":")
	u, err := url.Parse(a.dialect + ":" + rest)
	if err != nil {
		return nil, errors.New("fence address: not an address") // parseAddress has read it
	}
	store, err := Open(address)
	if err != nil {
		return nil, err
	}
	s := &Scratch{name: name, db: store.db}
	if a.dialect == "mysql" {
		s.d = scratchMySQL(name, a.database)
		u.Path = "/" + name
	} else {
		s.d = scratchPostgres(name, strings.Trim(u.Path, "/"))
		query := u.Query()
		query.Set("search_path", name)
		u.RawQuery = query.Encode()
	}
	s.Address = u.String()
	if err := s.open(ctx, store); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Scratch) open(ctx context.Context, store *Store) error {
	if err := store.reachable(ctx); err != nil {
		return err
	}
	var err error
	if s.lock, err = s.db.Conn(ctx); err != nil {
		return fmt.Errorf("%w (%w)", ErrUnreachable, err)
	}
	if err := s.hold(ctx); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	if err := s.make(ctx); err != nil {
		return s.refused("make", store, err)
	}
	return s.checkAddress(ctx)
}

// takenWait is how long a server may need to see that the program that held a place
// was killed.
const takenWait = 2 * time.Second

// hold takes the lock of the place for this program.
func (s *Scratch) hold(ctx context.Context) error {
	for start := time.Now(); ; {
		var ours sql.NullBool
		if err := s.lock.QueryRowContext(ctx, s.d.lock).Scan(&ours); err != nil {
			return fmt.Errorf("hold the %s %s: %w", s.d.what, s.name, err)
		}
		if ours.Bool {
			return nil
		}
		if time.Since(start) > takenWait {
			return fmt.Errorf("the %s %s: %w", s.d.what, s.name, ErrScratchTaken)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// make makes the place with its mark: both or neither, except on MySQL, where a
// program that dies between the two leaves an empty database that is nobody's.
func (s *Scratch) make(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of nothing, once it is committed
	for _, statement := range []string{s.d.create, "CREATE TABLE " + s.d.markTable + " (id INTEGER NOT NULL PRIMARY KEY)"} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// clear removes the place, if it is one that this package has made. One without
// the mark is not, and an empty one least of all: what is in it that is no table
// (functions, types, grants) would go with it.
func (s *Scratch) clear(ctx context.Context) error {
	var there int
	if err := s.db.QueryRowContext(ctx, s.d.there).Scan(&there); err != nil {
		return fmt.Errorf("look for the %s %s: %w", s.d.what, s.name, err)
	}
	if there == 0 {
		return nil
	}
	rows, err := s.db.QueryContext(ctx, s.d.tables)
	if err != nil {
		return fmt.Errorf("look into the %s %s: %w", s.d.what, s.name, err)
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look into the %s %s: %w", s.d.what, s.name, err)
	}
	if !slices.Contains(tables, scratchMark) {
		what := "without tables"
		if len(tables) > 0 {
			what = "with tables of somebody else's (" + tables[0] + ", …)"
		}
		return &Problem{Found: fmt.Sprintf("there is a %s %s that zabor has not made, %s", s.d.what, s.name, what), Fix: "it was not touched; rename it, or if nobody needs it: " + s.d.remove}
	}
	if _, err := s.db.ExecContext(ctx, s.d.remove); err != nil {
		return fmt.Errorf("remove the %s %s: %w", s.d.what, s.name, err)
	}
	return nil
}

func (s *Scratch) refused(what string, store *Store, err error) error {
	if store.dialect.judge(err) == refused {
		return &Problem{Found: fmt.Sprintf("this user may not %s the %s %s (%v)", what, s.d.what, s.name, err), Fix: s.d.grant + ", or give another address"}
	}
	return fmt.Errorf("%s the %s %s: %w", what, s.d.what, s.name, err)
}

// checkAddress looks that Address leads into the place: nothing must be written
// elsewhere.
func (s *Scratch) checkAddress(ctx context.Context) error {
	store, err := Open(s.Address)
	if err != nil {
		return err
	}
	defer store.Close()
	query := "SELECT COALESCE(current_schema(), '')"
	if store.dialect.name == "mysql" {
		query = "SELECT COALESCE(DATABASE(), '')"
	}
	var at string
	if err := store.db.QueryRowContext(ctx, query).Scan(&at); err != nil {
		return err
	}
	if at != s.name {
		return &Problem{Found: fmt.Sprintf("a connection that asks for the %s %s gets %q", s.d.what, s.name, at), Fix: "give the server's own address: a pooler in between changes it"}
	}
	return nil
}

// Remove removes the place with all that is in it.
func (s *Scratch) Remove() error {
	defer s.close()
	if s.folder != "" {
		return os.RemoveAll(s.folder)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.clear(ctx)
}

func (s *Scratch) close() {
	if s.lock != nil {
		s.lock.Close()
	}
	if s.db != nil {
		s.db.Close()
	}
	if s.file != nil {
		s.file.Close()
	}
}

// openScratchFolder is OpenScratch beside a SQLite file.
func openScratchFolder(a address, name string) (*Scratch, error) {
	file, err := filepath.Abs(a.database)
	if err != nil {
		return nil, fmt.Errorf("fence address: %w", err)
	}
	s := &Scratch{name: name, folder: filepath.Join(filepath.Dir(file), name)}
	mark := filepath.Join(s.folder, scratchMark)
	made := os.Mkdir(s.folder, 0o700)
	if made != nil && !errors.Is(made, os.ErrExist) {
		return nil, &Problem{Found: fmt.Sprintf("the folder %s cannot be made (%v)", s.folder, made), Fix: "let this user write the folder of the fence's file"}
	}
	there, err := os.ReadDir(s.folder)
	if err != nil {
		return nil, err
	}
	if made != nil && !slices.ContainsFunc(there, func(e os.DirEntry) bool { return e.Name() == scratchMark }) {
		return nil, &Problem{Found: fmt.Sprintf("there is a folder %s that zabor has not made", s.folder), Fix: "it was not touched; rename it, or remove it if nobody needs it"}
	}
	if s.file, err = os.OpenFile(mark, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(s.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		s.close()
		return nil, fmt.Errorf("the folder %s: %w", s.folder, ErrScratchTaken)
	}
	for _, e := range there {
		if e.Name() == scratchMark {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.folder, e.Name())); err != nil {
			s.close()
			return nil, err
		}
	}
	s.Address = (&url.URL{Scheme: "sqlite", Path: filepath.Join(s.folder, "fence.db")}).String()
	return s, nil
}
