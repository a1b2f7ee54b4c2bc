package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/laravel"
	"zabor/step"
)

// What a payload says of tries, backoff and an end is for PHP's workers: here the
// row counts, so that no number in a message, nor one that a redelivery raises,
// allows a call more or fails an order that may have been charged. Each message
// waits by the worker's own backoff, is parked with the producer's bytes when the
// row's attempts are spent, and comes back for exactly one call.
func TestThePayloadsOwnTriesDoNotCount(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, says := range map[string]string{
		"a list of backoffs":              `"backoff":"10,60,300","maxTries":null`,
		"one backoff":                     `"backoff":"10","maxTries":null`,
		"no backoff":                      `"backoff":null,"maxTries":null`,
		"the delay of its dispatch":       `"backoff":null,"delay":120,"maxTries":null`,
		"one try":                         `"maxTries":1,"maxExceptions":1,"failOnTimeout":true`,
		"tries without end":               `"maxTries":0`,
		"an end that is past":             `"maxTries":null,"retryUntil":1700000000`,
		"an end that is past, many tries": `"maxTries":25,"retryUntil":1700000000`,
		"an end that is far, one try":     `"maxTries":1,"retryUntil":32503680000`,
		"an old end":                      `"maxTries":3,"timeoutAt":1700000000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Steps = []*step.Step{s.step(step.Spec{Name: "charge", Classes: []string{"Charge"}, Amount: "cents", Attempts: 4})}
			s.Backoff = []time.Duration{10 * ms, 20 * ms, 30 * ms}
			s.answer = func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{Reason: "502"} }
			payload := `{"uuid":"u-1","displayName":"Charge","job":"Charge@handle",` + says + `,"data":{"order":"1","cents":1999},"id":"i-1","attempts":0}`
			s.pushRaw("payments", payload)
			stop := s.run()
			absent := func(calls int64) { // as a resolver whose look-up finds nothing
				t.Helper()
				s.eventually("it is called", func() bool { return s.calls.Load() == calls && s.row("1").State == zabor.Doubt })
				s.exec("UPDATE zabor_fences SET state = 'released', cause = 'absence' WHERE state = 'doubt'")
			}
			for calls := range int64(4) {
				absent(calls + 1)
			}
			s.eventually("it is parked", func() bool { return s.row("1").Parked == "u-1" && s.depth().Empty() })
			stop()
			s.mu.Lock()
			waits := slices.Compact(s.queue.delays)
			s.mu.Unlock()
			if want := []time.Duration{10 * ms, 20 * ms, 30 * ms}; !slices.Equal(waits, want) { // the fourth call waits as the third
				t.Errorf("it waited %v, want %v", waits, want)
			}
			var kept string
			if err := s.store.DB().QueryRow("SELECT payload FROM failed_jobs").Scan(&kept); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(kept, says) {
				t.Errorf("failed_jobs has %s, want %s as it came", kept, says)
			}
			s.answer = settled
			if err := s.queue.Source.(*laravel.Source).Retry(t.Context(), "u-1"); err != nil {
				t.Fatal(err)
			}
			s.drained()
			s.wantCalls(5)
			if row := s.row("1"); row.State != zabor.Settled || s.count("failed_jobs") != 0 {
				t.Errorf("row %s, %d failed jobs", row.State, s.count("failed_jobs"))
			}
		})
	}
}

// A job that PHP's workers have tried more often than its payload allows, and
// whose end is past, is acked for its row: PHP would fail it, and a person would
// retry what is paid.
func TestSpentTriesDoNotFailWhatIsPaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.settle("1")
	s.pushRaw("payments", `{"uuid":"u-1","displayName":"Charge","job":"Charge@handle","maxTries":1,"retryUntil":1700000000,"data":{"order":"1","cents":1999},"attempts":7}`)
	s.drained()
	s.wantCalls(1) // that of the settlement
	if row := s.row("1"); row.State != zabor.Settled || s.count("failed_jobs") != 0 {
		t.Errorf("row %s, %d failed jobs", row.State, s.count("failed_jobs"))
	}
}
