package sqlstore

import (
	"errors"
	"os"
	"strings"
	"testing"

	"zabor"
	"zabor/internal/servers"
)

// wantProblem checks that Check finds one problem whose text holds want.
func wantProblem(t *testing.T, s *Store, want string) {
	t.Helper()
	err := s.Setup().Check(t.Context())
	var p *Problem
	if !errors.As(err, &p) {
		t.Fatalf("check: error %v, want %q", err, want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("check: %q, want %q in it", err, want)
	}
	if p.Fix == "" {
		t.Errorf("%q says no fix", p.Found)
	}
}

func TestCheckGood(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		if err := s.Setup().Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// What any database can have wrong.
func TestCheckTables(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		mustExec(t, s.DB(), "DELETE FROM zabor_meta")
		wantProblem(t, s, "secret is missing")
		if err := s.Meta().Set(t.Context(), metaSecret, []byte("short")); err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s, "has 5 bytes")
		if err := s.Meta().Set(t.Context(), metaMinVersion, []byte("99")); err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s, "protocol version 99")
		if err := s.Meta().Set(t.Context(), metaMinVersion, []byte("new")); err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s, `min_version in zabor_meta is "new"`)
		mustExec(t, s.DB(), "DROP TABLE zabor_notes")
		wantProblem(t, s, "no table zabor_notes")
	})
}

func TestCheckEmpty(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := open(t, d.address(t))
			if err := s.Setup().Check(t.Context()); !errors.Is(err, ErrNotMigrated) {
				t.Errorf("check: error %v, want %v", err, ErrNotMigrated)
			}
			if _, err := s.Insert(t.Context(), testRow("1001", 1), zabor.Write{}); !errors.Is(err, ErrNotMigrated) {
				t.Errorf("insert: error %v, want %v", err, ErrNotMigrated)
			}
			if n, err := s.Setup().Migrated(t.Context()); n != 0 || err != nil {
				t.Errorf("an empty database has migration %d, error %v", n, err)
			}
			if s.file != "" { // SQLite: as one of the application's, without a table of ours
				if err := os.WriteFile(s.file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := s.Setup().Check(t.Context()); !errors.Is(err, ErrNotMigrated) {
					t.Errorf("check of an empty file: error %v, want %v", err, ErrNotMigrated)
				}
				if _, err := s.Insert(t.Context(), testRow("1001", 1), zabor.Write{}); !errors.Is(err, ErrNotMigrated) {
					t.Errorf("insert into an empty file: error %v, want %v", err, ErrNotMigrated)
				}
				if n, err := s.Setup().Migrated(t.Context()); n != 0 || err != nil {
					t.Errorf("an empty file has migration %d, error %v", n, err)
				}
			}
			if err := s.Setup().Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Setup().Migrated(t.Context()); n != 1 || err != nil {
				t.Errorf("after Migrate, the newest migration is %d, error %v", n, err)
			}
		})
	}
}

