package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"zabor"
)

// finding is a word for what a look-up found.
func finding(f zabor.Finding, err error) string {
	switch {
	case err != nil:
		return "error"
	case f.Absent:
		return "absent"
	case f.Several:
		return "several"
	}
	return strings.TrimSpace(f.Outcome.Verdict.String() + " " + f.Outcome.Reference)
}

// A list of the newest is whole where it reaches back to the call, or says itself that
// there is no more: a short page with a cursor is none. What is made at another
// location than the main one is in no such list.
func TestSilenceOfSquare(t *testing.T) {
	t.Parallel()
	captured := time.Now().UTC()
	entry := func(key string, made time.Time) string {
		return fmt.Sprintf(`{"id":"P1","status":"COMPLETED","reference_id":%q,"amount_money":{"amount":1999,"currency":"EUR"},"created_at":%q}`, key, made.Format(time.RFC3339))
	}
	row := testRow(t)
	row.CapturedAt = captured
	asks := func(body string) []byte {
		frozen, err := Freeze(Request{Method: "POST", Path: "/v2/payments", ContentType: "application/json", Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return frozen
	}
	plain := fmt.Sprintf(`{"reference_id":%q}`, row.ProviderKey)
	there := fmt.Sprintf(`{"reference_id":%q,"location_id":"L2"}`, row.ProviderKey)
	recent, old := entry("another", captured), entry("another", captured.Add(-time.Hour))
	for _, tt := range []struct{ name, request, answer, want string }{
		{"short and last", plain, `{"payments":[` + recent + `]}`, "absent"},
		{"short, with a cursor", plain, `{"payments":[` + recent + `],"cursor":"c"}`, "unproven"},
		{"empty, with a cursor", plain, `{"payments":[],"cursor":"c"}`, "unproven"},
		{"short, with a cursor, and reaching back", plain, `{"payments":[` + recent + "," + old + `],"cursor":"c"}`, "absent"},
		{"found before a cursor", plain, `{"payments":[` + entry(row.ProviderKey, captured) + `],"cursor":"c"}`, "done P1"},
		{"at another location", there, `{"payments":[` + recent + `]}`, "unproven"},
		{"found at another location", there, `{"payments":[` + entry(row.ProviderKey, captured) + `]}`, "done P1"},
	} {
		p := newPeer(t, after(says(answerOf(200, tt.answer))))
		b, _ := BuiltinNamed("square")
		profile, err := b.Profile("production", "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		row.Open.Request = asks(tt.request)
		found, err := mustNew(t, profile, Options{BaseURL: "http://" + p.addr}).Lookup(t.Context(), row)
		if got := finding(found, err); got != tt.want {
			t.Errorf("%s: %s (%s, %v), want %s", tt.name, got, found.Outcome.Reason, err, tt.want)
		}
	}
}

// Where a look-up's answer says that there are further pages, neither silence nor a no
// is proof.
func TestSilenceOfOnePageOfMany(t *testing.T) {
	t.Parallel()
	no, paid := payment("pay_3", "refused", 1999), payment("pay_1", "paid", 1999)
	for answer, want := range map[string]string{
		`{"data":[],"more":true}`:             "unproven",
		`{"data":[],"more":false}`:            "absent",
		`{"data":[],"more":null}`:             "absent",
		`{"data":[]}`:                         "absent",
		`{"data":[` + no + `],"more":"/p/2"}`: "unproven",
		`{"data":[` + no + `],"more":""}`:     "refused",
		`{"data":[` + paid + `],"more":true}`: "done pay_1",
	} {
		p := newPeer(t, after(says(answerOf(200, answer))))
		profile := testProfile("http://" + p.addr)
		profile.Lookup.More = "/more"
		found, err := mustNew(t, profile, Options{}).Lookup(t.Context(), testRow(t))
		if got := finding(found, err); got != want {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
}

// A look-up by the order also finds what another part of the step has made, and what a
// try before has: a hit is the row's by its key alone.
func TestLookupByOrder(t *testing.T) {
	t.Parallel()
	profile := testProfile("http://127.0.0.1:1")
	profile.Lookup.Path = "/payments?order={{order}}"
	if err := profile.Validate(); err == nil || !strings.Contains(err.Error(), "echo.key") {
		t.Errorf("by the order alone: %v", err)
	}
	key := testRow(t).ProviderKey
	hit := func(id, status, key string) string {
		return fmt.Sprintf(`{"id":%q,"status":%q,"amount":1999,"currency":"EUR","key":%q}`, id, status, key)
	}
	other, ours, bare := hit("pay_1", "paid", "another"), hit("pay_2", "paid", key), payment("pay_3", "paid", 1999)
	for _, tt := range []struct{ name, answer, want string }{
		{"another part's", list(other), "absent"},
		{"another part's, declined", list(hit("pay_1", "refused", "another")), "absent"},
		{"another part's and ours", list(other, ours), "done pay_2"},
		{"ours, declined, beside another's", list(other, hit("pay_2", "refused", key)), "refused"},
		{"nobody's", list(bare), "unproven"},
		{"nobody's and ours", list(bare, ours), "done pay_2"},
		{"nobody's and ours, declined", list(bare, hit("pay_2", "refused", key)), "unproven"},
		{"nothing", list(), "absent"},
	} {
		p := newPeer(t, after(says(answerOf(200, tt.answer))))
		profile := testProfile("http://" + p.addr)
		profile.Lookup.Path, profile.Echo.Key = "/payments?order={{order}}", "/key"
		row := testRow(t)
		row.Open.Request, _ = Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(`{"order":"1001"}`)})
		found, err := mustNew(t, profile, Options{}).Lookup(t.Context(), row)
		if got := finding(found, err); got != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, got, found.Outcome.Reason, tt.want)
		}
	}
}

// A look-up that is turned away says until when.
func TestLookupRetryAfter(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		p := newPeer(t, after(says(answerOf(status, `{}`, "Retry-After", "120"))))
		_, err := mustNew(t, testProfile("http://"+p.addr), Options{}).Lookup(t.Context(), testRow(t))
		if later, ok := errors.AsType[*zabor.LaterError](err); !ok || later.After != 2*time.Minute {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// Where the provider says it in its body, that counts as the header does.
func TestRetryAfterInTheBody(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]time.Duration{
		`{"type":"processing","retry_after":1800}`: 1800 * time.Millisecond, `{"retry_after":5}`: time.Second,
		`{"retry_after":"x"}`: 0, `{"retry_after":-5}`: 0, `{"retry_after":99999999999999999999}`: 0, `{"retry_after":9999999999999}`: 24 * time.Hour, `{}`: 0,
	} {
		p := newPeer(t, after(says(answerOf(202, body))))
		b, _ := BuiltinNamed("yookassa")
		profile, err := b.Profile("100500", "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		row := testRow(t)
		row.Open.Request, _ = Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(`{}`)})
		o := mustNew(t, profile, Options{BaseURL: "http://" + p.addr}).Call(within(t, 30*time.Second), row)
		if o.Verdict != zabor.Unproven || o.RetryAfter != want {
			t.Errorf("%s: %v after %s, want %s", body, o.Verdict, o.RetryAfter, want)
		}
	}
}

// What is pending and of which no request is kept is asked for where its id says.
func TestPendingWithoutARequest(t *testing.T) {
	t.Parallel()
	for reference, want := range map[string]string{"re_1": "GET /v1/refunds/re_1 HTTP/1.1", "pi_1": "GET /v1/payment_intents/pi_1 HTTP/1.1", "xx_1": ""} {
		p := newPeer(t, after(says(answerOf(200, `{"id":"`+reference+`","status":"succeeded","amount":1999,"amount_received":1999,"currency":"eur"}`))))
		b, _ := BuiltinNamed("stripe")
		profile, err := b.Profile("", "sk_test_1")
		if err != nil {
			t.Fatal(err)
		}
		row := testRow(t)
		row.State, row.Reference, row.Open.Request = zabor.Pending, reference, nil
		found, err := mustNew(t, profile, Options{BaseURL: "http://" + p.addr}).Lookup(t.Context(), row)
		if want == "" {
			if len(p.posts()) != 0 || found.Outcome.Verdict != zabor.Unproven {
				t.Errorf("%s: %+v, %v", reference, found, err)
			}
			continue
		}
		if err != nil || found.Outcome.Verdict != zabor.Done || found.Outcome.Reference != reference {
			t.Errorf("%s: %+v, %v", reference, found, err)
		}
		if posts := p.posts(); len(posts) != 1 || posts[0].raw != want {
			t.Errorf("asked %+v, want %q", posts, want)
		}
	}
}
