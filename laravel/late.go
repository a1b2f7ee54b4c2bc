package laravel

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Horizon's application queues a job first and writes its hash second, as pending. A
// job that zabor finishes in between would be shown as pending for ever: Horizon's
// Retry does nothing then, and its hash expires too early. So the end of such a job is
// looked at again.

// When the end of a job is looked at again, counted from the end.
const (
	firstLook = time.Second
	lastLook  = 10 * time.Second
)

// mostLate bounds the ends that are looked at again, at one time.
const mostLate = 20_000

var endScript = redis.NewScript(`
-- Writes the end of a job again if the hash says that it is pending.
-- KEYS[1] hash  KEYS[2] list of pending jobs
-- ARGV[1] id  ARGV[2] unix second of its expiry  ARGV[3...] fields and values
-- Returns 1 if it has.
if redis.call('HGET', KEYS[1], 'status') ~= 'pending' then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('EXPIREAT', KEYS[1], ARGV[2])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
`)

// ends are the ends of jobs that are looked at again. The zero ends is ready for use.
type ends struct {
	mu     sync.Mutex
	closed bool
	last   map[*shown]*time.Timer // of the last looks
	count  int
	looks  sync.WaitGroup // that are to come or under way
}

// ended notes the end of j, whose hash got these fields. It is looked at again if the
// application's own write had not come when j was taken, or if the application notes j
// in its parent.
func (h *horizon) ended(j *shown, status string, expires time.Time, fields []any) {
	e := &h.ends
	e.mu.Lock()
	defer e.mu.Unlock()
	if !j.early && j.retryOf == "" || e.closed || e.count >= mostLate {
		return
	}
	e.count++
	e.looks.Add(1)
	time.AfterFunc(firstLook, func() {
		h.endAgain(j, status, expires, fields)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.closed {
			e.looks.Done()
			return
		}
		if e.last == nil {
			e.last = map[*shown]*time.Timer{}
		}
		e.last[j] = time.AfterFunc(lastLook-firstLook, func() {
			h.endAgain(j, status, expires, fields)
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.last, j)
			e.count--
			e.looks.Done()
		})
	})
}

// endAgain writes the end of j again where the application has overwritten it.
func (h *horizon) endAgain(j *shown, status string, expires time.Time, fields []any) {
	h.write(context.Background(), "a job has ended", func(ctx context.Context, tx redis.Pipeliner) {
		h.retried(ctx, tx, j, status)
		if j.early {
			args := append([]any{j.id, strconv.FormatInt(expires.Unix(), 10)}, fields...)
			endScript.Eval(ctx, tx, []string{h.prefix + j.id, h.prefix + "pending_jobs"}, args...)
		}
	})
}

// close waits for the first look at each job that has ended, a second at most, and
// leaves the others out.
func (h *horizon) close() {
	if h == nil {
		return
	}
	h.ends.mu.Lock()
	h.ends.closed = true
	for _, timer := range h.ends.last {
		if timer.Stop() {
			h.ends.looks.Done()
		}
	}
	h.ends.mu.Unlock()
	h.ends.looks.Wait()
}
