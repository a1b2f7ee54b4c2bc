package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/laravel"
	"zabor/provider"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

func TestMain(m *testing.M) { servers.Main(m) }

// shop is a worker on a real Laravel queue with a real fence, whose provider is
// a function.
type shop struct {
	*worker.Worker
	t     testing.TB
	redis *redis.Client
	store *sqlstore.Store
	queue *watched
	calls atomic.Int64

	// answer is what the provider does; at first it settles everything.
	answer func(ctx context.Context, row zabor.Row) zabor.Outcome

	mu     sync.Mutex
	events []string
}

func settled(_ context.Context, row zabor.Row) zabor.Outcome {
	return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_" + row.Order}
}

// reserve is that of the queues; Laravel's is in whole seconds.
const reserve = time.Second

func newShop(t testing.TB) *shop {
	t.Helper()
	addr := servers.Redis(t)
	s := &shop{t: t, answer: settled, redis: redis.NewClient(&redis.Options{Addr: addr.Addr, DB: addr.DB, MaxRetries: -1})}
	t.Cleanup(func() { s.redis.Close() })
	var err error
	if s.store, err = sqlstore.Open("sqlite://" + strings.ReplaceAll(filepath.Join(t.TempDir(), "fence.db"), "#", "%23")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.store.Close() })
	if err := s.store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE TABLE failed_jobs (id INTEGER PRIMARY KEY, uuid TEXT UNIQUE, connection TEXT, queue TEXT, payload TEXT, exception TEXT, failed_at TEXT)",
		"CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER)",
	} {
		s.exec(statement)
	}
	s.Worker = &worker.Worker{
		Fence: &zabor.Fence{Store: s.store, Secret: []byte(strings.Repeat("s", zabor.MinSecret)), Observer: zabor.Observer{At: s.passed}},
		Lanes: 1,
		Steps: []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents"})},
		Call: func(ctx context.Context, row zabor.Row) zabor.Outcome {
			s.calls.Add(1)
			return s.answer(ctx, row)
		},
		Unreadable: func(ctx context.Context, queue string, raw []byte, reason string) error {
			s.note("unreadable")
			return s.store.Quarantine().Save(ctx, sqlstore.Unreadable{Queue: queue, Bytes: raw, Reason: reason})
		},
		Backoff: []time.Duration{10 * time.Millisecond},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		At:      s.passed,
	}
	s.queue = s.addQueue("payments")
	return s
}

