package proxy_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sandbox"
)

// What a call comes to, what its caller is told, and what a repeat is told.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		fault       sandbox.Fault
		status      int
		kind, state string
		again       int // status of a repeat
		againKind   string
		charges     int // in the end
	}{
		{"settled", sandbox.Fault{}, 201, "", "settled", 201, "", 1},
		{"declined", sandbox.Fault{Kind: sandbox.Declined}, 402, "", "declined", 402, "", 0},
		{"pending", sandbox.Fault{Kind: sandbox.Pending}, 202, "", "pending", 202, "", 0},
		{"no answer", sandbox.Fault{Kind: sandbox.ActClose}, 503, "in-doubt", "doubt", 503, "in-doubt", 1},
		{"half an answer", sandbox.Fault{Kind: sandbox.ActCut}, 503, "in-doubt", "doubt", 503, "in-doubt", 1},
		{"500", sandbox.Fault{Kind: sandbox.Status, Status: 500}, 503, "in-doubt", "doubt", 503, "in-doubt", 0},
		{"wrong address", sandbox.Fault{Kind: sandbox.Status, Status: 404}, 423, "held", "held", 423, "held", 0},
		{"turned away", sandbox.Fault{Kind: sandbox.Status, Status: 429}, 429, "", "released", 503, "paused", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, settings{})
			if tt.fault.Kind != "" {
				if err := d.box.Plan(tt.fault); err != nil {
					t.Fatal(err)
				}
			}
			first := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
			first.says(t, tt.status, tt.kind, tt.state)
			again := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
			if again.says(t, tt.again, tt.againKind, tt.state); again.status == first.status && tt.kind == "" && again.body != first.body {
				t.Errorf("first %s\nagain %s", first, again)
			}
			d.posts(1)
			if got := len(d.box.Charges("1001")); got != tt.charges {
				t.Errorf("charges=%d, want %d", got, tt.charges)
			}
			for _, a := range []answer{first, again} {
				if wait := a.header.Get("Retry-After"); a.status == 503 && wait == "" {
					t.Errorf("503 without Retry-After: %s", a)
				}
			}
		})
	}
}

// A form that the provider refuses is its own answer, and stays it.
func TestMalformed(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	for range 2 {
		d.do("POST", "/acquirer/payments", `{"amount":0,"currency":"EUR"}`, fenced("1001", "charge")...).says(t, 400, "", "declined")
	}
	d.posts(1)
	if !d.alerted("malformed") {
		t.Error("no alert")
	}
}

// The same key with another request is refused, with an alert, whatever differs.
func TestOtherRequest(t *testing.T) {
	t.Parallel()
	d := open(t, settings{options: proxy.Options{Upstreams: map[string]proxy.Upstream{"acquirer": {Volatile: []string{"note", "shop-trace", "at"}}}}})
	key := fenced("1001", "charge")
	d.do("POST", "/acquirer/payments?at=1", charge, append(key, "Merchant", "a", "Shop-Trace", "1")...).says(t, 201, "", "settled")
	for _, tt := range []struct {
		method, path, body string
		fields             []string
		status             int
		differs            string
	}{
		{"POST", "/acquirer/payments?at=2", charge, []string{"Merchant", "a", "Shop-Trace", "2"}, 201, ""},
		{"POST", "/acquirer/payments", `{"currency":"EUR","amount":1999,"note":"x","order":"1001"}`, []string{"Merchant", "a"}, 201, ""},
		{"POST", "/acquirer/payments", `{"amount":2999,"currency":"EUR","order":"1001"}`, []string{"Merchant", "a"}, 422, "body.amount"},
		{"POST", "/acquirer/payments", charge, []string{"Merchant", "b"}, 422, "header.Merchant"},
		{"POST", "/acquirer/payments", charge, nil, 422, "header.Merchant"},
		{"POST", "/acquirer/payments?to=other", charge, []string{"Merchant", "a"}, 422, "query.to"},
		{"POST", "/acquirer/intents", charge, []string{"Merchant", "a"}, 422, "path"},
		{"PUT", "/acquirer/payments", charge, []string{"Merchant", "a"}, 422, "method"},
	} {
		a := d.do(tt.method, tt.path, tt.body, append(tt.fields, key...)...)
		if a.status != tt.status || tt.differs != "" && !strings.Contains(a.body, "another "+tt.differs+")") {
			t.Errorf("%s %s %s %q: %s, want %d and %q", tt.method, tt.path, tt.body, tt.fields, a, tt.status, tt.differs)
		}
	}
	d.posts(1)
	if !d.alerted("other-request") {
		t.Error("no alert")
	}
}

