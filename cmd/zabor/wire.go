package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/config"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/provider"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// load reads the configuration that the flags name.
func (p *program) load() (*config.Config, error) {
	path, err := config.Find(p.cli.Config, os.LookupEnv)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage(err, "name the file with -c FILE; zabor.example.yaml has every key")
	}
	if err != nil {
		return nil, usage(err, "")
	}
	env := config.Env{Lookup: os.LookupEnv}
	if p.cli.EnvFile != "" {
		if env.File, err = config.ReadEnvFile(p.cli.EnvFile, os.LookupEnv); err != nil {
			return nil, usage(err, "")
		}
	}
	c, err := config.Load(path, env)
	if err != nil {
		if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil, usage(err, "\"zabor init APPLICATION > zabor.yaml\" makes one; -c FILE and ZABOR_CONFIG name another")
		}
		return nil, usage(err, "nothing was started; zabor.example.yaml has every key, and docs/providers.md says what a provider needs")
	}
	return c, nil
}

// openFence reads the configuration and opens the fence's database.
func (p *program) openFence() (*config.Config, *sqlstore.Store, error) {
	c, err := p.load()
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.Open(string(c.Fence))
	if err != nil {
		return nil, nil, usage(fmt.Errorf("%s: fence: %w", c.Path, err), "")
	}
	store.Encrypt(c.Keys())
	return c, store, nil
}

// storeFailure is the error of a store as the command reports it.
func storeFailure(err error) error {
	if _, ok := errors.AsType[*sqlstore.Problem](err); ok || errors.Is(err, sqlstore.ErrNotMigrated) || errors.Is(err, sqlstore.ErrReadOnly) {
		return usage(err, "")
	}
	if sqlstore.Pooled(err) {
		return usage(fmt.Errorf("the fence's database: %w", err), "nothing was changed; a pooler stands between: give the server's own address under fence:, or set the pooler to pool_mode = session and "+
			"ignore_startup_parameters = default_transaction_isolation,lock_timeout,statement_timeout,idle_in_transaction_session_timeout")
	}
	return unreachable(fmt.Errorf("the fence's database: %w", err), "nothing was changed; is the server up, and is the address under fence: right?")
}

// queue is one that zabor takes from.
type queue struct {
	worker.Queue
	station
	failed *sqlstore.Store // the database of its failure transport, unless that is a stream
	shared bool            // PHP workers take from it too
}

