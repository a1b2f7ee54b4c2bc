package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"zabor"
	"zabor/internal/servers"
)

// Migrating twice, or many at once, is migrating once; the secret stays.
func TestMigrate(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			address := d.address(t)
			migrateTogether(t, address)
			s := open(t, address)
			first, err := s.Setup().Secret(t.Context())
			if err != nil || len(first) != 32 {
				t.Fatalf("secret of %d bytes, error %v; want 32", len(first), err)
			}
			if err := s.Setup().Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			again, err := s.Setup().Secret(t.Context())
			if err != nil || !bytes.Equal(first, again) {
				t.Errorf("the secret changed: error %v", err)
			}
			other, err := migrated(t, d.address(t)).Setup().Secret(t.Context())
			if err != nil || bytes.Equal(first, other) {
				t.Errorf("two installations have one secret: error %v", err)
			}
		})
	}
}

// migrateTogether migrates with four programs at once.
func migrateTogether(t *testing.T, address string) {
	t.Helper()
	var all sync.WaitGroup
	var errs [4]error
	start := make(chan struct{})
	for i := range errs {
		s := open(t, address)
		all.Go(func() { <-start; errs[i] = s.Setup().Migrate(t.Context()) })
	}
	close(start)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// Where the database has no lock for it, one program makes a migration while another
// tries the same: the other goes on with the next, which it may be the first to make.
func TestMigrateTogether(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel() // who comes too late to make the table of the migrations waits a second
			address := databases[0].address(t)
			migrateTogether(t, address)
			if err := open(t, address).Setup().Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A migration beside open connections leaves their locks alone: another process that
// thought them gone would take the log away under them.
func TestMigrateKeepsLocks(t *testing.T) {
	s := migrated(t, databases[0].address(t))
	held := func() string {
		t.Helper()
		info, err := os.Stat(s.file)
		if err != nil {
			t.Fatal(err)
		}
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Skip("no list of locks on this system: ", err)
		}
		inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
		var found []string
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) && strings.Contains(line, inode) {
				_, lock, _ := strings.Cut(line, ": ")
				found = append(found, lock)
			}
		}
		slices.Sort(found)
		return strings.Join(found, "")
	}
	before := held()
	if before == "" {
		t.Fatal("no lock on the file although a connection is open")
	}
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := held(); after != before {
		t.Errorf("locks after a migration:\n%swant\n%s", after, before)
	}
}

// The database holds the secret: nobody else may read the file.
func TestSQLiteFileMode(t *testing.T) {
	s := migrated(t, databases[0].address(t))
	info, err := os.Stat(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %o, want 600", got)
	}
}

// A link to a file that is not there is no database, and none is made behind it
// without a word: it may be a volume that is not mounted.
func TestMigrateBehindALinkToNowhere(t *testing.T) {
	folder := t.TempDir()
	link, target := filepath.Join(folder, "fence.db"), filepath.Join(folder, "volume", "fence.db")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	s := open(t, "sqlite://"+link)
	if err := s.Setup().Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), link+" is a link to a file that is not there") {
		t.Errorf("error %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// What is printed for a database administrator makes the same tables.
func TestMigrationSQL(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			byHand := open(t, d.address(t))
			text, err := MigrationSQL(d.name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, "goose Up") || strings.Contains(text, "StatementBegin") {
				t.Error("it holds marks of the migration tool")
			}
			apply(t, byHand, text)
			if err := byHand.Setup().Check(t.Context()); err != nil {
				t.Error(err)
			}
			secret, err := byHand.Setup().Secret(t.Context())
			if err != nil || len(secret) != 32 {
				t.Errorf("secret of %d bytes, error %v", len(secret), err)
			}
			if err := byHand.Setup().Migrate(t.Context()); err != nil {
				t.Error(err)
			}
			if kept, _ := byHand.Setup().Secret(t.Context()); !bytes.Equal(kept, secret) {
				t.Error("the secret changed")
			}
			got, want := schema(t, byHand), schema(t, migrated(t, d.address(t)))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("schema:\n got %q\nwant %q", got, want)
			}
		})
	}
	if _, err := MigrationSQL("oracle"); err == nil {
		t.Error("oracle: no error")
	}
}

// apply runs text as the database's own client would.
func apply(t *testing.T, s *Store, text string) {
	t.Helper()
	switch s.Dialect() {
	case "mysql":
		client := servers.Need(t, "mariadb", "mariadb-client")
		var name string
		var port int
		if err := s.DB().QueryRow("SELECT DATABASE(), @@port").Scan(&name, &port); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(client, "--no-defaults", "-h127.0.0.1", "-uroot", fmt.Sprint("-P", port), name)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	case "postgres":
		conn, err := s.DB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	default:
		if err := os.WriteFile(s.file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		mustExec(t, s.DB(), text)
	}
}

// schema describes every table, index and view.
func schema(t *testing.T, s *Store) (all []string) {
	t.Helper()
	query := map[string]string{
		"sqlite": "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
		"mysql": "SELECT CONCAT_WS(' ', table_name, column_name, column_type, is_nullable, column_key, extra, column_default, collation_name) FROM information_schema.columns" +
			" WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position",
		"postgres": "SELECT concat_ws(' ', table_name, column_name, udt_name, character_maximum_length, is_nullable, is_identity, column_default, collation_name) FROM information_schema.columns" +
			" WHERE table_schema = 'public' UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
	}[s.Dialect()]
	rows, err := s.DB().Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("schema of %d lines", len(all))
	}
	return all
}

// The view shows keys as text where they are text.
func TestResults(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		row := testRow("заказ-é😀", 1)
		row.Scope = "shop"
		row.Reference = "pi_1"
		row.Amount.Minor, row.Amount.Currency = 1999, "EUR"
		if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
			t.Fatal(err)
		}
		var order, reference, state, year string
		var minor int64
		err := s.DB().QueryRow("SELECT order_id, reference, state, amount_minor, captured_at FROM zabor_results WHERE scope = 'shop' AND step = 'charge'").
			Scan(&order, &reference, &state, &minor, &year)
		if err != nil {
			t.Fatal(err)
		}
		if order != row.Order || reference != "pi_1" || state != "captured" || minor != 1999 || !strings.HasPrefix(year, "20") {
			t.Errorf("order %q, reference %q, %s, %d, captured at %s", order, reference, state, minor, year)
		}
		bad := testRow("\xff\x00", 2)
		if _, err := s.Insert(t.Context(), bad, zabor.Write{}); err != nil {
			t.Fatal(err)
		}
		var orders []string
		rows, err := s.DB().QueryContext(context.Background(), "SELECT order_id FROM zabor_results WHERE scope <> 'shop'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var order sql.NullString
			if err := rows.Scan(&order); err != nil {
				t.Fatal(err)
			}
			if order.Valid && s.Dialect() != "sqlite" {
				t.Errorf("order %q, want NULL", order.String)
			}
			orders = append(orders, order.String)
		}
		if err := rows.Err(); err != nil || len(orders) != 1 {
			t.Errorf("%d rows, error %v; want 1", len(orders), err)
		}
	})
}
