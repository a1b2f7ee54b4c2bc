package provider

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
)

// firstThenDrop answers the first request of a connection and drops the
// connection after it has read the second one whole: a server that dies, or
// closes an idle connection, at the wrong moment.
func firstThenDrop(p *peer, c net.Conn) {
	after(says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))(p, c)
	after(says(""))(p, c)
}

// What net/http does by itself, and the reason for all of send: a POST with an
// Idempotency-Key on a reused connection that dies is sent a second time, and
// nobody is told. If this test fails, net/http has changed; read send again.
func TestDefaultClientSendsTwice(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header string
		body   func() io.Reader
		want   int
	}{
		{"keyed", "Idempotency-Key", func() io.Reader { return strings.NewReader("{}") }, 2},
		{"keyed, X-", "X-Idempotency-Key", func() io.Reader { return strings.NewReader("{}") }, 2},
		{"keyed, without a body", "Idempotency-Key", func() io.Reader { return nil }, 2},
		{"keyed, body cannot be rewound", "Idempotency-Key", func() io.Reader { return io.MultiReader(strings.NewReader("{}")) }, 1},
		{"other spelling", "Idempotence-Key", func() io.Reader { return strings.NewReader("{}") }, 1},
	} {
		p := newPeer(t, firstThenDrop)
		client := &http.Client{Transport: &http.Transport{}}
		post := func() error {
			req, err := http.NewRequest("POST", "http://"+p.addr+"/payments", tt.body())
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(tt.header, "k")
			resp, err := client.Do(req)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			return err
		}
		if err := post(); err != nil {
			t.Fatal(err)
		}
		err := post()
		_, posts, _ := p.counts()
		if posts != 1+tt.want || (err == nil) != (tt.want == 2) {
			t.Errorf("%s: the second POST was sent %d times (error %v), want %d", tt.name, posts-1, err, tt.want)
		}
		client.CloseIdleConnections()
	}
}

func TestCallSendsOnceWhereDefaultClientSendsTwice(t *testing.T) {
	for _, body := range []string{"{}", ""} {
		p := newPeer(t, firstThenDrop)
		pr := mustNew(t, testProfile("http://"+p.addr), Options{})
		row := testRow(t)
		row.Open.Request, _ = Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(body)})
		for range 3 {
			if got := pr.Call(within(t, 10*time.Second), row); got.Verdict != zabor.Unproven {
				t.Errorf("outcome %+v", got)
			}
		}
		if conns, posts, _ := p.counts(); conns != 3 || posts != 3 {
			t.Errorf("three calls made %d connections and %d posts", conns, posts)
		}
	}
}

// A server that offers HTTP/2, and a configuration that asks for it.
func TestCallNeverHTTP2(t *testing.T) {
	server, client := certificate(t, "h2", "http/1.1")
	client.NextProtos = []string{"h2"} // even where somebody asks for it
	p := listen(t, server, after(says(answerOf(200, paid))))
	got := mustNew(t, testProfile("https://"+p.addr), Options{TLS: client}).Call(within(t, 10*time.Second), testRow(t))
	if got.Verdict != zabor.Done {
		t.Errorf("outcome %+v", got)
	}
	if len(p.protos) != 1 || p.protos[0] != "http/1.1" {
		t.Errorf("negotiated %q", p.protos)
	}
	if r := p.posts(); len(r) != 1 || r[0].Proto != "HTTP/1.1" {
		t.Errorf("requests %+v", r)
	}
}

func TestCallHangs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply reply
	}{
		{"no answer", hang},
		{"100 and then nothing", func(p *peer, c net.Conn) { io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); hang(p, c) }},
		{"header and then nothing", func(p *peer, c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			hang(p, c)
		}},
		{"whole JSON and then nothing", func(p *peer, c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+paid)
			hang(p, c)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, after(tt.reply))
			start := time.Now()
			got := mustNew(t, testProfile("http://"+p.addr), Options{}).Call(within(t, 200*time.Millisecond), testRow(t))
			if got.Verdict != zabor.Unproven {
				t.Errorf("outcome %+v", got)
			}
			if d := time.Since(start); d < 150*time.Millisecond || d > 3*time.Second {
				t.Errorf("gave up after %s", d)
			}
			if err := <-p.hung; err == nil {
				t.Error("the connection was closed, want a reset: what the kernel still holds must not be sent")
			}
			if conns, posts, _ := p.counts(); conns != 1 || posts != 1 {
				t.Errorf("connections=%d posts=%d", conns, posts)
			}
		})
	}
}

