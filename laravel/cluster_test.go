package laravel

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/worker"
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
