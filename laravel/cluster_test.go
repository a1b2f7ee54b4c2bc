package laravel

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/worker"
	"zabor/zabortest"
)

// clusterOfOne is a client of a Redis Cluster of one node.
func clusterOfOne(t *testing.T) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers.RedisCluster(t).Addr()}, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// Every key that a command touches is in one slot: a cluster refuses others.
func TestCluster(t *testing.T) {
	c := clusterOfOne(t)
	ctx := t.Context()
	for _, config := range []Config{
		{Queue: "default", Prefix: "laravel_database_"},
		{Queue: "{orders}", Prefix: "laravel_database_"},
		{Queue: "orders", Prefix: "shop:{prod}:"},
	} {
		config.Connection, config.RetryAfter = "redis", time.Minute
		s, err := NewSource(c, config)
		if err != nil {
			t.Fatal(err)
		}
		q := queue{Source: s}
		if err := c.RPush(ctx, s.k.ready, "poison", payloadOf("1")).Err(); err != nil {
			t.Fatal(err)
		}
		ok := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		dead := q.receive(t)
		if !errors.Is(dead.Err, worker.ErrUnreadable) {
			t.Errorf("Err = %v", dead.Err)
		}
		ok("Ack", s.Ack(ctx, dead))
		m := q.receive(t)
		ok("Renew", s.Renew(ctx, m))
		ok("PutBack", s.PutBack(ctx, m))
		m = q.receive(t)
		ok("Later", s.Later(ctx, m, 0))
		m = q.receive(t)
		ok("Ack", s.Ack(ctx, m))
		if d, err := s.Depth(ctx); err != nil || !d.Empty() {
			t.Errorf("depth %+v, error %v", d, err)
		}
	}
}

// A death at any command of an answer to a queue whose other queue is in another
// slot.
func TestDeathAcrossSlots(t *testing.T) {
	t.Parallel()
	server := servers.RedisCluster(t)
	var n atomic.Int64
	zabortest.Death(t, func(t *testing.T) zabortest.SourceUnderTest {
		db, failed := sqliteJobs(t)
		id := n.Add(1)
		config := Config{Queue: fmt.Sprint("payments", id), Connection: "redis", RetryAfter: time.Second, Failed: failed}
		other := fmt.Sprint("other", id)
		connect := func(dial zabortest.Dial) *Source {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, MaxRetries: -1, Dialer: dial})
			t.Cleanup(func() { c.Close() })
			s, err := NewSource(c, config)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := connect(nil)
		return zabortest.SourceUnderTest{
			Source: s, TwoSlots: true, Other: other,
			Push: func(t *testing.T, orderID string) {
				if _, err := s.Push(t.Context(), []byte(payloadOf(orderID))); err != nil {
					t.Fatal(err)
				}
			},
			Failed: func(t *testing.T) (n int) {
				if err := db.QueryRow("SELECT COUNT(*) FROM failed_jobs").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			},
			Forwarded: func(t *testing.T) []string {
				all, err := s.redis.LRange(t.Context(), names("", other, true).ready, 0, -1).Result()
				if err != nil {
					t.Fatal(err)
				}
				return all
			},
			Mortal: func(t *testing.T, dial zabortest.Dial) worker.Source { return connect(dial) },
			Retry: func(ctx context.Context, s worker.Source) error {
				for j, err := range s.(*Source).Failed(ctx) {
					return errors.Join(err, s.(*Source).Retry(ctx, j.UUID))
				}
				return errors.New("nothing has failed")
			},
		}
	})
}
