package messenger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// Failed is a failure transport: [Table] or [Stream].
type Failed interface {
	// Put adds a message. After a nil error it is safe there; after an error
	// it may be there. Again: it may be there already by an earlier Put, and is
	// then not added a second time.
	Put(ctx context.Context, m Parked, again bool) error
	// List gives what it has, the newest first: what is older than the message of id
	// before, which need not be there any more; all where that is empty. It ends with
	// the first error.
	List(ctx context.Context, before string) iter.Seq2[Kept, error]
	Get(ctx context.Context, id string) (Kept, error)
	Take(ctx context.Context, id string, push func(Parked) error) error
	Remove(ctx context.Context, id string) error
}

// Parked is a message in the form in which Symfony's serializers make it.
type Parked struct {
	Body    string
	Headers string // a JSON object, or [] if there are none
	Origin  string // the entry that it was parked from, see originHeader; empty: not known
}

// originHeader names in a parked message the stream and the entry that it comes
// from. Who parks the message again, because the first one died before the ack, finds
// it by that, and so does the fence when it is retried. PHP looks at no header that it
// does not know.
const originHeader = "Zabor-Origin"

// withOrigin is p with its origin among its headers.
func (p Parked) withOrigin() (Parked, error) {
	headers, err := readHeaders([]byte(p.Headers))
	if err != nil || p.Origin == "" {
		return p, err
	}
	headers = slices.DeleteFunc(headers, func(h header) bool { return h.name == originHeader })
	p.Headers = string(writeHeaders(append(headers, header{name: originHeader, value: p.Origin})))
	return p, nil
}

// Table is the table of Symfony's Doctrine transport, the failure transport that
// messenger:failed:show can list in every release.
type Table struct {
	db    *sql.DB
	queue string
	zone  *time.Location
	mysql bool

	insert, find, list, get, lock, remove string // statements
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewTable names the table, in the form table or schema.table (messenger_messages
// in Symfony), and the queue_name of the failure transport's DSN. The dialect is
// "mysql" (MariaDB too), "postgres" or "sqlite". Zone is the time zone of the
// table's times: UTC from Symfony 6.3 on, before that PHP's own.
func NewTable(db *sql.DB, dialect, table, queue string, zone *time.Location) (*Table, error) {
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("failure transport: %.60q is not the name of a table", table)
	}
	t := &Table{db: db, queue: queue, zone: zone, mysql: dialect == "mysql"}
	values := "(?, ?, ?, ?, ?)"
	switch dialect {
	case "mysql", "sqlite":
	case "postgres":
		values = "($1, $2, $3, $4, $5)"
	default:
		return nil, fmt.Errorf("failure transport: unknown dialect %.40q", dialect)
	}
	mark, text := func(int) string { return "?" }, "text"
	switch dialect {
	case "mysql":
		text = "char" // as MySQL names it in a CAST
	case "postgres":
		mark = func(n int) string { return fmt.Sprint("$", n) }
	}
	selected := "SELECT id, body, headers, CAST(created_at AS " + text + ") FROM " + table +
		" WHERE queue_name = " + mark(1) + " AND (delivered_at IS NULL OR delivered_at < " + mark(2) + ")"
	one := " WHERE queue_name = " + mark(1) + " AND id = " + mark(2)
	t.list = selected + " AND id < " + mark(3) + " ORDER BY id DESC LIMIT " + mark(4)
	t.get = selected + " AND id = " + mark(3)
	t.find = "SELECT headers FROM " + table + " WHERE queue_name = " + mark(1) + " AND headers LIKE " + mark(2)
	t.lock = "UPDATE " + table + " SET queue_name = queue_name" + one
	t.remove = "DELETE FROM " + table + one
	t.insert = "INSERT INTO " + table + " (body, headers, queue_name, created_at, available_at) VALUES " + values
	return t, nil
}

// Put inserts a message that is available at once. Finding one that is there
// already reads all rows of the queue_name, so it is done only where the message
// may be there.
func (t *Table) Put(ctx context.Context, m Parked, again bool) error {
	m, err := m.withOrigin()
	if err != nil {
		return err
	}
	if again {
		if there, err := t.has(ctx, m.Origin); there || err != nil {
			return err
		}
	}
	if t.mysql {
		if err := worker.CheckPacket(ctx, t.db, len(m.Body)+len(m.Headers)); err != nil {
			return fmt.Errorf("cannot insert it into the failure transport's table: %w", err)
		}
	}
	now := time.Now().In(t.zone).Format(time.DateTime)
	if _, err := t.db.ExecContext(ctx, t.insert, m.Body, m.Headers, t.queue, now, now); err != nil {
		return fmt.Errorf("insert %d bytes into the failure transport's table (messenger:setup-transports creates it): %w", len(m.Body)+len(m.Headers), err)
	}
	return nil
}

// has reports whether a message of that origin is in the table.
func (t *Table) has(ctx context.Context, origin string) (bool, error) {
	// The id of a stream's entry has no character that LIKE or JSON takes for
	// anything but itself; the stream's name may have.
	id := origin[strings.LastIndexByte(origin, ' ')+1:]
	rows, err := t.db.QueryContext(ctx, t.find, t.queue, "%"+originHeader+"%"+id+"%")
	if err != nil {
		return false, fmt.Errorf("read the failure transport's table (messenger:setup-transports creates it): %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return false, fmt.Errorf("read the failure transport's table: %w", err)
		}
		headers, _ := readHeaders([]byte(text)) // of what is no list of headers nothing is looked at
		if slices.ContainsFunc(headers, func(h header) bool { return h.name == originHeader && h.value == origin }) {
			return true, nil
		}
	}
	if err := rows.Err(); err != nil {
		return false, fmt.Errorf("read the failure transport's table: %w", err)
	}
	return false, nil
}

// Stream is a failure transport on Redis: a transport like any other.
type Stream struct {
	Client redis.UniversalClient
	Config Config
}

// Put adds a message to the end of the stream. Finding one that is there already
// reads the whole stream, so it is done only where the message may be there.
func (f *Stream) Put(ctx context.Context, m Parked, again bool) error {
	value, err := f.entry(ctx, m)
	if err != nil {
		return err
	}
	if again {
		for k, err := range f.List(ctx, "") {
			if err != nil || k.Origin == m.Origin {
				return err
			}
		}
	}
	if err := f.Client.XAdd(ctx, &redis.XAddArgs{Stream: f.Config.Stream, Values: []any{"message", value}}).Err(); err != nil {
		return fmt.Errorf("add to the failure transport's stream %s: %w", f.Config.Stream, err)
	}
	return nil
}

// entry is the field message of m's entry. Where the stream has no group yet it is
// made.
func (f *Stream) entry(ctx context.Context, m Parked) ([]byte, error) {
	if !utf8.ValidString(m.Body) {
		return nil, errors.New("the body is not UTF-8: the JSON of a stream entry cannot hold it")
	}
	m, err := m.withOrigin()
	if err != nil {
		return nil, err
	}
	if f.Config.AutoSetup {
		// As a PHP sender does: whoever comes first makes the group.
		err := f.Client.XGroupCreateMkStream(ctx, f.Config.Stream, f.Config.Group, "0").Err()
		if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
			return nil, fmt.Errorf("create group %s of stream %s: %w", f.Config.Group, f.Config.Stream, err)
		}
	}
	e := envelope{bodyJSON: quote(m.Body), headersJSON: []byte(m.Headers)}
	return f.Config.Serializer.wrap(e.json()), nil
}
