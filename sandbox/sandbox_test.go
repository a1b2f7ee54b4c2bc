package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
)

func start(t *testing.T, o Options) (*Sandbox, string) {
	t.Helper()
	s := New(o)
	server := httptest.NewServer(s)
	t.Cleanup(func() { s.Release(); server.Close() })
	return s, server.URL
}

// post makes a payment and returns the status and the body; status 0: no whole
// answer.
func post(t *testing.T, base, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/payments", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil // or net/http would repeat a keyed POST
	req.Close = true
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return do(req)
}

func do(req *http.Request) (int, string) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, string(text)
	}
	return resp.StatusCode, string(text)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(req)
}

const body = `{"amount":1999,"currency":"EUR","order":"1001"}`

func TestPayments(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       int
		order      string
	}{
		{"json", body, 201, "1001"},
		{"amount as text", `{"amount":"1999","currency":"eur","order_id":1001}`, 201, "1001"},
		{"major", `{"amount":{"value":"19.99","currency":"EUR"},"metadata":{"order":"1001"}}`, 201, "1001"},
		{"form", `amount=1999&currency=EUR&merchant_reference=1001`, 201, "1001"},
		{"form with metadata", `amount=1999&currency=eur&metadata[order]=1001`, 201, "1001"},
		{"no order", `{"amount":1999,"currency":"EUR"}`, 201, ""},
		{"no amount", `{"currency":"EUR"}`, 400, ""},
		{"amount with a point", `{"amount":19.99,"currency":"EUR"}`, 400, ""},
		{"nothing", `{"amount":0,"currency":"EUR"}`, 400, ""},
		{"no currency", `{"amount":1999}`, 400, ""},
		{"not JSON", `{`, 400, ""},
	} {
		s, base := start(t, Options{})
		status, answer := post(t, base, "k", tt.body)
		if status != tt.want {
			t.Errorf("%s: %d %s", tt.name, status, answer)
			continue
		}
		if status != 201 {
			if s.Stats().Charges != 0 {
				t.Errorf("%s: charged", tt.name)
			}
			continue
		}
		var got struct {
			ID, Status, Currency string
			Amount               int64
			Order                string `json:"merchant_reference"`
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatal(err)
		}
		if got.ID != "pay_1" || got.Status != "paid" || got.Amount != 1999 || got.Currency != "EUR" || got.Order != tt.order {
			t.Errorf("%s: %s", tt.name, answer)
		}
		if c := s.Charges("k"); len(c) != 1 || c[0].ID != "pay_1" || c[0].Order != tt.order {
			t.Errorf("%s: charges %+v", tt.name, c)
		}
		if status, one := get(t, base+"/payments/pay_1"); status != 200 || one != answer {
			t.Errorf("%s: by id %d %s", tt.name, status, one)
		}
	}
}

