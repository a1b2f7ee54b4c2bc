package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"zabor/doctor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/laravel"
	"zabor/step"
	"zabor/worker"
)

// what names s in a check.
func what(s connect.Queue) string { return "queues." + s.Name() }

// Queue checks whether messages may be taken from s. With acceptEviction a server with a risk to
// drop messages is a warning.
func Queue(ctx context.Context, steps []*step.Step, s connect.Queue, acceptEviction bool) []Check {
	var l list
	l.master(ctx, s)
	l.eviction(ctx, s, acceptEviction)
	l.first(ctx, steps, s)
	l.others(ctx, s)
	l.empty(ctx, s)
	return l
}

// Others checks whether other consumers than zabor's take from s.
func Others(ctx context.Context, s connect.Queue) []Check {
	var l list
	l.others(ctx, s)
	return l
}

// Empty warns if s is empty and the keys of another place look like its own: a wrong
// prefix or stream looks exactly like a queue without messages.
func Empty(ctx context.Context, s connect.Queue) []Check {
	var l list
	l.empty(ctx, s)
	return l
}

// master refuses a replica.
func (l *list) master(ctx context.Context, s connect.Queue) {
	role, err := s.Redis.Do(ctx, "ROLE").Slice()
	if err == nil && len(role) > 0 && role[0] == "slave" {
		l.add(Wrong, what(s), fmt.Sprintf("queue %s: its Redis is a replica, which takes no writes, and whose messages are copies", s.Name()), "nothing was started; write the master's address, or that of the Sentinels with master_name=NAME")
	}
}

// eviction refuses a server with eviction of queues when memory is short, with the text of zabor
// doctor. Queues have no time to live, but allkeys-* evicts them all the same.
func (l *list) eviction(ctx context.Context, s connect.Queue, accept bool) {
	policies, err := evictionPolicies(ctx, s.Redis)
	if err != nil {
		l.add(Warning, what(s), fmt.Sprintf("cannot tell whether Redis evicts messages when memory is short; it must have maxmemory-policy noeviction (error %v)", err), "")
		return
	}
	for _, policy := range policies {
		f, found := doctor.Eviction(doctor.RedisServer{Queues: []string{s.Name()}}, policy)
		switch {
		case !found:
		case !strings.HasPrefix(policy, "allkeys-"):
			l.add(Warning, what(s), f.Found, f.Fix)
		case accept:
			l.add(Warning, what(s), f.Found+"; this was accepted", f.Fix)
		default:
			l.add(Wrong, what(s), fmt.Sprintf("queue %s: %s", s.Name(), f.Found), "nothing was started; "+f.Fix+", or put the cache on a server of its own; --accept-eviction takes the risk")
			return
		}
	}
}

// few is how many messages of each place a start looks at.
const few = 8

// first looks at the first messages of a queue. It refuses a Laravel queue whose connection
// changes payloads, and a queue with locked messages of steps only: their secret is another.
func (l *list) first(ctx context.Context, steps []*step.Step, s connect.Queue) {
	_, laravels := s.Source.(*laravel.Source)
	read, locked := 0, 0
	var why error
	for _, place := range []worker.Place{worker.Ready, worker.Delayed} {
		n := 0
		for m, err := range s.Look(ctx, place) {
			if err != nil {
				l.add(Unreachable, what(s), err.Error(), fixRedis)
				return
			}
			if by := laravel.Wrapped(m.Raw); laravels && by != "" {
				l.add(Wrong, what(s), fmt.Sprintf("queue %s: phpredis has changed a job on it, by %s: with that option Laravel's own acks remove nothing, so that jobs run again and again, and delayed jobs are lost", s.Name(), by),
					"nothing was started, and the job is where it was; set the options serializer and compression of the queue's Redis connection to none (config/database.php), and dispatch such jobs again")
				return
			}
			wrong := errors.Is(m.Err, worker.ErrWrongSecret)
			switch {
			case !slices.ContainsFunc(steps, func(one *step.Step) bool { return one.Matches(m.Class) }):
			case wrong:
				locked++
				why = m.Err
			default:
				read++
			}
			if n++; n == few {
				break
			}
		}
	}
	if locked == 0 || read > 0 {
		return
	}
	key := "laravel.app_key"
	if s.Config != nil {
		key = "symfony.app_secret"
	}
	l.add(Wrong, what(s), fmt.Sprintf("queue %s: none of the first %d messages of steps can be read: %v", s.Name(), locked, why),
		fmt.Sprintf("nothing was started, and the messages are where they were; write the application's secret under queues.%s.%s, with those of before behind commas; \"zabor peek %s\" shows what can be read then", s.Name(), key, s.Name()))
}

// others refuses to take messages beside other consumers. Of a shared queue it only warns.
func (l *list) others(ctx context.Context, s connect.Queue) {
	others, err := s.Others(ctx)
	if err != nil {
		l.add(Unreachable, what(s), err.Error(), fixRedis)
		return
	}
	if s.Shared {
		l.add(Warning, what(s), fmt.Sprintf("the queue is shared: a charge that zabor has begun and could not finish may be given to a PHP worker, which knows no fence (others %d)", len(others)), "")
		return
	}
	for _, o := range others {
		if o.Named {
			l.add(Wrong, what(s), fmt.Sprintf("queue %s: %s, and is not zabor's: a charge that it began would be made again", s.Name(), o.What), fmt.Sprintf("nothing was started; %s. Where PHP workers are to take from it too, write queues.%s.shared: true", o.Stop, s.Name()))
			return
		}
		l.add(Warning, what(s), o.What+"; if it still lives, it will take more", o.Stop)
	}
}

// empty warns if another place looks like the right one.
func (l *list) empty(ctx context.Context, s connect.Queue) {
	if depth, err := s.Depth(ctx); err != nil || !depth.Empty() {
		return
	}
	if found := guess(ctx, s); found != "" {
		l.add(Warning, what(s), found, "")
	}
}

// guess returns a question about a place whose keys end as those of s would. It is empty
// if keys of s exist, or no key looks like them.
func guess(ctx context.Context, s connect.Queue) string {
	if s.Config != nil {
		return guessStream(ctx, s)
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
			return "" // it is there, and had messages
		case name == s.Name() || name == "{"+s.Name()+"}":
			elsewhere = append(elsewhere, list)
		}
	}
	if len(elsewhere) > 0 {
		list := elsewhere[0]
		return fmt.Sprintf("there is nothing at %s, and there is something at %s: did you mean prefix: %q?", s.Key, list, list[:strings.LastIndex(list, queues)])
	}
	return ""
}

func guessStream(ctx context.Context, s connect.Queue) string {
	if n, err := s.Redis.Exists(ctx, s.Stream, s.Stream+"__queue").Result(); err != nil || n > 0 {
		return ""
	}
	for _, key := range keysLike(ctx, s.Redis, "*"+literally(s.Stream)) {
		if kind, err := s.Redis.Type(ctx, key).Result(); err == nil && kind == "stream" {
			return fmt.Sprintf("there is no stream %s, and there is %s: did you mean that one?", s.Stream, key)
		}
	}
	return ""
}

// OtherQueues returns the queues beside s with messages and missing in file: one of
// them may be meant.
func OtherQueues(ctx context.Context, file *config.Config, s connect.Queue) []string {
	prefix := strings.TrimSuffix(s.Key, s.Name())
	if s.Config != nil || prefix == s.Key {
		return nil
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
	slices.Sort(names)
	return names
}
