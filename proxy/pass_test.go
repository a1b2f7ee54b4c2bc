package proxy_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"context"

	"zabor"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sandbox"
)

// What needs no fence passes; what needs one and has no key does not.
func TestPass(t *testing.T) {
	t.Parallel()
	d := open(t, settings{options: proxy.Options{
		Allow:    []string{"* /acquirer/payments/**", "GET /acquirer/_stats", "POST /acquirer/intents"},
		Unfenced: []string{"POST /acquirer/intents"},
	}})
	made := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
	got := d.do("GET", "/acquirer/payments/pay_1", "", "Zabor-Order", "ignored")
	if got.says(t, 200, "", ""); got.body != made.body {
		t.Errorf("got %s, made %s", got, made)
	}
	if got := d.do("HEAD", "/acquirer/payments/pay_1", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: %s", got)
	}
	d.do("GET", "/acquirer/payments?merchant_reference=1001", "").says(t, 200, "", "")
	d.do("GET", "/acquirer/_charges", "").says(t, 403, "not-allowed", "")
	d.do("POST", "/acquirer/_release", "").says(t, 403, "not-allowed", "")
	d.do("POST", "/acquirer/payments", charge).says(t, 400, "invalid", "")
	for range 2 { // the caller's own key is the provider's business
		d.do("POST", "/acquirer/intents", charge, "Idempotency-Key", "mine").says(t, 201, "", "")
	}
	if stats := d.box.Stats(); stats.Replays != 1 || stats.Posts != 3 {
		t.Errorf("stats %+v", stats)
	}
	d.do("POST", "/acquirer/intents", charge, fenced("1001", "intent")...).says(t, 503, "in-doubt", "doubt") // a key is a fence, also here
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	up := map[string]proxy.Upstream{"acquirer": open(t, settings{}).upstreamOf()}
	for text, want := range map[string]string{
		"POST /acquirer/a": "", "* /acquirer/**": "", "POST /acquirer": "",
		"/acquirer/a": "METHOD", "POST acquirer/a": "one slash", "post /acquirer/a": "METHOD", "POST /stripe/a": `no provider "stripe"`, "POST /acquirer/../a": "dots",
	} {
		_, err := proxy.New(proxy.Options{Upstreams: up, Unfenced: []string{text}})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "unfenced: ")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func (d *door) upstreamOf() proxy.Upstream {
	d.t.Helper()
	one, err := provider.New("acquirer", sandbox.Profile(d.upstream, time.Second), provider.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	return proxy.Upstream{Provider: one}
}

// What goes on to a provider, and what comes back: neither the caller's
// credentials nor what belongs to a connection.
func TestHeaders(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]http.Header{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Method+" "+r.URL.Path] = r.Header.Clone()
		mu.Unlock()
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Request-Id": "req_1", "Set-Cookie": "a=b", "Zabor-State": "forged", "Alt-Svc": "h2=\":443\"", "X-Rate": "9",
		} {
			w.Header().Set(name, value)
		}
		io.WriteString(w, `{"id":"pay_1","status":"paid","amount":1999,"currency":"EUR"}`)
	}))
	defer server.Close()
	d := open(t, settings{upstream: server.URL, profile: func(p *provider.Profile) { p.Headers = provider.Headers{"Authorization": "Bearer real"} }})
	fields := append(fenced("1001", "charge"), "Authorization", "Bearer fake", "X-Api-Key", "fake", "Merchant-Secret", "fake", "Cookie", "c=d", "Stripe-Account", "acct_1", "Idempotency-Key", "mine",
		"X-Request-Id", "new each time", "Traceparent", "00-1", "X-Forwarded-For", "1.2.3.4", "Expect", "100-continue")
	first := d.do("POST", "/acquirer/a", charge, fields...)
	if first.says(t, 200, "", "settled"); first.header.Get("X-Rate") != "9" || first.header.Get("Alt-Svc") != "" {
		t.Errorf("%s", first)
	}
	again := d.do("POST", "/acquirer/a", charge, fields...)
	if again.says(t, 200, "", "settled"); again.header.Get("Request-Id") != "req_1" || again.header.Get("Set-Cookie") != "" || again.header.Get("X-Rate") != "" {
		t.Errorf("again %s", again)
	}
	d.do("GET", "/acquirer/b", "", fields...)
	for what, key := range map[string]string{"POST /a": d.row("1001", "charge").ProviderKey, "GET /b": "mine"} {
		h := seen[what]
		want := map[string]string{
			"Authorization": "Bearer real", "Stripe-Account": "acct_1", "Idempotency-Key": key,
			"X-Api-Key": "", "Merchant-Secret": "", "Cookie": "", "Zabor-Order": "", "X-Request-Id": "", "Traceparent": "", "X-Forwarded-For": "", "Accept-Encoding": "",
		}
		for name, value := range want {
			if got := h.Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", what, name, got, value)
			}
		}
	}
}

