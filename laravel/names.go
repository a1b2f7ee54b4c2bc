package laravel

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// keys are the names of one queue's keys in Redis.
type keys struct {
	ready    string // list
	delayed  string // sorted set by the second from which a job may run
	reserved string // sorted set by the second at which the lease ends
	notify   string // list with a "1" for each push, a hint for blocked workers
	dead     string // list of ours: payloads that cannot be decoded
	reserves string // begins the names of strings of ours: what a worker's last reserve gave
}

// names builds a queue's keys. On a cluster all of them must be in one slot: a
// queue name without a {tag} is put in braces, as Laravel does from 13.5 on. Before
// that such a queue had to have braces in its name, or in the prefix, which are
// left as they are.
func names(prefix, queue string, cluster bool) keys {
	if cluster && !hasTag(prefix+queue) {
		queue = "{" + queue + "}"
	}
	ready := prefix + "queues:" + queue
	return keys{
		ready:    ready,
		delayed:  ready + ":delayed",
		reserved: ready + ":reserved",
		notify:   ready + ":notify",
		dead:     prefix + "zabor:" + queue + ":dead",
		reserves: prefix + "zabor:" + queue + ":reserve:",
	}
}

// Key is the key of a queue's list on client's Redis, with which all of the queue's
// keys begin.
func Key(client redis.UniversalClient, prefix, queue string) string {
	return names(prefix, queue, isCluster(client)).ready
}

func isCluster(client redis.UniversalClient) bool {
	_, ok := client.(*redis.ClusterClient)
	return ok
}

// hasTag reports whether Redis Cluster would hash only a part of name: what is
// between the first { and the first } behind it, unless that is empty.
func hasTag(name string) bool {
	_, rest, ok := strings.Cut(name, "{")
	return ok && strings.Index(rest, "}") > 0
}
