package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/decision"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// fenceCommand runs zabor fence and gives what it printed on standard output and
// standard error.
func (s *shop) fenceCommand(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	if got := run(s.t.Context(), append([]string{"fence", args[0], "-c", s.file}, args[1:]...), &out, &errs); got != code {
		s.t.Fatalf("zabor fence %q: exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// decide takes a decision about order, as ops, and gives what was printed.
func (s *shop) decide(code int, action, order string, more ...string) (stdout, stderr string) {
	s.t.Helper()
	return s.fenceCommand(code, append([]string{action, order, "charge", "--by", "ops", "--reason", "seen", "--yes"}, more...)...)
}

// goneOn are the messages that have gone on from both queues: a payload or the
// field message of an entry.
func (s *shop) goneOn() (laravel, symfony []string) {
	s.t.Helper()
	laravel, err := s.redis.LRange(s.t.Context(), "laravel_database_queues:default", 0, -1).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return laravel, s.entries("default")
}

func (s *shop) entries(stream string) (all []string) {
	s.t.Helper()
	entries, err := s.redis.XRange(s.t.Context(), stream, "-", "+").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, fmt.Sprint(e.Values["message"]))
	}
	return all
}

// newHeldShop is a shop whose messages go on to the queue default. The provider
// answers none of the orders and has no look-up, so that they are held; the worker
// has parked their messages and is gone. All calls are under way before the first
// of them ends: the breaker would keep the others waiting.
func newHeldShop(t testing.TB, fence string, r servers.RedisDB, messages []message) *shop {
	s := newShop(t, fence, options{redis: r, noLookup: true, hold: time.Second, lanes: 16, timeout: 6 * time.Second, reserve: 15 * time.Second})
	var orders []string
	for _, m := range messages {
		order := fmt.Sprint(m.Properties["orderId"])
		orders = append(orders, order)
		if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.Hang, Order: order}); err != nil {
			t.Fatal(err)
		}
	}
	s.withHooks(false, orders...)
	s.add("    then: default\n")
	s.worker("--drain").exit(exit.BadAnswer)
	if laravel, symfony := s.failed(); laravel+symfony != len(messages) {
		t.Fatalf("%d and %d messages are parked, want %d", laravel, symfony, len(messages))
	}
	for _, order := range orders {
		if row := s.row(order); row.State != zabor.Held || row.Parked == "" {
			t.Fatalf("row %+v, want it held", row)
		}
	}
	return s
}

