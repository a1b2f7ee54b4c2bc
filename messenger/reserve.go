package messenger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// Receive takes messages that were abandoned, whose reserve has ended, and then new
// ones. Before that it promotes delayed messages that are due. Stream and group are
// created if they are missing, also while running.
//
// If the reply was lost, the next Receive gets the messages of this one, with the
// delivery counter that they have: Redis keeps their ids in a key of this Source's
// for the redeliver_timeout.
func (s *Source) Receive(ctx context.Context, n int) ([]*worker.Message, error) {
	select {
	case s.receiving <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.receiving }()
	for ctx.Err() == nil {
		ms, err := s.reserve(n)
		if isNoGroup(err) && s.ready {
			s.ready = false
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("transport %s: %w", s.name, err)
		}
		for len(ms) > n { // the lost reply had more than is wanted now
			last := ms[len(ms)-1]
			if err := s.PutBack(context.WithoutCancel(ctx), last); err != nil && !errors.Is(err, worker.ErrLost) {
				return ms[:n], nil // the others come back when their reserve has ended, as delivered before
			}
			ms = ms[:len(ms)-1]
		}
		return ms, nil
	}
	return nil, ctx.Err()
}

// reserve makes one round. Its commands are not cancelled: a message that Redis has
// handed out must not be lost on the way.
func (s *Source) reserve(n int) ([]*worker.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	consumer, err := s.slot.take(ctx)
	if err != nil {
		return nil, err
	}
	if !s.ready {
		if err := s.setup(ctx); err != nil {
			return nil, err
		}
		s.ready = true
	}
	if time.Since(s.promoted) >= block {
		more, err := s.promote(ctx)
		if err != nil {
			return nil, err
		}
		if !more {
			s.promoted = time.Now()
		}
	}
	cursor, begun, timeout := s.lookFrom(), time.Now(), s.cfg.RedeliverTimeout
	reply, err := reserve.Run(ctx, s.client, []string{s.cfg.Stream, s.memory}, s.cfg.Group, consumer, fmt.Sprintf("%016d", s.reserves), min(n, batch),
		timeout.Milliseconds(), cursor, timeout.Milliseconds()).Slice()
	if err != nil {
		s.cursor = "0-0"
		s.lookAt(begun)
		return nil, fmt.Errorf("reserve messages of stream %s: %w", s.cfg.Stream, err)
	}
	given, err := readReply(reply)
	if err != nil {
		return nil, fmt.Errorf("reserve messages of stream %s: %w", s.cfg.Stream, err)
	}
	s.reserves++
	s.newest = given.newest
	if cursor != "" {
		s.cursor = given.cursor
	}
	s.missed = append(s.missed, given.gone...)
	if s.cursor == "0-0" && len(s.missed) > 0 {
		s.gone(s.missed)
		s.missed = nil
	}
	ms := make([]*worker.Message, 0, len(given.entries))
	for _, e := range given.entries {
		m := s.message(e.id, e.fields, given.consumer, e.deliveries)
		m.ReservedUntil = begun.Add(timeout)
		s.hold(m)
		ms = append(ms, m)
	}
	return ms, nil
}

// Wait returns when the stream has a newer entry than at the last Receive, and soon
// enough to promote delayed messages in time.
func (s *Source) Wait(ctx context.Context) error {
	select {
	case s.receiving <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	newest, looking := s.newest, s.cursor != "0-0"
	<-s.receiving
	if looking {
		return nil
	}
	err := s.client.XRead(ctx, &redis.XReadArgs{Streams: []string{s.cfg.Stream, newest}, Count: 1, Block: block}).Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !errors.Is(err, redis.Nil):
		return fmt.Errorf("transport %s: wait for messages: %w", s.name, err)
	}
	return nil
}

// lookFrom is where this round looks for abandoned messages: the cursor of a look
// that is under way, or of a new one that is due. Empty: nowhere.
func (s *Source) lookFrom() string {
	if s.cursor != "0-0" {
		return s.cursor
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.looked) < min(s.cfg.ClaimInterval, claimMost) && (s.look.IsZero() || now.Before(s.look)) {
		return ""
	}
	s.looked, s.look = now, time.Time{}
	return s.cursor
}

// lookAt makes the next look come at t, if it would come later.
func (s *Source) lookAt(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look.IsZero() || t.Before(s.look) {
		s.look = t
	}
}

// given is the answer of the script reserve.
type given struct {
	entries  []givenEntry
	consumer string
	cursor   string
	gone     []string
	newest   string
}

type givenEntry struct {
	id         string
	fields     map[string]string
	deliveries int64
}

var errReply = errors.New("unexpected answer of XAUTOCLAIM; Redis 7.0 or newer is needed")

func readReply(reply []any) (given, error) {
	var g given
	if len(reply) != 5 {
		return g, errReply
	}
	entries, ok1 := reply[0].([]any)
	consumer, ok2 := reply[1].(string)
	cursor, ok3 := reply[2].(string)
	gone, ok4 := reply[3].([]any)
	newest, ok5 := reply[4].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return g, errReply
	}
	g.consumer, g.cursor, g.newest = consumer, cursor, newest
	for _, entry := range entries {
		parts, _ := entry.([]any)
		if len(parts) != 3 {
			return g, errReply
		}
		e := givenEntry{fields: map[string]string{}}
		e.id, ok1 = parts[0].(string)
		list, ok2 := parts[1].([]any)
		e.deliveries, ok3 = parts[2].(int64)
		if !ok1 || !ok2 || !ok3 || len(list)%2 != 0 {
			return g, errReply
		}
		for i := 0; i < len(list); i += 2 {
			name, _ := list[i].(string)
			e.fields[name], _ = list[i+1].(string)
		}
		g.entries = append(g.entries, e)
	}
	for _, id := range gone {
		text, _ := id.(string)
		g.gone = append(g.gone, text)
	}
	return g, nil
}
