package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/worker"
)

// gate holds the answers to the queue back until it is opened. It lets pass all
// that a Receive or a Wait sends.
type gate struct {
	open chan struct{}
	once sync.Once
	held atomic.Int64 // round trips that it holds or held
	most atomic.Int64 // most acks of one
}

func (s *shop) gate() *gate {
	g := &gate{open: make(chan struct{})}
	s.redis.AddHook(g)
	return g
}

// free opens the gate. It may be called again.
func (g *gate) free() { g.once.Do(func() { close(g.open) }) }

func (g *gate) pass(ctx context.Context) {
	acks := int64(len(worker.AcksOf(ctx)))
	if acks == 0 {
		return
	}
	g.held.Add(1)
	for m := g.most.Load(); acks > m && !g.most.CompareAndSwap(m, acks); m = g.most.Load() {
	}
	<-g.open
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass(ctx)
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.pass(ctx)
		return next(ctx, cmds)
	}
}

// together is a provider that answers when n calls are under way.
func together(n int, then func(context.Context, zabor.Row) zabor.Outcome) func(context.Context, zabor.Row) zabor.Outcome {
	var begun atomic.Int64
	all := make(chan struct{})
	return func(ctx context.Context, row zabor.Row) zabor.Outcome {
		if begun.Add(1) == int64(n) {
			close(all)
		}
		<-all
		return then(ctx, row)
	}
}

// A stop waits for acks that are under way and for those that gather behind them.
func TestStopFlushesAcks(t *testing.T) {
	t.Parallel()
	const n = 12
	s := newShop(t)
	s.Lanes = n
	s.answer = together(n, settled)
	g := s.gate()
	for i := range n {
		s.charge(fmt.Sprint(i))
	}
	stop := s.run()
	t.Cleanup(g.free)
	s.eventually("all acks are on their way", func() bool {
		return len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "ack" })) == n && g.held.Load() > 0
	})
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	if d := s.depthOf(t, n); d.Reserved != n {
		t.Errorf("the queue holds %+v before the acks", d)
	}
	g.free()
	<-stopped
	if d := s.depth(); !d.Empty() || s.count("failed_jobs") != 0 {
		t.Errorf("after the stop the queue holds %+v", d)
	}
	if most := g.most.Load(); most < 2 {
		t.Errorf("at most %d acks in a round trip, want several", most)
	}
}

// depthOf counts the queue once it has n messages in all.
func (s *shop) depthOf(t *testing.T, n int64) (d worker.Depth) {
	t.Helper()
	s.eventually("the queue is counted", func() bool {
		d = s.depth()
		return d.Ready+d.Reserved+d.Delayed == n
	})
	return d
}

// Of the answers of one pipeline the ack of a message that is lost acks nothing, a
// message in doubt is put back, and the others are acked.
func TestOneOfManyAcks(t *testing.T) {
	t.Parallel()
	const n = 8
	s := newShop(t)
	s.Lanes, s.Backoff = n, []time.Duration{time.Hour}
	s.Queues[0].Reserve = time.Hour // so that it does not renew in time
	s.answer = together(n, func(ctx context.Context, row zabor.Row) zabor.Outcome {
		if row.Order == "3" {
			return zabor.Outcome{Reason: "timed out"}
		}
		return settled(ctx, row)
	})
	g := s.gate()
	for i := range n {
		s.charge(fmt.Sprint(i))
	}
	stop := s.run()
	t.Cleanup(g.free)
	s.eventually("all but one are to be acked, and one is put back", func() bool {
		events := s.noted()
		return len(slices.DeleteFunc(slices.Clone(events), func(e string) bool { return e != "ack" })) == n-1 && slices.Contains(events, "later")
	})
	s.toAnother(t, "5")
	g.free()
	s.eventually("all are answered", func() bool {
		return len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "acked" })) == n-1
	})
	stop()
	var left []string
	for m, err := range s.queue.Look(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, fmt.Sprintf("%v %s", m.Data["order"], m.Place))
	}
	slices.Sort(left)
	if want := []string{"3 delayed", "5 reserved"}; !slices.Equal(left, want) {
		t.Errorf("the queue holds %v, want %v", left, want)
	}
}

// toAnother makes order's reserved job that of another worker, as if its reserve had
// ended.
func (s *shop) toAnother(t *testing.T, order string) {
	t.Helper()
	const key = "queues:payments:reserved"
	members, err := s.redis.ZRangeWithScores(t.Context(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range members {
		was := z.Member.(string)
		if !strings.Contains(was, `"order":"`+order+`"`) {
			continue
		}
		z.Member = strings.Replace(was, `"attempts":1`, `"attempts":2`, 1)
		if err := errors.Join(s.redis.ZRem(t.Context(), key, was).Err(), s.redis.ZAdd(t.Context(), key, z).Err()); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("order %s is not reserved: %v", order, members)
}

// A message in hand costs no goroutine beside that of its lane.
func TestGoroutines(t *testing.T) {
	const lanes = 200
	s := newShop(t)
	s.Lanes = lanes
	end := make(chan struct{})
	s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
		<-end
		return settled(ctx, row)
	}
	s.run()
	s.eventually("the lanes are there", func() bool { return runtime.NumGoroutine() >= lanes })
	idle := runtime.NumGoroutine()
	for i := range lanes {
		s.charge(fmt.Sprint(i))
	}
	s.eventually("all calls have begun", func() bool { return s.calls.Load() == lanes })
	if n := runtime.NumGoroutine(); n > idle+30 {
		t.Errorf("%d goroutines for %d calls, %d before them", n, lanes, idle)
	}
	close(end)
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
}

// cutter loses replies that have payloads in them, which are those to a reserve:
// Redis has run it.
type cutter struct {
	net.Conn
	left *atomic.Int64 // how many it loses still
}

func (c cutter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && bytes.Contains(b[:n], []byte(`Charge@handle`)) && c.left.Add(-1) >= 0 {
		c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// A reply to a reserve that is lost makes no message doubtful: all are charged, and
// at once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Lanes = 5
	var left atomic.Int64
	left.Store(3)
	o := s.redis.Options()
	cutting := redis.NewClient(&redis.Options{Addr: o.Addr, DB: o.DB, MaxRetries: -1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		return cutter{c, &left}, err
	}})
	t.Cleanup(func() { cutting.Close() })
	plain := s.redis
	s.redis, s.Queues = cutting, nil
	s.queue = s.addQueue("payments")
	s.redis = plain
	const n = 20
	for i := range n {
		s.charge(fmt.Sprint(i))
	}
	s.drained()
	if left.Load() >= 0 {
		t.Fatal("no reply was cut")
	}
	if s.calls.Load() != n || slices.Contains(s.noted(), "later") || slices.Contains(s.noted(), "park") {
		t.Errorf("%d calls for %d messages, events %v", s.calls.Load(), n, s.noted())
	}
	for i := range n {
		if row := s.row(fmt.Sprint(i)); row.State != zabor.Settled {
			t.Errorf("order %d is %s", i, row.State)
		}
	}
}