// A decision tells the shop, lets the message go on or back, and takes it out of
// the failure transport, of each framework and in each database.
func TestDecisionsAreWhole(t *testing.T) {
	t.Parallel()
	actions := []string{"settle", "decline", "release", "kept", "many"}
	var redis []servers.RedisDB
	var messages []message
	for i := range databases {
		redis = append(redis, servers.Redis(t))
		for _, f := range frameworks {
			for _, action := range actions {
				messages = append(messages, newMessage(redis[i], f.name, action+"-"+f.name))
			}
		}
	}
	put(t, messages...)
	each := len(messages) / len(databases)
	for i, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newHeldShop(t, d.open(t), redis[i], messages[i*each:(i+1)*each])
			n := len(frameworks)
			posts := s.provider.Stats().Posts
			many := "order,step,action,reference,reason\n"
			for _, f := range frameworks {
				kind := "messenger"
				if f.name == "laravel" {
					kind = "failed_jobs"
				}
				order, paid := "settle-"+f.name, "paid 1 pay_9-"+f.name+" 1999"
				out, said := s.decide(0, "settle", order, "pay_9-"+f.name, "--json")
				if !strings.Contains(said, "goes on to default, and is then deleted from "+kind) || !strings.Contains(said, "hook settled runs") {
					t.Errorf("before it acted it said\n%s", said)
				}
				var told decidedJSON
				if err := json.Unmarshal([]byte(out), &told); err != nil || told.State != "settled" || len(told.Messages) != 1 || told.Messages[0].Did != "gone on" || told.Messages[0].Queue != f.queue {
					t.Errorf("printed %s", out)
				}
				if got, want := s.told(order), paid; got != want {
					t.Errorf("the shop says %q, want %q", got, want)
				}
				// What is done is not done twice.
				if _, said := s.decide(0, "settle", order, "pay_9-"+f.name); !strings.Contains(said, "it is so already") || !strings.Contains(said, "its message has gone on already") {
					t.Errorf("the second time it said\n%s", said)
				}
				if got, want := s.told(order), paid; got != want {
					t.Errorf("the second time the shop says %q, want %q", got, want)
				}

				s.decide(0, "decline", "decline-"+f.name, "--i-have-checked-the-provider")
				if got, want := s.told("decline-"+f.name), "seen 0 - 1999"; got != want {
					t.Errorf("the shop says %q, want %q", got, want)
				}
				if _, said := s.decide(0, "settle", "kept-"+f.name, "pay_8-"+f.name, "--keep"); !strings.Contains(said, "stays where it is") {
					t.Errorf("with --keep it said\n%s", said)
				}
				many += "many-" + f.name + ",charge,settle,pay_7-" + f.name + ",seen\n"
			}
			if got := s.provider.Stats().Posts; got != posts {
				t.Errorf("the decisions have called the provider %d times", got-posts)
			}
			if out, _ := s.decideFile(0, many); strings.Count(out, ": gone on to default\n") != n {
				t.Errorf("printed\n%s", out)
			}
			if laravel, symfony := s.failed(); laravel != 2 || symfony != 4 { // released and kept ones
				t.Errorf("%d and %d messages are left", laravel, symfony)
			}
			laravel, symfony := s.goneOn()
			if len(laravel) != 3 || len(symfony) != 6 {
				t.Fatalf("%d and %d messages have gone on, want 3 and 6", len(laravel), len(symfony))
			}
			for _, payload := range laravel {
				if !strings.Contains(payload, `"attempts":0`) {
					t.Errorf("a job goes on as %s", payload)
				}
			}
			for _, entry := range symfony {
				if strings.Contains(entry, "originalReceiverName") {
					t.Errorf("a message goes on as one that has failed: %s", entry)
				}
			}
			for _, f := range frameworks {
				for _, action := range []string{"release", "decline"} {
					if _, said := s.decide(exit.BadAnswer, action, "release-"+f.name); !strings.Contains(said, "add --i-have-checked-the-provider") {
						t.Errorf("%s without the proof said\n%s", action, said)
					}
				}
				before := s.row("release-" + f.name)
				_, said := s.decide(0, "release", "release-"+f.name, "--i-have-checked-the-provider")
				if !strings.Contains(said, "goes back to the end of its queue") {
					t.Errorf("before it acted it said\n%s", said)
				}
				if now := s.row("release-" + f.name); now.ProviderKey != before.ProviderKey || now.State != zabor.Released {
					t.Errorf("row %+v, was %+v", now, before)
				}
			}
			s.worker("--drain").exit(exit.BadAnswer)
			for _, f := range frameworks {
				s.paidOnce("release-" + f.name)
			}
			if got := s.provider.Stats().Posts; got != posts+int64(n) {
				t.Errorf("%d calls after the release, want one each", got-posts)
			}
			if laravel, symfony := s.goneOn(); len(laravel) != 4 || len(symfony) != 8 {
				t.Errorf("%d and %d messages have gone on, want 4 and 8", len(laravel), len(symfony))
			}
			s.empty()
		})
	}
}

// decideFile takes the decisions of a CSV.
func (s *shop) decideFile(code int, csv string) (stdout, stderr string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "many.csv")
	if err := os.WriteFile(path, []byte(csv), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return s.fenceCommand(code, "decide", path, "--by", "ops", "--yes")
}