// A provider that is not there: nothing was sent, and the key is free.
func TestNotReached(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	d := open(t, settings{upstream: "http://" + address})
	d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...).says(t, 502, "not-reached", "released")
	d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...).says(t, 503, "paused", "released")
	if row := d.row("1001", "charge"); row.Tries != 0 {
		t.Errorf("tries=%d, want 0: nothing was sent", row.Tries)
	}
	server := httptest.NewUnstartedServer(d.box)
	if server.Listener, err = net.Listen("tcp", address); err != nil {
		t.Skip("the port was taken meanwhile")
	}
	server.Start()
	defer server.Close()
	a := d.until(201, "POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
	a.says(t, 201, "", "settled")
	d.posts(1)
}

// until asks again until it gets the wanted status.
func (d *door) until(status int, method, path, body string, fields ...string) answer {
	d.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		a := d.do(method, path, body, fields...)
		if a.status == status {
			return a
		}
		if time.Now().After(end) {
			d.t.Fatalf("not %d after %s: %s", status, limit, a)
		}
	}
}

// A database that is away: nothing is sent.
func TestFenceAway(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	d.store.Close()
	a := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
	if a.says(t, 503, "not-now", ""); a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "nothing was sent") {
		t.Errorf("%s", a)
	}
	d.posts(0)
	d.do("GET", "/acquirer/payments?merchant_reference=1001", "").says(t, 200, "", "")
}

// A database that goes away between the provider's yes and the save: the caller
// has the answer as soon as the journal has it, and without a journal has not.
func TestFenceAwayAfterTheCharge(t *testing.T) {
	t.Parallel()
	for _, journal := range []bool{true, false} {
		t.Run(fmt.Sprintf("journal=%v", journal), func(t *testing.T) {
			t.Parallel()
			var d *door
			away := make(chan *door, 1)
			d = open(t, settings{journal: journal, box: sandbox.Options{OnCharge: func(sandbox.Charge) {
				d := <-away
				d.fence.Store.(*fickle).away(true)
			}}, store: func(s zabor.Store) zabor.Store { return &fickle{Store: s} }})
			d.fence.SaveTimeout = 2 * time.Second
			away <- d
			a := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
			if !journal {
				a.says(t, 503, "in-doubt", "captured")
				return
			}
			a.says(t, 201, "", "settled")
			d.fence.Store.(*fickle).away(false)
			d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...).says(t, 409, "busy", "captured")
			if saved, err := d.fence.ReplayJournal(t.Context()); err != nil || saved != 1 {
				t.Fatalf("saved=%d, %v", saved, err)
			}
			again := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
			if again.says(t, 201, "", "settled"); again.body != a.body {
				t.Errorf("first %s\nagain %s", a, again)
			}
			d.posts(1)
		})
	}
}

// fickle is a store that can be away.
type fickle struct {
	zabor.Store
	mu   sync.Mutex
	gone bool
}

func (f *fickle) away(gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = gone
}

func (f *fickle) there() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return errors.New("the database is away")
	}
	return nil
}

func (f *fickle) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	if err := f.there(); err != nil {
		return err
	}
	return f.Store.Swap(ctx, prev, next, w)
}

