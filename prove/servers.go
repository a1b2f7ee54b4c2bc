package prove

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/sqlstore"
)

// Installation is what a proof on servers that are there needs to know of them.
type Installation struct {
	Fence string // address

	// Redis is that of Laravel's queues, with its address; nil: there is none.
	Redis    redis.UniversalClient
	RedisURL string
	// Stream is that of Symfony's transports, with the DSN of one of them; nil:
	// there is none, and Redis is taken for both where its address is a plain one.
	Stream redis.UniversalClient
	DSN    string

	Keys map[string]string // with which the keys of each of its queues begin

	Fencing Fencing
}

// ErrTaken says that the place in Redis is a configured queue's.
var ErrTaken = errors.New(scratchKeys + " is what the keys of a proof begin with")

// scratchName is that of the proof's database, schema or folder.
const scratchName = "zabor_prove"

// scratchKeys begins every key of a proof in Redis; then comes what tells one run
// from another.
const scratchKeys = "zabor_prove:"

// Two keys of each run say what it is: one for as long as it is alive, and one
// until all others are removed. Without the second, keys are somebody else's,
// whatever they begin with.
const (
	aliveKey = "alive"
	markKey  = "mark"
	markText = "made by zabor prove"
)

// alive is how long a run counts as one that goes on after it was last heard of.
const alive = 30 * time.Second

// errSwept says that the place was taken away.
var errSwept = fmt.Errorf("this proof stood still for longer than %s, and another one has removed what it had in Redis: nothing can be said about it; run it again", alive)

// OnServers is a place on an installation's own servers: under a prefix of keys
// and in a database, schema or folder that are its own, and that close removes.
// What a run that was killed has left is removed first. It refuses an installation
// one of whose queues is under the prefix.
func OnServers(ctx context.Context, dir string, on Installation) (p *Place, closeAll func() error, err error) {
	for queue, key := range on.Keys {
		if strings.HasPrefix(key, scratchKeys) || strings.HasPrefix(scratchKeys, key) {
			return nil, nil, fmt.Errorf("queue %s has its messages at %q, and %w: the proof would put its own there, and remove them; nothing was touched", queue, key, ErrTaken)
		}
	}
	s := &scratch{prefix: scratchKeys + rand.Text()[:8] + ":", swept: make(chan struct{})}
	p = &Place{Dir: dir, Prefix: s.prefix, Redis: on.Redis, Stream: on.Stream, RedisURL: on.RedisURL, Fencing: on.Fencing, swept: s.swept}
	dsn := on.DSN
	if p.Stream == nil {
		if dsn = plainDSN(on.RedisURL); dsn != "" {
			p.Stream = on.Redis
		}
	}
	p.DSN = func(stream, options string) string {
		if dsn == "" {
			return ""
		}
		return withStream(dsn, stream, options)
	}
	if on.Redis != nil {
		s.clients = append(s.clients, on.Redis)
	}
	if on.Stream != nil {
		s.clients = append(s.clients, on.Stream)
	}
	if len(s.clients) == 0 {
		return nil, nil, errors.New("no Redis: the configuration has neither redis: nor a Symfony queue")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err := s.begin(ctx); err != nil {
		return nil, nil, err
	}
	if s.tables, err = sqlstore.OpenScratch(ctx, on.Fence, scratchName); err != nil {
		return nil, nil, err
	}
	if s.store, err = sqlstore.Open(s.tables.Address); err != nil {
		return nil, nil, err
	}
	if err := s.store.Setup().Migrate(ctx); err != nil {
		return nil, nil, err
	}
	if err := s.store.Setup().Check(ctx); err != nil {
		return nil, nil, err
	}
	if err := createPayments(ctx, s.store.DB()); err != nil {
		return nil, nil, err
	}
	p.Store = s.store
	p.Name = "own " + redisVersion(ctx, s.clients[0]) + ", " + databaseVersion(ctx, s.store)
	p.Fence = func(string) (string, error) { return s.tables.Address, nil }
	folders := []string{dir}
	if s.store.Dialect() == "sqlite" {
		folder := filepath.Dir(strings.TrimPrefix(s.tables.Address, "sqlite://"))
		p.Fence = copies(ctx, s.store, s.tables.Address, folder)
		folders = append(folders, folder)
	}
	p.veil = newVeil([]string{on.Fence, on.RedisURL, on.DSN}, folders)
	return p, s.remove, nil
}

// copies gives each name a copy of a SQLite store of its own.
func copies(ctx context.Context, store *sqlstore.Store, address, folder string) func(string) (string, error) {
	return func(name string) (string, error) {
		if name == "" {
			return address, nil
		}
		file := filepath.Join(folder, name+".db")
		copied := (&url.URL{Scheme: "sqlite", Path: file}).String()
		if _, err := os.Stat(file); err == nil {
			return copied, nil
		}
		_, err := store.DB().ExecContext(ctx, "VACUUM INTO ?", file)
		return copied, err
	}
}

// scratch is what a proof has on servers that are not its own.
type scratch struct {
	prefix  string
	clients []redis.UniversalClient
	tables  *sqlstore.Scratch
	store   *sqlstore.Store
	stop    func()        // ends the sign of life
	swept   chan struct{} // closed: another run took this one for dead
	removed sync.Once
}

// begin removes what killed runs have left, and keeps this one alive.
func (s *scratch) begin(ctx context.Context) error {
	for _, client := range s.clients {
		if err := sweep(ctx, client); err != nil {
			return fmt.Errorf("remove what an earlier proof has left in Redis, under %s*: %w", scratchKeys, err)
		}
		err := client.Set(ctx, s.prefix+aliveKey, "1", alive).Err() // before the mark, or another run might sweep it at once
		if err == nil {
			err = client.Set(ctx, s.prefix+markKey, markText, 0).Err()
		}
		if err != nil {
			return fmt.Errorf("write to Redis under %s* (the user needs ~%s* and all that a queue's worker uses): %w", scratchKeys, scratchKeys, err)
		}
	}
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	s.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		tick := time.NewTicker(alive / 3)
		defer tick.Stop()
		for {
			select {
			case <-living.Done():
				return
			case <-tick.C:
			}
			if s.live(living) {
				close(s.swept)
				return
			}
		}
	}()
	return nil
}