// step is spec with what all steps of these tests have.
func (s *shop) step(spec step.Spec) *step.Step {
	s.t.Helper()
	spec.Order, spec.Currency, spec.Provider, spec.Dialect = "order", "EUR", "acquirer", step.SQLite
	if spec.Providers == nil {
		spec.Providers = map[string]step.Provider{"acquirer": {Timeout: 30 * time.Second}}
	}
	if spec.Request.Path == "" {
		spec.Request = provider.RequestSpec{Path: "/payments", JSON: map[string]any{"amount": "{{minor}}"}}
	}
	spec.Attempts, spec.HoldAfter, spec.PendingFor = cmp.Or(spec.Attempts, 2), time.Hour, time.Hour
	made, err := step.New(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	made.DB = s.store.DB()
	return made
}

// addQueue gives the worker another Laravel queue.
func (s *shop) addQueue(name string) *watched {
	s.t.Helper()
	failed, err := laravel.NewFailedJobs(s.store.DB(), s.store.Dialect(), "failed_jobs", time.UTC)
	if err != nil {
		s.t.Fatal(err)
	}
	source, err := laravel.NewSource(s.redis, laravel.Config{Queue: name, Connection: "redis", RetryAfter: reserve, Failed: failed})
	if err != nil {
		s.t.Fatal(err)
	}
	w := &watched{Source: source, s: s}
	s.Queues = append(s.Queues, worker.Queue{Source: w, Reserve: reserve, MissingRow: zabor.Doubt})
	return w
}

// watched is a queue that notes what it is told.
type watched struct {
	worker.Source
	s        *shop
	receives atomic.Int64
	received func()       // called before Receive returns a message
	acks     func() error // called in place of Ack; nil: Ack itself
	delays   []time.Duration
	renewed  atomic.Int64
}

func (q *watched) Receive(ctx context.Context, n int) ([]*worker.Message, error) {
	q.receives.Add(1)
	ms, err := q.Source.Receive(ctx, n)
	if len(ms) > 0 && q.received != nil {
		q.received()
	}
	return ms, err
}

func (q *watched) Ack(ctx context.Context, m *worker.Message) error {
	q.s.note("ack")
	if q.acks != nil {
		return q.acks()
	}
	return q.Source.Ack(ctx, m)
}

func (q *watched) Later(ctx context.Context, m *worker.Message, delay time.Duration) error {
	q.s.note("later")
	q.s.mu.Lock()
	q.delays = append(q.delays, delay)
	q.s.mu.Unlock()
	return q.Source.Later(ctx, m, delay)
}

func (q *watched) PutBack(ctx context.Context, m *worker.Message) error {
	q.s.note("put back")
	return q.Source.PutBack(ctx, m)
}

func (q *watched) Park(ctx context.Context, m *worker.Message, reason string) error {
	q.s.note("park")
	return q.Source.Park(ctx, m, reason)
}

func (q *watched) Renew(ctx context.Context, m *worker.Message) error {
	defer q.renewed.Add(1)
	return q.Source.Renew(ctx, m)
}

func (s *shop) note(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}

func (s *shop) passed(m zabor.Checkpoint, _ zabor.Key) { s.note(string(m)) }

// noted is what has happened so far.
func (s *shop) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// push puts a job of class with the given data on a queue, and returns its uuid.
func (s *shop) push(queue, class string, data map[string]any) string {
	s.t.Helper()
	id := uuid.NewString()
	payload, err := json.Marshal(map[string]any{"uuid": id, "displayName": class, "job": class + "@handle", "data": data, "attempts": 0})
	if err != nil {
		s.t.Fatal(err)
	}
	s.pushRaw(queue, string(payload))
	return id
}

func (s *shop) pushRaw(queue, payload string) {
	s.t.Helper()
	if err := s.redis.RPush(s.t.Context(), "queues:"+queue, payload).Err(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.redis.RPush(s.t.Context(), "queues:"+queue+":notify", "1").Err(); err != nil {
		s.t.Fatal(err)
	}
}

// charge puts a job on the queue that wants order charged.
func (s *shop) charge(order string) string {
	s.t.Helper()
	return s.push("payments", "Charge", map[string]any{"order": order, "cents": 1999})
}

func (s *shop) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.store.DB().Exec(statement, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) count(what string) (n int) {
	s.t.Helper()
	if err := s.store.DB().QueryRow("SELECT COUNT(*) FROM " + what).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// row is the row of order; a zero row: there is none.
func (s *shop) row(order string) zabor.Row {
	s.t.Helper()
	rows, err := s.store.Reports().List(s.t.Context(), sqlstore.Filter{Order: order})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(rows) == 0 {
		return zabor.Row{}
	}
	return rows[0]
}

func (s *shop) depth() worker.Depth {
	s.t.Helper()
	d, err := s.queue.Depth(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// run runs the worker until the returned function is called, which waits for its
// end; at the latest at the end of the test.
func (s *shop) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(stop)
	return stop
}

// drained runs the worker until the queue holds nothing.
func (s *shop) drained() {
	s.t.Helper()
	stop := s.run()
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
}

func (s *shop) eventually(what string, cond func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !cond(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatalf("not after 30s: %s; events %q", what, s.noted())
		}
	}
}

func (s *shop) wantEvents(want ...string) {
	s.t.Helper()
	if got := s.noted(); !slices.Equal(got, want) {
		s.t.Errorf("events %q\nwant   %q", got, want)
	}
}

// The row is settled before the queue is told, and the ack is the last of all.
func TestAckIsLast(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.charge("1")
	s.drained()
	s.wantEvents("capturing", "sending", "answered", "saved", "ack", "acked")
	if row := s.row("1"); row.State != zabor.Settled || row.Reference != "pay_1" {
		t.Errorf("row %+v", row)
	}
}

// A second message for the same order is acked without a call.
func TestRepeatIsAcked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.charge("1")
	s.charge("1")
	s.drained()
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// No more calls than lanes are under way, and no more messages are held: a
// worker that dies leaves in doubt only what it had begun.
func TestLanes(t *testing.T) {
	t.Parallel()
	const lanes, messages = 3, 20
	s := newShop(t)
	s.Lanes = lanes
	var now, most atomic.Int64
	enter := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-enter
		return settled(ctx, row)
	}
	for i := range messages {
		s.charge(fmt.Sprint(i))
	}
	s.run()
	s.eventually("all lanes are taken", func() bool { return now.Load() == lanes })
	if d := s.depth(); d.Reserved != lanes {
		t.Errorf("%d messages are held, want %d", d.Reserved, lanes)
	}
	close(enter)
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	if most.Load() != lanes {
		t.Errorf("%d calls at the same time, want %d", most.Load(), lanes)
	}
}

// What no retry can mend is parked, and nothing is called for it.
func TestRefusedIsParked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, class string
		data        map[string]any
		reason      string
	}{
		{"no step", "Mail", map[string]any{"order": "1", "cents": 1}, "no step is configured for Mail"},
		{"no order", "Charge", map[string]any{"cents": 1}, "there is no order"},
		{"no amount", "Charge", map[string]any{"order": "1"}, "there is no cents"},
		{"no data", "Charge", nil, "there is no order"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.push("payments", tt.class, tt.data)
			s.drained()
			var parked, why string
			if err := s.store.DB().QueryRow("SELECT uuid, exception FROM failed_jobs").Scan(&parked, &why); err != nil {
				t.Fatal(err)
			}
			if parked != id || !strings.Contains(why, tt.reason) {
				t.Errorf("parked %s because %s\nwant %s because %s", parked, why, id, tt.reason)
			}
			if s.calls.Load() != 0 || s.row("1").State != "" {
				t.Errorf("%d calls, row %+v; want none", s.calls.Load(), s.row("1"))
			}
			s.wantEvents("park")
		})
	}
}

