package step

import (
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"reflect"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"zabor/internal/servers"
	"zabor/provider"
)

func TestMain(m *testing.M) { servers.Main(m) }

// database is an empty database of the test's own.
func database(t *testing.T, dialect Dialect) *sql.DB {
	t.Helper()
	var driver, dsn string
	switch dialect {
	case MySQL:
		u, err := url.Parse(servers.MariaDB(t))
		if err != nil {
			t.Fatal(err)
		}
		driver, dsn = "mysql", "root@tcp("+u.Host+")"+u.Path
	case Postgres:
		driver, dsn = "pgx", servers.Postgres(t)
	case SQLite:
		driver, dsn = "sqlite", filepath.Join(t.TempDir(), "shop.db")
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// eachDatabase runs test on each database, with a table of orders whose ids are
// numbers, and one whose ids are texts.
func eachDatabase(t *testing.T, test func(t *testing.T, db *sql.DB, dialect Dialect)) {
	types := map[Dialect][3]string{ // of an int id, of a text id, of a time
		MySQL:    {"BIGINT", "VARCHAR(64)", "DATETIME(6)"},
		Postgres: {"BIGINT", "TEXT", "TIMESTAMP"},
		SQLite:   {"INTEGER", "TEXT", "TEXT"},
	}
	for _, dialect := range []Dialect{MySQL, Postgres, SQLite} {
		t.Run(string(dialect), func(t *testing.T) {
			db, ty := database(t, dialect), types[dialect]
			exec(t, db,
				"CREATE TABLE orders (id "+ty[0]+" PRIMARY KEY, total DECIMAL(12,2), cents INTEGER, currency VARCHAR(3), made "+ty[2]+", note VARCHAR(20))",
				"INSERT INTO orders VALUES (7, 19.99, 1999, 'EUR', '2026-03-02 10:00:00', NULL)",
				"INSERT INTO orders VALUES (900719925474099312, 1000000.00, 100000000, 'EUR', '2026-03-02 10:00:00', 'x')",
				"CREATE TABLE texts (id "+ty[1]+" PRIMARY KEY, total DECIMAL(12,2), currency VARCHAR(3))",
				"INSERT INTO texts VALUES ('7abc', 1.00, 'EUR')",
				"INSERT INTO texts VALUES ('A-1', 2.50, 'EUR')",
				"INSERT INTO texts VALUES ('000123', 3.50, 'EUR')",
				"INSERT INTO texts VALUES ('123', 4.50, 'EUR')",
			)
			test(t, db, dialect)
		})
	}
}

// charge is a step that loads its money.
func charge(t *testing.T, db *sql.DB, dialect Dialect, load string) *Step {
	t.Helper()
	s, err := New(Spec{
		Name: "charge", Classes: []string{"App\\Charge"}, Order: "orderId", Installation: "shop",
		Load: load, Dialect: dialect, Amount: "total", Major: true, Currency: "currency",
		Provider: "acquirer", Providers: map[string]Provider{"acquirer": {Timeout: 1}},
		Request:  provider.RequestSpec{Path: "/pay", JSON: map[string]any{"amount": "{{minor}}", "currency": "{{currency}}", "key": "{{provider_key}}"}},
		Attempts: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.DB = db
	return s
}

func TestLoadGivesExactValues(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *sql.DB, dialect Dialect) {
		s := charge(t, db, dialect, "SELECT id, total, cents AS minor, currency, made, note FROM orders WHERE id = :order")
		m := Message{Data: map[string]any{"orderId": int64(7)}}
		key, err := s.Key(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.load(t.Context(), key, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"id": int64(7), "total": "19.99", "minor": int64(1999), "currency": "EUR", "made": "2026-03-02T10:00:00Z", "note": nil,
		}
		if dialect == SQLite {
			want["made"] = "2026-03-02 10:00:00" // a text there
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("loaded %#v, want %#v", got, want)
		}
	})
}

func TestLoadFindsExactlyTheOrder(t *testing.T) {
	for _, test := range []struct {
		name  string
		load  string
		order any
		err   error // nil: found
	}{
		{"a number", "SELECT total, currency FROM orders WHERE id = :order", int64(7), nil},
		{"its text", "SELECT total, currency FROM orders WHERE id = :order", "7", nil},
		{"eighteen digits", "SELECT total, currency FROM orders WHERE id = :order", int64(900719925474099312), nil},
		{"one off in the last digit", "SELECT total, currency FROM orders WHERE id = :order", int64(900719925474099313), ErrNoRow},
		{"a text that looks like a number", "SELECT total, currency FROM texts WHERE id = :order", "000123", nil},
		{"a text", "SELECT total, currency FROM texts WHERE id = :order", "A-1", nil},
		{"a number is not the text that begins with it", "SELECT total, currency FROM texts WHERE id = :order", int64(7), ErrNoRow},
		{"two rows", "SELECT total, currency FROM orders WHERE id >= :order", int64(7), ErrRefused},
		{"two columns of one name", "SELECT total, total, currency FROM orders WHERE id = :order", int64(7), ErrRefused},
		{"a missing property", "SELECT total, currency FROM orders WHERE id = :other", int64(7), ErrRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db *sql.DB, dialect Dialect) {
				s := charge(t, db, dialect, test.load)
				e, err := s.Effect(t.Context(), Message{Data: map[string]any{"orderId": test.order}})
				if !errors.Is(err, test.err) || test.err == nil && err != nil {
					t.Fatalf("error %v, want %v", err, test.err)
				}
				if e.Fingerprint.Message == "" || e.Key.Order == "" {
					t.Errorf("without key or fingerprint of the message: %+v", e)
				}
			})
		})
	}
}

// A database must not take "7abc" for the number 7, whatever its habits are.
func TestLoadNeverFindsAnotherOrder(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *sql.DB, dialect Dialect) {
		for load, order := range map[string]any{
			"SELECT total, currency FROM orders WHERE id = :order":             "7abc",
			"SELECT total, currency FROM orders WHERE id = :order AND 1 = 1":   "007",
			"SELECT total, currency FROM orders WHERE id = :order AND 2 = 2":   " 7",
			"SELECT total, currency FROM orders WHERE id = :order AND 3 = 3":   "7.0",
			"SELECT total, currency FROM orders WHERE id = :order AND 4 = 4":   "+7",
			"SELECT total, currency FROM orders WHERE id = :order AND 5 = 5":   "7e0",
			"SELECT total, currency FROM orders WHERE :order = id AND id <> 0": "0007",
			"SELECT total, currency FROM texts WHERE id = :n":                  "x",
		} {
			s := charge(t, db, dialect, load)
			e, err := s.Effect(t.Context(), Message{Data: map[string]any{"orderId": order, "n": int64(7)}})
			if err == nil {
				t.Errorf("%s with %v found %+v", load, order, e.Amount)
			}
		}
	})
}
