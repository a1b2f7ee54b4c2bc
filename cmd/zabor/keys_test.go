package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// otherOrder is an edit that makes each key another one: the order id is read from
// another property.
func (s *shop) otherOrder(from, to string) { s.edit("    order: "+from+"\n", "    order: "+to+"\n") }

// keyedJob is a Laravel payload whose order stands in both properties that
// [shop.otherOrder] knows: under other names.
func keyedJob(uuid, order string, more string) string {
	return fmt.Sprintf(`{"uuid":%q,"displayName":"App\\Jobs\\ChargeOrder@run","job":"App\\Jobs\\ChargeOrder@run","data":{"orderId":%q,"number":"N-%s","amountCents":1999},"id":"i-%s"%s,"attempts":0}`, uuid, order, order, uuid, more)
}

// refusedKeys demands that a start is refused for the key schema of charge, and takes
// and calls nothing.
func (s *shop) refusedKeys(want string) {
	s.t.Helper()
	before, charges := s.depth(), s.provider.Stats().Charges
	_, log := s.command(exit.WrongUsage, "worker", "--drain")
	for _, text := range []string{want, "step charge was not started", "zabor schema accept charge"} {
		if !strings.Contains(log, text) {
			s.t.Errorf("the refusal lacks %q:\n%s", text, log)
		}
	}
	if after := s.depth(); after != before || s.provider.Stats().Charges != charges {
		s.t.Errorf("%+v and %d charges after a refusal, %+v and %d before", after, s.provider.Stats().Charges, before, charges)
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A configuration that goes back to an older schema is refused while a row is open
// under the newer one, although the older one was in force once.
func TestBackToAnOlderSchema(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, kind := range []string{"doubt", "held"} {
			t.Run(d.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, d.open(t), options{noLookup: true})
				s.worker("--drain").exit(exit.Good) // the schema of orderId is in force
				s.otherOrder("orderId", "number")
				s.worker("--drain").exit(exit.Good) // nothing is there: that of number is
				if kind == "held" {
					ok(t, writeRow(s.fence, zabor.Held, key("N-1")))
					s.otherOrder("number", "orderId")
					s.refusedKeys("in the way: 1 open rows (old")
					return
				}
				ok(t, s.provider.Plan(sandbox.Fault{Kind: sandbox.ActClose}))
				s.pushJobs(keyedJob("u1", "1", ""))
				w := s.worker()
				eventually(t, "the order is in doubt", func() bool { return s.state("N-1") == zabor.Doubt })
				w.signal(syscall.SIGTERM)
				w.exit(exit.Good)
				s.otherOrder("number", "orderId")
				s.refusedKeys("in the way: 1 open rows; 1 messages (payments ")
				if n := len(s.provider.Charges("N-1")); n != 1 || len(s.provider.Charges("1")) != 0 {
					t.Errorf("%d charges", n)
				}
			})
		}
	}
}

