package provider

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
)

// speakHTTP2 takes requests over HTTP/2 and answers 200, but the first with a reset
// for a reason that does not say that it did nothing. It counts those that came whole.
func speakHTTP2(whole *atomic.Int32) func(*peer, net.Conn) {
	const data, headers, reset, settings = 0, 1, 3, 4
	const endStream, ack, endHeaders = 1, 1, 4
	const protocolError = 1
	return func(_ *peer, c net.Conn) {
		frame := func(kind, flags byte, stream uint32, payload ...byte) {
			head := []byte{0, 0, byte(len(payload)), kind, flags}
			c.Write(append(binary.BigEndian.AppendUint32(head, stream), payload...))
		}
		if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		frame(settings, 0, 0)
		for {
			var head [9]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
			if _, err := io.CopyN(io.Discard, c, length); err != nil {
				return
			}
			kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
			switch {
			case kind == settings && flags&ack == 0:
				frame(settings, ack, 0)
			case (kind == headers || kind == data) && flags&endStream != 0:
				if whole.Add(1) == 1 {
					frame(reset, 0, stream, 0, 0, 0, protocolError)
				} else {
					const status200 = 0x88 // of the static table of RFC 7541
					frame(headers, endStream|endHeaders, stream, status200)
				}
			}
		}
	}
}

