package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"zabor"
	"zabor/internal/connect"

	"github.com/redis/go-redis/v9"
)

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

// onMasters calls do for the server, or at the same time for all masters of a
// cluster.
func onMasters(ctx context.Context, client redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return do(ctx, client)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
}

// evictionPolicy asks CONFIG, often forbidden by managed servers, and then INFO.
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

// keysLike lists keys by a pattern of Redis'. It looks at a bounded number
// of keys, and without the right to look at no key.
func keysLike(ctx context.Context, client redis.UniversalClient, pattern string) []string {
	const rounds, each = 100, 1000
	var mu sync.Mutex
	var found []string
	// An error is ignored: this is for a hint only.
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

// literally returns text as a part of a pattern of Redis', to match itself.
func literally(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}

// WatchEviction alerts when Redis begins to evict messages while zabor takes from s, until ctx
// ends. An eviction at the start was refused then, or accepted.
func WatchEviction(ctx context.Context, alert func(zabor.Alert), s connect.Queue) {
	const every = 5 * time.Second
	evicting := func() (which string, err error) {
		policies, err := evictionPolicies(ctx, s.Redis)
		for _, policy := range policies {
			if strings.HasPrefix(policy, "allkeys-") {
				which = policy
			}
		}
		return which, err
	}
	was, err := evicting()
	if err != nil {
		return // the start has said that nothing can be told
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := evicting()
		if err != nil {
			continue
		}
		if now != "" && was == "" {
			alert(zabor.Alert{
				Severity: zabor.Critical, Code: "eviction",
				Text: fmt.Sprintf("queue %s: maxmemory-policy of its Redis was changed to %s: when memory is short it drops whole queues, and their payments are never made", s.Name(), now),
				Next: "redis-cli CONFIG SET maxmemory-policy noeviction; and in redis.conf",
			})
		}
		was = now
	}
}