// A hundred callers with one key: one call, and all end with its answer.
func TestManyCallersOneKey(t *testing.T) {
	t.Parallel()
	d := open(t, settings{box: sandbox.Options{IgnoreKeys: true}})
	if err := d.box.Plan(sandbox.Fault{Kind: sandbox.ActHang}); err != nil {
		t.Fatal(err)
	}
	statuses := make(chan int, 10000)
	references := make(chan string, 100)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for end := time.Now().Add(limit); time.Now().Before(end); {
				a, err := d.try("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
				if err != nil {
					t.Error(err)
					return
				}
				statuses <- a.status
				if a.status == 201 {
					references <- a.header.Get("Zabor-Reference") + a.body
					return
				}
				if a.status != 409 || a.header.Get("Retry-After") == "" {
					t.Errorf("%s", a)
					return
				}
				select {
				case <-time.After(20 * time.Millisecond):
				case <-t.Context().Done():
				}
			}
		})
	}
	<-d.box.Wait(1)
	for range 99 { // every other caller has been told to wait
		if s := <-statuses; s != 409 {
			t.Errorf("status %d while the call is under way", s)
		}
	}
	d.box.Release()
	wg.Wait()
	d.posts(1)
	want := ""
	for range 100 {
		got := <-references
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%s and %s", got, want)
		}
	}
}

// Who hangs up does not stop the call: the answer is saved and waits.
func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	d := open(t, settings{box: sandbox.Options{IgnoreKeys: true}, profile: func(p *provider.Profile) { p.Timeout = time.Minute }})
	if err := d.box.Plan(sandbox.Fault{Kind: sandbox.ActHang}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", d.url+"/acquirer/payments", strings.NewReader(charge))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Zabor-Order": {"1001"}, "Zabor-Step": {"charge"}, "Content-Type": {"application/json"}}
	gone := make(chan error, 1)
	go func() {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	<-d.box.Wait(1)
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("the caller got an answer")
	}
	d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...).says(t, 409, "busy", "captured")
	d.box.Release()
	a := d.until(201, "POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
	a.says(t, 201, "", "settled")
	d.posts(1)
	if a.header.Get("Zabor-Replayed") != "true" {
		t.Errorf("%s", a)
	}
	d.eventually("it is noted that nobody took the answer", func() bool {
		notes, err := d.store.History().Of(t.Context(), zabor.Key{Scope: "test", Order: "1001", Step: "charge"})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range notes {
			if n.Kind == proxy.Unfetched {
				return true
			}
		}
		return false
	})
}

func (d *door) eventually(what string, cond func() bool) {
	d.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			d.t.Fatalf("not after %s: %s", limit, what)
		}
	}
}

// age makes all rows so old that no call of theirs can be on its way any more.
func (d *door) age() {
	d.t.Helper()
	if _, err := d.store.DB().ExecContext(d.t.Context(), "UPDATE zabor_fences SET send_until = captured_at - absent_after"); err != nil {
		d.t.Fatal(err)
	}
}

