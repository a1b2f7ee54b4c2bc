package doctor

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
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a server that starts on a busy machine is in it
	t.Cleanup(cancel)
	return ctx
}

// codes are the findings' codes with their severities, each once.
func codes(findings []Finding) []string {
	list := []string{}
	for _, f := range findings {
		list = append(list, f.Code+" "+string(f.Severity))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func texted(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintln(&b, f.Code, f.Found)
	}
	return b.String()
}

// Of the eight policies only noeviction passes (sidekiq/sidekiq#2883, rq/rq#1280);
// with a cache on the same server the finding names both (fleetyards/fleetyards#4335).
func TestEviction(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	s := servers.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	for _, policy := range []string{"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		if err := client.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		for _, caches := range [][]string{nil, {"cache app, database 1"}} {
			found, err := ExamineRedis(ctx, RedisServer{Where: "Redis", Client: client, Queues: []string{"payments"}, Caches: caches})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{}
			switch {
			case policy == "noeviction":
			case caches != nil:
				want = []string{"ZB132 error"}
			default:
				want = []string{"ZB133 error"}
			}
			if got := codes(found); !slices.Equal(got, want) {
				t.Errorf("%s, caches %v: %v, want %v\n%s", policy, caches, got, want, texted(found))
			}
			if caches != nil && policy != "noeviction" && (!strings.Contains(found[0].Found, caches[0]) || !strings.Contains(found[0].Found, "payments")) {
				t.Errorf("%s: the finding does not name both: %s", policy, found[0].Found)
			}
		}
	}
}

// Where CONFIG is forbidden the settings are unknown, which is a finding, and
// what INFO says counts all the same.
func TestConfigForbidden(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	s := servers.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer admin.Close()
	if err := admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "app", Password: "pw"})
	defer client.Close()
	for _, c := range []struct {
		policy string
		want   []string
	}{
		{"noeviction", []string{"ZB101 warning"}},
		{"allkeys-lru", []string{"ZB101 warning", "ZB133 error"}},
	} {
		if err := admin.ConfigSet(ctx, "maxmemory-policy", c.policy).Err(); err != nil {
			t.Fatal(err)
		}
		found, err := ExamineRedis(ctx, RedisServer{Where: "Redis", Client: client})
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(found); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.policy, got, c.want)
		}
		if !strings.Contains(texted(found), "unknown") {
			t.Errorf("%s: nothing says unknown:\n%s", c.policy, texted(found))
		}
	}
}

