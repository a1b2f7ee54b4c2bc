package provider

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"zabor"
)

// bomb is a gzip of many zeros.
func bomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// flood writes text again and again until nobody takes it any more.
func flood(head, text string) reply {
	return func(_ *peer, c net.Conn) {
		_, err := io.WriteString(c, head)
		for err == nil {
			_, err = io.WriteString(c, text)
		}
	}
}

// drip writes a byte at a time until nobody takes it any more.
func drip(head string) reply {
	return func(p *peer, c net.Conn) {
		_, err := io.WriteString(c, head)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for err == nil {
			select {
			case <-tick.C:
				_, err = io.WriteString(c, "x")
			case <-p.closed:
				return
			}
		}
	}
}

// whole is what stands between two quotes of a charge that was paid.
func whole(id, status, amount, currency string) string {
	return `{"id":` + id + `,"status":` + status + `,"amount":` + amount + `,"currency":` + currency + `}`
}

// An answer that is made to mislead, to last or to grow proves nothing, is read no
// further than its bound, and is not asked for twice. What HTTP itself allows is
// pinned here: net/http reads the answers, and another toolchain may read them
// otherwise.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	good := []string{`"pay_1"`, `"paid"`, `1999`, `"EUR"`}
	with := func(i int, value string) string {
		parts := append([]string(nil), good...)
		parts[i] = value
		return whole(parts[0], parts[1], parts[2], parts[3])
	}
	chunked := fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%%s\r\n%x%%s\r\n%s\r\n0\r\n%%s\r\n", len(paid), paid)
	for _, tt := range []struct {
		name  string
		reply reply
		want  zabor.Verdict
		slow  bool // it ends by the deadline
	}{
		{name: "body without end", reply: flood("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1<<16))},
		{name: "chunks without end", reply: flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", 10_000))},
		{name: "extensions of chunks without end", reply: flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("y", 1000)+"\r\nx\r\n")},
		{name: "header without end", reply: flood("HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n")},
		{name: "header line without end", reply: flood("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("y", 1000))},
		{name: "status line without end", reply: flood("HTTP/1.1 200 ", strings.Repeat("y", 1000))},
		{name: "interim answers without end", reply: flood("", "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n")},
		{name: "trailer without end", reply: flood(strings.TrimSuffix(fmt.Sprintf(chunked, "", "", ""), "\r\n"), "X: "+strings.Repeat("y", 1000)+"\r\n")},
		{name: "body by drops", reply: drip("HTTP/1.1 200 OK\r\n\r\n"), slow: true},
		{name: "header by drops", reply: drip("HTTP/1.1 200 OK\r\nX: "), slow: true},
		{name: "gzip that nobody asked for", reply: says(answerOf(200, bomb(t), "Content-Encoding", "gzip"))},
		{name: "UTF-16", reply: says(answerOf(200, "\xff\xfe{\x00}\x00", "Content-Type", "application/json; charset=utf-16"))},
		{name: "byte order mark", reply: says(answerOf(200, "\ufeff"+paid))},
		{name: "deeply nested", reply: says(answerOf(200, strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)))},

		{name: "status twice", reply: says(answerOf(200, `{"id":"pay_1","status":"refused","status":"paid","amount":1999,"currency":"EUR"}`))},
		{name: "status twice, escaped", reply: says(answerOf(200, `{"id":"pay_1","status":"refused","st\u0061tus":"paid","amount":1999,"currency":"EUR"}`))},
		{name: "id twice", reply: says(answerOf(200, `{"id":"pay_1","id":"pay_2","status":"paid","amount":1999,"currency":"EUR"}`))},
		{name: "twice, deep in it", reply: says(answerOf(200, strings.TrimSuffix(paid, "}")+`,"x":[{"a":{"b":1,"b":2}}]}`))},
		{name: "the same name in two objects", reply: says(answerOf(200, strings.TrimSuffix(paid, "}")+`,"x":[{"id":1},{"id":2,"status":"id"}],"y":{"id":3}}`)), want: zabor.Done},

		{name: "id is a list", reply: says(answerOf(200, with(0, `["pay_1"]`)))},
		{name: "id with NUL", reply: says(answerOf(200, with(0, `"pay\u0000_1"`)))},
		{name: "id of two lines", reply: says(answerOf(200, with(0, `"pay_1\nX: y"`)))},
		{name: "id that moves the cursor", reply: says(answerOf(200, with(0, `"\u001b[2Jpay"`)))},
		{name: "id longer than the column", reply: says(answerOf(200, with(0, `"`+strings.Repeat("é", maxReference/2+1)+`"`)))},
		{name: "id as long as the column", reply: says(answerOf(200, with(0, `"`+strings.Repeat("é", maxReference/2)+`"`))), want: zabor.Done},
		{name: "status is a list", reply: says(answerOf(200, with(1, `["paid"]`)))},
		{name: "amount 1e400", reply: says(answerOf(200, with(2, `1e400`)))},
		{name: "amount -1999", reply: says(answerOf(200, with(2, `-1999`)))},
		{name: "amount 2^64+1999", reply: says(answerOf(200, with(2, `18446744073709553615`)))},
		{name: "amount is null", reply: says(answerOf(200, with(2, `null`)))},
		{name: "amount is a list", reply: says(answerOf(200, with(2, `[1999]`)))},
		{name: "currency with a sign that is no letter", reply: says(answerOf(200, with(3, `"EUR\u0000"`)))},

		{name: "two lengths that differ", reply: says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + paid)},
		{name: "two lengths that are equal", reply: says(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Length: %d\r\n\r\n%s", len(paid), len(paid), paid)), want: zabor.Done},
		{name: "length below zero", reply: says("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + paid)},
		{name: "length with a sign", reply: says(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: +%d\r\n\r\n%s", len(paid), paid))},
		{name: "length beyond numbers", reply: says("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n" + paid)},
		{name: "a length and chunks", reply: says(fmt.Sprintf(chunked, "Content-Length: 3\r\n", "", "")), want: zabor.Done},
		{name: "chunks with an extension and a trailer", reply: says(fmt.Sprintf(chunked, "Trailer: X\r\n", ";a=b", "X: y\r\n")), want: zabor.Done},
		{name: "an encoding of the transfer that is not known", reply: says("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + paid)},
		{name: "a chunk longer than it says", reply: says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n" + paid + "\r\n0\r\n\r\n")},
		{name: "more than its length", reply: says(answerOf(200, paid) + answerOf(200, `{"status":"refused"}`)), want: zabor.Done},
		{name: "status of four digits", reply: says("HTTP/1.1 2000 OK\r\n\r\n" + paid)},
		{name: "status 0", reply: says("HTTP/1.1 000 OK\r\n\r\n" + paid)},
		{name: "header without a colon", reply: says("HTTP/1.1 200 OK\r\nrubbish\r\n\r\n" + paid)},
		{name: "blank before the header's colon", reply: says("HTTP/1.1 200 OK\r\nX : y\r\n\r\n" + paid), want: zabor.Done},
		{name: "HTTP/1.0", reply: says(strings.Replace(answerOf(200, paid), "HTTP/1.1", "HTTP/1.0", 1)), want: zabor.Done},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := newPeer(t, after(func(p *peer, c net.Conn) {
				if tt.slow { // it has been asked by now, however busy the machine is
					defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
				}
				tt.reply(p, c)
			}))
			got := mustNew(t, testProfile("http://"+p.addr), Options{}).Call(ctx, testRow(t))
			if got.Verdict != tt.want || (got.Reference != "") != (tt.want == zabor.Done) {
				t.Errorf("outcome = %s %.60q %q, want %s", got.Verdict, got.Reference, got.Reason, tt.want)
			}
			if len(got.Reason) > 1000 || strings.ContainsAny(got.Reason, "\r\n\x00\x1b") {
				t.Errorf("reason of %d bytes: %.300q", len(got.Reason), got.Reason)
			}
			if !tt.slow && ctx.Err() != nil {
				t.Error("it was read until the deadline")
			}
			if conns, posts, _ := p.counts(); conns != 1 || posts != 1 {
				t.Errorf("connections=%d posts=%d, want 1 1", conns, posts)
			}
		})
	}
}

// tunnel is a proxy that takes CONNECT, and counts its tunnels.
func tunnel(t *testing.T, to string) (*peer, *url.URL) {
	t.Helper()
	p := newPeer(t, after(func(p *peer, c net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer up.Close()
		io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		down := make(chan struct{})
		go func() {
			defer close(down)
			io.Copy(up, c)
			up.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(c, up)
		c.Close()
		<-down
	}))
	return p, &url.URL{Scheme: "http", Host: p.addr}
}

// Each situation in which net/http would send a request again by itself, or lead it
// elsewhere: through a proxy of the operator's too it is sent once.
func TestCallSendsOnceThroughAProxy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		reply reply
		want  zabor.Verdict
		body  string
	}{
		{"paid", says(answerOf(200, paid)), zabor.Done, "{}"},
		{"closed without an answer", says(""), zabor.Unproven, "{}"},
		{"closed without an answer, no body", says(""), zabor.Unproven, ""},
		{"closed in the header", says("HTTP/1.1 200 OK\r\nContent-"), zabor.Unproven, "{}"},
		{"cut", says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), zabor.Unproven, "{}"},
		{"100, then closed", says("HTTP/1.1 100 Continue\r\n\r\n"), zabor.Unproven, "{}"},
		{"408", says(answerOf(408, "")), zabor.Unproven, "{}"},
		{"421", says(answerOf(421, "")), zabor.TurnedAway, "{}"},
		{"503", says(answerOf(503, "", "Retry-After", "0")), zabor.Unproven, "{}"},
		{"302", says(answerOf(302, "", "Location", "/")), zabor.Unproven, "{}"},
		{"307", says(answerOf(307, "", "Location", "/")), zabor.Misdirected, "{}"},
		{"401 with a challenge", says(answerOf(401, "", "WWW-Authenticate", "Basic")), zabor.TurnedAway, "{}"},
		{"no answer", hang, zabor.Unproven, "{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			server, client := certificate(t, "h2", "http/1.1")
			far := listen(t, server, after(func(p *peer, c net.Conn) {
				if tt.name == "no answer" {
					cancel()
				}
				tt.reply(p, c)
			}))
			proxy, at := tunnel(t, far.addr)
			row := testRow(t)
			row.Open.Request, _ = Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(tt.body)})
			got := mustNew(t, testProfile("https://"+far.addr), Options{TLS: client, Proxy: at}).Call(ctx, row)
			if got.Verdict != tt.want {
				t.Errorf("outcome %+v, want %s", got, tt.want)
			}
			_, connects, _ := proxy.counts()
			if conns, posts, _ := far.counts(); conns != 1 || posts != 1 || connects != 1 {
				t.Errorf("tunnels=%d connections=%d posts=%d, want 1 each", connects, conns, posts)
			}
		})
	}
}

// A proxy that is broken, hostile or asks for something has not been sent a byte of
// the request, and its answer is not read without end.
func TestHostileProxy(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]reply{
		"header without end":      flood("HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n"),
		"header line without end": flood("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("y", 1000)),
		"407":                     says("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n"),
		"302":                     says("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
		"204":                     says("HTTP/1.1 204 No Content\r\n\r\n"),
		"100":                     says("HTTP/1.1 100 Continue\r\n\r\n"),
		"no HTTP":                 says("SSH-2.0-OpenSSH_9.2\r\n"),
		"its own page":            says(answerOf(200, paid)),
		"nothing":                 says(""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, after(answer))
			got := mustNew(t, testProfile("https://127.0.0.1:1"), Options{Proxy: &url.URL{Scheme: "http", Host: p.addr}}).Call(within(t, 30*time.Second), testRow(t))
			if got.Verdict != zabor.Unsent {
				t.Errorf("outcome %+v, want unsent", got)
			}
			for _, r := range p.posts() {
				if r.Method != http.MethodConnect || r.Header.Get("Authorization") != "" || r.Header.Get("Idempotency-Key") != "" {
					t.Errorf("the proxy was sent %+v", r)
				}
			}
			if conns, _, _ := p.counts(); conns != 1 {
				t.Errorf("%d connections, want one", conns)
			}
		})
	}
}

// The reports about clients that send again by themselves, by their names; the tests
// are those of this file's neighbours.
func TestPublicReportsOfClients(t *testing.T) {
	t.Run("golang/go#19943", TestCallSendsOnceWhereDefaultClientSendsTwice)
	t.Run("Yeachan-Heo/gajae-code#5614", TestCallNeverHTTP2)
	t.Run("golang/go#60636", func(t *testing.T) { // the first request of a connection counts as new
		server, client := certificate(t, "h2", "http/1.1")
		p := listen(t, server, after(says("")))
		got := mustNew(t, testProfile("https://"+p.addr), Options{TLS: client}).Call(within(t, 30*time.Second), testRow(t))
		if _, posts, _ := p.counts(); got.Verdict != zabor.Unproven || posts != 1 {
			t.Errorf("outcome %+v, %d posts", got, posts)
		}
	})
	t.Run("aws-powertools/powertools-lambda-python#4759", func(t *testing.T) { // no time is not «no limit»
		for _, timeout := range []time.Duration{0, -1} {
			profile := testProfile("http://127.0.0.1:1")
			profile.Timeout = timeout
			if _, err := New("bank", profile, Options{}); err == nil || !strings.Contains(err.Error(), "timeout") {
				t.Errorf("timeout %s: %v", timeout, err)
			}
		}
	})
}
