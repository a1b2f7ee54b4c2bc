package messenger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/worker"
	"zabor/zabortest"
)

func TestSource(t *testing.T) {
	for _, tt := range []struct{ name, serializer string }{{"php", "1"}, {"json", "4"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			zabortest.Source(t, func(t *testing.T) zabortest.SourceUnderTest {
				table, db := failedTable(t)
				address := dsn(t, "redeliver_timeout=1&claim_interval=50&serializer="+tt.serializer)
				tr := open(t, address, func(o *Options) { o.Failed = table })
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
					Mortal: func(t *testing.T, dial zabortest.Dial) worker.Source {
						return mortal(t, tr, dial, func(redis.UniversalClient) Failed { return table })
					},
					Retry: retryFirst,
				}
			})
		})
	}
}

// mortal is another source of tr's transport, whose connections are made by dial.
func mortal(t *testing.T, tr *transport, dial zabortest.Dial, failed func(redis.UniversalClient) Failed) worker.Source {
	t.Helper()
	options := tr.cfg.Options()
	options.Dialer = dial
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { client.Close() })
	s, err := NewSource(client, Options{Name: tr.name, Config: tr.cfg, Host: "web2", Failed: failed(client)})
	ok(t, err)
	return s
}

// retryFirst retries the newest message of s's failure transport.
func retryFirst(ctx context.Context, s worker.Source) error {
	for m, err := range s.(*Source).Failed(ctx) {
		if err != nil {
			return err
		}
		return s.(*Source).Retry(ctx, m.ID)
	}
	return ErrNotKept
}

// With a stream as failure transport, parking and retrying are one script each: a
// death at any command leaves one copy.
func TestSourceWithAFailedStream(t *testing.T) {
	t.Parallel()
	zabortest.Source(t, func(t *testing.T) zabortest.SourceUnderTest {
		tr := open(t, dsn(t, "redeliver_timeout=1&claim_interval=50"))
		c := tr.cfg
		c.Stream = "failed"
		tr.failed = &Stream{Client: tr.redis, Config: c}
		return zabortest.SourceUnderTest{
			Source: tr, Reserve: time.Second, OneScript: true,
			Push:       func(t *testing.T, orderID string) { tr.add(t, entry(phpBody(orderID))) },
			PushRaw:    func(t *testing.T, raw []byte) { tr.add(t, string(raw)) },
			Unreadable: []byte("s:5:\"hello\xff\";"),
			Failed:     func(t *testing.T) int { return int(tr.redis.XLen(t.Context(), "failed").Val()) },
			BreakFailed: func(t *testing.T) func() {
				ok(t, tr.redis.Set(t.Context(), "failed", "no stream", 0).Err())
				return func() { ok(t, tr.redis.Del(t.Context(), "failed").Err()) }
			},
			Other:      "other",
			Forwarded:  func(t *testing.T) []string { return values(t, tr.client, "other") },
			Disconnect: func(t *testing.T) { disconnect(t, tr.cfg) },
			Mortal: func(t *testing.T, dial zabortest.Dial) worker.Source {
				return mortal(t, tr, dial, func(client redis.UniversalClient) Failed { return &Stream{Client: client, Config: c} })
			},
			Retry: retryFirst,
		}
	})
}

// A death at any command of an answer to a stream whose other stream, and whose
// delayed set, are in other slots of a cluster.
func TestDeathAcrossSlots(t *testing.T) {
	t.Parallel()
	addr := servers.RedisCluster(t).Addr()
	var n atomic.Int64
	zabortest.Death(t, func(t *testing.T) zabortest.SourceUnderTest {
		table, db := failedTable(t)
		id := n.Add(1)
		other := fmt.Sprint("other", id)
		tr := open(t, fmt.Sprintf("redis://%s/messages%d?cluster=1&redeliver_timeout=1&claim_interval=50", addr, id), func(o *Options) { o.Failed = table })
		return zabortest.SourceUnderTest{
			Source: tr, TwoSlots: true, Other: other,
			Push:      func(t *testing.T, orderID string) { tr.add(t, entry(phpBody(orderID))) },
			Failed:    func(t *testing.T) int { return count(t, db) },
			Forwarded: func(t *testing.T) []string { return values(t, tr.client, other) },
			Mortal: func(t *testing.T, dial zabortest.Dial) worker.Source {
				return mortal(t, tr, dial, func(redis.UniversalClient) Failed { return table })
			},
			Retry: retryFirst,
		}
	})
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
