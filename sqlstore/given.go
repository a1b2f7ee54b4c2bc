package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"modernc.org/sqlite"
)

// New is the store over db, a pool of the caller's own, which stays open when the
// store is closed. The dialect is "mysql" (MariaDB too), "postgres" or "sqlite",
// and the driver is go-sql-driver/mysql, pgx (its stdlib package; a pgxpool.Pool
// becomes a pool of this kind by stdlib.OpenDBFromPool) or modernc.org/sqlite,
// or something around one of them that hands its errors on.
//
// [Open] sets each connection up; here the caller does, and [Setup.Check] says
// what is missing, with the parameter to write. What Migrate and Check say of a
// SQLite file is said of the caller's.
func New(db *sql.DB, dialect string) (*Store, error) {
	s, err := newStore(dialect)
	if err != nil {
		return nil, err
	}
	s.db, s.given = db, true
	return s, nil
}

// OpenMemory returns an empty, migrated SQLite store in memory, for tests of
// programs that use the fence: it does all that the others do, and forgets
// everything when it is closed. [Setup.Check] refuses it, so that no program
// relies on it.
func OpenMemory(ctx context.Context) (*Store, error) {
	s, err := newStore("sqlite")
	if err != nil {
		return nil, err
	}
	// The name of a memdb file that begins with a slash is shared by all
	// connections of the process (memdb.c of the SQLite sources).
	query := url.Values{
		"vfs": {"memdb"}, "_txlock": {"immediate"}, "_busy_timeout": {fmt.Sprint(s.lockWait.Milliseconds())}, "_journal_mode": {"MEMORY"},
	}
	u := url.URL{Scheme: "file", Path: "/zabor-" + uuid.NewString(), RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, err
	}
	s.db = sql.OpenDB(connector)
	s.db.SetMaxOpenConns(sqliteConns)
	s.db.SetMaxIdleConns(sqliteConns)
	if s.alive, err = s.db.Conn(ctx); err == nil {
		err = s.Setup().Migrate(ctx)
	}
	if err != nil {
		s.db.Close()
		return nil, fmt.Errorf("open a fence in memory: %w", err)
	}
	return s, nil
}

// longestLockWait is how long a statement of a given pool may wait for another's
// lock: the server goes on waiting for it when the try has been given up.
const longestLockWait = defaultLockWait + tryMargin

// checkGiven looks at what [Open] would have set.
func (s *Store) checkGiven(ctx context.Context, found *problems) error {
	// Everything depends on reading the driver's codes.
	_, err := s.db.ExecContext(ctx, "SELECT 1 FROM zabor_there_is_no_such_table")
	if !s.NoTable(err) {
		return &Problem{
			Found: fmt.Sprintf("the errors of this pool's driver (%T) cannot be read as those of %s, so that a taken key would not be recognised", s.db.Driver(), s.dialect.name),
			Fix:   "give sqlstore.New the name of its database, and a pool of go-sql-driver/mysql, pgx or modernc.org/sqlite",
		}
	}
	if s.dialect.name != "mysql" {
		return nil
	}
	conn, err := s.db.Conn(ctx) // one session
	if err != nil {
		return err
	}
	defer conn.Close()
	var mode, isolation string
	var wait int64
	isolations, err := pairs(ctx, s.db, "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')")
	if err != nil {
		return err
	}
	for _, value := range isolations {
		isolation = value
	}
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.sql_mode, @@SESSION.innodb_lock_wait_timeout").Scan(&mode, &wait); err != nil {
		return err
	}
	if !strings.Contains(mode, "STRICT_ALL_TABLES") && !strings.Contains(mode, "STRICT_TRANS_TABLES") {
		found.add(nil, "put STRICT_ALL_TABLES into sql_mode, in the server's configuration or the pool's address", "the pool's sessions are not strict (sql_mode=%s): the server cuts what is too long", mode)
	}
	if isolation != "READ-COMMITTED" {
		found.add(nil, "put transaction_isolation=%27READ-COMMITTED%27 (MariaDB before 11.1: tx_isolation) into the pool's address", "the pool's sessions are %s: writers of different rows would wait for each other", isolation)
	}
	if limit := longestLockWait; time.Duration(wait)*time.Second > limit {
		found.add(nil, "put innodb_lock_wait_timeout=5 into the pool's address", "the pool's sessions wait %d s for a lock, and no call waits longer than %s", wait, limit)
	}
	result, err := conn.ExecContext(ctx, "UPDATE zabor_meta SET value = value WHERE name = ?", []byte(metaSecret))
	if err != nil {
		return nil // not migrated, or read-only: told by others
	}
	if n, err := result.RowsAffected(); err == nil && n == 0 {
		if _, there, err := s.Meta().Get(ctx, metaSecret); err == nil && there {
			found.add(nil, "put clientFoundRows=true into the pool's address", "the pool counts the rows that an update changed, and not those that it hit: a hook that changes nothing would fail")
		}
	}
	return nil
}
