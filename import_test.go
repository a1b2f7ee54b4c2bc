package zabor_test

import (
	"errors"
	"strings"
	"testing"

	"zabor"
	"zabor/sqlstore"
)

// What is known of a payment settles its row, or holds it; a row whose import has found
// a contradiction is settled by no later one.
func TestImportPayment(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		eur := func(minor int64) zabor.Money { return zabor.Money{Minor: minor, Currency: "EUR"} }
		payment := func(order string, change func(*zabor.Payment)) zabor.Payment {
			p := zabor.Payment{Key: effect(order).Key, Amount: eur(1999), Reference: "pay_" + order, Reason: "row 1"}
			change(&p)
			return p
		}
		same := func(*zabor.Payment) {}
		contradicted := func(p *zabor.Payment) { p.Contradicted, p.Reason = true, "two payments: row 1" }
		bare := func(p *zabor.Payment) { p.Reference = "" }
		other := func(p *zabor.Payment) { p.Amount = eur(5) }
		alias := func(p *zabor.Payment) { p.Reference, p.Aliases = "ch_1", []string{p.Reference} }
		for _, tt := range []struct {
			order   string
			message bool // its message is held first
			steps   []func(*zabor.Payment)
			state   zabor.State
			basis   zabor.Cause
			written []bool
		}{
			{"plain", false, []func(*zabor.Payment){same, same, alias, contradicted}, zabor.Settled, zabor.ByImport, []bool{true, false, false, false}},
			{"two", false, []func(*zabor.Payment){contradicted, same, bare}, zabor.Held, zabor.ByConflict, []bool{true, false, false}},
			{"completed", false, []func(*zabor.Payment){bare, bare, same}, zabor.Settled, zabor.ByImport, []bool{true, false, true}},
			{"found later", false, []func(*zabor.Payment){bare, contradicted, same}, zabor.Held, zabor.ByConflict, []bool{true, false, false}},
			{"another amount", false, []func(*zabor.Payment){bare, other, same}, zabor.Held, zabor.ByConflict, []bool{true, false, false}},
			{"message", true, []func(*zabor.Payment){same}, zabor.Settled, zabor.ByImport, []bool{true}},
			{"message of two", true, []func(*zabor.Payment){contradicted, same}, zabor.Held, zabor.ByConflict, []bool{false, false}},
			{"message of another amount", true, []func(*zabor.Payment){other, same}, zabor.Held, zabor.ByConflict, []bool{false, false}},
		} {
			if tt.message {
				e := effect(tt.order)
				e.Amount = eur(1999)
				if _, _, err := w.fence.Import(t.Context(), e, "PHP had it"); err != nil {
					t.Fatal(err)
				}
			}
			for n, change := range tt.steps {
				p := payment(tt.order, change)
				var there *zabor.Row
				if row, err := s.Load(t.Context(), p.Key); err == nil {
					there = &row
				} else if !errors.Is(err, zabor.ErrNoRow) {
					t.Fatal(err)
				}
				foreseen, wouldWrite := p.Plan(there)
				row, written, err := w.fence.ImportPayment(t.Context(), p)
				if err != nil || written != tt.written[n] {
					t.Errorf("%s, import %d: written=%t, %v; want %t", tt.order, n, written, err, tt.written[n])
				}
				if wouldWrite != written || foreseen.State != row.State || foreseen.Cause != row.Cause || foreseen.Reason != row.Reason {
					t.Errorf("%s, import %d: foreseen %t %s by %s (%s), was %t %s by %s (%s)", tt.order, n, wouldWrite, foreseen.State, foreseen.Cause, foreseen.Reason, written, row.State, row.Cause, row.Reason)
				}
			}
			row := w.row(effect(tt.order).Key)
			if row.State != tt.state || row.Cause != tt.basis || row.ProviderKey == "" || row.Amount != eur(1999) || row.State == zabor.Held && row.Reference != "" {
				t.Errorf("%s: %+v, want %s by %s", tt.order, row, tt.state, tt.basis)
			}
			// Its message is answered by the row, and a person still may decide.
			if _, err := w.fence.Do(t.Context(), effect(tt.order), w.answers(done)); (err == nil) != (tt.state == zabor.Settled) {
				t.Errorf("%s: its message: %v", tt.order, err)
			}
			if tt.state == zabor.Held {
				d := zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Settle, Reference: "pay_of_" + tt.order, By: "ops", Reason: "looked"}
				if row, err := w.fence.Decide(t.Context(), d); err != nil || row.State != zabor.Settled || row.Reference != d.Reference {
					t.Errorf("%s decided: %+v, %v", tt.order, row, err)
				}
			}
		}
		if w.calls != 0 || len(w.alerts) > 0 {
			t.Errorf("%d calls, alerts %v", w.calls, w.alerts)
		}
		if _, _, err := w.fence.ImportPayment(t.Context(), zabor.Payment{Reference: "pay"}); err == nil || !strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("without a key: %v", err)
		}
	})
}
