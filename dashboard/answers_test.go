package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
)

// counter is a process that counts answers, with its alerts.
func (o *office) counter() (*Answers, *[]zabor.Alert) {
	alerts := &[]zabor.Alert{}
	return NewAnswers(o.store, "shop", func(a zabor.Alert) { *alerts = append(*alerts, a) }), alerts
}

// beat makes a's beat so long after now, and lets the pages read again.
func (o *office) beat(a *Answers, after time.Duration) {
	o.Helper()
	if err := a.Beat(o.Context(), time.Now().Add(after)); err != nil {
		o.Fatal(err)
	}
	o.board.changed()
	o.board.numbers.sums.forget()
}

// The headline is red within one beat when a success was answered and no row has it,
// with the order, the sum and an alert; green once the row has it or a person has
// dealt with it.
func TestSuccessWithoutRow(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) { options.Scope = "shop" })
	a, alerts := o.counter()
	called := a.Count(nil)
	yes := zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"}
	row := o.row("1", yes)
	called(row, yes, 0)
	called(row, zabor.Outcome{Verdict: zabor.Refused, Reason: "no"}, 0)
	o.beat(a, 3*time.Second)
	o.sees(200, "/", `class="hero equal"`, "as answered, not as the provider lists it", "<b>1</b>", "!no row")

	// A success that was never saved: its row says that nothing is known.
	unsaved := o.row("2", zabor.Outcome{Reason: "cut off"})
	called(unsaved, zabor.Outcome{Verdict: zabor.Done, Reference: "pi_2"}, 0)
	// A row that a failover has lost.
	if _, err := o.store.DB().ExecContext(t.Context(), "DELETE FROM zabor_fences WHERE order_id = ?", []byte("1")); err != nil {
		t.Fatal(err)
	}
	o.beat(a, 3*time.Minute)
	o.sees(200, "/", `class="hero unequal"`, "2 successes have no row", "39.98 EUR.", "pi_1", "pi_2", rowLink(row.Key), "≠")
	if len(*alerts) != 0 || a.Unsaved() != 2 {
		t.Errorf("after one beat: alerts %v, unsaved %d", *alerts, a.Unsaved())
	}
	o.beat(a, 4*time.Minute)
	o.beat(a, 5*time.Minute)
	if len(*alerts) != 2 || (*alerts)[0].Code != "answer-without-row" || (*alerts)[0].Severity != zabor.Critical || (*alerts)[0].Next == "" {
		t.Errorf("alerts %+v", *alerts)
	}

	// The process is gone; a person settles one and says what became of the other.
	if _, err := o.fence.Decide(t.Context(), zabor.Decision{Key: unsaved.Key, Seen: unsaved.Claim, Action: zabor.Settle, Reference: "pi_2", By: "anna", Reason: "in the list"}); err != nil {
		t.Fatal(err)
	}
	o.board.changed()
	o.sees(200, "/", "1 success has no row", "pi_1", "!pi_2")
	form := url.Values{"scope": {"shop"}, "order": {"1"}, "step": {"charge"}, "reference": {"pi_1"}}
	if code, _ := o.ask(http.MethodPost, "/answer", form); code != http.StatusBadRequest {
		t.Errorf("without a reason: %d", code)
	}
	form.Set("reason", "imported again")
	if code, _ := o.ask(http.MethodPost, "/answer", form); code != http.StatusSeeOther {
		t.Errorf("status %d", code)
	}
	o.board.numbers.sums.forget()
	o.sees(200, "/", `class="hero equal"`, "!no row")
	if rows, _, err := o.store.Reports().OfOrders(t.Context(), "shop", "1", 0); err != nil || len(rows) != 0 {
		t.Errorf("rows %v, %v", rows, err)
	}
}

// Several processes are counted together, those of another installation are not, and
// a process that has read nothing writes nothing.
func TestAnswersOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	o := newOffice(t, func(options *Options) { options.Scope = "shop" })
	yes := zabor.Outcome{Verdict: zabor.Begun, Reference: "pi_1"}
	row := o.row("1", yes)
	for range 2 {
		a, _ := o.counter()
		a.Count(nil)(row, yes, 0)
		o.beat(a, 0)
	}
	other := NewAnswers(o.store, "shop-2", func(zabor.Alert) {})
	other.Count(nil)(row, yes, 0)
	o.beat(other, 0)
	idle, _ := o.counter()
	o.beat(idle, 0)
	if all, err := o.board.answers(t.Context()); err != nil || all.N != 2 || all.Lost() != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	records, err := o.store.Meta().All(t.Context(), answersPrefix)
	if err != nil || len(records) != 3 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// What waits for comparison is bounded, and a success that is missing stays in it.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	a, _ := o.counter()
	a.Count(nil)(zabor.Row{Key: zabor.Key{Scope: "shop", Order: "lost", Step: "charge"}}, zabor.Outcome{Verdict: zabor.Done, Reference: "pi_lost"}, 0)
	o.beat(a, 3*time.Second)
	for range mostLatest + 10 {
		a.Count(nil)(zabor.Row{Key: zabor.Key{Scope: "shop", Order: "1", Step: "charge"}}, zabor.Outcome{Verdict: zabor.Done, Reference: "pi"}, 0)
	}
	if len(a.latest) != mostLatest || !slices.ContainsFunc(a.latest, func(one *answered) bool { return one.Reference == "pi_lost" }) || a.n != mostLatest+11 {
		t.Errorf("%d wait, %d counted", len(a.latest), a.n)
	}
	o.beat(a, 20*time.Minute)
	text, _, err := o.store.Meta().Get(t.Context(), a.name)
	if err != nil || strings.Count(string(text), `"reference"`) != mostMissing {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// The records of ended processes become one, which counts the same.
func TestAnswersAreFolded(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	yes := zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1"}
	row := o.row("1", yes)
	fold := func(after time.Duration, records int, n int64) {
		t.Helper()
		a := NewAnswers(o.store, "shop", func(zabor.Alert) {})
		if err := a.fold(t.Context(), time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
		o.board.changed()
		left, err := o.store.Meta().All(t.Context(), answersPrefix)
		all, readErr := o.board.answers(t.Context())
		if err != nil || readErr != nil || len(left) != records || all.N != n || all.Since.IsZero() {
			t.Errorf("%d records, %+v; want %d and %d; %v %v", len(left), all, records, n, err, readErr)
		}
	}
	for range 3 {
		a, _ := o.counter()
		a.Count(nil)(row, yes, 0)
		o.beat(a, 0)
	}
	lost, _ := o.counter()
	lost.Count(nil)(row, zabor.Outcome{Verdict: zabor.Done, Reference: "pi_lost"}, 0)
	o.beat(lost, 3*time.Second)
	fold(time.Hour, 4, 4)
	fold(foldAfter+time.Hour, 2, 4) // that of the missing success stays
	fold(foldAfter+time.Hour, 2, 4)
	a, _ := o.counter()
	a.Count(nil)(row, yes, 0)
	o.beat(a, 0)
	fold(foldAfter+time.Hour, 2, 5)

	idle, _ := o.counter() // it runs on, and nothing is charged
	idle.Count(nil)(row, yes, 0)
	for day := range 9 {
		o.beat(idle, time.Duration(day*25)*time.Hour)
	}
	fold(9*24*time.Hour, 3, 6)
}