// Killed between the row and the message, or between the two queues, a decision is
// whole once it is typed again: the shop was told once, and no message is lost.
func TestKilledDecision(t *testing.T) {
	t.Parallel()
	r := servers.Redis(t)
	var messages []message
	for _, f := range frameworks {
		for _, at := range []zabor.Checkpoint{decision.Decided, decision.Moving} {
			messages = append(messages, newMessage(r, f.name, string(at)+"-"+f.name), newMessage(r, f.name, "back-"+string(at)+"-"+f.name))
		}
	}
	put(t, messages...)
	s := newHeldShop(t, databases[1].open(t), r, messages)
	for _, f := range frameworks {
		for _, at := range []zabor.Checkpoint{decision.Decided, decision.Moving} {
			for _, args := range [][]string{
				{"settle", string(at) + "-" + f.name, "charge", "pay_" + string(at) + "-" + f.name},
				{"release", "back-" + string(at) + "-" + f.name, "charge", "--i-have-checked-the-provider"},
			} {
				args = append(args, "-c", s.file, "--by", "ops", "--reason", "seen", "--yes")
				p := start(t, append([]string{"fence"}, append(args, "--stop-at", string(at))...)...)
				p.stopped()
				p.kill()
				start(t, append([]string{"fence"}, args...)...).exit(0)
				if args[0] == "settle" {
					if got, want := s.told(args[1]), "paid 1 pay_"+args[1]+" 1999"; got != want {
						t.Errorf("%s: the shop says %q, want %q", args[1], got, want)
					}
				}
				notes, err := s.store.History().Of(t.Context(), key(args[1]))
				notes = slices.DeleteFunc(notes, func(n zabor.Note) bool { return n.By == "" }) // that nobody decided
				if err != nil || len(notes) != 1 {
					t.Errorf("%s: notes %+v, %v, want one decision", args[1], notes, err)
				}
			}
		}
	}
	if laravel, symfony := s.failed(); laravel+symfony != 0 {
		t.Errorf("%d and %d messages are left in the failure transports", laravel, symfony)
	}
	// A second copy only where Redis cannot see the first, and the move was not noted.
	if laravel, symfony := s.goneOn(); len(laravel) != 2 || len(symfony) < 4 || len(symfony) > 6 {
		t.Errorf("%d and %d messages have gone on", len(laravel), len(symfony))
	}
	s.worker("--drain").exit(0)
	for _, f := range frameworks {
		s.paidOnce("back-decided-" + f.name)
		s.paidOnce("back-carried-" + f.name)
	}
	s.empty()
}

