package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sandbox"
)

// listen starts a proxy over store and before the provider at url.
func listen(b *testing.B, store zabor.Store, url string) string {
	profile := sandbox.Profile(url, time.Minute)
	profile.Timeout = time.Minute // a busy machine must not end calls that are to be measured
	one, err := provider.New("sandbox", profile, provider.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := proxy.New(proxy.Options{
		Fence:     &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)},
		Upstreams: map[string]proxy.Upstream{"sandbox": {Provider: one}},
		Attempts:  3, HoldAfter: time.Hour, PendingFor: time.Hour, MaxBody: 64 << 10, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l, nil) }()
	b.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

func ask(b *testing.B, web *http.Client, url string, i int) {
	r, err := http.NewRequest("POST", url, strings.NewReader(string(body(i))))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Zabor-Order", fmt.Sprint(i))
	r.Header.Set("Zabor-Step", "charge")
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

// A call through the proxy: its p50 less that of BenchmarkDirect is what the fence
// adds, two commits among it.
func BenchmarkProxy(b *testing.B) {
	for _, d := range databases {
		for _, n := range lanes {
			b.Run(fmt.Sprintf("%s/lanes=%d", d.name, n), func(b *testing.B) {
				_, url := provide(b)
				at := listen(b, openStore(b, d.address(b)), url)
				web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
				measure(b, n, func(i int) { ask(b, web, at+"/sandbox/payments", i) })
			})
		}
	}
}

// The same call without a proxy, over a new connection each time, as a worker that
// was just started makes it.
func BenchmarkDirect(b *testing.B) {
	for _, n := range lanes {
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			_, url := provide(b)
			web := freshClient()
			measure(b, n, func(i int) { ask(b, web, url+"/payments", i) })
		})
	}
}

// What the proxy adds at one lane, beside what the disk takes in the same moments:
// round by round a call past the proxy, one through it, two plain autocommits, and
// the fence's own two statements. What is told is how the medians stand to each
// other.
func BenchmarkProxyAdds(b *testing.B) {
	for _, d := range databases {
		b.Run(d.name, func(b *testing.B) {
			_, url := provide(b)
			store := openStore(b, d.address(b))
			at := listen(b, store, url)
			web, fresh := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}, freshClient()
			insert, update := naiveStatements(b, openStore(b, d.address(b)))
			fence := &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)}
			lines := []struct {
				name string
				took []time.Duration
				work func(i int)
			}{
				{"direct", nil, func(i int) { ask(b, fresh, url+"/payments", i) }},
				{"proxy", nil, func(i int) { ask(b, web, at+"/sandbox/payments", b.N+i) }},
				{"two-commits", nil, func(i int) {
					if _, err := insert.Exec(int64(i), "charge"); err != nil {
						b.Error(err)
					}
					if _, err := update.Exec("pay_1", int64(i)); err != nil {
						b.Error(err)
					}
				}},
				{"fence", nil, func(i int) {
					if _, err := fence.Do(b.Context(), effect(i), atOnce); err != nil {
						b.Error(err)
					}
				}},
			}
			b.ResetTimer()
			for i := range b.N {
				for n := range lines {
					begin := time.Now()
					lines[n].work(i)
					lines[n].took = append(lines[n].took, time.Since(begin))
				}
			}
			b.StopTimer()
			p50 := map[string]float64{}
			for _, line := range lines {
				slices.Sort(line.took)
				p50[line.name] = line.took[len(line.took)/2].Seconds() * 1000
				b.ReportMetric(p50[line.name], line.name+"-ms")
			}
			added := p50["proxy"] - p50["direct"]
			b.ReportMetric(added/p50["two-commits"], "added/two-commits")
			b.ReportMetric(added/p50["fence"], "added/fence")
		})
	}
}

// What 1,000 calls that wait for the provider hold in memory, and what is left of
// it when they are over.
func BenchmarkProxyOpenCalls(b *testing.B) {
	const calls = 1000
	for b.Loop() {
		box := sandbox.New(sandbox.Options{})
		server := httptest.NewServer(box)
		at := listen(b, openStore(b, databases[0].address(b)), server.URL)
		if err := box.Plan(sandbox.Fault{Kind: sandbox.ActHang, Times: calls}); err != nil {
			b.Fatal(err)
		}
		web := freshClient()
		before := memory()
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() { ask(b, web, at+"/sandbox/payments", i) })
		}
		<-box.Wait(calls)
		// Callers, proxy and provider are all in this process.
		b.ReportMetric(float64(memory()-before)/calls, "B/open-call")
		box.Release()
		wg.Wait()
		server.Close()
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
