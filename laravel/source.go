// Package laravel is the [worker.Source] of a Laravel queue on Redis, and the
// failed_jobs table behind it.
//
// It works the same keys in the same format as Laravel's own workers, which may
// take turns with it, but it keeps a payload's bytes, writes nothing for a job
// that it has lost, renews leases, loses no payload that cannot be decoded, and
// writes failed_jobs before it removes a job.
package laravel

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/pipe"
	"zabor/worker"
)

// Config says which queue a [Source] works and how.
type Config struct {
	Queue      string        // as the application names it, such as "payments"
	Prefix     string        // database.redis.options.prefix; may be empty
	Connection string        // name in config/queue.php, written to failed_jobs
	RetryAfter time.Duration // how long a job stays reserved, at least 1 s; rounded up to whole seconds
	AppKeys    []AppKey      // the application's key and its previous ones; none: encrypted jobs are refused
	Failed     *FailedJobs   // nil: Park is an error
	Horizon    string        // horizon.prefix, where Horizon is installed; empty: it is not
	Warn       func(error)   // is told of errors that fail no job, such as Horizon's, by several goroutines at a time; nil: nobody is
}

// Source is one Laravel queue.
type Source struct {
	redis   redis.UniversalClient
	cluster bool
	c       Config
	k       keys
	h       *horizon // nil: there is none
	pipe    *pipe.Pipe
	id      string // names this Source in Redis

	mu       sync.Mutex
	reserves int64     // answered ones: the number of the one that follows
	dead     []string  // undecodable payloads to be delivered (again)
	listed   time.Time // when their list was last looked at
}

const (
	poll    = time.Second // longest Wait
	migrate = 100         // most due jobs, and most lost ones, that a Receive moves
	most    = 100         // jobs of one Receive
)

// NewSource makes the source of a queue. The client must not repeat commands by
// itself (MaxRetries -1): an ack that is repeated finds its job gone. A cluster's
// client repeats after network errors all the same.
func NewSource(client redis.UniversalClient, c Config) (*Source, error) {
	switch {
	case c.Queue == "":
		return nil, errors.New("laravel queue without a name")
	case c.Connection == "":
		return nil, fmt.Errorf("laravel queue %s: no connection: give its name in config/queue.php, nearly always redis", c.Queue)
	case c.RetryAfter < time.Second:
		return nil, fmt.Errorf("laravel queue %s: retry_after is %v, at least 1s", c.Queue, c.RetryAfter)
	}
	cluster := isCluster(client)
	s := &Source{redis: client, c: c, k: names(c.Prefix, c.Queue, cluster), cluster: cluster, pipe: pipe.New(client), id: rand.Text()}
	if c.Horizon != "" {
		s.h = &horizon{redis: client, prefix: c.Horizon, connection: c.Connection, warn: c.Warn}
	}
	switch client := client.(type) {
	case *redis.Client:
		if n := client.Options().MaxRetries; n > 0 {
			return nil, fmt.Errorf("laravel queue %s: the Redis client repeats commands up to %d times; set its MaxRetries to -1", c.Queue, n)
		}
	case *redis.ClusterClient:
		if n := client.Options().MaxRetries; n > 0 {
			return nil, fmt.Errorf("laravel queue %s: the Redis client repeats commands up to %d times; set its MaxRetries to -1", c.Queue, n)
		}
		if s.h != nil {
			return nil, fmt.Errorf("laravel queue %s: %w", c.Queue, errHorizonCluster)
		}
	}
	return s, nil
}

// Close ends what is done after the answers: the ends that Horizon shows are looked at
// again, for a second at most. Nothing is received or answered any more.
func (s *Source) Close() { s.h.close() }

// Name is the queue's name in the application.
func (s *Source) Name() string { return s.c.Queue }

// receipt is how a message is held.
type receipt struct {
	member string     // in the sorted set of reserved jobs
	dead   bool       // in the list of undecodable payloads instead
	next   *successor // of a chained job; nil: none
	shown  *shown     // what Horizon shows of it; nil: nothing
}

