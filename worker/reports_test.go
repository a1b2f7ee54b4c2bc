package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// What public reports tell of other queues and workers, each under its report's
// name: it must not happen here.
func TestPublicReports(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		report string
		test   func(t *testing.T, s *shop)
	}{
		{"laravel/horizon#1541", diedBeforeTheAck},
		{"OptimalBits/bull#850", emptyPayload},
		{"laravel/horizon#833", lateFinisher},
		{"symfony/symfony#31707", longHandler},
		{"celery/kombu#337", delayIsKeptInTheQueue},
		{"celery/celery#9663", copiesInOneProcess},
		{"resque/resque#93", noPlainPop},
		{"sidekiq/sidekiq#4138", noAckInPlaceOfARelease},
		{"laravel/framework#37729", nextStepOfAnOrder},
		{"laravel/framework#55420", callersRollback},
		{"own-pay/OwnPay#172", retriedWhileHeld},
		{"pincerhq/pincer#171", failsBehindTheEffect},
		{"symfony/symfony#57733", bothCopiesRetried},
		{"redis/redis#6062", ackIsUndone},
		{"symfony/symfony#65122", undecodableIsKeptAsItIs},
		{"celery/celery#4308", poison},
		{"celery/celery#2481", hundredCopies},
		{"DoliCloud/SellYourSaas#217", longReference},
		{"symfony/symfony#53406", trimmedInTheCall},
	} {
		t.Run(tt.report, func(t *testing.T) {
			t.Parallel()
			tt.test(t, newShop(t))
		})
	}
}

func (s *shop) wantCalls(want int64) {
	s.t.Helper()
	if got := s.calls.Load(); got != want {
		s.t.Errorf("%d calls, want %d", got, want)
	}
}

