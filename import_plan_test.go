package zabor

import "testing"

// What an imported payment does to a row that is there.
func TestPaymentPlan(t *testing.T) {
	eur := func(minor int64) Money { return Money{minor, "EUR"} }
	held := func(c Cause) *Row {
		return &Row{State: Held, Cause: c, Claim: Claim{Epoch: 1}, Amount: eur(1999), Unproven: 1, Open: Open{HookData: []byte("h")}}
	}
	plain := Payment{Amount: eur(1999), Reference: "pay_1", Reason: "row 1"}
	bare, other, contradicted := plain, plain, plain
	bare.Reference, other.Amount, contradicted.Contradicted = "", eur(5), true
	for name, tt := range map[string]struct {
		row     *Row
		p       Payment
		state   State
		cause   Cause
		ref     string
		written bool
		changed bool
	}{
		"no row":                     {nil, plain, Settled, ByImport, "pay_1", true, true},
		"no row, no reference":       {nil, bare, Held, ByImport, "", true, true},
		"no row, contradicted":       {nil, contradicted, Held, ByConflict, "", true, true},
		"imported":                   {held(ByImport), plain, Settled, ByImport, "pay_1", true, true},
		"imported, no reference":     {held(ByImport), bare, Held, ByImport, "", false, false},
		"imported, another amount":   {held(ByImport), other, Held, ByConflict, "", false, true},
		"imported, contradicted":     {held(ByImport), contradicted, Held, ByConflict, "", false, true},
		"contradicted before":        {held(ByConflict), plain, Held, ByConflict, "", false, false},
		"held by a call":             {held(ByCall), plain, Held, ByCall, "", false, false},
		"held by a person":           {held(ByPerson), plain, Held, ByPerson, "", false, false},
		"settled":                    {&Row{State: Settled, Cause: ByCall, Reference: "pay_0"}, plain, Settled, ByCall, "pay_0", false, false},
		"in doubt":                   {&Row{State: Doubt, Cause: ByCall}, plain, Doubt, ByCall, "", false, false},
		"imported, unknown currency": {&Row{State: Held, Cause: ByImport}, plain, Settled, ByImport, "pay_1", true, true},
	} {
		next, written := tt.p.Plan(tt.row)
		changed := tt.row == nil || next.Claim != tt.row.Claim
		if next.State != tt.state || next.Cause != tt.cause || next.Reference != tt.ref || written != tt.written || changed != tt.changed {
			t.Errorf("%s: %s by %s %q, written %v, changed %v; want %+v", name, next.State, next.Cause, next.Reference, written, changed, tt)
		}
		if tt.state == Settled && tt.written && (next.Amount != eur(1999) || next.Open.HookData != nil) {
			t.Errorf("%s: amount %v, hook data %q", name, next.Amount, next.Open.HookData)
		}
		// Its call may have acted: a person's release of it needs a proof.
		if tt.row == nil && !next.MayHaveActed() {
			t.Errorf("%s: may not have acted", name)
		}
	}
}