// The ack of a settled order was lost, and another one has failed in PHP, when the
// schema is changed. Accepting holds both, also as a retry with a new id, and neither is
// charged; an order that nobody has had is charged by the new schema.
func TestAcceptedSchema(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, d.open(t), options{})
			s.worker("--drain").exit(exit.Good)
			s.pushJobs(keyedJob("u1", "1", ""))
			w := s.worker("--stop-at", "saved:1")
			w.stopped()
			w.kill()
			insert := "INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ('%s', 'redis', 'payments', '%s', 'boom')"
			for _, id := range []string{"f2", "f3"} {
				s.exec(fmt.Sprintf(insert, id, sqlText(s.store.Dialect(), keyedJob(id, id[1:], ""))))
			}
			ok(t, writeRow(s.fence, zabor.Settled, key("5")))
			s.pushJobs(keyedJob("u4", "4", ""), keyedJob("u5", "5", ""))
			s.otherOrder("orderId", "number")
			eventually(t, "the dead process counts as dead", func() bool {
				out, _ := s.command(exit.Good, "schema", "--json")
				return !strings.Contains(out, "runs under the old schema")
			})
			s.refusedKeys("in the way: 5 messages (payments failed: 2, payments ready: 2, payments reserved: 1)")
			out, _ := s.command(exit.Good, "schema", "accept", "charge", "--yes")
			for _, text := range []string{"step charge: the new key schema is in force", "4 messages of the old one are held", "2 settled orders lie under the old one"} {
				if !strings.Contains(out, text) {
					t.Errorf("accepted without %q: %s", text, out)
				}
			}
			// PHP retries one failed job as it is, Horizon the other one as a new job.
			s.pushJobs(keyedJob("f2", "2", ""), keyedJob("new", "3", `,"retry_of":"f3"`))
			s.exec("DELETE FROM failed_jobs")
			w = s.worker("--drain")
			w.exit(exit.BadAnswer)
			for order, was := range map[string]string{"N-1": "test:1/charge", "N-2": "test:2/charge", "N-3": "test:3/charge", "N-5": "test:5/charge"} {
				if row := s.row(order); row.State != zabor.Held || !strings.Contains(row.Reason, "it may have been called for as "+was) {
					t.Errorf("order %s is %s: %s", order, row.State, row.Reason)
				}
			}
			s.chargedOnce("N-4")
			if n := s.provider.Stats().Charges; n != 2 {
				t.Errorf("%d charges, want those of 1 and N-4", n)
			}
			// What was delivered before, and lost its row, is held too.
			s.pushJobs(strings.Replace(keyedJob("u6", "6", ""), `"attempts":0`, `"attempts":1`, 1))
			s.worker("--drain").exit(exit.BadAnswer)
			if row := s.row("N-6"); row.State != zabor.Held || len(s.provider.Charges("N-6")) != 0 {
				t.Errorf("order N-6 is %s", row.State)
			}
			// A person decides, and the message is called for once.
			eventually(t, "no request may be on its way", func() bool {
				row := s.row("N-2")
				return row.ReadAt.After(row.Open.SendUntil.Add(2 * time.Second))
			})
			s.decide(exit.Good, "release", "N-2", "--i-have-checked-the-provider")
			s.worker("--drain").exit(exit.BadAnswer)
			s.chargedOnce("N-2")
		})
	}
}

// sqlText is s within a text of SQL.
func sqlText(dialect, s string) string {
	if dialect == "mysql" {
		s = strings.ReplaceAll(s, `\`, `\\`)
	}
	return strings.ReplaceAll(s, "'", "''")
}

// A changed default of the order id, and a changed value of an enum in it, make other
// keys of the messages that wait.
func TestDefaultsAndEnumsMakeKeys(t *testing.T) {
	t.Parallel()
	text := func(v string) string { return fmt.Sprintf(`s:%d:"%s";`, len(v), v) }
	for name, tt := range map[string]struct{ was, is, job string }{
		"default": {"    defaults: {orderId: '7'}\n", "    defaults: {orderId: '8'}\n", `O:20:"App\Jobs\ChargeOrder":1:{` + text("amountCents") + `i:1999;}`},
		"enum":    {"enums: {'App\\Shop': {First: '7'}}\n", "enums: {'App\\Shop': {First: '8'}}\n", `O:20:"App\Jobs\ChargeOrder":2:{` + text("amountCents") + `i:1999;` + text("orderId") + `E:14:"App\Shop:First";}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
			before := "    order: orderId\n"
			if name == "enum" {
				before = "lanes: "
			}
			s.edit(before, tt.was+before)
			payload, err := json.Marshal(map[string]any{
				"uuid": "u1", "displayName": `App\Jobs\ChargeOrder`, "job": `Illuminate\Queue\CallQueuedHandler@call`, "attempts": 0,
				"data": map[string]any{"commandName": `App\Jobs\ChargeOrder`, "command": tt.job},
			})
			ok(t, err)
			s.worker("--drain").exit(exit.Good)
			s.pushJobs(string(payload))
			s.edit(tt.was, tt.is)
			s.refusedKeys("in the way: 1 messages (payments ready: 1)")
			s.edit(tt.is, tt.was)
			s.worker("--drain").exit(exit.Good)
			s.chargedOnce("7")
		})
	}
}

