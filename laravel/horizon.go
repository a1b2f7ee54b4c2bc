package laravel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// horizon keeps the keys that Horizon's dashboard, its wait times and its
// balancing read. They are display only: they are written after the queue's own
// state has changed, and an error in them fails no job. A nil horizon writes
// nothing.
//
// Horizon's keys are on the queue's own Redis connection (horizon.use), under a
// prefix of their own.
type horizon struct {
	redis              redis.UniversalClient
	prefix, connection string
	warn               func(error)
	ends               ends
}

// How long Horizon keeps a job's hash, as its configuration file has it
// (horizon.trim).
const (
	trimRecent = time.Hour          // pending, completed
	trimFailed = 7 * 24 * time.Hour // failed, monitored
)

// display bounds all that is written for one event.
const display = time.Second

// shown is what Horizon shows of a job.
type shown struct {
	early             bool // when it was reserved, the application had not written that it was pushed
	id, name, retryOf string
	tags              []string
	silenced          bool
	since             time.Time // when it was reserved
}

// shows reads a payload; false: it has no id, and Horizon would not know it.
func shows(raw []byte) (*shown, bool) {
	p, err := parse(raw)
	if err != nil {
		return nil, false
	}
	j := &shown{id: p.text("uuid"), name: p.text("displayName"), retryOf: p.text("retry_of"), since: time.Now()}
	if j.id == "" {
		j.id = p.text("id")
	}
	if j.name == "" {
		j.name = p.text("job")
	}
	list, _ := p.fields["tags"].([]any) // a pop makes {} of []
	for _, tag := range list {
		if s, ok := tag.(string); ok {
			j.tags = append(j.tags, s)
		}
	}
	j.silenced, _ = p.fields["silenced"].(bool)
	return j, j.id != ""
}

var (
	touchScript = redis.NewScript(`
-- Changes fields of a job's hash. One that has expired is written whole, and none
-- is left without an expiry.
-- KEYS[1] hash
-- ARGV[1] unix second of its expiry if it has none  ARGV[2] how many of the
-- following fields and values are written only if the hash has no id
-- ARGV[3...] fields and values
-- Returns the job's status before.
local was = redis.call('HGET', KEYS[1], 'status') or ''
local whole = {}
for i = 3, 2 + ARGV[2] do whole[#whole + 1] = ARGV[i] end
if #whole > 0 and redis.call('HEXISTS', KEYS[1], 'id') == 0 then redis.call('HSET', KEYS[1], unpack(whole)) end
redis.call('HSET', KEYS[1], unpack(ARGV, 3 + ARGV[2]))
if redis.call('TTL', KEYS[1]) == -1 then redis.call('EXPIREAT', KEYS[1], ARGV[1]) end
return was
`)

	measureScript = redis.NewScript(`
-- Counts a run, and its time into the mean since the last snapshot.
-- KEYS[1] hash of a job or queue  KEYS[2] set of all such hashes
-- ARGV[1] milliseconds
redis.call('SADD', KEYS[2], KEYS[1])
local n = tonumber(redis.call('HGET', KEYS[1], 'throughput') or 0)
local mean = tonumber(redis.call('HGET', KEYS[1], 'runtime') or 0)
redis.call('HSET', KEYS[1], 'throughput', n + 1, 'runtime', (n * mean + ARGV[1]) / (n + 1))
return 1
`)

	retriedScript = redis.NewScript(`
-- Tells the job that was retried from the dashboard what became of the retry.
-- KEYS[1] hash of that job
-- ARGV[1] id of the retry  ARGV[2] its status
local ok, list = pcall(cjson.decode, redis.call('HGET', KEYS[1], 'retried_by') or '')
if not ok or type(list) ~= 'table' then return 0 end
for _, retry in ipairs(list) do
  if type(retry) == 'table' and retry.id == ARGV[1] then retry.status = ARGV[2] end
end
redis.call('HSET', KEYS[1], 'retried_by', cjson.encode(list))
return 1
`)

	forgottenScript = redis.NewScript(`
-- Takes a job off the list of failed ones, and with it what Retry would push.
-- KEYS[1] list  KEYS[2] hash of the job
-- ARGV[1] its id
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then redis.call('DEL', KEYS[2]) end
return 1
`)
)

