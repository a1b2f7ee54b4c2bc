package main

import (
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// A worker is killed at every point of a call of two requests, and two others, of
// which one is killed again and again, find out what came of it: one charge, by
// the intent that was made first where its id was saved.
func TestTwoRequestsAndTwoResolvers(t *testing.T) {
	t.Parallel()
	between := moment{"between the first request and its id", "", zabor.Captured, 0, true}
	all := []moment{between, moments[1], moments[2]} // the others are in TestHooksAndTwoRequests
	var redis []servers.RedisDB
	var messages []message
	for i := range all {
		redis = append(redis, servers.Redis(t))
		messages = append(messages, newMessage(redis[i], "laravel", control), newMessage(redis[i], "laravel", target))
	}
	put(t, messages...)
	for i, m := range all {
		t.Run("killed "+m.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[1+i%2].open(t), options{redis: redis[i], reserve: 7 * time.Second})
			s.withHooks(true, control, target)
			if m == between {
				if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.ActHang, Order: target}); err != nil {
					t.Fatal(err)
				}
				w := s.worker("--queue", "payments")
				eventually(t, "the intent is made", func() bool { return s.provider.Stats().Posts == 3 })
				w.kill()
				w.exit(-1)
				s.provider.Release()
			} else {
				s.killed("payments", m)
			}
			workers := [2]*process{s.worker(), s.worker()}
			for kills := 0; s.state(target) != zabor.Settled; kills++ {
				if kills == 100 {
					t.Fatalf("after %d kills the row is %s: %s", kills, s.state(target), s.row(target).Reason)
				}
				// One is left long enough to have watched the row for its lease.
				least := time.Now().Add(time.Second)
				eventually(t, "a moment passes", func() bool { return time.Now().After(least) || s.state(target) == zabor.Settled })
				if kills < 3 {
					workers[1].kill()
					workers[1].exit(-1)
					workers[1] = s.worker()
				}
			}
			eventually(t, "the queue is empty", func() bool { return s.depth() == depth{} })
			workers[0].signal(syscall.SIGTERM)
			workers[0].exit(0)
			workers[1].kill()
			s.paidOnce(control)
			s.paidOnce(target)
			if row := s.row(target); row.Prepared == "" || row.Reference == "" || row.Tries > 2 {
				t.Errorf("row %+v", row)
			}
			intents := s.provider.Stats().Posts
			if most := int64(5); intents > most {
				t.Errorf("%d requests reached the provider, want at most %d", intents, most)
			}
		})
	}
}
