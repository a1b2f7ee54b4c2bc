package connect

import (
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/laravel"
	"zabor/messenger"
)

// Connection is a queue of the configuration and its place in Redis.
type Connection struct {
	QueueName         string // its name in the configuration
	Key               string // the prefix of all its keys
	DB                int
	Redis             redis.UniversalClient
	*messenger.Config // of a Symfony queue; nil: it is Laravel's
}

// Connections opens a client for each queue of file, in the order of their names. All
// Laravel queues share one. closeAll ends the clients and is never nil.
func Connections(file *config.Config) (list []Connection, closeAll func(), err error) {
	var clients []redis.UniversalClient
	closeAll = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	fail := func(key string, err error) ([]Connection, func(), error) {
		closeAll()
		return nil, func() {}, exit.Usage(config.Errors{file.Finding(key, err.Error(), "")}, "nothing was started; "+AddressFix)
	}
	var client redis.UniversalClient // of all Laravel queues
	for _, name := range slices.Sorted(maps.Keys(file.Queues)) {
		switch q := file.Queues[name]; {
		case q.Laravel != nil:
			if client == nil {
				if client, err = Redis(string(file.Redis)); err != nil {
					return fail("redis", err)
				}
				clients = append(clients, client)
			}
			list = append(list, Connection{QueueName: name, Key: laravel.Key(client, q.Laravel.Prefix, name), DB: database(client), Redis: client})
		case q.Symfony != nil:
			c, err := messenger.ParseDSN(string(q.Symfony.DSN))
			if err != nil {
				return fail("queues."+name+".symfony.dsn", err)
			}
			client := redis.NewUniversalClient(c.Options())
			clients = append(clients, client)
			list = append(list, Connection{QueueName: name, Key: c.Stream, DB: c.DB, Redis: client, Config: &c})
		}
	}
	return list, closeAll, nil
}

// AddressFix says how to write user and password into an address.
const AddressFix = "in an address's user and password write %23 for #, %40 for @, %2F for /, %3A for :, %3F for ? and %25 for %"

// Server returns the addresses of s, with one spelling for each server.
func Server(s Connection) string {
	var addrs []string
	switch {
	case s.Config != nil:
		addrs = append(addrs, s.Addrs...)
	default:
		switch client := s.Redis.(type) {
		case *redis.Client:
			addrs = append(addrs, client.Options().Addr)
		case *redis.ClusterClient:
			addrs = append(addrs, client.Options().Addrs...)
		}
	}
	for i, a := range addrs {
		host, port, err := net.SplitHostPort(strings.ToLower(a))
		if err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback()) {
			addrs[i] = "127.0.0.1:" + port
		}
	}
	slices.Sort(addrs)
	return strings.Join(addrs, ",")
}
