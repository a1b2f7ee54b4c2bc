package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"zabor/internal/exit"

	"github.com/redis/go-redis/v9"
)

// newRedis is a client for the address of the Laravel queues:
//
//	redis://USER:PASSWORD@HOST:PORT/DB, rediss://…, unix:///PATH?db=DB
//	redis://HOST:PORT?cluster=true&addr=HOST:PORT
//	redis://SENTINEL:PORT/DB?master_name=NAME&addr=SENTINEL:PORT&username=…&password=…
//
// User and password before the host are the Sentinels' in the last form. The
// client never repeats a command by itself: whether one was executed is for the
// caller to decide. An error holds nothing of the address but what is wrong in it.
func newRedis(address string) (redis.UniversalClient, error) {
	u, err := url.Parse(address)
	switch {
	case strings.Contains(address, "#"):
		return nil, errors.New("the address has a #, which ends an address")
	case err != nil && strings.Contains(err.Error(), "invalid port") && (!strings.Contains(address, "@") || strings.Contains(authority(address), "@")):
		return nil, errors.New("invalid port: it is no number")
	case err != nil: // its text may hold a part of the password
		return nil, errors.New("the address cannot be read: a sign of the user, the password or the port must be written otherwise")
	}
	query := u.Query()
	isCluster := query.Get("cluster") == "true"
	switch {
	case query.Has("cluster") && !isCluster:
		return nil, fmt.Errorf("cluster=%s: write cluster=true, or leave it out", query.Get("cluster"))
	case isCluster && query.Has("master_name"):
		return nil, errors.New("cluster and master_name exclude each other: a Redis is a cluster or has Sentinels")
	case query.Has("addr") && !isCluster && !query.Has("master_name"):
		return nil, errors.New("several addresses, and neither cluster=true nor the Sentinels' master_name=NAME")
	case query.Has("master_name"):
		options, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		if options.MasterName == "" || options.ReplicaOnly {
			return nil, errors.New("zabor takes messages from the master: write master_name=NAME, and no replica_only")
		}
		options.MaxRetries, options.ContextTimeoutEnabled = -1, true
		return redis.NewFailoverClient(options), nil
	case isCluster:
		if db := strings.Trim(u.Path, "/"); db != "" && db != "0" {
			return nil, fmt.Errorf("database %q: a Redis Cluster has database 0 only", db)
		}
		query.Del("cluster")
		u.Path, u.RawQuery = "", query.Encode()
		options, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, err
		}
		options.MaxRetries, options.ContextTimeoutEnabled = -1, true
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	options.MaxRetries, options.ContextTimeoutEnabled = -1, true
	return redis.NewClient(options), nil
}

// authority is what stands between // and the first / or ? of an address.
func authority(address string) string {
	_, rest, _ := strings.Cut(address, "//")
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// database is the number of client's database; a cluster has only 0.
func database(client redis.UniversalClient) int {
	if single, ok := client.(*redis.Client); ok {
		return single.Options().DB
	}
	return 0
}

// checkServer refuses a server that would lose what it is told, or that drops keys
// of its own accord when memory is short: queues have no time to live, but allkeys-*
// evicts them all the same.
func (p *program) checkServer(ctx context.Context, s queue, acceptEviction bool) error {
	role, err := s.redis.Do(ctx, "ROLE").Slice()
	if err == nil && len(role) > 0 && role[0] == "slave" {
		return exit.Usage(fmt.Errorf("queue %s: its Redis is a replica, which takes no writes, and whose messages are copies", s.Name()),
			"nothing was started; write the master's address, or that of the Sentinels with master_name=NAME")
	}
	policies, err := evictionPolicies(ctx, s.redis)
	if err != nil {
		p.log.Warn("cannot tell whether Redis evicts messages when memory is short; it must have maxmemory-policy noeviction", "queue", s.Name(), "error", err)
		return nil
	}
	for _, policy := range policies {
		switch {
		case strings.HasPrefix(policy, "volatile-"):
			p.log.Warn("Redis evicts keys that have a time to live when memory is short: messages have none, but what Horizon shows, and locks of the application's, do. maxmemory-policy noeviction is safer",
				"queue", s.Name(), "maxmemory-policy", policy)
		case !strings.HasPrefix(policy, "allkeys-"):
		case acceptEviction:
			p.log.Warn("Redis may evict messages when memory is short, which was accepted", "queue", s.Name(), "maxmemory-policy", policy)
		default:
			return exit.Usage(fmt.Errorf("queue %s: its Redis has maxmemory-policy %s: when memory is short it drops whole queues as gladly as cached pages", s.Name(), policy),
				"nothing was started; set maxmemory-policy noeviction or volatile-lru (CONFIG SET, and in redis.conf), or put the cache on a server of its own; --accept-eviction takes the risk")
		}
	}
	return nil
}

// evictionPolicies are the policies of the server, or of all masters of a
// cluster.
func evictionPolicies(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	var mu sync.Mutex
	var all []string
	err := onMasters(ctx, client, func(ctx context.Context, node redis.Cmdable) error {
		policy, err := evictionPolicy(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, policy)
		return err
	})
	return all, err
}

// onMasters does something on the server, or at the same time on all masters of a
// cluster.
func onMasters(ctx context.Context, client redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return do(ctx, client)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
}

// evictionPolicy asks CONFIG, which managed servers often forbid, and then INFO.
func evictionPolicy(ctx context.Context, client redis.Cmdable) (string, error) {
	if values, err := client.ConfigGet(ctx, "maxmemory-policy").Result(); err == nil && values["maxmemory-policy"] != "" {
		return values["maxmemory-policy"], nil
	}
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok {
			return policy, nil
		}
	}
	return "", errors.New("neither CONFIG GET nor INFO memory says it")
}

// keysLike lists keys that match a pattern of Redis'. It looks at a bounded number
// of keys, and where the server does not let it look, at none.
func keysLike(ctx context.Context, client redis.UniversalClient, pattern string) []string {
	const rounds, each = 100, 1000
	var mu sync.Mutex
	var found []string
	// What cannot be looked at is not found: this is for a hint only.
	_ = onMasters(ctx, client, func(ctx context.Context, node redis.Cmdable) error {
		for round, cursor := 0, uint64(0); round < rounds; round++ {
			keys, next, err := node.Scan(ctx, cursor, pattern, each).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			found = append(found, keys...)
			mu.Unlock()
			if cursor = next; cursor == 0 {
				break
			}
		}
		return nil
	})
	slices.Sort(found)
	return found
}

// literally is text as a part of a pattern of Redis' that matches itself.
func literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