// Rows that are done without an answer of their own.
func TestDoneWithoutAnswer(t *testing.T) {
	t.Parallel()
	person := func(d *door, action zabor.Action, reference string) {
		d.t.Helper()
		k := zabor.Key{Scope: "test", Order: "1001", Step: "charge"}
		seen := zabor.Claim{}
		if row, err := d.store.Load(t.Context(), k); err == nil {
			seen = row.Claim
		}
		if _, err := d.fence.Decide(t.Context(), zabor.Decision{Key: k, Seen: seen, Action: action, Reference: reference, By: "me", Reason: "looked it up", CheckedProvider: true}); err != nil {
			d.t.Fatal(err)
		}
	}
	ask := func(d *door) answer { return d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...) }
	hold := func(d *door) {
		d.t.Helper()
		if err := d.box.Plan(sandbox.Fault{Kind: sandbox.Status, Status: 404}); err != nil {
			d.t.Fatal(err)
		}
		ask(d).says(t, 423, "held", "held")
	}
	t.Run("the object by its reference", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{})
		hold(d)
		resp, err := http.Post(d.upstream+"/payments", "application/json", strings.NewReader(charge))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		person(d, zabor.Settle, d.box.Charges("1001")[0].ID)
		a := ask(d)
		if a.says(t, 200, "", "settled"); !strings.Contains(a.body, `"id":"pay_1"`) || a.header.Get("Zabor-Replayed") != "true" {
			t.Errorf("%s", a)
		}
		d.posts(2)
	})
	t.Run("the object that a look-up finds", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{profile: func(p *provider.Profile) {
			p.Lookup.Prepared, p.Lookup.Reference, p.Lookup.Path = "", "", "/payments?merchant_reference={{order}}"
			p.Echo.Key = "/metadata/zabor_key" // a look-up by the order needs one; these payments have none
		}})
		hold(d)
		for range 2 {
			resp, err := http.Post(d.upstream+"/payments", "application/json", strings.NewReader(charge))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		person(d, zabor.Settle, "pay_2")
		a := ask(d)
		if a.says(t, 200, "", "settled"); !strings.Contains(a.body, `"id":"pay_2"`) || strings.Contains(a.body, "data") {
			t.Errorf("%s", a)
		}
	})
	t.Run("no such object", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{})
		hold(d)
		person(d, zabor.Settle, "pay_77")
		a := ask(d)
		if a.says(t, 410, "no-answer", "settled"); a.header.Get("Zabor-Reference") != "pay_77" {
			t.Errorf("%s", a)
		}
		d.posts(1)
	})
	t.Run("forbidden beforehand", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{})
		person(d, zabor.Decline, "")
		ask(d).says(t, 402, "declined", "declined")
		d.posts(0)
	})
	t.Run("declined, and its time is over", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{})
		if err := d.box.Plan(sandbox.Fault{Kind: sandbox.Declined}); err != nil {
			t.Fatal(err)
		}
		ask(d).says(t, 402, "", "declined")
		if _, _, err := d.store.EraseAnswers(t.Context(), "", 0, time.Time{}, 10); err != nil {
			t.Fatal(err)
		}
		ask(d).says(t, 402, "declined", "declined")
		d.posts(1)
	})
	t.Run("pending, and too long to be kept", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{provider: provider.Options{Keep: provider.Keep{Body: 10}}})
		if err := d.box.Plan(sandbox.Fault{Kind: sandbox.Pending}); err != nil {
			t.Fatal(err)
		}
		ask(d).says(t, 202, "", "pending")
		if a := ask(d); a.header.Get("Retry-After") == "" {
			t.Errorf("%s", a)
		} else {
			a.says(t, 503, "pending", "pending")
		}
		d.posts(1)
	})
	// The 202 that says that it is being processed is no answer to what a person has
	// decided since, also in a row of a version that left it there.
	t.Run("pending, and declined by a person", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{})
		if err := d.box.Plan(sandbox.Fault{Kind: sandbox.Pending}); err != nil {
			t.Fatal(err)
		}
		ask(d).says(t, 202, "", "pending")
		processing := d.row("1001", "charge").Answer
		d.age()
		person(d, zabor.Decline, "")
		ask(d).says(t, 402, "declined", "declined")
		row := d.row("1001", "charge")
		if processing == nil || row.Answer != nil {
			t.Errorf("the row had the answer %+v, and has %+v", processing, row.Answer)
		}
		next := row
		next.Claim.Epoch++
		next.Answer = processing
		if err := d.store.Swap(t.Context(), row, next, zabor.Write{}); err != nil {
			t.Fatal(err)
		}
		ask(d).says(t, 402, "declined", "declined")
		d.posts(1)
	})
	t.Run("too long to be kept", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{provider: provider.Options{Keep: provider.Keep{Body: 10}}, profile: func(p *provider.Profile) { p.Lookup = nil }})
		ask(d).says(t, 201, "", "settled")
		ask(d).says(t, 410, "no-answer", "settled")
		d.posts(1)
	})
	t.Run("its time is over", func(t *testing.T) {
		t.Parallel()
		d := open(t, settings{})
		ask(d).says(t, 201, "", "settled")
		if _, _, err := d.store.EraseAnswers(t.Context(), "", 0, time.Time{}, 10); err != nil {
			t.Fatal(err)
		}
		ask(d).says(t, 410, "no-answer", "settled")
		d.posts(1)
	})
}

