package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/audit"
)

// differ is a difference of an order.
func differ(kind audit.Kind, severity audit.Severity, order string) audit.Difference {
	return audit.Difference{Kind: kind, Severity: severity, Key: zabor.Key{Order: order, Step: "charge"}}
}

// badReport is a comparison that has found these.
func badReport(at time.Time, looks []Look, found ...audit.Difference) AuditReport {
	r := AuditReport{At: at, Exports: 1, Looks: looks, Differences: found, Total: audit.Total{Differences: map[audit.Kind]int64{}}}
	for _, d := range found {
		r.Total.Differences[d.Kind]++
		r.Total.Bad += int64(b2i(d.Severity != audit.Info))
		r.Total.DoubleCharged += int64(b2i(d.Kind == audit.ChargedTwice))
		r.Total.Lost += int64(b2i(d.Kind == audit.Lost))
	}
	return r
}

// A comparison undoes what another has found only where it has looked at all that
// that one did, of all of its time.
func TestCovers(t *testing.T) {
	t.Parallel()
	hour := func(h int) time.Time { return time.Date(2026, 3, 2, h, 0, 0, 0, time.UTC) }
	var ever time.Time
	look := func(name string, first, last int) Look { return Look{Name: name, First: hour(first), Last: hour(last)} }
	stripe, adyen := look("stripe", 5, 9), look("adyen", 2, 3)
	payments, queues := Look{Name: LookPayments, First: hour(5), Last: hour(9)}, Look{Name: LookMessages, Last: hour(9)}
	for _, c := range []struct {
		name          string
		before, after []Look
		want          bool
	}{
		{"the same", []Look{stripe, adyen}, []Look{adyen, stripe}, true},
		{"more", []Look{stripe}, []Look{adyen, look("stripe", 4, 10), queues}, true},
		{"from the beginning", []Look{stripe}, []Look{{Name: "stripe", Last: hour(9)}}, true},
		{"not from the beginning", []Look{{Name: "stripe", Last: hour(9)}}, []Look{look("stripe", 0, 10)}, false},
		{"a later beginning", []Look{stripe}, []Look{look("stripe", 6, 10)}, false},
		{"a later beginning, beside a list that goes back", []Look{stripe, adyen}, []Look{look("stripe", 6, 10), look("adyen", 0, 10)}, false},
		{"last month's export again", []Look{stripe}, []Look{look("stripe", 1, 8)}, false},
		{"a gap between two exports", []Look{look("stripe", 5, 6)}, []Look{look("stripe", 1, 2), look("stripe", 7, 9)}, false},
		{"three exports in one", []Look{look("stripe", 1, 2), look("stripe", 3, 4)}, []Look{look("stripe", 1, 4)}, true},
		{"another provider", []Look{stripe}, []Look{look("adyen", 0, 10)}, false},
		{"another nameless export", []Look{look("/tmp/stripe.csv", 5, 9)}, []Look{look("/tmp/adyen.csv", 0, 10)}, false},
		{"without the payments", []Look{stripe, payments}, []Look{stripe, queues}, false},
		{"fewer payments", []Look{payments}, []Look{look(LookPayments, 6, 10)}, false},
		{"without the queues", []Look{stripe, queues}, []Look{stripe, payments}, false},
		{"with both", []Look{stripe, payments, queues}, []Look{stripe, payments, queues}, true},
		{"no times", []Look{{Name: "stripe", First: ever}}, []Look{{Name: "stripe", First: ever, Last: hour(20)}}, false},
		{"no times after", []Look{stripe}, []Look{{Name: "stripe"}}, false},
		{"nothing known", nil, []Look{stripe}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := badReport(hour(9), c.before, differ(audit.ChargedTwice, audit.Critical, "1"))
			good := AuditReport{At: hour(20), Exports: 1, Looks: c.after}
			if got := !good.After(before).Bad(); got != c.want {
				t.Errorf("undone %v, want %v", got, c.want)
			}
			// What has found something too must be covered as well, in one.
			again := badReport(hour(20), c.after, differ(audit.Lost, audit.Critical, "2")).After(before)
			if got, want := len(again.Differences), 2-b2i(c.want); got != want {
				t.Errorf("%d differences, want %d", got, want)
			}
			if good.After(again).Bad() && c.want {
				t.Error("and what looks at as much does not undo both")
			}
		})
	}
}

// What an earlier version has kept is read, and undone by what has looked at all that
// it may have looked at.
func TestCoversAnEarlierVersion(t *testing.T) {
	t.Parallel()
	hour := func(h int) time.Time { return time.Date(2026, 3, 2, h, 0, 0, 0, time.UTC) }
	text := `{"at": "2026-03-02T09:00:00Z", "by": "cron", "exports": 1, "total": {"DoubleCharged": 1, "Bad": 1, "First": "2026-03-02T05:00:00Z"PAYMENTS}, "from": "2026-03-02T05:00:00Z", "lists": ["NAME"]}`
	for _, c := range []struct {
		name, payments string
		after          []Look
		want           bool
	}{
		{"stripe", "", []Look{{Name: "stripe", First: hour(5), Last: hour(10)}}, true},
		{"stripe", "", []Look{{Name: "stripe", First: hour(6), Last: hour(10)}}, false},
		{"stripe", "", []Look{{Name: "stripe", First: hour(5), Last: hour(8)}}, false},
		{"an export", "", []Look{{Name: "stripe", Last: hour(10)}, {Name: "/tmp/an export", Last: hour(10)}}, false},
		{"stripe", `, "Payments": 7`, []Look{{Name: "stripe", Last: hour(10)}}, false},
		{"stripe", `, "Payments": 7`, []Look{{Name: "stripe", Last: hour(10)}, {Name: LookPayments, Last: hour(10)}}, true},
		{"stripe", `, "Lost": 1`, []Look{{Name: "stripe", Last: hour(10)}}, false},
		{"stripe", `, "Messages": 1`, []Look{{Name: "stripe", Last: hour(10)}, {Name: LookMessages, Last: hour(10)}}, true},
	} {
		var before AuditReport
		if err := json.Unmarshal([]byte(strings.NewReplacer("NAME", c.name, "PAYMENTS", c.payments).Replace(text)), &before); err != nil {
			t.Fatal(err)
		}
		good := AuditReport{At: hour(10), Exports: 1, Looks: c.after}
		if got := !good.After(before).Bad(); got != c.want {
			t.Errorf("%s%s, %v: undone %v, want %v", c.name, c.payments, c.after, got, c.want)
		}
		if bad := badReport(hour(10), c.after, differ(audit.Lost, audit.Critical, "2")).After(before); !c.want && (len(bad.Lists) > 0 || !good.After(bad).Bad()) {
			t.Errorf("%s%s: merged %+v", c.name, c.payments, bad)
		}
	}
}