// A message that the fence can never take is parked, and no queue rests for it.
func TestUnfitIsParked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents",
		Request: provider.RequestSpec{Path: "/payments", JSON: map[string]any{"amount": "{{minor}}", "note": "{{.note}}"}}})}
	s.push("payments", "Charge", map[string]any{"order": "1", "cents": 1999, "note": strings.Repeat("x", 4<<20)})
	s.push("payments", "Charge", map[string]any{"order": "2", "cents": 1999, "note": "short"})
	s.drained()
	got := slices.DeleteFunc(s.noted(), func(e string) bool { return e == "park" }) // parked beside the lanes
	if want := []string{"capturing", "capturing", "sending", "answered", "saved", "ack", "acked"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if row := s.row("2"); row.State != zabor.Settled || s.count("failed_jobs") != 1 || s.count("zabor_fences") != 1 {
		t.Errorf("order 2 is %s, %d failed jobs, %d rows; want settled, 1, 1", row.State, s.count("failed_jobs"), s.count("zabor_fences"))
	}
}

// While the failure transport is broken, a message that belongs there stays.
func TestParkIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec("ALTER TABLE failed_jobs RENAME TO elsewhere")
	s.push("payments", "Mail", nil)
	stop := s.run()
	s.eventually("parking was tried three times", func() bool {
		return len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "park" })) >= 3
	})
	if d := s.depth(); d.Reserved+d.Delayed+d.Ready != 1 {
		t.Errorf("the queue holds %+v, want the message", d)
	}
	s.exec("ALTER TABLE elsewhere RENAME TO failed_jobs")
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	if n := s.count("failed_jobs"); n != 1 {
		t.Errorf("%d failed jobs, want 1", n)
	}
}

// What each outcome of a call makes of the message.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer zabor.Outcome
		state  zabor.State
		event  string // that ends the message's handling
		failed int
	}{
		{"declined", zabor.Outcome{Verdict: zabor.Refused, Reason: "no funds"}, zabor.Declined, "acked", 0},
		{"pending", zabor.Outcome{Verdict: zabor.Begun, Reference: "p"}, zabor.Pending, "acked", 0},
		{"held", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}, zabor.Held, "park", 1},
		{"unproven", zabor.Outcome{}, zabor.Doubt, "later", 0},
		{"turned away", zabor.Outcome{Verdict: zabor.TurnedAway, Reason: "429"}, zabor.Released, "later", 0},
		{"unsent", zabor.Outcome{Verdict: zabor.Unsent, Reason: "refused"}, zabor.Released, "later", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Backoff = []time.Duration{time.Hour}
			s.answer = func(context.Context, zabor.Row) zabor.Outcome { return tt.answer }
			id := s.charge("1")
			stop := s.run()
			s.eventually("the message is answered", func() bool { return slices.Contains(s.noted(), tt.event) })
			stop()
			row := s.row("1")
			if row.State != tt.state || s.count("failed_jobs") != tt.failed {
				t.Errorf("row %s, %d failed jobs; want %s, %d", row.State, s.count("failed_jobs"), tt.state, tt.failed)
			}
			if tt.failed == 1 && row.Parked != id {
				t.Errorf("the row names message %q as parked, want %q", row.Parked, id)
			}
			if later := tt.event == "later"; later != (s.depth() == worker.Depth{Delayed: 1}) {
				t.Errorf("the queue holds %+v", s.depth())
			}
		})
	}
}