// queues makes the sources of c's queues. close ends their connections.
func (p *program) queues(c *config.Config, store *sqlstore.Store) (list []queue, closeAll func(), err error) {
	places, closeClients, err := stations(c)
	if err != nil {
		return nil, nil, err
	}
	databases := newApplications(c, store)
	closers := []func(){closeClients, databases.close}
	closeAll = func() {
		for _, f := range slices.Backward(closers) {
			f()
		}
	}
	for _, s := range places {
		q := c.Queues[s.queue]
		made := queue{station: s, shared: q.Shared}
		if made.failed, err = databases.failed(s.queue, q); err != nil {
			closeAll()
			return nil, nil, err
		}
		if s.Config == nil {
			made.Queue, err = p.laravelQueue(s, q, made.failed)
		} else {
			var source *messenger.Source
			if made.Queue, source, err = p.symfonyQueue(s, q, made.failed); err == nil {
				closers = append(closers, func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					source.Close(ctx)
				})
			}
		}
		if err != nil {
			closeAll()
			return nil, nil, usage(fmt.Errorf("%s: queues.%s: %w", c.Path, s.queue, err), "")
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

func (p *program) laravelQueue(s station, q *config.Queue, store *sqlstore.Store) (worker.Queue, error) {
	zone, err := time.LoadLocation(q.Laravel.Timezone)
	if err != nil {
		return worker.Queue{}, fmt.Errorf("laravel.timezone: %w", err)
	}
	table := "failed_jobs"
	if q.Failed != nil && q.Failed.Table != "" {
		table = q.Failed.Table
	}
	failed, err := laravel.NewFailedJobs(store.DB(), store.Dialect(), table, zone)
	if err != nil {
		return worker.Queue{}, err
	}
	keys, err := laravel.ParseAppKeys(string(q.Laravel.AppKey))
	if err != nil {
		return worker.Queue{}, fmt.Errorf("laravel.app_key: %w; write it as in the application's .env, APP_KEY first and then APP_PREVIOUS_KEYS", err)
	}
	source, err := laravel.NewSource(s.redis, laravel.Config{
		Queue: s.queue, Prefix: q.Laravel.Prefix, Connection: q.Laravel.Connection, RetryAfter: q.Laravel.RetryAfter, AppKeys: keys, Failed: failed,
		Horizon: q.Laravel.Horizon, Warn: func(err error) { p.log.Warn(err.Error(), "queue", s.queue) },
	})
	return worker.Queue{Source: source, Reserve: q.Laravel.RetryAfter}, err
}

func (p *program) symfonyQueue(s station, q *config.Queue, store *sqlstore.Store) (worker.Queue, *messenger.Source, error) {
	host, err := os.Hostname()
	if err != nil {
		return worker.Queue{}, nil, err
	}
	c := *s.Config
	if q.Symfony.RedeliverTimeout > 0 {
		c.RedeliverTimeout = q.Symfony.RedeliverTimeout
	}
	failed, err := symfonyFailed(q, c, s.redis, store)
	if err != nil {
		return worker.Queue{}, nil, err
	}
	source, err := messenger.NewSource(s.redis, messenger.Options{
		Name: s.queue, Config: c, Failed: failed, Secret: string(q.Symfony.AppSecret), Host: host, Alert: p.alert,
	})
	if err != nil {
		return worker.Queue{}, nil, err
	}
	return worker.Queue{Source: source, Reserve: c.RedeliverTimeout}, source, nil
}

// compiledSteps are the file's steps, which load from the application's database.
func compiledSteps(databases *applications) ([]*step.Step, error) {
	application, err := databases.at("", "database")
	if err != nil {
		return nil, err
	}
	steps := databases.file.Compiled()
	for _, s := range steps {
		s.DB = application.DB()
	}
	return steps, nil
}

// secrets follows the files that hold c's secrets.
func (p *program) secrets(c *config.Config) *config.Rotation {
	return c.Rotation(func(err error) { p.log.Error(err.Error()) })
}

// providers makes the clients of c's providers, by name, with credentials as secrets
// has them.
func (p *program) providers(c *config.Config, secrets *config.Rotation) (map[string]*provider.Provider, error) {
	made := map[string]*provider.Provider{}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		profile, _ := c.Profile(name) // Parse has made one of each
		o := provider.Options{Keep: kept(c), Rotated: secrets.Credentials(name)}
		if address := string(c.Providers[name].Proxy); address != "" {
			var err error
			if o.Proxy, err = url.Parse(address); err != nil {
				// The error's own text has the address, and so its password.
				return nil, usage(fmt.Errorf("%s: providers.%s.proxy: not an address", c.Path, name), "write http://host:port, or http://user:password@host:port")
			}
		}
		one, err := provider.New(name, profile, o)
		if err != nil {
			return nil, usage(fmt.Errorf("%s: providers.%s: %w", c.Path, name, err), "")
		}
		made[name] = one
	}
	return made, nil
}

// kept is how much of an answer is kept, whoever asked for it: a proxied row in
// doubt may be decided by a worker.
func kept(c *config.Config) provider.Keep {
	if c.Proxy == nil {
		return provider.Keep{}
	}
	keep := provider.Keep{Body: c.Proxy.KeepBody, Redact: c.Proxy.Redact}
	if keep.Body == 0 {
		keep.Body = -1 // none
	}
	return keep
}

// call is the zabor.Call of all providers: each row names its own.
func call(providers map[string]*provider.Provider) zabor.Call {
	return func(ctx context.Context, row zabor.Row) zabor.Outcome {
		one, ok := providers[row.Provider]
		if !ok {
			return zabor.Outcome{Verdict: zabor.Unsent, Reason: fmt.Sprintf("provider %q is not in the configuration any more", row.Provider)}
		}
		return one.Call(ctx, row)
	}
}

// place is where each of the providers is called; empty: it is not in the
// configuration.
func place(providers map[string]*provider.Provider) func(string) string {
	return func(name string) string {
		if one, ok := providers[name]; ok {
			return one.Place()
		}
		return ""
	}
}

// lookup is the zabor.Lookup of all providers.
func lookup(providers map[string]*provider.Provider) zabor.Lookup {
	return func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
		one, ok := providers[row.Provider]
		if !ok {
			return zabor.Finding{}, fmt.Errorf("provider %q is not in the configuration any more; write it back until its rows are closed", row.Provider)
		}
		return one.Lookup(ctx, row)
	}
}

func moneyText(m zabor.Money) string {
	if m.Currency == "" {
		return ""
	}
	return provider.Major(m) + " " + m.Currency
}

// printable is s for a terminal: what could move the cursor is quoted.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// symfonyFailed is the failure transport of a Symfony queue: the Doctrine table
// in the fence's database unless a stream is configured.
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
