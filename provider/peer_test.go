package provider

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"zabor"
)

// peer is the far end of real connections: it counts what arrives, byte by byte,
// and answers as the test says, right or wrong.
type peer struct {
	addr string

	mu       sync.Mutex
	conns    int
	bytes    int64
	requests []received
	protos   []string   // negotiated by ALPN
	hung     chan error // how the connections ended on which the peer hung
	closed   chan struct{}
	done     sync.WaitGroup
}

type received struct {
	*http.Request
	raw  string // request line as it was sent
	body string
}

// reply plays the server's part on one connection, after its request was read
// whole.
type reply func(p *peer, c net.Conn)

// newPeer serves each connection with play, which is given the connection
// before anything is read.
func newPeer(t *testing.T, play func(p *peer, c net.Conn)) *peer {
	t.Helper()
	return listen(t, nil, play)
}

func listen(t *testing.T, secure *tls.Config, play func(p *peer, c net.Conn)) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{addr: l.Addr().String(), closed: make(chan struct{}), hung: make(chan error, 10)}
	t.Cleanup(func() { close(p.closed); l.Close(); p.done.Wait() })
	p.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns++
			p.mu.Unlock()
			p.done.Go(func() {
				defer c.Close()
				if secure != nil {
					s := tls.Server(c, secure)
					if s.Handshake() != nil {
						return
					}
					p.mu.Lock()
					p.protos = append(p.protos, s.ConnectionState().NegotiatedProtocol)
					p.mu.Unlock()
					play(p, &counted{s, p})
					return
				}
				play(p, &counted{c, p})
			})
		}
	})
	return p
}

// counted counts what is read from a connection.
type counted struct {
	net.Conn
	p *peer
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.mu.Lock()
	c.p.bytes += int64(n)
	c.p.mu.Unlock()
	return n, err
}

// after reads one whole request and then plays r.
func after(r reply) func(*peer, net.Conn) {
	return func(p *peer, c net.Conn) {
		var head bytes.Buffer
		req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &head)))
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		line, _, _ := bytes.Cut(head.Bytes(), []byte("\r\n"))
		p.mu.Lock()
		p.requests = append(p.requests, received{req, string(line), string(body)})
		p.mu.Unlock()
		r(p, c)
	}
}

// says answers with these bytes and closes.
func says(text string) reply {
	return func(_ *peer, c net.Conn) { io.WriteString(c, text) }
}

// hang answers nothing until the client or the test is through.
func hang(p *peer, c net.Conn) {
	gone := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, c); gone <- err }()
	select {
	case err := <-gone:
		p.hung <- err
	case <-p.closed:
	}
}

func (p *peer) posts() []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]received(nil), p.requests...)
}

func (p *peer) counts() (conns, posts int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns, len(p.requests), p.bytes
}

// answerOf is a whole HTTP answer with a length.
func answerOf(status int, body string, header ...string) string {
	r := http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(bytes.NewBufferString(body)), ContentLength: int64(len(body)), Close: true,
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	var out bytes.Buffer
	r.Write(&out)
	return out.String()
}

func testProfile(base string) Profile {
	return Profile{
		BaseURL: base, Headers: Headers{"Authorization": "Bearer s3cret"}, Timeout: 5 * time.Second,
		Line: Line{
			Key: Key{Header: "Idempotency-Key", Life: 24 * time.Hour, Replays: ReplaysAll},
			Answers: Answers{
				Reference: "/id",
				Settled:   Match{"/status", []string{"paid", "captured"}},
				Pending:   Match{"/status", []string{"processing"}},
				Declined:  Refusal{"/status", []string{"refused"}, []int{402}},
				Malformed: Refusal{"/error/code", []string{"invalid"}, []int{422}},
			},
			Amount: Amount{Minor: "/amount", Currency: "/currency"},
			Lookup: &Lookup{Path: "/payments?merchant_reference={{provider_key}}", Items: "/data", AbsentAfter: 2 * time.Minute},
		},
	}
}

func testRow(t testing.TB) zabor.Row {
	t.Helper()
	frozen, err := Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(`{"amount":1999,"currency":"EUR"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return zabor.Row{
		Key: zabor.Key{Order: "1001", Step: "charge"}, ProviderKey: "abcdefghijklmnopqrstuvwxyz",
		Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Open: zabor.Open{Request: frozen},
	}
}

func mustNew(t testing.TB, p Profile, o Options) *Provider {
	t.Helper()
	pr, err := New("acquirer", p, o)
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// certificate is a self-signed one for 127.0.0.1: the server's side and a
// client's that trusts it.
func certificate(t *testing.T, protos ...string) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "peer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: protos},
		&tls.Config{RootCAs: roots}
}

// judgeBy judges by the first line of pr, as an answer to a request that it is about.
func judgeBy(pr *Provider, a answer, row zabor.Row, preparing bool) zabor.Outcome {
	return pr.judge(pr.lines[0], a, row, preparing)
}
