package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"zabor"
)

// imports holds an order that another program had, as zabor import does.
func (o *office) imports(order string) zabor.Row {
	o.Helper()
	key := zabor.Key{Scope: "shop", Order: order, Step: "charge"}
	row, _, err := o.fence.Import(o.Context(), zabor.Effect{Key: key, Provider: "stripe", Amount: zabor.Money{Minor: 1999, Currency: "EUR"}}, "failed on queue payments: a PHP worker took it")
	if err != nil {
		o.Fatal(err)
	}
	return row
}

// history returns the events on the page of k, as one text.
func (o *office) history(k zabor.Key) string {
	o.Helper()
	row, err := o.store.Load(o.Context(), k)
	if err != nil {
		o.Fatal(err)
	}
	notes, err := o.store.History().Of(o.Context(), k)
	if err != nil {
		o.Fatal(err)
	}
	var all []string
	for _, e := range History(row, notes) {
		all = append(all, strings.Trim(strings.Join([]string{e.What, e.By, e.Text}, " | "), " |"))
	}
	return strings.Join(all, "\n")
}

// Evidence of an import is not zabor's own, and a decision erases none of it.
func TestImportedEvidence(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.imports("silent6")
	notOurs := []string{"Not zabor's call.", "the key does not help", "!It may have been sent", "!Provider key", "!Attempts that may have charged"}
	o.sees(200, "/open", append(notOurs, "!"+row.ProviderKey)...)
	o.sees(200, rowURL(row.Key), append(notOurs, "!"+row.ProviderKey, ">imported<", "!>doubt<", "a PHP worker took it")...)

	form := url.Values{"row": {token(row.Key, row.Claim)}, "action": {"settle"}, "reason": {"in the acquirer's list"}, "confirm": {"yes"}, "reference." + token(row.Key, row.Claim): {"pay_6"}}
	if code, body := o.ask(http.MethodPost, "/decide", form); code != 200 || !strings.Contains(body, "Decided") {
		t.Fatalf("status %d\n%s", code, body)
	}
	o.sees(200, rowURL(row.Key), append(notOurs, "Imported", "as held: failed on queue payments: a PHP worker took it", "Decided: charged", "in the acquirer&#39;s list", `<span class="dim">none is kept</span>`)...)
	if got, want := o.history(row.Key), "Imported |  | as held: failed on queue payments: a PHP worker took it\nDecided: charged | local | was held: in the acquirer's list"; got != want {
		t.Errorf("history\n%s\nwant\n%s", got, want)
	}
}

// What a call's answer said stays when a person decides against it.
func TestDecisionsKeepTheAnswer(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.row("1", zabor.Outcome{Verdict: zabor.Refused, Reason: "card_declined", Answer: &zabor.Answer{Status: 402, Body: []byte(`{}`)}})
	if _, err := o.fence.Decide(t.Context(), zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Settle, Reference: "pi_1", By: "anna", Reason: "the bank has it"}); err != nil {
		t.Fatal(err)
	}
	if got, want := o.history(row.Key), "Decided: charged | anna | was declined (HTTP 402; card_declined): the bank has it"; !strings.HasSuffix(got, want) {
		t.Errorf("history\n%s\nwant at its end\n%s", got, want)
	}
	o.sees(200, rowURL(row.Key), "card_declined", "HTTP 402")
}

// A look-up is noted when its result changes, also where another process made the
// last one.
func TestLookupsAreNoted(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	row := o.row("1", zabor.Outcome{Reason: "cut off"})
	var found zabor.Finding
	var failure error
	noted := func() zabor.Lookup {
		return NoteLookups(o.store, func(context.Context, zabor.Row) (zabor.Finding, error) { return found, failure })
	}
	look := noted()
	for _, step := range []struct {
		found   zabor.Finding
		failure error
		restart bool
	}{
		{found: zabor.Finding{Absent: true}},
		{found: zabor.Finding{Absent: true}},
		{found: zabor.Finding{Absent: true}, restart: true},
		{failure: errors.New("503")},
		{found: zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: "pi_1", Answer: &zabor.Answer{Status: 200}}}},
	} {
		found, failure = step.found, step.failure
		if step.restart {
			look = noted()
		}
		if got, err := look(t.Context(), row); got.Absent != found.Absent || !errors.Is(err, failure) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	notes, err := o.store.History().Of(t.Context(), row.Key)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, n := range notes {
		if n.Kind == lookedUp {
			texts = append(texts, n.Text)
		}
	}
	if want := []string{"not found", "no answer: 503", "found: done, HTTP 200, reference pi_1"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
}
