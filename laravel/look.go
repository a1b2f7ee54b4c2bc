package laravel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// Look gives every job of the queue: the list in its order, delayed and then
// reserved jobs in none, and last the payloads that could not be decoded. See
// [worker.Source].
func (s *Source) Look(ctx context.Context, places ...worker.Place) iter.Seq2[worker.Seen, error] {
	return func(yield func(worker.Seen, error) bool) {
		not := func(p worker.Place) bool { return !p.Among(places) }
		_ = (not(worker.Ready) || s.list(ctx, s.k.ready, worker.Ready, yield)) &&
			(not(worker.Delayed) || s.set(ctx, s.k.delayed, worker.Delayed, yield)) &&
			(not(worker.Reserved) || s.set(ctx, s.k.reserved, worker.Reserved, yield)) &&
			(not(worker.Ready) || s.list(ctx, s.k.dead, worker.Ready, yield))
	}
}

// list passes the elements of a list to yield; false: yield wants no more.
func (s *Source) list(ctx context.Context, key string, place worker.Place, yield func(worker.Seen, error) bool) bool {
	for from, page := int64(0), int64(1); ; {
		payloads, err := s.redis.LRange(ctx, key, from, from+page-1).Result()
		if err != nil {
			yield(worker.Seen{}, s.unseen(key, err))
			return false
		}
		for _, raw := range payloads {
			if !yield(s.seen(raw, place, ""), nil) {
				return false
			}
		}
		if int64(len(payloads)) < page {
			return true
		}
		from, page = from+page, worker.NextPage(page, size(payloads))
	}
}

// set passes the members of a sorted set to yield, as list does. A scan misses
// none that stays while others come and go.
func (s *Source) set(ctx context.Context, key string, place worker.Place, yield func(worker.Seen, error) bool) bool {
	for cursor, page := uint64(0), int64(1); ; {
		members, next, err := s.redis.ZScan(ctx, key, cursor, "", page).Result()
		if err != nil {
			yield(worker.Seen{}, s.unseen(key, err))
			return false
		}
		for i := 0; i+1 < len(members); i += 2 {
			if !yield(s.seen(members[i], place, members[i+1]), nil) {
				return false
			}
		}
		if cursor = next; cursor == 0 {
			return true
		}
		page = worker.NextPage(page, size(members))
	}
}

// size is how many bytes texts have together.
func size(texts []string) (n int) {
	for _, text := range texts {
		n += len(text)
	}
	return n
}

func (s *Source) unseen(key string, err error) error {
	return fmt.Errorf("laravel queue %s: cannot look at %s: %w", s.c.Queue, key, err)
}

func (s *Source) seen(raw string, place worker.Place, score string) worker.Seen {
	seen := worker.Seen{Message: Decode([]byte(raw), s.c.AppKeys), Place: place}
	if place == worker.Ready {
		return seen
	}
	until, _ := strconv.ParseFloat(score, 64)
	seen.Until = time.Unix(int64(math.Ceil(until)), 0)
	if place == worker.Reserved && until != math.Floor(until) { // see the scripts
		seen.Holder = "zabor"
		p, err := parse([]byte(raw))
		seen.DeliveredBefore = err == nil && (p.attempts > 1 || p.fields["retry_of"] != nil || p.hasSign())
	}
	return seen
}

// Others lists Horizon's supervisors that work the queue, and jobs that a worker
// of another kind has reserved. A `queue:work` that has no job in hand cannot be
// seen: Laravel's workers announce themselves nowhere.
func (s *Source) Others(ctx context.Context) ([]worker.Other, error) {
	others, err := s.h.supervisors(ctx, s.c.Queue)
	if err != nil {
		return nil, fmt.Errorf("laravel queue %s: cannot look for Horizon's supervisors: %w", s.c.Queue, err)
	}
	jobs, err := foreignScript.Run(ctx, s.redis, []string{s.k.reserved}, 1000, 20).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("laravel queue %s: cannot look for jobs that others have: %w", s.c.Queue, err)
	}
	for _, raw := range jobs {
		m := Decode([]byte(raw), s.c.AppKeys)
		others = append(others, worker.Other{
			Name: "job " + m.ID,
			What: fmt.Sprintf("a worker that is not zabor's has reserved job %s of class %s", m.ID, m.Class),
			Stop: fmt.Sprintf("stop `php artisan queue:work` for %s, and take %s out of Horizon's configuration", s.c.Queue, s.c.Queue),
		})
	}
	return others, nil
}
