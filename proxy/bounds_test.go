package proxy_test

import (
	"bufio"
	"bytes"
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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sandbox"
	"zabor/step"
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

// padded is a provider whose answers are size bytes long. The last of them waits for
// release; begun is told of each answer that waits for it.
func padded(size int) (h http.Handler, begun <-chan struct{}, release func()) {
	told, let := make(chan struct{}, 2000), make(chan struct{})
	pad := bytes.Repeat([]byte("x"), 16<<10)
	var payments atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		n, _ := fmt.Fprintf(w, `{"id":"pay_%d","status":"paid","amount":1999,"currency":"EUR","pad":"`, payments.Add(1))
		for n < size {
			more, err := w.Write(pad[:min(len(pad), size-n)])
			if err != nil {
				return
			}
			n += more
		}
		http.NewResponseController(w).Flush()
		told <- struct{}{}
		<-let
		io.WriteString(w, `"}`)
	}), told, func() { close(let) }
}

// What a call that waits for the provider holds in memory is bounded, callers and
// provider included, which are in this process: a fenced answer, which is judged
// whole, a few times at most, whether it is kept or longer than that, and its request.
// ZABOR_SOAK=1 makes it 1,000 calls. Nothing runs beside it: it looks at the whole heap.
func TestOpenCallsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name         string
		calls        int
		body, answer int  // bytes
		kept         bool // the answer
	}{
		{"small", 50, 0, 100, true},
		{"kept", 20, 60 << 10, 60 << 10, true},
		{"longer than is kept", 5, 60 << 10, 900 << 10, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := tt.calls
			if os.Getenv("ZABOR_SOAK") == "1" {
				calls = 1000
			}
			provides, begun, release := padded(tt.answer)
			server := httptest.NewServer(provides)
			defer server.Close()
			d := open(t, settings{upstream: server.URL, profile: func(p *provider.Profile) { p.Timeout = time.Minute }})
			body := strings.Replace(charge, "{", `{"pad":"`+strings.Repeat("y", tt.body)+`",`, 1)
			before := heap()
			var wg sync.WaitGroup
			for i := range calls {
				wg.Go(func() {
					a, err := d.try("POST", "/acquirer/payments", body, fenced(fmt.Sprint(i), "charge")...)
					if err != nil || a.status != 201 || len(a.body) < tt.answer {
						t.Errorf("order %d: status %d, %d bytes, %v", i, a.status, len(a.body), err)
					}
				})
			}
			for range calls {
				<-begun
			}
			if each, most := (heap()-before)/int64(calls), int64(192<<10+4*tt.body+2*tt.answer); each > most {
				t.Errorf("each call holds %d bytes, at most %d", each, most)
			}
			release()
			wg.Wait()
			if kept := len(d.row("0", "charge").Answer.Body) > 0; kept != tt.kept {
				t.Errorf("kept: %v, want %v", kept, tt.kept)
			}
		})
	}
}

// Answers that are not judged pass as they come, whatever their length: what callers
// who do not take theirs hold is bounded, of answers that are judged too (observed
// ones) by what can be judged. It looks at the whole heap, as above.
func TestPassedAnswersAreNotHeld(t *testing.T) {
	const callers, size = 8, 8 << 20
	part := bytes.Repeat([]byte("x"), 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(size))
		for range size / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	for _, tt := range []struct {
		name, method string
		options      proxy.Options
		most         int64 // bytes for each
	}{
		{"a GET", "GET", proxy.Options{}, 512 << 10},
		{"unfenced", "POST", proxy.Options{Unfenced: []string{"POST /acquirer/export"}}, 512 << 10},
		{"observed", "POST", proxy.Options{Observe: true}, 3 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, settings{options: tt.options, upstream: server.URL, profile: func(p *provider.Profile) { p.Timeout = time.Minute }})
			before := heap()
			var wg sync.WaitGroup
			conns := make([]net.Conn, callers)
			for i := range conns {
				wg.Go(func() {
					body, fields := "", ""
					if tt.method == "POST" {
						body, fields = charge, fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(charge))
					}
					if tt.options.Observe {
						fields += fmt.Sprintf("Zabor-Order: %d\r\nZabor-Step: charge\r\n", i)
					}
					c, err := net.Dial("tcp", d.addr)
					if err != nil {
						t.Error(err)
						return
					}
					conns[i] = c
					fmt.Fprintf(c, "%s /acquirer/export HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n%s", tt.method, fields, body)
					c.SetReadDeadline(time.Now().Add(limit))
					line, err := bufio.NewReaderSize(c, 64).ReadString('\n') // and no more: the rest waits
					if err != nil || !strings.Contains(line, " 200 ") {
						t.Errorf("%q, %v", line, err)
					}
				})
			}
			wg.Wait()
			if each := (heap() - before) / callers; each > tt.most {
				t.Errorf("each caller holds %d bytes, at most %d", each, tt.most)
			}
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
		})
	}
}

// What a body is made of costs no more than its length: neither depth nor the names
// in it. It looks at all that is allocated, as above at what is held.
func TestDeepBodiesAreCheap(t *testing.T) {
	const deep = 9000
	one, err := provider.New("acquirer", sandbox.Profile("http://127.0.0.1:1", time.Second), provider.Options{Keep: provider.Keep{Body: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	objects := strings.Repeat(`{"abcde":`, deep) + "1" + strings.Repeat("}", deep)
	for _, tt := range []struct{ name, kind, body string }{
		{"objects", "application/json", objects},
		{"lists", "application/json", strings.Repeat("[", deep) + strings.Repeat("]", deep)},
		{"a field's name", "application/x-www-form-urlencoded", "a" + strings.Repeat("[", len(objects)) + "=1"},
		{"many fields", "application/x-www-form-urlencoded", strings.Repeat("a[b]=1&", len(objects)/7)},
	} {
		before := allocated()
		r := provider.Request{Method: "POST", Path: "/payments", ContentType: tt.kind, Body: []byte(tt.body)}.Open()
		step.Print("acquirer", "acct", r, nil, one.Counts)
		one.Money(r)
		one.Judge(provider.Reply{Status: 201, Body: []byte(tt.body)}, zabor.Row{})
		if got, most := allocated()-before, uint64(32<<20); got > most {
			t.Errorf("%s: %d bytes are allocated for a body of %d, at most %d", tt.name, got, len(tt.body), most)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
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
