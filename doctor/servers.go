package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"zabor/internal/app"
	"zabor/messenger"
)

// Servers are the Redis servers of an application's queues, by the addresses in
// its own configuration. Nothing is connected to yet; the caller closes the
// clients. What has no known address is a finding.
func Servers(p *app.Project) (list []RedisServer, unknown []Finding) {
	index := map[string]int{}
	for _, q := range used(&check{Project: p, o: Options{}}) {
		client, err := clientOf(q)
		if err != nil {
			unknown = append(unknown, Finding{Code: "ZB101", Severity: Warning, Where: Place(p, q.From.File), Line: q.From.Line,
				Found: fmt.Sprintf("the Redis of queue %s is not asked: %v", q.Name, err), Fix: "--redis NAME, with the name of an environment variable that holds its address", Excerpt: p.Excerpt(q.From.File, q.From.Line)})
			continue
		}
		n, _ := q.Redis.Database()
		where := fmt.Sprintf("Redis %s, database %d", q.Redis.Server(), n)
		i, ok := index[where]
		if ok {
			client.Close()
		} else {
			i, index[where] = len(list), len(list)
			list = append(list, RedisServer{Where: where, Client: client})
		}
		s := &list[i]
		s.Queues = append(s.Queues, q.Name)
		if p.Framework == app.Symfony {
			stream := q.Options["stream"].Str()
			s.Keys = append(s.Keys, stream)
			s.Streams = append(s.Streams, Stream{q.Name, stream, q.Options["group"].Str()})
		} else {
			s.Keys = append(s.Keys, q.Redis.Prefix.Str()+"queues:")
			if horizon := p.Config.Get("horizon.prefix"); horizon.Known() {
				s.Keys = append(s.Keys, horizon.Str())
			}
		}
		for _, k := range p.Neighbours() {
			if k.Redis.Server() == q.Redis.Server() && k.Redis.Server() != "" {
				text := fmt.Sprintf("%s %s (database %s, %s)", k.Use, k.Name, k.Redis.DB, k.Redis.DB.Origin())
				if !slices.Contains(s.Caches, text) {
					s.Caches = append(s.Caches, text)
				}
			}
		}
	}
	return list, unknown
}

func clientOf(q app.Queue) (redis.UniversalClient, error) {
	if q.DSN != nil {
		c, err := messenger.ParseDSN(q.DSN.Str())
		if err != nil {
			return nil, err
		}
		if n, ok := q.Redis.Database(); ok {
			c.DB = n
		}
		return redis.NewUniversalClient(c.Options()), nil
	}
	address, err := q.Redis.Address()
	if err != nil {
		return nil, err
	}
	return OpenRedis(address)
}

// OpenRedis is a client for an address redis://…; nothing is connected to yet.
func OpenRedis(address string) (redis.UniversalClient, error) {
	if !strings.Contains(address, "://") {
		return nil, fmt.Errorf("not an address: it begins with redis://, rediss:// or unix://")
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("not an address of Redis: percent-encode special characters in it") // its own error may hold the password
	}
	options.MaxRetries = -1
	options.ContextTimeoutEnabled = true
	return redis.NewClient(options), nil
}

// Fences are the tables that the application inserts a row into before it calls a
// payment provider: fences of its own.
func Fences(p *app.Project) []string {
	var list []string
	m := newMoney(p, Options{})
	for _, c := range m.all() {
		for _, call := range c.in.Calls {
			if call.Line >= c.call.Line || !isInsert(call) {
				continue
			}
			if table := tableOf(call); table != "" && !slices.Contains(list, table) {
				list = append(list, table)
			}
		}
	}
	return list
}

// tableOf is the table that a call inserts into; "" where that is not plain.
func tableOf(call *app.Call) string {
	if sql := sqlOf(call); plainInsert.MatchString(sql) {
		words := strings.FieldsFunc(sql, func(r rune) bool { return strings.ContainsRune(" \t\r\n(", r) })
		if len(words) > 2 {
			return strings.Trim(words[2], "`\"'")
		}
	}
	for _, part := range call.Chain() {
		if part.Name == "table" && len(part.Args) > 0 {
			return part.Args[0].Value.Str()
		}
	}
	if len(call.Args) > 0 && call.Class != "" && strings.HasSuffix(call.Class, "Connection") { // Doctrine: insert('table', …)
		return call.Args[0].Value.Str()
	}
	return ""
}
