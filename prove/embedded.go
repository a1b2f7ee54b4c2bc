package prove

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"zabor/sqlstore"
)

// Embedded is a place without any server: a Redis in this process, and SQLite
// files in dir, one for each cell. closeAll ends what it has.
func Embedded(ctx context.Context, dir string) (p *Place, closeAll func() error, err error) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			server.Close()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	go passTime(ctx, server)
	base := filepath.Join(dir, "fence.db")
	store, err := sqlstore.Open("sqlite://" + base)
	if err == nil {
		err = store.Setup().Migrate(ctx)
	}
	if err == nil {
		err = createPayments(ctx, store.DB())
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	p = &Place{
		Dir: dir, Name: "embedded Redis, " + databaseVersion(ctx, store), Prefix: "zabor_prove:",
		Redis: client, Stream: client, RedisURL: "redis://" + server.Addr() + "/0", Store: store,
		Fencing: Fencing{Attempts: 1000, MissingRow: map[Queue]string{Laravel: "capture", Symfony: "capture"}},
		veil:    newVeil(nil, []string{dir}),
		DSN: func(stream, options string) string {
			return fmt.Sprintf("redis://%s/%s/%s?%s", server.Addr(), stream, group, options)
		},
		Fence: copies(ctx, store, "sqlite://"+base, dir),
		Servers: []Server{{
			Name: "Redis",
			Kill: func() error { server.Close(); return nil },
			Start: func() error {
				// Close has ended it, and with it every blocking command.
				server.Ctx, server.CtxCancel = context.WithCancel(context.Background())
				return server.Restart()
			},
		}},
	}
	return p, func() error {
		cancel()
		server.Close()
		return errors.Join(client.Close(), store.Close())
	}, nil
}

// passTime lets the embedded Redis' keys expire: it has no clock of its own.
func passTime(ctx context.Context, server *miniredis.Miniredis) {
	const step = 100 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			server.FastForward(step)
		}
	}
}
