package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/produce"
	"zabor/internal/takeover"
)

// job is a Laravel payload that wants order charged, with a number of attempts.
func job(t testing.TB, order int64, attempts int) string {
	t.Helper()
	payload, err := produce.Laravel(produce.Charge{Order: order, Minor: 1999})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(payload), `"attempts":0`, fmt.Sprintf(`"attempts":%d`, attempts), 1)
}

// A first start on queues that others have worked refuses with the import to type;
// the import holds what others have had, and nothing else; then a start takes what
// nobody has had, and parks what is held.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
	ctx := t.Context()
	const list = "laravel_database_queues:payments"
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Delivered before and put back, being retried, with a dead worker, failed.
	ok(s.redis.RPush(ctx, list, job(t, 1, 1), job(t, 100, 0)).Err())
	ok(s.redis.ZAdd(ctx, list+":delayed", redis.Z{Score: 1, Member: job(t, 2, 2)}, redis.Z{Score: 2, Member: job(t, 101, 0)}).Err())
	ok(s.redis.ZAdd(ctx, list+":reserved", redis.Z{Score: 1, Member: job(t, 3, 1)}).Err())
	_, err := s.store.DB().ExecContext(ctx, `INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ('f4', 'redis', 'payments', ?, 'RuntimeException: boom')`, job(t, 4, 0))
	ok(err)
	// Settled before, of no step, and without an order.
	ok(writeRow(s.fence, zabor.Settled, key("5")))
	noKey := strings.NewReplacer("i:6;", "N;").Replace(job(t, 6, 1))
	ok(s.redis.RPush(ctx, list, job(t, 5, 1), strings.ReplaceAll(job(t, 7, 1), "ChargeOrder", "CacheImage"), noKey).Err())
	// Symfony's: had by a consumer and taken over, a retry, failed, fresh.
	var entries []string
	for _, order := range []int64{11, 12, 13, 102} {
		value, err := produce.SymfonyJSON(produce.Charge{Order: order, Minor: 1999})
		ok(err)
		entries = append(entries, string(value))
	}
	ok(s.redis.XGroupCreateMkStream(ctx, "messages", "symfony", "0").Err())
	ok(s.redis.XAdd(ctx, &redis.XAddArgs{Stream: "messages", Values: []any{"message", entries[0]}}).Err())
	read, err := s.redis.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "symfony", Consumer: "zabor:old:0", Streams: []string{"messages", ">"}}).Result()
	ok(err)
	ok(s.redis.Do(ctx, "XCLAIM", "messages", "symfony", "zabor:old:0", 0, read[0].Messages[0].ID, "IDLE", 3_600_000, "RETRYCOUNT", 2).Err())
	ok(s.redis.XAdd(ctx, &redis.XAddArgs{Stream: "messages", Values: []any{"message", entries[3]}}).Err())
	const stamp = `X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\RedeliveryStamp`
	ok(s.redis.ZAdd(ctx, "messages__queue", redis.Z{Score: 1_700_000_000_000,
		Member: `{"body":"{\"orderId\":12,\"amountCents\":1999}","headers":{"type":"App\\Message\\ChargeOrder","` + stamp + `":"[{\"retryCount\":1}]"},"uniqid":"x"}`}).Err())
	_, err = s.store.DB().ExecContext(ctx, `INSERT INTO messenger_messages (body, headers, queue_name, created_at, available_at) VALUES ('{"orderId":13,"amountCents":1999}', '{"type":"App\\Message\\ChargeOrder"}', 'failed', '2026-03-01 10:00:00', '2026-03-01 10:00:00')`)
	ok(err)

	before := s.depth()
	refused := func(want, command string) {
		t.Helper()
		_, log := s.command(exit.WrongUsage, "worker", "--drain")
		for _, text := range []string{want, fmt.Sprintf("zabor import -c %s %s", s.file, command)} {
			if !strings.Contains(log, text) {
				t.Errorf("the refusal lacks %q:\n%s", text, log)
			}
		}
		if got := s.depth(); got != before {
			t.Errorf("the queues hold %+v after a refusal, %+v before", got, before)
		}
	}
	imported := func(code int, args ...string) map[string]takeover.Inventory {
		t.Helper()
		text, _ := s.command(code, append([]string{"import", "--json"}, args...)...)
		var r importResult
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		found := map[string]takeover.Inventory{}
		for _, q := range r.Queues {
			if q.Messages != q.NoStep+q.Fresh+q.Row+q.Held+q.WithoutKey {
				t.Errorf("%+v does not add up", q)
			}
			found[q.Queue] = q
		}
		if n := len(r.WithoutKey); n != found["payments"].WithoutKey || n > 0 && !strings.Contains(r.WithoutKey[0].Reason, "order") {
			t.Errorf("without a key: %+v", r.WithoutKey)
		}
		return found
	}
	async := takeover.Inventory{Queue: "async", Messages: 4, Fresh: 1, Held: 3}
	payments := takeover.Inventory{Queue: "payments", Messages: 9, NoStep: 1, Fresh: 2, Row: 1, Held: 4, WithoutKey: 1}
	same := func(got, want takeover.Inventory) {
		t.Helper()
		got.Had, got.Examples = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("imported %+v, want %+v", got, want)
		}
	}

	refused("queue async: zabor has never taken from it, and it holds 3 messages that another worker has had and that have no row (1 reserved, 1 delayed, 1 failed)", "--queue async")
	same(imported(exit.Good, "--dry-run", "--queue", "async")["async"], async)
	if n := len(s.rows()); n != 1 {
		t.Errorf("%d rows after a dry run, want the one that was there", n)
	}
	same(imported(exit.Good, "--queue", "async")["async"], async)
	refused("queue payments: zabor has never taken from it, and it holds 5 messages", "--queue payments")
	same(imported(exit.BadAnswer)["payments"], payments)

	again := imported(exit.BadAnswer) // it changes nothing
	async.Row, async.Held = 3, 0
	payments.Row, payments.Held = 5, 0
	same(again["async"], async)
	same(again["payments"], payments)
	for _, order := range []string{"1", "2", "3", "4", "11", "12", "13"} {
		if row := s.row(order); row.State != zabor.Held || row.Cause != zabor.ByImport || row.Amount.Minor != 1999 || !strings.Contains(row.Reason, "another worker has had it") {
			t.Errorf("order %s: %s by %s: %s", order, row.State, row.Cause, row.Reason)
		}
	}
	if got := s.depth(); got != before {
		t.Errorf("the queues hold %+v after the import, %+v before", got, before)
	}

	s.command(exit.BadAnswer, "worker", "--drain") // what is held is listed
	for _, order := range []string{"100", "101", "102"} {
		s.chargedOnce(order)
	}
	if n := s.provider.Stats().Charges; n != 3 {
		t.Errorf("%d charges, want 3", n)
	}
	// 1, 2, 3, the one that was another request's, the one of no step and the one
	// without a key, beside the one that had failed.
	if laravel, symfony := s.failed(); laravel != 7 || symfony != 3 {
		t.Errorf("%d and %d failed messages, want 7 and 3", laravel, symfony)
	}

	// From now on a message that was delivered before is doubt, not a refusal.
	ok(s.redis.RPush(ctx, list, job(t, 8, 1)).Err())
	w := s.worker("--queue", "payments")
	eventually(t, "the row in doubt is released and charged", func() bool { return s.state("8") == zabor.Settled })
	w.signal(syscall.SIGTERM)
	w.exit(exit.Good)
}

