package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
)

// What would lose messages or have them taken by two stops the start, before
// anything is taken.
func TestStartUpRefuses(t *testing.T) {
	t.Parallel()
	consumer := func(name string) func(t *testing.T, s *shop) {
		return func(t *testing.T, s *shop) {
			ctx := t.Context()
			if err := s.redis.XGroupCreateMkStream(ctx, "messages", "symfony", "0").Err(); err != nil {
				t.Fatal(err)
			}
			s.redis.XAdd(ctx, &redis.XAddArgs{Stream: "messages", Values: []any{"message", "x"}})
			read, err := s.redis.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "symfony", Consumer: name, Streams: []string{"messages", ">"}}).Result()
			if err != nil || len(read) != 1 {
				t.Fatalf("%v, %v", read, err)
			}
			if err := s.redis.XAck(ctx, "messages", "symfony", read[0].Messages[0].ID).Err(); err != nil {
				t.Fatal(err)
			}
			s.redis.XDel(ctx, "messages", read[0].Messages[0].ID)
		}
	}
	evicting := func(t *testing.T, s *shop) {
		if err := s.redis.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
			t.Fatal(err)
		}
	}
	managed := func(t *testing.T, s *shop) { // as services that forbid CONFIG
		evicting(t, s)
		if err := s.redis.Do(t.Context(), "ACL", "SETUSER", "default", "-config").Err(); err != nil {
			t.Fatal(err)
		}
	}
	volatile := func(t *testing.T, s *shop) {
		if err := s.redis.ConfigSet(t.Context(), "maxmemory-policy", "volatile-ttl").Err(); err != nil {
			t.Fatal(err)
		}
	}
	supervised := func(t *testing.T, s *shop) {
		s.withHorizon()
		s.supervisor(`{"redis:emails,payments":3}`)
	}
	serialized := func(t *testing.T, s *shop) {
		payload := job(t, 1, 0)
		s.redis.ZAdd(t.Context(), "laravel_database_queues:payments:delayed", redis.Z{Score: 1, Member: fmt.Sprintf("s:%d:\"%s\";", len(payload), payload)})
	}
	reserved := func(t *testing.T, s *shop) {
		k := "queue:test/payments" // the queue was taken over
		if err := s.store.Meta().Set(t.Context(), k, fmt.Appendf(nil, "laravel %d %q", s.o.redis.DB, "laravel_database_queues:payments")); err != nil {
			t.Fatal(err)
		}
		s.redis.ZAdd(t.Context(), "laravel_database_queues:payments:reserved", redis.Z{Score: float64(time.Now().Unix() + 5), Member: strings.ReplaceAll(job(t, 1, 1), "ChargeOrder", "CacheImage")})
	}
	key := func(name string) func(*testing.T, *shop) {
		return func(t *testing.T, s *shop) { s.redis.RPush(t.Context(), name, "1") }
	}
	stream := func(name string) func(*testing.T, *shop) {
		return func(t *testing.T, s *shop) {
			s.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: name, Values: []any{"message", "x"}})
		}
	}
	blind := func(t *testing.T, s *shop) {
		managed(t, s)
		if err := s.redis.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		add     string
		prepare func(*testing.T, *shop)
		args    string
		code    int
		want    string
	}{
		{"a cache whose prefix begins the queue's keys", "keep_apart: [{prefix: laravel_database_, db: DB}]\n", nil, "", exit.WrongUsage, "keep_apart[0]: the keys of queue payments"},
		{"a cache without a prefix", "keep_apart: [{prefix: '', db: DB}]\n", nil, "", exit.WrongUsage, "whoever clears these by their prefix deletes messages"},
		{"sessions that begin as the stream does", "keep_apart: [{prefix: messages_, db: DB}]\n", nil, "", exit.WrongUsage, "the keys of queue async"},
		{"a prefix of its own", "keep_apart: [{prefix: 'cache:', db: DB}]\n", nil, "", exit.Good, "no prefix protects messages from FLUSHDB"},
		{"another database", "keep_apart: [{prefix: laravel_database_, db: 0}]\n", nil, "", exit.Good, "started"},
		{"a forward to a stream that is consumed", "bus: {forward: {Mail: messages}}\n", nil, "", exit.WrongUsage, "bus.forward.Mail: messages is the stream of queue async"},
		{"a step that goes on to a stream that is consumed", "    then: messages\n", nil, "", exit.WrongUsage, "steps.charge.then: messages is the stream of queue async"},
		{"a step that goes on to a queue that is consumed", "    then: payments\n", nil, "", exit.WrongUsage, "steps.charge.then: queue payments is one that zabor takes from"},
		{"a forward of everything", "bus: {forward: {'*': default}}\n", nil, "", exit.Good, "every message that has no step is forwarded"},
		{"an evicting server", "", evicting, "", exit.WrongUsage, "maxmemory-policy is allkeys-lru"},
		{"an evicting server that forbids CONFIG", "", managed, "", exit.WrongUsage, "maxmemory-policy is allkeys-lru"},
		{"a server that tells nothing, evicting or not", "", blind, "", exit.Good, "cannot tell whether Redis evicts"},
		{"an evicting server that was accepted", "", evicting, "--accept-eviction", exit.Good, "this was accepted"},
		{"a PHP consumer", "", consumer("consumer"), "", exit.WrongUsage, `queue async: consumer "consumer" of group symfony asked for messages`},
		// Of rq/rq#1280: keys that have a time to live are evicted too.
		{"an evicting server that takes what has a time to live", "", volatile, "", exit.Good, "it spares the queues, which have no time to live"},
		{"a supervisor of Horizon's", "", supervised, "", exit.WrongUsage, "Horizon's supervisor web1:supervisor-1 has processes for redis:payments, and is not zabor's"},
		{"a supervisor on a shared queue", "shared", supervised, "", exit.Good, "the queue is shared"},
		{"a PHP consumer on a shared queue", "shared", consumer("consumer"), "", exit.Good, "the queue is shared"},
		{"a serializer", "", serialized, "", exit.WrongUsage, "phpredis has changed a job on it, by the PHP serializer"},
		{"a job that somebody has", "", reserved, "", exit.Good, "a worker that is not zabor's has reserved job"},
		{"another prefix", "", key("laravel-database-queues:payments:notify"), "", exit.Good, `did you mean prefix: "laravel-database-"`},
		{"another queue", "", key("laravel-database-queues:payments-eu"), "", exit.Good, "started"},
		{"another stream", "", stream("shop_messages"), "", exit.Good, "there is shop_messages: did you mean that one?"},
		{"a cache in the same database, laravel/horizon#1059", "keep_apart: [{prefix: 'shop_', db: DB}]\n", nil, "", exit.Good, "no prefix protects messages from FLUSHDB"},
		{"another zabor", "", consumer("zabor:web2:0"), "", exit.Good, "started"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options{}
			if strings.Contains(tt.name, "evicting") {
				o.redis = servers.RedisDB{Addr: servers.OwnRedis(t).Addr(), DB: 1}
			} else {
				o.redis = servers.Redis(t)
			}
			s := newShop(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db"), o)
			if tt.add == "shared" {
				s.share()
			} else {
				s.add(strings.ReplaceAll(tt.add, "DB", strings.Split(o.redis.URL(), "/")[3]))
			}
			if tt.prepare != nil {
				tt.prepare(t, s)
			}
			w := s.worker(append([]string{"--drain"}, strings.Fields(tt.args)...)...)
			w.exit(tt.code)
			if tt.name == "another queue" && strings.Contains(w.log.String(), "did you mean") {
				t.Error("another queue's keys are taken for this one's")
			}
			if log := w.log.String(); !strings.Contains(strings.ReplaceAll(log, `\"`, `"`), tt.want) || (tt.code == exit.WrongUsage) == strings.Contains(log, "msg=started") {
				t.Errorf("the log lacks %q, or the worker started and should not have:\n%s", tt.want, log)
			}
		})
	}
}

