package zabor

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawRow is any row that may be in a table.
func drawRow(t *rapid.T) Row {
	causes := []Cause{ByCall, ByForm, ByLookup, ByAbsence, ByExpiry, ByMissingRow, ByPerson, ByImport, ByConflict}
	row := there(rapid.SampledFrom(append(States(), "later-version")).Draw(t, "state"), rapid.IntRange(0, 3).Draw(t, "unproven"))
	row.Cause = rapid.SampledFrom(causes).Draw(t, "cause")
	row.Generation = rapid.IntRange(1, 3).Draw(t, "generation")
	row.ProviderKey = providerKey(testFence().Secret, row.Key, row.Generation, requestMain)
	row.Tries = rapid.IntRange(0, 5).Draw(t, "tries")
	row.Fingerprint.Message = rapid.SampledFrom([]string{"m1", "m2"}).Draw(t, "message")
	row.Fingerprint.Request = rapid.SampledFrom([]string{"f1", "f2"}).Draw(t, "request")
	row.Parked = rapid.SampledFrom([]string{"", "message 1", "message 3"}).Draw(t, "parked")
	row.Prepared = rapid.SampledFrom([]string{"", "pi_1"}).Draw(t, "prepared")
	row.Open.PrepareKey = rapid.SampledFrom([]string{"", "k"}).Draw(t, "prepare key")
	row.Open.Replays = rapid.IntRange(0, min(1, row.Unproven/2)).Draw(t, "replays") // a replay follows a send that may have acted
	row.Open.SendUntil = testNow.Add(rapid.SampledFrom([]time.Duration{-time.Hour, time.Hour}).Draw(t, "lease"))
	if row.State == Settled || row.State == Pending || rapid.Bool().Draw(t, "referred") {
		row.Reference = "pay_0"
	}
	return row
}

func drawOutcome(t *rapid.T) Outcome {
	o := Outcome{
		Verdict:       Verdict(rapid.IntRange(0, 9).Draw(t, "verdict")),
		StoredRefusal: rapid.Bool().Draw(t, "stored"), Unauthorized: rapid.Bool().Draw(t, "unauthorized"),
	}
	if o.Verdict == Done || o.Verdict == Begun || o.Verdict == Prepared {
		o.Reference = rapid.SampledFrom([]string{"pay_0", "pay_1"}).Draw(t, "reference")
	}
	return o
}

// The end of a send takes away at most its own mark, or all if the provider stores its
// refusal; it adds none, and changes neither generation, key nor request.
func TestASendTakesAwayItsOwnMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row, o := drawRow(t), drawOutcome(t)
		next := after(row, o)
		nothing := o.Verdict == Unsent || o.Verdict == TurnedAway || o.Verdict == Refused || o.Verdict == Malformed ||
			o.Reference == "" && row.TwoStep() && row.Prepared == "" && o.Verdict != Misdirected || o.Verdict == Prepared
		speaksForAll := o.StoredRefusal && (o.Verdict == Refused || o.Verdict == Malformed)
		switch {
		case next.Unproven > row.Unproven, next.Unproven < row.Unproven-1 && !speaksForAll, next.Unproven < row.Unproven && !nothing:
			t.Fatalf("%v: unproven %d, was %d", o.Verdict, next.Unproven, row.Unproven)
		case next.Generation != row.Generation || next.ProviderKey != row.ProviderKey || next.Fingerprint != row.Fingerprint:
			t.Fatalf("%v: generation %d under %s for %v", o.Verdict, next.Generation, next.ProviderKey, next.Fingerprint)
		case next.State == Released && (next.Tries < row.Tries-1 || next.Tries > row.Tries):
			t.Fatalf("%v: tries %d, was %d", o.Verdict, next.Tries, row.Tries)
		case row.Reference != "" && next.Reference != row.Reference:
			t.Fatalf("%v: the reference became %q", o.Verdict, next.Reference)
		case row.Open.Replays > 0 && next.State == Released:
			t.Fatalf("%v: released beside a send that may have acted", o.Verdict)
		case next.State == Settled && o.Verdict != Done && row.State != Settled:
			t.Fatalf("%v: settled", o.Verdict)
		}
	})
}

// A row that may have acted is called for no other request and under no other key, and a
// delivery takes no mark away.
func TestADeliveryKeepsRequestAndKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row, e := drawRow(t), testEffect()
		next, _, err := testFence().meet(row, e)
		if err != nil || next.Claim == row.Claim {
			if next.Claim != row.Claim {
				t.Fatalf("%v, and %s follows %s", err, next.State, row.State)
			}
			return
		}
		switch {
		case next.Generation != row.Generation || next.ProviderKey != row.ProviderKey:
			t.Fatalf("generation %d under %s, was %d under %s", next.Generation, next.ProviderKey, row.Generation, row.ProviderKey)
		case next.State == Captured && row.State != Released:
			t.Fatalf("captured from %s", row.State)
		case next.State == Captured && row.MayHaveActed() && (row.Fingerprint.Message != e.Fingerprint.Message || row.Fingerprint.Request != e.Fingerprint.Request):
			t.Fatalf("%v is called, and %v may have acted", e.Fingerprint, row.Fingerprint)
		case next.State == Captured && (next.Unproven != row.Unproven+1 || next.Tries != min(row.Tries, e.MaxAttempts-1)+1 || next.Open.Send != next.Claim.ID):
			t.Fatalf("unproven %d, was %d; tries %d, was %d", next.Unproven, row.Unproven, next.Tries, row.Tries)
		case next.State == Captured && row.Tries >= e.MaxAttempts && row.Cause != ByPerson && row.Parked != "message 1":
			t.Fatalf("called once more after %d tries", row.Tries)
		case next.State != Captured && next.Unproven != row.Unproven:
			t.Fatalf("%s: unproven %d, was %d", next.State, next.Unproven, row.Unproven)
		case row.Parked == "message 3" && next.Parked != row.Parked:
			t.Fatal("another message's mark is gone")
		}
	})
}

// The generation rises only if a person releases the provider's own no, and no send may
// have acted. Absence, a decline and a hold take no mark away.
func TestTheGenerationRises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := drawRow(t)
		d := Decision{Action: rapid.SampledFrom([]Action{Settle, Decline, Release, Hold}).Draw(t, "action"), CheckedProvider: rapid.Bool().Draw(t, "checked")}
		if d.Action == Settle {
			d.Reference = "pay_1"
		}
		next, err := d.next(row)
		if err != nil {
			return
		}
		rises := next.Generation > row.Generation
		if may := d.Action == Release && row.State == Declined && row.Cause != ByPerson && row.Unproven == 0; rises != may || next.Generation > row.Generation+1 {
			t.Fatalf("%s of %s by %s, unproven %d: generation %d, was %d", d.Action, row.State, row.Cause, row.Unproven, next.Generation, row.Generation)
		}
		if next.Unproven != row.Unproven {
			t.Fatalf("%s of %s: unproven %d, was %d", d.Action, row.State, next.Unproven, row.Unproven)
		}
		if row.MayHaveActed() && !d.CheckedProvider && (next.State == Released || next.State == Declined) {
			t.Fatalf("%s of %s without a proof", d.Action, row.State)
		}
	})
}
