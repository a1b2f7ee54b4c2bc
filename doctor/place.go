package doctor

import (
	"fmt"
	"slices"
	"strings"

	"zabor/internal/app"
)

// used are the queues on Redis that something is sent to or taken from.
func used(c *check) []app.Queue {
	var list []app.Queue
	for _, q := range c.Queues() {
		if q.Redis == nil {
			continue
		}
		if c.Framework == app.Symfony || q.Default || named(c, q.Name) {
			list = append(list, q)
		}
	}
	return list
}

// named reports whether a worker, a supervisor of Horizon or a job names a queue
// connection of Laravel.
func named(c *check, connection string) bool {
	for _, w := range c.Workers {
		if slices.Contains(w.Args(), connection) {
			return true
		}
	}
	for _, s := range c.HorizonSupervisors() {
		if s.Config.Get("connection").Str() == connection {
			return true
		}
	}
	for _, job := range c.Jobs() {
		if q := jobQueue(c, job); q != nil && q.Name == connection {
			return true
		}
	}
	return false
}

// clearedDatabase finds queues in the database that a cache is cleared from.
func clearedDatabase(c *check) {
	for _, q := range used(c) {
		for _, k := range c.Neighbours() {
			if k.Use != "cache" || !q.Redis.Shares(k.Redis) {
				continue
			}
			place := fmt.Sprintf("%s, database %s", q.Redis.Server(), k.Redis.DB)
			if c.Framework == app.Laravel {
				c.at(cachePlace(k), "REDIS_CACHE_DB=1, in .env, and 'connection' => 'cache' for the store in config/cache.php; better a server of its own",
					"cache store %s and queue connection %s are in one database (%s): php artisan cache:clear is FLUSHDB and deletes every job, whatever the prefixes are", k.Name, q.Name, place)
				continue
			}
			c.warn(k.From, "?dbindex=1, in the DSN of transport "+q.Name+", or another server for the cache",
				"cache pool %s and transport %s are in one database (%s): a cache clear by prefix spares the stream, FLUSHDB does not, and Redis evicts both alike", k.Name, q.Name, place)
		}
	}
}

// cachePlace is the line that puts a cache where it is: its database's number,
// else the connection itself.
func cachePlace(k app.Keys) app.Origin {
	if o := k.Redis.DB.Origin(); o.File != "" && o.Line > 0 && o.Default == "" {
		return o
	}
	return k.From
}

// sharedPrefix finds keys of a cache or of sessions that begin as the queues' do,
// or the other way round, in one database.
func sharedPrefix(c *check) {
	for _, q := range used(c) {
		key, ok := queueKey(c, q)
		if !ok {
			continue
		}
		for _, k := range c.Neighbours() {
			prefix, ok := k.FullPrefix()
			if !ok || !q.Redis.Shares(k.Redis) || !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key) {
				continue
			}
			if c.Framework == app.Symfony && k.Use == "cache" {
				continue // pools have a namespace of their own below it
			}
			place := k.Prefix.Origin()
			if place.Line == 0 {
				place = k.From
			}
			c.at(place, fmt.Sprintf("a prefix of its own for %s (CACHE_PREFIX=shop_cache_, in .env), and a database of its own", k.Use),
				"the keys of %s begin with %q (%s) and those of queue %s with %q (%s), in one database: whoever deletes the one by its prefix deletes the other",
				k.Use, prefix, decided(k.Redis.Prefix, k.Prefix), q.Name, key, decided(q.Redis.Prefix))
		}
	}
}

// decided is where prefixes were decided that stand one behind the other.
func decided(prefixes ...*app.Value) string {
	var places []string
	for _, p := range prefixes {
		if o := p.Origin().String(); o != "" && !slices.Contains(places, o) {
			places = append(places, o)
		}
	}
	if len(places) == 0 {
		return "no prefix is set"
	}
	return strings.Join(places, ", then ")
}

// queueKey is what the keys of a queue begin with; ok is false when that is not
// known.
func queueKey(c *check, q app.Queue) (string, bool) {
	if c.Framework == app.Symfony {
		stream := q.Options["stream"]
		return stream.Str(), stream.Known()
	}
	return q.Redis.Prefix.Str() + "queues:", q.Redis.Prefix.Known()
}

// serializer finds phpredis options that make the ack remove nothing.
func serializer(c *check) {
	if c.Framework != app.Laravel {
		return // Symfony's transport knows its own serializer
	}
	for _, q := range used(c) {
		for _, o := range []struct {
			name  string
			value *app.Value
		}{{"serializer", q.Redis.Serializer}, {"compression", q.Redis.Compression}} {
			if o.value == nil || o.value.Known() && !o.value.True() || strings.HasSuffix(o.value.Text, "_NONE") {
				continue
			}
			c.at(o.value.From, fmt.Sprintf("a Redis connection without %s for queues: 'queue' => […] in config/database.php, and 'connection' => 'queue' for it in config/queue.php", o.name),
				"Redis connection %s, which queue connection %s uses, has %s %s: the ack then names another text than the script has stored, removes nothing, and every job runs again when its reserve ends", q.Redis.Name, q.Name, o.name, o.value.Text)
		}
	}
}

