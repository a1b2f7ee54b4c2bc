package provider

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"zabor"
)

func payment(id, status string, amount int) string {
	return fmt.Sprintf(`{"id":%q,"status":%q,"amount":%d,"currency":"EUR"}`, id, status, amount)
}

func list(items ...string) string { return `{"data":[` + strings.Join(items, ",") + `]}` }

func TestLookup(t *testing.T) {
	one, two := payment("pay_1", "paid", 1999), payment("pay_2", "paid", 1999)
	no, odd, begun := payment("pay_3", "refused", 1999), payment("pay_4", "odd", 1999), payment("pay_5", "processing", 1999)
	for _, tt := range []struct {
		name   string
		status int
		body   string
		whole  bool // the profile has no list
		want   string
		why    string
	}{
		{"nothing", 200, list(), false, "absent", ""},
		{"one", 200, list(one), false, "done pay_1", ""},
		{"pending", 200, list(begun), false, "begun pay_5", ""},
		{"declined", 200, list(no), false, "refused", ""},
		{"declined twice", 200, list(no, no), false, "refused", ""},
		{"declined first, success second", 200, list(no, one), false, "done pay_1", ""},
		{"success first, declined second", 200, list(one, no), false, "done pay_1", ""},
		{"success and what cannot be read", 200, list(odd, one), false, "done pay_1", ""},
		{"declined and what cannot be read", 200, list(no, odd), false, "unproven", `"odd"`},
		{"two successes", 200, list(one, two), false, "several", `"pay_1" (done) and "pay_2" (done)`},
		{"the same twice", 200, list(one, one), false, "done pay_1", ""},
		{"the same, pending and settled", 200, list(payment("pay_1", "processing", 1999), one), false, "done pay_1", ""},
		{"success and pending", 200, list(one, begun), false, "several", `"pay_5" (begun)`},
		{"another amount", 200, list(payment("pay_1", "paid", 5)), false, "unproven", "pay_1"},
		{"another amount, declined", 200, list(payment("pay_1", "refused", 5)), false, "unproven", "amount"},
		{"another amount moved too", 200, list(one, payment("pay_6", "paid", 5)), false, "several", "pay_6"},
		{"another amount was declined", 200, list(one, payment("pay_6", "refused", 5)), false, "done pay_1", ""},
		{"success without a reference", 200, list(`{"status":"paid","amount":1999,"currency":"EUR"}`), false, "unproven", "no reference"},
		{"two without a reference", 200, list(`{"status":"paid"}`, `{"status":"paid"}`), false, "several", "one without reference"},
		{"404 with a list", 404, `{}`, false, "error", "404"},
		{"no list", 200, `{"data":null}`, false, "error", "no list"},
		{"list is an object", 200, `{"data":{}}`, false, "error", "no list"},
		{"not JSON", 200, `<html>`, false, "error", "not one JSON value"},
		{"cut", 200, list(one)[:20], false, "error", "not one JSON value"},
		{"401", 401, `{"data":[]}`, false, "error", "401"},
		{"429", 429, `{"data":[]}`, false, "error", "429"},
		{"500", 500, `{"data":[]}`, false, "error", "500"},
		{"302", 302, ``, false, "error", "302"},
		{"whole: found", 200, one, true, "done pay_1", ""},
		{"whole: 404", 404, `{}`, true, "absent", ""},
		{"whole: 410", 410, `{}`, true, "error", "410"},
		{"whole: unlisted", 200, odd, true, "unproven", "odd"},
		{"whole: empty object", 200, `{}`, true, "unproven", "nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer(t, after(says(answerOf(tt.status, tt.body, "Location", "/elsewhere"))))
			profile := testProfile("http://" + p.addr)
			if tt.whole {
				profile.Lookup.Items = ""
			}
			found, err := mustNew(t, profile, Options{}).Lookup(t.Context(), testRow(t))
			got, why := found.Outcome.Verdict.String(), found.Outcome.Reason
			switch {
			case err != nil:
				got, why = "error", err.Error()
			case found.Absent:
				got = "absent"
			case found.Several:
				got = "several"
			case found.Outcome.Reference != "":
				got += " " + found.Outcome.Reference
			}
			if got != tt.want || !strings.Contains(why, tt.why) {
				t.Errorf("%s (%s), want %s …%s…", got, why, tt.want, tt.why)
			}
			if err != nil && !strings.Contains(err.Error(), "look up 1001/charge at acquirer: ") {
				t.Errorf("error %q", err)
			}
			asked := p.posts()
			if len(asked) != 1 || asked[0].raw != "GET /payments?merchant_reference=abcdefghijklmnopqrstuvwxyz HTTP/1.1" {
				t.Errorf("asked %+v", asked)
			}
			if asked[0].Header.Get("Authorization") != "Bearer s3cret" || asked[0].Header.Get("Idempotency-Key") != "" {
				t.Errorf("headers %v", asked[0].Header)
			}
		})
	}
}

func TestLookupFails(t *testing.T) {
	p := newPeer(t, after(hang))
	profile := testProfile("http://" + p.addr)
	profile.Timeout = 50 * time.Millisecond
	if found, err := mustNew(t, profile, Options{}).Lookup(t.Context(), testRow(t)); err == nil {
		t.Errorf("hanging: %+v", found)
	}
	profile.Lookup = nil
	if _, err := mustNew(t, profile, Options{}).Lookup(t.Context(), testRow(t)); err == nil || !strings.Contains(err.Error(), "no look-up") {
		t.Errorf("without look-up: %v", err)
	}
	profile = testProfile("http://" + p.addr)
	profile.Lookup.Path = "/payments/{{reference}}"
	if _, err := mustNew(t, profile, Options{}).Lookup(t.Context(), testRow(t)); err == nil || !strings.Contains(err.Error(), "reference is missing") {
		t.Errorf("without a reference: %v", err)
	}
}

