package messenger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// failedIDs are the ids of a transport's failed messages, the newest first.
func failedIDs(t *testing.T, s *Source) []string {
	t.Helper()
	var ids []string
	for m, err := range s.Failed(t.Context()) {
		ok(t, err)
		ids = append(ids, m.ID)
	}
	return ids
}

// Both kinds of failure transport list, give, put back and forget messages of
// this transport, and leave those of others alone.
func TestFailedListRetryForget(t *testing.T) {
	for _, kind := range []string{"table", "stream"} {
		for form, value := range map[string]func(order string) string{
			"php": func(order string) string { return entry(phpBody(order)) },
			"json": func(order string) string {
				return string(SerializerPHP.wrap([]byte(`{"body":"{\"orderId\":\"` + order + `\"}","headers":{"type":"App\\Message\\Charge"}}`)))
			},
		} {
			t.Run(kind+" "+form, func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				table, db := failedTable(t)
				other := open(t, dsn(t, ""), func(o *Options) { o.Name = "other" })
				tr := open(t, dsn(t, ""))
				tr.failed, other.failed = Failed(table), table
				if kind == "stream" {
					c := tr.cfg
					c.Stream = "failed"
					tr.failed = &Stream{Client: tr.redis, Config: c}
					other.failed = tr.failed
				}
				const n = 203 // more than two pages
				first := ""
				for i := range n {
					tr.add(t, value(fmt.Sprint(i)))
					m := tr.next(t)
					first = cmp.Or(first, m.ID)
					ok(t, tr.Park(ctx, m, fmt.Sprint("held ", i)))
				}
				other.add(t, value("elsewhere"))
				ok(t, other.Park(ctx, other.next(t), "x"))

				ids := failedIDs(t, tr.Source)
				if len(ids) != n {
					t.Fatalf("%d messages are listed, want %d", len(ids), n)
				}
				i := 0
				for mark := ""; i < n; {
					begun := i
					for m, err := range tr.FailedBefore(ctx, mark) {
						ok(t, err)
						if mark = m.ID; m.ID != ids[i] {
							t.Fatalf("message %d from a mark on is %s, want %s", i, m.ID, ids[i])
						}
						if i++; i%70 == 0 {
							break
						}
					}
					if i == begun {
						t.Fatalf("%d messages from marks on, want %d", i, n)
					}
				}
				for i, id := range ids {
					if i%50 != 0 {
						continue
					}
					m, err := tr.FailedMessage(ctx, id)
					ok(t, err)
					if want := fmt.Sprint(n - 1 - i); m.Message.Err != nil || m.Message.Data["orderId"] != want || m.Reason != "held "+want || m.At.IsZero() {
						t.Errorf("message %d: %+v, %+v", i, m.Kept, m.Message)
					}
				}
				if m, err := tr.FailedMessage(ctx, ids[n-1]); err != nil || m.Message.ID != first {
					t.Errorf("the first message has the id %s, %v; it was parked as %s", m.Message.ID, err, first)
				}
				theirs := failedIDs(t, other.Source)
				if len(theirs) != 1 {
					t.Fatalf("the other transport lists %v", theirs)
				}
				for _, id := range []string{theirs[0], "0", "x", "9999999999999-0"} {
					_, err := tr.FailedMessage(ctx, id)
					for what, err := range map[string]error{"FailedMessage": err, "Retry": tr.Retry(ctx, id), "Forget": tr.Forget(ctx, id)} {
						if !errors.Is(err, ErrNotKept) {
							t.Errorf("%s of %s = %v, want ErrNotKept", what, id, err)
						}
					}
				}
				ok(t, tr.Forget(ctx, ids[0]))
				ok(t, tr.Retry(ctx, ids[1]))
				m := tr.next(t)
				if m.Err != nil || m.Data["orderId"] != "201" || !m.DeliveredBefore {
					t.Errorf("the message put back: %+v", m)
				}
				was := m.RetryOf // the ID that it was parked with
				if !entryID.MatchString(was) || was == m.ID {
					t.Errorf("the message put back has ID %s and is a retry of %q", m.ID, was)
				}
				m.MayHaveActed = true
				ok(t, tr.Later(ctx, m, 0))
				again := tr.next(t)
				if again.ID != m.ID || again.RetryOf != was {
					t.Errorf("put off, it has ID %s and is a retry of %q; had %s, %s", again.ID, again.RetryOf, m.ID, was)
				}
				ok(t, tr.Park(ctx, again, "again"))
				twice := failedIDs(t, tr.Source)[0]
				ok(t, tr.Retry(ctx, twice))
				if m := tr.next(t); m.RetryOf != again.ID {
					t.Errorf("parked as %s, it is put back as a retry of %q", again.ID, m.RetryOf)
				} else {
					m.Then = "gone"
					ok(t, tr.Ack(ctx, m))
				}
				if gone := values(t, tr.client, "gone"); len(gone) != 1 || strings.Contains(gone[0], "Zabor") {
					t.Errorf("gone on: %q", gone)
				}
				tr.none(t)
				// One that goes on to PHP's own stream knows nothing of the
				// failure transport any more.
				ok(t, tr.MoveOn(ctx, ids[2], "beside"))
				moved := values(t, tr.client, "beside")
				if len(moved) != 1 || strings.Contains(moved[0], "originalReceiverName") || strings.Contains(moved[0], originHeader) || !strings.Contains(moved[0], "RedeliveryStamp") {
					t.Errorf("gone on: %q", moved)
				}
				if err := tr.MoveOn(ctx, ids[2], "beside"); !errors.Is(err, ErrNotKept) {
					t.Errorf("MoveOn twice = %v, want ErrNotKept", err)
				}
				ids = slices.Delete(ids, 2, 3)
				if left := failedIDs(t, tr.Source); !slices.Equal(left, ids[2:]) {
					t.Errorf("%d messages are left, want %d", len(left), len(ids)-2)
				}
				if kind == "table" {
					// A row that PHP handles is PHP's.
					_, err := db.Exec("UPDATE messenger_messages SET delivered_at = '9999-12-31 23:59:59'")
					ok(t, err)
					if left := failedIDs(t, tr.Source); len(left) != 0 {
						t.Errorf("handled rows are listed: %v", left)
					}
					if err := tr.Retry(ctx, ids[2]); !errors.Is(err, ErrNotKept) {
						t.Errorf("Retry of a handled row = %v", err)
					}
				}
			})
		}
	}
}

