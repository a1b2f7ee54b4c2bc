package preflight

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
)

// File checks the configuration alone: keys in reach of a cache's clearing, two queues
// at one location, and forwards in a circle. It logs warnings.
func File(log *slog.Logger, file *config.Config, list []connect.Queue) error {
	if wrong := sharedKeys(file, list); len(wrong) > 0 {
		return exit.Usage(config.Errors(wrong), "nothing was started")
	}
	for _, s := range list {
		for i, k := range file.KeepApart {
			if k.DB != s.DB {
				continue
			}
			if strings.HasPrefix(s.Key, k.Prefix) || strings.HasPrefix(k.Prefix, s.Key) {
				return exit.Usage(fmt.Errorf("%s: keep_apart[%d]: the keys of queue %s begin with %q and those of the cache or sessions with %q, in database %d: whoever clears these by their prefix deletes messages",
					file.Path, i, s.Name(), s.Key, k.Prefix, s.DB), "nothing was started; give the queue, or the cache, a prefix or a database of its own, in the application too")
			}
			log.Warn("cache or sessions are in the queue's database: no prefix protects messages from FLUSHDB, which Laravel's cache:clear is",
				"queue", s.Name(), "prefix", k.Prefix, "db", s.DB)
		}
		if s.Config == nil {
			continue
		}
		if wrong := circles(file, s); len(wrong) > 0 {
			return exit.Usage(config.Errors(wrong), "nothing was started")
		}
	}
	if file.Bus != nil && file.Bus.Forward["*"] != "" {
		log.Warn("every message that has no step is forwarded (bus.forward '*'): one whose class was renamed, or that a step should name, runs in PHP without a fence", "to", file.Bus.Forward["*"])
	}
	return nil
}

// circles are the settings with the stream of s as a target, from where
// zabor takes them again.
func circles(file *config.Config, s connect.Queue) (wrong []config.Finding) {
	check := func(target, key string) {
		if target == s.Stream {
			wrong = append(wrong, file.Finding(key, fmt.Sprintf("%s is the stream of queue %s, which zabor takes from: the message would come back, and go on for ever", target, s.Name()),
				"write a stream that only the PHP workers take from"))
		}
	}
	if file.Bus != nil {
		for _, pattern := range slices.Sorted(maps.Keys(file.Bus.Forward)) {
			check(file.Bus.Forward[pattern], "bus.forward."+string(pattern))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Steps)) {
		check(file.Steps[name].Then, "steps."+name+".then")
	}
	return wrong
}

// sharedKeys are the settings by which one key in Redis is two things: two queues,
// or a queue and a failure transport. Zabor would take its own messages again.
func sharedKeys(file *config.Config, list []connect.Queue) (wrong []config.Finding) {
	type place struct {
		server string
		db     int
		key    string
	}
	queues := map[place]string{}
	for _, s := range list {
		at := place{connect.Server(s.Connection), s.DB, s.Key}
		key := "queues." + s.QueueName + ".laravel"
		if s.Config != nil {
			key = "queues." + s.QueueName + ".symfony.dsn"
		}
		if other, taken := queues[at]; taken {
			wrong = append(wrong, file.Finding(key, fmt.Sprintf("%s in database %d is queue %s too: each would take, and ack, the other's messages", s.Key, s.DB, other), "write a stream (or prefix and name) of its own, or take one of the queues out"))
			continue
		}
		queues[at] = s.QueueName
	}
	for _, s := range list {
		failed := file.Queues[s.QueueName].Failed
		if s.Config == nil || failed == nil || failed.Stream == "" {
			continue
		}
		if other, taken := queues[place{connect.Server(s.Connection), s.DB, failed.Stream}]; taken {
			wrong = append(wrong, file.Finding("queues."+s.QueueName+".failed.stream", fmt.Sprintf("%s is the stream of queue %s, which zabor takes from: a failed message would come back, and go on for ever", failed.Stream, other),
				"write the stream of the application's failure transport, which is another one"))
		}
		if file.Bus == nil {
			continue
		}
		for _, pattern := range slices.Sorted(maps.Keys(file.Bus.Forward)) {
			if file.Bus.Forward[pattern] == failed.Stream {
				wrong = append(wrong, file.Finding("bus.forward."+string(pattern), fmt.Sprintf("%s is the failure transport of queue %s: no worker takes from it", failed.Stream, s.QueueName), "write a stream that the PHP workers take from"))
			}
		}
	}
	return wrong
}
