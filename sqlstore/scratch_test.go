package sqlstore

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zabor"
	"zabor/internal/servers"
)

const scratchTest = "zabor_scratch_place"

func openScratch(t *testing.T, address string) *Scratch {
	t.Helper()
	s, err := OpenScratch(t.Context(), address, scratchTest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// count is 1 where the place is there.
func (s *Scratch) count(t *testing.T) (n int) {
	t.Helper()
	if s.folder != "" {
		if _, err := os.Stat(s.folder); err == nil {
			return 1
		}
		return 0
	}
	if err := s.db.QueryRow(s.d.there).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Scratch places on own servers: their names are the server's, not the database's.
func scratchServers() map[string]func(testing.TB) string {
	return map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "fence.db") },
		"mariadb":  servers.MariaDB,
		"postgres": servers.Postgres,
	}
}

// A fence in the place is not the fence beside it, and an abandoned place is
// removed by whoever comes next.
func TestScratchIsApartAndRemoved(t *testing.T) {
	t.Parallel()
	for name, address := range scratchServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := address(t)
			real, err := Open(at)
			if err != nil {
				t.Fatal(err)
			}
			defer real.Close()
			if err := real.Setup().Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			k := zabor.Key{Scope: "s", Order: "1", Step: "charge"}
			for range 2 { // the second time after a program that was killed
				s := openScratch(t, at)
				store, err := Open(s.Address)
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Setup().Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := store.Setup().Check(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := store.Load(t.Context(), k); !errors.Is(err, zabor.ErrNoRow) {
					t.Fatalf("the place is not empty: %v", err)
				}
				row := zabor.Row{Key: k, State: zabor.Captured, Cause: zabor.ByCall, Endpoint: zabor.Endpoint{Provider: "p"}, Claim: zabor.Claim{Epoch: 1, ID: [16]byte{1}}}
				if _, err := store.Insert(t.Context(), row, zabor.Write{}); err != nil {
					t.Fatal(err)
				}
				if _, err := real.Load(t.Context(), k); !errors.Is(err, zabor.ErrNoRow) {
					t.Fatalf("the row is in the fence itself: %v", err)
				}
				store.Close()
				if _, err := OpenScratch(t.Context(), at, scratchTest); !errors.Is(err, ErrScratchTaken) {
					t.Fatalf("opened twice: %v", err)
				}
				s.close()
			}
			s := openScratch(t, at)
			if got := s.count(t); got != 1 {
				t.Fatalf("%d places, want 1", got)
			}
			if err := s.Remove(); err != nil {
				t.Fatal(err)
			}
			s = &Scratch{d: s.d, db: real.db, folder: s.folder}
			if got := s.count(t); got != 0 {
				t.Fatalf("%d places after Remove, want none", got)
			}
			if err := real.Setup().Check(t.Context()); err != nil {
				t.Fatalf("the fence itself: %v", err)
			}
		})
	}
}

// What somebody else has made under the name stays, and most of all where nothing
// can be seen in it.
func TestScratchLeavesOthers(t *testing.T) {
	t.Parallel()
	for name, address := range scratchServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := address(t)
			var problem *Problem
			if name == "sqlite" {
				folder := filepath.Join(filepath.Dir(strings.TrimPrefix(at, "sqlite://")), "zabor_others")
				if err := os.Mkdir(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(folder, "letters")
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := OpenScratch(t.Context(), at, "zabor_others"); !errors.As(err, &problem) {
					t.Fatalf("got %v, want a problem", err)
				}
				if _, err := os.Stat(file); err != nil {
					t.Fatal(err)
				}
				empty := filepath.Join(filepath.Dir(folder), "zabor_empty")
				if err := os.Mkdir(empty, 0o700); err != nil {
					t.Fatal(err)
				}
				if _, err := OpenScratch(t.Context(), at, "zabor_empty"); !errors.As(err, &problem) {
					t.Fatalf("an empty folder: got %v, want a problem", err)
				}
				if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
					t.Fatalf("the empty folder holds %v, %v", left, err)
				}
				return
			}
			real, err := Open(at)
			if err != nil {
				t.Fatal(err)
			}
			defer real.Close()
			create, kept, call := "CREATE SCHEMA ", "CREATE FUNCTION zabor_empty.seven() RETURNS INTEGER LANGUAGE sql AS 'SELECT 7'", "SELECT zabor_empty.seven()"
			if name == "mariadb" {
				create, kept = "CREATE DATABASE ", "CREATE FUNCTION zabor_empty.seven() RETURNS INTEGER DETERMINISTIC RETURN 7"
			}
			for _, statement := range []string{create + "zabor_others", "CREATE TABLE zabor_others.letters (id INTEGER)", create + "zabor_empty", kept} {
				if _, err := real.db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := OpenScratch(t.Context(), at, "zabor_empty"); !errors.As(err, &problem) || !strings.Contains(err.Error(), "without tables") {
				t.Fatalf("without tables: got %v, want a problem", err)
			}
			var seven int
			if err := real.db.QueryRow(call).Scan(&seven); err != nil || seven != 7 {
				t.Fatalf("the function in it: %d, %v", seven, err)
			}
			if _, err := OpenScratch(t.Context(), at, "zabor_others"); !errors.As(err, &problem) || !strings.Contains(err.Error(), "letters") {
				t.Fatalf("got %v, want a problem that names the table", err)
			}
			if _, err := real.db.Exec("INSERT INTO zabor_others.letters VALUES (1)"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A user who may not make the place is told what to grant.
func TestScratchWithoutGrants(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name    string
		address func(testing.TB) string
		setup   []string
		grant   string
	}{
		{"mariadb", servers.MariaDB, []string{"CREATE USER IF NOT EXISTS clerk@'%' IDENTIFIED BY ''", "GRANT ALL ON %s.* TO clerk@'%%'"}, "GRANT ALL ON `zabor\\_scratch\\_grants`.*"},
		{"postgres", servers.Postgres, []string{"CREATE ROLE clerk LOGIN", "REVOKE CREATE ON DATABASE %s FROM PUBLIC"}, "GRANT CREATE ON DATABASE"},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			at := d.address(t)
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			real, err := Open(at)
			if err != nil {
				t.Fatal(err)
			}
			defer real.Close()
			for _, statement := range d.setup {
				statement = strings.ReplaceAll(strings.ReplaceAll(statement, "%s", strings.Trim(u.Path, "/")), "%%", "%")
				if _, err := real.db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			u.User = url.User("clerk")
			var problem *Problem
			if _, err := OpenScratch(t.Context(), u.String(), "zabor_scratch_grants"); !errors.As(err, &problem) || !strings.Contains(problem.Fix, d.grant) {
				t.Fatalf("got %v, want a problem with %q", err, d.grant)
			}
		})
	}
}