// While a worker of the old schema runs, one of the new one neither starts nor is
// accepted. A worker that was stopped for longer than a lease and a reserve counts as
// dead, and captures nothing when it goes on.
func TestTwoSchemasAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, servers.MariaDB(t), options{timeout: time.Second, reserve: 4 * time.Second})
	old := s.worker()
	eventually(t, "it has started", func() bool { return strings.Contains(old.log.String(), "msg=started") })
	s.pushJobs(keyedJob("u1", "1", ""))
	eventually(t, "the first order is settled", func() bool { return s.state("1") == zabor.Settled && s.depth() == depth{} })
	s.otherOrder("orderId", "number")
	s.refusedKeys("runs under the old schema")
	_, log := s.command(exit.WrongUsage, "schema", "accept", "charge", "--yes")
	if !strings.Contains(log, "runs under the old schema") || !strings.Contains(log, "nothing was written") {
		t.Errorf("accepted, or refused without the process:\n%s", log)
	}
	old.signal(syscall.SIGSTOP)
	var free bool
	for end := time.Now().Add(limit); !free && time.Now().Before(end); {
		out, _ := s.command(exit.Good, "schema")
		free = strings.Contains(out, "changed; it comes into force with the next start")
	}
	if !free {
		t.Fatal("the stopped worker never counts as dead")
	}
	s.worker("--drain").exit(exit.Good) // the new schema is in force
	s.pushJobs(keyedJob("u2", "2", ""))
	old.signal(syscall.SIGCONT)
	eventually(t, "the old worker sees the new schema", func() bool {
		return strings.Contains(old.log.String(), "its key schema in force is") || strings.Contains(old.log.String(), "could not confirm its key schemas")
	})
	old.signal(syscall.SIGTERM)
	old.exit(exit.Good)
	s.worker("--drain").exit(exit.Good)
	s.chargedOnce("N-2")
	if row := s.row("2"); row.State != "" || len(s.provider.Charges("2")) != 0 {
		t.Errorf("the old schema has made %+v", row)
	}
}

// A worker that stops says that it captures nothing any more.
func TestDrainingWorkerIsNotInTheWay(t *testing.T) {
	t.Parallel()
	s := newShop(t, servers.Postgres(t), options{timeout: 20 * time.Second, reserve: time.Minute})
	g := make(chan struct{})
	s.onCharge(func(sandbox.Charge) { <-g })
	s.pushJobs(keyedJob("u1", "1", ""))
	old := s.worker()
	s.charges(1)
	s.otherOrder("orderId", "number")
	s.refusedKeys("runs under the old schema")
	old.signal(syscall.SIGTERM)
	eventually(t, "only the row and its message are in the way", func() bool {
		out, _ := s.command(exit.Good, "schema")
		return strings.Contains(out, "in the way: 1 open rows; 1 messages (payments reserved: 1) (old")
	})
	close(g)
	old.exit(exit.Good)
	s.worker("--drain").exit(exit.Good) // the order is settled and acked
}

// Two installations on one table, and an accepted schema, cost no scan of the table
// more than one installation does.
func TestSchemasCostNoStatement(t *testing.T) {
	t.Parallel()
	const n = 300
	scans := func(accepted bool) int64 {
		s := newShop(t, servers.Postgres(t), options{lanes: 4})
		if accepted {
			other := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
			other.edit("scope: test", "scope: second")
			other.edit(other.fence, s.fence)
			other.worker("--drain").exit(exit.Good)
			s.worker("--drain").exit(exit.Good)
			ok(t, writeRow(s.fence, zabor.Held, key("0")))
			s.otherOrder("orderId", "number")
			s.command(exit.Good, "schema", "accept", "charge", "--yes")
			s.exec("DELETE FROM zabor_fences")
		} else {
			s.otherOrder("orderId", "number")
		}
		var before, after int64
		count := func(to *int64) {
			ok(t, s.store.DB().QueryRow("SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'zabor_fences'").Scan(to))
		}
		count(&before)
		for i := range n {
			s.pushJobs(keyedJob(fmt.Sprint("u", i), fmt.Sprint(i), ""))
		}
		s.worker("--drain").exit(exit.Good)
		if got := s.provider.Stats().Charges; got != n {
			t.Errorf("%d charges, want %d", got, n)
		}
		eventually(t, "the server has counted", func() bool { count(&after); return after-before >= n })
		return after - before
	}
	one, two := scans(false), scans(true)
	t.Logf("%d scans with one installation, %d with two and an accepted schema, for %d charges", one, two, n)
	if two > one+n/3 {
		t.Errorf("%d scans with one installation, %d with two and an accepted schema, for %d charges", one, two, n)
	}
}