// The key travels in the body where the provider takes it there, whatever the
// caller's library has put there.
func TestKeyInTheBody(t *testing.T) {
	t.Parallel()
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		io.WriteString(w, `{"id":"pay_1","status":"paid","amount":1999,"currency":"EUR"}`)
	}))
	defer server.Close()
	d := open(t, settings{
		upstream: server.URL, profile: func(p *provider.Profile) { p.Key = provider.Key{Field: "idempotency_key"} },
		options: proxy.Options{Unfenced: []string{"DELETE /acquirer/cards/*"}},
	})
	for i, key := range []string{"random-1", "random-2"} {
		a := d.do("POST", "/acquirer/a", `{ "x" : "a,b" , "idempotency_key":"`+key+`","amount":1999,"currency":"EUR" }`, fenced("1001", "charge")...)
		if a.says(t, 200, "", "settled"); (a.header.Get("Zabor-Replayed") == "true") != (i > 0) {
			t.Errorf("%s", a)
		}
	}
	d.do("POST", "/acquirer/a", `{"idempotency_key":"zabor:1001:charge","x" : "a,b","amount":1999,"currency":"EUR" }`).says(t, 200, "", "settled")
	d.do("POST", "/acquirer/a", `{"idempotency_key":"random","amount":1999,"currency":"EUR"}`).says(t, 400, "invalid", "")
	d.do("POST", "/acquirer/a", `{"idempotency_key":"zabor:1001:charge","amount":1999,"idempotency_key":"zabor:1002:charge"}`).says(t, 400, "invalid", "")
	// Where no key is wanted none is looked for.
	for _, body := range []string{"", "a=b", `[1]`} {
		d.do("DELETE", "/acquirer/cards/1", body).says(t, 200, "", "")
		d.do("DELETE", "/acquirer/cards/1", body, fenced("1001", "delete")...).says(t, 400, "invalid", "")
		d.do("POST", "/acquirer/a", body).says(t, 400, "invalid", "")
	}
	if len(bodies) != 4 {
		t.Fatalf("bodies %q", bodies)
	}
	bodies = bodies[:1]
	want := `{"idempotency_key":"` + d.row("1001", "charge").ProviderKey + `","x" : "a,b","amount":1999,"currency":"EUR"}`
	if len(bodies) != 1 || bodies[0] != want {
		t.Errorf("bodies %q, want %q", bodies, want)
	}
}

// A long answer that is not stored passes as it comes, and costs no memory.
func TestLongAnswersPass(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		part := bytes.Repeat([]byte("x"), 1<<20)
		n := size
		if r.URL.Path == "/cut" {
			n = size / 2
		}
		for range n >> 20 {
			w.Write(part)
		}
	}))
	defer server.Close()
	d := open(t, settings{upstream: server.URL})
	for path, want := range map[string]int64{"/acquirer/long": size, "/acquirer/cut": -1} {
		resp, err := http.Get(d.url + path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if want >= 0 && (n != want || err != nil) || want < 0 && err == nil {
			t.Errorf("%s: %d bytes, %v", path, n, err)
		}
	}
}

// Observed: everything passes as it is, twice if need be, and it is counted what a
// fence would have done.
func TestObserve(t *testing.T) {
	t.Parallel()
	d := open(t, settings{options: proxy.Options{Observe: true}, box: sandbox.Options{IgnoreKeys: true}})
	ask := func(would string, status int, body string, fields ...string) {
		t.Helper()
		a := d.do("POST", "/acquirer/payments", body, fields...)
		if got := a.header.Get("Zabor-Observed"); got != would || a.status != status || a.header.Get("Zabor-State") != "" {
			t.Errorf("%s, want %d, %s", a, status, would)
		}
	}
	ask("no-key", 201, charge)
	ask("invalid", 201, charge, "Zabor-Order", "1 2", "Zabor-Step", "charge")
	ask("call", 201, charge, append(fenced("1001", "charge"), "Idempotency-Key", "mine")...)
	d.eventually("the row is settled", func() bool {
		row, err := d.store.Load(t.Context(), zabor.Key{Scope: "test", Order: "1001", Step: "charge"})
		return err == nil && row.State == zabor.Settled
	})
	ask("replay", 201, charge, append(fenced("1001", "charge"), "Idempotency-Key", "mine-2")...)
	ask("other-request", 201, `{"amount":1,"currency":"EUR"}`, fenced("1001", "charge")...)
	if err := d.box.Plan(sandbox.Fault{Kind: sandbox.Status, Status: 500}); err != nil {
		t.Fatal(err)
	}
	ask("call", 500, charge, fenced("1002", "charge")...)
	d.eventually("the row is in doubt", func() bool {
		row, err := d.store.Load(t.Context(), zabor.Key{Scope: "test", Order: "1002", Step: "charge"})
		return err == nil && row.State == zabor.Doubt && row.Open.AbsentAfter == 0 && row.Open.ReplayUntil.IsZero()
	})
	ask("in-doubt", 201, charge, fenced("1002", "charge")...)
	d.store.Close()
	ask("unavailable", 201, charge, fenced("1003", "charge")...)
	d.posts(8)
	if charges := d.box.Charges("mine"); len(charges) != 1 {
		t.Errorf("charges under the caller's key: %v", charges)
	}
	for would, n := range map[string]int64{"call": 2, "replay": 1, "other-request": 1, "in-doubt": 1, "unavailable": 1, "no-key": 1, "invalid": 1, "held": 0} {
		if got := d.proxy.Observed()[would]; got != n {
			t.Errorf("%s=%d, want %d", would, got, n)
		}
	}
}

