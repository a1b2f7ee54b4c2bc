package laravel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// Forward moves m, with the bytes that it had before the delivery, to the end of
// another queue of the same connection. On a cluster where the two queues are in
// different slots m is pushed before it is removed: whatever fails in between
// leaves it in both. A payload that cannot be decoded is refused.
func (s *Source) Forward(ctx context.Context, m *worker.Message, queue string) error {
	r := m.Receipt.(receipt)
	if r.dead {
		return fmt.Errorf("laravel queue %s: message %s was not forwarded to %s and stays: %w", s.c.Queue, m.ID, queue, m.Err)
	}
	return s.moveTo(ctx, m, queue, m.Raw)
}

// moveTo removes m from the queue and puts it at the end of another one as the
// given payload.
func (s *Source) moveTo(ctx context.Context, m *worker.Message, queue string, payload []byte) error {
	if queue == "" || queue == s.c.Queue {
		return fmt.Errorf("laravel queue %s: job %s was not forwarded and stays: %q is no other queue", s.c.Queue, m.ID, queue)
	}
	if err := s.replace(ctx, "forward", m, queue, payload, 0); err != nil {
		return err
	}
	s.h.pending(ctx, queue, m, payload)
	return nil
}

// replace removes m from the queue and puts a payload on the given one, in one
// script where Redis allows that.
func (s *Source) replace(ctx context.Context, what string, m *worker.Message, queue string, payload []byte, delay time.Duration) error {
	member, to := m.Receipt.(receipt).member, names(s.c.Prefix, queue, s.cluster)
	if s.sameSlot(to.ready) {
		n, err := s.pipe.Run(ctx, replaceScript, []string{s.k.reserved, to.ready, to.notify, to.delayed}, member, payload, seconds(delay)).Int64()
		return s.answered(what, m, n, err)
	}
	switch err := s.redis.ZScore(ctx, s.k.reserved, member).Err(); {
	case errors.Is(err, redis.Nil):
		return s.answered(what, m, 0, nil)
	case err != nil:
		return s.answered(what, m, 0, err)
	}
	if err := pushScript.Run(ctx, s.redis, []string{to.ready, to.notify, to.delayed}, payload, seconds(delay)).Err(); err != nil {
		return s.answered(what, m, 0, err)
	}
	n, err := s.redis.ZRem(ctx, s.k.reserved, member).Result()
	return s.answered(what, m, n, err)
}

// sameSlot reports whether one script may touch this queue and key.
func (s *Source) sameSlot(key string) bool {
	return !s.cluster || hashed(key) == hashed(s.k.ready)
}

// hashed is the part of a key that Redis Cluster hashes.
func hashed(key string) string {
	if !hasTag(key) {
		return key
	}
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}