// What may not be kept is not, and every other byte of the answer is.
func TestRedaction(t *testing.T) {
	t.Parallel()
	d := open(t, settings{provider: provider.Options{Keep: provider.Keep{Redact: []string{"merchant_reference"}}}})
	first := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
	again := d.do("POST", "/acquirer/payments", charge, fenced("1001", "charge")...)
	if want := strings.Replace(first.body, `"1001"`, `"[redacted]"`, 1); again.body != want || want == first.body {
		t.Errorf("got %s\nwant %s", again.body, want)
	}
}

// A card's number and code go to the provider, and nowhere else: the table has
// neither, whether the row is open or closed and whatever the provider answers.
func TestACardIsNotKept(t *testing.T) {
	t.Parallel()
	const number, code = "4242424242424242", "73519"
	calls := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			calls <- string(body) // a repeat gets the object, for the answer was not kept
		}
		if strings.Contains(string(body), "doubt") {
			w.WriteHeader(500)
		}
		fmt.Fprintf(w, `{"id":"pay_1","status":"paid","amount":1999,"currency":"EUR","card":{"number":"%s","cvc":"%s"}}`, number, code)
	}))
	defer server.Close()
	d := open(t, settings{upstream: server.URL})
	for order, want := range map[string]int{"paid": 200, "doubt": 503} {
		body := fmt.Sprintf(`{"amount":1999,"currency":"EUR","order":%q,"card":{"number":"4242 4242 4242 4242","cvc":%q}}`, order, code)
		for range 2 {
			if a := d.do("POST", "/acquirer/payments", body, fenced(order, "charge")...); a.status != want {
				t.Errorf("%s: %s, want %d", order, a, want)
			}
		}
		if got := <-calls; got != body {
			t.Errorf("the provider got %s", got)
		}
	}
	for _, table := range []string{"zabor_fences", "zabor_notes"} {
		text := d.dump(table)
		if !strings.Contains(text, "paid") && table == "zabor_fences" {
			t.Fatalf("%s has no row of the order: %s", table, text)
		}
		for _, secret := range []string{number, "4242 4242", code} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s: %s", table, secret, text)
			}
		}
	}
}