// write runs what add adds to a transaction, and tells of an error.
func (h *horizon) write(ctx context.Context, what string, add func(ctx context.Context, tx redis.Pipeliner)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), display)
	defer cancel()
	_, err := h.redis.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		add(ctx, tx)
		return nil
	})
	h.tell(what, err)
}

func (h *horizon) tell(what string, err error) {
	if err != nil && h.warn != nil {
		h.warn(fmt.Errorf("horizon was not told that %s; the job itself is not concerned: %w", what, err))
	}
}

// touch changes fields of j's hash.
func (h *horizon) touch(ctx context.Context, tx redis.Pipeliner, j *shown, queue string, now time.Time, keep time.Duration, fields ...any) (was *redis.Cmd) {
	whole := []any{"id", j.id, "connection", h.connection, "queue", queue, "name", j.name, "created_at", microtime(j.since)}
	args := append([]any{now.Add(keep).Unix(), len(whole)}, whole...)
	return touchScript.Eval(ctx, tx, []string{h.prefix + j.id}, append(args, fields...)...)
}

// list adds j to one of Horizon's lists of jobs, the newest first.
func (h *horizon) list(ctx context.Context, tx redis.Pipeliner, j *shown, name string, now time.Time) {
	tx.ZAdd(ctx, h.prefix+name, redis.Z{Score: -seconds4(now), Member: j.id})
}

// seconds4 is a time as PHP prints it, with four decimals.
func seconds4(t time.Time) float64 { return math.Round(float64(t.UnixMicro())/100) / 1e4 }

// watched are those of j's tags that somebody watches.
func (h *horizon) watched(ctx context.Context, j *shown) []string {
	if len(j.tags) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), display)
	defer cancel()
	monitored, err := h.redis.SMembers(ctx, h.prefix+"monitoring").Result()
	h.tell("a tag is watched", err)
	return slices.DeleteFunc(slices.Clone(j.tags), func(tag string) bool { return !slices.Contains(monitored, tag) })
}

// pushed: a payload was queued.
func (h *horizon) pushed(ctx context.Context, queue string, payload []byte) {
	if h == nil {
		return
	}
	j, ok := shows(payload)
	if !ok {
		return
	}
	now, tags := time.Now(), h.watched(ctx, j)
	h.write(ctx, "a job was queued", func(ctx context.Context, tx redis.Pipeliner) {
		h.list(ctx, tx, j, "recent_jobs", now)
		h.list(ctx, tx, j, "pending_jobs", now)
		tx.HSet(ctx, h.prefix+j.id, "id", j.id, "connection", h.connection, "queue", queue, "name", j.name, "status", "pending",
			"payload", payload, "created_at", microtime(now), "updated_at", microtime(now))
		tx.ExpireAt(ctx, h.prefix+j.id, now.Add(trimRecent))
		for _, tag := range tags {
			tx.ZAdd(ctx, h.prefix+tag, redis.Z{Score: seconds4(now), Member: j.id})
		}
	})
}

// reserved: ms were taken, and before that the jobs moved were put on the list
// because they were due. It notes in the receipts what is shown.
func (h *horizon) reserved(ctx context.Context, queue string, ms []*worker.Message, moved []string) {
	if h == nil || len(ms)+len(moved) == 0 {
		return
	}
	now := time.Now()
	for _, m := range ms {
		r := m.Receipt.(receipt)
		if j, ok := shows(m.Raw); ok {
			r.shown = j
		}
		m.Receipt = r
	}
	was := map[*shown]*redis.Cmd{}
	h.write(ctx, "a job was taken", func(ctx context.Context, tx redis.Pipeliner) {
		for _, payload := range moved {
			if due, ok := shows([]byte(payload)); ok {
				h.touch(ctx, tx, due, queue, now, trimRecent, "status", "pending", "payload", payload, "updated_at", microtime(now))
			}
		}
		for _, m := range ms {
			if r := m.Receipt.(receipt); r.shown != nil && !r.dead {
				was[r.shown] = h.touch(ctx, tx, r.shown, queue, now, trimRecent, "status", "reserved", "payload", r.member, "updated_at", microtime(now), "reserved_at", microtime(now))
			}
		}
	})
	for j, reply := range was {
		status, err := reply.Text()
		j.early = err != nil || status != "pending"
	}
}