// Where Redis can be: behind a Sentinel and on a cluster a charge is made as on one
// server; a replica is refused.
func TestRedisServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		address func(t *testing.T) (address string, direct redis.UniversalClient)
		list    string
		refused string
	}{
		{name: "Sentinel", list: "laravel_database_queues:payments", address: func(t *testing.T) (string, redis.UniversalClient) {
			master := servers.OwnRedis(t)
			sentinel := servers.RedisSentinel(t, master)
			return "redis://" + sentinel.Addr() + "/3?master_name=mymaster", redis.NewClient(&redis.Options{Addr: master.Addr(), DB: 3})
		}},
		{name: "cluster", list: "laravel_database_queues:{payments}", address: func(t *testing.T) (string, redis.UniversalClient) {
			node := servers.RedisCluster(t)
			return "redis://" + node.Addr() + "?cluster=true", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr()}})
		}},
		{name: "replica", refused: "its Redis is a replica", address: func(t *testing.T) (string, redis.UniversalClient) {
			replica := servers.RedisReplica(t, servers.OwnRedis(t))
			return "redis://" + replica.Addr() + "/0", redis.NewClient(&redis.Options{Addr: replica.Addr()})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			address, direct := tt.address(t)
			defer direct.Close()
			s := newShop(t, databases[0].open(t), options{})
			s.edit(fmt.Sprintf("redis: %q", s.o.redis.URL()), fmt.Sprintf("redis: %q", address))
			if tt.refused != "" {
				if _, log := s.command(exit.WrongUsage, "worker", "--drain", "--queue", "payments"); !strings.Contains(log, tt.refused) {
					t.Errorf("the refusal lacks %q:\n%s", tt.refused, log)
				}
				return
			}
			if err := direct.RPush(t.Context(), tt.list, job(t, 1, 0)).Err(); err != nil {
				t.Fatal(err)
			}
			s.command(exit.Good, "worker", "--drain", "--queue", "payments")
			s.chargedOnce("1")
			if n := direct.LLen(t.Context(), tt.list).Val(); n != 0 {
				t.Errorf("%d jobs are left", n)
			}
		})
	}
}

