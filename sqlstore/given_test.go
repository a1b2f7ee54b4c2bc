package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"zabor"
	"zabor/internal/servers"
	"zabor/zabortest"
)

// mysqlPool is a pool as an application opens it, with the given parameters.
func mysqlPool(t testing.TB, parameters string) *sql.DB {
	t.Helper()
	_, rest, _ := strings.Cut(servers.MariaDB(t), "@")
	host, name, _ := strings.Cut(rest, "/")
	return pool(t, "mysql", fmt.Sprintf("root@tcp(%s)/%s?%s", host, name, parameters))
}

// goodMySQL is what New asks of a pool; MariaDB's name of the isolation.
const goodMySQL = "clientFoundRows=true&innodb_lock_wait_timeout=5&tx_isolation=%27READ-COMMITTED%27"

func pool(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func pgxPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), servers.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func given(t testing.TB, db *sql.DB, dialect string) *Store {
	t.Helper()
	s, err := New(db, dialect)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := db.PingContext(context.Background()); err != nil {
			t.Errorf("the caller's pool was closed with the store: %v", err)
		}
	})
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// carried is a store and what carries a transaction of the caller's to it.
type carried struct {
	*Store
	begin func(*testing.T) zabortest.Transaction // nil: one of the store's own pool
}

// doors are the ways to a store in the caller's own program.
var doors = []struct {
	name string
	open func(t *testing.T) carried
}{
	{"mysql pool", func(t *testing.T) carried { return carried{Store: given(t, mysqlPool(t, goodMySQL), "mysql")} }},
	{"pgx pool", func(t *testing.T) carried {
		p := pgxPool(t)
		return carried{given(t, stdlib.OpenDBFromPool(p), "postgres"), nil}
	}},
	{"sqlite pool", func(t *testing.T) carried {
		return carried{Store: given(t, pool(t, "sqlite", "file:"+t.TempDir()+"/app.db?_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL"), "sqlite")}
	}},
	{"memory", func(t *testing.T) carried {
		s, err := OpenMemory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return carried{Store: s}
	}},
}

func TestStoreOfAGivenPool(t *testing.T) {
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			zabortest.Store(t, func(t *testing.T) zabor.Store { return d.open(t).Store })
		})
	}
}

func beginTx(s *Store) func(t *testing.T) zabortest.Transaction {
	return func(t *testing.T) zabortest.Transaction {
		t.Helper()
		tx, err := s.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() }) // ended already, unless the test failed
		return zabortest.Transaction{Insert: s.Tx(tx), Commit: tx.Commit, Rollback: tx.Rollback}
	}
}

func TestCaptureTx(t *testing.T) {
	all := doors
	for _, d := range databases {
		all = append(all, struct {
			name string
			open func(t *testing.T) carried
		}{d.name, func(t *testing.T) carried { return carried{Store: migrated(t, d.address(t))} }})
	}
	all = append(all, struct {
		name string
		open func(t *testing.T) carried
	}{"pgx transaction", func(t *testing.T) carried {
		p := pgxPool(t)
		s := given(t, stdlib.OpenDBFromPool(p), "postgres")
		return carried{s, func(t *testing.T) zabortest.Transaction {
			t.Helper()
			ctx := context.WithoutCancel(t.Context())
			tx, err := p.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return zabortest.Transaction{
				Insert: s.PgxTx(tx),
				Commit: func() error { return tx.Commit(ctx) }, Rollback: func() error { return tx.Rollback(ctx) },
			}
		}}
	}})
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			zabortest.CaptureTx(t, func(t *testing.T) (zabor.Store, func(*testing.T) zabortest.Transaction) {
				c := d.open(t)
				if c.begin == nil {
					c.begin = beginTx(c.Store)
				}
				return c.Store, c.begin
			})
		})
	}
}

// The caller's own row and the fence's are committed together, or neither is.
func TestTheCallersRowRidesAlong(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store) {
		mustExec(t, s.DB(), "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
		fence := &zabor.Fence{Store: s, Secret: make([]byte, zabor.MinSecret)}
		for order, commit := range map[string]bool{"1": true, "2": false} {
			tx, err := s.DB().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ("+order+")"); err != nil {
				t.Fatal(err)
			}
			e := txEffect(order)
			if _, err := fence.CaptureTx(t.Context(), s.Tx(tx), e); err != nil {
				t.Fatal(err)
			}
			// Twice in one transaction, and the transaction still works.
			again, err := fence.CaptureTx(t.Context(), s.Tx(tx), e)
			if err != nil || !again.Found {
				t.Fatalf("found %v, error %v", again.Found, err)
			}
			if commit {
				err = tx.Commit()
			} else {
				err = tx.Rollback()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var order, row string
		if err := s.DB().QueryRowContext(t.Context(), "SELECT id FROM orders").Scan(&order); err != nil {
			t.Fatal(err)
		}
		if err := s.DB().QueryRowContext(t.Context(), "SELECT order_id FROM zabor_fences ORDER BY order_id DESC").Scan(&row); err != nil {
			t.Fatal(err)
		}
		if order != "1" || row != "1" {
			t.Errorf("order %s and row %s, want those of order 1 alone", order, row)
		}
	})
}

func txEffect(order string) zabor.Effect {
	return zabor.Effect{
		Key: zabor.Key{Order: order, Step: "charge"}, Provider: "p", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"}, Timeout: 1e9, MaxAttempts: 1,
		Render:     func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("r"), nil },
		MissingRow: zabor.Captured,
	}
}

// A pool whose sessions are not as Open makes them is refused, with what to write.
func TestCheckOfAGivenPool(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parameters, want string
	}{
		"good":           {goodMySQL, ""},
		"rows changed":   {strings.Replace(goodMySQL, "clientFoundRows=true&", "", 1), "clientFoundRows=true"},
		"long lock wait": {strings.Replace(goodMySQL, "timeout=5", "timeout=50", 1), "innodb_lock_wait_timeout=5"},
		"isolation":      {strings.Replace(goodMySQL, "READ-COMMITTED", "REPEATABLE-READ", 1), "READ-COMMITTED"},
		"not strict":     {goodMySQL + "&sql_mode=%27%27", "STRICT_ALL_TABLES"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := given(t, mysqlPool(t, test.parameters), "mysql").Setup().Check(t.Context())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	t.Run("a driver that is another", func(t *testing.T) {
		t.Parallel()
		s, err := New(mysqlPool(t, goodMySQL), "postgres")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Setup().Check(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("error %v, want that the driver's errors cannot be read", err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s, err := OpenMemory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Setup().Check(t.Context()); err == nil {
			t.Error("a fence in memory passes")
		}
	})
	if _, err := New(nil, "oracle"); err == nil {
		t.Error("a database that there is not: no error")
	}
}

// What the callers' own tool runs is what Migrate runs.
func TestMigrationsForAnotherTool(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"mysql", "postgres", "sqlite"} {
		files, err := Migrations(dialect)
		if err != nil {
			t.Fatal(err)
		}
		found, err := fs.Glob(files, "*.sql")
		if err != nil || len(found) == 0 || found[0] != "00001_fence.sql" {
			t.Errorf("%s: %v, error %v", dialect, found, err)
		}
	}
	if _, err := Migrations("oracle"); err == nil {
		t.Error("a database that there is not: no error")
	}
	db := pool(t, "sqlite", "file:"+t.TempDir()+"/app.db?_journal_mode=WAL&_synchronous=FULL")
	files, err := Migrations("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, string(text)) // whole: the goose lines are comments
	}
	s, err := New(db, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Setup().AddSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Setup().Check(t.Context()); err != nil {
		t.Error(err)
	}
}