// Of several people who retry one message at the same time one puts it back; the
// others find it gone.
func TestRetryRace(t *testing.T) {
	t.Parallel()
	const messages, people = 20, 4
	for _, kind := range []string{"table", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			table, _ := failedTable(t)
			tr := open(t, dsn(t, ""), func(o *Options) { o.Failed = table })
			if kind == "stream" {
				c := tr.cfg
				c.Stream = "failed"
				tr.failed = &Stream{Client: tr.redis, Config: c}
			}
			for i := range messages {
				tr.add(t, entry(phpBody(strconv.Itoa(i))))
				ok(t, tr.Park(t.Context(), tr.next(t), "held"))
			}
			var won atomic.Int64
			for _, id := range failedIDs(t, tr.Source) {
				var wg sync.WaitGroup
				for range people {
					wg.Go(func() {
						switch err := tr.Retry(t.Context(), id); {
						case err == nil:
							won.Add(1)
						case !errors.Is(err, ErrNotKept):
							t.Errorf("Retry = %v, want nothing or ErrNotKept", err)
						}
					})
				}
				wg.Wait()
			}
			if n := tr.redis.XLen(t.Context(), "messages").Val(); won.Load() != messages || n != messages || len(failedIDs(t, tr.Source)) != 0 {
				t.Errorf("%d retries of %d messages, %d on the stream, %d failed", won.Load(), messages, n, len(failedIDs(t, tr.Source)))
			}
		})
	}
}

// What a PHP worker has taken from the failure transport's stream is left to it,
// until it counts as dead.
func TestRetryOfWhatPHPHas(t *testing.T) {
	t.Parallel()
	tr := open(t, dsn(t, "redeliver_timeout=60"))
	c := tr.cfg
	c.Stream = "failed"
	tr.failed = &Stream{Client: tr.redis, Config: c}
	tr.add(t, entry(phpBody("1")))
	ok(t, tr.Park(t.Context(), tr.next(t), "held"))
	id := failedIDs(t, tr.Source)[0]
	ok(t, tr.redis.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "symfony", Consumer: "consumer", Streams: []string{"failed", ">"}}).Err())
	if err := tr.Retry(t.Context(), id); !errors.Is(err, ErrInHand) || tr.redis.XLen(t.Context(), "messages").Val() != 0 {
		t.Errorf("Retry = %v, %d on the stream", err, tr.redis.XLen(t.Context(), "messages").Val())
	}
	ok(t, tr.redis.Do(t.Context(), "XCLAIM", "failed", "symfony", "consumer", 0, id, "IDLE", 60_000, "JUSTID").Err())
	ok(t, tr.Retry(t.Context(), id))
	if n := tr.redis.XPending(t.Context(), "failed", "symfony").Val().Count; n != 0 || tr.redis.XLen(t.Context(), "failed").Val() != 0 {
		t.Errorf("%d pending, %d entries in the failure transport", n, tr.redis.XLen(t.Context(), "failed").Val())
	}
}