// Who is called, and whether money moves there, is said at the start.
func TestTheStartTellsLiveFromTest(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.edit("providers:\n", "providers:\n  stripe: {profile: stripe, secret: sk_test_1}\n  paid: {profile: stripe, secret: sk_live_1}\n")
	_, log := s.command(exit.Good, "worker", "--drain")
	for _, want := range []string{"msg=provider name=stripe host=api.stripe.com mode=TEST", "msg=provider name=paid host=api.stripe.com mode=LIVE", "msg=provider name=acquirer host=127.0.0.1", "seconds_to_stop="} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "sk_") {
		t.Error("the log has a secret")
	}
}

// After a FLUSHDB, which cache:clear is, a charge whose worker died is found by the
// table alone; and a Redis that is restored from before the ack hands a message out
// again, which is acked from its row.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	t.Run("laravel/horizon 72", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, databases[0].open(t), options{})
		s.redis.RPush(t.Context(), "laravel_database_queues:payments", job(t, 1, 0))
		s.killedAtCharge("1", func() *process { return s.worker() })
		if err := s.redis.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.command(exit.Good, "worker", "--drain")
		s.chargedOnce("1")
	})
	t.Run("redis/redis 6062", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, databases[0].open(t), options{})
		s.redis.RPush(t.Context(), "laravel_database_queues:payments", job(t, 1, 0))
		stopped := s.worker("--stop-at", "saved")
		stopped.stopped()
		const reserved = "laravel_database_queues:payments:reserved"
		dump, err := s.redis.Dump(t.Context(), reserved).Result()
		if err != nil {
			t.Fatal(err)
		}
		stopped.signal(syscall.SIGCONT)
		eventually(t, "it is acked", func() bool { return s.depth() == depth{} })
		stopped.signal(syscall.SIGTERM)
		stopped.exit(exit.Good)
		if err := s.redis.Restore(t.Context(), reserved, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
		_, log := s.command(exit.Good, "worker", "--drain")
		if !strings.Contains(log, "msg=done") || s.state("1") != zabor.Settled {
			t.Errorf("not acked from its row:\n%s", log)
		}
		s.chargedOnce("1")
		s.empty()
	})
}