func TestIdempotency(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		o       Options
		later   time.Duration
		key     string
		body    string
		status  int
		charges int64
		replays int64
	}{
		{"same key", Options{}, 0, "k", body, 201, 1, 1},
		{"same key, years later", Options{}, 1e5 * time.Hour, "k", body, 201, 1, 1},
		{"another key", Options{}, 0, "l", body, 201, 2, 0},
		{"no key", Options{}, 0, "", body, 201, 2, 0},
		{"another amount", Options{}, 0, "k", `{"amount":5,"currency":"EUR","order":"1001"}`, 422, 1, 0},
		{"another order", Options{}, 0, "k", `{"amount":1999,"currency":"EUR","order":"1002"}`, 422, 1, 0},
		{"keys ignored", Options{IgnoreKeys: true}, 0, "k", body, 201, 2, 0},
		{"key alive", Options{KeyLife: time.Hour}, time.Hour, "k", body, 201, 1, 1},
		{"key dead", Options{KeyLife: time.Hour}, time.Hour + 1, "k", body, 201, 2, 0},
	} {
		s, base := start(t, tt.o)
		s.now = func() time.Time { return now }
		first, answer := post(t, base, "k", body)
		s.now = func() time.Time { return now.Add(tt.later) }
		second, again := post(t, base, tt.key, tt.body)
		stats := s.Stats()
		if first != 201 || second != tt.status || stats.Charges != tt.charges || stats.Replays != tt.replays || stats.Posts != 2 {
			t.Errorf("%s: %d, %d, %+v", tt.name, first, second, stats)
		}
		if tt.replays == 1 && again != answer {
			t.Errorf("%s: answered %s and then %s", tt.name, answer, again)
		}
		if want := tt.charges - 1; stats.Repeated != want || stats.Orders["1001"] != tt.charges {
			t.Errorf("%s: %+v", tt.name, stats)
		}
		if (tt.status == 422) != (stats.Mismatches == 1) {
			t.Errorf("%s: %+v", tt.name, stats)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		fault   string
		status  int // 0: no whole answer
		charges int64
	}{
		{`{"kind":"drop"}`, 0, 0},
		{`{"kind":"drop","key":"k"}`, 0, 0},
		{`{"kind":"drop","key":"other"}`, 201, 1},
		{`{"kind":"close"}`, 0, 0},
		{`{"kind":"close","order":"1001"}`, 0, 0},
		{`{"kind":"close","order":"1002"}`, 201, 1},
		{`{"kind":"status","status":503,"retry_after":"7"}`, 503, 0},
		{`{"kind":"declined"}`, 402, 0},
		{`{"kind":"pending"}`, 202, 0},
		{`{"kind":"act-close"}`, 0, 1},
		{`{"kind":"act-status","status":502}`, 502, 1},
		{`{"kind":"act-cut"}`, 0, 1},
		{`{"kind":"act-slow","delay":"20ms"}`, 201, 1},
		{`{"kind":"act-late","delay":"20ms"}`, 201, 1},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			s, base := start(t, Options{})
			if status, text := plan(t, base, tt.fault); status != 204 {
				t.Fatal(status, text)
			}
			status, answer := post(t, base, "k", body)
			stats := s.Stats()
			if status != tt.status || stats.Charges != tt.charges || stats.Posts != 1 {
				t.Errorf("%d %q %+v", status, answer, stats)
			}
			// Once only; the key still stands for what was done under it.
			if status, _ := post(t, base, "m", strings.Replace(body, "1001", "1003", 1)); status != 201 && !strings.Contains(tt.fault, "other") && !strings.Contains(tt.fault, "1002") {
				t.Errorf("the next one: %d", status)
			}
			if _, answer := post(t, base, "k", body); tt.charges == 1 && !strings.Contains(answer, `"pay_1"`) {
				t.Errorf("again: %s", answer)
			}
		})
	}
}

func plan(t *testing.T, base, faults string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/_faults", strings.NewReader("["+faults+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return do(req)
}

func TestFaultsRefused(t *testing.T) {
	s, base := start(t, Options{})
	for _, fault := range []string{
		`{"kind":"explode"}`, `{"kind":"status"}`, `{"kind":"status","status":99}`, `{"kind":"act-slow"}`, `{"kind":"act-late","delay":"x"}`,
		`{"kind":"close","when":"now"}`, `{"kind":"drop","order":"1001"}`, `{"kind":"close"},{"kind":""}`, `7`,
	} {
		if status, text := plan(t, base, fault); status != 400 {
			t.Errorf("%s: %d %s", fault, status, text)
		}
	}
	if len(s.faults) != 0 {
		t.Errorf("planned: %+v", s.faults)
	}
}

func TestFaultTimes(t *testing.T) {
	s, base := start(t, Options{})
	if err := s.Plan(Fault{Kind: Status, Status: 500, Times: 2}, Fault{Kind: Status, Status: 503, Times: -1}); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 4 {
		status, _ := post(t, base, "", body)
		got = append(got, status)
	}
	if want := "[500 500 503 503]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// hanging waits until a call hangs: its effect is the event to wait for.
func TestHang(t *testing.T) {
	for _, tt := range []struct {
		kind    Kind
		charges int64
		status  int
	}{{Hang, 0, 0}, {ActHang, 1, 201}} {
		s, base := start(t, Options{})
		if err := s.Plan(Fault{Kind: tt.kind}); err != nil {
			t.Fatal(err)
		}
		// The client goes away: the call ends, what was done stays done.
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", base+"/payments", strings.NewReader(body))
			answer, err := http.DefaultClient.Do(req)
			if err == nil {
				answer.Body.Close()
			}
			gone <- err
		}()
		waitFor(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.faults) == 0 && s.stats.Charges == tt.charges
		})
		cancel()
		if err := <-gone; err == nil {
			t.Errorf("%s: answered", tt.kind)
		}
		if got := s.Stats().Charges; got != tt.charges {
			t.Errorf("%s: %d charges", tt.kind, got)
		}

		// Released: an answer where it acted, else a closed connection.
		if err := s.Plan(Fault{Kind: tt.kind}); err != nil {
			t.Fatal(err)
		}
		answered := make(chan int, 1)
		go func() { status, _ := post(t, base, "", body); answered <- status }()
		waitFor(t, func() bool { s.Release(); return len(answered) > 0 })
		if got := <-answered; got != tt.status {
			t.Errorf("%s, released: %d, want %d", tt.kind, got, tt.status)
		}
	}
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !what(); {
		if time.Now().After(deadline) {
			t.Fatal("waited for 10 s")
		}
		time.Sleep(time.Millisecond)
	}
}

