package sqlstore

import (
	"testing"

	"zabor"
	"zabor/internal/servers"
	"zabor/zabortest"
)

func TestMain(m *testing.M) { servers.Main(m) }

// databases gives the address of an empty database of each kind.
var databases = []struct {
	name    string
	address func(testing.TB) string
}{
	{"sqlite", func(t testing.TB) string { return "sqlite://" + t.TempDir() + "/fence.db" }},
	{"mysql", servers.MariaDB},
	{"postgres", servers.Postgres},
}

// onEach runs test on a migrated store of each database.
func onEach(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			test(t, migrated(t, d.address(t)))
		})
	}
}

func open(t testing.TB, address string) *Store {
	t.Helper()
	s, err := Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func migrated(t testing.TB, address string) *Store {
	t.Helper()
	s := open(t, address)
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			zabortest.Store(t, func(t *testing.T) zabor.Store { return migrated(t, d.address(t)) })
		})
	}
	sqlite := databases[0]
	t.Run(sqlite.name+", encrypted", func(t *testing.T) {
		zabortest.Store(t, func(t *testing.T) zabor.Store { return encrypted(t, sqlite.address(t), theKey) })
	})
}
