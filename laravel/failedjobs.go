package laravel

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"zabor/worker"
)

// FailedJobs is the application's table of failed jobs, with a unique column
// uuid (queue.failed.driver database-uuids, the default since Laravel 8).
// `php artisan queue:retry` takes jobs from it.
type FailedJobs struct {
	db    *sql.DB
	table string
	zone  *time.Location
	text  failedSQL
	extra bool // the upsert takes failed_at twice
}

// failedSQL are the statements in the database's own words.
type failedSQL struct{ upsert, list, elsewhere, get, lock, delete string }

// ErrNoFailedJob says that the table has no such row, for this queue.
var ErrNoFailedJob = errors.New("no such failed job")

// NewFailedJobs names the table, in the form table or schema.table. The dialect
// is "mysql" (MariaDB too), "postgres" or "sqlite". Zone is the application's
// time zone (app.timezone), in which failed_at is written.
func NewFailedJobs(db *sql.DB, dialect, table string, zone *time.Location) (*FailedJobs, error) {
	quote, marks, conflict := `"`, "?, ?, ?, ?, ?, ?", `ON CONFLICT (uuid) DO UPDATE SET "connection" = excluded."connection", "queue" = excluded."queue", "payload" = excluded."payload", "exception" = excluded."exception", "failed_at" = excluded."failed_at"`
	at := `CAST("failed_at" AS text)`
	switch dialect {
	case "mysql":
		// failed_at is a timestamp, whose text MySQL reads and writes in the
		// session's time zone. The application's sessions have the server's.
		quote, marks = "`", "?, ?, ?, ?, ?, IFNULL(CONVERT_TZ(?, @@global.time_zone, @@session.time_zone), ?)"
		conflict = "ON DUPLICATE KEY UPDATE `connection` = VALUES(`connection`), `queue` = VALUES(`queue`), `payload` = VALUES(`payload`), `exception` = VALUES(`exception`), `failed_at` = VALUES(`failed_at`)"
		at = `CAST(IFNULL(CONVERT_TZ("failed_at", @@session.time_zone, @@global.time_zone), "failed_at") AS char)`
	case "postgres":
		marks = "$1, $2, $3, $4, $5, $6"
	case "sqlite":
	default:
		return nil, fmt.Errorf("failed jobs: unknown dialect %q; mysql, postgres or sqlite", dialect)
	}
	if table == "" || strings.ContainsAny(table, "\x00\"`") {
		return nil, fmt.Errorf("failed jobs: %q is not the name of a table", table)
	}
	quoted := quote + strings.ReplaceAll(table, ".", quote+"."+quote) + quote
	mine := `"connection" = ? AND "queue" = ?`
	words := func(query string) string {
		query = strings.ReplaceAll(query, `"`, quote)
		for n := 1; dialect == "postgres" && strings.Contains(query, "?"); n++ {
			query = strings.Replace(query, "?", fmt.Sprint("$", n), 1)
		}
		return query
	}
	columns := strings.ReplaceAll(`"uuid", "connection", "queue", "payload", "exception", "failed_at"`, `"`, quote)
	selected := `SELECT "id", "uuid", "payload", "exception", ` + at + " FROM "
	return &FailedJobs{db: db, table: table, zone: zone, extra: dialect == "mysql", text: failedSQL{
		upsert:    "INSERT INTO " + quoted + " (" + columns + ") VALUES (" + marks + ") " + conflict,
		list:      words(selected) + quoted + words(" WHERE "+mine+` AND "id" < ? ORDER BY "id" DESC LIMIT ?`),
		elsewhere: words(selected) + quoted + words(` WHERE "connection" <> ? AND "queue" = ? AND "id" < ? ORDER BY "id" DESC LIMIT ?`),
		get:       words(selected) + quoted + words(" WHERE "+mine+` AND "uuid" = ?`),
		lock:      "UPDATE " + quoted + words(` SET "uuid" = "uuid" WHERE `+mine+` AND "uuid" = ?`),
		delete:    "DELETE FROM " + quoted + words(" WHERE "+mine+` AND "uuid" = ?`),
	}}, nil
}

// FailedJob is a row of the table.
type FailedJob struct {
	UUID    string
	Payload []byte    // as it was before the delivery that failed
	Reason  string    // column exception: often many lines
	At      time.Time // zero: failed_at is no time
	id      int64
}

// Mark is where j stands in the order of its table, for [Source.FailedBefore].
func (j FailedJob) Mark() string { return strconv.FormatInt(j.id, 10) }

// list passes the jobs of a queue that query selects to yield, the newest first: those older than the
// one with that mark, all with an empty one.
func (f *FailedJobs) list(ctx context.Context, query, connection, queue, mark string) iter.Seq2[FailedJob, error] {
	const page = 100 // a page at a time: no statement is open while the caller works
	return func(yield func(FailedJob, error) bool) {
		before := int64(math.MaxInt64)
		if mark != "" {
			var err error
			if before, err = strconv.ParseInt(mark, 10, 64); err != nil {
				yield(FailedJob{}, fmt.Errorf("table %s: %.40q is no place in it", f.table, mark))
				return
			}
		}
		for {
			jobs, err := f.rows(ctx, query, connection, queue, before, page)
			if err != nil {
				yield(FailedJob{}, err)
				return
			}
			for _, j := range jobs {
				if before = j.id; !yield(j, nil) {
					return
				}
			}
			if len(jobs) < page {
				return
			}
		}
	}
}