// A decision about messages that lie in a stream of Redis': they go on, back, or
// away, by one script, and each is told of before. One that a worker of PHP has taken
// from there is left to it, and the command says so.
func TestDecisionsWithAFailureStream(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{noLookup: true, hold: time.Second, lanes: 16, timeout: 6 * time.Second, reserve: 15 * time.Second})
	s.edit("delete_after_ack=true\"}\n", "delete_after_ack=true\"}\n    failed: {stream: failed}\n")
	actions := []string{"settle", "decline", "release", "kept", "taken", "decided", "carried"}
	var messages []message
	var orders []string
	for _, f := range frameworks[1:] {
		for _, action := range actions {
			order := action + "-" + f.name
			orders = append(orders, order)
			messages = append(messages, newMessage(s.o.redis, f.name, order))
			if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.Hang, Order: order}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.withHooks(false, orders...)
	s.add("    then: default\n")
	put(t, messages...)
	s.worker("--drain").exit(exit.BadAnswer)
	if got := len(s.entries("failed")); got != len(messages) {
		t.Fatalf("%d messages are parked, want %d", got, len(messages))
	}
	posts := s.provider.Stats().Posts
	for _, f := range frameworks[1:] {
		if _, said := s.decide(0, "settle", "settle-"+f.name, "pay_9-"+f.name); !strings.Contains(said, "goes on to default, and is then deleted from messenger") {
			t.Errorf("before it acted it said\n%s", said)
		}
		s.decide(0, "decline", "decline-"+f.name, "--i-have-checked-the-provider")
		for order, want := range map[string]string{"settle-": "paid 1 pay_9-" + f.name + " 1999", "decline-": "seen 0 - 1999"} {
			if got := s.told(order + f.name); got != want {
				t.Errorf("%s%s: the shop says %q, want %q", order, f.name, got, want)
			}
		}
		s.decide(0, "settle", "kept-"+f.name, "pay_8-"+f.name, "--keep")
		// Killed between the row and the message, and right behind the script: typed
		// again it is whole, and there is no second copy.
		for _, at := range []zabor.Checkpoint{decision.Decided, decision.Moving} {
			args := []string{"fence", "settle", string(at) + "-" + f.name, "charge", "pay_7-" + string(at) + f.name, "-c", s.file, "--by", "ops", "--reason", "seen", "--yes"}
			p := start(t, append(args, "--stop-at", string(at))...)
			p.stopped()
			p.kill()
			start(t, args...).exit(0)
		}
		if _, said := s.decide(0, "release", "release-"+f.name, "--i-have-checked-the-provider"); !strings.Contains(said, "goes back to the end of its queue") {
			t.Errorf("before it acted it said\n%s", said)
		}
	}
	if got := s.provider.Stats().Posts; got != posts {
		t.Errorf("the decisions have called the provider %d times", got-posts)
	}
	if _, gone := s.goneOn(); len(gone) != 8 {
		t.Fatalf("%d messages have gone on, want 8", len(gone))
	} else if all := strings.Join(gone, " "); strings.Contains(all, "originalReceiverName") {
		t.Errorf("a message goes on as one that has failed: %s", all)
	}
	if left := s.entries("failed"); len(left) != 4 { // kept and taken ones
		t.Errorf("%d messages are left in the failure transport, want 4", len(left))
	}
	if got := len(s.entries("messages")); got != 2 {
		t.Errorf("%d messages are on the queue again, want the released ones", got)
	}

	// messenger:consume failed has all that is left.
	taken := &redis.XReadGroupArgs{Group: "symfony", Consumer: "php", Streams: []string{"failed", ">"}, Count: 10}
	if err := s.redis.XReadGroup(t.Context(), taken).Err(); err != nil {
		t.Fatal(err)
	}
	for _, f := range frameworks[1:] {
		_, said := s.decide(exit.BadAnswer, "settle", "taken-"+f.name, "pay_6-"+f.name)
		for _, want := range []string{"taken-" + f.name + "/charge is settled now", "a worker that takes from the failure transport has it", "type the same command again"} {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q:\n%s", want, said)
			}
		}
	}
	// It has died: its entries are idle for as long as the redeliver_timeout.
	for _, p := range s.redis.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: "failed", Group: "symfony", Start: "-", End: "+", Count: 10}).Val() {
		if err := s.redis.Do(t.Context(), "XCLAIM", "failed", "symfony", "php", 0, p.ID, "IDLE", 15_000, "JUSTID").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range frameworks[1:] {
		if _, said := s.decide(0, "settle", "taken-"+f.name, "pay_6-"+f.name); !strings.Contains(said, "it is so already") {
			t.Errorf("typed again it said\n%s", said)
		}
	}
	if _, gone := s.goneOn(); len(gone) != 10 {
		t.Errorf("%d messages have gone on, want 10", len(gone))
	}
	s.worker("--drain").exit(exit.BadAnswer)
	for _, f := range frameworks[1:] {
		s.paidOnce("release-" + f.name)
	}
	if got := s.provider.Stats().Posts; got != posts+2 {
		t.Errorf("%d calls after the releases, want one each", got-posts)
	}
	s.empty()
}

// jobFor is the payload of a job that wants order charged; chained: with a chain.
func jobFor(uuid, order string, cents int, chained bool) string {
	text := func(v string) string { return fmt.Sprintf(`s:%d:"%s";`, len(v), v) }
	properties := text("orderId") + text(order) + text("amountCents") + fmt.Sprintf("i:%d;", cents)
	n := 2
	if chained {
		n = 4
		properties += text("chainQueue") + text("shipping") + text("chained") + "a:1:{i:0;" + text(`O:4:"Ship":0:{}`) + "}"
	}
	class := `App\Jobs\ChargeOrder`
	payload, err := json.Marshal(map[string]any{
		"uuid": uuid, "displayName": class, "job": `Illuminate\Queue\CallQueuedHandler@call`, "attempts": 0,
		"data": map[string]any{"commandName": class, "command": fmt.Sprintf(`O:%d:"%s":%d:{%s}`, len(class), class, n, properties)},
	})
	if err != nil {
		panic(err)
	}
	return string(payload)
}