// A message waits by the number of its row's captures; the last wait stays.
func TestDelays(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	backoff := []time.Duration{20 * ms, 30 * ms, 40 * ms}
	unsent := func(context.Context, zabor.Row) zabor.Outcome {
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "no connection"}
	}
	for before, want := range map[int]time.Duration{0: 20 * ms, 1: 30 * ms, 2: 40 * ms, 3: 40 * ms, 9: 40 * ms} {
		t.Run(fmt.Sprintf("%d captures before", before), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Backoff, s.answer = backoff, unsent
			data := map[string]any{"order": "1", "cents": json.Number("1999")}
			effect, err := s.Steps[0].Effect(t.Context(), step.Message{Class: "Charge", Data: data})
			if err != nil {
				t.Fatal(err)
			}
			for range before { // each by a worker of its own, which pauses by itself
				f := zabor.Fence{Store: s.store, Secret: s.Fence.Secret}
				if _, err := f.Do(t.Context(), effect, unsent); !errors.Is(err, zabor.ErrReleased) {
					t.Fatal(err)
				}
			}
			s.charge("1")
			stop := s.run()
			s.eventually("the message is put off", func() bool { return s.depth().Delayed == 1 })
			stop()
			if got := s.queue.delays[0]; got != want {
				t.Errorf("put off for %v, want %v", got, want)
			}
		})
	}
}

// While the provider turns everything away, no message is called for, and each
// waits for the pause to end.
func TestPausedProvider(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		if s.calls.Load() == 1 {
			return zabor.Outcome{Verdict: zabor.TurnedAway, Reason: "429"}
		}
		return settled(ctx, row)
	}
	for i := range 5 {
		s.charge(fmt.Sprint(i))
	}
	s.drained()
	if n := s.calls.Load(); n != 6 {
		t.Errorf("%d calls for 5 messages, of which one was turned away", n)
	}
	if long := slices.Max(s.queue.delays); long < 500*time.Millisecond || long > time.Second {
		t.Errorf("the longest wait was %v, want what is left of the pause of 1s", long)
	}
}

func TestBusyWaitsForTheLease(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Lanes = 2
	s.Backoff = []time.Duration{time.Hour}
	begun, end := make(chan struct{}), make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		close(begun)
		<-end
		return settled(ctx, row)
	}
	s.charge("1")
	s.run()
	<-begun
	s.charge("1")
	s.eventually("the second message is put off", func() bool { return s.depth().Delayed == 1 })
	close(end)
	lease := zabor.Lease(30 * time.Second)
	if d := s.queue.delays[0]; d > lease+10*time.Millisecond || d < lease-20*time.Second {
		t.Errorf("put off for %v, want what is left of the lease of %v", d, lease)
	}
}

// A message whose reserve has ended is not this worker's any more: its ack does
// nothing, and whoever has it now finds the row.
func TestLostMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Queues[0].Reserve = time.Hour // so that it does not renew in time
	end := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		<-end
		return settled(ctx, row)
	}
	s.charge("1")
	stop := s.run()
	s.eventually("the call has begun", func() bool { return s.calls.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again, err := worker.Next(ctx, s.queue.Source) // as another worker
	if err != nil {
		t.Fatal(err)
	}
	close(end)
	s.eventually("the worker is done", func() bool { return slices.Contains(s.noted(), "acked") })
	stop()
	if n := len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "ack" })); n != 1 {
		t.Errorf("%d acks, want one that is not tried again", n)
	}
	if d := s.depth(); d.Reserved != 1 {
		t.Errorf("the queue holds %+v, want the message with the other worker", d)
	}
	if err := s.queue.Source.PutBack(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	s.drained()
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// A message is renewed while its call lasts, so that no other worker gets it.
func TestReserveIsRenewed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	end := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		<-end
		return settled(ctx, row)
	}
	s.charge("1")
	stop := s.run()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.eventually("the call has begun", func() bool { return s.calls.Load() == 1 })
	go func() {
		s.eventually("it is renewed for three times its reserve", func() bool { return s.queue.renewed.Load() >= 9 })
		cancel()
	}()
	if m, err := worker.Next(ctx, s.queue.Source); !errors.Is(err, context.Canceled) {
		t.Errorf("another worker got %+v, %v", m, err)
	}
	close(end)
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	s.wantEvents("capturing", "sending", "answered", "saved", "ack", "acked")
}