// Late execution: the client has gone, and the money moves after that.
func TestActLateWithoutClient(t *testing.T) {
	s, base := start(t, Options{})
	if err := s.Plan(Fault{Kind: ActLate}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", base+"/payments", strings.NewReader(body))
	gone := make(chan error, 1)
	go func() {
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			answer.Body.Close()
		}
		gone <- err
	}()
	waitFor(t, func() bool { return s.Stats().Posts == 1 })
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("answered")
	}
	if got := s.Stats().Charges; got != 0 {
		t.Fatalf("charged %d at once", got)
	}
	waitFor(t, func() bool {
		s.Release() // it may not have begun to wait yet
		return s.Stats().Charges == 1
	})
}

// The charge is booked and nothing of the answer is written while OnCharge runs.
func TestOnChargeComesBeforeTheAnswer(t *testing.T) {
	booked, goOn := make(chan Charge), make(chan struct{})
	s, base := start(t, Options{OnCharge: func(c Charge) { booked <- c; <-goOn }})
	answered := make(chan int, 1)
	go func() { status, _ := post(t, base, "k", body); answered <- status }()
	c := <-booked
	if c.Order != "1001" || c.Key != "k" || c.Amount != 1999 || s.Stats().Charges != 1 {
		t.Errorf("charge %+v, stats %+v", c, s.Stats())
	}
	if len(answered) != 0 {
		t.Error("answered before OnCharge was through")
	}
	close(goOn)
	if got := <-answered; got != 201 {
		t.Errorf("answered %d", got)
	}
	// A replay moves nothing, so nobody is told (or this would hang).
	if status, _ := post(t, base, "k", body); status != 201 {
		t.Errorf("replay answered %d", status)
	}
}

