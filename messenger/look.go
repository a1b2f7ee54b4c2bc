package messenger

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// Look gives every message of the transport: those that no consumer has had, then
// the delayed ones, in no order, and last those that are pending. Entries that the
// group has handled and that stay in the stream are not messages any more. See
// [worker.Source].
func (s *Source) Look(ctx context.Context, places ...worker.Place) iter.Seq2[worker.Seen, error] {
	return func(yield func(worker.Seen, error) bool) {
		groups, err := s.groups(ctx)
		if err != nil {
			yield(worker.Seen{}, fmt.Errorf("transport %s: %w", s.name, err))
			return
		}
		last, grouped := "0-0", false
		for _, g := range groups {
			if g.Name == s.cfg.Group {
				last, grouped = g.LastDeliveredID, true
			}
		}
		not := func(p worker.Place) bool { return !p.Among(places) }
		_ = (not(worker.Ready) || s.lookAtNew(ctx, last, yield)) &&
			(not(worker.Delayed) || s.lookAtDelayed(ctx, yield)) &&
			(not(worker.Reserved) || !grouped || s.lookAtPending(ctx, yield))
	}
}

// lookAtNew passes the entries behind last to yield; false: yield wants no more.
func (s *Source) lookAtNew(ctx context.Context, last string, yield func(worker.Seen, error) bool) bool {
	for page := int64(1); ; {
		entries, err := s.client.XRangeN(ctx, s.cfg.Stream, "("+last, "+", page).Result()
		if err != nil {
			yield(worker.Seen{}, s.unseen(err))
			return false
		}
		bytes := 0
		for _, e := range entries {
			m := s.lying(e, 0)
			if !yield(worker.Seen{Message: m, Place: worker.Ready}, nil) {
				return false
			}
			last, bytes = e.ID, bytes+len(m.Raw)
		}
		if int64(len(entries)) < page {
			return true
		}
		page = worker.NextPage(page, bytes)
	}
}

// lookAtDelayed passes the members of the delayed set to yield, as lookAtNew does.
func (s *Source) lookAtDelayed(ctx context.Context, yield func(worker.Seen, error) bool) bool {
	for cursor, page := uint64(0), int64(1); ; {
		members, next, err := s.client.ZScan(ctx, s.queue(), cursor, "", page).Result()
		if err != nil {
			yield(worker.Seen{}, s.unseen(err))
			return false
		}
		bytes := 0
		for i := 0; i+1 < len(members); i += 2 {
			bytes += len(members[i])
			if !yield(s.delayed(members[i], members[i+1]), nil) {
				return false
			}
		}
		if cursor = next; cursor == 0 {
			return true
		}
		page = worker.NextPage(page, bytes)
	}
}

func (s *Source) delayed(member, score string) worker.Seen {
	due, _ := strconv.ParseFloat(score, 64)
	return worker.Seen{Message: s.Decode([]byte(member)), Place: worker.Delayed, Until: time.UnixMilli(int64(due))}
}

// Decode is the message whose bytes are raw, wherever they were: the value of an
// entry's field message, or a delayed member. It is not delivered, so that it has
// no Receipt.
func (s *Source) Decode(raw []byte) *worker.Message {
	m := &worker.Message{Raw: raw}
	text, err := unwrap(raw)
	var e *envelope
	if err == nil {
		e, err = readEnvelope(text)
	}
	if err != nil {
		m.Err = unreadable(err.Error())
		return m
	}
	s.read(m, e)
	m.ID = e.uniqid
	return m
}

// lookAtPending passes the group's pending entries to yield, as lookAtNew does.
func (s *Source) lookAtPending(ctx context.Context, yield func(worker.Seen, error) bool) bool {
	const listed = 100 // ids at a time
	for from, page := "-", int64(1); ; {
		pending, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: s.cfg.Stream, Group: s.cfg.Group, Start: from, End: "+", Count: listed,
		}).Result()
		if isNoGroup(err) {
			return true
		}
		if err != nil {
			yield(worker.Seen{}, s.unseen(err))
			return false
		}
		for rest := pending; len(rest) > 0; {
			n := min(int(page), len(rest))
			bytes, more := s.readPending(ctx, rest[:n], yield)
			if !more {
				return false
			}
			rest, page = rest[n:], worker.NextPage(page, bytes)
		}
		if len(pending) < listed {
			return true
		}
		from = "(" + pending[listed-1].ID
	}
}

// readPending reads pending entries and passes them to yield. It returns how many bytes
// they had; false: yield wants no more.
func (s *Source) readPending(ctx context.Context, pending []redis.XPendingExt, yield func(worker.Seen, error) bool) (bytes int, more bool) {
	pipe := s.client.Pipeline()
	for _, p := range pending {
		pipe.XRange(ctx, s.cfg.Stream, p.ID, p.ID)
	}
	replies, err := pipe.Exec(ctx)
	if err != nil {
		yield(worker.Seen{}, s.unseen(err))
		return 0, false
	}
	for i, reply := range replies {
		entries := reply.(*redis.XMessageSliceCmd).Val()
		if len(entries) == 0 {
			continue // trimmed or deleted: nobody can be given it any more
		}
		seen := s.pending(entries[0], pending[i])
		if !yield(seen, nil) {
			return 0, false
		}
		bytes += len(seen.Raw)
	}
	return bytes, true
}

// pending is an entry that a consumer has. One whose delivery counter is 0 was put
// back by a worker that had not begun.
func (s *Source) pending(e redis.XMessage, p redis.XPendingExt) worker.Seen {
	before := p.RetryCount
	seen := worker.Seen{Place: worker.Reserved, Until: time.Now().Add(s.cfg.RedeliverTimeout - p.Idle)}
	if p.RetryCount > 0 {
		seen.Holder = p.Consumer
		if IsConsumer(p.Consumer) {
			before--
		}
	}
	seen.Message = s.lying(e, before)
	return seen
}

// lying is an entry that was delivered so often before.
func (s *Source) lying(e redis.XMessage, before int64) *worker.Message {
	fields := make(map[string]string, len(e.Values))
	for name, value := range e.Values {
		fields[name], _ = value.(string)
	}
	m := s.message(e.ID, fields, "", before+1)
	m.Receipt = nil
	return m
}

func (s *Source) unseen(err error) error {
	return fmt.Errorf("transport %s: cannot look at its messages: %w", s.name, err)
}

// alive is how long ago a consumer may have asked for a message and still count
// as one that lives. Symfony's worker asks once in each --sleep, a second.
const alive = time.Minute

// Others lists consumers of the group that are not zabor's and have asked for
// messages within the last minute. Before Redis 7.2 asking in vain does not count:
// a worker that found nothing for a minute is seen again when it takes a message.
func (s *Source) Others(ctx context.Context) ([]worker.Other, error) {
	consumers, err := s.client.XInfoConsumers(ctx, s.cfg.Stream, s.cfg.Group).Result()
	if err != nil {
		if isNoGroup(err) || noStream(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("transport %s: consumers of group %s: %w", s.name, s.cfg.Group, err)
	}
	var others []worker.Other
	for _, c := range consumers {
		if c.Idle >= alive || IsConsumer(c.Name) || len(others) == 100 {
			continue
		}
		others = append(others, worker.Other{
			Name: c.Name, Named: true,
			What: fmt.Sprintf("consumer %q of group %s asked for messages of stream %s %s ago", c.Name, s.cfg.Group, s.cfg.Stream, c.Idle.Round(time.Second)),
			Stop: fmt.Sprintf("stop `messenger:consume %s` everywhere; it counts as gone %s after it has ended", s.name, alive),
		})
	}
	return others, nil
}
