package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/config"
	"zabor/messenger"
	"zabor/worker"
)

// station is where a queue is in Redis.
type station struct {
	queue string // its name in the configuration
	key   string // with which all of its keys begin
	db    int
	redis redis.UniversalClient
	*messenger.Config
}

// stations are the queues' places. close ends their connections.
func stations(file *config.Config) (list []station, closeAll func(), err error) {
	var clients []redis.UniversalClient
	closeAll = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	var laravel redis.UniversalClient
	db := 0
	for _, name := range slices.Sorted(maps.Keys(file.Queues)) {
		switch q := file.Queues[name]; {
		case q.Laravel != nil:
			if laravel == nil {
				if laravel, err = newRedis(string(file.Redis)); err != nil {
					return nil, nil, usage(fmt.Errorf("%s: redis: %w", file.Path, err), "")
				}
				clients = append(clients, laravel)
				if single, ok := laravel.(*redis.Client); ok {
					db = single.Options().DB
				}
			}
			list = append(list, station{queue: name, key: q.Laravel.Prefix + "queues:" + name, db: db, redis: laravel})
		case q.Symfony != nil:
			c, err := messenger.ParseDSN(string(q.Symfony.DSN))
			if err != nil {
				return nil, nil, usage(fmt.Errorf("%s: queues.%s: %w", file.Path, name, err), "")
			}
			client := redis.NewUniversalClient(c.Options())
			clients = append(clients, client)
			list = append(list, station{queue: name, key: c.Stream, db: c.DB, redis: client, Config: &c})
		}
	}
	return list, closeAll, nil
}

// startUp refuses what would lose messages or have them taken by two, before any
// is taken.
func (p *program) startUp(ctx context.Context, file *config.Config, acceptEviction bool) error {
	list, closeAll, err := stations(file)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := p.checkPlaces(file, list); err != nil {
		return err
	}
	if err := p.checkEviction(ctx, list, acceptEviction); err != nil {
		return err
	}
	for _, s := range list {
		if err := checkConsumers(ctx, s); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		if u, err := url.Parse(string(file.Providers[name].BaseURL)); err == nil && u.Host != "" {
			p.log.Info("provider", "name", name, "host", u.Host)
		}
	}
	return nil
}

// checkPlaces looks for what the configuration alone tells: keys that a cache
// would clear, and messages that would be forwarded in a circle.
func (p *program) checkPlaces(file *config.Config, list []station) error {
	for _, s := range list {
		for i, k := range file.KeepApart {
			if k.DB != s.db {
				continue
			}
			if strings.HasPrefix(s.key, k.Prefix) || strings.HasPrefix(k.Prefix, s.key) {
				return usage(fmt.Errorf("%s: keep_apart[%d]: the keys of queue %s begin with %q and those of the cache or sessions with %q, in database %d: whoever clears these by their prefix deletes messages",
					file.Path, i, s.queue, s.key, k.Prefix, s.db), "nothing was started; give the queue, or the cache, a prefix or a database of its own, in the application too")
			}
			p.log.Warn("cache or sessions are in the queue's database: no prefix protects messages from FLUSHDB, which Laravel's cache:clear is",
				"queue", s.queue, "prefix", k.Prefix, "db", s.db)
		}
		if s.Config == nil {
			continue
		}
		if wrong := circles(file, s); len(wrong) > 0 {
			return usage(config.Errors(wrong), "nothing was started")
		}
	}
	if file.Bus != nil && file.Bus.Forward["*"] != "" {
		p.log.Warn("every message that has no step is forwarded (bus.forward '*'): one whose class was renamed, or that a step should name, runs in PHP without a fence", "to", file.Bus.Forward["*"])
	}
	return nil
}