// A late answer within the deadline is an answer.
func TestCallWaits(t *testing.T) {
	release := make(chan struct{})
	p := newPeer(t, after(func(p *peer, c net.Conn) { <-release; says(answerOf(200, paid))(p, c) }))
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	got := mustNew(t, testProfile("http://"+p.addr), Options{}).Call(within(t, 10*time.Second), testRow(t))
	if got.Verdict != zabor.Done {
		t.Errorf("outcome %+v", got)
	}
}

// Without a deadline of the caller's the profile's time-out is one.
func TestCallTimeout(t *testing.T) {
	p := newPeer(t, after(hang))
	profile := testProfile("http://" + p.addr)
	profile.Timeout = 100 * time.Millisecond
	if got := mustNew(t, profile, Options{}).Call(t.Context(), testRow(t)); got.Verdict != zabor.Unproven {
		t.Errorf("outcome %+v", got)
	}
}

// bigRequest is more than the kernels on both sides hold, so that it is still on its
// way when the far end does something.
var bigRequest = Request{Method: "POST", Path: "/", ContentType: "text/plain", Body: bytes.Repeat([]byte("x"), 8<<20)}

// An answer that comes before the request was read.
func TestSendEarlyAnswer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		then  reply
		want  int // 0: no answer
		limit time.Duration
	}{
		{"413, and reads on", func(p *peer, c net.Conn) { io.WriteString(c, answerOf(413, "")); hang(p, c) }, 413, 10 * time.Second},
		{"200, and reads on", func(p *peer, c net.Conn) { io.WriteString(c, answerOf(200, paid)); hang(p, c) }, 200, 10 * time.Second},
		{"200, and never reads on", func(p *peer, c net.Conn) { io.WriteString(c, answerOf(200, paid)); <-p.closed }, 200, 10 * time.Second},
		{"closes", func(*peer, net.Conn) {}, 0, 10 * time.Second},
		{"never reads on", func(p *peer, _ net.Conn) { <-p.closed }, 0, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(p *peer, c net.Conn) { io.CopyN(io.Discard, c, 1000); tt.then(p, c) })
			pr := mustNew(t, testProfile("http://"+p.addr), Options{})
			a, err := pr.send(within(t, tt.limit), pr.lines[0], bigRequest, "k")
			var unsent unsentError
			if a.status != tt.want || (err == nil) != (tt.want != 0) || errors.As(err, &unsent) {
				t.Errorf("%d, %v, want %d", a.status, err, tt.want)
			}
			if conns, _, _ := p.counts(); conns != 1 {
				t.Errorf("%d connections", conns)
			}
		})
	}
}

// A call that is given up leaves nothing behind that the kernel would still send:
// the far end, when it reads on, finds a reset and not the rest of the request.
func TestSendGivesUpWithAReset(t *testing.T) {
	for _, tt := range []struct {
		name  string
		then  string        // what the far end says while the request is on its way
		limit time.Duration // of the call
	}{
		{"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", 10 * time.Second},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", 10 * time.Second},
		{"cut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 10 * time.Second},
		{"nothing", "", time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			p := newPeer(t, func(p *peer, c net.Conn) {
				io.CopyN(io.Discard, c, 1000)
				io.WriteString(c, tt.then)
				<-over
				hang(p, c)
			})
			pr := mustNew(t, testProfile("http://"+p.addr), Options{})
			_, err := pr.send(within(t, tt.limit), pr.lines[0], bigRequest, "k")
			close(over)
			var unsent unsentError
			if err == nil || errors.As(err, &unsent) {
				t.Fatalf("error %v", err)
			}
			if err := <-p.hung; err == nil {
				t.Error("the connection was closed, want a reset")
			}
		})
	}
}

// movable is a context whose deadline a test moves; it never ends.
type movable struct {
	context.Context
	deadline atomic.Pointer[time.Time]
}

func (m *movable) Deadline() (time.Time, bool) { return *m.deadline.Load(), true }

