package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/produce"
	"zabor/internal/servers"
	"zabor/laravel"
	"zabor/provider"
	"zabor/sandbox"
	"zabor/step"
	"zabor/worker"
)

// provide starts the sandbox as a server of its own.
func provide(b *testing.B) (*sandbox.Sandbox, string) {
	s := sandbox.New(sandbox.Options{})
	server := httptest.NewServer(s)
	b.Cleanup(server.Close)
	return s, server.URL
}

func newRedis(b *testing.B) *redis.Client {
	db := servers.Redis(b)
	client := redis.NewClient(&redis.Options{Addr: db.Addr, DB: db.DB, MaxRetries: -1, PoolSize: 300})
	b.Cleanup(func() { client.Close() })
	// As queues commonly have it; the test server's own «always» would measure
	// its disk a second time.
	if err := client.ConfigSet(b.Context(), "appendfsync", "everysec").Err(); err != nil {
		b.Fatal(err)
	}
	return client
}

// push puts n messages on the queue, as Laravel does.
func push(b *testing.B, client *redis.Client, n int) {
	ctx := b.Context()
	pipe := client.Pipeline()
	for i := range n {
		payload, err := produce.Laravel(produce.Charge{Order: int64(i + 1), Minor: 1999})
		if err != nil {
			b.Fatal(err)
		}
		pipe.RPush(ctx, "queues:payments", payload)
		if pipe.Len() == 1000 || i == n-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// The whole road: a Laravel message taken from Redis, captured, called over a
// connection of its own, settled, acked.
func BenchmarkRoad(b *testing.B) {
	for _, d := range databases {
		for _, n := range lanes {
			b.Run(fmt.Sprintf("%s/lanes=%d", d.name, n), func(b *testing.B) {
				store := openStore(b, d.address(b))
				box, url := provide(b)
				one, err := provider.New("sandbox", sandbox.Profile(url, time.Minute), provider.Options{})
				if err != nil {
					b.Fatal(err)
				}
				client := newRedis(b)
				source, err := laravel.NewSource(client, laravel.Config{Queue: "payments", Connection: "redis", RetryAfter: 10 * time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				charge, err := step.New(step.Spec{
					Name: "charge", Classes: []string{produce.LaravelClass}, Order: "orderId", Amount: "amountCents", Currency: "EUR",
					Provider: "sandbox", Providers: map[string]step.Provider{"sandbox": {Timeout: 30 * time.Second, AbsentAfter: time.Minute}},
					Request:  provider.RequestSpec{Path: "/payments", JSON: map[string]any{"amount": "{{minor}}", "currency": "{{currency}}", "order": "{{order}}"}},
					Attempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour,
				})
				if err != nil {
					b.Fatal(err)
				}
				took := make([]time.Duration, 0, b.N)
				begun := sync.Map{}
				var mu sync.Mutex
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				at := func(m zabor.Checkpoint, k zabor.Key) {
					switch m {
					case zabor.Capturing:
						begun.Store(k.Order, time.Now())
					case worker.Acked:
						start, _ := begun.LoadAndDelete(k.Order)
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(start.(time.Time)))
						if len(took) == b.N {
							cancel()
						}
					}
				}
				w := &worker.Worker{
					Fence:  &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret), Observer: zabor.Observer{At: at}},
					Queues: []worker.Queue{{Source: source, Reserve: 10 * time.Minute, MissingRow: zabor.Doubt}},
					Lanes:  n, Steps: []*step.Step{charge}, Call: one.Call, Backoff: []time.Duration{time.Second},
					Log: slog.New(slog.DiscardHandler), At: at,
				}
				push(b, client, b.N)
				before := cpuTime(b)
				b.ReportAllocs()
				b.ResetTimer()
				start := time.Now()
				w.Run(ctx)
				elapsed := time.Since(start)
				b.StopTimer()
				report(b, took, elapsed, cpuTime(b)-before)
				if got := box.Stats().Charges; got != int64(b.N) {
					b.Fatalf("charges=%d, want %d", got, b.N)
				}
			})
		}
	}
}

// The loop that people write: pop, insert, call, update; the same new connection
// for each call, no ack, no lease, no way back.
func BenchmarkNaiveRoad(b *testing.B) {
	for _, d := range databases {
		for _, n := range lanes {
			b.Run(fmt.Sprintf("%s/lanes=%d", d.name, n), func(b *testing.B) {
				store := openStore(b, d.address(b))
				insert, update := naiveStatements(b, store)
				_, url := provide(b)
				client := newRedis(b)
				push(b, client, b.N)
				web := freshClient()
				measure(b, n, func(i int) {
					if err := client.LPop(b.Context(), "queues:payments").Err(); err != nil {
						b.Error(err)
					}
					if _, err := insert.Exec(int64(i), "charge"); err != nil {
						b.Error(err)
					}
					pay(b, web, url, i)
					if _, err := update.Exec("pay_1", int64(i)); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// The call alone, over a new connection each time.
func BenchmarkCall(b *testing.B) {
	for _, n := range lanes {
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			_, url := provide(b)
			one, err := provider.New("sandbox", sandbox.Profile(url, time.Minute), provider.Options{})
			if err != nil {
				b.Fatal(err)
			}
			measure(b, n, func(i int) {
				frozen, err := provider.Freeze(provider.Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: body(i)})
				if err != nil {
					b.Error(err)
				}
				ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
				defer cancel()
				row := zabor.Row{Key: effect(i).Key, ProviderKey: fmt.Sprint("key", i), Open: zabor.Open{Request: frozen}, Amount: zabor.Money{Minor: 1999, Currency: "EUR"}}
				if o := one.Call(ctx, row); o.Verdict != zabor.Done {
					b.Errorf("%v: %s", o.Verdict, o.Reason)
				}
			})
		})
	}
}

// The same by net/http, as plainly as it goes.
func BenchmarkNaiveCall(b *testing.B) {
	for _, n := range lanes {
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			_, url := provide(b)
			web := freshClient()
			measure(b, n, func(i int) { pay(b, web, url, i) })
		})
	}
}

func freshClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

func body(i int) []byte {
	return fmt.Appendf(nil, `{"amount":1999,"currency":"EUR","order":"%d"}`, i)
}

func pay(b *testing.B, web *http.Client, url string, i int) {
	r, err := http.NewRequest("POST", url+"/payments", bytes.NewReader(body(i)))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", fmt.Sprint("key", i))
	answer, err := web.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		b.Errorf("status %d", answer.StatusCode)
	}
}