// get is the job of that uuid, or ErrNoFailedJob.
func (f *FailedJobs) get(ctx context.Context, connection, queue, uuid string) (FailedJob, error) {
	jobs, err := f.rows(ctx, f.text.get, connection, queue, uuid)
	if err != nil {
		return FailedJob{}, err
	}
	if len(jobs) == 0 {
		return FailedJob{}, ErrNoFailedJob
	}
	return jobs[0], nil
}

func (f *FailedJobs) rows(ctx context.Context, query string, args ...any) ([]FailedJob, error) {
	rows, err := f.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, f.failure("read", err)
	}
	defer rows.Close()
	var jobs []FailedJob
	for rows.Next() {
		var j FailedJob
		var at string
		if err := rows.Scan(&j.id, &j.UUID, &j.Payload, &j.Reason, &at); err != nil {
			return nil, f.failure("read", err)
		}
		at, _, _ = strings.Cut(at, ".")
		j.At, _ = time.ParseInLocation(time.DateTime, at, f.zone)
		jobs = append(jobs, j)
	}
	if err := rows.Err(); err != nil {
		return nil, f.failure("read", err)
	}
	return jobs, nil
}

// forget deletes the job of that uuid; ErrNoFailedJob: there was none.
func (f *FailedJobs) forget(ctx context.Context, connection, queue, uuid string) error {
	result, err := f.db.ExecContext(ctx, f.text.delete, connection, queue, uuid)
	if err != nil {
		return f.failure("delete from", err)
	}
	if n, err := result.RowsAffected(); err == nil && n == 0 {
		return ErrNoFailedJob
	}
	return nil
}

// take deletes the job of that uuid after push has put its payload elsewhere.
// The row stays when anything fails, and is locked meanwhile, so that of two
// that take it at the same time one finds it gone.
func (f *FailedJobs) take(ctx context.Context, connection, queue, uuid string, push func(payload []byte) error) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return f.failure("write", err)
	}
	defer tx.Rollback()
	// An update that changes nothing locks in every database, and first, so that
	// SQLite need not raise a read lock.
	if _, err := tx.ExecContext(ctx, f.text.lock, connection, queue, uuid); err != nil {
		return f.failure("lock a row of", err)
	}
	var j FailedJob
	var at any
	switch err := tx.QueryRowContext(ctx, f.text.get, connection, queue, uuid).Scan(&j.id, &j.UUID, &j.Payload, &j.Reason, &at); {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNoFailedJob
	case err != nil:
		return f.failure("read", err)
	}
	if err := push(j.Payload); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, f.text.delete, connection, queue, uuid)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", worker.ErrBoth, f.failure("delete from", err))
	}
	return nil
}

func (f *FailedJobs) failure(what string, err error) error {
	return fmt.Errorf("cannot %s table %s, which needs the columns id, uuid (unique), connection, queue, payload, exception and failed_at: %w", what, f.table, err)
}

// save writes m's row; one of the same uuid is replaced. The payload is the one
// from before the delivery, as Laravel writes it, with m's sign. One without a uuid gets one,
// made from its id, so that parking it twice is one row.
func (f *FailedJobs) save(ctx context.Context, connection, queue string, m *worker.Message, reason string) error {
	uuid, payload, err := withUUID(m)
	if err != nil {
		return err
	}
	reason = strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", ""), "\uFFFD")
	at := time.Now().In(f.zone).Format(time.DateTime)
	args := []any{uuid, connection, queue, payload, reason, at}
	if f.extra {
		args = append(args, at)
		if err := worker.CheckPacket(ctx, f.db, len(payload)+len(reason)); err != nil {
			return fmt.Errorf("cannot write it into table %s: %w", f.table, err)
		}
	}
	if _, err := f.db.ExecContext(ctx, f.text.upsert, args...); err != nil {
		return f.failure(fmt.Sprintf("write %d bytes into", len(payload)), err)
	}
	return nil
}

// withUUID returns m's payload and the uuid in it.
func withUUID(m *worker.Message) (uuid, payload string, err error) {
	raw := withSign(m)
	p, err := parse(raw)
	if err != nil {
		return "", "", err
	}
	if uuid := p.text("uuid"); uuid != "" && len(uuid) <= 255 {
		return uuid, string(raw), nil
	}
	uuid = digest([]byte(m.ID))
	field, err := json.Marshal(uuid)
	if err != nil {
		return "", "", err
	}
	// At the end it also wins over a uuid that is null.
	return uuid, string(withMember(raw, `"uuid":`+string(field))), nil
}
