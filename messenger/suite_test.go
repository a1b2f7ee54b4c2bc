package messenger

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/zabortest"
)

func TestSource(t *testing.T) {
	for name, serializer := range map[string]string{"php": "1", "json": "4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zabortest.Source(t, func(t *testing.T) zabortest.SourceUnderTest {
				table, db := failedTable(t)
				tr := open(t, dsn(t, "redeliver_timeout=1&claim_interval=50&serializer="+serializer), func(o *Options) { o.Failed = table })
				return zabortest.SourceUnderTest{
					Source:  tr,
					Reserve: time.Second,
					Push: func(t *testing.T, orderID string) {
						e := envelope{bodyJSON: []byte(phpQuote(phpBody(orderID))), headersJSON: []byte("[]")}
						tr.add(t, string(tr.cfg.Serializer.wrap(e.json())))
					},
					PushRaw:     func(t *testing.T, raw []byte) { tr.add(t, string(raw)) },
					Unreadable:  []byte("s:5:\"hello\xff\";"),
					Failed:      func(t *testing.T) int { return count(t, db) },
					BreakFailed: func(t *testing.T) func() { return breakTable(t, db) },
					Other:       "other",
					Forwarded:   func(t *testing.T) []string { return values(t, tr.client, "other") },
					Disconnect:  func(t *testing.T) { disconnect(t, tr.cfg) },
				}
			})
		})
	}
}

// values are the field message of a stream's entries.
func values(t *testing.T, client redis.UniversalClient, stream string) []string {
	t.Helper()
	entries, err := client.XRange(t.Context(), stream, "-", "+").Result()
	ok(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Values["message"].(string))
	}
	return all
}

func count(t *testing.T, db *sql.DB) int {
	t.Helper()
	var n int
	ok(t, db.QueryRow("SELECT COUNT(*) FROM messenger_messages WHERE queue_name = 'failed'").Scan(&n))
	return n
}

func breakTable(t *testing.T, db *sql.DB) func() {
	_, err := db.Exec("ALTER TABLE messenger_messages RENAME TO away")
	ok(t, err)
	return func() {
		_, err := db.Exec("ALTER TABLE away RENAME TO messenger_messages")
		ok(t, err)
	}
}

// disconnect kills the connections to c's database, and to no other test's.
func disconnect(t *testing.T, c Config) {
	t.Helper()
	admin := c
	admin.DB = 0
	client := connect(t, admin)
	list, err := client.Do(t.Context(), "CLIENT", "LIST").Text()
	ok(t, err)
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if !slices.Contains(fields, fmt.Sprintf("db=%d", c.DB)) {
			continue
		}
		id := strings.TrimPrefix(fields[0], "id=")
		client.Do(t.Context(), "CLIENT", "KILL", "ID", id) // it may have gone by itself
	}
}
