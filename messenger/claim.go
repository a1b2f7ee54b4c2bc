package messenger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zabor/worker"
)

// lookDue reports whether it is time to look for abandoned messages, or a look is
// under way.
func (s *Source) lookDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return s.cursor != "0-0" || now.Sub(s.looked) >= min(s.cfg.ClaimInterval, claimMost) || !s.look.IsZero() && !now.Before(s.look)
}

// lookAt makes the next look come at t, if it would come later.
func (s *Source) lookAt(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look.IsZero() || t.Before(s.look) {
		s.look = t
	}
}

// claim makes one step of a look through the group's pending entries: those that
// were idle for the redeliver_timeout become ours, whoever had them. Young ones in
// front hide none behind them.
func (s *Source) claim(ctx context.Context, consumer string) error {
	if s.cursor == "0-0" {
		s.mu.Lock()
		s.looked, s.look = time.Now(), time.Time{}
		s.mu.Unlock()
	}
	before := time.Now()
	reply, err := claim.Run(ctx, s.client, []string{s.cfg.Stream},
		s.cfg.Group, consumer, s.cfg.RedeliverTimeout.Milliseconds(), s.cursor, batch).Slice()
	if err != nil {
		s.cursor = "0-0"
		return fmt.Errorf("claim abandoned messages of stream %s: %w", s.cfg.Stream, err)
	}
	entries, err := claimReply(reply)
	if err != nil {
		return fmt.Errorf("claim abandoned messages of stream %s: %w", s.cfg.Stream, err)
	}
	s.cursor = entries.cursor
	if len(entries.gone) > 0 {
		s.gone(entries.gone)
	}
	s.claimedAt = before
	for _, e := range entries.taken {
		s.claimed = append(s.claimed, s.message(e.id, e.fields, consumer, e.deliveries))
	}
	if len(s.claimed) > 0 {
		s.keepClaimedIn(s.cfg.RedeliverTimeout / 3)
	}
	return nil
}

// keepClaimedIn renews, after a while, what is still waiting here then, and goes on
// so. Without it another process would claim what our lanes have no time for yet,
// and every message that nobody has run would look as if somebody had.
func (s *Source) keepClaimedIn(d time.Duration) {
	if s.keeper == nil {
		s.keeper = time.AfterFunc(d, s.keepClaimed)
		return
	}
	s.keeper.Reset(d)
}

func (s *Source) keepClaimed() {
	s.receiving <- struct{}{}
	defer func() { <-s.receiving }()
	if len(s.claimed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	before := time.Now()
	kept := s.claimed[:0]
	for _, m := range s.claimed {
		err := s.answer(ctx, m.Receipt.(*delivery), false, renew, []string{s.cfg.Stream})
		if errors.Is(err, worker.ErrLost) {
			continue
		}
		if err != nil {
			before = s.claimedAt // not all of them
		}
		kept = append(kept, m)
	}
	s.claimed, s.claimedAt = kept, before
	s.keepClaimedIn(s.cfg.RedeliverTimeout / 3)
}

// takeClaimed is the next of the claimed messages; nil if there is none. One that
// had to wait here is renewed first, or dropped if somebody else has claimed it.
func (s *Source) takeClaimed(ctx context.Context) (*worker.Message, error) {
	for len(s.claimed) > 0 {
		m := s.claimed[0]
		if time.Since(s.claimedAt) > s.cfg.RedeliverTimeout/4 {
			err := s.answer(ctx, m.Receipt.(*delivery), false, renew, []string{s.cfg.Stream})
			if err != nil && !errors.Is(err, worker.ErrLost) {
				return nil, err
			}
			if err != nil {
				s.claimed = s.claimed[1:]
				continue
			}
		}
		s.claimed = s.claimed[1:]
		return m, nil
	}
	s.claimed = nil
	return nil, nil
}

type claimedEntries struct {
	cursor string
	taken  []claimedEntry
	gone   []string
}

type claimedEntry struct {
	id         string
	fields     map[string]string
	deliveries int64
}

var errClaimReply = errors.New("unexpected answer of XAUTOCLAIM; Redis 7.0 or newer is needed")

func claimReply(reply []any) (claimedEntries, error) {
	var c claimedEntries
	if len(reply) != 3 {
		return c, errClaimReply
	}
	cursor, ok1 := reply[0].(string)
	taken, ok2 := reply[1].([]any)
	gone, ok3 := reply[2].([]any)
	if !ok1 || !ok2 || !ok3 {
		return c, errClaimReply
	}
	c.cursor = cursor
	for _, t := range taken {
		parts, _ := t.([]any)
		if len(parts) != 3 {
			return c, errClaimReply
		}
		e := claimedEntry{fields: map[string]string{}}
		e.id, ok1 = parts[0].(string)
		list, ok2 := parts[1].([]any)
		e.deliveries, ok3 = parts[2].(int64)
		if !ok1 || !ok2 || !ok3 || len(list)%2 != 0 {
			return c, errClaimReply
		}
		for i := 0; i < len(list); i += 2 {
			name, _ := list[i].(string)
			e.fields[name], _ = list[i+1].(string)
		}
		c.taken = append(c.taken, e)
	}
	for _, id := range gone {
		text, _ := id.(string)
		c.gone = append(c.gone, text)
	}
	return c, nil
}