// A worker that is told to stop while a message arrives puts it back at the head,
// as if it had never been delivered.
func TestStopPutsBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.charge("1")
	s.charge("2")
	before, err := s.redis.LRange(t.Context(), "queues:payments", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.queue.received = cancel
	s.Run(ctx)
	s.wantEvents("put back")
	after, err := s.redis.LRange(t.Context(), "queues:payments", 0, -1).Result()
	if err != nil || !slices.Equal(after, before) {
		t.Errorf("the list is %q, %v\nwant %q", after, err, before)
	}
}

// So does one that is told to stop before the capture.
func TestStopBeforeTheCapturePutsBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.charge("1")
	ctx, cancel := context.WithCancel(t.Context())
	s.Fence.At = func(m zabor.Checkpoint, k zabor.Key) { cancel(); s.passed(m, k) }
	s.Run(ctx)
	s.wantEvents("capturing", "put back")
	if d := s.depth(); d != (worker.Depth{Ready: 1}) || s.row("1").State != "" {
		t.Errorf("the queue holds %+v, row %+v", d, s.row("1"))
	}
}

// A stop while a call is under way waits for its answer, saves it and acks.
func TestStopFinishesTheCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		close(begun)
		<-end
		if err := ctx.Err(); err != nil {
			t.Errorf("the call's context: %v", err)
		}
		return settled(ctx, row)
	}
	s.charge("1")
	s.charge("2")
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { s.Run(ctx); close(stopped) }()
	<-begun
	stop()
	s.eventually("nothing new is received", func() bool {
		select {
		case <-stopped:
			t.Error("stopped before the answer")
			return true
		default:
			return s.depth() == worker.Depth{Ready: 1, Reserved: 1}
		}
	})
	close(end)
	<-stopped
	if d := s.depth(); d != (worker.Depth{Ready: 1}) || s.row("1").State != zabor.Settled || s.calls.Load() != 1 {
		t.Errorf("the queue holds %+v, row %s, %d calls", d, s.row("1").State, s.calls.Load())
	}
}

// With one lane, a queue that holds nothing does not keep it from one that does.
func TestIdleQueueDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.addQueue("idle")
	const messages = 50
	for i := range messages {
		s.charge(fmt.Sprint(i))
	}
	s.drained()
	if n := s.calls.Load(); n != messages {
		t.Errorf("%d calls, want %d", n, messages)
	}
}

// Queues that hold nothing, more of them than lanes, do not chase each other.
func TestIdleQueuesAreQuiet(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	queues := []*watched{s.queue, s.addQueue("second"), s.addQueue("third")}
	asked := func() (n int64) {
		for _, q := range queues {
			n += q.receives.Load()
		}
		return n
	}
	s.run()
	start := time.Now()
	s.eventually("a while is over", func() bool { return time.Since(start) > 2*time.Second })
	if n := asked(); n > 100 {
		t.Errorf("the queues were asked %d times in %v", n, time.Since(start))
	}
	s.push("third", "Charge", map[string]any{"order": "1", "cents": 1999})
	s.eventually("its message is taken", func() bool { return s.calls.Load() == 1 })
}

// Bytes that are no message are kept first and acked then (symfony/symfony#44117).
func TestUnreadableIsKeptThenAcked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec("ALTER TABLE zabor_unreadable RENAME TO elsewhere")
	s.pushRaw("payments", "no message")
	stop := s.run()
	s.eventually("keeping was tried twice", func() bool { return len(s.noted()) >= 2 })
	if d := s.depth(); d.Empty() {
		t.Error("the queue is empty and the bytes are not kept")
	}
	s.exec("ALTER TABLE elsewhere RENAME TO zabor_unreadable")
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	if events := s.noted(); slices.Index(events, "ack") != len(events)-1 {
		t.Errorf("events %q, want one ack, the last", events)
	}
	if n := s.count("zabor_unreadable"); n != 1 {
		t.Errorf("%d unreadable messages are kept, want 1", n)
	}
}

