package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sandbox"
)

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Who sends slowly is not waited for: a head has ten seconds and a body twenty,
// however much of it comes each second.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	const head = "POST /acquirer/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: 1\r\nZabor-Step: charge\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	for _, tt := range []struct {
		name   string
		begin  string        // what comes at once; after it one byte comes each second
		after  time.Duration // when it is over
		status int           // 0: the connection is closed without an answer
	}{
		{"a head", head[:20], 10 * time.Second, 0},
		{"a head that never ends", "POST / HTTP/1.1\r\nX: ", 10 * time.Second, 0},
		{"a body", head, 20 * time.Second, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one, err := provider.New("acquirer", sandbox.Profile("http://127.0.0.1:1", time.Second), provider.Options{})
				if err != nil {
					t.Fatal(err)
				}
				p, err := proxy.New(proxy.Options{
					Fence: &zabor.Fence{}, Upstreams: map[string]proxy.Upstream{"acquirer": {Provider: one}}, MaxBody: 1 << 16, Attempts: 1, Log: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- p.Serve(ctx, l, nil) }()
				mine, theirs := net.Pipe()
				l.conns <- theirs
				start := time.Now()
				var writing sync.WaitGroup
				writing.Go(func() {
					tick := time.NewTicker(time.Second)
					defer tick.Stop()
					_, err := io.WriteString(mine, tt.begin)
					for err == nil {
						<-tick.C
						_, err = io.WriteString(mine, "x")
					}
				})
				status := 0
				if resp, err := http.ReadResponse(bufio.NewReader(mine), nil); err == nil {
					status = resp.StatusCode
					resp.Body.Close()
				}
				if took := time.Since(start).Round(time.Second); took != tt.after || status != tt.status {
					t.Errorf("%d after %s, want %d after %s", status, took, tt.status, tt.after)
				}
				mine.Close()
				writing.Wait()
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// More callers than there is room for are told so, and nothing is sent for them;
// when there is room again they are taken. What the others only announce costs no
// memory.
func TestTooManyCallers(t *testing.T) {
	t.Parallel()
	const room = 1024
	const callers = room + 8 // some may find that this test itself has the last place
	d := open(t, settings{options: proxy.Options{MaxBody: 1 << 30}})
	before := heap()
	hold, release := d.holders(1 << 30)
	hold(callers)
	d.eventually("there is no room", func() bool {
		a := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
		if a.status == 201 { // not all of them have been read so far
			hold(8)
			return false
		}
		a.says(t, 503, "busy-proxy", "")
		return a.header.Get("Retry-After") != ""
	})
	if each := (heap() - before) / callers; each > 256<<10 {
		t.Errorf("each of them holds %d bytes", each)
	}
	release()
	d.until(201, "POST", "/acquirer/payments", charge, fenced("1002", "charge")...)
	for _, order := range []string{"0", "1023"} {
		d.do("GET", "/fences/"+order+"/charge", "").says(t, 404, "no-row", "")
	}
}

// What a call that waits for the provider holds in memory is bounded, callers and
// provider included, which are in this process. ZABOR_SOAK=1 makes it 1,000.
func TestOpenCallsAreBounded(t *testing.T) {
	t.Parallel()
	calls := 100
	if os.Getenv("ZABOR_SOAK") == "1" {
		calls = 1000
	}
	d := open(t, settings{profile: func(p *provider.Profile) { p.Timeout = time.Minute }})
	if err := d.box.Plan(sandbox.Fault{Kind: sandbox.ActHang, Times: calls}); err != nil {
		t.Fatal(err)
	}
	before := heap()
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			order := fmt.Sprint(i)
			a, err := d.try("POST", "/acquirer/payments", strings.Replace(charge, "1001", order, 1), fenced(order, "charge")...)
			if err != nil || a.status != 201 {
				t.Errorf("order %s: %s, %v", order, a, err)
			}
		})
	}
	<-d.box.Wait(int64(calls))
	if each := (heap() - before) / int64(calls); each > 1<<20 {
		t.Errorf("each call holds %d bytes", each)
	}
	d.box.Release()
	wg.Wait()
	d.posts(int64(calls))
}

