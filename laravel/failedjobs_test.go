package laravel

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"net/url"

	"zabor/internal/servers"
	"zabor/worker"
)

// The tables as Laravel's migrations make them.
const (
	createMySQL = "CREATE TABLE failed_jobs (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, uuid varchar(255) NOT NULL, `connection` text NOT NULL, " +
		"`queue` text NOT NULL, payload longtext NOT NULL, `exception` longtext NOT NULL, failed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, " +
		"UNIQUE KEY failed_jobs_uuid_unique (uuid)) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_unicode_ci"
	createPostgres = `CREATE TABLE failed_jobs (id bigserial PRIMARY KEY, uuid varchar(255) NOT NULL UNIQUE, "connection" text NOT NULL,
		"queue" text NOT NULL, payload text NOT NULL, "exception" text NOT NULL, failed_at timestamp(0) without time zone NOT NULL DEFAULT CURRENT_TIMESTAMP)`
)

// eachDatabase gives zabor's handle and the application's, whose sessions differ
// in MySQL's time zone.
func eachDatabase(t *testing.T, test func(t *testing.T, db, app *sql.DB, dialect, table string)) {
	open := func(t *testing.T, driver, dsn, create string) *sql.DB {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		if _, err := db.Exec(create); err != nil {
			t.Fatal(err)
		}
		return db
	}
	t.Run("mysql", func(t *testing.T) {
		u, err := url.Parse(servers.MariaDB(t))
		if err != nil {
			t.Fatal(err)
		}
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		app := open(t, "mysql", c.FormatDSN(), createMySQL)
		c.Params = map[string]string{"time_zone": "'-07:00'"}
		test(t, open(t, "mysql", c.FormatDSN(), "DO 1"), app, "mysql", c.DBName+".failed_jobs")
	})
	t.Run("postgres", func(t *testing.T) {
		db := open(t, "pgx", servers.Postgres(t), createPostgres)
		test(t, db, db, "postgres", "public.failed_jobs")
	})
	t.Run("sqlite", func(t *testing.T) {
		db := open(t, "sqlite", "file:"+t.TempDir()+"/app.db?_pragma=busy_timeout(10000)", createSQLite)
		test(t, db, db, "sqlite", "failed_jobs")
	})
}

// row is a row of failed_jobs as text.
type row struct{ uuid, connection, queue, payload, exception, failedAt string }