// The import takes nothing over: what PHP's workers have had between it and the first
// start refuses that start. So does, after a drain that has given the queue back,
// whatever they have had since.
func TestPHPBeforeTheStart(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	ctx := t.Context()
	const list = "laravel_database_queues:payments"
	had := func(order int64) {
		t.Helper()
		if err := s.redis.RPush(ctx, list, job(t, order, 1)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	refused := func() {
		t.Helper()
		if _, log := s.command(exit.WrongUsage, "worker", "--drain", "--queue", "payments"); !strings.Contains(log, "zabor has never taken from it, and it holds 1 messages") {
			t.Errorf("the refusal is\n%s", log)
		}
	}
	s.command(exit.Good, "import", "--queue", "payments")
	had(1)
	refused()
	s.command(exit.Good, "import", "--queue", "payments")
	s.command(exit.BadAnswer, "worker", "--drain", "--queue", "payments") // 1 is held
	// A drain that leaves something gives nothing back: it is doubt, and looked up.
	had(2)
	if err := s.redis.RPush(ctx, list, job(t, 100, 0)).Err(); err != nil { // which the look-up finds
		t.Fatal(err)
	}
	w := s.worker("--queue", "payments")
	eventually(t, "order 2 is released and charged", func() bool { return s.state("2") == zabor.Settled })
	w.signal(syscall.SIGTERM)
	w.exit(exit.Good)
	s.command(exit.Good, "fence", "settle", "1", "charge", "pay_of_php", "--reason", "found", "--by", "ops", "--yes")
	s.command(exit.Good, "worker", "--drain", "--queue", "payments")
	had(3)
	refused()
	if n := s.provider.Charges("3"); len(n) != 0 {
		t.Errorf("order 3 was charged: %v", n)
	}
}

// A step that is new on a queue of zabor's is taken over as a queue is: what others
// have had of its messages is held before it is called for. So is what has failed under
// another connection of the same queue.
func TestANewStepIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	w := s.worker("--queue", "payments")
	w.logged("msg=started")
	w.signal(syscall.SIGTERM)
	w.exit(exit.Good)
	const class, data = `App\\Jobs\\ChargeForMerchant`, `{"orderId":50,"amountCents":1999,"merchantId":"m"}`
	s.exec(`INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ('m1', 'redis', 'payments', '{"uuid":"m1","job":"` + class + `@run","data":` + data + `,"attempts":0}', 'boom')`)
	s.exec(`INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ('m2', 'slow', 'payments', '{"uuid":"m2","job":"` + class + `@run","data":` + strings.Replace(data, "50", "51", 1) + `,"attempts":0}', 'boom')`)
	s.o.merchant = true
	s.configure()
	for _, args := range [][]string{{"--all"}, {"m1"}} {
		if out, log := s.command(exit.WrongUsage, append([]string{"failed", "retry", "--queue", "payments"}, args...)...); !strings.Contains(out, "not imported yet: m1") || !strings.Contains(log, "zabor import") {
			t.Errorf("retry %v:\n%s%s", args, out, log)
		}
	}
	if out, _ := s.command(exit.Good, "peek", "payments"); !strings.Contains(out, "verdict  hold") {
		t.Errorf("peek says\n%s", out)
	}
	if _, log := s.command(exit.WrongUsage, "worker", "--drain", "--queue", "payments"); !strings.Contains(log, `messages of App\Jobs\ChargeForMerchant had no step so far, and it holds 2 messages`) {
		t.Errorf("the refusal is\n%s", log)
	}
	s.command(exit.Good, "import", "--queue", "payments")
	for _, order := range []string{"50", "51"} {
		if row := s.row(order); row.State != zabor.Held || row.Scope != "test/m" {
			t.Errorf("order %s: %+v", order, row)
		}
	}
	s.command(exit.BadAnswer, "worker", "--drain", "--queue", "payments") // they are held
	s.command(exit.Good, "failed", "retry", "m1", "--queue", "payments")
	s.command(exit.BadAnswer, "worker", "--drain", "--queue", "payments")
	if n := s.provider.Stats().Posts; n != 0 {
		t.Errorf("%d requests for what PHP may have charged", n)
	}
}

// A drain lists what has failed for rows that wait for nobody, too: PHP's retry would
// charge for it.
func TestADrainListsWhatHasFailed(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	if err := writeRow(s.fence, zabor.Settled, key("1")); err != nil {
		t.Fatal(err)
	}
	if err := s.redis.RPush(t.Context(), "laravel_database_queues:payments", job(t, 1, 0)).Err(); err != nil { // not what the row's message asks for
		t.Fatal(err)
	}
	_, log := s.command(exit.BadAnswer, "worker", "--drain", "--queue", "payments")
	if !strings.Contains(log, "test:1/charge is settled, and its message has failed: ") || !strings.Contains(log, "1 messages of steps, or unreadable ones, have failed") {
		t.Errorf("the drain says\n%s", log)
	}
	var list []failedJSON
	if err := json.Unmarshal([]byte(s.failedCommand(exit.Good, "list", "--json")), &list); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if out := s.failedCommand(exit.Good, "retry", "--all"); !strings.Contains(out, "its row is settled, reference pay_1") || !strings.Contains(out, "0 of 0 done") {
		t.Errorf("retry --all:\n%s", out)
	}
	s.failedCommand(exit.Good, "forget", list[0].ID, "--reason", "paid", "--yes")
	s.command(exit.Good, "worker", "--drain", "--queue", "payments")
}

// A PHP worker that joins a queue with steps is told of as critical within a minute.
func TestAForeignConsumerIsToldOf(t *testing.T) {
	t.Parallel()
	says := map[string]string{
		"laravel": "queue payments: a worker that is not zabor's has reserved job",
		"symfony": "queue async: consumer \"php-",
	}
	for _, php := range phpShops {
		t.Run(php.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[0].open(t), options{})
			w := s.worker("--queue", php.queue)
			w.logged("msg=started")
			worker := s.phpWorker(php.name)
			if strings.Contains(w.log.String(), "foreign-consumer") {
				t.Fatal("told of before it took anything")
			}
			var messages []message
			for i := range 8 { // one of them at least for PHP, which hangs then
				messages = append(messages, newMessage(s.o.redis, php.framework, fmt.Sprint("hang-", i)))
			}
			worker.start()
			came := time.Now()
			put(t, messages...)
			w.logged("foreign-consumer")
			if took := time.Since(came); took > time.Minute {
				t.Errorf("told of after %s, want a minute at most", took)
			}
			if log := strings.ReplaceAll(w.log.String(), `\`, ``); !strings.Contains(log, says[php.name]) || !strings.Contains(log, "severity=critical") {
				t.Errorf("the alert lacks %q", says[php.name])
			}
		})
	}
}

// A supervisor of Horizon's that comes later is told of too. Its keys are those
// that Horizon 5 writes.
func TestASupervisorIsToldOf(t *testing.T) {
	t.Parallel()
	s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), options{})
	s.withHorizon()
	w := s.worker("--queue", "payments")
	w.logged("msg=started")
	s.supervisor(`{"redis:emails":2}`)
	s.supervisor(`{"redis:emails,payments":2}`)
	w.logged("Horizon's supervisor web1:supervisor-1 has processes for redis:payments")
	w.logged("severity=critical")
}

// withHorizon names Horizon's prefix in the configuration.
func (s *shop) withHorizon() {
	s.t.Helper()
	s.edit("prefix: laravel_database_,", `prefix: laravel_database_, horizon: "laravel_horizon:",`)
}

// supervisor is a supervisor of Horizon's with these processes.
func (s *shop) supervisor(processes string) {
	s.t.Helper()
	ctx, name := s.t.Context(), "web1:supervisor-1"
	pipe := s.redis.TxPipeline()
	pipe.ZAdd(ctx, "laravel_horizon:supervisors", redis.Z{Score: float64(time.Now().Unix()), Member: name})
	pipe.HSet(ctx, "laravel_horizon:supervisor:"+name, "name", name, "master", "web1", "pid", 4711, "status", "running", "processes", processes)
	pipe.Expire(ctx, "laravel_horizon:supervisor:"+name, time.Minute)
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// share says that PHP workers take from both queues too.
func (s *shop) share() {
	s.t.Helper()
	s.edit("    laravel: {", "    shared: true\n    laravel: {")
	s.edit("    symfony: {", "    shared: true\n    symfony: {")
}
