package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/peek"
	"zabor/internal/produce"
	"zabor/sqlstore"
	"zabor/worker"
)

// dump is all that Redis and the fence's database hold of s.
func (s *shop) dump() map[string]string {
	s.t.Helper()
	ctx, all := s.t.Context(), map[string]string{}
	keys, err := s.redis.Keys(ctx, "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, key := range keys {
		ends := s.redis.TTL(ctx, key).Val() >= 0 // how soon changes by itself
		all["redis "+key] = s.redis.Dump(ctx, key).Val() + fmt.Sprint(ends)
	}
	for _, table := range []string{"zabor_fences", "zabor_notes", "zabor_meta", "zabor_unreadable", "failed_jobs", "messenger_messages"} {
		rows, err := s.store.DB().QueryContext(ctx, "SELECT * FROM "+table)
		if err != nil {
			s.t.Fatal(err)
		}
		columns, _ := rows.Columns()
		for n := 0; rows.Next(); n++ {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				s.t.Fatal(err)
			}
			all[fmt.Sprintf("%s %d", table, n)] = fmt.Sprint(values...)
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
		rows.Close() //nolint:sqlclosecheck // a loop
	}
	return all
}

// Peek says of each message, wherever it lies, what a worker would do with it, and
// changes nothing: not before the queue is taken over, not afterwards.
func TestPeek(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database.open(t), options{})
			s.add("bus: {forward: {'App\\Jobs\\SendMail': default}, refuse: ['App\\Jobs\\Login*']}\n")
			s.edit(`    base_url:`, "    headers: {Authorization: \"Bearer ${TOKEN:-s3cret-token}\"}\n    base_url:")
			s.edit(`order: "{{order}}"`, `order: "{{order}}", terminal: "${TERMINAL:-t3rminal-password}", note: "4111 1111 1111 1111"`)
			ctx := t.Context()
			const list = "laravel_database_queues:payments"
			ok := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			class := func(order int64, name string) string {
				return strings.ReplaceAll(job(t, order, 0), "ChargeOrder", name)
			}
			ok(s.redis.RPush(ctx, list, strings.Replace(job(t, 1, 0), "{", `{"tenant_id":7,`, 1), job(t, 2, 1), class(3, "SendMail"), class(4, "LoginUser"), class(5, "Unknown"), "torn{",
				job(t, 6, 0), job(t, 7, 0), job(t, 8, 0), job(t, 9, 0), strings.ReplaceAll(job(t, 10, 0), "i:1999;", "i:500;"), strings.ReplaceAll(job(t, 11, 0), "i:11;", "N;")).Err())
			for order, state := range map[string]zabor.State{"6": zabor.Settled, "7": zabor.Held, "8": zabor.Doubt, "9": zabor.Released, "10": zabor.Settled} {
				ok(writeRow(s.fence, state, key(order)))
			}
			s.anyRequest("LENGTH(order_id) = 1")
			ok(s.redis.ZAdd(ctx, list+":delayed", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: job(t, 20, 0)}).Err())
			ok(s.redis.ZAdd(ctx, list+":reserved", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: job(t, 21, 1)}).Err())
			insert := "INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ('f22', 'redis', 'payments', '" + strings.ReplaceAll(job(t, 22, 0), `'`, `''`) + "', 'RuntimeException: boom')"
			if s.store.Dialect() == "mysql" {
				insert = strings.ReplaceAll(insert, `\`, `\\`)
			}
			s.exec(insert)
			entry, err := produce.SymfonyPHP(produce.Charge{Order: 30, Minor: 1999})
			ok(err)
			ok(s.redis.XGroupCreateMkStream(ctx, "messages", "symfony", "0").Err())
			ok(s.redis.XAdd(ctx, &redis.XAddArgs{Stream: "messages", Values: []any{"message", string(entry)}}).Err())

			see := func() map[string]peek.Message {
				t.Helper()
				before := s.dump()
				out, _ := s.command(exit.Good, "peek", "--json")
				for _, secret := range []string{"s3cret", "t3rminal", "4111 1111 1111 1111"} {
					if strings.Contains(out, secret) {
						t.Errorf("%s is shown", secret)
					}
				}
				var all struct {
					Queues   []peekedQueue
					Messages []peek.Message
				}
				ok(json.Unmarshal([]byte(out), &all))
				if after := s.dump(); !maps.Equal(before, after) {
					t.Errorf("peek has changed something:\n%v\n%v", before, after)
				}
				found := map[string]peek.Message{}
				for _, m := range all.Messages {
					name := m.Class
					if m.Key != nil {
						name = string(m.Key.Order)
					}
					found[name] = m
				}
				return found
			}
			verdicts := func(found map[string]peek.Message, want map[string]peek.Verdict) {
				t.Helper()
				for name, v := range want {
					if got := found[name]; got.Verdict != v {
						t.Errorf("%s: %s %s (%s), want %s", name, got.Place, got.Verdict, got.Reason, v)
					}
				}
			}
			found := see()
			verdicts(found, map[string]peek.Verdict{
				"1": peek.Call, "2": peek.Hold, `App\Jobs\SendMail`: peek.Forward, `App\Jobs\LoginUser`: peek.Refuse, `App\Jobs\Unknown`: peek.Refuse, "": peek.CannotDecode,
				"6": peek.AnswerExisting, "7": peek.Hold, "8": peek.Wait, "9": peek.Call, `App\Jobs\ChargeOrder`: peek.Refuse,
				"20": peek.Call, "21": peek.Hold, "22": peek.Hold, "30": peek.Call,
			})
			if m := found["21"]; m.Place != worker.Reserved || m.Until == nil || !strings.Contains(m.Reason, "zabor import") {
				t.Errorf("reserved: %+v", m)
			}
			if one, two := found["1"].Warning, found["2"].Warning; !strings.Contains(one, "/tenant_id") || two != "" {
				t.Errorf("of order 1, with a tenant: %q; of order 2: %q", one, two)
			}
			first := found["1"].Request
			if first == nil || first.Method != "POST" || first.URL != s.url+"/payments" || first.Header["Authorization"] != "***" || len(first.Header["Idempotency-Key"]) != 26 ||
				!strings.Contains(first.Body, `"order":"1"`) || !strings.Contains(first.Body, `${TERMINAL}`) || !strings.Contains(first.Body, "4111 11** **** 1111") {
				t.Errorf("the request is shown as %+v", first)
			}

			// What would be sent is what is sent.
			ok(s.store.Meta().Set(ctx, "queue:test/payments", fmt.Appendf(nil, "laravel %d %q\nlaravel %d %q class %q", s.o.redis.DB, list, s.o.redis.DB, list, `App\Jobs\ChargeOrder`)))
			verdicts(see(), map[string]peek.Verdict{"2": peek.Wait, "21": peek.Wait, "30": peek.Call})
			s.command(exit.Good, "import")
			verdicts(see(), map[string]peek.Verdict{"2": peek.Hold, "21": peek.Hold, "22": peek.Hold})
			w := s.worker("--queue", "async")
			eventually(t, "order 30 is charged", func() bool { return s.state("30") == zabor.Settled })
			w.signal(syscall.SIGTERM)
			w.exit(exit.Good)
			s.chargedOnce("30")
			if got, want := s.row("30").ProviderKey, found["30"].Request.Header["Idempotency-Key"]; got != want {
				t.Errorf("order 30 was sent under %s, and peek had said %s", got, want)
			}

			out, _ := s.command(exit.Good, "peek", "payments", "--limit", "1")
			if n := strings.Count(out, "verdict"); n != 4 || !strings.Contains(out, "has more that is [ready]") {
				t.Errorf("with --limit 1: %d messages\n%s", n, out)
			}
		})
	}
}

// A message in a file is looked at without Redis, and before there are tables.
func TestPeekAtAFile(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
	s.edit(s.o.redis.URL(), "redis://127.0.0.1:1/0")
	file := filepath.Join(t.TempDir(), "message")
	for name, queue := range map[string]string{"laravel": "payments", "symfony": "async"} {
		content := job(t, 41, 0)
		if name == "symfony" {
			entry, err := produce.SymfonyPHP(produce.Charge{Order: 41, Minor: 1999})
			if err != nil {
				t.Fatal(err)
			}
			content = string(entry)
		}
		for _, text := range []string{content, content + "\n"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, _ := s.command(exit.Good, "peek", queue, "--message", file)
			for _, want := range []string{"test:41/charge", "verdict  call", "19.99 EUR", `"amount":1999`} {
				if !strings.Contains(out, want) {
					t.Errorf("%s: no %q in\n%s", name, want, out)
				}
			}
		}
	}
	s.command(exit.WrongUsage, "peek", "--message", file) // whose is it?
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := s.command(exit.Good, "peek", "payments", "--message", file); !strings.Contains(out, "cannot decode") {
		t.Errorf("nonsense:\n%s", out)
	}

	empty := "sqlite://" + filepath.Join(t.TempDir(), "none.db")
	s.edit(s.fence, empty)
	store, err := sqlstore.Open(empty)
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	if err := os.WriteFile(file, []byte(job(t, 41, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, log := s.command(exit.Good, "peek", "payments", "--message", file)
	if !strings.Contains(out, "(made by zabor migrate)") || !strings.Contains(out, "verdict  hold") || !strings.Contains(log, "zabor migrate") {
		t.Errorf("before migrate:\n%s%s", out, log)
	}
	if _, err := os.Stat(strings.TrimPrefix(empty, "sqlite://")); !os.IsNotExist(err) {
		t.Errorf("peek has made a database: %v", err)
	}
}
