package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/dashboard/access"
)

// Each card leads to its decision and to the shop's order, and the decision to the
// next held charge; the choice that can charge twice looks so.
func TestFromCardToCard(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) { options.OrderURL = "https://shop.example/admin/orders/" + OrderMark })
	first := o.row("A/1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	second := o.row("A2", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	decide := strings.ReplaceAll(rowURL(first.Key), "&", "&amp;") + "#decide"
	o.sees(200, "/open", `href="`+decide+`">Decide…`, `href="https://shop.example/admin/orders/A%2F1"`, `class="choice danger"`, "Not charged: charge again", "the customer pays twice")
	o.sees(200, rowURL(first.Key), `id="decide"`, `href="https://shop.example/admin/orders/A%2F1"`)

	form := url.Values{"row": {token(first.Key, first.Claim)}, "action": {"settle"}, "reason": {"seen"}, "reference." + token(first.Key, first.Claim): {"pi_1"}}
	if code, body := o.ask(http.MethodPost, "/decide", form); code != 200 || strings.Contains(body, "Next held charge") || strings.Contains(body, "button danger") {
		t.Errorf("before it is confirmed: status %d\n%s", code, body)
	}
	form.Set("confirm", "yes")
	if code, body := o.ask(http.MethodPost, "/decide", form); code != 200 || !strings.Contains(body, strings.ReplaceAll(rowURL(second.Key), "&", "&amp;")+`#decide">Next held charge: A2`) || !strings.Contains(body, `<b class="badge">1<`) {
		t.Errorf("after it: status %d\n%s", code, body)
	}
	form = url.Values{"row": {token(second.Key, second.Claim)}, "action": {"settle"}, "reason": {"seen"}, "confirm": {"yes"}, "reference." + token(second.Key, second.Claim): {"pi_2"}}
	if code, body := o.ask(http.MethodPost, "/decide", form); code != 200 || strings.Contains(body, "Next held charge") {
		t.Errorf("after the last: status %d\n%s", code, body)
	}
}

// A viewer sees no inputs for what operators do.
func TestViewersSeeNoInputs(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) {
		hash, err := access.Hash("correct horse")
		if err != nil {
			t.Fatal(err)
		}
		if options.Guard, err = access.New(access.Options{Users: []access.User{{Name: "vera", Hash: hash, Role: access.Viewer}, {Name: "anna", Hash: hash, Role: access.Operator}}}); err != nil {
			t.Fatal(err)
		}
	})
	row := o.row("1", zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404"})
	inputs := func(p person, path string) int {
		body := p.says(200, http.MethodGet, path, nil)
		_, body, _ = strings.Cut(body, `<main id="main"`)
		return strings.Count(body, "<input") + strings.Count(body, "<button class=\"button")
	}
	vera, anna := o.signIn("vera"), o.signIn("anna")
	for _, path := range []string{"/open", rowURL(row.Key), "/"} {
		if n := inputs(vera, path); n > 1 { // one closes the keys' window
			t.Errorf("%s: a viewer sees %d inputs", path, n)
		}
	}
	if n := inputs(anna, "/open"); n < 4 {
		t.Errorf("an operator sees %d inputs", n)
	}
	vera.says(200, http.MethodGet, "/open", nil, "An operator decides", "!Decide…")
	vera.says(403, http.MethodPost, "/answer", url.Values{"order": {"1"}}, "Operators do this")
}

// Each page has a banner for each pause, with its cause, its end and the messages
// that wait.
func TestPauses(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(5 * time.Minute).UTC().Truncate(time.Second)
	o := newOffice(t, func(options *Options) {
		options.Scope = "shop"
		options.Providers = []Provider{{Name: "acquirer"}, {Name: "other"}}
		options.Queues = []Queue{{Name: "payments", Depth: func(context.Context) (Depth, error) { return Depth{Ready: 1, Reserved: 5, Delayed: 1}, nil }}}
		options.Find = func(_ context.Context, order string) ([]Waiting, bool, error) {
			if order != "6002" {
				return nil, order == "many", nil
			}
			key := zabor.Key{Scope: "shop", Order: "6002", Step: "charge"}
			return []Waiting{
				{Key: key, Queue: "payments", Place: "delayed", Since: time.Now().Add(-4*time.Minute - 5*time.Second), Until: until, Provider: "acquirer"},
				{Key: key, Queue: "payments", Place: "failed"},
				{Queue: "payments", Place: "quarantined"},
			}, false, nil
		}
	})
	o.sees(200, "/", "!are paused until")
	text, err := json.Marshal(Status{Kind: "worker", Scope: "shop", Host: "h", Calls: map[string]Breaks{"acquirer": {Until: until, Why: "404 (order 6001)"}, "other": {}}})
	if err == nil {
		err = o.store.Processes().Alive(t.Context(), [16]byte{1}, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.board.numbers.processes.forget()
	for _, path := range []string{"/", "/open", "/fences"} {
		o.sees(200, path, "Charges to acquirer are paused until", until.Format(utcLayout), "It answered 404", "404 (order 6001)", "2 messages wait on the queues.", "!Charges to other")
	}
	o.sees(200, "/fences?q=6002", "Order 6002 (charge) waits on queue payments for 4 min because acquirer is paused.", "is among the failed messages of queue payments.", "in quarantine, from queue payments.", "The order is on a queue: see above.")
	o.sees(200, "/fences?q=6003", "Orders are case-sensitive", "The order is on no queue")
	o.sees(200, "/fences?q=many", "The order may still be on a queue")
}

// Where the database does not answer a page says so at once, and in the right words.
func TestTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	o.row("1", zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSlow) // as if the time of a page were over
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/fences", nil)
	request.Host = "127.0.0.1:8071"
	answer := httptest.NewRecorder()
	o.board.ServeHTTP(answer, request)
	for _, word := range []string{"The database does not answer", "Charges wait until it is back. Nobody is charged twice."} {
		if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), word) {
			t.Errorf("status %d, no %q\n%s", answer.Code, word, answer.Body)
		}
	}
	if err := o.store.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.sees(503, "/fences", "The database does not answer")
}

// A time of the command's is shown in the reader's zone, and nothing of the text
// becomes markup.
func TestTimed(t *testing.T) {
	t.Parallel()
	got := string(timed("a <b> until 2026-12-01 05:00:00Z, or 2026-12-01T05:00:00Z & on"))
	if strings.Count(got, "<time ") != 2 || strings.Contains(got, "<b>") || !strings.Contains(got, "&amp; on") {
		t.Error(got)
	}
}
