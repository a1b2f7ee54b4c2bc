package zabor

import (
	"testing"
)

// What an answer leads to, as docs/protocol.md has it: the first call of a row,
// and one beside which another send is open.
func TestAfter(t *testing.T) {
	tests := []struct {
		outcome     Outcome
		first       State
		basis       Basis
		free        int
		whileOthers State
	}{
		{Outcome{Verdict: Done, Reference: "pay_1"}, Settled, ByCall, 0, Settled},
		{Outcome{Verdict: Begun, Reference: "pay_1"}, Pending, ByCall, 0, Pending},
		{Outcome{Verdict: Refused}, Declined, ByCall, 0, Doubt},
		{Outcome{Verdict: Refused, StoredRefusal: true}, Declined, ByCall, 0, Declined},
		{Outcome{Verdict: Unsent}, Released, ByUnsent, 1, Doubt},
		{Outcome{Verdict: TurnedAway}, Released, ByTurnedAway, 1, Doubt},
		{Outcome{Verdict: Misdirected}, Held, ByCall, 0, Held},
		{Outcome{Verdict: Malformed}, Declined, ByForm, 0, Doubt},
		{Outcome{Verdict: Malformed, StoredRefusal: true}, Declined, ByForm, 0, Declined},
		{Outcome{Verdict: Unproven}, Doubt, ByCall, 0, Doubt},
		{Outcome{}, Doubt, ByCall, 0, Doubt},
		{Outcome{Verdict: 99}, Doubt, ByCall, 0, Doubt},
	}
	for _, tt := range tests {
		row := Row{State: Captured, Claim: Claim{Epoch: 3, ID: [16]byte{1}}, Captures: 1, Request: []byte("r")}
		got := after(row, tt.outcome, false)
		if got.State != tt.first || got.Basis != tt.basis || got.Free != tt.free {
			t.Errorf("%v: state=%s basis=%s free=%d, want %s %s %d", tt.outcome.Verdict, got.State, got.Basis, got.Free, tt.first, tt.basis, tt.free)
		}
		if got.Claim.Epoch != 4 || got.Claim.ID == row.Claim.ID {
			t.Errorf("%v: claim %v does not follow %v", tt.outcome.Verdict, got.Claim, row.Claim)
		}
		if kept, closed := got.Request != nil, got.State.Closed(); kept == closed {
			t.Errorf("%v: state=%s, request kept=%v", tt.outcome.Verdict, got.State, kept)
		}
		other := after(row, tt.outcome, true)
		if other.State != tt.whileOthers {
			t.Errorf("%v beside another send: state=%s, want %s", tt.outcome.Verdict, other.State, tt.whileOthers)
		}
		if other.State == Doubt && other.Free != 0 {
			t.Errorf("%v beside another send: free=%d, want 0", tt.outcome.Verdict, other.Free)
		}
	}
}

// The first request of two moves nothing: whatever came of it, the row is free,
// unless another send is open, or the second request was sent.
func TestAfterTheFirstOfTwo(t *testing.T) {
	for _, tt := range []struct {
		name    string
		row     Row
		earlier bool
		state   State
		basis   Basis
	}{
		{"no id", Row{PrepareKey: "k"}, false, Released, ByPrepare},
		{"an id", Row{PrepareKey: "k", Prepared: "pi_1"}, false, Doubt, ByCall},
		{"beside another send", Row{PrepareKey: "k"}, true, Doubt, ByCall},
		{"one request", Row{}, false, Doubt, ByCall},
	} {
		tt.row.State = Captured
		if got := after(tt.row, Outcome{}, tt.earlier); got.State != tt.state || got.Basis != tt.basis {
			t.Errorf("%s: %s by %s, want %s by %s", tt.name, got.State, got.Basis, tt.state, tt.basis)
		}
	}
}

