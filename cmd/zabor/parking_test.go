package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
)

// job puts a Laravel job on the queue payments, without PHP.
func (s *shop) job(id, class string, data map[string]any) {
	s.t.Helper()
	payload, err := json.Marshal(map[string]any{"uuid": id, "displayName": class, "job": class + "@handle", "data": data, "attempts": 0})
	if err != nil {
		s.t.Fatal(err)
	}
	const list = "laravel_database_queues:payments"
	if err := s.redis.RPush(s.t.Context(), list, payload).Err(); err != nil {
		s.t.Fatal(err)
	}
	s.redis.RPush(s.t.Context(), list+":notify", 1)
}

// order puts a job on the queue payments that wants order charged.
func (s *shop) order(order string) {
	s.t.Helper()
	s.job("job-"+order, `App\Jobs\ChargeOrder`, map[string]any{"orderId": order, "amountCents": 1999})
}

// A failed_jobs table that is away, and a message that is too large for it, delay
// themselves only: orders that come behind are charged at once.
func TestParkingBesideTheLanes(t *testing.T) {
	t.Parallel()
	s := newShop(t, servers.MariaDB(t), options{lanes: 8})
	s.edit("backoff: [1s]", "backoff: [5s]")
	p := s.worker("--queue", "payments")
	p.logged("msg=started")
	s.order("first")
	s.charges(1)
	exec := func(statement string) {
		t.Helper()
		if _, err := s.store.DB().Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("RENAME TABLE failed_jobs TO elsewhere")
	for i := range 40 {
		s.job(fmt.Sprint("mail-", i), `App\Jobs\Mail`, nil)
	}
	begun := time.Now()
	for i := range 10 {
		s.order(fmt.Sprint(i))
	}
	s.charges(11)
	if d := time.Since(begun); d > 8*time.Second {
		t.Errorf("ten orders behind messages that could not be parked were charged after %v", d)
	}
	p.logged("the message is put back for later")
	exec("RENAME TABLE elsewhere TO failed_jobs")
	eventually(t, "all are parked", func() bool { n, _ := s.failed(); return n == 40 })

	// The server's limit is 16 MiB.
	s.job("large", `App\Jobs\Mail`, map[string]any{"text": strings.Repeat("x", 17<<20)})
	s.job("small", `App\Jobs\Mail`, nil)
	s.order("last")
	s.charges(12)
	eventually(t, "the small one is parked", func() bool { n, _ := s.failed(); return n == 41 })
	p.logged("max_allowed_packet of the database is 16777216")
	p.logged("SET GLOBAL max_allowed_packet = 33554432")
	for i := range 10 {
		s.chargedOnce(fmt.Sprint(i))
	}
	eventually(t, "the large one is on its queue", func() bool {
		n, err := s.redis.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: "laravel_database_queues:payments:delayed", Start: 0, Stop: -1}).Result()
		return err == nil && len(n) == 1 && strings.Contains(n[0], `"uuid":"large"`)
	})
}
