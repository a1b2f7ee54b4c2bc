package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"zabor"
	"zabor/step"
	"zabor/worker"
)

// newThenShop is a shop whose messages go on to the queue done.
func newThenShop(t testing.TB) *shop {
	s := newShop(t)
	s.Backoff = []time.Duration{50 * time.Millisecond}
	s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents", Then: "done"})}
	return s
}

// wantDone checks what has gone on.
func (s *shop) wantDone(want ...string) {
	s.t.Helper()
	if got := s.listed("done"); !slices.Equal(got, want) {
		s.t.Errorf("queue done holds\n%q, want\n%q", got, want)
	}
}

// A message goes on, as it was, with the ack: after a yes, after a no, and where
// there is no verdict yet; not where a person must look.
func TestThen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer zabor.Outcome
		event  string
		goesOn bool
	}{
		{"settled", zabor.Outcome{Verdict: zabor.Done, Reference: "p"}, "acked", true},
		{"declined", zabor.Outcome{Verdict: zabor.Refused, Reason: "no funds"}, "acked", true},
		{"pending", zabor.Outcome{Verdict: zabor.Begun, Reference: "p"}, "acked", true},
		{"malformed", zabor.Outcome{Verdict: zabor.Malformed, Reason: "no such field"}, "park", false},
		{"held", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}, "park", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newThenShop(t)
			s.answer = func(context.Context, zabor.Row) zabor.Outcome { return tt.answer }
			s.charge("1")
			want := s.listed("payments")
			s.drained()
			if events := s.noted(); len(events) == 0 || events[len(events)-1] != tt.event {
				t.Errorf("events %q, want %q at the end", events, tt.event)
			}
			if !tt.goesOn {
				want = nil
			}
			s.wantDone(want...)
			if row := s.row("1"); row.Forwarded != tt.goesOn {
				t.Errorf("the row says that it has gone on: %v, want %v", row.Forwarded, tt.goesOn)
			}
		})
	}
}

// A second message for the key does not follow the first, nor does the first one
// itself where its ack was lost; a new attempt that a person wanted goes on again.
func TestThenOncePerVerdict(t *testing.T) {
	t.Parallel()
	s := newThenShop(t)
	s.answer = func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{Verdict: zabor.Refused} }
	s.charge("1")
	want := s.listed("payments")
	s.charge("1")
	s.drained()
	s.wantDone(want...)
	row := s.row("1")
	release := zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release, By: "ops", Reason: "another card"}
	if _, err := s.Fence.Decide(t.Context(), release); err != nil {
		t.Fatal(err)
	}
	s.answer = settled
	s.charge("1")
	want = append(want, s.listed("payments")...)
	s.drained()
	s.charge("1")
	s.drained()
	s.wantDone(want...)
	if n := s.calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// Whoever dies between the save and the ack leaves the message on its queue: the
// next delivery goes on, without a call.
func TestThenAfterALostAck(t *testing.T) {
	t.Parallel()
	s := newThenShop(t)
	s.charge("1")
	want := s.listed("payments")
	s.queue.acks = func() error { return worker.ErrLost } // as if this worker had died
	stop := s.run()
	s.eventually("the row is settled", func() bool { return slices.Contains(s.noted(), "acked") })
	stop()
	s.wantDone()
	s.queue.acks = nil
	s.drained()
	s.wantDone(want...)
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// A chain goes with its message, and only where the payment has settled.
func TestThenTakesTheChainAlong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer zabor.Outcome
		event  string
		goesOn bool
	}{
		{"settled", zabor.Outcome{Verdict: zabor.Done, Reference: "p"}, "acked", true},
		{"declined", zabor.Outcome{Verdict: zabor.Refused, Reason: "no funds"}, "acked", false},
		{"pending", zabor.Outcome{Verdict: zabor.Begun, Reference: "p"}, "later", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newThenShop(t)
			s.answer = func(context.Context, zabor.Row) zabor.Outcome { return tt.answer }
			s.chained("1")
			s.chained("1")
			first := s.listed("payments")[:1]
			stop := s.run()
			s.eventually("the message is answered", func() bool { return slices.Contains(s.noted(), tt.event) })
			if tt.event == "later" {
				s.wantDone()
				s.exec("UPDATE zabor_fences SET state = 'settled' WHERE order_id = CAST('1' AS BLOB)")
				tt.goesOn = true
			}
			s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
			stop()
			if got := s.listed("done"); len(got) > 1 || tt.goesOn != (len(got) == 1) {
				t.Errorf("queue done holds %q, want %v like %q", got, tt.goesOn, first)
			}
			if got := s.listed("shipping"); len(got) != 0 {
				t.Errorf("queue shipping holds %q: the chain has gone on twice", got)
			}
			if n := s.calls.Load(); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
		})
	}
}

// A job that workers had begun before goes on as one that nobody has begun: PHP
// would else take it for one whose tries are spent.
func TestThenStartsAnew(t *testing.T) {
	t.Parallel()
	s := newThenShop(t)
	payload := `{"uuid":"u-1","displayName":"Charge","job":"Charge@handle","data":{"order":"1","cents":1999},"attempts":%d,"x":[]}`
	s.Queues[0].MissingRow = zabor.Captured
	s.pushRaw("payments", fmt.Sprintf(payload, 7))
	s.drained()
	s.wantDone(fmt.Sprintf(payload, 0))
}
