package main

import (
	"fmt"
	"testing"
	"time"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// moment is where a worker is killed, and what is left behind there.
type moment struct {
	name    string
	stopAt  string // empty: when the provider has charged, before it answers
	state   zabor.State
	charges int
	queued  bool // the message is still on the queue
}

// moments are where a worker is killed, in the order of a call.
var moments = []moment{
	{"before the capture", "capturing", "", 0, true},
	{"before the send", "sending", zabor.Captured, 0, true},
	{"before the answer", "", zabor.Captured, 1, true},
	{"before the save", "answered", zabor.Captured, 1, true},
	{"before the ack", "saved", zabor.Settled, 1, true},
	{"in the ack", "acking", zabor.Settled, 1, false},
}

const (
	control = "C-1" // settled before, so that a look-up which finds nothing is worth something
	target  = "T-1" // in whose call the worker is killed
)

// killed puts the worker of a cell to death at the moment and checks what it has
// left behind.
func (s *shop) killed(queue string, m moment) {
	s.t.Helper()
	args := []string{"--queue", queue}
	if m.stopAt != "" {
		args = append(args, "--stop-at", m.stopAt+":"+target)
	}
	started := make(chan *process, 1)
	s.onCharge(func(c sandbox.Charge) {
		if c.Order == target && m.stopAt == "" {
			w := <-started
			w.kill()
			started <- w
		}
	})
	w := s.worker(args...)
	started <- w
	if m.stopAt != "" {
		w.stopped()
		w.kill()
	}
	w.exit(-1)
	s.onCharge(nil)

	if got := s.state(target); got != m.state {
		s.t.Fatalf("killed %s: the row is %q, want %q", m.name, got, m.state)
	}
	if got := len(s.provider.Charges(target)); got != m.charges {
		s.t.Fatalf("killed %s: %d charges, want %d", m.name, got, m.charges)
	}
	if got := s.depth() != (depth{}); got != m.queued {
		s.t.Fatalf("killed %s: the queue holds %+v", m.name, s.depth())
	}
}

// A worker that is killed anywhere, right after it has taken the message too
// (RichardKnop/machinery#586), leaves an order that is charged exactly once in the end. The provider here takes no notice of idempotency keys.
func TestKilledWorkerChargesOnce(t *testing.T) {
	t.Parallel()
	eachCell(t, options{}, moments, func(t *testing.T, s *shop, queue string, m moment) {
		s.killed(queue, m)
		s.worker("--queue", queue, "--drain").exit(0)
		s.chargedOnce(control)
		s.chargedOnce(target)
		if n := len(s.rows()); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
		s.empty()
	})
}

// Without a look-up, but with a provider that keeps idempotency keys, the same
// request under the same key finds out, or does it once. That needs a row: of a
// worker that was killed before its capture nobody knows when it had called, and
// whether the key is still known.
func TestKilledWorkerIsSettledByAReplay(t *testing.T) {
	t.Parallel()
	eachCell(t, options{noLookup: true, replays: true}, moments[1:3], func(t *testing.T, s *shop, queue string, m moment) {
		s.killed(queue, m)
		w := s.worker("--queue", queue, "--drain")
		w.exit(exit.Good)
		s.chargedOnce(control)
		s.chargedOnce(target)
		// Capture, doubt, replay, settled: nothing was captured again.
		if row := s.row(target); row.State != zabor.Settled || row.Cause != zabor.ByCall || row.Tries != 1 || row.Claim.Epoch != 4 {
			t.Errorf("the row is %s by %s after %d captures and %d writes, want it settled by a replay", row.State, row.Cause, row.Tries, row.Claim.Epoch)
		}
		s.empty()
	})
}

// Without a look-up nothing can prove that a killed worker has not sent: the
// order is held for a person, and its message is in the failure transport.
func TestKilledWorkerWithoutLookupIsHeld(t *testing.T) {
	t.Parallel()
	held := func(t *testing.T, s *shop, queue string, m moment) {
		s.killed(queue, m)
		w := s.worker("--queue", queue, "--drain")
		w.exit(exit.BadAnswer)
		w.logged("test:" + target + "/charge is held: ")
		s.chargedOnce(control)
		row := s.row(target)
		if row.State != zabor.Held || row.Cause != zabor.ByExpiry || row.Parked == "" {
			t.Errorf("row %+v, want it held for want of a look-up, with the message that was parked", row)
		}
		if got, want := len(s.provider.Charges(target)), m.charges; got != want {
			t.Errorf("%d charges, want %d", got, want)
		}
		laravel, symfony := s.failed()
		if inLaravel := queue == "payments"; laravel+symfony != 1 || (laravel == 1) != inLaravel {
			t.Errorf("%d messages in failed_jobs, %d in messenger_messages, want one where it belongs", laravel, symfony)
		}
		s.empty()
	}
	eachCell(t, options{noLookup: true, hold: time.Second}, moments[1:3], held)
	eachCell(t, options{noLookup: true, replays: true, hold: time.Second}, moments[:1], held)
}

// eachCell runs test for each framework, each database and each of the moments,
// all at the same time, with the two orders on the queue.
func eachCell(t *testing.T, o options, moments []moment, test func(t *testing.T, s *shop, queue string, m moment)) {
	var cells []func()
	var messages []message
	for _, f := range frameworks {
		for _, d := range databases {
			for _, m := range moments {
				o := o
				o.redis = servers.Redis(t)
				messages = append(messages, newMessage(o.redis, f.name, control), newMessage(o.redis, f.name, target))
				cells = append(cells, func() {
					t.Run(fmt.Sprintf("%s/%s/%s", f.name, d.name, m.name), func(t *testing.T) {
						t.Parallel()
						test(t, newShop(t, d.open(t), o), f.queue, m)
					})
				})
			}
		}
	}
	put(t, messages...)
	for _, run := range cells {
		run()
	}
}
