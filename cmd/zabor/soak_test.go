package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/sandbox"
)

// Two workers, of which one is killed about every 300 ms while there are
// messages that nobody has seen, on a database that loses rows whose messages are not
// acked: in the end every order is charged once, and no message is lost or held.
// ZABOR_SOAK=1 makes it 2,000 orders instead of 120.
func TestSoak(t *testing.T) {
	t.Parallel()
	n := 120
	if os.Getenv("ZABOR_SOAK") == "1" {
		n = 2000
	}
	s := newShop(t, databases[1].open(t), options{lanes: 8, raced: true})
	ids := orders(n)
	var messages []message
	for i, id := range ids {
		messages = append(messages, newMessage(s.o.redis, [...]string{"laravel", "symfony-php", "laravel", "symfony-json"}[i*4/n], id))
	}
	put(t, messages...)
	var charges, lost atomic.Int64
	s.onCharge(func(c sandbox.Charge) {
		query, args := "DELETE FROM zabor_fences WHERE order_id = ?", []any{[]byte(c.Order)} // its call is under way
		switch charges.Add(1) % 20 {
		case 5, 10:
		case 15:
			query, args = "DELETE FROM zabor_fences WHERE state = 'doubt' LIMIT 1", nil // it waits for its verdict
		default:
			return
		}
		result, err := s.store.DB().Exec(query, args...)
		if err != nil {
			t.Error(err)
			return
		}
		n, _ := result.RowsAffected()
		lost.Add(n)
	})

	workers := [2]*process{s.worker(), s.worker()}
	kills, seen := 0, int64(0)
	for s.depth().ready > 0 {
		// Each life must get somewhere, however slowly its process starts.
		least := time.Now().Add(300 * time.Millisecond)
		eventually(t, "the workers get on", func() bool {
			return time.Now().After(least) && s.provider.Stats().Posts >= seen+10 || s.depth().ready == 0
		})
		seen = s.provider.Stats().Posts
		workers[kills%2].kill()
		workers[kills%2] = s.worker()
		kills++
	}
	eventuallyWithin(t, 5*limit, "the queues are drained", func() bool { return s.depth() == depth{} })
	eventually(t, "no row is captured or in doubt", func() bool {
		open, err := s.store.Reports().Unresolved(t.Context(), "test")
		return err == nil && open == 0
	})
	for _, w := range workers {
		w.signal(syscall.SIGTERM)
		w.exit(0)
	}
	s.allChargedOnce(ids)
	if kills == 0 || lost.Load() == 0 {
		t.Errorf("%d workers were killed, %d rows lost", kills, lost.Load())
	}
	again := 0
	for _, row := range s.rows() {
		if row.State == zabor.Held {
			t.Errorf("order %s is held: %s", row.Order, row.Reason)
		}
		if row.Tries > 1 || row.Cause == zabor.ByLookup || row.Cause == zabor.ByMissingRow {
			again++
		}
	}
	t.Logf("%d orders, %d charges, %d kills, %d rows lost, %d orders met more than one worker", n, s.provider.Stats().Charges, kills, lost.Load(), again)
}
