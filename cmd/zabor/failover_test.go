package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// A master of Redis' is killed while workers charge, and Sentinel makes one of two
// replicas the master, which lacks the last writes: it has not heard of acks, nor of
// a message that was pushed right before. Nothing is charged twice, whatever comes
// back; all but that one message, which Redis alone has lost, is charged; and the
// worker goes on by itself.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master := servers.OwnRedis(t)
	replicas := []*servers.Server{servers.RedisReplica(t, master), servers.RedisReplica(t, master)}
	sentinel := servers.RedisSentinel(t, master)
	watch := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	t.Cleanup(func() { watch.Close() })
	for option, value := range map[string]string{"down-after-milliseconds": "1000", "failover-timeout": "5000"} {
		if err := watch.Set(t.Context(), "mymaster", option, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "Sentinel knows two replicas that follow the master", func() bool {
		known, err := watch.Replicas(t.Context(), "mymaster").Result()
		n := 0
		for _, r := range known {
			if r["master-link-status"] == "ok" {
				n++
			}
		}
		return err == nil && n == len(replicas)
	})

	const lanes = 4
	s := newShop(t, servers.MariaDB(t), options{redis: servers.RedisDB{Addr: master.Addr()}, lanes: lanes, timeout: 4 * time.Second, reserve: 10 * time.Second, raced: true})
	s.edit(fmt.Sprintf("redis: %q", s.o.redis.URL()), fmt.Sprintf("redis: %q", "redis://"+sentinel.Addr()+"/0?master_name=mymaster"))
	s.edit("redis://"+master.Addr()+"/messages/symfony?dbindex=0", "redis://"+sentinel.Addr()+"/messages/symfony?sentinel_master=mymaster")
	ids := orders(40)
	s.putAll(ids)
	if n, err := s.redis.Wait(t.Context(), len(replicas), limit).Result(); err != nil || n != int64(len(replicas)) {
		t.Fatalf("%d replicas have the messages, %v", n, err)
	}

	all := func(sig syscall.Signal) {
		for _, r := range replicas {
			if err := r.Signal(sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	}
	direct := s.redis // to the master
	reached, dead := make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	s.onCharge(func(sandbox.Charge) {
		switch n := n.Add(1); {
		case n == 10:
			// The replicas are stopped and cut off: the acks of the next ten reach
			// the master alone.
			all(syscall.SIGSTOP)
			if err := direct.ClientKillByFilter(context.Background(), "TYPE", "replica").Err(); err != nil {
				t.Error(err)
			}
		case n >= 20:
			// All lanes wait here, so that what comes now is taken by none.
			if n == 20+lanes-1 {
				close(reached)
			}
			<-dead
		}
	})
	w := s.worker()
	<-reached
	const lost = "lost-by-redis"
	if err := s.redis.RPush(t.Context(), "laravel_database_queues:payments", jobFor("u-lost", lost, 1999, false)).Err(); err != nil {
		t.Fatal(err)
	}
	master.Kill()
	all(syscall.SIGCONT)
	close(dead)

	s.redis = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{sentinel.Addr()}})
	t.Cleanup(func() { s.redis.Close() })
	for end := time.Now().Add(2 * limit); s.redis.Ping(t.Context()).Err() != nil; {
		if time.Now().After(end) {
			t.Fatal("there is no new master")
		}
		<-time.After(50 * time.Millisecond)
	}
	eventually(t, "the worker goes on", func() bool { return s.depth() == depth{} })
	w.signal(syscall.SIGTERM)
	w.exit(exit.Good)
	log := w.log.String()
	if strings.Count(log, "msg=started") != 1 {
		t.Error("the worker was started anew")
	}
	// Each message is done once, and once more where the new master had not seen its
	// ack; those in hand when the master died may be done twice anyway.
	if done := strings.Count(log, "msg=done"); done <= len(ids)+lanes {
		t.Errorf("%d messages were done %d times: nothing came back, and the test shows nothing", len(ids), done)
	}
	s.allChargedOnce(ids)
	if row := s.row(lost); row.State != "" || len(s.provider.Charges(lost)) != 0 {
		t.Errorf("what Redis lost has a row: %+v", row)
	}
	for _, id := range ids {
		if row := s.row(id); row.State != zabor.Settled || row.OtherReference != "" {
			t.Errorf("order %s: %+v", id, row)
		}
	}
}