// pushJobs puts payloads on the Laravel queue.
func (s *shop) pushJobs(payloads ...string) {
	s.t.Helper()
	for _, p := range payloads {
		if err := s.redis.RPush(s.t.Context(), "laravel_database_queues:payments", p).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// failedIDs are the uuids in failed_jobs.
func (s *shop) failedIDs() string {
	s.t.Helper()
	rows, err := s.store.DB().Query("SELECT uuid FROM failed_jobs ORDER BY uuid")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, id)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// Without a queue to go on to, a settled job that has a chain goes back, so that a
// worker lets the chain go on; a declined one ends it. What asks for something
// else under the same key stays.
func TestDecisionsAboutChainsAndOtherRequests(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{noLookup: true, hold: time.Second, lanes: 4})
	for _, order := range []string{"yes", "no", "two"} {
		if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.Status, Status: 500, Order: order}); err != nil {
			t.Fatal(err)
		}
	}
	s.pushJobs(jobFor("u-yes", "yes", 1999, true), jobFor("u-no", "no", 1999, true), jobFor("u-two", "two", 1999, false))
	s.worker("--drain").exit(exit.BadAnswer)
	s.pushJobs(jobFor("u-other", "two", 5, false)) // another amount
	s.worker("--drain").exit(exit.BadAnswer)
	if got, want := s.failedIDs(), "u-no u-other u-two u-yes"; got != want {
		t.Fatalf("parked are %s, want %s", got, want)
	}
	if _, said := s.decide(0, "settle", "yes", "pay_1"); !strings.Contains(said, "its chain goes on") {
		t.Errorf("it said\n%s", said)
	}
	if _, said := s.decide(0, "decline", "no", "--i-have-checked-the-provider"); !strings.Contains(said, "its chain ends") {
		t.Errorf("it said\n%s", said)
	}
	s.decide(0, "settle", "two", "pay_2")
	if got, want := s.failedIDs(), "u-other"; got != want {
		t.Errorf("left is %s, want %s: it asks for another amount", got, want)
	}
	s.worker("--drain").exit(exit.BadAnswer)
	if n := s.redis.LLen(t.Context(), "laravel_database_queues:shipping").Val(); n != 1 {
		t.Errorf("%d jobs in shipping, want 1", n)
	}
	if n := s.provider.Stats().Charges; n != 0 {
		t.Errorf("%d charges, want none", n)
	}
}

// The release of a declined row is the wanted new attempt: the message that waits
// with another card goes back, and is called under a new key.
func TestReleaseOfADeclinedRowTakesWhatWaits(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.Declined, Order: "1"}); err != nil {
		t.Fatal(err)
	}
	s.pushJobs(jobFor("u-1", "1", 1999, false))
	s.worker("--drain").exit(0)
	before := s.row("1")
	s.pushJobs(jobFor("u-2", "1", 2999, false))
	w := s.worker("--drain")
	w.exit(exit.BadAnswer)
	if got := s.failedIDs(); got != "u-2" {
		t.Fatalf("parked is %q, want u-2", got)
	}
	if _, said := s.decide(0, "release", "1"); !strings.Contains(said, "under a new provider key") || !strings.Contains(said, "message u-2 of queue payments goes back") {
		t.Errorf("it said\n%s", said)
	}
	s.worker("--drain").exit(0)
	row := s.row("1")
	if row.State != zabor.Settled || row.Generation != 2 || row.ProviderKey == before.ProviderKey || row.Amount.Minor != 2999 {
		t.Errorf("row %+v, want it settled under a new key", row)
	}
}

// A key is forbidden before there is a row: the message that waits is taken out,
// and one that comes is acked without a call.
func TestDeclineWithoutARow(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.pushJobs(jobFor("u-1", "1", -5, false)) // no amount that can be charged
	s.worker("--drain").exit(exit.BadAnswer)
	if got := s.failedIDs(); got != "u-1" {
		t.Fatalf("parked is %q, want u-1", got)
	}
	s.pushJobs(jobFor("u-2", "2", 1999, false))
	if _, said := s.decide(0, "decline", "2"); !strings.Contains(said, "still on queue payments (ready): a worker acks it there without a call") {
		t.Errorf("it said\n%s", said)
	}
	s.decide(0, "decline", "1")
	s.worker("--drain").exit(0)
	if got := s.failedIDs(); got != "" || s.provider.Stats().Posts != 0 {
		t.Errorf("left is %q after %d calls", got, s.provider.Stats().Posts)
	}
}

