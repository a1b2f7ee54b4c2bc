package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/takeover"
	"zabor/laravel"
	"zabor/provider"
	"zabor/worker"
)

// startUp refuses what would lose messages or have them taken by two, before any
// is taken, and says what a person wants to see of a start.
func (p *program) startUp(ctx context.Context, file *config.Config, list []connect.Queue, acceptEviction bool) error {
	if err := p.checkPlaces(file, list); err != nil {
		return err
	}
	for _, s := range list {
		depth, err := s.Depth(ctx)
		if err != nil {
			return exit.Unreachable(fmt.Errorf("queue %s: %w", s.Name(), err), "nothing was taken; is Redis up, and is its address right?")
		}
		if s.Reserve > config.LongestReserve {
			p.log.Warn("a message whose worker was killed is handed to nobody before its reserve ends: were these milliseconds? The setting is in seconds", "queue", s.Name(), "reserve", s.Reserve)
		}
		p.log.Info("queue", "name", s.Name(), "ready", depth.Ready, "reserved", depth.Reserved, "delayed", depth.Delayed, "reserve", s.Reserve)
		for err := range p.checkQueue(ctx, s, acceptEviction) {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		p.tellProvider(file, name)
	}
	return nil
}

// checkQueue gives each reason not to take from a queue, and logs what is a warning
// only.
func (p *program) checkQueue(ctx context.Context, s connect.Queue, acceptEviction bool) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, check := range []func() error{
			func() error { return p.checkServer(ctx, s, acceptEviction) },
			func() error { return checkSerializer(ctx, s) },
			func() error { return takeover.CheckOthers(ctx, p.log, s) },
			func() error {
				if depth, err := s.Depth(ctx); err == nil && depth.Empty() {
					p.guessPlace(ctx, s)
				}
				return nil
			},
		} {
			if err := check(); err != nil && !yield(err) {
				return
			}
		}
	}
}

// tellProvider says who is going to be called, and whether money moves there.
func (p *program) tellProvider(file *config.Config, name string) {
	profile, _ := file.Profile(name)
	host := profile.BaseURL
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	told := []any{"name", name, "host", host}
	if builtin, ok := provider.BuiltinNamed(file.Providers[name].Profile); ok {
		mode := "LIVE"
		if builtin.IsTest(file.Providers[name].Account, string(file.Providers[name].Secret)) {
			mode = "TEST"
		}
		told = append(told, "mode", mode)
	}
	p.log.Info("provider", told...)
}

// checkPlaces looks for what the configuration alone tells: keys that a cache
// would clear, and messages that would be forwarded in a circle.
func (p *program) checkPlaces(file *config.Config, list []connect.Queue) error {
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
			p.log.Warn("cache or sessions are in the queue's database: no prefix protects messages from FLUSHDB, which Laravel's cache:clear is",
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
		p.log.Warn("every message that has no step is forwarded (bus.forward '*'): one whose class was renamed, or that a step should name, runs in PHP without a fence", "to", file.Bus.Forward["*"])
	}
	return nil
}

// circles are the settings that send messages to the stream of s, from which
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
// or a queue and a failure transport. What zabor puts there it would take again.
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

// checkSerializer refuses a Laravel queue whose connection changes payloads.
func checkSerializer(ctx context.Context, s connect.Queue) error {
	source, ok := s.Source.(*laravel.Source)
	if !ok {
		return nil
	}
	by, err := source.Wrapped(ctx)
	switch {
	case err != nil:
		return exit.Unreachable(err, "nothing was taken; is Redis up, and is its address right?")
	case by != "":
		return exit.Usage(fmt.Errorf("queue %s: phpredis has changed a job on it, by %s: with that option Laravel's own acks remove nothing, so that jobs run again and again, and delayed jobs are lost", s.Name(), by),
			"nothing was started, and the job is where it was; set the options serializer and compression of the queue's Redis connection to none (config/database.php), and dispatch such jobs again")
	}
	return nil
}

// guessPlace warns of an empty queue none of whose keys exist, if the keys of
// another place end as its would: a wrong prefix, or stream, is exactly like a queue
// that nobody uses.
func (p *program) guessPlace(ctx context.Context, s connect.Queue) {
	if s.Config != nil {
		p.guessStream(ctx, s)
		return
	}
	const queues = "queues:"
	var elsewhere []string
	for _, key := range keysLike(ctx, s.Redis, "*"+queues+"*"+literally(s.Name())+"*") {
		at := strings.LastIndex(key, queues)
		name := key[at+len(queues):]
		for _, part := range []string{":notify", ":delayed", ":reserved"} {
			name = strings.TrimSuffix(name, part)
		}
		switch list := key[:at+len(queues)] + name; {
		case list == s.Key:
			return // it is there, and had messages
		case name == s.Name() || name == "{"+s.Name()+"}":
			elsewhere = append(elsewhere, list)
		}
	}
	if len(elsewhere) > 0 {
		list := elsewhere[0]
		p.log.Warn(fmt.Sprintf("there is nothing at %s, and there is something at %s: did you mean prefix: %q?", s.Key, list, list[:strings.LastIndex(list, queues)]), "queue", s.Name())
	}
}

// tellOthers says which other queues have messages beside an empty one: it may be one
// of those that is meant.
func (p *program) tellOthers(ctx context.Context, file *config.Config, s connect.Queue) {
	prefix := strings.TrimSuffix(s.Key, s.Name())
	if s.Config != nil || prefix == s.Key {
		return
	}
	var names []string
	for _, key := range keysLike(ctx, s.Redis, literally(prefix)+"*") {
		name := strings.TrimPrefix(key, prefix)
		for _, part := range []string{":notify", ":delayed", ":reserved"} {
			name = strings.TrimSuffix(name, part)
		}
		if file.Queues[name] == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		p.log.Warn("the queue is empty, and others have messages: is it one of these that is meant?", "queue", s.Name(), "others", strings.Join(names, ", "))
	}
}

func (p *program) guessStream(ctx context.Context, s connect.Queue) {
	if n, err := s.Redis.Exists(ctx, s.Stream, s.Stream+"__queue").Result(); err != nil || n > 0 {
		return
	}
	for _, key := range keysLike(ctx, s.Redis, "*"+literally(s.Stream)) {
		if kind, err := s.Redis.Type(ctx, key).Result(); err == nil && kind == "stream" {
			p.log.Warn(fmt.Sprintf("there is no stream %s, and there is %s: did you mean that one?", s.Stream, key), "queue", s.Name())
			return
		}
	}
}

// busOf is the file's bus as the worker takes it.
func busOf(file *config.Config) worker.Bus {
	bus := worker.Bus{Forward: map[string]string{}}
	if file.Bus == nil {
		return bus
	}
	for pattern, queue := range file.Bus.Forward {
		bus.Forward[string(pattern)] = queue
	}
	for _, pattern := range file.Bus.Refuse {
		bus.Refuse = append(bus.Refuse, string(pattern))
	}
	return bus
}