// Receive takes jobs from the head of the queue. Undecodable payloads that are
// still in their list come first, at the first Receive and again each RetryAfter.
//
// If the reply was lost, the next Receive gets the jobs of this one, with a new
// lease and not as delivered before: Redis keeps them in a key of this Source's for
// RetryAfter.
func (s *Source) Receive(ctx context.Context, n int) ([]*worker.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ms, err := s.unread(ctx, n); len(ms) > 0 || err != nil {
		return ms, err
	}
	begun := time.Now()
	reply, err := reserveScript.Run(context.WithoutCancel(ctx), s.redis,
		[]string{s.k.ready, s.k.delayed, s.k.reserved, s.k.notify, s.k.dead, s.k.reserves + s.id},
		seconds(s.c.RetryAfter), migrate, s.h != nil, fmt.Sprintf("%016d", s.reserves), min(n, most), s.c.RetryAfter.Milliseconds()).StringSlice()
	if err == nil && len(reply)%3 != 0 {
		err = fmt.Errorf("the script replied %d parts", len(reply))
	}
	if err != nil {
		return nil, fmt.Errorf("laravel queue %s: cannot reserve jobs: %w", s.c.Queue, err)
	}
	s.reserves++
	var ms []*worker.Message
	var moved []string
	for part := range slices.Chunk(reply, 3) {
		switch kind, payload, more := part[0], part[1], part[2]; kind {
		case "moved":
			moved = append(moved, payload)
			continue
		case "dead":
			ms = append(ms, unreadable(payload, more))
		default:
			ms = append(ms, s.message(payload, more))
		}
		ms[len(ms)-1].ReservedUntil = begun.Add(s.c.RetryAfter)
	}
	s.h.reserved(ctx, s.c.Queue, ms, moved)
	for len(ms) > n { // the lost reply had more than is wanted now
		last := ms[len(ms)-1]
		if err := s.PutBack(ctx, last); err != nil && !errors.Is(err, worker.ErrLost) {
			s.warn(fmt.Errorf("it comes back as one that was delivered before: %w", err))
		}
		ms = ms[:len(ms)-1]
	}
	return ms, nil
}

// message is a reserved job.
func (s *Source) message(raw, member string) *worker.Message {
	m, next := decode([]byte(raw), s.c.AppKeys)
	if next != nil && next.connection != "" && next.connection != s.c.Connection {
		m.Err = fmt.Errorf("job %s of class %s was not run: the next job of its chain goes to connection %s, and zabor has only %s; %s", m.ID, m.Class, next.connection, s.c.Connection, toPHP)
		m.Data, m.Chained, next = nil, false, nil
	}
	m.Receipt = receipt{member: member, next: next}
	return m
}

// unread returns payloads that could not be decoded and were never acked.
func (s *Source) unread(ctx context.Context, n int) ([]*worker.Message, error) {
	if s.listed.IsZero() || time.Since(s.listed) >= s.c.RetryAfter {
		dead, err := s.redis.LRange(ctx, s.k.dead, 0, migrate-1).Result()
		if err != nil {
			return nil, fmt.Errorf("laravel queue %s: cannot list undecodable payloads: %w", s.c.Queue, err)
		}
		s.dead, s.listed = dead, time.Now()
	}
	n = min(n, len(s.dead))
	var ms []*worker.Message
	for _, raw := range s.dead[:n] {
		ms = append(ms, unreadable(raw, "found in "+s.k.dead))
	}
	s.dead = s.dead[n:]
	return ms, nil
}

func unreadable(raw, reason string) *worker.Message {
	if by := Wrapped([]byte(raw)); by != "" {
		reason = "changed by " + by + " of phpredis: " + reason
	}
	return &worker.Message{
		ID:      digest([]byte(raw)),
		Raw:     []byte(raw),
		Err:     fmt.Errorf("%w: payload %s", worker.ErrUnreadable, reason),
		Receipt: receipt{dead: true},
	}
}

// Wait returns after a push, or after a second: delayed and lost jobs push no
// token. The token that it takes is only a hint and may be lost with ctx.
func (s *Source) Wait(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		done <- s.redis.BLPop(context.WithoutCancel(ctx), poll, s.k.notify).Err()
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-done:
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("laravel queue %s: cannot wait for a job: %w", s.c.Queue, err)
		}
		return nil
	}
}

// Ack removes m. The member is the text that was reserved: a job whose lease was
// lost is another member by now, or none. If m has settled and is part of a
// chain, the next job is dispatched in the same script; on a cluster where the
// two queues are in different slots, before m is removed.
//
// A job that goes on to m.Then has neither attempts nor a sign there.
func (s *Source) Ack(ctx context.Context, m *worker.Message) error {
	if m.Then != "" {
		fresh, err := anew(m.Raw)
		if err != nil {
			return fmt.Errorf("laravel queue %s: job %s did not go on to %s and stays: %w", s.c.Queue, m.ID, m.Then, err)
		}
		return s.moveTo(ctx, m, m.Then, fresh)
	}
	if next := m.Receipt.(receipt).next; m.Settled && next != nil {
		queue, payload := cmp.Or(next.queue, s.c.Queue), next.payload(time.Now())
		if err := s.replace(ctx, "ack", m, queue, payload, next.delay); err != nil {
			return err
		}
		s.h.pushed(ctx, queue, payload)
	} else if err := s.remove(ctx, m); err != nil {
		return err
	}
	s.h.completed(ctx, s.c.Queue, m)
	return nil
}

