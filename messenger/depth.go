package messenger

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// Depth counts what the stream and the delayed set hold. A message whose reserve
// has ended is ready, as is one that was put back. Whether there is a message at
// all is seen in one moment (on a cluster whose slots part the two keys: in two),
// so that one that is just moving from one to the other is not missed.
func (s *Source) Depth(ctx context.Context) (worker.Depth, error) {
	var delayed, again *redis.IntCmd
	var info *redis.XInfoGroupsCmd
	var newest *redis.XMessageSliceCmd
	together := s.client.TxPipelined
	if !s.oneSlot() {
		together = s.client.Pipelined
	}
	_, err := together(ctx, func(p redis.Pipeliner) error {
		delayed = p.ZCard(ctx, s.queue())
		info = p.XInfoGroups(ctx, s.cfg.Stream)
		newest = p.XRevRangeN(ctx, s.cfg.Stream, "+", "-", 1)
		return nil
	})
	if err != nil && !noStream(err) {
		return worker.Depth{}, fmt.Errorf("transport %s: count messages: %w", s.name, err)
	}
	if again = delayed; !s.oneSlot() {
		again = s.client.ZCard(ctx, s.queue())
	}
	d := worker.Depth{Delayed: max(delayed.Val(), again.Val())}
	if err := again.Err(); err != nil {
		return d, fmt.Errorf("transport %s: count delayed messages: %w", s.name, err)
	}
	last, lag := "0-0", int64(-1)
	for _, g := range info.Val() {
		if g.Name == s.cfg.Group {
			d.Reserved, last, lag = g.Pending, g.LastDeliveredID, g.Lag
		}
	}
	if entries := newest.Val(); len(entries) > 0 && after(entries[0].ID, last) {
		n, err := s.countAfter(ctx, last, lag, d.Reserved)
		if d.Ready = max(n, 1); err != nil {
			return d, err
		}
	}
	if d.Reserved == 0 {
		return d, nil
	}
	idle, err := s.countIdle(ctx)
	idle = min(idle, d.Reserved)
	d.Ready, d.Reserved = d.Ready+idle, d.Reserved-idle
	return d, err
}

// after reports whether the entry id was added after the entry last.
func after(id, last string) bool {
	parts := func(id string) (ms, seq uint64) {
		first, second, _ := strings.Cut(id, "-")
		ms, _ = strconv.ParseUint(first, 10, 64) // Redis's own text of two numbers
		seq, _ = strconv.ParseUint(second, 10, 64)
		return ms, seq
	}
	ms, seq := parts(id)
	lastMs, lastSeq := parts(last)
	return ms > lastMs || ms == lastMs && seq > lastSeq
}

// noStream reports whether Redis has no such stream, which holds nothing.
func noStream(err error) bool { return strings.Contains(err.Error(), "no such key") }

// countIdle counts pending entries that may be claimed.
func (s *Source) countIdle(ctx context.Context) (int64, error) {
	var n int64
	from := "-"
	for {
		entries, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: s.cfg.Stream, Group: s.cfg.Group, Idle: s.cfg.RedeliverTimeout, Start: from, End: "+", Count: 1000,
		}).Result()
		if err != nil {
			return n, fmt.Errorf("transport %s: %w", s.name, err)
		}
		n += int64(len(entries))
		if len(entries) < 1000 {
			return n, nil
		}
		from = "(" + entries[len(entries)-1].ID
	}
}

// countAfter counts the entries that the group has not read. A short stream is
// counted exactly, since an empty one must be seen as empty: the group's lag is
// unknown or wrong where entries were deleted. Of a long one no more entries are
// read, which may be large: the lag must do, or else all that is in the stream but
// the pending, which is right where what is acked is deleted.
func (s *Source) countAfter(ctx context.Context, id string, lag, pending int64) (int64, error) {
	const short = 16
	entries, err := s.client.XRangeN(ctx, s.cfg.Stream, "("+id, "+", short).Result()
	if err != nil {
		return 0, fmt.Errorf("transport %s: %w", s.name, err)
	}
	switch n := int64(len(entries)); {
	case n < short:
		return n, nil
	case lag >= short:
		return lag, nil
	}
	all, err := s.client.XLen(ctx, s.cfg.Stream).Result()
	if err != nil {
		return short, fmt.Errorf("transport %s: %w", s.name, err)
	}
	return max(all-pending, short), nil
}
