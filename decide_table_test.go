package zabor

import (
	"errors"
	"testing"
	"time"
)

// What a person may do to a row: each action, in each state, whether a send may have
// acted, with the provider's own no or a person's.
func TestDecisionNext(t *testing.T) {
	all := append(States(), "later-version")
	for _, action := range []Action{Settle, Decline, Release, Hold} {
		for _, state := range all {
			for _, unproven := range []int{0, 1} {
				for _, cause := range []Cause{ByCall, ByForm, ByPerson, ByLookup, ByExpiry, ByConflict} {
					for _, checked := range []bool{false, true} {
						if cause == ByForm && state != Declined {
							continue
						}
						row := there(state, unproven, func(r *Row) { r.Cause, r.Prepared, r.Forwarded = cause, "pi_1", true })
						if state == Settled || state == Pending {
							row.Reference = "pay_1"
						}
						d := Decision{Key: row.Key, Seen: row.Claim, Action: action, By: "ops", Reason: "looked", CheckedProvider: checked}
						if action == Settle {
							d.Reference = "pay_2"
						}
						refuse := false
						switch action {
						case Decline:
							refuse = state == Settled || state == Declined && cause != ByForm || unproven > 0 && !checked
						case Release:
							refuse = state == Settled || state == Pending || state == Released && cause == ByPerson || unproven > 0 && !checked
						case Hold:
							refuse = state == Settled || state == Declined || state == Held
						}
						next, err := d.next(row)
						if refuse {
							if !errors.Is(err, ErrRefused) || next.Claim != row.Claim {
								t.Errorf("%s of %s by %s, unproven %d, checked %v: %s, %v; want it refused", action, state, cause, unproven, checked, next.State, err)
							}
							continue
						}
						want := map[Action]State{Settle: Settled, Decline: Declined, Release: Released, Hold: Held}[action]
						if err != nil || next.State != want || next.Cause != ByPerson || next.Reason != "looked" && row.Reference == "" || next.Claim.Epoch != row.Claim.Epoch+1 {
							t.Errorf("%s of %s by %s, unproven %d, checked %v: %s by %s (%s), %v; want %s by a person", action, state, cause, unproven, checked, next.State, next.Cause, next.Reason, err, want)
							continue
						}
						if !d.Made(next) && !(action == Settle && row.Reference != "") {
							t.Errorf("%s of %s is not made in %+v", action, state, next)
						}
						// A person's word takes no mark away (I3, fault 7).
						if next.Unproven != unproven {
							t.Errorf("%s of %s: unproven %d, was %d", action, state, next.Unproven, unproven)
						}
						anew := action == Release && state == Declined && cause != ByPerson && unproven == 0
						if (next.Generation == 2) != anew || (next.Fingerprint == Fingerprint{}) != anew || (next.Prepared == "") != anew {
							t.Errorf("%s of %s by %s, unproven %d: generation %d, request %q, id %q; anew %v", action, state, cause, unproven, next.Generation, next.Fingerprint.Request, next.Prepared, anew)
						}
						if moved := action == Release && state == Declined; next.Forwarded == moved {
							t.Errorf("%s of %s: forwarded %v", action, state, next.Forwarded)
						}
					}
				}
			}
		}
	}
	row := there(Held, 0)
	if _, err := (Decision{Action: "burn"}).next(row); !errors.Is(err, ErrRefused) {
		t.Errorf("an unknown action: %v", err)
	}
}

// Nothing is decided while a call is under way, and a proof has its time.
func TestDecisionProofNeedsItsTime(t *testing.T) {
	for _, action := range []Action{Settle, Decline, Release, Hold} {
		running := there(Captured, 1, func(r *Row) { r.Open.SendUntil = testNow.Add(time.Second) })
		d := Decision{Action: action, CheckedProvider: true, Reference: map[Action]string{Settle: "pay_1"}[action]}
		if _, err := d.next(running); !errors.Is(err, ErrRefused) {
			t.Errorf("%s while a call is under way: %v", action, err)
		}
		// The lease is over, and the look-up's lag is not.
		early := there(Doubt, 1, func(r *Row) { r.Open.SendUntil, r.Open.AbsentAfter = testNow.Add(-time.Minute), time.Hour })
		_, err := d.next(early)
		if want := action == Decline || action == Release; errors.Is(err, ErrRefused) != want {
			t.Errorf("%s too early: %v, want refused %v", action, err, want)
		}
		early.State, early.Unproven = Doubt, 0 // no send may have acted: there is nothing to wait for
		if _, err := d.next(early); err != nil {
			t.Errorf("%s of what may not have acted: %v", action, err)
		}
	}
}

// What the provider has given a reference for is settled or declined, and not called
// again: a release keeps it from a second charge.
func TestReleaseOfARowWithAReference(t *testing.T) {
	for _, state := range []State{Pending, Held, Doubt, "later-version"} {
		row := there(state, 1, func(r *Row) { r.Reference = "pay_1" })
		if _, err := (Decision{Action: Release, CheckedProvider: true}).next(row); !errors.Is(err, ErrRefused) {
			t.Errorf("%s with a reference: %v, want refused", state, err)
		}
	}
	row := there(Declined, 0, func(r *Row) { r.Reference = "pay_1" }) // it was pending, and then refused
	next, err := Decision{Action: Release}.next(row)
	if err != nil || next.Reference != "" || next.Generation != 2 {
		t.Errorf("declined with a reference: %v, %q, generation %d; want none, 2", err, next.Reference, next.Generation)
	}
}

func TestMade(t *testing.T) {
	for _, tt := range []struct {
		d    Decision
		row  Row
		want bool
	}{
		{Decision{Action: Settle, Reference: "a"}, Row{State: Settled, Reference: "a"}, true},
		{Decision{Action: Settle, Reference: "a"}, Row{State: Settled, Reference: "b"}, false},
		{Decision{Action: Settle, Reference: "a"}, Row{State: Held, Reference: "a"}, false},
		{Decision{Action: Decline}, Row{State: Declined, Cause: ByCall}, true},
		{Decision{Action: Decline}, Row{State: Declined, Cause: ByForm}, false},
		{Decision{Action: Release}, Row{State: Released, Cause: ByPerson}, true},
		{Decision{Action: Release}, Row{State: Released, Cause: ByAbsence}, false},
		{Decision{Action: Hold}, Row{State: Held}, true},
		{Decision{Action: Hold}, Row{State: Doubt}, false},
		{Decision{}, Row{State: Held}, false},
	} {
		if got := tt.d.Made(tt.row); got != tt.want {
			t.Errorf("%s of %s by %s: %v, want %v", tt.d.Action, tt.row.State, tt.row.Cause, got, tt.want)
		}
	}
}
