package pipe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/worker"
)

func TestMain(m *testing.M) { servers.Main(m) }

// watcher sees each round trip of a client before it is sent, but for those that
// begin a connection.
type watcher struct {
	trip func(ctx context.Context, commands int)
}

func (w watcher) see(ctx context.Context, cmds ...redis.Cmder) {
	if name := cmds[0].Name(); name != "hello" && name != "client" && name != "select" {
		w.trip(ctx, len(cmds))
	}
}

func (w watcher) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w watcher) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.see(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (w watcher) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.see(ctx, cmds...)
		return next(ctx, cmds)
	}
}

// open makes two clients of one database; trip sees those of the first.
func open(t *testing.T, trip func(ctx context.Context, commands int)) (watched, plain *redis.Client) {
	t.Helper()
	db := servers.Redis(t)
	var clients [2]*redis.Client
	for i := range clients {
		clients[i] = redis.NewClient(&redis.Options{Addr: db.Addr, DB: db.DB, MaxRetries: -1})
		t.Cleanup(func() { clients[i].Close() })
	}
	clients[0].AddHook(watcher{trip})
	return clients[0], clients[1]
}

const text = `
if ARGV[1] == '13' then return redis.error_reply('unlucky') end
redis.call('INCR', KEYS[1])
return ARGV[1]
`

// Commands that come while one is under way are one round trip, and each has the
// reply that is its own, also where Redis does not know the script yet.
func TestOwnReplies(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		hold, trips := make(chan struct{}), make(chan int, 100)
		var acked atomic.Int64
		c, plain := open(t, func(ctx context.Context, n int) {
			trips <- n
			acked.Add(int64(len(worker.AcksOf(ctx))))
			<-hold
		})
		echo := redis.NewScript(text + fmt.Sprint("-- ", time.Now())) // no other test knows it
		if known {
			if err := echo.Load(t.Context(), plain).Err(); err != nil {
				t.Fatal(err)
			}
		}
		const n = 40
		ended, end := context.WithCancel(t.Context())
		end()
		var wg sync.WaitGroup
		p := New(c)
		wg.Go(func() { p.Do(t.Context(), "PING") })
		<-trips // the first is on its way
		for i := range n {
			wg.Go(func() {
				ctx := worker.WithAck(t.Context(), zabor.Key{Order: fmt.Sprint(i)})
				if i == 14 {
					ctx = ended
				}
				got, err := p.Run(ctx, echo, []string{"count"}, i).Text()
				switch {
				case i == 13 && (err == nil || !strings.Contains(err.Error(), "unlucky")):
					t.Errorf("%d: %q, %v; want its own error", i, got, err)
				case i == 14 && !errors.Is(err, context.Canceled):
					t.Errorf("%d: %q, %v; its context had ended", i, got, err)
				case i != 13 && i != 14 && (err != nil || got != fmt.Sprint(i)):
					t.Errorf("%d: %q, %v", i, got, err)
				}
			})
		}
		for waiting(p) < n {
		}
		close(hold)
		wg.Wait()
		close(trips)
		var sizes []int
		for size := range trips {
			sizes = append(sizes, size)
		}
		want := []int{n - 1}
		if !known {
			want = []int{n - 1, n - 1} // by their digests, and then as they are
		}
		if fmt.Sprint(sizes) != fmt.Sprint(want) || acked.Load() != int64(len(want)*(n-1)) {
			t.Errorf("known=%v: round trips of %v commands with %d acks, want %v", known, sizes, acked.Load(), want)
		}
		if count, err := plain.Get(t.Context(), "count").Int(); err != nil || count != n-2 {
			t.Errorf("known=%v: %d scripts were run, %v; want %d", known, count, err, n-2)
		}
	}
}

func waiting(p *Pipe) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// A panic of one round trip is its caller's, an error to those that went with it,
// and nothing to those that come later.
func TestPanic(t *testing.T) {
	t.Parallel()
	hold, began := make(chan struct{}), make(chan struct{}, 10)
	var trips atomic.Int64
	c, _ := open(t, func(context.Context, int) {
		began <- struct{}{}
		<-hold
		if trips.Add(1) == 2 {
			panic("of the second round trip")
		}
	})
	p := New(c)
	var wg sync.WaitGroup
	wg.Go(func() { p.Do(t.Context(), "PING") })
	<-began
	var panics, failed atomic.Int64
	const n = 5
	for range n {
		wg.Go(func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			if p.Do(t.Context(), "PING").Err() != nil {
				failed.Add(1)
			}
		})
	}
	for waiting(p) < n {
	}
	close(hold)
	wg.Wait()
	if panics.Load() != 1 || failed.Load() != n-1 {
		t.Errorf("%d panics, %d errors; want 1, %d", panics.Load(), failed.Load(), n-1)
	}
	if err := p.Do(t.Context(), "PING").Err(); err != nil {
		t.Errorf("later: %v", err)
	}
}
