package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/laravel"
	"zabor/worker"
)

// An outage in which surely nothing is done spends no attempts, parks nothing and is
// one alert; when it is over every order is charged.
func TestOutageSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	const orders = 30
	for _, verdict := range []zabor.Verdict{zabor.Unsent, zabor.TurnedAway} {
		t.Run(verdict.String(), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Lanes = 4
			a := s.alerts()
			var up atomic.Bool
			s.answer = func(ctx context.Context, row zabor.Row) zabor.Outcome {
				if up.Load() {
					return settled(ctx, row)
				}
				return zabor.Outcome{Verdict: verdict, Reason: "not now"}
			}
			for i := range orders {
				s.charge(fmt.Sprint(i))
			}
			stop := s.run()
			s.eventually("every message was put off", func() bool {
				return len(slices.DeleteFunc(s.noted(), func(e string) bool { return e != "later" })) >= orders
			})
			if n := s.calls.Load(); n > orders/2 {
				t.Errorf("%d calls for %d orders in the outage", n, orders)
			}
			up.Store(true)
			s.eventually("the queue is empty", func() bool { return s.depth().Empty() })
			stop()
			for i := range orders {
				if row := s.row(fmt.Sprint(i)); row.State != zabor.Settled || row.Tries != 1 {
					t.Errorf("order %d: row %s, %d attempts; want settled by the first", i, row.State, row.Tries)
				}
			}
			if codes := a.codes(); !slices.Equal(codes, []string{"provider-paused"}) || s.count("failed_jobs") != 0 {
				t.Errorf("alerts %q, %d failed jobs; want one alert and none", codes, s.count("failed_jobs"))
			}
		})
	}
}

// Nor are the attempts of every order spent where the provider answers all calls
// with what proves nothing, such as a 502.
func TestOutageOfA502(t *testing.T) {
	t.Parallel()
	const orders = 30
	s := newShop(t)
	a := s.alerts()
	s.Backoff = []time.Duration{time.Hour}
	s.answer = func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{Reason: "502"} }
	for i := range orders {
		s.charge(fmt.Sprint(i))
	}
	stop := s.run()
	s.eventually("every message was put off", func() bool { return s.depth() == worker.Depth{Delayed: orders} })
	stop()
	if n := s.count("zabor_fences"); n > 8 || int64(n) != s.calls.Load() {
		t.Errorf("%d calls and %d rows for %d orders, want no more than show that nothing is proven", s.calls.Load(), n, orders)
	}
	if codes := a.codes(); !slices.Equal(codes, []string{"provider-paused"}) {
		t.Errorf("alerts %q", codes)
	}
}

// Attempts that are spent park the message; each retry is exactly one call more.
func TestRetryOfSpentAttempts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := s.alerts()
	s.answer = func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{Reason: "502"} }
	absent := func() { // as a resolver whose look-up finds nothing
		s.exec("UPDATE zabor_fences SET state = 'released', cause = 'absence' WHERE state = 'doubt'")
	}
	id := s.charge("1")
	stop := s.run()
	for calls := range int64(2) { // the step's attempts
		s.eventually("it is called", func() bool { return s.calls.Load() == calls+1 && s.row("1").State == zabor.Doubt })
		absent()
	}
	s.eventually("it is parked", func() bool { return s.row("1").Parked == id && s.depth().Empty() })
	retry := func() {
		t.Helper()
		if err := s.queue.Source.(*laravel.Source).Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	retry()
	s.eventually("it is called once more", func() bool { return s.calls.Load() == 3 && s.row("1").State == zabor.Doubt })
	absent()
	s.eventually("it is parked again", func() bool { return s.count("failed_jobs") == 1 && s.depth().Empty() && s.row("1").Parked == id })
	stop()
	s.answer = settled
	retry()
	s.drained()
	s.wantCalls(4)
	if row := s.row("1"); row.State != zabor.Settled || s.count("failed_jobs") != 0 {
		t.Errorf("row %s, %d failed jobs", row.State, s.count("failed_jobs"))
	}
	if codes := a.codes(); !slices.Equal(codes, []string{"parked", "parked"}) {
		t.Errorf("alerts %q", codes)
	}
}
