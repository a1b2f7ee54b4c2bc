package servers_test

import (
	"testing"

	"zabor/internal/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// Every server starts, can be killed, and comes back on the same port.
func TestServersComeBackAfterAKill(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *servers.Server{
		"redis":    servers.OwnRedis,
		"mariadb":  servers.OwnMariaDB,
		"postgres": servers.OwnPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Kill()
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			s.Stop()
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	if a, b := servers.Redis(t), servers.Redis(t); a == b {
		t.Errorf("the same Redis database twice: %v", a)
	}
	if a, b := servers.MariaDB(t), servers.MariaDB(t); a == b {
		t.Errorf("the same MariaDB database twice: %v", a)
	}
	if a, b := servers.Postgres(t), servers.Postgres(t); a == b {
		t.Errorf("the same PostgreSQL database twice: %v", a)
	}
}