// settle settles order's row, as a worker does that dies before its ack.
func (s *shop) settle(order string) {
	s.t.Helper()
	e, err := s.Steps[0].Effect(s.t.Context(), step.Message{Class: "Charge", Data: map[string]any{"order": order, "cents": json.Number("1999")}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Fence.Do(s.t.Context(), e, s.Call); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) received() *worker.Message {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	m, err := worker.Next(ctx, s.queue.Source)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// A job of one try whose worker died between the provider's 200 and the ack is not
// failed for its tries, but acked for its row.
func diedBeforeTheAck(t *testing.T, s *shop) {
	s.pushRaw("payments", `{"uuid":"u-1","displayName":"Charge","job":"Charge@handle","maxTries":1,"data":{"order":"A-1","cents":1999},"attempts":0}`)
	s.received()
	s.settle("A-1")
	s.drained()
	s.wantCalls(1)
	if row := s.row("A-1"); row.State != zabor.Settled || s.count("failed_jobs") != 0 {
		t.Errorf("row %s, %d failed jobs", row.State, s.count("failed_jobs"))
	}
}

// A job that comes again without its payload makes no row.
func emptyPayload(t *testing.T, s *shop) {
	s.charge("1")
	s.drained()
	s.pushRaw("payments", "{}")
	s.drained()
	s.wantCalls(1)
	if s.count("zabor_fences") != 1 || s.count("zabor_unreadable") != 1 {
		t.Errorf("%d rows, %d unreadable messages; want one each", s.count("zabor_fences"), s.count("zabor_unreadable"))
	}
}

// A worker that hangs for far longer than its lease: who comes meanwhile waits in
// doubt, and the late success is saved.
func lateFinisher(t *testing.T, s *shop) {
	s.Lanes = 2
	s.Steps = []*step.Step{s.stepOfTimeout(time.Second)}
	end := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		<-end
		return settled(ctx, row)
	}
	s.charge("1")
	stop := s.run()
	s.eventually("the call has begun", func() bool { return s.calls.Load() == 1 })
	s.charge("1")
	s.eventually("the row is in doubt", func() bool { return s.row("1").State == zabor.Doubt })
	close(end)
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	s.wantCalls(1)
	if row := s.row("1"); row.State != zabor.Settled || row.Reference != "pay_1" || row.OtherReference != "" {
		t.Errorf("row %+v", row)
	}
}

// stepOfTimeout is the step charge with another time-out.
func (s *shop) stepOfTimeout(d time.Duration) *step.Step {
	return s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents", Providers: map[string]step.Provider{"acquirer": {Timeout: d}}})
}

// symfony gives s another queue, a transport of Symfony's that keeps a message for
// one second and whose failure transport is a stream.
func (s *shop) symfony() (*messenger.Source, *redis.Client) {
	s.t.Helper()
	o := s.redis.Options()
	c, err := messenger.ParseDSN(fmt.Sprintf("redis://%s/messages?dbindex=%d&redeliver_timeout=1&claim_interval=50&delete_after_ack=1", o.Addr, o.DB))
	if err != nil {
		s.t.Fatal(err)
	}
	client := redis.NewUniversalClient(c.Options())
	s.t.Cleanup(func() { client.Close() })
	failed := c
	failed.Stream = "failed"
	source, err := messenger.NewSource(client, messenger.Options{Name: "async", Config: c, Host: "web1", Failed: &messenger.Stream{Client: client, Config: failed}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { source.Close(context.Background()) })
	s.Queues = append(s.Queues, worker.Queue{Source: &watched{Source: source, s: s}, Reserve: time.Second, MissingRow: zabor.Doubt})
	return source, s.redis
}

func (s *shop) sendSymfony(order string) (id string) {
	s.t.Helper()
	id, err := s.redis.XAdd(s.t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message",
		`{"body":"{\"order\":\"` + order + `\",\"cents\":1999}","headers":{"type":"Charge"}}`}}).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// A handler that takes five times the redeliver_timeout: a second consumer does not
// get the message meanwhile.
func longHandler(t *testing.T, s *shop) {
	s.Lanes = 2
	source, client := s.symfony()
	end := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		<-end
		return settled(ctx, row)
	}
	s.sendSymfony("1")
	stop := s.run()
	s.eventually("the call has begun", func() bool { return s.calls.Load() == 1 })
	renewed := &s.Queues[1].Source.(*watched).renewed
	s.eventually("it is renewed for five times its reserve", func() bool { return renewed.Load() >= 15 })
	if p := client.XPending(t.Context(), "messages", "symfony").Val(); p.Count != 1 {
		t.Errorf("pending %+v", p)
	}
	close(end)
	s.eventually("the stream is empty", func() bool { d, err := source.Depth(t.Context()); return err == nil && d.Empty() })
	stop()
	s.wantCalls(1)
	if slices.Contains(s.noted(), "later") {
		t.Errorf("events %q: it was delivered twice", s.noted())
	}
}

// A delay that is longer than the reserve is kept in the queue: no row before it is
// due, and one delivery.
func delayIsKeptInTheQueue(t *testing.T, s *shop) {
	due := time.Now().Truncate(time.Second).Add(4 * time.Second)
	payload := `{"uuid":"u-1","job":"Charge@handle","data":{"order":"1","cents":1999},"attempts":0}`
	if err := s.redis.ZAdd(t.Context(), "queues:payments:delayed", redis.Z{Score: float64(due.Unix()), Member: payload}).Err(); err != nil {
		t.Fatal(err)
	}
	s.drained()
	s.wantCalls(1)
	if row := s.row("1"); row.CapturedAt.Before(due) || row.Tries != 1 || s.count("zabor_fences") != 1 {
		t.Errorf("row %+v; it was due at %v", row, due)
	}
	s.wantEvents("capturing", "sending", "answered", "saved", "ack", "acked")
}

// The same worker that meets its own live claim backs off too.
func copiesInOneProcess(t *testing.T, s *shop) {
	s.Lanes = 2
	end := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		<-end
		return settled(ctx, row)
	}
	s.charge("1")
	s.charge("1")
	stop := s.run()
	s.eventually("the second has met the first", func() bool { return slices.Contains(s.noted(), "later") })
	close(end)
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	s.wantCalls(1)
}

