package zabortest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// batchMost is how many messages one script may make ready at once.
const batchMost = 100

// scriptMost is how long Redis may be busy with one command. It is far more than a
// batch takes: a busy machine must not fail the suite.
const scriptMost = time.Second

// ManyDue checks that a queue whose delayed messages are due all at once makes them
// ready in batches, so that Redis is never busy for long, that each arrives once, and
// that what is pushed meanwhile does not wait for all of them. There are 1,000 of
// them, or 10,000 with ZABOR_SOAK=1.
//
// The server is the test's own. delay puts a message that is due, for an order;
// push one that is ready; delayed counts those that are not ready yet. The sources
// are of one queue.
func ManyDue(t *testing.T, server *redis.Client, sources []worker.Source, delay, push func(orderID string), delayed func() int64) {
	t.Helper()
	n := 1000
	if os.Getenv("ZABOR_SOAK") == "1" {
		n = 10_000
	}
	for i := range n {
		delay(fmt.Sprint(i))
	}
	for name, value := range map[string]string{"slowlog-log-slower-than": "1000", "slowlog-max-len": "100000"} {
		if err := server.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	seen := map[string]int{}
	take := func(s worker.Source) (order string, err error) {
		m, err := worker.Next(ctx, s)
		if err != nil {
			return "", err
		}
		if m.Err != nil || m.DeliveredBefore {
			t.Errorf("message %s: %v, delivered before: %v", m.ID, m.Err, m.DeliveredBefore)
		}
		return fmt.Sprint(m.Data["orderId"]), s.Ack(ctx, m)
	}

	begun := time.Now()
	first, err := take(sources[0])
	if err != nil {
		t.Fatal(err)
	}
	seen[first]++
	if left := delayed(); left < int64(n-batchMost) {
		t.Errorf("%d of %d are delayed after the first batch, want at least %d", left, n, n-batchMost)
	}
	push("fresh")
	behind := 0 // messages between the push and its arrival
	for order := ""; order != "fresh"; behind++ {
		if order, err = take(sources[0]); err != nil {
			t.Fatal(err)
		}
		seen[order]++
	}
	if behind > 2*batchMost {
		t.Errorf("a message that was pushed meanwhile came behind %d others", behind)
	}

	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range sources {
		wg.Go(func() {
			for {
				order, err := take(s)
				mu.Lock()
				if err == nil {
					seen[order]++
				}
				done := len(seen) == n+1
				mu.Unlock()
				if done {
					cancel()
				}
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Receive or Ack: %v", err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != n+1 {
		t.Errorf("%d orders came, want %d", len(seen), n+1)
	}
	for order, times := range seen {
		if times != 1 {
			t.Errorf("order %s came %d times", order, times)
		}
	}
	slow, err := server.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	longest := time.Duration(0)
	for _, command := range slow {
		longest = max(longest, command.Duration)
	}
	t.Logf("%d due messages in %v; %d commands took over 1ms, the longest %v", n, time.Since(begun).Round(time.Millisecond), len(slow), longest)
	if longest > scriptMost {
		t.Errorf("Redis was busy for %v with one command, want at most %v", longest, scriptMost)
	}
}
