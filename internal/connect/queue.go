// Package connect opens the servers of a zabor.yaml: queues on Redis with their failure
// transports, the application's databases, and the clients of providers. It asks no
// server yet, and changes no data.
package connect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/sqlstore"
	"zabor/worker"
)

// Queue is a queue of the configuration, with its connection.
type Queue struct {
	worker.Queue
	Connection
	FailedIn *sqlstore.Store // the database of its failure transport, unless it is a stream
	Shared   bool            // PHP workers take from it too
}

// ScopeKey returns the key in Redis with the scope of the installation that takes
// from s.
func (s Queue) ScopeKey() string {
	const queues = "queues:"
	if at := strings.LastIndex(s.Key, queues); s.Config == nil && at >= 0 {
		return s.Key[:at] + "zabor:" + s.Key[at+len(queues):] + ":scope"
	}
	return s.Key + "__zabor"
}

// Location returns framework, database and key of s. The server is left out: it can
// have several names.
func (s Queue) Location() string {
	kind := "laravel"
	if s.Config != nil {
		kind = "symfony"
	}
	return fmt.Sprintf("%s %d %s", kind, s.DB, strconv.Quote(s.Key))
}

// Queues opens the queues of c with their failure transports. store is the fence. log
// gets the warnings of a queue in use; alert must not be nil. closeAll ends the
// connections and is never nil.
func Queues(c *config.Config, store *sqlstore.Store, log *slog.Logger, alert func(zabor.Alert)) (list []Queue, closeAll func(), err error) {
	places, closeClients, err := Connections(c)
	if err != nil {
		return nil, func() {}, err
	}
	databases := NewDatabases(c, store)
	closers := []func(){closeClients, databases.Close}
	closeAll = func() {
		for _, f := range slices.Backward(closers) {
			f()
		}
	}
	for _, s := range places {
		q := c.Queues[s.QueueName]
		made := Queue{Connection: s, Shared: q.Shared}
		if made.FailedIn, err = databases.failed(s.QueueName, q); err != nil {
			closeAll()
			return nil, func() {}, err
		}
		if s.Config == nil {
			var source *laravel.Source
			if made.Queue, source, err = laravelQueue(s, q, made.FailedIn, log); err == nil {
				closers = append(closers, source.Close)
			}
		} else {
			var source *messenger.Source
			if made.Queue, source, err = symfonyQueue(s, q, made.FailedIn, alert); err == nil {
				closers = append(closers, func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					source.Close(ctx)
				})
			}
		}
		if err != nil {
			closeAll()
			return nil, func() {}, exit.Usage(fmt.Errorf("%s: queues.%s: %w", c.Path, s.QueueName, err), "")
		}
		switch {
		case q.Shared:
			made.MissingRow = zabor.Held
		case q.MissingRow == "capture":
			made.MissingRow = zabor.Captured
		default:
			made.MissingRow = zabor.Doubt
		}
		list = append(list, made)
	}
	return list, closeAll, nil
}

func laravelQueue(s Connection, q *config.Queue, store *sqlstore.Store, log *slog.Logger) (worker.Queue, *laravel.Source, error) {
	zone, err := time.LoadLocation(q.Laravel.Timezone)
	if err != nil {
		return worker.Queue{}, nil, fmt.Errorf("laravel.timezone: %w", err)
	}
	table := "failed_jobs"
	if q.Failed != nil && q.Failed.Table != "" {
		table = q.Failed.Table
	}
	failed, err := laravel.NewFailedJobs(store.DB(), store.Dialect(), table, zone)
	if err != nil {
		return worker.Queue{}, nil, err
	}
	keys, err := laravel.ParseAppKeys(string(q.Laravel.AppKey))
	if err != nil {
		return worker.Queue{}, nil, fmt.Errorf("laravel.app_key: %w; write it as in the application's .env, APP_KEY first and then APP_PREVIOUS_KEYS", err)
	}
	source, err := laravel.NewSource(s.Redis, laravel.Config{
		Queue: s.QueueName, Prefix: q.Laravel.Prefix, Connection: q.Laravel.Connection, RetryAfter: q.Laravel.RetryAfter, AppKeys: keys, Failed: failed,
		Horizon: q.Laravel.Horizon, Warn: func(err error) { log.Warn(err.Error(), "queue", s.QueueName) },
	})
	if err != nil {
		return worker.Queue{}, nil, err
	}
	return worker.Queue{Source: source, Reserve: q.Laravel.RetryAfter}, source, nil
}

func symfonyQueue(s Connection, q *config.Queue, store *sqlstore.Store, alert func(zabor.Alert)) (worker.Queue, *messenger.Source, error) {
	host, err := os.Hostname()
	if err != nil {
		return worker.Queue{}, nil, err
	}
	c := *s.Config
	if q.Symfony.RedeliverTimeout > 0 {
		c.RedeliverTimeout = q.Symfony.RedeliverTimeout
	}
	failed, err := symfonyFailed(q, c, s.Redis, store)
	if err != nil {
		return worker.Queue{}, nil, err
	}
	source, err := messenger.NewSource(s.Redis, messenger.Options{
		Name: s.QueueName, Config: c, Failed: failed, Secrets: messenger.ParseSecrets(string(q.Symfony.AppSecret)), Host: host, Alert: alert,
	})
	if err != nil {
		return worker.Queue{}, nil, err
	}
	return worker.Queue{Source: source, Reserve: c.RedeliverTimeout}, source, nil
}

// symfonyFailed returns the failure transport of a Symfony queue: its stream where one
// is configured, else the Doctrine table.
func symfonyFailed(q *config.Queue, c messenger.Config, client redis.UniversalClient, store *sqlstore.Store) (messenger.Failed, error) {
	table, queueName := "messenger_messages", "failed"
	if q.Failed != nil {
		if q.Failed.Stream != "" {
			c.Stream = q.Failed.Stream
			return &messenger.Stream{Client: client, Config: c}, nil
		}
		table, queueName = cmp.Or(q.Failed.Table, table), cmp.Or(q.Failed.QueueName, queueName)
	}
	return messenger.NewTable(store.DB(), store.Dialect(), table, queueName, time.UTC)
}

// WorkerQueues returns list as the worker takes it.
func WorkerQueues(list []Queue) []worker.Queue {
	all := make([]worker.Queue, len(list))
	for i, q := range list {
		all[i] = q.Queue
	}
	return all
}
