package messenger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// forward adds an entry to another stream and ends the delivery that it came
// with. It answers as ack does.
//
//	KEYS[1] stream   KEYS[2] the other stream
//	ARGV[1] group    ARGV[2] id   ARGV[3] consumer   ARGV[4] deliveries
//	ARGV[5] 1: take the entry off the stream too
//	ARGV[6] …        the entry's fields and values
var forward = redis.NewScript(owns + `
if not owns(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 6))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
if ARGV[5] == '1' then redis.call('XDEL', KEYS[1], ARGV[2]) end
return 1
`)

// Forward moves m, with the fields that its entry had before the delivery, to the
// end of another stream of the same connection. On a cluster where the two are in
// different slots it is added before it is acked: whatever fails in between
// leaves it in both. A message that cannot be read is refused.
//
// One that has been in the failure transport loses the stamp that says so: with
// it, Symfony would drop the message when its handlers fail for good.
func (s *Source) Forward(ctx context.Context, m *worker.Message, stream string) error {
	return s.moveTo(ctx, m, stream, false)
}

// moveTo forwards m. anew: without zabor's own headers, since it has not been handled
// there.
func (s *Source) moveTo(ctx context.Context, m *worker.Message, stream string, anew bool) error {
	d, err := s.deliveryOf(m)
	if err != nil {
		return err
	}
	if stream == "" || stream == s.cfg.Stream {
		return fmt.Errorf("transport %s, message %s: not forwarded, it stays: %q is no other stream", s.name, d.id, stream)
	}
	if d.envelope == nil || errors.Is(m.Err, worker.ErrUnreadable) {
		return fmt.Errorf("transport %s, message %s: not forwarded to %s, it stays: %w", s.name, d.id, stream, cmp.Or(m.Err, worker.ErrUnreadable))
	}
	fields := s.outside(d, anew)
	if !s.cfg.Cluster || hashed(stream) == hashed(s.cfg.Stream) {
		return s.answer(ctx, d, true, forward, []string{s.cfg.Stream, stream}, append([]any{s.cfg.DeleteAfterAck}, fields...)...)
	}
	if err := s.Renew(ctx, m); err != nil {
		return err
	}
	if err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: fields}).Err(); err != nil {
		return fmt.Errorf("transport %s, message %s: not forwarded to %s: %w", s.name, d.id, stream, err)
	}
	return s.ack(ctx, m, s.cfg.DeleteAfterAck)
}

// outside is d's entry as it is for those who know nothing of the failure
// transport that it has been in. anew: without zabor's own headers.
func (s *Source) outside(d *delivery, anew bool) []any {
	e, changed := d.envelope.outside(s.secrets)
	if anew {
		var more bool
		e, more = e.withoutOurs()
		changed = changed || more
	}
	if !changed {
		return d.fields
	}
	fields := slices.Clone(d.fields)
	for i := 0; i < len(fields); i += 2 {
		switch fields[i] {
		case "message":
			fields[i+1] = s.cfg.Serializer.wrap(e.json())
		case "body":
			fields[i+1] = e.body
		case "headers":
			fields[i+1] = string(e.headersJSON)
		}
	}
	return fields
}

// hashed is the part of a key that Redis Cluster hashes: what is between the
// first { and the first } behind it, unless that is empty, else the whole key.
func hashed(key string) string {
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	if open && closed && tag != "" {
		return tag
	}
	return key
}
