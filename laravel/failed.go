package laravel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"zabor/worker"
)

// Failed lists the queue's rows of failed_jobs, the newest first. It ends with
// the first error.
func (s *Source) Failed(ctx context.Context) iter.Seq2[FailedJob, error] {
	return s.FailedBefore(ctx, "")
}

// FailedBefore is Failed for the rows that are older than the one with that mark,
// which need not be there any more; empty: for all.
func (s *Source) FailedBefore(ctx context.Context, mark string) iter.Seq2[FailedJob, error] {
	return s.c.Failed.list(ctx, s.c.Failed.text.list, s.c.Connection, s.c.Queue, mark)
}

// FailedElsewhere lists the rows of a queue of the same name on other connections, as
// Failed does. Two connections of config/queue.php may be one list in Redis: then
// `php artisan queue:retry` puts these on it, as jobs that nobody has had.
func (s *Source) FailedElsewhere(ctx context.Context) iter.Seq2[FailedJob, error] {
	return s.c.Failed.list(ctx, s.c.Failed.text.elsewhere, s.c.Connection, s.c.Queue, "")
}

// FailedJob is the queue's row with that uuid, or ErrNoFailedJob.
func (s *Source) FailedJob(ctx context.Context, uuid string) (FailedJob, error) {
	return s.c.Failed.get(ctx, s.c.Connection, s.c.Queue, uuid)
}

// Decode reads a payload of failed_jobs as Receive would.
func (s *Source) Decode(raw []byte) *worker.Message { return Decode(raw, s.c.AppKeys) }

// Forget deletes the queue's row with that uuid, or is ErrNoFailedJob. Then it
// takes the job off Horizon's list of failed jobs, as `php artisan horizon:forget`
// does: Horizon's Retry needs no row.
func (s *Source) Forget(ctx context.Context, uuid string) error {
	if err := s.c.Failed.forget(ctx, s.c.Connection, s.c.Queue, uuid); err != nil {
		return err
	}
	s.h.forgotten(ctx, uuid)
	return nil
}

// Retry puts the job with that uuid at the end of its queue and only then deletes
// its row, as `php artisan queue:retry` does: with no attempts, every other byte
// as it is. Whatever fails or dies in between leaves it in both, never in
// neither. A class's own retryUntil() is code that only PHP can ask, so the
// payload's retryUntil stays as it is.
func (s *Source) Retry(ctx context.Context, uuid string) error {
	return s.requeue(ctx, uuid, s.c.Queue, withoutAttempts)
}

// MoveOn puts the job with that uuid at the end of another queue of the same
// connection, as Retry does at that of its own, but without its sign.
func (s *Source) MoveOn(ctx context.Context, uuid, queue string) error {
	return s.requeue(ctx, uuid, queue, anew)
}

func (s *Source) requeue(ctx context.Context, uuid, queue string, fresh func([]byte) ([]byte, error)) error {
	return s.c.Failed.take(ctx, s.c.Connection, s.c.Queue, uuid, func(payload []byte) error {
		payload, err := fresh(payload)
		if err != nil {
			return fmt.Errorf("%w, and was not queued: %w", worker.ErrUnreadable, err)
		}
		_, err = s.push(ctx, queue, payload)
		return err
	})
}

// Push puts bytes at the end of the queue as an application does. If the same
// bytes wait there already, nothing is done and it is false: whoever asks again
// because an answer was lost makes no second copy.
func (s *Source) Push(ctx context.Context, raw []byte) (bool, error) {
	return s.push(ctx, s.c.Queue, raw)
}

func (s *Source) push(ctx context.Context, queue string, raw []byte) (bool, error) {
	k := names(s.c.Prefix, queue, s.cluster)
	n, err := pushScript.Run(ctx, s.redis, []string{k.ready, k.notify, k.delayed}, raw).Int64()
	if err != nil {
		return false, fmt.Errorf("laravel queue %s: cannot queue a job: %w", queue, err)
	}
	if n > 0 {
		s.h.pushed(ctx, queue, raw)
	}
	return n > 0, nil
}

// withoutAttempts is the payload with the number of its attempts set to 0. Only
// the digits are touched: those of the last member attempts, which counts.
func withoutAttempts(raw []byte) ([]byte, error) {
	members, err := membersOf(raw)
	if err != nil {
		return nil, err
	}
	last := -1
	for i, m := range members {
		if m.name == "attempts" {
			last = i
		}
	}
	if last < 0 {
		return nil, errors.New("it has no attempts")
	}
	start, end := members[last].value, members[last].end
	if raw[start] == '"' {
		start, end = start+1, end-1
	}
	return slices.Concat(raw[:start], []byte("0"), raw[end:]), nil
}

// anew is the payload for another queue, where nobody has handled it yet: without
// attempts and without the sign.
func anew(raw []byte) ([]byte, error) {
	for {
		members, err := membersOf(raw)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(members, func(m member) bool { return m.name == signKey })
		if i < 0 {
			return withoutAttempts(raw)
		}
		start, end := members[i].start, members[i].end // from the comma in front of it
		if i == 0 {
			end += bytes.IndexByte(raw[end:], ',') + 1 // it has a job and attempts behind it
		}
		raw = slices.Concat(raw[:start], raw[end:])
	}
}

// member is a member of a payload, by its places in the text.
type member struct {
	name              string
	start, value, end int // start: the end of the member before it, or of the brace
}

// membersOf lists the members of a payload in their order.
func membersOf(raw []byte) ([]member, error) {
	if _, err := parse(raw); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var members []member
	for d.More() {
		start := d.InputOffset()
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		members = append(members, member{name: name.(string), start: int(start), value: end - len(value), end: end})
	}
	return members, nil
}
