package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/messenger"
)

// RedisServer is a database of a Redis server that queues are in.
type RedisServer struct {
	Where  string // for people: Redis 127.0.0.1:6379, database 0
	Client redis.UniversalClient
	Queues []string // the names of the queues in it
	Keys   []string // what the queues' keys, and Horizon's, begin with
	// Caches are the caches and sessions on the same server, whatever their
	// database, for people.
	Caches  []string
	Streams []Stream
}

// Stream is a transport of Symfony.
type Stream struct{ Transport, Stream, Group string }

// ErrUnreachable says that a server did not answer; nothing is known of it.
var ErrUnreachable = errors.New("cannot be reached")

// ExamineRedis asks a server, with commands that only read. Its error is
// [ErrUnreachable].
func ExamineRedis(ctx context.Context, s RedisServer) ([]Finding, error) {
	l := live{where: s.Where}
	info, err := s.Client.Info(ctx).Result()
	if err != nil {
		if err := s.Client.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("%s %w: %w", s.Where, ErrUnreachable, err)
		}
		l.add("ZB101", "grant INFO to this user: ACL SETUSER NAME +info", "INFO is refused (%v): eviction and persistence are unknown", err)
	}
	said := infoOf(info)
	policy, asked := configOf(ctx, s.Client, "maxmemory-policy")
	if !asked {
		policy = said["maxmemory_policy"]
		shown := "unknown"
		if policy != "" {
			shown = "unknown but for what INFO says (maxmemory-policy " + policy + ")"
		}
		l.add("ZB101", "ACL SETUSER NAME +config|get; at a managed service read maxmemory-policy, save and appendonly in its console", "CONFIG GET is forbidden: the server's settings are %s", shown)
	}
	l.eviction(s, policy)
	l.persistence(ctx, s, said, asked)
	for _, stream := range s.Streams {
		l.consumers(ctx, s, stream)
	}
	l.strangers(ctx, s)
	inOrder(l.findings)
	return l.findings, nil
}

// live collects the findings about a server.
type live struct {
	where    string
	findings []Finding
}

func (l *live) add(code, fix, found string, args ...any) {
	l.say(rule(code).Severity, code, fix, found, args...)
}

func (l *live) say(s Severity, code, fix, found string, args ...any) {
	l.findings = append(l.findings, Finding{Code: code, Severity: s, Where: l.where, Found: fmt.Sprintf(found, args...), Fix: fix})
}

func infoOf(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[key] = value
		}
	}
	return m
}

// configOf asks for one setting; ok is false where that is forbidden.
func configOf(ctx context.Context, client redis.UniversalClient, name string) (value string, ok bool) {
	values, err := client.ConfigGet(ctx, name).Result()
	value, ok = values[name]
	return value, err == nil && ok
}

func (l *live) eviction(s RedisServer, policy string) {
	if f, ok := Eviction(s, policy); ok {
		l.findings = append(l.findings, f)
	}
}

// Eviction returns the finding about a server with that maxmemory-policy. false means that
// the server drops nothing when memory is short, or that policy is empty.
func Eviction(s RedisServer, policy string) (Finding, bool) {
	if policy == "" || policy == "noeviction" {
		return Finding{}, false
	}
	const fix = "CONFIG SET maxmemory-policy noeviction, and maxmemory-policy noeviction in redis.conf"
	takes := "it deletes whole queues, one key each, as gladly as cached pages"
	if strings.HasPrefix(policy, "volatile-") {
		takes = "it spares the queues, which have no time to live, and deletes locks, Horizon's records and sessions; and once those are gone, pushes fail"
	}
	l := live{where: s.Where}
	if len(s.Caches) > 0 {
		l.add("ZB132", fix+"; and the cache on a server of its own", "maxmemory-policy is %s, and %s are on this server beside the queues %s: when the cache fills the memory, %s",
			policy, strings.Join(s.Caches, ", "), strings.Join(s.Queues, ", "), takes)
	} else {
		l.add("ZB133", fix, "maxmemory-policy is %s: when memory is short, %s", policy, takes)
	}
	return l.findings[0], true
}