// holders are callers, each of which holds a place: of its body, which has so many
// bytes, only the first comes. release ends them all.
func (d *door) holders(size int) (hold func(n int), release func()) {
	var open []net.Conn
	release = func() {
		for _, c := range open {
			c.Close()
		}
	}
	d.t.Cleanup(release)
	return func(n int) {
		d.t.Helper()
		for range n {
			c, err := net.Dial("tcp", d.addr)
			if err != nil {
				d.t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /acquirer/payments HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: %d\r\nZabor-Step: charge\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", len(open), size)
			open = append(open, c)
		}
	}, release
}

// In observe mode those beyond the bound pass too, without being looked at.
func TestObserveTooManyCallers(t *testing.T) {
	t.Parallel()
	const room = 1024
	d := open(t, settings{options: proxy.Options{Observe: true}, profile: func(p *provider.Profile) { p.Timeout = time.Minute }})
	hold, _ := d.holders(1000)
	hold(room)
	d.eventually("there is no room", func() bool {
		a := d.do("POST", "/acquirer/payments", charge)
		if a.status != 201 {
			t.Fatalf("%s", a)
		}
		hold(8)
		return a.header.Get("Zabor-Observed") == "unavailable"
	})
	d.do("GET", "/acquirer/_stats", "").says(t, 200, "", "")
}

// An answer that only passes and does not end keeps a stop waiting no longer than a
// call may take.
func TestStopCutsWhatPasses(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; r.Context().Err() == nil; i++ {
			io.WriteString(w, "x")
			http.NewResponseController(w).Flush()
			if i == 0 {
				close(begun)
			}
			<-tick.C
		}
	}))
	defer server.Close()
	d := open(t, settings{upstream: server.URL}) // a call may take a second
	ended := make(chan error, 1)
	go func() {
		resp, err := http.Get(d.url + "/acquirer/trickle")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		ended <- err
	}()
	<-begun
	d.stop()
	select {
	case <-d.served:
	case <-time.After(limit):
		t.Fatal("it has not stopped")
	}
	if err := <-ended; err == nil {
		t.Error("the caller was not told that the answer is not whole")
	}
}

// heap is what the process holds in memory, that of tests beside this one included.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// slow is a store whose database takes no writes of new rows, and does not say so.
type slow struct{ zabor.Store }

func (slow) Insert(ctx context.Context, _ zabor.Row, _ zabor.Write) (zabor.Row, error) {
	<-ctx.Done()
	return zabor.Row{}, ctx.Err()
}

// A fence that hangs delays an observed request by a second and no more, and one
// that outlasts that second is recorded all the same.
func TestObserveBesideASlowFence(t *testing.T) {
	t.Parallel()
	t.Run("a database that hangs", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{options: proxy.Options{Observe: true}, store: func(s zabor.Store) zabor.Store { return slow{s} }})
		a := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
		if a.status != 201 || a.header.Get("Zabor-Observed") != "unavailable" {
			t.Errorf("%s", a)
		}
		d.posts(1)
	})
	t.Run("a provider that takes long", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{options: proxy.Options{Observe: true}, profile: func(p *provider.Profile) { p.Timeout = time.Minute }})
		if err := d.box.Plan(sandbox.Fault{Kind: sandbox.ActHang}); err != nil {
			t.Fatal(err)
		}
		got := make(chan answer, 1)
		go func() {
			a, err := d.try("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
		<-d.box.Wait(1)
		<-time.After(1500 * time.Millisecond) // longer than the fence was waited for
		d.box.Release()
		if a := <-got; a.status != 201 || a.header.Get("Zabor-Observed") != "call" {
			t.Errorf("%s", a)
		}
		d.eventually("the row is settled", func() bool { return d.row("1001", "charge").State == zabor.Settled })
	})
}