// live gives the sign of life, and reports whether it comes too late: another run
// has removed this one's mark.
func (s *scratch) live(ctx context.Context) (swept bool) {
	for _, client := range s.clients {
		_ = client.Set(ctx, s.prefix+aliveKey, "1", alive).Err() // the next one may be in time
		if marks, err := client.Exists(ctx, s.prefix+markKey).Result(); err == nil && marks == 0 {
			return true
		}
	}
	return false
}

// remove removes all of it. It may be called more than once.
func (s *scratch) remove() (err error) {
	s.removed.Do(func() {
		if s.stop != nil {
			s.stop()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, client := range s.clients {
			if left := unlink(ctx, client, s.prefix); left != nil {
				err = errors.Join(err, fmt.Errorf("the keys %s* in Redis: %w", s.prefix, left))
			}
		}
		if s.store != nil {
			s.store.Close()
		}
		if s.tables != nil {
			err = errors.Join(err, s.tables.Remove())
		}
	})
	return err
}

// sweep removes the keys of every run that is not alive any more.
func sweep(ctx context.Context, client redis.UniversalClient) error {
	runs := map[string]bool{}
	if err := scan(ctx, client, scratchKeys, func(keys []string) error {
		for _, key := range keys {
			if run, rest, _ := strings.Cut(strings.TrimPrefix(key, scratchKeys), ":"); rest == markKey {
				runs[scratchKeys+run+":"] = true
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for prefix := range runs {
		if dead, err := died(ctx, client, prefix); err != nil {
			return err
		} else if !dead {
			continue
		}
		if err := unlink(ctx, client, prefix); err != nil {
			return err
		}
	}
	return nil
}

// died reports whether the keys under prefix are those of a run that has left them.
func died(ctx context.Context, client redis.UniversalClient, prefix string) (bool, error) {
	lives, err := client.Exists(ctx, prefix+aliveKey).Result()
	if err != nil || lives > 0 {
		return false, err
	}
	kind, err := client.Type(ctx, prefix+markKey).Result()
	if err != nil || kind != "string" {
		return false, err
	}
	mark, err := client.Get(ctx, prefix+markKey).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil // its owner was faster
	}
	return mark == markText, err
}

// unlink removes every key of the run whose keys begin with prefix, one by one: on
// a cluster they are on many nodes. The mark goes last, so that whatever is left
// after a death is swept by the next run.
func unlink(ctx context.Context, client redis.UniversalClient, prefix string) error {
	err := scan(ctx, client, prefix, func(keys []string) error {
		for _, key := range keys {
			if key == prefix+markKey {
				continue
			}
			if err := client.Unlink(ctx, key).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return client.Unlink(ctx, prefix+markKey).Err()
}

// scan goes through the keys that begin with prefix, on all nodes.
func scan(ctx context.Context, client redis.UniversalClient, prefix string, do func([]string) error) error {
	one := func(ctx context.Context, node redis.Cmdable) error {
		cursor := uint64(0)
		for {
			keys, next, err := node.Scan(ctx, cursor, prefix+"*", 1000).Result()
			if err != nil {
				return err
			}
			if err := do(keys); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return one(ctx, client)
	}
	var mu sync.Mutex // nodes are asked at the same time
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return one(ctx, node)
	})
}

// plainDSN is the DSN of the Redis at a plain address; empty: the address is of
// another kind.
func plainDSN(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.RawQuery != "" || strings.Contains(u.Host, ",") {
		return ""
	}
	db := strings.Trim(u.Path, "/")
	u.Path = ""
	if db != "" {
		u.RawQuery = "dbindex=" + db
	}
	if _, password := u.User.Password(); u.User != nil && !password {
		return "" // what a lone name is, the two kinds of address do not agree on
	}
	return u.String()
}

// withStream is a transport's DSN with another stream, and with options in place
// of its own of these names.
func withStream(dsn, stream, options string) string {
	own := append(strings.Split(options, "&"), "stream="+url.QueryEscape(stream), "group="+group)
	name := func(option string) string { name, _, _ := strings.Cut(option, "="); return name }
	var parts []string
	for part := range strings.SplitSeq(dsn, ",") {
		head, query, _ := strings.Cut(strings.TrimSpace(part), "?")
		if scheme, rest, ok := strings.Cut(head, "://"); ok && !strings.HasPrefix(rest, "/") {
			before, host, credentials := strings.Cut(rest, "@")
			if !credentials {
				host = rest
			}
			host, _, _ = strings.Cut(host, "/")
			if credentials {
				host = before + "@" + host
			}
			head = scheme + "://" + host
		}
		kept := slices.DeleteFunc(strings.Split(query, "&"), func(option string) bool {
			return option == "" || name(option) == "delete_after_reject" || name(option) == "stream_max_entries" || name(option) == "consumer" ||
				slices.ContainsFunc(own, func(o string) bool { return name(o) == name(option) })
		})
		parts = append(parts, head+"?"+strings.Join(append(kept, own...), "&"))
	}
	return strings.Join(parts, ",")
}