func (l *live) persistence(ctx context.Context, s RedisServer, said map[string]string, asked bool) {
	aof := said["aof_enabled"] == "1"
	if !asked {
		if said["aof_enabled"] == "0" {
			l.say(Warning, "ZB134", "appendonly yes, at the managed service", "the append-only file is off: after a crash messages are missing, and acked ones come back")
		}
		return
	}
	save, _ := configOf(ctx, s.Client, "save")
	fsync, _ := configOf(ctx, s.Client, "appendfsync")
	const fix = "CONFIG SET appendonly yes, and appendonly yes and appendfsync everysec in redis.conf"
	switch {
	case !aof && save == "":
		l.add("ZB134", fix, "neither append-only file nor snapshots (appendonly no, save \"\"): a restart loses every message")
	case !aof:
		l.say(Warning, "ZB134", fix, "only snapshots (appendonly no, save %q): a crash loses every message since the last one, and brings acked ones back", save)
	case fsync == "no":
		l.say(Warning, "ZB134", fix, "appendfsync is no: a crash of the machine loses as much as the kernel had not written yet, often 30 s")
	}
}

// consumers looks who takes from a stream.
func (l *live) consumers(ctx context.Context, s RedisServer, stream Stream) {
	groups, err := s.Client.XInfoGroups(ctx, stream.Stream).Result()
	if err != nil {
		return // no stream yet
	}
	if len(groups) > 1 {
		l.say(Warning, "ZB143", "XGROUP DESTROY "+stream.Stream+" GROUP, for the one that nobody uses", "stream %s has %d groups: with delete_after_ack Symfony refuses to start, and what one group acks is deleted for the other", stream.Stream, len(groups))
	}
	l.trimmed(ctx, s, stream)
	list, err := s.Client.XInfoConsumers(ctx, stream.Stream, stream.Group).Result()
	if err != nil {
		return
	}
	for _, one := range list {
		if one.Name == "consumer" && one.Idle < 10*time.Minute && !messenger.IsConsumer(one.Name) {
			l.add("ZB140", "consumer: '%env(MESSENGER_CONSUMER_NAME)%', under options of transport "+stream.Transport+"; a name for each process",
				"consumer \"consumer\", Symfony's default, took from stream %s %s ago and holds %d messages: each process that has no name of its own reads what the others are handling",
				stream.Stream, one.Idle.Round(time.Second), one.Pending)
		}
	}
}

// trimmed looks for entries that are being handled and are not in the stream any
// more: only trimming takes them from there before their ack.
func (l *live) trimmed(ctx context.Context, s RedisServer, stream Stream) {
	pending, err := s.Client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: stream.Stream, Group: stream.Group, Start: "-", End: "+", Count: 1000}).Result()
	if err != nil || len(pending) == 0 {
		return
	}
	entries := make([]*redis.XMessageSliceCmd, len(pending))
	_, err = s.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, one := range pending {
			entries[i] = p.XRangeN(ctx, stream.Stream, one.ID, one.ID, 1)
		}
		return nil
	})
	if err != nil {
		return
	}
	gone := 0
	for _, e := range entries {
		if len(e.Val()) == 0 {
			gone++
		}
	}
	if gone > 0 {
		l.add("ZB141", "take stream_max_entries out of transport "+stream.Transport+", and let nobody XTRIM or XDEL its stream",
			"%d of %d messages that are being handled are not in stream %s any more: it was trimmed. If their worker dies, nobody gets them again; \"zabor audit\" lists the rows they leave open as lost", gone, len(pending), stream.Stream)
	}
}

// sample is how many keys of a database are looked at.
const sample = 10_000

// strangers looks for keys of others in the queues' database.
func (l *live) strangers(ctx context.Context, s RedisServer) {
	if _, ok := s.Client.(*redis.ClusterClient); ok || len(s.Keys) == 0 {
		return
	}
	strange, seen, example := 0, 0, ""
	var cursor uint64
	for seen < sample {
		keys, next, err := s.Client.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			return
		}
		for _, key := range keys {
			seen++
			if !own(s.Keys, key) {
				strange++
				if example == "" {
					example = key
				}
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if strange == 0 {
		return
	}
	if r := []rune(example); len(r) > 24 { // a session's key is a secret
		example = string(r[:24]) + "…"
	}
	l.say(Warning, "ZB130", "a database (or better a server) for the queues alone",
		"%d of %d keys in the database of queues %s are not theirs, such as %q: whoever empties it for them (FLUSHDB, which cache:clear of Laravel is) deletes every message", strange, seen, strings.Join(s.Queues, ", "), example)
}

func own(prefixes []string, key string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
