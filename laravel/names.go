package laravel

import "strings"

// keys are the names of one queue's keys in Redis.
type keys struct {
	ready    string // list
	delayed  string // sorted set by the second from which a job may run
	reserved string // sorted set by the second at which the lease ends
	notify   string // list with a "1" for each push, a hint for blocked workers
	dead     string // list of ours: payloads that cannot be decoded
}

// names builds a queue's keys. With hashTag a queue name without a {tag} is put
// in braces, as Laravel does from 13.5 on when its connection is a cluster.
func names(prefix, queue string, hashTag bool) keys {
	if hashTag && !hasTag(queue) {
		queue = "{" + queue + "}"
	}
	ready := prefix + "queues:" + queue
	return keys{
		ready:    ready,
		delayed:  ready + ":delayed",
		reserved: ready + ":reserved",
		notify:   ready + ":notify",
		dead:     prefix + "zabor:" + queue + ":dead",
	}
}

// hasTag reports whether Redis Cluster would hash only a part of name: what is
// between the first { and the first } behind it, unless that is empty.
func hasTag(name string) bool {
	_, rest, ok := strings.Cut(name, "{")
	return ok && strings.Index(rest, "}") > 0
}
