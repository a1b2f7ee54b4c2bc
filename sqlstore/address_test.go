package sqlstore

import (
	"strings"
	"testing"
	"time"
)

func TestParseAddress(t *testing.T) {
	const wait = defaultLockWait
	for text, want := range map[string]address{
		"mysql://shop:s%40cret@db.example:3307/shop":                           {dialect: "mysql", user: "shop", password: "s@cret", host: "db.example:3307", database: "shop", lockWait: wait},
		"mariadb://shop@db/shop?serverVersion=10.11.2-MariaDB&charset=utf8mb4": {dialect: "mysql", user: "shop", host: "db:3306", database: "shop", lockWait: wait},
		"pdo-mysql://u@[::1]:3306/shop?tls=skip-verify&lock_wait=2s":           {dialect: "mysql", user: "u", host: "[::1]:3306", database: "shop", tls: "skip-verify", lockWait: 2 * time.Second},
		"mysql://u@localhost/shop?unix_socket=/run/mysqld/mysqld.sock":         {dialect: "mysql", user: "u", host: "localhost:3306", socket: "/run/mysqld/mysqld.sock", database: "shop", lockWait: wait},
		"mysql:///shop": {dialect: "mysql", host: "127.0.0.1:3306", database: "shop", lockWait: wait},
		"postgres://shop:pw@db:5433/shop?sslmode=require":                {dialect: "postgres", url: "postgres://shop:pw@db:5433/shop?sslmode=require", lockWait: wait},
		"postgresql://shop:pw@db/shop?serverVersion=15&charset=utf8":     {dialect: "postgres", url: "postgres://shop:pw@db/shop", lockWait: wait},
		"pgsql://shop@/shop?host=/run/postgresql":                        {dialect: "postgres", url: "postgres://shop@/shop?host=%2Frun%2Fpostgresql", lockWait: wait},
		"pdo-pgsql://shop@localhost/shop?unix_socket=/run/postgresql":    {dialect: "postgres", url: "postgres://shop@localhost/shop?host=%2Frun%2Fpostgresql", lockWait: wait},
		"postgres://u@h1:5432,h2:5433/d?target_session_attrs=read-write": {dialect: "postgres", url: "postgres://u@h1:5432,h2:5433/d?target_session_attrs=read-write", lockWait: wait},
		"sqlite:///var/lib/zabor/fence.db":                               {dialect: "sqlite", database: "/var/lib/zabor/fence.db", lockWait: wait},
		"sqlite:////app/var/data.db":                                     {dialect: "sqlite", database: "/app/var/data.db", lockWait: wait},
		"sqlite:var/fence%20one.db":                                      {dialect: "sqlite", database: "var/fence one.db", lockWait: wait},
		"sqlite3:///f%3F.db?charset=utf8":                                {dialect: "sqlite", database: "/f?.db", lockWait: wait},
		"MySQL://u:%C3%A9%2F%3F%23%5B@h/d%20b?server_version=8.0":        {dialect: "mysql", user: "u", password: "é/?#[", host: "h:3306", database: "d b", lockWait: wait},
	} {
		got, err := parseAddress(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", text, got, want)
		}
	}
}

func TestParseAddressErrors(t *testing.T) {
	const secret = "hunter2"
	for text, want := range map[string]string{
		"":                                            "no scheme",
		secret:                                        "no scheme",
		"mysql://u:hunter2@h:33 06/d":                 "percent-encode",
		"mysql://u:hunter2%zz@h/d":                    "percent-encode",
		"mysql://u:hunter2/x@h/d":                     "percent-encode",
		"mysql://u:pw#hunter2@h/d":                    "percent-encode",
		"mysql://u:pw@h/d#hunter2":                    "%23",
		"mysql://u:hunter2@h/d?x=%zz":                 "percent-encode",
		"mysql://u:hunter2@h":                         "no database",
		"mysql://u:hunter2@h/":                        "no database",
		"mysql://u:hunter2@h/d?tls=maybe":             "tls must be",
		"mysql://u:hunter2@h/d?parseTime=true":        `unknown parameter "parseTime"`,
		"mysql://u:hunter2@h/d?lock_wait=hunter2":     "lock_wait",
		"mysql://u:hunter2@h/d?lock_wait=2m":          "lock_wait",
		"mysql://u:hunter2@h/d?lock_wait=10ms":        "lock_wait",
		"oracle://u:hunter2@h/d":                      "not a database that zabor knows",
		"hunter2://u@h/d":                             "not a database that zabor knows",
		"postgres://u:hunter2@h":                      "no database",
		"postgres://u:hunter2@h:port/d":               "percent-encode",
		"postgres://u:hunter2@h/d?sslmode=hunter2":    "sslmode",
		"postgres://u@h/d?password=hunter2&sslmode=x": "sslmode",
		"sqlite://hunter2/fence.db":                   "write sqlite:///",
		"sqlite:///:memory:":                          "in memory",
		"sqlite::memory:":                             "in memory",
		"sqlite:///":                                  "no file",
		"sqlite:":                                     "no file",
		"sqlite:///f.db?mode=ro":                      `unknown parameter "mode"`,
	} {
		s, err := Open(text)
		if err == nil {
			s.Close()
			t.Errorf("%s: no error", text)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %q, want %q in it", text, err, want)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds the password: %q", text, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{
		"mysql://u:hunter2@h:3306/d?tls=true", "postgres://u:hunter2@h/d?sslmode=disable", "sqlite:///f.db",
		"mysql://u:hunter2@h/d?lock_wait=1s", "mysql://u:hunter2%zz@h", "pgsql://:hunter2@[::1]:1/d?host=x#y", "sqlite:a?b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fence address: ") {
				t.Errorf("error %q", err)
			}
			return
		}
		if a.lockWait < time.Second || a.lockWait > time.Minute {
			t.Errorf("lock_wait %s", a.lockWait)
		}
		s, err := Open(text)
		if err != nil {
			return
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