// Jobs are taken by the script that reserves them, never by a plain pop.
func noPlainPop(t *testing.T, s *shop) {
	server := servers.OwnRedis(t)
	s.redis = redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer s.redis.Close()
	s.Queues = nil
	s.queue = s.addQueue("payments")
	watcher, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	lines := make(chan string, 10_000)
	go func() {
		for in := bufio.NewScanner(watcher); in.Scan(); {
			lines <- in.Text()
		}
	}()
	if _, err := watcher.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	if line := <-lines; line != "+OK" {
		t.Fatalf("MONITOR answered %q", line)
	}
	for i := range 5 {
		s.charge(fmt.Sprint(i))
	}
	s.drained()
	s.redis.Echo(t.Context(), "the end")
	scripts := 0
	for line := range lines {
		at, command, _ := strings.Cut(strings.ToLower(line), "] ")
		if strings.Contains(command, `"the end"`) {
			break
		}
		switch {
		case strings.Contains(at, " lua"):
			scripts++
		case strings.Contains(command, `"queues:payments"`) && slices.Contains([]string{`"lpop"`, `"rpop"`, `"blpop"`, `"brpop"`, `"lmove"`, `"lmpop"`}, strings.Fields(command)[0]):
			t.Errorf("outside a script: %s", line)
		}
	}
	if scripts == 0 {
		t.Error("no command of a script was seen")
	}
}

// failsLater is a queue whose releases fail.
type failsLater struct{ worker.Source }

func (failsLater) Later(context.Context, *worker.Message, time.Duration) error {
	return errors.New("READONLY")
}

// A release that cannot be written is not answered by an ack.
func noAckInPlaceOfARelease(t *testing.T, s *shop) {
	s.queue.Source = failsLater{s.queue.Source}
	s.Queues[0].Reserve = time.Hour // nothing is renewed
	var answered atomic.Bool
	s.answer = func(context.Context, zabor.Row) zabor.Outcome {
		answered.Store(true)
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "refused"}
	}
	s.charge("1")
	s.run()
	s.eventually("the release was tried again", func() bool {
		return len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "later" })) > 1
	})
	if d := s.depth(); !answered.Load() || d.Empty() || slices.Contains(s.noted(), "ack") {
		t.Errorf("the queue holds %+v, events %q", d, s.noted())
	}
}

// What is done for an order keeps no other step of it.
func nextStepOfAnOrder(t *testing.T, s *shop) {
	s.Steps = append(s.Steps, s.step(step.Spec{Name: "ship", Classes: []string{"Ship"}, Amount: "cents"}))
	s.charge("A-1")
	s.drained()
	s.push("payments", "Ship", map[string]any{"order": "A-1", "cents": 1999})
	s.drained()
	s.wantCalls(2)
	if n := s.count("zabor_fences WHERE state = 'settled'"); n != 2 {
		t.Errorf("%d settled rows, want 2", n)
	}
}

// The row is no part of a transaction of the caller's, and stays when that rolls
// back.
func callersRollback(t *testing.T, s *shop) {
	store, err := sqlstore.Open(servers.Postgres(t)) // a transaction of SQLite's keeps all others out
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Fence.Store = store
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("CREATE TABLE of_the_caller (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	s.settle("1")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if row, err := store.Load(t.Context(), zabor.Key{Order: "1", Step: "charge"}); err != nil || row.State != zabor.Settled || row.Reference != "pay_1" {
		t.Errorf("row %+v, %v", row, err)
	}
}

// Retried again and again, the message of a held row is refused each time.
func retriedWhileHeld(t *testing.T, s *shop) {
	a := s.alerts()
	s.answer = func(context.Context, zabor.Row) zabor.Outcome {
		return zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}
	}
	id := s.charge("1")
	s.drained()
	for range 5 {
		if err := s.queue.Source.(*laravel.Source).Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		s.drained()
	}
	s.wantCalls(1)
	codes := slices.DeleteFunc(a.codes(), func(c string) bool { return c != "parked" })
	if len(codes) != 5 || s.count("failed_jobs") != 1 || !strings.Contains(s.reason(), "held") {
		t.Errorf("%d refusals, %d failed jobs, because %s", len(codes), s.count("failed_jobs"), s.reason())
	}
}

// What fails behind the effect is done again, the effect is not.
func failsBehindTheEffect(t *testing.T, s *shop) {
	behind := 0
	for range 3 {
		s.settle("1")
		behind++ // and fails
	}
	s.wantCalls(1)
	if behind != 3 {
		t.Errorf("%d runs of what is behind the effect", behind)
	}
}