// circles are the settings that send messages to the stream of s, from which
// zabor takes them again.
func circles(file *config.Config, s station) (wrong []config.Finding) {
	check := func(target, key string) {
		if target == s.Stream {
			wrong = append(wrong, file.Finding(key, fmt.Sprintf("%s is the stream of queue %s, which zabor takes from: the message would come back, and go on for ever", target, s.queue),
				"write a stream that only the PHP workers take from"))
		}
	}
	if file.Bus != nil {
		for _, pattern := range slices.Sorted(maps.Keys(file.Bus.Forward)) {
			check(file.Bus.Forward[pattern], "bus.forward."+string(pattern))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Steps)) {
		check(file.Steps[name].Then, "steps."+name+".then")
	}
	return wrong
}

// checkEviction refuses servers that drop keys of their own accord when memory is
// short: queues have no time to live, but allkeys-* evicts them all the same.
func (p *program) checkEviction(ctx context.Context, list []station, accept bool) error {
	for _, s := range list {
		policies, err := evictionPolicies(ctx, s.redis)
		if err != nil {
			p.log.Warn("cannot tell whether Redis evicts messages when memory is short; it must have maxmemory-policy noeviction", "queue", s.queue, "error", err)
			continue
		}
		for _, policy := range policies {
			switch {
			case !strings.HasPrefix(policy, "allkeys-"):
			case accept:
				p.log.Warn("Redis may evict messages when memory is short, which was accepted", "queue", s.queue, "maxmemory-policy", policy)
			default:
				return usage(fmt.Errorf("queue %s: its Redis has maxmemory-policy %s: when memory is short it drops whole queues as gladly as cached pages", s.queue, policy),
					"nothing was started; set maxmemory-policy noeviction or volatile-lru (CONFIG SET, and in redis.conf), or put the cache on a server of its own; --accept-eviction takes the risk")
			}
		}
	}
	return nil
}

// evictionPolicies are the policies of the server, or of all masters of a
// cluster.
func evictionPolicies(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		policy, err := evictionPolicy(ctx, client)
		return []string{policy}, err
	}
	var mu sync.Mutex
	var all []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		policy, err := evictionPolicy(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, policy)
		return err
	})
	return all, err
}

// evictionPolicy asks CONFIG, which managed servers often forbid, and then INFO.
func evictionPolicy(ctx context.Context, client redis.UniversalClient) (string, error) {
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

// alive is how long ago a consumer may have asked for a message and still count
// as one that lives.
const alive = time.Minute

// checkConsumers refuses to take messages beside others than zabor: what they had
// and did not finish would be taken for never begun.
func checkConsumers(ctx context.Context, s station) error {
	if s.Config == nil {
		return nil
	}
	consumers, err := s.redis.XInfoConsumers(ctx, s.Stream, s.Group).Result()
	if err != nil {
		if text := err.Error(); strings.Contains(text, "no such key") || strings.Contains(text, "NOGROUP") {
			return nil
		}
		return unreachable(fmt.Errorf("queue %s: consumers of group %s: %w", s.queue, s.Group, err), "nothing was taken; is Redis up, and is its address right?")
	}
	for _, c := range consumers {
		if c.Idle < alive && !messenger.IsConsumer(c.Name) {
			return usage(fmt.Errorf("queue %s: consumer %q of group %s took messages of stream %s %s ago, and is not zabor's: a charge that it began would be made again",
				s.queue, c.Name, s.Group, s.Stream, c.Idle.Round(time.Second)),
				fmt.Sprintf("nothing was started; stop messenger:consume %s everywhere, and start again %s after it has ended", s.queue, alive))
		}
	}
	return nil
}

// busOf is the file's bus as the worker takes it.
func busOf(file *config.Config) worker.Bus {
	bus := worker.Bus{Forward: map[string]string{}}
	if file.Bus == nil {
		return bus
	}
	for pattern, queue := range file.Bus.Forward {
		bus.Forward[string(pattern)] = queue
	}
	for _, pattern := range file.Bus.Refuse {
		bus.Refuse = append(bus.Refuse, string(pattern))
	}
	return bus
}
