package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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
		{"a cache whose prefix begins the queue's keys", "keep_apart: [{prefix: laravel_database_, db: DB}]\n", nil, "", exitUsage, "keep_apart[0]: the keys of queue payments"},
		{"a cache without a prefix", "keep_apart: [{prefix: '', db: DB}]\n", nil, "", exitUsage, "whoever clears these by their prefix deletes messages"},
		{"sessions that begin as the stream does", "keep_apart: [{prefix: messages_, db: DB}]\n", nil, "", exitUsage, "the keys of queue async"},
		{"a prefix of its own", "keep_apart: [{prefix: 'cache:', db: DB}]\n", nil, "", exitGood, "no prefix protects messages from FLUSHDB"},
		{"another database", "keep_apart: [{prefix: laravel_database_, db: 0}]\n", nil, "", exitGood, "started"},
		{"a forward to a stream that is consumed", "bus: {forward: {Mail: messages}}\n", nil, "", exitUsage, "bus.forward.Mail: messages is the stream of queue async"},
		{"a step that goes on to a stream that is consumed", "    then: messages\n", nil, "", exitUsage, "steps.charge.then: messages is the stream of queue async"},
		{"a step that goes on to a queue that is consumed", "    then: payments\n", nil, "", exitUsage, "steps.charge.then: queue payments is one that zabor takes from"},
		{"a forward of everything", "bus: {forward: {'*': default}}\n", nil, "", exitGood, "every message that has no step is forwarded"},
		{"an evicting server", "", evicting, "", exitUsage, "maxmemory-policy allkeys-lru"},
		{"an evicting server that forbids CONFIG", "", managed, "", exitUsage, "maxmemory-policy allkeys-lru"},
		{"a server that tells nothing, evicting or not", "", blind, "", exitGood, "cannot tell whether Redis evicts"},
		{"an evicting server that was accepted", "", evicting, "--accept-eviction", exitGood, "which was accepted"},
		{"a PHP consumer", "", consumer("consumer"), "", exitUsage, `queue async: consumer "consumer" of group symfony asked for messages`},
		{"another zabor", "", consumer("zabor:web2:0"), "", exitGood, "started"},
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
			s.add(strings.ReplaceAll(tt.add, "DB", strings.Split(o.redis.URL(), "/")[3]))
			if tt.prepare != nil {
				tt.prepare(t, s)
			}
			w := s.worker(append([]string{"--drain"}, strings.Fields(tt.args)...)...)
			w.exit(tt.code)
			if log := w.log.String(); !strings.Contains(strings.ReplaceAll(log, `\"`, `"`), tt.want) || (tt.code == exitUsage) == strings.Contains(log, "msg=started") {
				t.Errorf("the log lacks %q, or the worker started and should not have:\n%s", tt.want, log)
			}
		})
	}
}
