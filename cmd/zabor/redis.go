package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"zabor/internal/connect"
	"zabor/internal/exit"

	"github.com/redis/go-redis/v9"
)

// checkServer refuses a server that would lose what it is told, or that drops keys
// of its own accord when memory is short: queues have no time to live, but allkeys-*
// evicts them all the same.
func (p *program) checkServer(ctx context.Context, s connect.Queue, acceptEviction bool) error {
	role, err := s.Redis.Do(ctx, "ROLE").Slice()
	if err == nil && len(role) > 0 && role[0] == "slave" {
		return exit.Usage(fmt.Errorf("queue %s: its Redis is a replica, which takes no writes, and whose messages are copies", s.Name()),
			"nothing was started; write the master's address, or that of the Sentinels with master_name=NAME")
	}
	policies, err := evictionPolicies(ctx, s.Redis)
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
