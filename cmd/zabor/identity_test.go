package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
)

// Order ids are compared byte for byte; what is no id is parked, and nothing is
// called for it. Every one of them is on the queue twice.
func TestOrderIdentity(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 127) + "b" // 255 bytes
	charged := []string{
		"A1", "a1", "7", "007", "7 ", " 7", "Zo\u00eb", "Zoe\u0308", "😀", "0", "false", "1.5", "x\x00y", "%27;--", long,
		"9223372036854775807",
	}
	taken := []any{int64(7), int64(9223372036854775807), -5}
	refused := []any{"", nil, false, true, 7.5, 0, long + "c", []any{"A1"}, map[string]any{"id": "A1"}}

	type cell struct {
		name, database string
		open           func(testing.TB) string
		redis          servers.RedisDB
	}
	var cells []cell
	var messages []message
	for _, d := range databases {
		for _, f := range frameworks {
			c := cell{f.name, d.name, d.open, servers.Redis(t)}
			cells = append(cells, c)
			for range 2 {
				for _, id := range charged {
					messages = append(messages, newMessage(c.redis, f.name, id))
				}
				for _, id := range slices.Concat(taken, refused) {
					messages = append(messages, newMessage(c.redis, f.name, id))
				}
			}
		}
	}
	put(t, messages...)
	for _, c := range cells {
		t.Run(c.name+"/"+c.database, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, c.open(t), options{redis: c.redis, lanes: 4})
			s.worker("--drain").exit(exit.BadAnswer) // what it refuses is parked
			want := append(slices.Clone(charged), "-5")
			for _, id := range want {
				s.chargedOnce(id)
			}
			slices.Sort(want)
			var got []string
			for _, row := range s.rows() {
				got = append(got, row.Order)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("rows of %q\nwant %q", got, want)
			}
			if orders := slices.Sorted(maps.Keys(s.provider.Stats().Orders)); !slices.Equal(orders, want) {
				t.Errorf("charges of %q\nwant %q", orders, want)
			}
			laravel, symfony := s.failed()
			if parked := laravel + symfony; parked != 2*len(refused) {
				t.Errorf("%d messages were parked, want %d", parked, 2*len(refused))
			}
			s.empty()
		})
	}
}

// The same order through both frameworks is one charge.
func TestOneOrderThroughBothFrameworks(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[2].open(t), options{lanes: 4})
	var messages []message
	for _, f := range frameworks {
		messages = append(messages, newMessage(s.o.redis, f.name, "7"), newMessage(s.o.redis, f.name, 7))
	}
	put(t, messages...)
	s.worker("--drain").exit(0)
	s.allChargedOnce([]string{"7"})
}

// A step whose scope comes from the message: the same order of two merchants is
// two charges, and without the merchant nothing is called.
func TestScopeFromTheMessage(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, d.open(t), options{merchant: true})
			var messages []message
			for _, merchant := range []string{"m1", "M1", "", "m1"} {
				m := newMessage(s.o.redis, "laravel", "1001")
				m.Class = `App\Jobs\ChargeForMerchant`
				if merchant != "" {
					m.Properties["merchantId"] = merchant
				}
				messages = append(messages, m)
			}
			put(t, messages...)
			w := s.worker("--drain")
			w.exit(exit.BadAnswer) // one has no merchant, and is parked
			rows := s.rows()
			for _, scope := range []string{"test/m1", "test/M1"} {
				if row := rows[scope+" 1001"]; row.State != zabor.Settled || row.Step != "merchant" {
					t.Errorf("row in scope %s: %+v", scope, row)
				}
			}
			if charges := s.provider.Stats().Charges; charges != 2 || len(rows) != 2 {
				t.Errorf("%d charges, %d rows, want 2 of each", charges, len(rows))
			}
			if parked, _ := s.failed(); parked != 1 {
				t.Errorf("%d jobs were parked, want 1", parked)
			}
			w.logged("there is no merchantId")
			s.empty()
		})
	}
}

// Bytes that are no message are kept as they are, where people find them.
func TestUnreadableBytesAreKept(t *testing.T) {
	t.Parallel()
	payloads := []string{"no JSON \xff\x00\xfe", `{"attempts":0}`, "", "[]", strings.Repeat("x", 70_000)}
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := newShop(t, d.open(t), options{lanes: 2})
			want := map[string]bool{}
			for _, raw := range payloads {
				if err := s.redis.RPush(ctx, "laravel_database_queues:payments", raw).Err(); err != nil {
					t.Fatal(err)
				}
				if err := s.redis.XAdd(ctx, &redis.XAddArgs{Stream: "messages", Values: []string{"message", raw}}).Err(); err != nil {
					t.Fatal(err)
				}
				want["payments "+raw], want["async "+raw] = true, true
			}
			s.worker("--drain").exit(exit.BadAnswer)
			if got := s.unreadable(ctx); !maps.Equal(got, want) {
				t.Errorf("kept %s\nwant %s", short(got), short(want))
			}
			if len(s.rows()) != 0 || s.provider.Stats().Posts != 0 {
				t.Errorf("rows %v, %d requests, want none", s.rows(), s.provider.Stats().Posts)
			}
			s.empty()
		})
	}
}

// unreadable is what zabor_unreadable holds, as "QUEUE BYTES".
func (s *shop) unreadable(ctx context.Context) map[string]bool {
	s.t.Helper()
	rows, err := s.store.DB().QueryContext(ctx, "SELECT queue, bytes FROM zabor_unreadable")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	kept := map[string]bool{}
	for rows.Next() {
		var queue, raw []byte
		if err := rows.Scan(&queue, &raw); err != nil {
			s.t.Fatal(err)
		}
		kept[string(bytes.Join([][]byte{queue, raw}, []byte(" ")))] = true
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return kept
}

func short(m map[string]bool) string {
	var b strings.Builder
	for _, text := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "\n%.60q (%d bytes)", text, len(text))
	}
	return b.String()
}
