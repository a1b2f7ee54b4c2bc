package laravel

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"zabor/worker"
)

// FailedJobs is the application's table of failed jobs, with a unique column
// uuid (queue.failed.driver database-uuids, the default since Laravel 8).
// `php artisan queue:retry` takes jobs from it.
type FailedJobs struct {
	db     *sql.DB
	table  string
	zone   *time.Location
	upsert string
	extra  bool // the upsert takes failed_at twice
}

// NewFailedJobs names the table, in the form table or schema.table. The dialect
// is "mysql" (MariaDB too), "postgres" or "sqlite". Zone is the application's
// time zone (app.timezone), in which failed_at is written.
func NewFailedJobs(db *sql.DB, dialect, table string, zone *time.Location) (*FailedJobs, error) {
	quote, marks, conflict := `"`, "?, ?, ?, ?, ?, ?", `ON CONFLICT (uuid) DO UPDATE SET "connection" = excluded."connection", "queue" = excluded."queue", "payload" = excluded."payload", "exception" = excluded."exception", "failed_at" = excluded."failed_at"`
	switch dialect {
	case "mysql":
		// failed_at is a timestamp, whose text MySQL reads in the session's time
		// zone. The application's sessions have the server's.
		quote, marks = "`", "?, ?, ?, ?, ?, IFNULL(CONVERT_TZ(?, @@global.time_zone, @@session.time_zone), ?)"
		conflict = "ON DUPLICATE KEY UPDATE `connection` = VALUES(`connection`), `queue` = VALUES(`queue`), `payload` = VALUES(`payload`), `exception` = VALUES(`exception`), `failed_at` = VALUES(`failed_at`)"
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
	columns := strings.ReplaceAll(`"uuid", "connection", "queue", "payload", "exception", "failed_at"`, `"`, quote)
	return &FailedJobs{db: db, table: table, zone: zone, extra: dialect == "mysql",
		upsert: "INSERT INTO " + quoted + " (" + columns + ") VALUES (" + marks + ") " + conflict}, nil
}

// save writes m's row; one of the same uuid is replaced. The payload is the one
// from before the delivery, as Laravel writes it. One without a uuid gets one,
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
	}
	if _, err := f.db.ExecContext(ctx, f.upsert, args...); err != nil {
		return fmt.Errorf("cannot write table %s, which needs the columns uuid (unique), connection, queue, payload, exception and failed_at: %w", f.table, err)
	}
	return nil
}

// withUUID returns m's payload and the uuid in it.
func withUUID(m *worker.Message) (uuid, payload string, err error) {
	p, err := parse(m.Raw)
	if err != nil {
		return "", "", err
	}
	if uuid := p.text("uuid"); uuid != "" && len(uuid) <= 255 {
		return uuid, string(m.Raw), nil
	}
	uuid = digest([]byte(m.ID))
	field, err := json.Marshal(uuid)
	if err != nil {
		return "", "", err
	}
	// At the end, where it also wins over a uuid that is null.
	end := bytes.LastIndexByte(m.Raw, '}')
	return uuid, string(m.Raw[:end]) + `,"uuid":` + string(field) + string(m.Raw[end:]), nil
}