func rows(t *testing.T, db *sql.DB) []row {
	t.Helper()
	r, err := db.Query("SELECT uuid, connection, queue, payload, exception, failed_at FROM failed_jobs ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []row
	for r.Next() {
		var one row
		var at any
		if err := r.Scan(&one.uuid, &one.connection, &one.queue, &one.payload, &one.exception, &at); err != nil {
			t.Fatal(err)
		}
		switch at := at.(type) {
		case time.Time:
			one.failedAt = at.Format(time.DateTime)
		case []byte:
			one.failedAt = string(at)
		case string:
			one.failedAt = at
		}
		all = append(all, one)
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFailedJobs(t *testing.T) {
	zone := time.FixedZone("app", 5*3600+1800)
	eachDatabase(t, func(t *testing.T, db, app *sql.DB, dialect, table string) {
		f, err := NewFailedJobs(db, dialect, table, zone)
		if err != nil {
			t.Fatal(err)
		}
		raw := recorded(t, "v12-unicode-pushed")
		m := Decode(raw, nil)
		before := time.Now().Add(-2 * time.Second)
		if err := f.save(t.Context(), "redis", "{orders}", m, "first: «нет» 😀\x00\xff\nsecond line"); err != nil {
			t.Fatal(err)
		}
		got := rows(t, app)
		if len(got) != 1 {
			t.Fatalf("%d rows, want 1", len(got))
		}
		at, err := time.ParseInLocation(time.DateTime, got[0].failedAt, zone)
		if err != nil || at.Before(before) || at.After(time.Now()) {
			t.Errorf("failed_at %q in the application's zone is %v, want now", got[0].failedAt, at)
		}
		want := row{m.ID, "redis", "{orders}", string(raw), "first: «нет» 😀\uFFFD\nsecond line", got[0].failedAt}
		if got[0] != want {
			t.Errorf("row  %q\nwant %q", got[0], want)
		}

		// The second failure, whose payload a pop has rewritten, replaces the first.
		again := Decode([]byte(strings.Replace(string(raw), `"attempts":0`, `"attempts":1`, 1)), nil)
		if err := f.save(t.Context(), "redis", "{orders}", again, "again"); err != nil {
			t.Fatal(err)
		}
		got = rows(t, app)
		if len(got) != 1 || got[0].payload != string(again.Raw) || got[0].exception != "again" {
			t.Errorf("rows %q, want one with the second payload", got)
		}
		if err := f.save(t.Context(), "redis", "{orders}", Decode(recorded(t, "v12-plain-pushed"), nil), "other"); err != nil {
			t.Fatal(err)
		}
		if got := rows(t, app); len(got) != 2 {
			t.Errorf("%d rows, want 2", len(got))
		}
	})
}

// A payload without a uuid gets one, the same over redeliveries.
func TestFailedJobWithoutUUID(t *testing.T) {
	for _, raw := range []string{
		`{"job":"X","data":[],"attempts":0}`,
		`{"job":"X","data":[],"attempts":0,"id":"abc"}`,
		`{"job":"X","uuid":null,"data":{"uuid":"inner"},"attempts":0} ` + "\n",
		`{"job":"X","uuid":7,"attempts":0}`,
	} {
		m := Decode([]byte(raw), nil)
		uuid, text, err := withUUID(m)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatalf("%s became %s: %v", raw, text, err)
		}
		if fields["uuid"] != uuid || len(uuid) != 36 {
			t.Errorf("%s became %s, uuid %s", raw, text, uuid)
		}
		if again := Decode([]byte(text), nil); again.ID != uuid || again.RetryOf != m.ID || again.Err != nil {
			t.Errorf("taken from failed_jobs its ID is %s, a retry of %q, error %v; want %s, %s", again.ID, again.RetryOf, again.Err, uuid, m.ID)
		}
		popped := Decode([]byte(strings.Replace(raw, `"attempts":0`, `"attempts":1`, 1)), nil)
		if second, _, err := withUUID(popped); err != nil || second != uuid {
			t.Errorf("uuid %s at the next delivery, was %s, error %v", second, uuid, err)
		}
	}
}

func TestNewFailedJobsRefuses(t *testing.T) {
	for _, tt := range []struct{ dialect, table, want string }{
		{"oracle", "failed_jobs", "unknown dialect"},
		{"mysql", "", "not the name"},
		{"mysql", "a`b", "not the name"},
		{"postgres", `a"b`, "not the name"},
	} {
		if _, err := NewFailedJobs(nil, tt.dialect, tt.table, time.UTC); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: error %v, want %q in it", tt.dialect, tt.table, err, tt.want)
		}
	}
}

func TestParkWithoutATable(t *testing.T) {
	q := newQueue(t, nil)
	q.push(t, payloadOf("1"))
	m := q.receive(t)
	if err := q.Park(t.Context(), m, "x"); err == nil || !strings.Contains(err.Error(), "`failed`") {
		t.Fatalf("Park = %v, want an error that says what to configure", err)
	}
	if d, _ := q.Depth(t.Context()); d != (worker.Depth{Reserved: 1}) {
		t.Fatalf("depth %+v: the job must stay", d)
	}
}

// A job that zabor must not run is a job all the same: it goes to failed_jobs
// with the producer's bytes.
func TestParkARefusedJob(t *testing.T) {
	db, failed := sqliteJobs(t)
	q := newQueue(t, func(c *Config) { c.Failed = failed })
	raw := string(recorded(t, "v12-chained"))
	q.push(t, raw)
	m := q.receive(t)
	if m.Err == nil {
		t.Fatal("a chained job was decoded without a refusal")
	}
	if err := q.Park(t.Context(), m, m.Err.Error()); err != nil {
		t.Fatal(err)
	}
	got := rows(t, db)
	if len(got) != 1 || got[0].payload != raw || !strings.Contains(got[0].exception, "the next job of its chain names no queue") {
		t.Fatalf("rows %q", got)
	}
	if d, _ := q.Depth(t.Context()); !d.Empty() {
		t.Fatalf("depth %+v", d)
	}
}

// What a queue's transport lists, gives, forgets and retries is its own rows,
// the newest first.
func TestFailedListGetForgetRetry(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db, app *sql.DB, dialect, table string) {
		zone := time.FixedZone("app", 5*3600+1800)
		failed, err := NewFailedJobs(db, dialect, table, zone)
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(t, func(c *Config) { c.Failed = failed })
		ctx := t.Context()
		save := func(connection, queue, raw string) {
			t.Helper()
			if err := failed.save(ctx, connection, queue, Decode([]byte(raw), nil), "refused\nsecond line"); err != nil {
				t.Fatal(err)
			}
		}
		const n = 203 // more than two pages
		before := time.Now().Add(-2 * time.Second)
		for i := range n {
			save("redis", "default", strings.Replace(payloadOf(fmt.Sprint(i)), `"attempts":0`, `"attempts":4`, 1))
		}
		save("redis", "other", payloadOf("elsewhere"))
		save("sqs", "default", payloadOf("foreign"))
		i := n
		for j, err := range q.Failed(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if i--; j.UUID != fmt.Sprint("uuid-", i) || j.Reason != "refused\nsecond line" || j.At.Before(before) || j.At.After(time.Now()) {
				t.Fatalf("row %d: %+v", i, j)
			}
		}
		if i != 0 {
			t.Errorf("%d rows were not listed", i)
		}
		mark := "" // of one that is not there any more
		for range 3 {
			for j, err := range q.FailedBefore(ctx, mark) {
				if err != nil {
					t.Fatal(err)
				}
				if mark = j.Mark(); j.UUID != fmt.Sprint("uuid-", n-1-i) {
					t.Fatalf("row %d from a mark on: %+v", i, j)
				}
				if i++; i%70 == 0 {
					break
				}
			}
		}
		if i != n {
			t.Errorf("%d rows from marks on, want %d", i, n)
		}
		for _, err := range q.FailedBefore(ctx, "x") {
			if err == nil {
				t.Error("a mark that is none is taken")
			}
		}
		for _, uuid := range []string{"uuid-elsewhere", "uuid-foreign", "none"} {
			_, err := q.FailedJob(ctx, uuid)
			for what, err := range map[string]error{"FailedJob": err, "Forget": q.Forget(ctx, uuid), "Retry": q.Retry(ctx, uuid)} {
				if !errors.Is(err, ErrNoFailedJob) {
					t.Errorf("%s of %s = %v, want ErrNoFailedJob", what, uuid, err)
				}
			}
		}
		if j, err := q.FailedJob(ctx, "uuid-7"); err != nil || string(j.Payload) != strings.Replace(payloadOf("7"), `"attempts":0`, `"attempts":4`, 1) {
			t.Errorf("FailedJob = %+v, %v", j, err)
		}
		if err := errors.Join(q.Forget(ctx, "uuid-7"), q.Retry(ctx, "uuid-8")); err != nil {
			t.Fatal(err)
		}
		if got := rows(t, app); len(got) != n {
			t.Errorf("%d rows, want %d", len(got), n)
		}
		if got, want := q.list(t, q.k.ready), []string{payloadOf("8")}; !slices.Equal(got, want) || len(q.list(t, q.k.notify)) != 1 {
			t.Errorf("queue %q, want %q", got, want)
		}
		m := q.receive(t)
		if m.Err != nil || m.ID != "uuid-8" || m.DeliveredBefore {
			t.Errorf("retried message %+v", m)
		}

		// While one retries it, another does not get as far as to push it.
		err = failed.take(ctx, "redis", "default", "uuid-9", func([]byte) error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			return failed.take(ctx, "redis", "default", "uuid-9", func([]byte) error {
				t.Error("two retries of one job at the same time")
				return nil
			})
		})
		if err == nil {
			t.Error("the second retry had no error")
		}
		if err := q.Retry(ctx, "uuid-9"); err != nil {
			t.Error(err)
		}
		if err := q.Retry(ctx, "uuid-9"); !errors.Is(err, ErrNoFailedJob) {
			t.Errorf("a retry behind another = %v, want ErrNoFailedJob", err)
		}
	})
}

