package prove

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/sqlstore"
)

// WorkerOptions are what [RunWorker] needs of its process.
type WorkerOptions struct {
	OpenRedis func(address string) (redis.UniversalClient, error)
	Hook      redis.Hook // of the queue's client
	At        func(zabor.Checkpoint, zabor.Key)
	Log       *slog.Logger
}

// RunWorker runs a worker of a strategy that has no fence, until ctx ends.
func RunWorker(ctx context.Context, s WorkerSettings, o WorkerOptions) error {
	store, err := sqlstore.Open(s.Database)
	if err != nil {
		return err
	}
	defer store.Close()
	w := &Worker{
		Strategy: s.Strategy, Provider: s.Provider, Prefix: s.Prefix, LockLife: s.LockLife,
		Payments: store.DB(), Dialect: store.Dialect(), Scope: s.Scope, At: o.At, Log: o.Log,
	}
	if s.Queue == Laravel {
		client, err := o.OpenRedis(s.Redis)
		if err != nil {
			return err
		}
		defer client.Close()
		client.AddHook(o.Hook)
		w.Locks = client
		w.Source, err = laravel.NewSource(client, laravel.Config{Queue: LaravelQueue, Prefix: s.Prefix, Connection: "redis", RetryAfter: s.Reserve})
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}
	config, err := messenger.ParseDSN(s.DSN)
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(config.Options())
	defer client.Close()
	client.AddHook(o.Hook)
	w.Locks = client
	source, err := messenger.NewSource(client, messenger.Options{Name: Transport, Config: config, Host: "prove"})
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	w.Source = source
	return w.Run(ctx)
}