// Tables and servers that a fence must not stand on.
func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name, database string
		break_         []string // DATABASE is the database's name
		repair         []string // of the server, which other tests use too
		want           string
	}{
		{"MyISAM", "mysql", []string{"ALTER TABLE zabor_fences ENGINE=MyISAM"}, nil, "table zabor_fences is kept by MyISAM"},
		{"notes in MyISAM", "mysql", []string{"ALTER TABLE zabor_notes ENGINE=MyISAM"}, nil, "table zabor_notes is kept by MyISAM"},
		{"partitions", "mysql", []string{"ALTER TABLE zabor_fences PARTITION BY KEY (scope) PARTITIONS 2"}, nil, "is partitioned"},
		{"no key", "mysql", []string{"ALTER TABLE zabor_fences DROP PRIMARY KEY"}, nil, "no primary or unique key"},
		{"key over a prefix", "mysql", []string{"ALTER TABLE zabor_fences DROP PRIMARY KEY, ADD UNIQUE (scope, order_id(10), step)"}, nil, "no primary or unique key"},
		{"key over less", "mysql", []string{"ALTER TABLE zabor_fences DROP PRIMARY KEY, ADD PRIMARY KEY (scope, order_id)"}, nil, "no primary or unique key"},
		{"key over more", "mysql", []string{"ALTER TABLE zabor_fences DROP PRIMARY KEY, ADD PRIMARY KEY (scope, order_id, step, epoch)"}, nil, "no primary or unique key"},
		{"key over null", "mysql", []string{"ALTER TABLE zabor_fences DROP PRIMARY KEY, MODIFY scope VARBINARY(64) NULL, ADD UNIQUE (scope, order_id, step)"}, nil, "no primary or unique key"},
		{"text", "mysql", []string{"ALTER TABLE zabor_fences MODIFY order_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"}, nil, "column order_id of zabor_fences is varchar"},
		{"commits not flushed", "mysql", []string{"SET GLOBAL innodb_flush_log_at_trx_commit = 2"}, []string{"SET GLOBAL innodb_flush_log_at_trx_commit = 1"}, "innodb_flush_log_at_trx_commit=2"},
		{"read-only", "mysql", []string{"SET GLOBAL read_only = 1"}, []string{"SET GLOBAL read_only = 0"}, "read-only"},

		{"unlogged", "postgres", []string{"ALTER TABLE zabor_fences SET UNLOGGED"}, nil, "is unlogged"},
		{"partitions", "postgres", []string{
			"DROP VIEW zabor_results", "ALTER TABLE zabor_fences RENAME TO old",
			"CREATE TABLE zabor_fences (LIKE old) PARTITION BY HASH (scope)"}, nil, "is partitioned"},
		{"a view", "postgres", []string{
			"DROP VIEW zabor_results", "ALTER TABLE zabor_fences RENAME TO old", "CREATE VIEW zabor_fences AS SELECT * FROM old"}, nil, "is no table"},
		{"no key", "postgres", []string{"ALTER TABLE zabor_fences DROP CONSTRAINT zabor_fences_pkey"}, nil, "no primary or unique key"},
		{"key of some rows", "postgres", []string{
			"ALTER TABLE zabor_fences DROP CONSTRAINT zabor_fences_pkey",
			"CREATE UNIQUE INDEX ON zabor_fences (scope, order_id, step) WHERE state = 'captured'"}, nil, "no primary or unique key"},
		{"key checked late", "postgres", []string{
			"ALTER TABLE zabor_fences DROP CONSTRAINT zabor_fences_pkey",
			"ALTER TABLE zabor_fences ADD UNIQUE (scope, order_id, step) DEFERRABLE"}, nil, "no primary or unique key"},
		{"key over less", "postgres", []string{
			"ALTER TABLE zabor_fences DROP CONSTRAINT zabor_fences_pkey",
			"CREATE UNIQUE INDEX ON zabor_fences (scope, order_id) INCLUDE (step)"}, nil, "no primary or unique key"},
		{"key over an expression", "postgres", []string{
			"ALTER TABLE zabor_fences DROP CONSTRAINT zabor_fences_pkey",
			"CREATE UNIQUE INDEX ON zabor_fences (scope, substr(order_id, 1, 10), step)"}, nil, "no primary or unique key"},
		{"commits not awaited", "postgres", []string{"ALTER DATABASE DATABASE SET synchronous_commit = off"}, nil, "synchronous_commit=off"},
		{"fsync off", "postgres", []string{"ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"}, []string{"ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()"}, "fsync=off"},
		{"read-only", "postgres", []string{"ALTER DATABASE DATABASE SET default_transaction_read_only = on"}, nil, "read-only"},

		{"no key", "sqlite", []string{"CREATE TABLE copy AS SELECT * FROM zabor_fences", "DROP VIEW zabor_results", "DROP TABLE zabor_fences", "ALTER TABLE copy RENAME TO zabor_fences"}, nil, "no primary or unique key"},
		{"text", "sqlite", []string{"DROP VIEW zabor_results", "DROP TABLE zabor_fences",
			"CREATE TABLE zabor_fences (scope BLOB NOT NULL, order_id TEXT NOT NULL, step BLOB NOT NULL, PRIMARY KEY (scope, order_id, step))"}, nil, "column order_id of zabor_fences is TEXT"},
	} {
		t.Run(c.database+"/"+c.name, func(t *testing.T) {
			var address string
			for _, d := range databases {
				if d.name == c.database {
					address = d.address(t)
				}
			}
			admin := migrated(t, address)
			defer mustExec(t, admin.DB(), c.repair...)
			name := address[strings.LastIndex(address, "/")+1:]
			name, _, _ = strings.Cut(name, "?")
			for _, statement := range c.break_ {
				mustExec(t, admin.DB(), strings.Replace(statement, " DATABASE DATABASE ", " DATABASE "+name+" ", 1))
			}
			if strings.Contains(c.name, "fsync") {
				eventually(t, "the setting", func() bool { return admin.Setup().Check(t.Context()) != nil })
			}
			wantProblem(t, open(t, address), c.want)
		})
	}
}