// While the shop cannot be told, the message stays; then the same command tells it
// and moves the message.
func TestADecisionWhoseHookFails(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{noLookup: true, hold: time.Second})
	s.withHooks(false)
	s.add("    then: default\n")
	if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.Status, Status: 500, Order: "1"}); err != nil {
		t.Fatal(err)
	}
	s.pushJobs(jobFor("u-1", "1", 1999, false))
	s.worker("--drain").exit(exit.BadAnswer)
	for range 2 {
		_, said := s.decide(exit.BadAnswer, "settle", "1", "pay_9")
		if !strings.Contains(said, "the shop was not told") || !strings.Contains(said, "type the same command again") {
			t.Errorf("it said\n%s", said)
		}
		if row := s.row("1"); row.State != zabor.Settled || row.Reference != "pay_9" || row.HookDue != "settled" {
			t.Errorf("row %+v", row)
		}
		if got := s.failedIDs(); got != "u-1" {
			t.Errorf("parked is %q, want u-1", got)
		}
	}
	s.newOrder("1")
	s.decide(0, "settle", "1", "pay_9")
	if got, want := s.told("1"), "paid 1 pay_9 1999"; got != want {
		t.Errorf("the shop says %q, want %q", got, want)
	}
	if laravel, _ := s.goneOn(); s.failedIDs() != "" || len(laravel) != 1 {
		t.Errorf("left is %q, gone on %q", s.failedIDs(), laravel)
	}
}

// One reference is one payment. That of another order settles nothing; where it is not
// known to be from the same provider, the person is warned.
func TestAReferenceOfAnotherOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	for order, state := range map[string]zabor.State{"1": zabor.Settled, "2": zabor.Held, "3": zabor.Held, "4": zabor.Held, "5": zabor.Held} {
		if err := writeRow(s.fence, state, key(order)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeRow(s.fence, zabor.Held, zabor.Key{Scope: "test", Order: "1", Step: "refund"}); err != nil {
		t.Fatal(err)
	}
	s.exec("UPDATE zabor_fences SET provider = x'' WHERE order_id = x'34'")
	s.exec("UPDATE zabor_fences SET account = x'6575' WHERE order_id = x'35'")
	before := s.row("2")
	_, said := s.decide(exit.BadAnswer, "settle", "2", "pay_1", "--keep")
	for _, want := range []string{"test:2/charge: refused: the reference pay_1 is that of test:1/charge: look both orders up at the provider; nothing was changed", "zabor: hint: zabor fence show 2 charge; zabor fence show 1 charge\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "will be settled") {
		t.Errorf("it promised what it refused:\n%s", said)
	}
	if out, _ := s.decideFile(exit.BadAnswer, "order,step,action,reference,reason\n2,charge,settle,pay_1,seen\n"); !strings.Contains(out, "test:2/charge: not decided: ") || !strings.Contains(out, "the reference pay_1 is that of test:1/charge") {
		t.Errorf("of a file it said\n%s", out)
	}
	if now := s.row("2"); now.Claim != before.Claim {
		t.Errorf("the row was written: %s, reference %q", now.State, now.Reference)
	}
	for order, reference := range map[string]string{"1": "pay_1", "3": "pay_9", "5": "pay_1"} { // so already, new, of another account
		if _, said := s.decide(0, "settle", order, reference, "--keep"); strings.Contains(said, "warning") {
			t.Errorf("of order %s it said\n%s", order, said)
		}
	}
	if _, said := s.fenceCommand(0, "settle", "1", "refund", "pay_1", "--by", "ops", "--reason", "seen", "--yes", "--keep"); strings.Contains(said, "warning") {
		t.Errorf("of a step of the same order it said\n%s", said)
	}
	const warning = "zabor: warning: the reference pay_1 stands in the row of another order already: test:1/charge (settled, 19.99 EUR)"
	if _, said := s.decide(0, "settle", "4", "pay_1", "--keep"); !strings.Contains(said, warning) {
		t.Errorf("it said\n%s", said)
	}
}