// commonPrefix notes the prefix that a new application has.
func commonPrefix(c *check) {
	if c.Framework != app.Laravel {
		return
	}
	for _, q := range used(c) {
		prefix := q.Redis.Prefix
		if !slices.Contains([]string{"laravel_database_", "laravel-database-", ""}, prefix.Str()) || !prefix.Known() {
			continue
		}
		c.at(prefix.From, "REDIS_PREFIX=shop_production_, in .env, while the queues are empty",
			"the keys of queue connection %s begin with %q, which every new application has: a second one on this Redis database, or its staging twin, takes this one's jobs", q.Name, prefix.Str())
		return
	}
}

// consumerName finds transports whose consumer is one name for all processes.
func consumerName(c *check) {
	for _, q := range streams(c) {
		name := q.Options["consumer"]
		if name.Origin().Env != "" || !name.Known() {
			continue // each process may have its own
		}
		c.at(name.From, "consumer: '%env(MESSENGER_CONSUMER_NAME)%', under options of transport "+q.Name+"; and in supervisor: environment=MESSENGER_CONSUMER_NAME=%(program_name)s_%(process_num)02d",
			"every process that takes from transport %s is consumer %q (%s): one that starts reads what the others are handling, and handles it too", q.Name, name.Str(), name.From)
	}
}

// streams are the transports on Redis that workers take from.
func streams(c *check) []app.Queue {
	var list []app.Queue
	failure := c.Config.Get("framework.messenger.failure_transport").Str()
	for _, q := range c.Queues() {
		if c.Framework == app.Symfony && q.Redis != nil && q.Name != failure {
			list = append(list, q)
		}
	}
	return list
}

func maxEntries(c *check) {
	for _, q := range streams(c) {
		if v := q.Options["stream_max_entries"]; v.True() {
			c.at(v.From, "take stream_max_entries out, and set delete_after_ack: true",
				"transport %s keeps its newest %s entries only: in a burst the oldest charges are deleted before anybody has read them, without a trace", q.Name, from(v))
		}
	}
}

func deleteAfterAck(c *check) {
	for _, q := range streams(c) {
		v := q.Options["delete_after_ack"]
		if !v.Known() || v.True() && v.Str() != "false" && v.Str() != "no" && v.Str() != "off" {
			continue
		}
		c.at(v.From, "delete_after_ack: true, under options of transport "+q.Name,
			"transport %s keeps what it has handled (delete_after_ack %s): memory grows until Redis evicts or refuses, and a group that is created anew charges the whole history again", q.Name, from(v))
	}
}

// sharedStream finds transports that are one stream.
func sharedStream(c *check) {
	seen := map[string]string{}
	for _, q := range c.Queues() {
		if c.Framework != app.Symfony || q.Redis == nil || q.Redis.Server() == "" || !q.Options["stream"].Known() {
			continue
		}
		n, _ := q.Redis.Database()
		place := fmt.Sprintf("%s/%d %s", q.Redis.Server(), n, q.Options["stream"].Str())
		if other, ok := seen[place]; ok {
			c.at(q.From, fmt.Sprintf("redis://…/%s, in the DSN of transport %s; or stream: %s under its options, and a DSN without a path, for a path there wins", q.Name, q.Name, q.Name),
				"transports %s and %s are one stream (%s): what is sent to one is handled as the other's too", other, q.Name, place)
			continue
		}
		seen[place] = q.Name
	}
}

// schemaFilter finds Doctrine set up so that it takes zabor's tables for its own.
func schemaFilter(c *check) {
	dbal := c.Config.Get("doctrine.dbal")
	if c.Framework != app.Symfony || !c.o.Zabor || dbal == nil {
		return
	}
	filters := []*app.Value{dbal.Get("schema_filter")}
	for _, connection := range dbal.Get("connections").List() {
		filters = append(filters, connection.Get("schema_filter"))
	}
	for _, f := range filters {
		if f != nil && (f.Kind == app.Unknown || strings.Contains(f.Str(), "zabor")) {
			return
		}
	}
	place := dbal.From
	if dbal.Key.Line > 0 {
		place = dbal.Key
	}
	found := "doctrine.dbal has no schema_filter"
	if filters[0] != nil {
		place, found = filters[0].From, fmt.Sprintf("doctrine.dbal's schema_filter (%s) does not leave zabor_ out", filters[0])
	}
	c.at(place, "schema_filter: '~^(?!zabor_)~', under doctrine.dbal",
		"%s: the next doctrine:migrations:diff, or schema:update --complete, drops zabor's tables, and with them what was charged", found)
}
