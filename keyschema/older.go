package keyschema

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// countName is the name in zabor_meta of the count of all beats. It only rises, so a
// lower one than was seen is a database that has lost what was committed since: a
// replica that was behind, or a backup.
const countName = "beats"

// SeenKey is the key in Redis of the highest count that was seen, beside a queue whose
// marker is at the given key.
func SeenKey(marker string) string { return marker + ":beats" }

// count raises the count of beats, and tells of a database that has gone back. The
// first time it reads how far others have seen it.
func (g *Guard) count(ctx context.Context) error {
	if g.view.Load() == nil {
		for _, q := range g.queues {
			n, err := q.Redis.Get(ctx, SeenKey(q.Key)).Uint64()
			if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, strconv.ErrSyntax) {
				return &QueueError{q.Name, err}
			}
			g.seen = max(g.seen, n)
		}
		if g.Journal != nil {
			g.seen = max(g.seen, g.Journal.Seen())
		}
	}
	now, err := g.store.Meta().Raise(ctx, countName, g.seen)
	if err != nil {
		return err
	}
	if now < g.seen && g.Older != nil {
		g.Older(now, g.seen)
	}
	g.seen = max(g.seen, now)
	return nil
}

// remember keeps how far the database was seen. What cannot be written now is written
// after the next beat.
func (g *Guard) remember(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, q := range g.queues {
		_ = q.Redis.Set(ctx, SeenKey(q.Key), g.seen, 0).Err()
	}
	if g.Journal != nil {
		_ = g.Journal.See(g.seen)
	}
}
