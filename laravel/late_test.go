package laravel

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// stored is what Horizon's listener StoreJob writes after a job was pushed.
func (q queue) stored(t *testing.T, id, payload string) {
	t.Helper()
	ctx, now := t.Context(), time.Now()
	pipe := q.app.Pipeline()
	for _, list := range []string{"recent_jobs", "pending_jobs"} {
		pipe.ZAdd(ctx, "laravel_horizon:"+list, redis.Z{Score: -seconds4(now), Member: id})
	}
	pipe.HSet(ctx, "laravel_horizon:"+id, "id", id, "connection", "redis", "queue", "default", "name", `App\Jobs\Legacy`, "status", "pending",
		"payload", payload, "created_at", microtime(now), "updated_at", microtime(now))
	pipe.ExpireAt(ctx, "laravel_horizon:"+id, now.Add(time.Hour))
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

// The application writes that a job is pending after it has queued it, and zabor may
// have finished the job by then. The end stays, wherever that write comes.
func TestHorizonLateWrite(t *testing.T) {
	t.Parallel()
	ends := map[string]func(q queue, ctx context.Context, m *worker.Message) error{
		"completed": func(q queue, ctx context.Context, m *worker.Message) error { return q.Ack(ctx, m) },
		"failed":    func(q queue, ctx context.Context, m *worker.Message) error { return q.Park(ctx, m, "held") },
	}
	for status, end := range ends {
		for _, when := range []string{"before it is taken", "while it runs", "after its end", "long after its end"} {
			t.Run(status+", "+when, func(t *testing.T) {
				t.Parallel()
				_, failed := sqliteJobs(t)
				q := horizonQueue(t, func(c *Config) { c.Failed = failed })
				ctx, hash := t.Context(), "laravel_horizon:uuid-1"
				payload := payloadOf("1")
				stored := func(now string) {
					if now == when {
						q.stored(t, "uuid-1", payload)
					}
				}
				q.push(t, payload)
				stored("before it is taken")
				m := q.receive(t)
				stored("while it runs")
				if err := end(q, ctx, m); err != nil {
					t.Fatal(err)
				}
				stored("after its end")
				looks := func() bool { q.h.ends.mu.Lock(); defer q.h.ends.mu.Unlock(); return len(q.h.ends.last) > 0 }
				if when == "long after its end" {
					until(t, "the first look is over", looks)
					stored(when)
				}
				until(t, "the end is shown", func() bool { return q.app.HGet(ctx, hash, "status").Val() == status })
				if n := q.app.ZCard(ctx, "laravel_horizon:pending_jobs").Val(); n != 0 {
					t.Errorf("%d pending jobs", n)
				}
				keep := map[string]time.Duration{"completed": trimRecent, "failed": trimFailed}[status]
				if ttl := q.app.TTL(ctx, hash).Val(); ttl < keep-time.Minute || ttl > keep {
					t.Errorf("its hash expires in %v, want %v", ttl, keep)
				}
				if status == "failed" && q.app.HGet(ctx, hash, "exception").Val() != "held" {
					t.Error("its reason is lost")
				}
			})
		}
	}
}

// A retry by Horizon is noted in its parent after it was pushed; its end is told there.
func TestHorizonLateParent(t *testing.T) {
	t.Parallel()
	q := horizonQueue(t, nil)
	ctx := t.Context()
	const parent = "laravel_horizon:parent"
	q.push(t, `{"uuid":"uuid-1","displayName":"Legacy","job":"Legacy@handle","data":[],"retry_of":"parent","attempts":0}`)
	if err := q.Ack(ctx, q.receive(t)); err != nil {
		t.Fatal(err)
	}
	q.app.HSet(ctx, parent, "id", "parent", "retried_by", `[{"id":"uuid-1","status":"pending","retried_at":1}]`)
	until(t, "the parent knows", func() bool {
		return strings.Contains(q.app.HGet(ctx, parent, "retried_by").Val(), `"status":"completed"`)
	})
}

// A source that is closed has looked at each end once: a drain leaves none behind.
func TestHorizonCloseLooksOnce(t *testing.T) {
	t.Parallel()
	q := horizonQueue(t, nil)
	q.push(t, payloadOf("1"))
	if err := q.Ack(t.Context(), q.receive(t)); err != nil {
		t.Fatal(err)
	}
	q.stored(t, "uuid-1", payloadOf("1"))
	q.Close()
	if got := q.app.HGet(t.Context(), "laravel_horizon:uuid-1", "status").Val(); got != "completed" {
		t.Errorf("status %q, want completed", got)
	}
}

// until waits until cond holds.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not after 30s: %s", what)
		}
	}
}