// A reference is saved in every state, also one that this version does not
// know, and the first one stays.
func TestAdopt(t *testing.T) {
	for _, from := range append(states[:], "later-version") {
		for verdict, want := range map[Verdict]State{Done: Settled, Begun: Pending} {
			if from == Settled {
				want = Settled
			}
			got := adopt(Row{State: from}, Outcome{Verdict: verdict, Reference: "pay_1"})
			if got.State != want || got.Reference != "pay_1" || got.OtherReference != "" {
				t.Errorf("%s, %v: %s %q %q, want %s", from, verdict, got.State, got.Reference, got.OtherReference, want)
			}
			second := adopt(Row{State: from, Reference: "pay_0"}, Outcome{Verdict: verdict, Reference: "pay_1"})
			if second.Reference != "pay_0" || second.OtherReference != "pay_1" {
				t.Errorf("%s, %v, second reference: %q %q, want pay_0 and pay_1", from, verdict, second.Reference, second.OtherReference)
			}
			if second.State == Released {
				t.Errorf("%s, %v: released with two references", from, verdict)
			}
		}
	}
}

func TestAdoptedChangesNothing(t *testing.T) {
	tests := []struct {
		row  Row
		o    Outcome
		want bool
	}{
		{Row{State: Settled, Reference: "a"}, Outcome{Verdict: Done, Reference: "a"}, true},
		{Row{State: Settled, Reference: "a"}, Outcome{Verdict: Begun, Reference: "a"}, true},
		{Row{State: Settled, Reference: "a", OtherReference: "b"}, Outcome{Verdict: Done, Reference: "b"}, true},
		{Row{State: Settled, Reference: "a"}, Outcome{Verdict: Done, Reference: "b"}, false},
		{Row{State: Pending, Reference: "a"}, Outcome{Verdict: Begun, Reference: "a"}, true},
		{Row{State: Pending, Reference: "a"}, Outcome{Verdict: Done, Reference: "a"}, false},
		{Row{State: Held, Reference: "a"}, Outcome{Verdict: Done, Reference: "a"}, false},
	}
	for _, tt := range tests {
		if got := adopted(tt.row, tt.o); got != tt.want {
			t.Errorf("%s %q+%q, %v %q: adopted=%v, want %v", tt.row.State, tt.row.Reference, tt.row.OtherReference, tt.o.Verdict, tt.o.Reference, got, tt.want)
		}
	}
}

func FuzzProviderKey(f *testing.F) {
	f.Add("", "1001", "charge", "", "1001", "charge", 1)
	f.Add("a", "bc", "d", "ab", "c", "d", 2)
	secret := make([]byte, MinSecret)
	f.Fuzz(func(t *testing.T, s1, o1, p1, s2, o2, p2 string, generation int) {
		k, l := Key{s1, o1, p1}, Key{s2, o2, p2}
		a := providerKey(secret, k, generation, requestMain)
		if len(a) != 26 {
			t.Fatalf("key %q has %d characters, want 26", a, len(a))
		}
		if b := providerKey(secret, l, generation, requestMain); (a == b) != (k == l) {
			t.Errorf("%q and %q: keys %s and %s", k, l, a, b)
		}
		if a == providerKey(secret, k, generation+1, requestMain) || a == providerKey(secret, k, generation, requestPrepare) {
			t.Errorf("%q: the same provider key for another generation or request", k)
		}
	})
}

// The derived key must never change: a new version with another key would
// charge again what is on its way under the old one.
func TestProviderKeyVector(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	key := providerKey(secret, Key{Scope: "shop", Order: "1001", Step: "charge"}, 1, requestMain)
	if want := "spbrlichhiiyqpemh6o3rz23dr"; key != want {
		t.Errorf("provider key %s, want %s", key, want)
	}
	uuid, err := UUIDFromProviderKey(key)
	if want := "93c315a0-473a-8118-a0f2-30fe76e39d6c"; err != nil || uuid != want {
		t.Errorf("as a UUID: %s, %v, want %s", uuid, err, want)
	}
}