// A message and its redelivered copy, both given up and both retried.
func bothCopiesRetried(t *testing.T, s *shop) {
	ids := []string{s.charge("1"), s.charge("1")}
	for range ids {
		m := s.received()
		if err := s.queue.Source.Park(t.Context(), m, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if err := s.queue.Source.(*laravel.Source).Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	s.drained()
	s.wantCalls(1)
	if n := s.count("failed_jobs"); n != 0 {
		t.Errorf("%d failed jobs", n)
	}
}

// A failover of Redis forgets an ack: the message comes back and is acked for its
// row.
func ackIsUndone(t *testing.T, s *shop) {
	s.charge("1")
	before := s.listed("payments")
	s.drained()
	member := strings.Replace(before[0], `"attempts":0`, `"attempts":1`, 1)
	if err := s.redis.ZAdd(t.Context(), "queues:payments:reserved", redis.Z{Score: 1, Member: member}).Err(); err != nil {
		t.Fatal(err)
	}
	s.drained()
	s.wantCalls(1)
	if row := s.row("1"); row.State != zabor.Settled {
		t.Errorf("row %s", row.State)
	}
}

// unreadable is what zabor_unreadable holds.
func (s *shop) unreadable() (all [][]byte) {
	s.t.Helper()
	rows, err := s.store.DB().Query("SELECT bytes FROM zabor_unreadable ORDER BY at")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// Bytes that are no message are kept once, and do not grow.
func undecodableIsKeptAsItIs(t *testing.T, s *shop) {
	source, _ := s.symfony()
	s.pushRaw("payments", "{{")
	if err := s.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message", "{{"}}).Err(); err != nil {
		t.Fatal(err)
	}
	stop := s.run()
	s.eventually("both queues are empty", func() bool {
		d, err := source.Depth(t.Context())
		return err == nil && d.Empty() && s.depth().Empty()
	})
	stop()
	kept := s.unreadable()
	if len(kept) != 2 || string(kept[0]) != "{{" || string(kept[1]) != "{{" {
		t.Errorf("kept %q", kept)
	}
	if n := len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "unreadable" })); n != 2 {
		t.Errorf("%d deliveries, want one of each", n)
	}
}

// What no decoder survives elsewhere is kept, and the worker goes on.
func poison(t *testing.T, s *shop) {
	source, _ := s.symfony()
	deep := `{"job":"Charge@handle","attempts":0,"data":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}"
	body := `{"body":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `,"headers":[]}`
	for _, raw := range []string{deep, "{\"job\":\"Charge@handle\",\"data\":\"\xff\xfe\",\"attempts\":0}"} {
		s.pushRaw("payments", raw)
	}
	for _, raw := range []string{body, "{\"body\":\"\xff\xfe\",\"headers\":[]}"} {
		if err := s.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message", raw}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.charge("1")
	stop := s.run()
	s.eventually("both queues are empty", func() bool {
		d, err := source.Depth(t.Context())
		return err == nil && d.Empty() && s.depth().Empty()
	})
	stop()
	s.wantCalls(1)
	kept := s.unreadable()
	for _, want := range []string{deep, body} {
		if !slices.ContainsFunc(kept, func(b []byte) bool { return bytes.Equal(b, []byte(want)) }) {
			t.Error("a deeply nested message is not among what is kept")
		}
	}
	if len(kept) != 4 {
		t.Errorf("%d messages are kept, want 4", len(kept))
	}
}

// A hundred copies of a message are one call and a hundred acks.
func hundredCopies(t *testing.T, s *shop) {
	for range 100 {
		s.charge("1")
	}
	s.drained()
	s.wantCalls(1)
	acks, others := 0, 0
	for _, e := range s.noted() {
		switch e {
		case "acked":
			acks++
		case "later", "put back", "park":
			others++
		}
	}
	if acks != 100 || others != 0 {
		t.Errorf("%d acks, %d other answers; want 100 and none", acks, others)
	}
}

// A long reference is saved whole. One that the database refuses to save after the
// charge is kept on disk, and told of; the row is in doubt meanwhile, nobody calls
// again, and the reference is saved when the database takes it.
func longReference(t *testing.T, s *shop) {
	long := strings.Repeat("r", 299) + "x"
	s.answer = func(_ context.Context, row zabor.Row) zabor.Outcome {
		return zabor.Outcome{Verdict: zabor.Done, Reference: long + row.Order}
	}
	s.charge("1")
	s.drained()
	if row := s.row("1"); row.State != zabor.Settled || row.Reference != long+"1" {
		t.Errorf("row %s, reference of %d bytes", row.State, len(row.Reference))
	}

	dir := t.TempDir()
	journal, err := zabor.OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Fence.Journal, s.Fence.SaveTimeout = journal, 500*time.Millisecond
	s.Steps = []*step.Step{s.stepOfTimeout(2 * time.Second)}
	s.exec("CREATE TRIGGER refuse BEFORE UPDATE ON zabor_fences WHEN length(NEW.reference) > 0 BEGIN SELECT RAISE(ABORT, 'Data too long'); END")
	s.charge("2")
	stop := s.run()
	s.eventually("the row is in doubt", func() bool { return s.row("2").State == zabor.Doubt })
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("in the journal: %q, %v", files, err)
	}
	if kept, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(kept), long) {
		t.Errorf("the journal has %s, %v", kept, err)
	}
	if s.depth().Empty() {
		t.Error("the message was acked")
	}
	s.exec("DROP TRIGGER refuse")
	if n, err := s.Fence.ReplayJournal(t.Context()); n != 1 || err != nil {
		t.Errorf("%d saved, %v", n, err)
	}
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	s.wantCalls(2)
	if row := s.row("2"); row.State != zabor.Settled || row.Reference != long+"2" {
		t.Errorf("row %s, reference of %d bytes", row.State, len(row.Reference))
	}
}

// An entry that stream_max_entries trims during its call is no reason to crash, nor
// to call again.
func trimmedInTheCall(t *testing.T, s *shop) {
	source, client := s.symfony()
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		if err := client.XTrimMaxLen(ctx, "messages", 0).Err(); err != nil {
			t.Error(err)
		}
		return settled(ctx, row)
	}
	s.sendSymfony("1")
	stop := s.run()
	s.eventually("the message is answered", func() bool { return slices.Contains(s.noted(), "acked") })
	s.sendSymfony("2")
	s.eventually("the stream is empty", func() bool {
		d, err := source.Depth(t.Context())
		return err == nil && d.Empty() && s.calls.Load() == 2
	})
	stop()
	for _, order := range []string{"1", "2"} {
		if row := s.row(order); row.State != zabor.Settled {
			t.Errorf("order %s: row %s", order, row.State)
		}
	}
}