func TestCheckMySQLSettings(t *testing.T) {
	good := map[string]string{"read_only": "OFF", "innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF", "sync_binlog": "0"}
	for _, c := range []struct {
		name, value string
		want        string
	}{
		{"log_bin", "OFF", ""},
		{"log_bin", "ON", "sync_binlog=0"},
		{"super_read_only", "ON", "super_read_only=ON"},
		{"innodb_read_only", "1", "innodb_read_only=1"},
		{"transaction_read_only", "ON", "transaction_read_only=ON"},
		{"innodb_flush_log_at_trx_commit", "0", "innodb_flush_log_at_trx_commit=0"},
		{"read_only", "NO_LOCK_NO_ADMIN", "read_only=NO_LOCK_NO_ADMIN"},
	} {
		settings := map[string]string{}
		for name, value := range good {
			settings[name] = value
		}
		settings[c.name] = c.value
		var found problems
		checkMySQLSettings(settings, &found)
		text := ""
		if len(found) > 0 {
			text = errors.Join(found...).Error()
		}
		if c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s=%s: found %q, want %q", c.name, c.value, text, c.want)
		}
	}
}

// The session is set whatever the server's own settings are.
func TestSession(t *testing.T) {
	t.Run("mysql", func(t *testing.T) {
		address := servers.MariaDB(t)
		admin := migrated(t, address)
		mustExec(t, admin.DB(), "SET GLOBAL sql_mode = ''", "SET GLOBAL time_zone = '+05:00'", "SET GLOBAL autocommit = 0", "SET GLOBAL tx_isolation = 'SERIALIZABLE'")
		defer mustExec(t, admin.DB(), "SET GLOBAL sql_mode = DEFAULT", "SET GLOBAL time_zone = DEFAULT", "SET GLOBAL autocommit = 1", "SET GLOBAL tx_isolation = 'REPEATABLE-READ'")
		s := open(t, with(address, "lock_wait=3s"))
		var mode, zone, isolation string
		var autocommit bool
		var wait int
		err := s.DB().QueryRow("SELECT @@sql_mode, @@time_zone, @@tx_isolation, @@autocommit, @@innodb_lock_wait_timeout").Scan(&mode, &zone, &isolation, &autocommit, &wait)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(mode, "STRICT_ALL_TABLES") || zone != "+00:00" || isolation != "READ-COMMITTED" || !autocommit || wait != 3 {
			t.Errorf("sql_mode %s, time_zone %s, isolation %s, autocommit %v, lock wait %d", mode, zone, isolation, autocommit, wait)
		}
		if got, err := s.Insert(t.Context(), testRow("1001", 1), zabor.Write{}); err != nil || got.Claim.ID[15] != 1 {
			t.Fatalf("insert: %v", err)
		}
		if _, err := admin.Load(t.Context(), testRow("1001", 1).Key); err != nil {
			t.Errorf("the insert was not committed: %v", err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		s := open(t, with(servers.Postgres(t), "lock_wait=3s&timezone=Asia/Tokyo"))
		for name, want := range map[string]string{
			"timezone": "UTC", "lock_timeout": "3s", "default_transaction_isolation": "read committed", "client_encoding": "UTF8", "application_name": "zabor",
		} {
			var got string
			if err := s.DB().QueryRow("SELECT current_setting($1)", name).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s=%s, want %s", name, got, want)
			}
		}
	})
	t.Run("sqlite", func(t *testing.T) {
		s := migrated(t, with(databases[0].address(t), "lock_wait=3s"))
		for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "3000"} {
			var got string
			if err := s.DB().QueryRow("PRAGMA " + name).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s=%s, want %s", name, got, want)
			}
		}
	})
}

// A table that is not there is told from everything else.
func TestNoTable(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		for query, want := range map[string]bool{"SELECT 1 FROM nowhere": true, "SELECT nothing FROM zabor_meta": false, "SELECT 1 FROM zabor_meta": false} {
			var n int
			err := s.DB().QueryRowContext(t.Context(), query).Scan(&n)
			if got := s.NoTable(err); got != want {
				t.Errorf("%s: NoTable(%v) = %t, want %t", query, err, got, want)
			}
		}
	})
}
