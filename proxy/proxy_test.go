package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// limit is how long anything may take that a test waits for.
const limit = time.Minute

// door is a proxy that listens, before a provider that counts.
type door struct {
	t        testing.TB
	box      *sandbox.Sandbox
	upstream string
	store    *sqlstore.Store
	fence    *zabor.Fence
	proxy    *proxy.Proxy
	url      string
	addr     string
	stop     func()
	served   chan struct{} // closed when it takes callers no more

	mu     sync.Mutex
	alerts []zabor.Alert
}

type settings struct {
	options  proxy.Options
	profile  func(*provider.Profile)
	provider provider.Options
	box      sandbox.Options
	store    func(zabor.Store) zabor.Store
	journal  bool
	noFence  bool   // the proxy is made without one
	upstream string // address of the provider; empty: a sandbox
}

func open(t testing.TB, s settings) *door {
	t.Helper()
	d := &door{t: t, box: sandbox.New(s.box)}
	server := httptest.NewServer(d.box)
	t.Cleanup(server.Close)
	d.upstream = server.URL
	if s.upstream != "" {
		d.upstream = s.upstream
	}
	var err error
	if d.store, err = sqlstore.Open("sqlite://" + filepath.Join(t.TempDir(), "fence.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.store.Close() })
	if err := d.store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	profile := sandbox.Profile(d.upstream, time.Second)
	if s.profile != nil {
		s.profile(&profile)
	}
	one, err := provider.New("acquirer", profile, s.provider)
	if err != nil {
		t.Fatal(err)
	}
	d.fence = &zabor.Fence{Store: d.store, Secret: bytes.Repeat([]byte{7}, zabor.MinSecret), SaveTimeout: 5 * time.Second, Observer: zabor.Observer{Alert: func(a zabor.Alert) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.alerts = append(d.alerts, a)
	}}}
	if s.store != nil {
		d.fence.Store = s.store(d.store)
	}
	if s.journal {
		if d.fence.Journal, err = zabor.OpenJournal(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	o := s.options
	o.Fence, o.Scope, o.Attempts, o.HoldAfter, o.PendingFor = d.fence, "test", 3, time.Hour, time.Hour
	volatile := o.Upstreams["acquirer"].Volatile
	o.Upstreams = map[string]proxy.Upstream{"acquirer": {Provider: one, Account: "acct", Volatile: volatile}}
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 10
	}
	if s.noFence {
		o.Fence = nil
	}
	if o.Log == nil {
		o.Log = d.log()
	}
	o.Show = func(r zabor.Row) any { return map[string]any{"state": r.State, "reference": r.Reference} }
	if d.proxy, err = proxy.New(o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.addr = l.Addr().String()
	d.url = "http://" + d.addr
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.served = make(chan struct{})
	go func() {
		defer close(d.served)
		if err := d.proxy.Serve(ctx, l, nil); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-d.served
	})
	return d
}

// answer is what a caller got.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %v %s", a.status, a.header, a.body) }

const charge = `{"amount":1999,"currency":"EUR","order":"1001"}`

// fenced are the header fields that name a key.
func fenced(order, step string) []string { return []string{"Zabor-Order", order, "Zabor-Step", step} }

func (d *door) do(method, path, body string, fields ...string) answer {
	d.t.Helper()
	a, err := d.try(method, path, body, fields...)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

func (d *door) try(method, path, body string, fields ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(read)}, err
}

// raw sends text as it is over a connection of its own and reads the first
// answer's status and body; 0: the connection ended without one.
func (d *door) raw(text string) (int, string) {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(c, text); err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func (d *door) row(order, step string) zabor.Row {
	d.t.Helper()
	row, err := d.store.Load(d.t.Context(), zabor.Key{Scope: "test", Order: order, Step: step})
	if err != nil {
		d.t.Fatal(err)
	}
	return row
}

func (d *door) posts(want int64) {
	d.t.Helper()
	if got := d.box.Stats().Posts; got != want {
		d.t.Errorf("posts=%d, want %d", got, want)
	}
}

func (d *door) alerted(code string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.alerts {
		if a.Code == code {
			return true
		}
	}
	return false
}

// says checks a status, the kind of a problem (empty: the provider's own answer)
// and Zabor-State.
func (a answer) says(t testing.TB, status int, kind, state string) {
	t.Helper()
	var document struct{ Type string }
	_ = json.Unmarshal([]byte(a.body), &document)
	want := ""
	if kind != "" {
		want = "urn:zabor:" + kind
	}
	if a.status != status || document.Type != want || a.header.Get("Zabor-State") != state {
		t.Errorf("got %s\nwant %d %s, state %q", a, status, want, state)
	}
}

// The first call is made, a repeat gets the same answer, and the provider sees
// one request, under the derived key.
func TestRepeatGetsTheStoredAnswer(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	first := d.do("POST", "/acquirer/payments", charge, append(fenced("1001", "charge"), "Idempotency-Key", "random-1")...)
	first.says(t, 201, "", "settled")
	again := d.do("POST", "/acquirer/payments", charge, append(fenced("1001", "charge"), "Idempotency-Key", "random-2")...)
	again.says(t, 201, "", "settled")
	if again.body != first.body || first.header.Get("Zabor-Replayed") != "false" || again.header.Get("Zabor-Replayed") != "true" ||
		again.header.Get("Content-Type") != first.header.Get("Content-Type") {
		t.Errorf("first %s\nagain %s", first, again)
	}
	d.posts(1)
	row := d.row("1001", "charge")
	charges := d.box.Charges("1001")
	if len(charges) != 1 || charges[0].Key != row.ProviderKey || row.Reference != charges[0].ID || first.header.Get("Zabor-Reference") != row.Reference {
		t.Errorf("charges %+v, row %+v", charges, row)
	}
	if want := (zabor.Money{Minor: 1999, Currency: "EUR"}); row.Amount != want || row.Account != "acct" || row.Open.Request != nil {
		t.Errorf("row %+v", row)
	}
	d.do("GET", "/fences/1001/charge", "").says(t, 200, "", "settled")
}

func (d *door) log() *slog.Logger { return slog.New(slog.DiscardHandler) }
