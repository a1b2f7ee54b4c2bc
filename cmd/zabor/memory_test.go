package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"zabor/internal/exit"
	"zabor/internal/servers"
)

// sent is how many bytes the server has sent to all its clients.
func sent(t testing.TB, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "stats").Result()
	ok(t, err)
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "total_net_output_bytes:"); found {
			n, err := strconv.Atoi(text)
			ok(t, err)
			return n
		}
	}
	t.Fatalf("no count of bytes in %s", info)
	return 0
}

// What a start looks at does not grow with the queue: here 100 messages of 1 MiB wait.
func TestAStartReadsAFewMessages(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	s := newShop(t, databases[0].open(t), options{redis: servers.RedisDB{Addr: server.Addr()}})
	s.command(exit.Good, "worker", "--drain") // the queues are taken over, and nothing is there
	const list, n = "laravel_database_queues:payments", 100
	large := fmt.Sprintf(`{"uuid":"u","displayName":"App\\Jobs\\ChargeOrder","job":"App\\Jobs\\ChargeOrder@handle","attempts":0,"data":{"orderId":"1","amountCents":1999,"text":%q}}`, strings.Repeat("x", 1<<20))
	for range n {
		ok(t, s.redis.RPush(t.Context(), list, large).Err())
		ok(t, s.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "messages", Values: []any{"message", large}}).Err())
	}
	before := sent(t, s.redis)
	s.command(exit.Good, "config", "check", "--live")
	// A start looks at eight of each queue, and the check looks at some of them again.
	if got := sent(t, s.redis) - before; got > 40<<20 {
		t.Errorf("%d MiB were read of %d", got>>20, 2*n)
	}
}

// An eviction policy that is set while a worker runs is a critical alert.
func TestAnEvictionPolicyIsToldOf(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	s := newShop(t, databases[0].open(t), options{redis: servers.RedisDB{Addr: server.Addr()}})
	p := s.worker("--queue", "payments")
	p.logged("msg=started")
	ok(t, s.redis.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	p.logged("ALERT eviction")
	p.signal(syscall.SIGTERM)
	p.exit(0)
	if n := strings.Count(p.log.String(), "ALERT eviction"); n != 1 {
		t.Errorf("%d alerts, want one", n)
	}
}