// A major amount is compared exactly, in the row's currency.
func TestLookupMajorAmount(t *testing.T) {
	for text, want := range map[string]zabor.Verdict{
		`"19.99"`: zabor.Done, `19.99`: zabor.Done, `"19.990"`: zabor.Done, `"19.9"`: zabor.Unproven, `"1999"`: zabor.Unproven, `"19.991"`: zabor.Unproven, `"-19.99"`: zabor.Unproven, `null`: zabor.Unproven,
	} {
		p := newPeer(t, after(says(answerOf(200, `{"data":[{"id":"1","status":"paid","sum":`+text+`,"currency":"EUR"}]}`))))
		profile := testProfile("http://" + p.addr)
		profile.Amount = Amount{Major: "/sum"}
		found, err := mustNew(t, profile, Options{}).Lookup(t.Context(), testRow(t))
		if err != nil || found.Outcome.Verdict != want {
			t.Errorf("%s: %+v, %v, want %s", text, found, err, want)
		}
	}
}

// Look-ups may share a connection; a row whose amount is not known is not
// compared.
func TestLookupSharesConnections(t *testing.T) {
	p := newPeer(t, func(p *peer, c net.Conn) {
		for range 3 {
			after(func(_ *peer, c net.Conn) {
				body := list(payment("pay_1", "paid", 5))
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			})(p, c)
		}
		io.Copy(io.Discard, c)
	})
	pr := mustNew(t, testProfile("http://"+p.addr), Options{})
	row := testRow(t)
	row.Amount = zabor.Money{}
	for range 3 {
		if found, err := pr.Lookup(t.Context(), row); err != nil || found.Outcome.Verdict != zabor.Done {
			t.Errorf("%+v, %v", found, err)
		}
	}
	if conns, asked, _ := p.counts(); conns != 1 || asked != 3 {
		t.Errorf("connections=%d requests=%d", conns, asked)
	}
	pr.lookups.CloseIdleConnections()
}

// Which of its requests a look-up makes, and what each answer proves.
func TestLookupByID(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Profile, *zabor.Row)
		status int
		body   string
		asked  string
		want   string
	}{
		{"prepared", func(_ *Profile, r *zabor.Row) { r.Prepared = "int/1" }, 200, payment("pay_1", "paid", 1999), "/intents/int%2F1", "done"},
		{"prepared, never begun", func(_ *Profile, r *zabor.Row) { r.Prepared = "int_1" }, 200, payment("int_1", "new", 1999), "/intents/int_1", "absent"},
		{"prepared, not there", func(_ *Profile, r *zabor.Row) { r.Prepared = "int_1" }, 404, `{}`, "/intents/int_1", "error"},
		{"prepared, not there, and a look-up without a list", func(p *Profile, r *zabor.Row) { p.Lookup.Items, r.Prepared = "", "int_1" }, 404, `{}`, "/intents/int_1", "error"},
		{"pending", func(_ *Profile, r *zabor.Row) { r.State, r.Reference = zabor.Pending, "pay_1" }, 200, payment("pay_1", "paid", 1999), "/payments/pay_1", "done"},
		{"settled", func(_ *Profile, r *zabor.Row) { r.State, r.Reference = zabor.Settled, "pay_1" }, 200, list(payment("pay_1", "paid", 1999)), "/payments?", "done"},
		{"never begun, in a list", func(*Profile, *zabor.Row) {}, 200, list(payment("pay_1", "new", 1999)), "/payments?", "absent"},
		{"never begun beside a charge", func(*Profile, *zabor.Row) {}, 200, list(payment("pay_1", "new", 1999), payment("pay_2", "paid", 1999)), "/payments?", "done"},
		{"never begun beside a decline", func(*Profile, *zabor.Row) {}, 200, list(payment("pay_1", "new", 1999), payment("pay_2", "refused", 1999)), "/payments?", "refused"},
		{"of another order", func(p *Profile, _ *zabor.Row) { p.Echo.Order = "/order" }, 200, list(`{"id":"pay_1","status":"paid","amount":1999,"currency":"EUR","order":"7"}`), "/payments?", "unproven"},
		{"no other way", func(p *Profile, _ *zabor.Row) { p.Lookup.Path = "" }, 200, ``, "", "unproven"},
	} {
		p := newPeer(t, after(says(answerOf(tt.status, tt.body))))
		profile := testProfile("http://" + p.addr)
		profile.Lookup.Prepared, profile.Lookup.Reference = "/intents/{{prepared}}", "/payments/{{reference}}"
		profile.Rules = []Rule{{Means: "unbegun", Values: map[string][]string{"/status": {"new"}}}}
		row := testRow(t)
		tt.change(&profile, &row)
		found, err := mustNew(t, profile, Options{}).Lookup(t.Context(), row)
		got := found.Outcome.Verdict.String()
		switch {
		case err != nil:
			got = "error"
		case found.Absent:
			got = "absent"
		}
		asked := ""
		if posts := p.posts(); len(posts) > 0 {
			asked = posts[0].raw
		}
		if got != tt.want || !strings.HasPrefix(strings.TrimPrefix(asked, "GET "), tt.asked) {
			t.Errorf("%s: %s (%v, %v), asked %q, want %s by %s", tt.name, got, found, err, asked, tt.want, tt.asked)
		}
	}
}