// A message may overtake the commit of the order that it speaks of. It waits with growing
// gaps, however short the list of backoffs. If its order never comes it is parked, by the
// message's own age: a worker that starts anew does not begin to wait again.
func TestMessageOvertakesItsOrder(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		age   time.Duration // 0: the payload does not say
		delay time.Duration // of its dispatch
		comes bool
	}{
		{"young, and the order comes", time.Second, 0, true},
		{"of an unknown age, and the order comes", 0, 0, true},
		{"old, and its delay has just ended", time.Hour, time.Hour, true},
		{"from a host with a fast clock", -time.Hour, 0, true},
		{"old", 5 * time.Minute, 0, false},
		{"old, and its delay ended long ago", time.Hour, 30 * time.Minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Backoff = []time.Duration{ms}
			s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Load: "SELECT cents FROM orders WHERE id = :order", Amount: "cents"})}
			says := ""
			if tt.age != 0 {
				says = fmt.Sprintf(`"createdAt":%d,"delay":%d,`, time.Now().Add(-tt.age).Unix(), int(tt.delay.Seconds()))
			}
			s.pushRaw("payments", `{"uuid":"u-1","displayName":"Charge","job":"Charge@handle",`+says+`"data":{"order":"1"},"attempts":0}`)
			stop := s.run()
			if tt.comes {
				s.eventually("the message is put off six times", func() bool { return s.putOff() >= 6 })
				s.exec("INSERT INTO orders VALUES ('1', 1999)")
			}
			s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
			stop()
			calls, failed, gaps := int64(1), 0, []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 16 * ms, 32 * ms}
			if !tt.comes {
				calls, failed, gaps = 0, 1, gaps[:2]
			}
			if s.calls.Load() != calls || s.count("failed_jobs") != failed {
				t.Errorf("%d calls, %d failed jobs; want %d, %d", s.calls.Load(), s.count("failed_jobs"), calls, failed)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := s.queue.delays; len(got) < len(gaps) || !tt.comes && len(got) > len(gaps) || !slices.Equal(got[:len(gaps)], gaps) {
				t.Errorf("put off for %v, want %v", got, gaps)
			}
		})
	}
}

// putOff is how often a message of the queue was put off.
func (s *shop) putOff() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue.delays)
}

// A settled order whose data are gone by now is acked by its row.
func TestRepeatWithoutItsOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Load: "SELECT cents FROM orders WHERE id = :order", Amount: "cents"})}
	s.exec("INSERT INTO orders VALUES ('1', 1999)")
	s.push("payments", "Charge", map[string]any{"order": "1"})
	s.drained()
	s.exec("DELETE FROM orders")
	s.push("payments", "Charge", map[string]any{"order": "1"})
	s.drained()
	if s.calls.Load() != 1 || s.count("failed_jobs") != 0 {
		t.Errorf("%d calls, %d failed jobs; want 1, 0", s.calls.Load(), s.count("failed_jobs"))
	}
}

// A message that was delivered before and has no row is not called, unless the
// queue's rows are never lost.
func TestDeliveredBeforeWithoutARow(t *testing.T) {
	t.Parallel()
	for missing, want := range map[zabor.State]struct {
		state zabor.State
		calls int64
	}{
		zabor.Doubt:    {zabor.Doubt, 0},
		zabor.Held:     {zabor.Held, 0},
		zabor.Captured: {zabor.Settled, 1},
	} {
		t.Run(string(missing), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Backoff = []time.Duration{time.Hour}
			s.Queues[0].MissingRow = missing
			s.charge("1")
			if _, err := worker.Next(t.Context(), s.queue.Source); err != nil { // by a worker that died
				t.Fatal(err)
			}
			stop := s.run()
			s.eventually("the message is answered", func() bool {
				d := s.depth()
				return d.Empty() || d.Delayed == 1
			})
			stop()
			if row := s.row("1"); row.State != want.state || s.calls.Load() != want.calls {
				t.Errorf("row %s, %d calls; want %s, %d", row.State, s.calls.Load(), want.state, want.calls)
			}
		})
	}
}