// However a card comes: the request that holds it, or may, is not kept, not even
// while its row is open, and neither is an answer that gives one away.
func TestACardIsNotKeptInAnyForm(t *testing.T) {
	t.Parallel()
	const number, code = "4242424242424242", "73519"
	told := make(chan string, 1)
	var payments atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodGet {
			w.WriteHeader(404)
			return
		}
		select {
		case text := <-told:
			io.WriteString(w, text)
		default:
			w.WriteHeader(202)
			fmt.Fprintf(w, `{"id":"pay_%d","status":"processing"}`, payments.Add(1))
		}
	}))
	defer server.Close()
	d := open(t, settings{upstream: server.URL, profile: func(p *provider.Profile) { p.Amount = provider.Amount{} }})
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	fmt.Fprintf(z, `{"card":{"number":"%s","cvc":"%s"}}`, number, code)
	z.Close()
	const form = "application/x-www-form-urlencoded"
	for i, tt := range []struct {
		contentType, body string
		fields            []string
	}{
		{form, "cvc=" + code, nil},
		{form + ";charset=UTF-8", "amount=1999&cvc=" + code, nil},
		{form + "; charset=utf-8", "card%5Bnumber%5D=4242+4242+4242+4242&amount=1999", nil},
		{form, `{"card":{"cvc":"` + code + `"}}`, nil},
		{form, "a=b;cvc=" + code, nil},
		{"application/json", `{"cvc":` + code + `}`, nil},
		{"application/json", `{"amount":1999,"card":[{"number":4242424242424242}]`, nil}, // no JSON
		{"multipart/form-data; boundary=x", part("x", "amount", "1999") + part("x", "card[cvc]", code) + "--x--\r\n", nil},
		{"multipart/form-data; boundary=x", part("x", "number", "4242-4242-4242-4242") + "--x--\r\n", nil},
		{"multipart/form-data; boundary=x", number + "\r\n" + part("x", "amount", "1999") + "--x--\r\n", nil},
		{"multipart/form-data; boundary=x", part("x", "cvc", code), nil}, // no end
		{"multipart/form-data", part("x", "cvc", code) + "--x--\r\n", nil},
		{"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=f; filename=card.txt\r\n\r\nsecret " + code + "\r\n--x--\r\n", nil},
		{"text/xml", "<card><cvc>" + code + "</cvc></card>", nil},
		{"text/plain", "security_code: " + code, nil},
		{"application/json", compressed.String(), []string{"Content-Encoding", "gzip"}},
		{"application/json", charge, []string{"X-Card-Number", number}},
		{"application/json", charge, []string{"X-Cvc", code}},
	} {
		order := fmt.Sprint(i)
		a := d.do("POST", "/acquirer/payments", tt.body, append(append(fenced(order, "charge"), "Content-Type", tt.contentType), tt.fields...)...)
		if a.status != 202 {
			t.Errorf("%s %q: %s", tt.contentType, tt.body, a)
			continue
		}
		if row := d.row(order, "charge"); row.State != zabor.Pending || row.Open.Request != nil || !row.Open.ReplayUntil.IsZero() {
			t.Errorf("%s %q: the row keeps %s until %v", tt.contentType, tt.body, row.Open.Request, row.Open.ReplayUntil)
		}
	}
	for i, body := range []string{`{"cvc":"` + code + `"}`, `{"card":{"cvv":` + code + `},"status":"paid"}`, `<cvc>` + code + `</cvc>`, `{"pan":"` + number + `"}`} {
		told <- body
		d.do("POST", "/acquirer/payments", charge, fenced(fmt.Sprint("answer-", i), "charge")...)
	}
	if text := d.dump("zabor_fences"); strings.Contains(text, number) || strings.Contains(text, code) || strings.Contains(text, "4242 4242") || strings.Contains(text, "4242-4242") {
		t.Errorf("the table has %s", text)
	}
}

func part(boundary, name, value string) string {
	return fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", boundary, name, value)
}

// A library makes another boundary for each form of parts, and a deployment brings
// another library: a repeat is the same request all the same, and another amount is
// another.
func TestPartsAndLibraries(t *testing.T) {
	t.Parallel()
	box := sandbox.New(sandbox.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // the box takes JSON
			r.Body = io.NopCloser(strings.NewReader(charge))
			r.ContentLength = int64(len(charge))
			r.Header.Set("Content-Type", "application/json")
		}
		box.ServeHTTP(w, r)
	}))
	defer server.Close()
	d := open(t, settings{upstream: server.URL, options: proxy.Options{Upstreams: map[string]proxy.Upstream{"acquirer": {Volatile: []string{"at"}}}}})
	ask := func(boundary, library string, parts ...string) answer {
		t.Helper()
		body := ""
		for i := 0; i < len(parts); i += 2 {
			body += part(boundary, parts[i], parts[i+1])
		}
		return d.do("POST", "/acquirer/payments", body+"--"+boundary+"--\r\n", append(fenced("1001", "charge"), "Content-Type", "multipart/form-data; boundary="+boundary, "Adyen-Library-Version", library)...)
	}
	first := ask("a1", "1.0", "amount", "1999", "currency", "EUR", "at", "1", "item", "a", "item", "b")
	first.says(t, 201, "", "settled")
	again := ask("b2", "1.1", "currency", "EUR", "amount", "1999", "at", "2", "item", "a", "item", "b")
	if again.says(t, 201, "", "settled"); again.body != first.body || again.header.Get("Zabor-Replayed") != "true" {
		t.Errorf("%s", again)
	}
	for differs, parts := range map[string][]string{
		"body.amount": {"amount", "2999", "currency", "EUR", "at", "1", "item", "a", "item", "b"},
		"body.item":   {"amount", "1999", "currency", "EUR", "at", "1", "item", "b", "item", "a"},
		"body.to":     {"amount", "1999", "currency", "EUR", "at", "1", "item", "a", "item", "b", "to", "me"},
	} {
		if a := ask("c3", "1.0", parts...); a.status != 422 || !strings.Contains(a.body, "another "+differs+")") {
			t.Errorf("%s: %s", differs, a)
		}
	}
	if got := len(box.Charges("1001")); got != 1 {
		t.Errorf("charges=%d, want 1", got)
	}
}