// Observed, whatever a fence would refuse for its form passes as it came, and the
// log has nothing of its query.
func TestObserveWhatAFenceRefuses(t *testing.T) {
	t.Parallel()
	type got struct{ method, target, contentType, key, body string }
	seen := make(chan got, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen <- got{r.Method, r.RequestURI, r.Header.Get("Content-Type"), strings.Join(r.Header.Values("Idempotency-Key"), ","), string(body)}
		io.WriteString(w, `{"id":"pay_1"}`)
	}))
	defer server.Close()
	var log bytes.Buffer
	d := open(t, settings{upstream: server.URL, options: proxy.Options{Observe: true, Log: slog.New(slog.NewTextHandler(&log, nil))}})
	long := `{"a":"` + strings.Repeat("x", 200<<10) + `"}`
	request := func(method, target, more, body string) string {
		return fmt.Sprintf("%s /acquirer%s HTTP/1.1\r\nHost: 127.0.0.1\r\nZabor-Order: 1\r\nZabor-Step: charge\r\n%s\r\n%s", method, target, more, body)
	}
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }
	const typed = "Content-Type: application/json\r\n"
	for name, tt := range map[string]struct {
		request string
		want    got
	}{
		"a long body":               {request("POST", "/a", typed+length(long), long), got{"POST", "/a", "application/json", "", long}},
		"a long body in chunks":     {request("POST", "/a", typed+"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(long), long)), got{"POST", "/a", "application/json", "", long}},
		"a body without a type":     {request("POST", "/a", length(charge), charge), got{"POST", "/a", "", "", charge}},
		"a look with a body":        {request("GET", "/a?secret=s3cret", typed+length(charge), charge), got{"GET", "/a?secret=s3cret", "application/json", "", charge}},
		"the key twice":             {request("POST", "/a", typed+"Idempotency-Key: a\r\nIdempotency-Key: b\r\n"+length(charge), charge), got{"POST", "/a", "application/json", "a,b", charge}},
		"an amount twice":           {request("POST", "/a", typed+length(`{"a":1,"a":2}`), `{"a":1,"a":2}`), got{"POST", "/a", "application/json", "", `{"a":1,"a":2}`}},
		"a key that cannot be read": {request("POST", "/a?secret=s3cret", typed+"Zabor-Scope: %\r\n"+length(charge), charge), got{"POST", "/a?secret=s3cret", "application/json", "", charge}},
	} {
		status, body := d.raw(tt.request)
		if status != 200 || body != `{"id":"pay_1"}` {
			t.Errorf("%s: %d %s", name, status, body)
			continue
		}
		if got := <-seen; got != tt.want {
			t.Errorf("%s: the provider got %.300v, want %.300v", name, got, tt.want)
		}
	}
	if n := d.proxy.Observed()["invalid"]; n != 7 {
		t.Errorf("%d are counted as invalid, want 7", n)
	}
	if text := log.String(); strings.Contains(text, "s3cret") || strings.Count(text, "a fence would have refused") != 7 {
		t.Errorf("the log has %s", text)
	}
}

// Observed, a fence that is not there yet, and too many requests, stop nothing.
func TestObserveWithoutAFence(t *testing.T) {
	t.Parallel()
	d := open(t, settings{options: proxy.Options{Observe: true}, noFence: true})
	ask := func(would string) {
		t.Helper()
		a := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
		if got := a.header.Get("Zabor-Observed"); got != would || a.status != 201 {
			t.Errorf("%s, want 201, %s", a, would)
		}
	}
	ask("unavailable")
	d.do("GET", "/fences/1001/charge", "").says(t, 503, "not-now", "")
	d.proxy.Attach(d.fence)
	ask("call")
	d.eventually("the row is settled", func() bool { return d.row("1001", "charge").State == zabor.Settled })
	ask("replay")
}

// Beyond loopback callers can be known by their certificate alone.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	pair, pool := certificate(t)
	other, _ := certificate(t)
	d := open(t, settings{})
	o := proxy.Options{Fence: d.fence, Upstreams: map[string]proxy.Upstream{"acquirer": d.upstreamOf()}, Trusted: true, MaxBody: 1 << 10, Attempts: 1, Log: d.log()}
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- p.Serve(ctx, l, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for name, tt := range map[string]struct {
		mine []tls.Certificate
		good bool
	}{"known": {[]tls.Certificate{pair}, true}, "unknown": {[]tls.Certificate{other}, false}, "none": {nil, false}} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: tt.mine}}}
		resp, err := client.Get("https://" + l.Addr().String() + "/acquirer/_stats")
		if good := err == nil && resp.StatusCode == 200; good != tt.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			resp.Body.Close()
		}
		client.CloseIdleConnections()
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zabor"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