// A retry whose row could not be deleted leaves both; asked again, it makes no
// second copy. One that could not push leaves the row.
func TestRetryHalfDone(t *testing.T) {
	db, failed := sqliteJobs(t)
	q := newQueue(t, func(c *Config) { c.Failed = failed })
	ctx := t.Context()
	if err := failed.save(ctx, "redis", "default", Decode([]byte(payloadOf("1")), nil), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TRIGGER no BEFORE DELETE ON failed_jobs BEGIN SELECT RAISE(ABORT, 'not now'); END"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := q.Retry(ctx, "uuid-1"); !errors.Is(err, worker.ErrBoth) {
			t.Fatalf("Retry = %v", err)
		}
		if got := q.list(t, q.k.ready); len(got) != 1 || len(rows(t, db)) != 1 {
			t.Fatalf("queue %q, rows %q; want one of each", got, rows(t, db))
		}
	}
	if _, err := db.Exec("DROP TRIGGER no"); err != nil {
		t.Fatal(err)
	}
	stopped, cancel := context.WithCancel(ctx)
	q.app.Del(ctx, q.k.ready)
	if err := q.app.Set(ctx, q.k.ready, "no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := q.Retry(stopped, "uuid-1"); err == nil || len(rows(t, db)) != 1 {
		t.Fatalf("Retry = %v, rows %q; want an error and the row", err, rows(t, db))
	}
	cancel()
	if err := q.Retry(stopped, "uuid-1"); err == nil || len(rows(t, db)) != 1 {
		t.Fatalf("Retry = %v, rows %q; want an error and the row", err, rows(t, db))
	}
	q.app.Del(ctx, q.k.ready)
	if err := q.Retry(ctx, "uuid-1"); err != nil || len(rows(t, db)) != 0 {
		t.Fatalf("Retry = %v, rows %q", err, rows(t, db))
	}
}

func TestWithoutAttempts(t *testing.T) {
	for raw, want := range map[string]string{
		`{"job":"X","attempts":41,"data":{"attempts":7}}`:        `{"job":"X","attempts":0,"data":{"attempts":7}}`,
		` { "attempts" : "3" , "job":"X"}` + "\n":                ` { "attempts" : "0" , "job":"X"}` + "\n",
		`{"job":"X","attempts":1,"attempts":2,"big":1e999}`:      `{"job":"X","attempts":1,"attempts":0,"big":1e999}`,
		`{"job":"X","n":123456789012345678,"e":[],"attempts":0}`: `{"job":"X","n":123456789012345678,"e":[],"attempts":0}`,
	} {
		if got, err := withoutAttempts([]byte(raw)); err != nil || string(got) != want {
			t.Errorf("%s became %s, %v; want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{``, `[]`, `{"job":"X"}`, `{"job":"X","attempts":null}`, `{"attempts":1}`} {
		if got, err := withoutAttempts([]byte(raw)); err == nil {
			t.Errorf("%s became %s", raw, got)
		}
	}
}
