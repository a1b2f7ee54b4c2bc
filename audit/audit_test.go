package audit

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
)

var at = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// world is what the parties of an audit know.
type world struct {
	rows      []zabor.Row
	successes []Success
	payments  []Payment
	messages  []Message
	unfetched []zabor.Key
	refunded  []zabor.Key
	noFence   bool
	scope     string
}

// settled is a row of order/charge, with the reference pay_ORDER.
func settled(order string) zabor.Row {
	return zabor.Row{
		Key: zabor.Key{Scope: "shop", Order: order, Step: "charge"}, State: zabor.Settled, Endpoint: zabor.Endpoint{Provider: "stripe"}, ProviderKey: "key" + order,
		Reference: "pay_" + order, Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, CapturedAt: at, StateSince: at, Open: zabor.Open{SendUntil: at}, ReadAt: at.Add(time.Hour),
	}
}

// success is what the provider knows of settled.
func success(order string) Success {
	return Success{Reference: "pay_" + order, Key: "key" + order, Order: order, Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, At: at, Place: "export:" + order}
}

func paid(order string) Payment {
	return Payment{Order: order, Reference: "pay_" + order, Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Place: "row " + order}
}

func (w *world) clean(n int) {
	for i := range n {
		order := fmt.Sprintf("clean%07d", i)
		w.rows = append(w.rows, settled(order))
		w.successes = append(w.successes, success(order))
		w.payments = append(w.payments, paid(order))
	}
}