func (s *Source) remove(ctx context.Context, m *worker.Message) error {
	r := m.Receipt.(receipt)
	var n int64
	var err error
	if r.dead {
		n, err = s.pipe.Do(ctx, "LREM", s.k.dead, 1, m.Raw).Int64()
	} else {
		n, err = s.pipe.Do(ctx, "ZREM", s.k.reserved, r.member).Int64()
	}
	return s.answered("ack", m, n, err)
}

// Later releases m for another delivery. Its sign is a key of the payload, see
// signKey. When Redis's answer is lost, m may have
// been released all the same; asked again, Later ends the lease of whoever has
// taken m meanwhile, so that m is delivered once more, never lost. A payload that
// cannot be decoded stays where it is and is delivered again after RetryAfter.
func (s *Source) Later(ctx context.Context, m *worker.Message, delay time.Duration) error {
	r := m.Receipt.(receipt)
	if r.dead {
		return nil
	}
	payload := withSign(m)
	n, err := s.pipe.Run(ctx, laterScript, []string{s.k.delayed, s.k.reserved}, r.member, payload, seconds(delay)).Int64()
	if err := s.answered("release", m, n, err); err != nil {
		return err
	}
	s.h.pending(ctx, s.c.Queue, m, payload)
	return nil
}

// PutBack puts m back at the head. A payload that cannot be decoded stays where
// it is: in the queue it would be lost to a PHP worker.
func (s *Source) PutBack(ctx context.Context, m *worker.Message) error {
	r := m.Receipt.(receipt)
	if r.dead {
		return nil
	}
	payload := withSign(m)
	n, err := s.pipe.Run(ctx, putBackScript, []string{s.k.ready, s.k.reserved, s.k.notify}, r.member, payload).Int64()
	if err := s.answered("put back", m, n, err); err != nil {
		return err
	}
	s.h.pending(ctx, s.c.Queue, m, payload)
	return nil
}

// Renew starts m's lease anew.
func (s *Source) Renew(ctx context.Context, m *worker.Message) error {
	r := m.Receipt.(receipt)
	if r.dead {
		return nil
	}
	n, err := s.pipe.Run(ctx, renewScript, []string{s.k.reserved}, r.member, seconds(s.c.RetryAfter)).Int64()
	return s.answered("renew", m, n, err)
}

// Park writes m into failed_jobs and then removes it from the queue. A payload
// that cannot be decoded is refused: no command of Laravel can read it there.
func (s *Source) Park(ctx context.Context, m *worker.Message, reason string) error {
	if s.c.Failed == nil {
		return fmt.Errorf("laravel queue %s: job %s of class %s was not parked and stays on the queue: no failed_jobs table is configured; give the queue a database with `failed`", s.c.Queue, m.ID, m.Class)
	}
	if errors.Is(m.Err, worker.ErrUnreadable) {
		return fmt.Errorf("laravel queue %s: message %s was not parked and stays on the queue: failed_jobs cannot take it: %w", s.c.Queue, m.ID, m.Err)
	}
	if err := s.c.Failed.save(ctx, s.c.Connection, s.c.Queue, m, reason); err != nil {
		return fmt.Errorf("laravel queue %s: job %s of class %s was not parked and stays on the queue: %w", s.c.Queue, m.ID, m.Class, err)
	}
	if err := s.remove(ctx, m); err != nil {
		return err
	}
	s.h.failed(ctx, s.c.Queue, m, reason)
	return nil
}

// Depth counts the queue's jobs at one moment. Payloads that cannot be decoded
// count as reserved until they are acked.
func (s *Source) Depth(ctx context.Context) (worker.Depth, error) {
	n, err := depthScript.Run(ctx, s.redis, []string{s.k.ready, s.k.delayed, s.k.reserved, s.k.dead}).Int64Slice()
	if err != nil {
		return worker.Depth{}, fmt.Errorf("laravel queue %s: cannot count its jobs: %w", s.c.Queue, err)
	}
	if len(n) != 4 {
		return worker.Depth{}, fmt.Errorf("laravel queue %s: Redis replied %d counts, want 4", s.c.Queue, len(n))
	}
	return worker.Depth{Ready: n[0], Delayed: n[1], Reserved: n[2] + n[3]}, nil
}

// answered judges the reply of a guarded command: 0 means that m was no longer
// reserved and that nothing was done.
func (s *Source) answered(what string, m *worker.Message, n int64, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("laravel queue %s: cannot %s job %s: %w", s.c.Queue, what, m.ID, err)
	case n == 0:
		return fmt.Errorf("laravel queue %s: %s of job %s: %w", s.c.Queue, what, m.ID, worker.ErrLost)
	}
	return nil
}

func (s *Source) warn(err error) {
	if s.c.Warn != nil {
		s.c.Warn(err)
	}
}

func seconds(d time.Duration) float64 { return d.Seconds() }