func TestPersistence(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	s := servers.OwnRedis(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	for _, c := range []struct{ appendonly, save, fsync, want string }{
		{"yes", "", "everysec", ""},
		{"yes", "", "no", "ZB134 warning"},
		{"no", "3600 1", "everysec", "ZB134 warning"},
		{"no", "", "everysec", "ZB134 error"},
	} {
		for name, value := range map[string]string{"appendonly": c.appendonly, "save": c.save, "appendfsync": c.fsync} {
			if err := client.ConfigSet(ctx, name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		found, err := ExamineRedis(ctx, RedisServer{Where: "Redis", Client: client})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(codes(found), ", "); got != c.want {
			t.Errorf("appendonly %s, save %q, appendfsync %s: %q, want %q", c.appendonly, c.save, c.fsync, got, c.want)
		}
	}
}

// A wiped or shared database, and consumers that have Symfony's default name.
func TestQueuesOnServer(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	db := servers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: db.Addr, DB: db.DB})
	defer client.Close()
	s := RedisServer{Where: "Redis", Client: client, Queues: []string{"async"}, Keys: []string{"shop"}, Streams: []Stream{{"async", "shop", "symfony"}}}
	examine := func(want ...string) {
		t.Helper()
		found, err := ExamineRedis(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(found); !slices.Equal(got, want) {
			t.Errorf("%v, want %v\n%s", got, want, texted(found))
		}
	}
	do := func(args ...any) {
		t.Helper()
		if err := client.Do(ctx, args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	examine()
	do("XGROUP", "CREATE", "shop", "symfony", "0", "MKSTREAM")
	do("XADD", "shop", "*", "message", "{}")
	do("ZADD", "shop__queue", "1", "{}")
	do("XREADGROUP", "GROUP", "symfony", "worker-1", "STREAMS", "shop", ">")
	examine()
	do("XADD", "shop", "*", "message", "{}")
	do("XREADGROUP", "GROUP", "symfony", "worker-1", "STREAMS", "shop", ">")
	do("XTRIM", "shop", "MAXLEN", "1") // the first is still being handled
	examine("ZB141 error")
	do("XTRIM", "shop", "MAXLEN", "0")
	do("XREADGROUP", "GROUP", "symfony", "worker-1", "STREAMS", "shop", "0") // nothing is pending but what is gone
	examine("ZB141 error")
	do("XADD", "shop", "*", "message", "{}")
	do("XAUTOCLAIM", "shop", "symfony", "worker-1", "0", "0") // forgets what is gone
	examine()
	do("XREADGROUP", "GROUP", "symfony", "consumer", "STREAMS", "shop", ">")
	examine("ZB140 error")
	do("XGROUP", "CREATE", "shop", "other", "0")
	do("SET", "cache:secretsessionidentifierofsomebody", "1")
	examine("ZB130 warning", "ZB140 error", "ZB143 warning")
	found, _ := ExamineRedis(ctx, s)
	if strings.Contains(texted(found), "identifierofsomebody") {
		t.Error("a whole key is shown")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	if _, err := ExamineRedis(limited(t), RedisServer{Where: "Redis", Client: client}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want ErrUnreachable", err)
	}
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	s := servers.OwnMariaDB(t)
	db := openMariaDB(t, servers.MariaDBDatabase(t, s))
	examineSettings(t, db, "mysql", []serverSetting{
		{"", nil},
		{"SET GLOBAL innodb_flush_log_at_trx_commit = 2", []string{"ZB170 error"}},
		{"SET GLOBAL read_only = 1", []string{"ZB170 error", "ZB172 error"}},
		{"SET GLOBAL innodb_flush_log_at_trx_commit = 1", []string{"ZB172 error"}},
		{"SET GLOBAL read_only = 0", nil},
	})
	examineFences(t, db, "mysql", []fenceCase{
		{"bytes", "order_id VARBINARY(255) NOT NULL, step VARBINARY(64) NOT NULL, PRIMARY KEY (order_id, step)", nil},
		{"numbered", "id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT NOT NULL, step VARBINARY(64) NOT NULL, UNIQUE (order_id, step)", nil},
		{"nopad", "order_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY", nil},
		{"keyless", "id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id VARBINARY(100), KEY (order_id)", []string{"ZB174 error"}},
		{"insensitive", "order_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL PRIMARY KEY", []string{"ZB173 error"}},
		{"padded", "order_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY", []string{"ZB173 error"}},
		{"nullable", "order_id BIGINT, step VARBINARY(9) NOT NULL, UNIQUE (order_id, step)", []string{"ZB174 error"}},
		{"cut", "order_id VARBINARY(255) NOT NULL, UNIQUE (order_id(20))", []string{"ZB174 error"}},
		{"wide", "order_id BIGINT NOT NULL, attempt INT NOT NULL, UNIQUE (order_id, attempt)", []string{"ZB174 error"}},
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	s := servers.OwnPostgres(t)
	db, err := sql.Open("pgx", servers.PostgresDatabase(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	examineSettings(t, db, "postgres", []serverSetting{
		{"", nil},
		{"SET synchronous_commit = off", []string{"ZB171 error"}},
		{"SET synchronous_commit = on", nil},
	})
	examineFences(t, db, "postgres", []fenceCase{
		{"plain", "order_id text NOT NULL, step text NOT NULL, PRIMARY KEY (order_id, step)", nil},
		{"numbered", "id bigserial PRIMARY KEY, order_id text NOT NULL UNIQUE", nil},
		{"keyless", "id bigserial PRIMARY KEY, order_id text NOT NULL", []string{"ZB174 error"}},
		{"nullable", "order_id text UNIQUE", []string{"ZB174 error"}},
		{"insensitive", `order_id text COLLATE "insensitive" NOT NULL UNIQUE`, []string{"ZB173 error"}},
		{"lower", "order_id text NOT NULL; CREATE UNIQUE INDEX ON f_lower (lower(order_id))", []string{"ZB173 error"}},
		{"partial", "order_id text NOT NULL, state text; CREATE UNIQUE INDEX ON f_partial (order_id) WHERE state = 'open'", []string{"ZB174 error"}},
		{"wide", "order_id text NOT NULL, created_at timestamptz NOT NULL, UNIQUE (order_id, created_at)", []string{"ZB174 error"}},
	})
}

// What a user may not read is unknown, which is a finding; so is a table that is
// not there, which is not one without a key.
func TestUntold(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	server := servers.OwnPostgres(t)
	address := servers.PostgresDatabase(t, server)
	admin, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE USER reader; REVOKE EXECUTE ON FUNCTION pg_is_in_recovery() FROM PUBLIC"); err != nil {
		t.Fatal(err)
	}
	reader, err := sql.Open("pgx", strings.Replace(address, "//postgres@", "//reader@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	examineSettings(t, admin, "postgres", []serverSetting{{"", nil}})
	examineSettings(t, reader, "postgres", []serverSetting{{"", []string{"ZB101 warning"}}})
	mysql := openMariaDB(t, servers.MariaDB(t))
	for dialect, db := range map[string]*sql.DB{"postgres": admin, "mysql": mysql} {
		found, err := ExamineDatabase(ctx, Database{Where: "database", DB: db, Dialect: dialect, Fences: []string{"nowhere"}})
		if got := codes(found); err != nil || !slices.Equal(got, []string{"ZB101 warning"}) || !strings.Contains(found[0].Found, "nowhere") {
			t.Errorf("%s: %v, %v\n%s", dialect, got, err, texted(found))
		}
	}
}

// openMariaDB opens an address of the servers package.
func openMariaDB(t *testing.T, address string) *sql.DB {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", "root@tcp("+u.Host+")"+u.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// A standby of PostgreSQL, which is in recovery for as long as it is one.
func TestPostgresStandby(t *testing.T) {
	t.Parallel()
	s := servers.OwnPostgres(t)
	db, err := sql.Open("pgx", servers.PostgresDatabase(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	examineSettings(t, db, "postgres", []serverSetting{{"", nil}})
	s.Kill()
	signal := filepath.Join(s.Dir, "data", "standby.signal")
	if err := errors.Join(os.WriteFile(signal, nil, 0o600), os.Chmod(signal, 0o666)); err != nil { // the server's user writes it too
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(limited(t), "CREATE TABLE nowhere (id int)"); err == nil {
		t.Fatal("it takes writes: that is no standby")
	}
	examineSettings(t, db, "postgres", []serverSetting{{"", []string{"ZB172 error"}}})
}

type serverSetting struct {
	statement string
	want      []string
}

func examineSettings(t *testing.T, db *sql.DB, dialect string, list []serverSetting) {
	t.Helper()
	ctx := limited(t)
	for _, c := range list {
		if c.statement != "" {
			if _, err := db.ExecContext(ctx, c.statement); err != nil {
				t.Fatal(err)
			}
		}
		found, err := ExamineDatabase(ctx, Database{Where: "database", DB: db, Dialect: dialect})
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(found); !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("after %q: %v, want %v\n%s", c.statement, got, c.want, texted(found))
		}
	}
}

type fenceCase struct {
	table, columns string
	want           []string
}

// Hand-made fences: those whose key is compared otherwise than byte for byte, is
// not unique, or holds what changes.
func examineFences(t *testing.T, db *sql.DB, dialect string, list []fenceCase) {
	t.Helper()
	ctx := limited(t)
	if dialect == "postgres" {
		if _, err := db.ExecContext(ctx, `CREATE COLLATION insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range list {
		columns, then, _ := strings.Cut(c.columns, ";")
		for _, statement := range []string{"CREATE TABLE f_" + c.table + " (" + columns + ")", then} {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := db.ExecContext(ctx, statement); err != nil {
				t.Fatalf("%s: %v", c.table, err)
			}
		}
		found, err := ExamineDatabase(ctx, Database{Where: "database", DB: db, Dialect: dialect, Fences: []string{"f_" + c.table}})
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(found); !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%s: %v, want %v\n%s", c.table, got, c.want, texted(found))
		}
	}
}