// dump is all that is in a table.
func (d *door) dump(table string) string {
	d.t.Helper()
	rows, err := d.store.DB().QueryContext(d.t.Context(), "SELECT * FROM "+table)
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		d.t.Fatal(err)
	}
	var all strings.Builder
	for rows.Next() {
		values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			d.t.Fatal(err)
		}
		for _, v := range values {
			all.Write(append(v, ' '))
		}
	}
	if err := rows.Err(); err != nil {
		d.t.Fatal(err)
	}
	return all.String()
}

// A call in doubt is decided by the same frozen request, with its header fields,
// under its key; the caller's repeats meet 503 until then and send nothing.
func TestDoubtIsDecidedByAReplay(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var merchants, keys []string
	box := sandbox.New(sandbox.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		merchants = append(merchants, r.Header.Get("Merchant"))
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		mu.Unlock()
		box.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	d := open(t, settings{upstream: server.URL, profile: func(p *provider.Profile) { p.Lookup, p.Timeout = nil, time.Second }})
	if err := box.Plan(sandbox.Fault{Kind: sandbox.ActClose}); err != nil {
		t.Fatal(err)
	}
	fields := append(fenced("1001", "charge"), "Merchant", "m-1")
	d.do("POST", "/acquirer/payments", charge, fields...).says(t, 503, "in-doubt", "doubt")
	one, err := provider.New("acquirer", sandbox.Profile(server.URL, time.Second), provider.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resolver := &zabor.Resolver{Fence: d.fence, Replay: one.Call, Every: 50 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { resolver.Run(ctx, nil) })
	a := d.until(201, "POST", "/acquirer/payments", charge, fields...)
	cancel()
	wg.Wait()
	a.says(t, 201, "", "settled")
	if got := box.Stats(); got.Charges != 1 || got.Posts != 2 {
		t.Errorf("stats %+v", got)
	}
	if len(keys) != 2 || keys[0] != keys[1] || merchants[0] != "m-1" || merchants[1] != "m-1" {
		t.Errorf("keys %q, merchants %q", keys, merchants)
	}
}

func TestFences(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	d.do("POST", "/acquirer/payments", charge, "Zabor-Order", "a%2Fb", "Zabor-Step", "charge:1", "Zabor-Scope", "m%201").says(t, 201, "", "settled")
	a := d.do("GET", "/fences/a%2Fb/charge:1?scope=m%201", "")
	if a.says(t, 200, "", "settled"); !strings.Contains(a.body, `"status":201`) || !strings.Contains(a.body, `\"amount\":1999`) || !strings.Contains(a.body, `"reference":"pay_1"`) {
		t.Errorf("%s", a)
	}
	for path, status := range map[string]int{
		"/fences/a%2Fb/charge:1": 404, "/fences/a/b/c": 400, "/fences/a": 400, "/fences//b": 400, "/fences/a/b?scop=m": 400, "/fences/a/b?scope=m&scope=n": 400,
	} {
		if got := d.do("GET", path, ""); got.status != status {
			t.Errorf("%s: %s, want %d", path, got, status)
		}
	}
	if got := d.do("POST", "/fences/a/b", charge); got.status != 400 {
		t.Errorf("POST: %s", got)
	}
}
