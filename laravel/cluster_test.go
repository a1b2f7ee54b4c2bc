package laravel

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
	"zabor/worker"
)

// clusterOfOne starts a Redis Cluster of one node that has all slots.
func clusterOfOne(t *testing.T) *redis.ClusterClient {
	t.Helper()
	program := servers.Need(t, "redis-server", "redis-server")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	// The bus port is by default the port + 10000, which may be too large.
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "",
		"--cluster-enabled", "yes", "--cluster-port", freePort(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })

	one := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer one.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for slots := false; ; {
		if !slots {
			slots = one.ClusterAddSlotsRange(ctx, 0, 16383).Err() == nil
		} else if info, _ := one.ClusterInfo(ctx).Result(); strings.Contains(info, "cluster_state:ok") {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the cluster did not start within 30s")
		}
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Every key that a command touches is in one slot: a cluster refuses others.
func TestCluster(t *testing.T) {
	c := clusterOfOne(t)
	ctx := t.Context()
	for _, config := range []Config{
		{Queue: "default", Prefix: "laravel_database_", HashTag: true},
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