func each[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// pages gives rows as a store does.
func pages(rows []zabor.Row, limit int) func(zabor.Key) ([]zabor.Row, error) {
	sorted := slices.SortedFunc(slices.Values(rows), func(a, b zabor.Row) int { return a.Key.Compare(b.Key) })
	return func(after zabor.Key) ([]zabor.Row, error) {
		i := 0
		if after != (zabor.Key{}) {
			i, _ = slices.BinarySearchFunc(sorted, after, func(r zabor.Row, k zabor.Key) int { return r.Key.Compare(k) })
			i++
		}
		return sorted[min(i, len(sorted)):min(i+limit, len(sorted))], nil
	}
}

func (w *world) audit(t testing.TB) (Total, []Difference) {
	t.Helper()
	l, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if w.messages != nil {
		err = l.AddMessages(t.Context(), each(w.messages), nil)
	}
	if err == nil && !w.noFence {
		err = l.AddRows(t.Context(), w.scope, pages(w.rows, 1000), nil)
	}
	if err == nil && w.successes != nil {
		err = l.AddSuccesses(t.Context(), "export", each(w.successes), nil)
	}
	if err == nil && w.payments != nil {
		err = l.AddPayments(t.Context(), each(w.payments), nil)
	}
	if err == nil && w.unfetched != nil {
		err = l.AddUnfetched(t.Context(), each(w.unfetched))
	}
	if err == nil && w.refunded != nil {
		err = l.AddRefunded(t.Context(), each(w.refunded))
	}
	if err == nil {
		err = l.Join(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	total, err := l.Total(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []Difference
	for d, err := range l.Differences(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, d)
	}
	return total, found
}

// lines are differences as «kind order».
func lines(found []Difference) []string {
	var out []string
	for _, d := range found {
		out = append(out, fmt.Sprintf("%s %s", d.Kind, d.Key.Order))
	}
	slices.Sort(out)
	return out
}

// One of each difference among clean rows: exactly those are found.
func TestEachDifference(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(w *world)
		want []string
		good bool
	}{
		{"nothing", func(w *world) {}, nil, true},
		{"two successes under one key", func(w *world) {
			w.rows = append(w.rows, settled("1"))
			twice := success("1")
			twice.Reference = "pay_other"
			w.successes = append(w.successes, success("1"), twice)
			w.payments = append(w.payments, paid("1"))
		}, []string{"charged-twice 1"}, false},
		{"two references in the row", func(w *world) {
			row := settled("1")
			row.OtherReference = "pay_other"
			w.rows = append(w.rows, row)
			w.successes = append(w.successes, success("1"))
			w.payments = append(w.payments, paid("1"))
		}, []string{"charged-twice 1"}, false},
		{"two references, and a person has dealt with the second", func(w *world) {
			row, again := settled("1"), success("1")
			row.OtherReference, again.Reference = "pay_again", "pay_again"
			w.rows, w.successes, w.payments = append(w.rows, row), append(w.successes, success("1"), again), append(w.payments, paid("1"))
			w.refunded = append(w.refunded, row.Key)
		}, []string{"refunded 1"}, true},
		{"a third success of a row whose second was dealt with", func(w *world) {
			row, again, third := settled("1"), success("1"), success("1")
			row.OtherReference, again.Reference, third.Reference = "pay_again", "pay_again", "pay_third"
			w.rows, w.successes, w.payments = append(w.rows, row), append(w.successes, success("1"), again, third), append(w.payments, paid("1"))
			w.refunded = append(w.refunded, row.Key)
		}, []string{"charged-twice 1", "refunded 1"}, false},
		{"a success without a row", func(w *world) {
			w.successes = append(w.successes, success("1"))
		}, []string{"success-without-row 1"}, false},
		{"a success that the row does not know", func(w *world) {
			row := settled("1")
			row.State, row.Reference = zabor.Declined, ""
			w.rows = append(w.rows, row)
			w.successes = append(w.successes, success("1"))
		}, []string{"success-not-saved 1"}, false},
		{"another reference", func(w *world) {
			w.rows = append(w.rows, settled("1"))
			other := success("1")
			other.Reference = "pay_other"
			w.successes = append(w.successes, other)
			w.payments = append(w.payments, paid("1"))
		}, []string{"reference-differs 1"}, false},
		{"another amount", func(w *world) {
			w.rows = append(w.rows, settled("1"))
			other := success("1")
			other.Amount.Minor++
			w.successes = append(w.successes, other)
			w.payments = append(w.payments, paid("1"))
		}, []string{"amount-differs 1"}, false},
		{"another currency", func(w *world) {
			w.rows = append(w.rows, settled("1"))
			other := success("1")
			other.Amount.Currency = "USD"
			w.successes = append(w.successes, other)
			w.payments = append(w.payments, paid("1"))
		}, []string{"amount-differs 1"}, false},
		{"a row without a success", func(w *world) {
			w.rows = append(w.rows, settled("1"))
			w.payments = append(w.payments, paid("1"))
		}, []string{"row-without-success 1"}, false},
		{"a row later than the export", func(w *world) {
			row := settled("1")
			row.StateSince = at.Add(time.Minute)
			w.rows = append(w.rows, row)
			w.payments = append(w.payments, paid("1"))
		}, nil, true},
		{"held, in doubt, a call that never ended, released, declined, under way", func(w *world) {
			for order, state := range map[string]zabor.State{"1": zabor.Held, "2": zabor.Doubt, "3": zabor.Captured, "4": zabor.Released, "5": zabor.Declined, "6": zabor.Captured} {
				row := settled(order)
				row.State, row.Reference = state, ""
				if order == "6" {
					row.Open.SendUntil = row.ReadAt.Add(time.Second)
				}
				w.rows = append(w.rows, row)
				w.messages = append(w.messages, Message{Key: row.Key, Queue: "payments", ID: order})
			}
		}, []string{"held 1", "in-doubt 2", "in-doubt 3", "settled-but-queued 5", "waiting 4"}, false},
		{"a wiped queue: laravel/horizon#72", func(w *world) {
			row := settled("1")
			row.State, row.Reference = zabor.Captured, ""
			w.rows = append(w.rows, row)
			w.messages = []Message{}
		}, []string{"in-doubt 1", "lost 1"}, false},
		{"released, and the queue is gone", func(w *world) {
			row := settled("1")
			row.State, row.Reference = zabor.Released, ""
			w.rows = append(w.rows, row)
			w.messages = []Message{}
		}, []string{"lost 1", "waiting 1"}, false},
		{"settled, and still on the queue", func(w *world) {
			w.messages = append(w.messages, Message{Key: settled("clean0000001").Key, Queue: "payments", ID: "m"})
		}, []string{"settled-but-queued clean0000001"}, true},
		{"an answer that nobody took, twice", func(w *world) {
			k := settled("clean0000002").Key
			w.unfetched = append(w.unfetched, k, k)
		}, []string{"unfetched clean0000002"}, true},
		{"one reference for two orders", func(w *world) {
			one, two := settled("1"), settled("2")
			two.Reference = one.Reference
			w.rows = append(w.rows, one, two)
			w.payments = append(w.payments, paid("1"))
			p := paid("2")
			p.Reference = ""
			w.payments = append(w.payments, p)
			w.successes = append(w.successes, success("1"))
		}, []string{"reference-twice 1", "reference-twice 2", "row-without-success 2"}, false},
		{"one reference for two steps of an order", func(w *world) {
			one, two := settled("1"), settled("1")
			two.Step = "capture"
			w.rows = append(w.rows, one, two)
			w.payments = append(w.payments, paid("1"))
			w.successes = append(w.successes, success("1"))
		}, []string{"row-without-success 1"}, false}, // a success is of one row
		{"one reference at two providers", func(w *world) {
			one, two := settled("1"), settled("2")
			two.Reference, two.Provider = one.Reference, "adyen"
			w.rows = append(w.rows, one, two)
			w.payments = append(w.payments, paid("1"), Payment{Order: "2"})
			s := success("1")
			s.Provider = "stripe"
			w.successes = append(w.successes, s, Success{Provider: "adyen", Reference: one.Reference, Order: "2", At: at, Place: "list"})
		}, nil, true},
		{"money that went back", func(w *world) {
			for _, order := range []string{"in part", "gone", "by its charge", "not settled"} {
				w.rows, w.payments = append(w.rows, settled(order)), append(w.payments, paid(order))
				s := success(order)
				s.Back = "/status is refunded"
				switch order {
				case "gone":
					s.Gone = true
				case "by its charge": // the list names the payment by another id
					s.Alias, s.Reference, s.Gone = s.Reference, "ch_1", true
				case "not settled":
					s.Gone = true
					w.rows[len(w.rows)-1].State, w.payments = zabor.Declined, w.payments[:len(w.payments)-1]
				}
				w.successes = append(w.successes, s)
			}
			other := success("elsewhere")
			other.Reference, other.Back, other.Gone = "pay_unknown", "/status is refunded", true
			w.successes = append(w.successes, other)
		}, []string{"reversed by its charge", "reversed gone", "reversed in part"}, true},
		{"one reference for two payments", func(w *world) {
			one, two := settled("1"), settled("2")
			w.rows = append(w.rows, one, two)
			p := paid("2")
			p.Reference = one.Reference
			w.payments = append(w.payments, paid("1"), p)
			w.successes = append(w.successes, success("1"), success("2"))
		}, []string{"payment-differs 2", "reference-twice 1", "reference-twice 2"}, false},
		{"a row without a provider's name", func(w *world) { // of an import
			r, s := settled("1"), success("1")
			r.Provider, r.ProviderKey, r.Amount = "", "", zabor.Money{}
			s.Provider, s.Key = "stripe", ""
			w.rows, w.successes, w.payments = append(w.rows, r), append(w.successes, s), append(w.payments, paid("1"))
		}, nil, true},
		{"a row without a provider's name, of another payment", func(w *world) {
			r, s := settled("1"), success("1")
			r.Provider, r.ProviderKey = "", ""
			s.Provider, s.Key, s.Reference = "stripe", "", "pay_other"
			w.rows, w.successes, w.payments = append(w.rows, r), append(w.successes, s), append(w.payments, paid("1"))
		}, []string{"reference-differs 1"}, false},
		{"messages without a row", func(w *world) {
			w.messages = append(w.messages,
				Message{Key: zabor.Key{Scope: "shop", Order: "new", Step: "charge"}, Queue: "payments"},
				Message{Key: zabor.Key{Scope: "shop", Order: "failed", Step: "charge"}, Queue: "payments", Failed: true},
				Message{Key: zabor.Key{Scope: "shop", Order: "had", Step: "charge"}, Queue: "payments", Delivered: true})
		}, []string{"message-without-row failed", "message-without-row had"}, false},
		{"payments", func(w *world) {
			for _, order := range []string{"twice", "differs", "unpaid"} {
				w.rows = append(w.rows, settled(order))
				w.successes = append(w.successes, success(order))
			}
			differs, again := paid("differs"), paid("twice")
			differs.Reference, again.Reference = "pay_x", "pay_y"
			w.payments = append(w.payments, differs, paid("twice"), again, paid("norow"))
		}, []string{"payment-differs differs", "payment-differs twice", "payment-twice twice", "payment-without-row norow", "row-without-payment unpaid"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &world{}
			w.clean(300)
			tt.make(w)
			total, found := w.audit(t)
			if got := lines(found); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if tt.good && total.ProviderSuccesses != total.UniqueRows && total.DoubleCharged == 0 && !strings.Contains(tt.name, "later than") && !strings.Contains(tt.name, "went back") {
				t.Errorf("%d successes, %d rows", total.ProviderSuccesses, total.UniqueRows)
			}
			if total.Good() != tt.good {
				t.Errorf("good=%t, want %t (%+v)", total.Good(), tt.good, total)
			}
		})
	}
}

// One of each kind at once among many clean rows, with ZABOR_SOAK=1 a hundred
// thousand: exactly those are found.
func TestAmongMany(t *testing.T) {
	t.Parallel()
	w := &world{messages: []Message{}}
	n := 5000
	if os.Getenv("ZABOR_SOAK") != "" {
		n = 100_000
	}
	w.clean(n)
	// add is an order that is clean but for what change does to it.
	add := func(order string, change func(r *zabor.Row, s *Success, p *Payment)) {
		r, s, p := settled(order), success(order), paid(order)
		change(&r, &s, &p)
		if r.Order != "" {
			w.rows = append(w.rows, r)
		}
		if s.Reference != "" {
			w.successes = append(w.successes, s)
		}
		if p.Order != "" {
			w.payments = append(w.payments, p)
		}
	}
	queued := func(order string) Message { return Message{Key: settled(order).Key, Queue: "payments", ID: order} }
	open := func(state zabor.State) func(*zabor.Row, *Success, *Payment) {
		return func(r *zabor.Row, s *Success, p *Payment) {
			r.State, r.Reference, *s, *p = state, "", Success{}, Payment{}
		}
	}
	add("charged-twice", func(r *zabor.Row, _ *Success, _ *Payment) { r.OtherReference = "pay_again" })
	add("refunded", func(r *zabor.Row, _ *Success, _ *Payment) { r.OtherReference = "pay_back" })
	w.refunded = append(w.refunded, settled("refunded").Key)
	add("reversed", func(_ *zabor.Row, s *Success, _ *Payment) { s.Back = "/status is refunded" })
	add("success-without-row", func(r *zabor.Row, _ *Success, p *Payment) { *r, *p = zabor.Row{}, Payment{} })
	add("success-not-saved", func(r *zabor.Row, _ *Success, p *Payment) { r.State, r.Reference, *p = zabor.Declined, "", Payment{} })
	add("reference-differs", func(_ *zabor.Row, s *Success, _ *Payment) { s.Reference = "pay_other" })
	add("amount-differs", func(_ *zabor.Row, s *Success, _ *Payment) { s.Amount.Minor++ })
	add("row-without-success", func(_ *zabor.Row, s *Success, _ *Payment) { *s = Success{} })
	for order, state := range map[string]zabor.State{"held": zabor.Held, "in-doubt": zabor.Doubt, "waiting": zabor.Released, "lost": zabor.Doubt} {
		if add(order, open(state)); order != "lost" {
			w.messages = append(w.messages, queued(order))
		}
	}
	add("first", func(*zabor.Row, *Success, *Payment) {})
	again := success("first")
	again.Order = "reference-twice"
	w.successes = append(w.successes, again)
	add("payment-twice", func(*zabor.Row, *Success, *Payment) {})
	w.payments = append(w.payments, paid("payment-twice"))
	add("payment-differs", func(_ *zabor.Row, _ *Success, p *Payment) { p.Reference = "pay_x" })
	add("payment-without-row", func(r *zabor.Row, s *Success, _ *Payment) { *r, *s = zabor.Row{}, Success{} })
	add("row-without-payment", func(_ *zabor.Row, _ *Success, p *Payment) { *p = Payment{} })
	w.messages = append(w.messages, queued("clean0000001"), Message{Key: zabor.Key{Scope: "shop", Order: "message-without-row", Step: "charge"}, Queue: "payments", Failed: true})
	w.unfetched = append(w.unfetched, settled("clean0000002").Key)

	_, found := w.audit(t)
	want := []string{"in-doubt lost"} // what is lost is in doubt too
	kinds, _ := Kinds()
	for _, kind := range kinds {
		order := map[Kind]string{SettledButQueued: "clean0000001", Unfetched: "clean0000002"}[kind]
		want = append(want, string(kind)+" "+cmp.Or(order, string(kind)))
	}
	slices.Sort(want)
	if got := lines(found); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// Keys are bytes, and two scopes are two orders; a success says which it means.
func TestJoin(t *testing.T) {
	a, b := settled("A1"), settled("a1")
	c := settled("A1")
	c.Scope, c.Reference, c.ProviderKey = "other", "pay_c", "key_c"
	part := settled("A1")
	part.Step, part.Reference, part.ProviderKey, part.Amount.Minor = "refund:R-7", "pay_r", "key_r", 500
	w := &world{rows: []zabor.Row{a, b, c, part}}
	scope := "other"
	w.successes = []Success{
		{Reference: "pay_A1"}, {Reference: "pay_a1"},
		{Reference: "x1", Order: "A1", Scope: &scope},                                    // by order and scope
		{Reference: "x2", Order: "A1", Amount: zabor.Money{Minor: 500, Currency: "EUR"}}, // by its amount
		{Reference: "x3", Order: "A1"},                                                   // of three, nobody knows which
		{Reference: "ch_1", Alias: "pay_a1"},                                             // the charge of the intent
		{Reference: "pay_A1"},                                                            // the same again
		{Reference: "x4", Provider: "adyen", Order: "A1", Step: "refund:R-7"},            // another provider's
	}
	_, found := w.audit(t)
	want := []string{"reference-differs A1", "reference-differs A1", "success-without-row A1", "success-without-row A1"}
	if got := lines(found); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestTotals(t *testing.T) {
	w := &world{}
	w.clean(10)
	row := settled("1")
	w.rows = append(w.rows, row)
	for i := range 3 {
		s := success("1")
		s.Reference = fmt.Sprintf("pay_%d", i)
		w.successes = append(w.successes, s)
	}
	held := settled("2")
	held.State, held.Reference, held.Amount = zabor.Held, "", zabor.Money{Minor: 500, Currency: "JPY"}
	w.rows = append(w.rows, held)
	total, _ := w.audit(t)
	if total.ProviderSuccesses != 13 || total.UniqueRows != 11 || total.DoubleCharged != 2 || total.Lost != 0 {
		t.Errorf("successes=%d rows=%d twice=%d lost=%d, want 13, 11, 2 and 0", total.ProviderSuccesses, total.UniqueRows, total.DoubleCharged, total.Lost)
	}
	if got := fmt.Sprint(total.AtRisk, total.Double); got != "[{500 JPY}] [{1999 EUR}]" {
		t.Errorf("at risk and double: %s", got)
	}
}

// Without an export the 200s are the references that the rows have, as the
// dashboard counts them: a second one is one, and that of a no is none. An export
// without a success is no such audit.
func TestTotalsWithoutExport(t *testing.T) {
	rows := func(w *world) {
		for i, state := range []zabor.State{zabor.Settled, zabor.Settled, zabor.Pending, zabor.Declined, zabor.Held, zabor.Released} {
			row := settled(fmt.Sprint(i))
			row.State = state
			switch i {
			case 1:
				row.OtherReference = "pay_other"
			case 4, 5:
				row.Reference = ""
			}
			w.rows = append(w.rows, row)
		}
	}
	w := &world{}
	rows(w)
	total, _ := w.audit(t)
	if total.ProviderSuccesses != 4 || total.UniqueRows != 3 || total.DoubleCharged != 1 || len(total.Empty) > 0 {
		t.Errorf("without an export: %+v", total)
	}
	w = &world{successes: []Success{}}
	rows(w)
	total, _ = w.audit(t)
	if total.ProviderSuccesses != 0 || total.UniqueRows != 3 || len(total.Empty) != 1 {
		t.Errorf("with an empty export: %+v", total)
	}
}

// A shop without a fence: how many charges one would have stopped.
func TestShadow(t *testing.T) {
	w := &world{noFence: true}
	for _, order := range []string{"1", "2", "2", "3"} {
		s := success(order)
		s.Reference = fmt.Sprintf("pay_%d", len(w.successes))
		w.successes = append(w.successes, s)
	}
	total, found := w.audit(t)
	if got, want := lines(found), []string{"charged-twice 2"}; !slices.Equal(got, want) {
		t.Errorf("by the export: %q, want %q", got, want)
	}
	if total.ProviderSuccesses != 4 || total.UniqueRows != 3 || total.DoubleCharged != 1 || fmt.Sprint(total.Double) != "[{1999 EUR}]" {
		t.Errorf("by the export: %+v", total)
	}
	w = &world{noFence: true}
	for i, order := range []string{"1", "2", "2", "3"} {
		p := paid(order)
		p.Reference = fmt.Sprintf("pay_%d", i)
		w.payments = append(w.payments, p)
	}
	total, found = w.audit(t)
	if got, want := lines(found), []string{"payment-twice 2"}; !slices.Equal(got, want) {
		t.Errorf("by the payments: %q, want %q", got, want)
	}
	if total.ProviderSuccesses != 4 || total.UniqueRows != 3 || total.DoubleCharged != 1 || fmt.Sprint(total.Double) != "[{1999 EUR}]" {
		t.Errorf("by the payments: %+v", total)
	}
}

// An audit that is broken off goes on where it was, and finds the same.
func TestResume(t *testing.T) {
	w := &world{}
	w.clean(3 * batch)
	double := success("clean0000007")
	double.Reference = "pay_again"
	w.successes = append(w.successes, double)
	path := filepath.Join(t.TempDir(), "work.db")
	broken := func(n int, page func(zabor.Key) ([]zabor.Row, error)) func(zabor.Key) ([]zabor.Row, error) {
		return func(after zabor.Key) ([]zabor.Row, error) {
			if n--; n < 0 {
				return nil, os.ErrDeadlineExceeded
			}
			return page(after)
		}
	}
	read := 0
	page := pages(w.rows, batch/4)
	counted := func(after zabor.Key) ([]zabor.Row, error) {
		rows, err := page(after)
		read += len(rows)
		return rows, err
	}
	for try := range 3 {
		l, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.AddRows(t.Context(), "", broken(5, counted), nil); (err == nil) != (try == 2) {
			t.Fatalf("try %d: %v", try, err)
		}
		cut := func(yield func(Success, error) bool) {
			for i, s := range w.successes {
				if try == 0 && i == batch+17 {
					yield(Success{}, os.ErrDeadlineExceeded)
					return
				}
				if !yield(s, nil) {
					return
				}
			}
		}
		if err := l.AddSuccesses(t.Context(), "export", cut, nil); (err == nil) != (try > 0) {
			t.Fatalf("try %d: %v", try, err)
		}
		if try < 2 {
			l.Close()
			continue
		}
		if err := l.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		total, err := l.Total(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if total.Rows != 3*batch || total.Successes != 3*batch+1 || total.DoubleCharged != 1 {
			t.Errorf("%+v", total)
		}
		if err := l.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if read != len(w.rows) {
		t.Errorf("rows read: %d, want each once: %d", read, len(w.rows))
	}
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// A list that is read page by page goes on behind the last page that it has, and a
// page without a yes is not its end.
func TestPages(t *testing.T) {
	t.Parallel()
	pages := map[string]struct {
		found []Success
		next  string
	}{
		"":  {[]Success{success("1"), success("2")}, "b"},
		"b": {nil, "c"},
		"c": {[]Success{success("2"), success("3")}, ""}, // one is on both: it came meanwhile
	}
	path := filepath.Join(t.TempDir(), "work.db")
	asked := []string{}
	for try := range 2 {
		l, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		err = l.AddPages(t.Context(), "list of acme", func(place string) ([]Success, string, error) {
			if asked = append(asked, place); try == 0 && place == "c" {
				return nil, "", os.ErrDeadlineExceeded
			}
			return pages[place].found, pages[place].next, nil
		}, nil)
		if (err == nil) != (try == 1) {
			t.Fatalf("try %d: %v", try, err)
		}
		if try == 0 {
			l.Close()
			continue
		}
		if err := l.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		total, err := l.Total(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if total.Successes != 3 || total.DoubleCharged != 0 || !slices.Equal(asked, []string{"", "b", "c", "c"}) {
			t.Errorf("%+v, asked for %q", total, asked)
		}
		if err := l.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// Two installations have one table and one account: of the other's rows only is known
// which successes are theirs. Nothing is said of them, and nothing of them is counted.
func TestOneInstallation(t *testing.T) {
	t.Parallel()
	w := &world{scope: "shop"}
	of := func(scope, order, reference string, state zabor.State) zabor.Row {
		row := settled(order)
		row.Scope, row.Reference, row.State, row.ProviderKey = scope, reference, state, "key of "+scope+order
		return row
	}
	charge := func(order, reference string) Success {
		one := success(order)
		one.Reference, one.Key = reference, ""
		return one
	}
	w.rows = []zabor.Row{
		of("shop", "1", "pay_1", zabor.Settled), of("shop-2", "1", "pay_other_1", zabor.Settled), // an order 1 of each
		of("shop/7", "2", "pay_2", zabor.Settled),
		of("shop-2", "3", "pay_3", zabor.Settled), of("shop-2", "4", "", zabor.Held), of("shop-2", "5", "pay_5", zabor.Settled),
		of("shop", "6", "", zabor.Doubt),
	}
	w.successes = []Success{charge("1", "pay_other_1"), charge("1", "pay_1"), charge("2", "pay_2"), charge("3", "pay_3"), charge("3", "pay_3_again"), charge("9", "pay_9")}
	total, found := w.audit(t)
	if got, want := lines(found), []string{"in-doubt 6", "success-without-row 9"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if total.Rows != 3 || total.Successes != 3 || total.ProviderSuccesses != 3 || total.UniqueRows != 2 || total.DoubleCharged != 0 {
		t.Errorf("total %+v", total)
	}
	// The other one's own audit has what is wrong there.
	w.scope = "shop-2"
	total, found = w.audit(t)
	if got, want := lines(found), []string{"charged-twice 3", "held 4", "row-without-success 5", "success-without-row 9"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if total.Rows != 4 || total.ProviderSuccesses != 4 || total.UniqueRows != 3 || total.DoubleCharged != 1 {
		t.Errorf("total %+v", total)
	}
}

// Two installations number their orders alike. That an order of the same number is
// the other one's says nothing of whose a success is, unless both are known to have
// one account.
func TestAnotherAccount(t *testing.T) {
	t.Parallel()
	of := func(scope, order, provider string) zabor.Row {
		row := settled(order)
		row.Scope, row.Provider, row.Reference, row.ProviderKey = scope, provider, "pay of "+scope+order, "key of "+scope+order
		return row
	}
	charge := func(provider, order, reference string) Success {
		one := success(order)
		one.Provider, one.Reference, one.Key = provider, reference, ""
		return one
	}
	rows := []zabor.Row{
		of("shop", "1", "stripe"), of("shop/7", "2", "adyen"),
		of("shop-2", "1500", "stripe"), of("shop-2/7", "1501", "stripe"), of("shop-2", "1502", "adyen"), of("shop-3", "1503", "stripe"), of("shop-2", "9", ""),
	}
	twice := func(provider, order string) []Success {
		return []Success{charge(provider, order, order+" a"), charge(provider, order, order+" b")}
	}
	byKey := charge("stripe", "", "some reference")
	byKey.Key = "key of shop-21500"
	missing := func(order string) []string {
		return []string{"charged-twice " + order, "success-without-row " + order, "success-without-row " + order}
	}
	for _, c := range []struct {
		name   string
		proof  []Success
		order  string
		listed string
		want   []string
	}{
		{"no proof", nil, "1500", "stripe", missing("1500")},
		{"no proof, in a tenant", nil, "1501", "stripe", missing("1501")},
		{"no proof, of an export without a name", nil, "1500", "", missing("1500")},
		{"no proof, and a row without a provider", nil, "9", "stripe", missing("9")},
		{"one of the own orders", []Success{charge("stripe", "1", "pay of shop1")}, "1500", "stripe", missing("1500")},
		{"of the other provider", []Success{charge("adyen", "1502", "pay of shop-21502")}, "1500", "stripe", missing("1500")},
		{"of the other provider, without a name", []Success{charge("", "1502", "pay of shop-21502")}, "1500", "", missing("1500")},
		{"of a third installation", []Success{charge("stripe", "1503", "pay of shop-31503")}, "1500", "stripe", missing("1500")},
		{"by reference", []Success{charge("stripe", "1501", "pay of shop-2/71501")}, "1500", "stripe", nil},
		{"by reference, to a tenant", []Success{charge("stripe", "1500", "pay of shop-21500")}, "1501", "stripe", nil},
		{"by reference, without a name", []Success{charge("", "1501", "pay of shop-2/71501")}, "1500", "", nil},
		{"by reference, and a row without a provider", []Success{charge("stripe", "1500", "pay of shop-21500")}, "9", "stripe", nil},
		{"by key", []Success{byKey}, "1501", "stripe", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &world{scope: "shop", rows: rows, successes: append(c.proof, twice(c.listed, c.order)...)}
			total, found := w.audit(t)
			found = slices.DeleteFunc(found, func(d Difference) bool { return d.Kind == RowWithoutSuccess })
			if got := lines(found); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
			if want := int64(min(len(c.want), 1)); total.DoubleCharged != want {
				t.Errorf("%d charged too often, want %d", total.DoubleCharged, want)
			}
		})
	}
}

// What is in no list of a provider's is not missing there; a step of a name that
// only begins alike is.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	l, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var rows []zabor.Row
	for _, step := range []string{"refund", "refund:R-7", "refunds", "charge"} {
		row := settled("1")
		row.Step, row.Reference, row.ProviderKey = step, "re_"+step, "key_"+step
		rows = append(rows, row)
	}
	for _, err := range []error{
		l.Unlisted(t.Context(), "stripe", "refund"), l.Unlisted(t.Context(), "adyen", "charge"),
		l.AddRows(t.Context(), "", pages(rows, 10), nil), l.AddSuccesses(t.Context(), "export", each([]Success{success("9")}), nil), l.Join(t.Context()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	found := []string{}
	for d, err := range l.Differences(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind == RowWithoutSuccess {
			found = append(found, d.Key.Step)
		}
	}
	if slices.Sort(found); !slices.Equal(found, []string{"charge", "refunds"}) {
		t.Errorf("without a success: %q", found)
	}
}

// A shop at work: a row that came after the look at the queues began is not lost,
// and one that was settled since is not still queued.
func TestAuditOfAShopAtWork(t *testing.T) {
	t.Parallel()
	for _, queues := range []struct {
		first bool
		want  []string
	}{
		{true, []string{"in-doubt new"}},
		{false, []string{"in-doubt new", "lost new", "settled-but-queued done"}},
	} {
		l, err := Open("")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		done := settled("done")
		look := func() error {
			return l.AddMessages(t.Context(), each([]Message{{Key: done.Key, Queue: "payments", ID: "m"}}), nil)
		}
		read := func() error {
			now := time.Now()
			doubt := settled("new")
			doubt.State, doubt.Reference, doubt.CapturedAt, doubt.StateSince, doubt.ReadAt = zabor.Doubt, "", now, now, now
			done.CapturedAt, done.StateSince, done.ReadAt = now, now, now
			return l.AddRows(t.Context(), "", pages([]zabor.Row{done, doubt}, 10), nil)
		}
		steps := []func() error{look, read}
		if !queues.first {
			slices.Reverse(steps)
		}
		for _, step := range append(steps, func() error { return l.Join(t.Context()) }) {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		var found []Difference
		for d, err := range l.Differences(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, d)
		}
		if got := lines(found); !slices.Equal(got, queues.want) {
			t.Errorf("queues first %t: %q, want %q", queues.first, got, queues.want)
		}
	}
}

// Each kind has one severity, and is named once.
func TestKinds(t *testing.T) {
	kinds, severities := Kinds()
	if len(kinds) != 20 || len(severities) != len(kinds) || kinds[0] != ChargedTwice {
		t.Errorf("%q, %q", kinds, severities)
	}
}