// What net/http does by itself beside TestDefaultClientSendsTwice, and what a call
// does in the same place. Where the first half fails, net/http has changed: read send
// and this again.
func TestWhatNetHTTPDoes(t *testing.T) {
	t.Parallel()
	post := func(t *testing.T, client *http.Client, address string, body []byte, header ...string) (int, []byte, error) {
		t.Helper()
		req, err := http.NewRequestWithContext(within(t, 30*time.Second), http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return resp.StatusCode, answer, err
	}
	fresh := func() *http.Client {
		return &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	call := func(t *testing.T, base string, o Options) zabor.Outcome {
		t.Helper()
		profile := testProfile(base)
		profile.Headers["X-Api-Key"] = "s3cret"
		return mustNew(t, profile, o).Call(within(t, 30*time.Second), testRow(t))
	}

	for _, status := range []int{307, 308} {
		t.Run("a redirect that keeps the method", func(t *testing.T) {
			t.Parallel()
			far := newPeer(t, after(says(answerOf(200, paid))))
			near := newPeer(t, after(says(answerOf(status, "", "Location", "http://"+far.addr+"/elsewhere"))))
			client := fresh()
			defer client.CloseIdleConnections()
			got, _, err := post(t, client, "http://"+near.addr+"/payments", []byte(`{"amount":1999}`), "X-Api-Key", "s3cret", "Idempotency-Key", "k")
			there := far.posts()
			if got != 200 || err != nil || len(there) != 1 || there[0].Method != "POST" || there[0].body != `{"amount":1999}` ||
				there[0].Header.Get("X-Api-Key") != "s3cret" || there[0].Header.Get("Idempotency-Key") != "k" {
				t.Errorf("net/http: %d, %v, and the other host got %+v; it used to follow with body and secrets", got, err, there)
			}
			if o := call(t, "http://"+near.addr, Options{}); o.Verdict != zabor.Misdirected || len(far.posts()) != 1 || len(near.posts()) != 2 {
				t.Errorf("a call: %+v, %d requests elsewhere", o, len(far.posts())-1)
			}
		})
	}
	for _, status := range []int{301, 302, 303} {
		t.Run("a redirect to another page", func(t *testing.T) {
			t.Parallel()
			far := newPeer(t, after(says(answerOf(200, paid))))
			near := newPeer(t, after(says(answerOf(status, "", "Location", "http://"+far.addr+"/login"))))
			client := fresh()
			defer client.CloseIdleConnections()
			got, _, err := post(t, client, "http://"+near.addr+"/payments", []byte(`{}`))
			if there := far.posts(); got != 200 || err != nil || len(there) != 1 || there[0].Method != "GET" {
				t.Errorf("net/http: %d, %v, and the other host got %+v; it used to say the other page's 200", got, err, there)
			}
			if o := call(t, "http://"+near.addr, Options{}); o.Verdict != zabor.Unproven || !o.Pause || len(far.posts()) != 1 || len(near.posts()) != 2 {
				t.Errorf("a call: %+v, %d requests elsewhere", o, len(far.posts())-1)
			}
		})
	}
	t.Run("HTTP/2 sends again after a reset", func(t *testing.T) {
		t.Parallel()
		server, trusted := certificate(t, "h2", "http/1.1")
		var whole atomic.Int32
		p := listen(t, server, func(p *peer, c net.Conn) {
			if c.(*counted).Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol == "h2" {
				speakHTTP2(&whole)(p, c)
				return
			}
			after(says(answerOf(200, paid)))(p, c)
		})
		client := fresh() // it is on by default
		client.Transport.(*http.Transport).TLSClientConfig = trusted.Clone()
		defer client.CloseIdleConnections()
		got, _, err := post(t, client, "https://"+p.addr+"/payments", []byte(`{"amount":1999}`)) // without any key
		if got != 200 || err != nil || whole.Load() != 2 {
			t.Errorf("net/http: %d, %v, %d whole POSTs; it used to send one twice and say 200", got, err, whole.Load())
		}
		if o := call(t, "https://"+p.addr, Options{TLS: trusted}); o.Verdict != zabor.Done || whole.Load() != 2 || len(p.posts()) != 1 {
			t.Errorf("a call: %+v, %d more over HTTP/2, %d over HTTP/1", o, whole.Load()-2, len(p.posts()))
		}
	})
	t.Run("a proxy of the environment", func(t *testing.T) {
		t.Parallel()
		if http.DefaultTransport.(*http.Transport).Proxy == nil {
			t.Error("net/http: it used to ask the environment for a proxy")
		}
		if newTransport().Proxy != nil {
			t.Error("look-ups ask the environment") // TestProxy has the calls
		}
	})
	t.Run("Expect is no protection", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, after(says(answerOf(200, paid)))) // never says 100
		client := fresh()
		client.Transport.(*http.Transport).ExpectContinueTimeout = 10 * time.Millisecond
		defer client.CloseIdleConnections()
		got, _, err := post(t, client, "http://"+p.addr+"/payments", []byte(`{"amount":1999}`), "Expect", "100-continue")
		if posts := p.posts(); got != 200 || err != nil || len(posts) != 1 || posts[0].body != `{"amount":1999}` {
			t.Errorf("net/http: %d, %v, %+v; it used to send the body without a 100", got, err, posts)
		}
		profile := testProfile("http://" + p.addr)
		profile.Headers["Expect"] = "100-continue"
		if err := profile.Validate(); err == nil {
			t.Error("a profile may expect")
		}
	})
	t.Run("an answer that ends with the connection", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, after(says("HTTP/1.1 200 OK\r\n\r\n"+paid[:len(paid)-3])))
		client := fresh()
		defer client.CloseIdleConnections()
		got, answer, err := post(t, client, "http://"+p.addr+"/payments", []byte(`{}`))
		if got != 200 || err != nil || !strings.HasPrefix(paid, string(answer)) {
			t.Errorf("net/http: %d, %q, %v; it used to say nothing of a body that was cut", got, answer, err)
		}
		if o := call(t, "http://"+p.addr, Options{}); o.Verdict != zabor.Unproven || len(p.posts()) != 2 {
			t.Errorf("a call: %+v", o)
		}
	})
	t.Run("an answer before the request was read", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, func(p *peer, c net.Conn) {
			io.CopyN(io.Discard, c, 1000)
			io.WriteString(c, answerOf(413, ""))
			hang(p, c)
		})
		client := fresh()
		defer client.CloseIdleConnections()
		if got, _, err := post(t, client, "http://"+p.addr+"/", bigRequest.Body); got != 413 || err != nil {
			t.Errorf("net/http: %d, %v; it used to give the early answer", got, err) // TestSendEarlyAnswer has ours
		}
	})
	t.Run("no time-out", func(t *testing.T) {
		t.Parallel()
		if d := http.DefaultClient.Timeout + http.DefaultTransport.(*http.Transport).ResponseHeaderTimeout; d != 0 {
			t.Errorf("net/http: the default client gives up after %s; it used to wait for ever", d) // TestCallTimeout has ours
		}
	})
}