// pending: m was given back, or moved to another queue, as the given payload.
func (h *horizon) pending(ctx context.Context, queue string, m *worker.Message, payload []byte) {
	j := m.Receipt.(receipt).shown
	if h == nil || j == nil {
		return
	}
	now := time.Now()
	h.write(ctx, "a job was given back", func(ctx context.Context, tx redis.Pipeliner) {
		h.touch(ctx, tx, j, queue, now, trimRecent, "status", "pending", "queue", queue, "payload", payload, "updated_at", microtime(now))
	})
}

// completed: m was removed from its queue.
func (h *horizon) completed(ctx context.Context, queue string, m *worker.Message) {
	r := m.Receipt.(receipt)
	j := r.shown
	if h == nil || j == nil {
		return
	}
	now, tags, keep := time.Now(), h.watched(ctx, j), trimRecent
	if len(tags) > 0 {
		keep = trimFailed
	}
	fields := []any{"status", "completed", "payload", r.member, "completed_at", microtime(now)}
	defer h.ended(j, "completed", now.Add(keep), fields)
	h.write(ctx, "a job was completed", func(ctx context.Context, tx redis.Pipeliner) {
		h.retried(ctx, tx, j, "completed")
		done := "completed_jobs"
		if j.silenced {
			done = "silenced_jobs"
		}
		h.list(ctx, tx, j, done, now)
		tx.ZRem(ctx, h.prefix+"pending_jobs", j.id)
		h.touch(ctx, tx, j, queue, now, trimRecent, fields...)
		if len(tags) > 0 {
			h.list(ctx, tx, j, "monitored_jobs", now)
		}
		tx.ExpireAt(ctx, h.prefix+j.id, now.Add(keep))
		ms := strconv.FormatFloat(max(0, float64(now.Sub(j.since).Microseconds())/1e3), 'f', 2, 64)
		measureScript.Eval(ctx, tx, []string{h.prefix + "queue:" + queue, h.prefix + "measured_queues"}, ms)
		measureScript.Eval(ctx, tx, []string{h.prefix + "job:" + j.name, h.prefix + "measured_jobs"}, ms)
	})
}

// failed: m was parked and removed from its queue.
func (h *horizon) failed(ctx context.Context, queue string, m *worker.Message, reason string) {
	r := m.Receipt.(receipt)
	j := r.shown
	if h == nil || j == nil {
		return
	}
	now := time.Now()
	fields := []any{"status", "failed", "payload", r.member, "exception", reason, "context", "", "failed_at", microtime(now)}
	defer h.ended(j, "failed", now.Add(trimFailed), fields)
	h.write(ctx, "a job has failed", func(ctx context.Context, tx redis.Pipeliner) {
		h.retried(ctx, tx, j, "failed")
		h.list(ctx, tx, j, "failed_jobs", now)
		h.list(ctx, tx, j, "recent_failed_jobs", now)
		for _, list := range []string{"pending_jobs", "completed_jobs", "silenced_jobs"} {
			tx.ZRem(ctx, h.prefix+list, j.id)
		}
		h.touch(ctx, tx, j, queue, now, trimFailed, fields...)
		tx.ExpireAt(ctx, h.prefix+j.id, now.Add(trimFailed))
		for _, tag := range j.tags {
			tx.ZAdd(ctx, h.prefix+"failed:"+tag, redis.Z{Score: seconds4(now), Member: j.id})
			tx.Expire(ctx, h.prefix+"failed:"+tag, trimFailed)
		}
	})
}

// forgotten: the failed job with that id was deleted.
func (h *horizon) forgotten(ctx context.Context, id string) {
	if h == nil {
		return
	}
	h.write(ctx, "failed job "+id+" was deleted, and may still offer to retry it", func(ctx context.Context, tx redis.Pipeliner) {
		forgottenScript.Eval(ctx, tx, []string{h.prefix + "failed_jobs", h.prefix + id}, id)
	})
}

func (h *horizon) retried(ctx context.Context, tx redis.Pipeliner, j *shown, status string) {
	if j.retryOf != "" {
		retriedScript.Eval(ctx, tx, []string{h.prefix + j.retryOf}, j.id, status)
	}
}

var errHorizonCluster = errors.New("there is no Horizon on Redis Cluster: take horizon out")