// A full list takes what is graver in the place of what is milder, and the counts do
// not grow by what is found again.
func TestAFullList(t *testing.T) {
	t.Parallel()
	at := time.Now()
	many := func(kind audit.Kind, severity audit.Severity, n int, name string) (found []audit.Difference) {
		for i := range n {
			found = append(found, differ(kind, severity, fmt.Sprint(name, i)))
		}
		return found
	}
	kept := func(r AuditReport) (n [3]int) {
		for _, d := range r.Differences {
			n[grave(d.Severity)]++
		}
		return n
	}
	// keep bounds a report as it is kept.
	keep := func(r AuditReport) AuditReport {
		all := r.Differences
		r.Differences = nil
		for _, d := range all {
			r.Add(d)
		}
		return r
	}
	mild := append(many(audit.Held, audit.Warning, 350, "held "), many(audit.Waiting, audit.Info, 50, "waiting ")...)
	before := keep(badReport(at, []Look{{Name: "adyen", Last: at}}, append(mild, many(audit.Lost, audit.Critical, 2, "lost ")...)...))
	if got := kept(before); got != [3]int{0, 298, 2} {
		t.Fatalf("kept %v", got)
	}
	hourly := keep(badReport(at, []Look{{Name: "stripe", First: at, Last: at}}, append(many(audit.ChargedTwice, audit.Critical, 5, "twice "), many(audit.InDoubt, audit.Warning, 400, "doubt ")...)...))
	for range 3 {
		if before = hourly.After(before); kept(before) != [3]int{0, 293, 7} {
			t.Fatalf("kept %v", kept(before))
		}
		if n := before.Total.Differences; n[audit.ChargedTwice] != 5 || n[audit.InDoubt] != 400 || n[audit.Held] != 350 || n[audit.Lost] != 2 || before.Total.DoubleCharged != 5 || before.Total.Lost != 2 {
			t.Fatalf("counted %+v", before.Total)
		}
	}
	// Full of the gravest: nothing more is kept, and there are as many as one has seen.
	hourly = keep(badReport(at, hourly.Looks, many(audit.ChargedTwice, audit.Critical, 500, "more ")...))
	for range 3 {
		before = hourly.After(before)
		if n := before.Total.Differences[audit.ChargedTwice]; kept(before) != [3]int{0, 0, 300} || n != 500 || before.Total.DoubleCharged != 500 {
			t.Fatalf("kept %v, counted %d, %d too much", kept(before), n, before.Total.DoubleCharged)
		}
	}
}

// Who says that a comparison is dealt with has seen all that is in it; and when he has,
// nothing of it is red.
func TestDealtWithWhatWasSeen(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	begin := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	keep := func(after time.Duration, name, order string) {
		t.Helper()
		at := begin.Add(after)
		if err := KeepAudit(t.Context(), o.store, "", badReport(at, []Look{{Name: name, First: at, Last: at}}, differ(audit.ChargedTwice, audit.Critical, order))); err != nil {
			t.Fatal(err)
		}
	}
	offered := func(page string) string {
		t.Helper()
		_, body := o.ask(http.MethodGet, page, nil)
		_, rest, _ := strings.Cut(body, `name="at" value="`)
		at, _, _ := strings.Cut(rest, `"`)
		return at
	}
	deal := func(at string) int {
		code, _ := o.ask(http.MethodPost, "/audit/dealt", url.Values{"at": {at}, "reason": {"refunded"}})
		return code
	}
	keep(0, "stripe", "order-first")
	seen := offered("/audit")
	keep(time.Minute, "stripe", "order-second")
	if code := deal(seen); code != http.StatusConflict {
		t.Errorf("what nobody has seen was dealt with: status %d", code)
	}
	o.sees(200, "/", "Charged twice")
	for _, page := range []string{"/audit", "/audit?of=comparison"} {
		o.sees(200, page, "order-first", "order-second", "2 charges too much", "what stands since")
	}
	keep(2*time.Minute, "stripe", "order-second") // found again
	if at := offered("/audit"); at != offered("/audit?of=comparison") || at == seen {
		t.Errorf("%s is offered on one page, %s on the other", at, offered("/audit?of=comparison"))
	}
	if code := deal(offered("/audit")); code >= 400 {
		t.Errorf("status %d", code)
	}
	o.sees(200, "/", "!unequal", "!Charged twice")
}
