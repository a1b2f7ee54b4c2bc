package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"zabor"
)

// chained puts a job on the queue that wants order charged, and Ship behind it on
// the queue shipping.
func (s *shop) chained(order string) {
	s.t.Helper()
	text := func(v string) string { return "s:" + strconv.Itoa(len(v)) + `:"` + v + `";` }
	command := `O:6:"Charge":4:{` + text("order") + text(order) + text("cents") + "i:1999;" +
		text("chainQueue") + text("shipping") + text("chained") + "a:1:{i:0;" + text(`O:4:"Ship":0:{}`) + "}}"
	payload, err := json.Marshal(map[string]any{
		"uuid": uuid.NewString(), "displayName": "Charge", "job": `Illuminate\Queue\CallQueuedHandler@call`,
		"data": map[string]any{"commandName": "Charge", "command": command}, "attempts": 0,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.pushRaw("payments", string(payload))
}

// The next job of a chain is dispatched once its payment has settled: not after a
// no, and while there is no verdict the message waits for it.
func TestChain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer zabor.Outcome
		event  string
		ships  int64
	}{
		{"settled", zabor.Outcome{Verdict: zabor.Done, Reference: "p"}, "acked", 1},
		{"declined", zabor.Outcome{Verdict: zabor.Refused, Reason: "no funds"}, "acked", 0},
		{"pending", zabor.Outcome{Verdict: zabor.Begun, Reference: "p"}, "later", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.Backoff = []time.Duration{50 * time.Millisecond}
			s.answer = func(context.Context, zabor.Row) zabor.Outcome { return tt.answer }
			s.chained("1")
			stop := s.run()
			s.eventually("the message is answered", func() bool { return slices.Contains(s.noted(), tt.event) })
			if n := s.redis.LLen(t.Context(), "queues:shipping").Val(); n != tt.ships {
				t.Errorf("%d jobs in shipping, want %d", n, tt.ships)
			}
			if tt.event == "later" {
				s.exec("UPDATE zabor_fences SET state = 'settled' WHERE order_id = CAST('1' AS BLOB)")
				s.eventually("the chain has gone on", func() bool { return s.redis.LLen(t.Context(), "queues:shipping").Val() == 1 })
			}
			stop()
			if n := s.calls.Load(); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
			if d := s.depth(); !d.Empty() {
				t.Errorf("the queue holds %+v", d)
			}
		})
	}
}
