package messenger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
)

// uniqidPrefix marks a delayed member that [Source.Later] has written; the entry
// id in which the message first was follows, up to the next colon.
const uniqidPrefix = "zabor:"

// leaseTime is how long a promoter may take where stream and delayed set are on
// different nodes of a cluster.
const leaseTime = 30 * time.Second

// shortScore is the least score that is a time in milliseconds: PHP compares the
// number of digits, which is 13 until the year 2286.
const shortScore = 1_000_000_000_000

// promote moves delayed messages that are due into the stream, a batch at most. A
// member that is no message, or whose score is no time in milliseconds, stays where
// it is, is told once and blocks nothing; PHP would block on the one and lose the
// other. more: others are due.
func (s *Source) promote(ctx context.Context) (more bool, err error) {
	now := time.Now().UnixMilli()
	var bad int64
	for moved := 0; moved == 0; {
		members, err := s.client.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: s.queue(), ByScore: true, Start: shortScore, Stop: now, Offset: bad, Count: batch,
		}).Result()
		if err != nil {
			return false, fmt.Errorf("read delayed messages of %s: %w", s.queue(), err)
		}
		for _, m := range members {
			e, err := readEnvelope([]byte(m))
			if err != nil {
				bad++
				continue
			}
			if err := s.promoteOne(ctx, now, m, e); err != nil {
				err = fmt.Errorf("promote a delayed message of %s: %w", s.queue(), err)
				if redis.HasErrorPrefix(err, "OOM") {
					s.tellFull(err)
					return false, nil // what is ready can be taken all the same, and makes room
				}
				return false, err
			}
			moved++
			s.full = false
		}
		if more = len(members) == batch; !more {
			break
		}
	}
	short, err := s.client.ZCount(ctx, s.queue(), "-inf", "("+strconv.Itoa(shortScore)).Result()
	if err != nil {
		return false, fmt.Errorf("read delayed messages of %s: %w", s.queue(), err)
	}
	s.tellStuck(short, bad)
	return more, nil
}

func (s *Source) promoteOne(ctx context.Context, now int64, member string, e *envelope) error {
	value := s.cfg.Serializer.wrap(e.json())
	first := ""
	if id, ok := strings.CutPrefix(e.uniqid, uniqidPrefix); ok {
		first, _, _ = strings.Cut(id, ":")
	}
	if s.oneSlot() {
		return promote.Run(ctx, s.client, []string{s.cfg.Stream, s.queue()}, now, member, value, first).Err()
	}
	leased, err := lease.Run(ctx, s.client, []string{s.queue()}, now, member, now+leaseTime.Milliseconds()).Int()
	if err != nil || leased == 0 {
		return err
	}
	fields := []any{"message", value}
	if first != "" {
		fields = append(fields, "zabor", first)
	}
	if err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.cfg.Stream, Values: fields}).Err(); err != nil {
		return err
	}
	return s.client.ZRem(ctx, s.queue(), member).Err()
}

// tellFull tells once that Redis has no memory for delayed messages.
func (s *Source) tellFull(err error) {
	if !s.full {
		s.alert(zabor.Alert{
			Severity: zabor.Warning,
			Code:     "delayed-stuck",
			Text:     fmt.Sprintf("transport %s: its Redis has no memory left, so delayed messages wait; those that are ready are taken: %v", s.name, err),
			Next:     "redis-cli INFO memory; raise maxmemory, or make room",
		})
	}
	s.full = true
}

// tellStuck tells of members that stay, again when there are more.
func (s *Source) tellStuck(short, bad int64) {
	if n := short + bad; n > s.stuck {
		s.alert(zabor.Alert{
			Severity: zabor.Warning,
			Code:     "delayed-stuck",
			Text: fmt.Sprintf("transport %s: %d members of %s cannot be delivered: %d have a score that is no time in milliseconds, %d are no message. They were left where they are",
				s.name, n, s.queue(), short, bad),
			Next: "redis-cli ZRANGE " + s.queue() + " 0 9 WITHSCORES",
		})
	}
	s.stuck = short + bad
}
