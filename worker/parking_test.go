package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/worker"
)

// stuck is a queue whose failure transport answers nothing before its caller gives
// up, or before free is closed.
type stuck struct {
	worker.Source
	free chan struct{}
}

func (q *stuck) Park(ctx context.Context, m *worker.Message, reason string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-q.free:
		return q.Source.Park(ctx, m, reason)
	}
}

// hang lets parking on the queue of s hang until the returned function is called.
func (s *shop) hang() (free func()) {
	q := &stuck{s.queue, make(chan struct{})}
	s.Queues[0].Source = q
	return func() { close(q.free) }
}

// A failure transport that is away, or hangs, delays no charge.
func TestParkingDelaysNoCharge(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"away", "hangs"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Lanes = 8
			s.Backoff = []time.Duration{time.Hour}
			free := func() {}
			if how == "away" {
				s.exec("ALTER TABLE failed_jobs RENAME TO elsewhere")
			} else {
				free = s.hang()
			}
			defer free()
			for range 40 {
				s.push("payments", "Mail", nil)
			}
			for i := range 10 {
				s.charge(fmt.Sprint(i))
			}
			begun := time.Now()
			stop := s.run()
			s.eventually("all orders are charged", func() bool { return s.calls.Load() == 10 })
			if d := time.Since(begun); d > worker.AnswerTimeout/2 {
				t.Errorf("the orders were charged after %v", d)
			}
			if how == "away" {
				s.eventually("the others wait on the queue", func() bool { return s.depth() == worker.Depth{Delayed: 40} })
			}
			stop()
			if n := s.depth(); n.Ready+n.Reserved+n.Delayed != 40 {
				t.Errorf("the queue holds %+v, want all that was not parked", n)
			}
		})
	}
}

// What waits to be parked is bounded, keeps its reserve, and is parked when the
// failure transport is there again: all of it, once.
func TestParkingIsBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := s.alerts()
	s.Lanes = 2
	s.Backoff = []time.Duration{100 * time.Millisecond}
	free := s.hang()
	const messages = 100
	for i := range messages {
		s.push("payments", "Mail", map[string]any{"n": i, "text": strings.Repeat("x", 1<<20)})
	}
	stop := s.run()
	s.eventually("no more than the bound is in hand", func() bool { return s.depth().Reserved <= 4+16+2 && s.queue.renewed.Load() >= 16 })
	free()
	s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
	stop()
	if n := s.count("failed_jobs"); n != messages {
		t.Errorf("%d failed jobs, want %d", n, messages)
	}
	if n := len(a.codes()); n != messages {
		t.Errorf("%d alerts, want %d", n, messages)
	}
}

// A worker that stops leaves nothing in hand.
func TestStopWhileParkingHangs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Lanes = 20
	s.Backoff = []time.Duration{time.Hour}
	free := s.hang()
	for i := range 20 {
		s.charge(fmt.Sprint(i))
	}
	s.answer = func(context.Context, zabor.Row) zabor.Outcome {
		return zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}
	}
	stop := s.run()
	s.eventually("some rows are held", func() bool { return s.count("zabor_fences WHERE state = 'held'") > 0 })
	free()
	stop()
	if d := s.depth(); d.Reserved != 0 {
		t.Errorf("the queue holds %+v, want nothing in hand", d)
	}
	if n := s.count("failed_jobs") + int(s.depth().Ready+s.depth().Delayed); n != 20 {
		t.Errorf("%d messages, want 20", n)
	}
}
