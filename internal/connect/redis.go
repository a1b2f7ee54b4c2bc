package connect

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis is a client for the address of the Laravel queues:
//
//	redis://USER:PASSWORD@HOST:PORT/DB, rediss://…, unix:///PATH?db=DB
//	redis://HOST:PORT?cluster=true&addr=HOST:PORT
//	redis://SENTINEL:PORT/DB?master_name=NAME&addr=SENTINEL:PORT&username=…&password=…
//
// User and password before the host are the Sentinels' in the last form. The
// client never repeats a command by itself: whether one was executed is for the
// caller to decide. An error holds nothing of the address but what is wrong in it.
func Redis(address string) (redis.UniversalClient, error) {
	u, err := url.Parse(address)
	switch {
	case strings.Contains(address, "#"):
		return nil, errors.New("the address has a #, which ends an address")
	case err != nil && strings.Contains(err.Error(), "invalid port") && (!strings.Contains(address, "@") || strings.Contains(authority(address), "@")):
		return nil, errors.New("invalid port: it is no number")
	case err != nil: // its text may hold a part of the password
		return nil, errors.New("the address cannot be read: a sign of the user, the password or the port must be written otherwise")
	}
	query := u.Query()
	isCluster := query.Get("cluster") == "true"
	switch {
	case query.Has("cluster") && !isCluster:
		return nil, fmt.Errorf("cluster=%s: write cluster=true, or leave it out", query.Get("cluster"))
	case isCluster && query.Has("master_name"):
		return nil, errors.New("cluster and master_name exclude each other: a Redis is a cluster or has Sentinels")
	case query.Has("addr") && !isCluster && !query.Has("master_name"):
		return nil, errors.New("several addresses, and neither cluster=true nor the Sentinels' master_name=NAME")
	case query.Has("master_name"):
		options, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		if options.MasterName == "" || options.ReplicaOnly {
			return nil, errors.New("zabor takes messages from the master: write master_name=NAME, and no replica_only")
		}
		options.MaxRetries, options.ContextTimeoutEnabled = -1, true
		return redis.NewFailoverClient(options), nil
	case isCluster:
		if db := strings.Trim(u.Path, "/"); db != "" && db != "0" {
			return nil, fmt.Errorf("database %q: a Redis Cluster has database 0 only", db)
		}
		query.Del("cluster")
		u.Path, u.RawQuery = "", query.Encode()
		options, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, err
		}
		options.MaxRetries, options.ContextTimeoutEnabled = -1, true
		return redis.NewClusterClient(options), nil
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	options.MaxRetries, options.ContextTimeoutEnabled = -1, true
	return redis.NewClient(options), nil
}

// authority returns the text between // and the first / or ? of an address.
func authority(address string) string {
	_, rest, _ := strings.Cut(address, "//")
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// database is the number of client's database; a cluster has only 0.
func database(client redis.UniversalClient) int {
	if single, ok := client.(*redis.Client); ok {
		return single.Options().DB
	}
	return 0
}