// Order ids are told apart byte by byte, whatever they look like.
func TestPublicReportsOfOrderIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 199)
	for _, tt := range []struct {
		report string
		ids    []any
		rows   int
	}{
		{"magento/magento2#390", []any{"M00000101", "M00000102"}, 2},
		{"magento/magento2#390 number", []any{101, "101"}, 1},
		{"roblesterjr04/EloquentSalesForce#76", []any{"00123", "123"}, 2},
		{"unkeyed/unkey#4091", []any{"api_4qD329", "api_4qd329"}, 2},
		{"indigo-iam/iam#1136", []any{"A-1", "A-1 "}, 2},
		{"HubSpot/Blazar-Archive#351", []any{"x🎩", "x💥"}, 2},
		{"openlinker-project/openlinker#3440", []any{long + "1", long + "2"}, 2},
	} {
		t.Run(tt.report, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			for _, id := range tt.ids {
				s.push("payments", "Charge", map[string]any{"order": id, "cents": 1999})
			}
			s.drained()
			s.wantCalls(int64(tt.rows))
			keys := map[string]bool{}
			for _, id := range tt.ids {
				row := s.row(fmt.Sprint(id))
				keys[row.ProviderKey] = true
				if row.State != zabor.Settled || len(row.ProviderKey) != 26 {
					t.Errorf("order %v: row %s, provider key %q", id, row.State, row.ProviderKey)
				}
			}
			if n := s.count("zabor_fences"); n != tt.rows || len(keys) != tt.rows {
				t.Errorf("%d rows, %d provider keys, want %d", n, len(keys), tt.rows)
			}
		})
	}
}

// Two merchants with the same order number at one provider account.
func TestPublicReportsOfScopes(t *testing.T) {
	t.Parallel()
	t.Run("godaddy-wordpress/wc-plugin-framework#492 and laravel/laravel#4982", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents", Scope: "merchant"})}
		for _, merchant := range []string{"t1", "t2"} {
			s.push("payments", "Charge", map[string]any{"order": "1001", "cents": 1999, "merchant": merchant})
		}
		s.drained()
		s.wantCalls(2)
		if n := s.count("zabor_fences"); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
		if n := s.count("(SELECT DISTINCT provider_key FROM zabor_fences) k"); n != 2 {
			t.Errorf("%d keys at the provider, want 2", n)
		}
	})
}