// A process that sleeps between the connection and the first byte: the deadline
// passes when TLS is through. Not one byte of the request reaches the server.
func TestCallTooLateForTheFirstByte(t *testing.T) {
	server, client := certificate(t)
	for _, passed := range []bool{true, false} {
		ctx := &movable{Context: t.Context()}
		soon := time.Now().Add(time.Minute)
		ctx.deadline.Store(&soon)
		asked := server.Clone()
		asked.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if passed {
				ago := time.Now().Add(-time.Nanosecond)
				ctx.deadline.Store(&ago)
			}
			return nil, nil
		}
		ended := make(chan struct{})
		p := listen(t, asked, func(p *peer, c net.Conn) { defer close(ended); after(says(answerOf(200, paid)))(p, c) })
		got := mustNew(t, testProfile("https://"+p.addr), Options{TLS: client}).Call(ctx, testRow(t))
		<-ended
		_, _, bytes := p.counts()
		if passed && (got.Verdict != zabor.Unsent || bytes != 0 || !strings.Contains(got.Reason, "too late")) {
			t.Errorf("outcome %+v, %d bytes", got, bytes)
		}
		if !passed && got.Verdict != zabor.Done {
			t.Errorf("outcome %+v", got)
		}
	}
}

func TestLate(t *testing.T) {
	deadline := time.Now() // with a reading of the monotonic clock
	before, after := deadline.Add(-1), deadline.Add(1)
	for _, tt := range []struct {
		name      string
		now, wall time.Time
		want      bool
	}{
		{"before", before, before.Round(0), false},
		{"at", deadline, deadline.Round(0), false},
		{"after", after, after.Round(0), true},
		{"the machine was suspended", before, after.Round(0), true},
		{"the wall clock was set back", after, before.Round(0), true},
	} {
		if got := late(tt.now, tt.wall, deadline); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A connection that was given up lets nothing out any more, whoever still holds
// it, and says truly whether anything left before.
func TestWireSeal(t *testing.T) {
	pair := func() (*wire, net.Conn) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		return &wire{Conn: near, ctx: t.Context()}, far
	}
	w, _ := pair()
	if !w.seal() {
		t.Error("nothing was written, and seal says otherwise")
	}
	if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, errSealed) {
		t.Errorf("write after seal: %d, %v", n, err)
	}

	w, far := pair()
	go far.Read(make([]byte, 1))
	w.Write([]byte("x"))
	if w.seal() {
		t.Error("a byte was written, and seal says otherwise")
	}

	w, far = pair()
	done := make(chan struct{})
	go func() { defer close(done); w.Write([]byte("xy")) }()
	far.Read(make([]byte, 1)) // the Write is under way, and is not through
	if w.seal() {
		t.Error("a write is under way, and seal says otherwise")
	}
	far.Close()
	<-done
	if w.seal() {
		t.Error("a byte was written, and seal says otherwise")
	}

	w, far = pair()
	far.Close()
	if n, err := w.Write([]byte("x")); n != 0 || err == nil {
		t.Fatalf("write to a closed pipe: %d, %v", n, err)
	}
	if !w.seal() {
		t.Error("the only write failed with nothing taken, and seal says otherwise")
	}
}

// The environment's proxy is not asked; an explicit one carries TLS.
func TestProxy(t *testing.T) {
	box := newPeer(t, after(says(answerOf(200, paid))))
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+box.addr)
	}
	got := mustNew(t, testProfile("http://zabor.invalid"), Options{}).Call(within(t, 10*time.Second), testRow(t))
	if conns, _, _ := box.counts(); got.Verdict != zabor.Unsent || conns != 0 {
		t.Errorf("the environment's proxy was asked: %+v", got)
	}

	server, client := certificate(t)
	far := listen(t, server, after(says(answerOf(200, paid))))
	tunnel := newPeer(t, after(func(_ *peer, c net.Conn) {
		up, err := net.Dial("tcp", far.addr)
		if err != nil {
			return
		}
		defer up.Close()
		io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		go io.Copy(up, c)
		io.Copy(c, up)
	}))
	proxy := &url.URL{Scheme: "http", Host: tunnel.addr, User: url.UserPassword("me", "pw")}
	got = mustNew(t, testProfile("https://"+far.addr), Options{TLS: client, Proxy: proxy}).Call(within(t, 10*time.Second), testRow(t))
	if got.Verdict != zabor.Done {
		t.Errorf("outcome %+v", got)
	}
	asked := tunnel.posts()[0]
	if want := fmt.Sprintf("CONNECT %s HTTP/1.1", far.addr); asked.raw != want || asked.Header.Get("Proxy-Authorization") != "Basic bWU6cHc=" {
		t.Errorf("the proxy was asked %q %v", asked.raw, asked.Header)
	}
	if asked.Header.Get("Authorization") != "" || asked.Header.Get("Idempotency-Key") != "" {
		t.Error("the proxy was shown the provider's credentials")
	}
}
