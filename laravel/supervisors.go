package laravel

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// supervisors lists those of Horizon's supervisors that have processes for the
// queue. Each keeps a hash that lapses 30 seconds after it has died (Horizon 5).
func (h *horizon) supervisors(ctx context.Context, queue string) ([]worker.Other, error) {
	if h == nil {
		return nil, nil
	}
	names, err := h.redis.ZRange(ctx, h.prefix+"supervisors", 0, 99).Result()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	hashes := make([]*redis.StringCmd, len(names))
	pipe := h.redis.Pipeline()
	for i, name := range names {
		hashes[i] = pipe.HGet(ctx, h.prefix+"supervisor:"+name, "processes")
	}
	// One that has died has none; whatever else is wrong shows in the commands.
	_, _ = pipe.Exec(ctx)
	var others []worker.Other
	for i, name := range names {
		processes, err := hashes[i].Result()
		if err == redis.Nil { //nolint:errorlint // a reply, never wrapped
			continue
		}
		if err != nil {
			return nil, err
		}
		if !works(processes, h.connection, queue) {
			continue
		}
		short := name[strings.LastIndex(name, ":")+1:] // MASTER:NAME in config/horizon.php
		others = append(others, worker.Other{
			Name: "supervisor " + name, Named: true,
			What: fmt.Sprintf("Horizon's supervisor %s has processes for %s:%s", name, h.connection, queue),
			Stop: fmt.Sprintf("take '%s' out of the `queue` of '%s' in config/horizon.php (defaults and environments), and restart Horizon", queue, short),
		})
	}
	return others, nil
}

// works reports whether a supervisor's processes, {"redis:high,low": 3}, take from
// the queue.
func works(processes, connection, queue string) bool {
	var pools map[string]json.RawMessage
	if json.Unmarshal([]byte(processes), &pools) != nil {
		return false
	}
	for pool := range maps.Keys(pools) {
		queues, ours := strings.CutPrefix(pool, connection+":")
		if ours && slices.Contains(strings.Split(queues, ","), queue) {
			return true
		}
	}
	return false
}