func TestLookupAndLag(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s, base := start(t, Options{LookupLag: time.Minute})
	s.now = func() time.Time { return now }
	post(t, base, "k", body)
	post(t, base, "l", body)
	for _, tt := range []struct {
		name  string
		later time.Duration
		want  int
	}{{"1001", 59 * time.Second, 0}, {"1001", time.Minute, 2}, {"k", time.Minute, 1}, {"other", time.Minute, 0}} {
		s.now = func() time.Time { return now.Add(tt.later) }
		status, text := get(t, base+"/payments?merchant_reference="+tt.name)
		var got struct{ Data []map[string]any }
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || got.Data == nil || len(got.Data) != tt.want {
			t.Errorf("%s after %s: %d %s", tt.name, tt.later, status, text)
		}
	}
	if status, _ := get(t, base+"/payments/pay_1"); status != 200 {
		t.Errorf("by id: %d", status)
	}
	for _, path := range []string{"/payments/pay_9", "/payments/1", "/payments/pay_0", "/payments/pay_-1"} {
		if status, _ := get(t, base+path); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := get(t, base+"/payments"); status != 400 {
		t.Errorf("look-up of nothing: %d", status)
	}
}

func TestSettle(t *testing.T) {
	var told atomic.Int32
	s, base := start(t, Options{OnCharge: func(Charge) { told.Add(1) }})
	if err := s.Plan(Fault{Kind: Pending, Times: 2}); err != nil {
		t.Fatal(err)
	}
	post(t, base, "k", body)
	post(t, base, "l", body)
	if stats := s.Stats(); stats.Pending != 2 || stats.Charges != 0 {
		t.Errorf("%+v", stats)
	}
	for i, verdict := range []string{"paid", "refused"} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("%s/_settle?id=pay_%d&status=%s", base, i+1, verdict), nil)
		if status, text := do(req); status != 204 {
			t.Errorf("%s: %d %s", verdict, status, text)
		}
	}
	if stats := s.Stats(); stats.Pending != 0 || stats.Charges != 1 || stats.Declined != 1 || told.Load() != 1 {
		t.Errorf("%+v, told %d", stats, told.Load())
	}
	if s.Settle("pay_1", false) {
		t.Error("settled twice")
	}
	// The key answers what it has answered before; the payment has the verdict.
	if status, text := post(t, base, "k", body); status != 202 || !strings.Contains(text, `"processing"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := get(t, base+"/payments/pay_1"); status != 200 || !strings.Contains(text, `"paid"`) {
		t.Errorf("%d %s", status, text)
	}
}

func TestWaitAndStats(t *testing.T) {
	s, base := start(t, Options{})
	waited := make(chan string, 1)
	go func() { _, text := get(t, base+"/_wait?charges=2"); waited <- text }()
	waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waiters) == 1 })
	post(t, base, "k", body)
	if len(waited) != 0 {
		t.Error("answered after one charge")
	}
	post(t, base, "l", body)
	if got := <-waited; got != `{"charges":2}` {
		t.Errorf("waited for %s", got)
	}
	if status, _ := get(t, base+"/_wait?charges=1"); status != 200 {
		t.Errorf("what was booked before: %d", status)
	}
	if status, _ := get(t, base+"/_wait?charges=3&timeout=1ms"); status != 408 || len(s.waiters) != 0 {
		t.Errorf("timeout: %d, waiters %d", status, len(s.waiters))
	}
	if status, _ := get(t, base+"/_wait?charges=x"); status != 400 {
		t.Errorf("bad number: %d", status)
	}
	for path, want := range map[string]string{
		"/_stats":              `{"posts":2,"charges":2,"replays":0,"mismatches":0,"declined":0,"pending":0,"repeated":1,"orders":{"1001":2}}`,
		"/_stats?orders=0":     `{"posts":2,"charges":2,"replays":0,"mismatches":0,"declined":0,"pending":0,"repeated":1}`,
		"/_charges?order=none": `[]`,
	} {
		if _, text := get(t, base+path); text != want {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// A Provider with the sandbox's own profile, over each outcome, and its look-up
// afterwards.
func TestProfile(t *testing.T) {
	for _, tt := range []struct {
		fault   Fault
		verdict zabor.Verdict
		absent  bool
		found   zabor.Verdict
	}{
		{Fault{}, zabor.Done, false, zabor.Done},
		{Fault{}, zabor.Malformed, true, 0},
		{Fault{Kind: ActClose}, zabor.Unproven, false, zabor.Done},
		{Fault{Kind: ActCut}, zabor.Unproven, false, zabor.Done},
		{Fault{Kind: ActStatus, Status: 502}, zabor.Unproven, false, zabor.Done},
		{Fault{Kind: Close}, zabor.Unproven, true, 0},
		{Fault{Kind: Drop}, zabor.Unproven, true, 0},
		{Fault{Kind: Status, Status: 500}, zabor.Unproven, true, 0},
		{Fault{Kind: Status, Status: 429, RetryAfter: "1"}, zabor.TurnedAway, true, 0},
		{Fault{Kind: Status, Status: 404}, zabor.Misdirected, true, 0},
		{Fault{Kind: Declined}, zabor.Refused, false, zabor.Refused},
		{Fault{Kind: Pending}, zabor.Begun, false, zabor.Begun},
		{Fault{Kind: ActHang}, zabor.Unproven, false, zabor.Done},
	} {
		s, base := start(t, Options{})
		p, err := provider.New("sandbox", Profile(base, time.Minute), provider.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if tt.fault.Kind != "" {
			if err := s.Plan(tt.fault); err != nil {
				t.Fatal(err)
			}
		}
		sent := body
		if tt.verdict == zabor.Malformed {
			sent = "{"
		}
		frozen, err := provider.Freeze(provider.Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(sent)})
		if err != nil {
			t.Fatal(err)
		}
		row := zabor.Row{Key: zabor.Key{Order: "1001", Step: "charge"}, ProviderKey: "k", Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Open: zabor.Open{Request: frozen}}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		got := p.Call(ctx, row)
		cancel()
		if got.Verdict != tt.verdict {
			t.Errorf("%s: %+v, want %s", tt.fault.Kind, got, tt.verdict)
		}
		if posts := s.Stats().Posts; posts != 1 {
			t.Errorf("%s: %d posts", tt.fault.Kind, posts)
		}
		found, err := p.Lookup(t.Context(), row)
		if err != nil || found.Absent != tt.absent || found.Outcome.Verdict != tt.found {
			t.Errorf("%s: look-up %+v, %v", tt.fault.Kind, found, err)
		}
	}
}
