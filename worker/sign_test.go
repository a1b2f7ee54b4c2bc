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

// A row is lost in a fail-over while its message waits to be delivered again. After
// a call that may have acted the message is not called for a second time. If surely
// nothing was sent, it is called like a new one.
func TestLostRowOfAMessageThatWasPutBack(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"laravel", "symfony"} {
		for _, tt := range []struct {
			name   string
			answer zabor.Outcome
			later  zabor.State
			calls  int64
		}{
			{"unproven", zabor.Outcome{Reason: "timed out"}, zabor.Doubt, 1},
			{"unsent", zabor.Outcome{Verdict: zabor.Unsent, Reason: "refused"}, zabor.Settled, 2},
		} {
			t.Run(queue+", "+tt.name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				w := s.queue
				if queue == "symfony" {
					s.Queues = nil
					s.symfony()
					w = s.Queues[0].Source.(*watched)
					s.sendSymfony("1")
				} else {
					s.charge("1")
				}
				s.answer = func(context.Context, zabor.Row) zabor.Outcome { return tt.answer }
				stop := s.run()
				s.eventually("the message is put back", func() bool { return slices.Contains(s.noted(), "later") })
				stop()
				s.exec("DELETE FROM zabor_fences")
				s.answer = settled
				s.Backoff = []time.Duration{time.Hour}
				s.Fence = &zabor.Fence{Store: s.store, Secret: s.Fence.Secret, Observer: zabor.Observer{At: s.passed}} // another process
				s.mu.Lock()
				s.events = nil
				s.mu.Unlock()
				stop = s.run()
				s.eventually("the message is answered", func() bool {
					return slices.Contains(s.noted(), "later") || slices.Contains(s.noted(), "acked")
				})
				stop()
				if row := s.row("1"); row.State != tt.later || s.calls.Load() != tt.calls {
					t.Errorf("row %s, %d calls; want %s, %d", row.State, s.calls.Load(), tt.later, tt.calls)
				}
				d, err := w.Depth(t.Context())
				if want := (worker.Depth{Delayed: 1}); err != nil || tt.later == zabor.Doubt && d != want && d != (worker.Depth{Reserved: 1}) {
					t.Errorf("the queue holds %+v, %v", d, err)
				}
			})
		}
	}
}

// What is parked after a call that may have acted was delivered before, also after
// `php artisan queue:retry` has set its attempts to 0.
func TestSignOfAParkedMessage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec step.Spec
		want bool
	}{
		"held by its call": {step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents"}, true},
		"refused":          {step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "missing"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Steps = []*step.Step{s.step(tt.spec)}
			s.answer = func(context.Context, zabor.Row) zabor.Outcome {
				return zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"}
			}
			s.charge("1")
			s.drained()
			var payload string
			if err := s.store.DB().QueryRow("SELECT payload FROM failed_jobs").Scan(&payload); err != nil {
				t.Fatal(err)
			}
			s.pushRaw("payments", payload)
			if m := s.received(); m.DeliveredBefore != tt.want {
				t.Errorf("DeliveredBefore=%v, want %v: %s", m.DeliveredBefore, tt.want, fmt.Sprintf("%q", payload))
			}
		})
	}
}
