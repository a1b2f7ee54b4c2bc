package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"zabor"
)

// Two workers, of which one is killed about every 300 ms while there are
// messages that nobody has seen: in the end every order is charged once, and no
// message is lost or held. ZABOR_SOAK=1 makes it 2,000 orders instead of 120.
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
	if kills == 0 {
		t.Error("no worker was killed")
	}
	again := 0
	for _, row := range s.rows() {
		if row.Tries > 1 || row.Cause == zabor.ByLookup || row.Cause == zabor.ByMissingRow {
			again++
		}
	}
	t.Logf("%d kills, %d of %d orders met more than one worker", kills, again, n)
}
