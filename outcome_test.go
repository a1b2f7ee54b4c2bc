package zabor

import (
	"fmt"
	"testing"
	"time"
)

// sent is a captured row with a send under way, as a first capture, a recapture or a
// replay has left it.
func sent(unproven, replays int) Row {
	row := Row{
		Key: Key{Scope: "shop", Order: "1001", Step: "charge"}, State: Captured, Cause: ByCall,
		Claim: Claim{Epoch: 3, ID: [16]byte{1}}, Generation: 1, ProviderKey: "key", Tries: 2, Unproven: unproven,
		Fingerprint: Fingerprint{Message: "m1", Request: "f1"},
		Open:        Open{Request: []byte("r"), Send: [16]byte{1}, Replays: replays, Lease: time.Minute},
	}
	if replays > 0 {
		row.State = Doubt
	}
	return row
}

// What an answer leads to: docs/protocol.md, «What an answer leads to».
func TestAfter(t *testing.T) {
	type want struct {
		state    State
		cause    Cause
		tries    int
		unproven int
	}
	tests := []struct {
		outcome Outcome
		first   want // the only send of its key
		again   want // a capture after a send that may have acted
		replay  want // a replay of such a send
	}{
		{Outcome{Verdict: Done, Reference: "pay_1"}, want{Settled, ByCall, 2, 1}, want{Settled, ByCall, 2, 2}, want{Settled, ByCall, 2, 2}},
		{Outcome{Verdict: Begun, Reference: "pay_1"}, want{Pending, ByCall, 2, 1}, want{Pending, ByCall, 2, 2}, want{Pending, ByCall, 2, 2}},
		{Outcome{Verdict: Refused}, want{Declined, ByCall, 2, 0}, want{Declined, ByCall, 2, 1}, want{Doubt, ByCall, 2, 2}},
		{Outcome{Verdict: Refused, StoredRefusal: true}, want{Declined, ByCall, 2, 0}, want{Declined, ByCall, 2, 0}, want{Declined, ByCall, 2, 0}},
		{Outcome{Verdict: Malformed}, want{Declined, ByForm, 2, 0}, want{Declined, ByForm, 2, 1}, want{Doubt, ByCall, 2, 2}},
		{Outcome{Verdict: Malformed, StoredRefusal: true}, want{Declined, ByForm, 2, 0}, want{Declined, ByForm, 2, 0}, want{Declined, ByForm, 2, 0}},
		{Outcome{Verdict: Unsent}, want{Released, ByCall, 1, 0}, want{Released, ByCall, 1, 1}, want{Doubt, ByCall, 2, 1}},
		{Outcome{Verdict: TurnedAway}, want{Released, ByCall, 1, 0}, want{Released, ByCall, 1, 1}, want{Doubt, ByCall, 2, 1}},
		{Outcome{Verdict: TurnedAway, Unauthorized: true}, want{Released, ByCall, 2, 0}, want{Released, ByCall, 2, 1}, want{Doubt, ByCall, 2, 1}},
		{Outcome{Verdict: Misdirected}, want{Held, ByCall, 2, 1}, want{Held, ByCall, 2, 2}, want{Held, ByCall, 2, 2}},
		{Outcome{Verdict: Unproven}, want{Doubt, ByCall, 2, 1}, want{Doubt, ByCall, 2, 2}, want{Doubt, ByCall, 2, 2}},
		{Outcome{}, want{Doubt, ByCall, 2, 1}, want{Doubt, ByCall, 2, 2}, want{Doubt, ByCall, 2, 2}},
		{Outcome{Verdict: 99}, want{Doubt, ByCall, 2, 1}, want{Doubt, ByCall, 2, 2}, want{Doubt, ByCall, 2, 2}},
	}
	for _, tt := range tests {
		for name, c := range map[string]struct {
			row  Row
			want want
		}{"first": {sent(1, 0), tt.first}, "again": {sent(2, 0), tt.again}, "replay": {sent(2, 1), tt.replay}} {
			tt.outcome.Reason = "why"
			next := after(c.row, tt.outcome)
			if got := (want{next.State, next.Cause, next.Tries, next.Unproven}); got != c.want {
				t.Errorf("%v (stored %v, unauthorized %v), %s: %+v, want %+v", tt.outcome.Verdict, tt.outcome.StoredRefusal, tt.outcome.Unauthorized, name, got, c.want)
			}
			if next.Claim.Epoch != 4 || next.Claim.ID == c.row.Claim.ID || next.Generation != 1 || next.ProviderKey != "key" {
				t.Errorf("%v, %s: %+v generation %d, want the claim after %+v, and generation and key as they were", tt.outcome.Verdict, name, next.Claim, next.Generation, c.row.Claim)
			}
			if next.Reference != tt.outcome.Reference || next.Reason != "why" {
				t.Errorf("%v, %s: reference %q, reason %q", tt.outcome.Verdict, name, next.Reference, next.Reason)
			}
		}
	}
}

// The first request of two moves nothing: whatever came of it, the row is released,
// unless a send before it may have acted and this is its replay.
func TestAfterTheFirstOfTwo(t *testing.T) {
	two := func(prepared string, unproven, replays int) Row {
		row := sent(unproven, replays)
		row.Open.PrepareKey, row.Prepared = "k", prepared
		return row
	}
	for name, tt := range map[string]struct {
		row             Row
		state           State
		tries, unproven int
	}{
		"no id":                        {two("", 1, 0), Released, 2, 0},
		"an id":                        {two("pi_1", 1, 0), Doubt, 2, 1},
		"no id after an earlier send":  {two("", 2, 0), Released, 2, 1},
		"an id after an earlier send":  {two("pi_1", 2, 0), Doubt, 2, 2},
		"no id, replayed":              {two("", 2, 1), Doubt, 2, 1},
		"one request":                  {sent(1, 0), Doubt, 2, 1},
		"one request, with an id once": {func() Row { r := sent(1, 0); r.Prepared = "pi_1"; return r }(), Doubt, 2, 1},
	} {
		if got := after(tt.row, Outcome{}); got.State != tt.state || got.Tries != tt.tries || got.Unproven != tt.unproven {
			t.Errorf("%s: %s, tries %d, unproven %d; want %s, %d, %d", name, got.State, got.Tries, got.Unproven, tt.state, tt.tries, tt.unproven)
		}
	}
}

// A send's proof takes away that send's mark and no other (fault 16).
func TestNothingDone(t *testing.T) {
	for _, tt := range []struct {
		unproven, replays int
		free              bool
		state             State
		tries, left       int
	}{
		{1, 0, true, Released, 1, 0},
		{1, 0, false, Released, 2, 0},
		{2, 0, true, Released, 1, 1},
		{2, 1, true, Doubt, 2, 1},
		{0, 0, true, Released, 1, 0},
	} {
		got := nothingDone(sent(tt.unproven, tt.replays), "why", tt.free)
		if got.State != tt.state || got.Tries != tt.tries || got.Unproven != tt.left || got.Cause != ByCall {
			t.Errorf("%+v: %s by %s, tries %d, unproven %d", tt, got.State, got.Cause, got.Tries, got.Unproven)
		}
	}
	none := sent(1, 0)
	none.Tries = 0
	if got := nothingDone(none, "", true); got.Tries != 0 {
		t.Errorf("tries %d, want 0", got.Tries)
	}
}

// A reference is saved in every state, also in an unknown one, and the first one stays.
func TestAdopt(t *testing.T) {
	for _, from := range append(States(), "later-version") {
		for verdict, want := range map[Verdict]State{Done: Settled, Begun: Pending} {
			if from == Settled {
				want = Settled
			}
			answer := &Answer{Status: 200}
			got := adopt(Row{State: from, Unproven: 1}, Outcome{Verdict: verdict, Reference: "pay_1", Answer: answer}, ByLookup)
			if got.State != want || got.Reference != "pay_1" || got.OtherReference != "" || got.Cause != ByLookup || got.Answer != answer || got.Unproven != 1 {
				t.Errorf("%s, %v: %+v, want %s with pay_1", from, verdict, got, want)
			}
			second := adopt(Row{State: from, Reference: "pay_0"}, Outcome{Verdict: verdict, Reference: "pay_1"}, ByCall)
			if second.Reference != "pay_0" || second.OtherReference != "pay_1" || second.State != want {
				t.Errorf("%s, %v, second reference: %s %q %q, want %s pay_0 pay_1", from, verdict, second.State, second.Reference, second.OtherReference, want)
			}
			third := adopt(Row{State: from, Reference: "pay_0", OtherReference: "pay_9"}, Outcome{Verdict: verdict, Reference: "pay_1"}, ByCall)
			if third.Reference != "pay_0" || third.OtherReference != "pay_9" {
				t.Errorf("%s, %v, third reference: %q %q, want the first two", from, verdict, third.Reference, third.OtherReference)
			}
			old := &Answer{Status: 202}
			same := adopt(Row{State: from, Reference: "pay_1", Answer: old}, Outcome{Verdict: verdict, Reference: "pay_1"}, ByCall)
			if same.Answer != old || same.OtherReference != "" {
				t.Errorf("%s, %v, the same reference without an answer: %+v, other %q", from, verdict, same.Answer, same.OtherReference)
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
		{Row{State: Held, Reference: "a", Cause: ByExpiry}, Outcome{Verdict: Done, Reference: "a"}, false},
		{Row{State: Declined, Reference: "a"}, Outcome{Verdict: Done, Reference: "a"}, false},
	}
	for _, tt := range tests {
		if got := adopted(tt.row, tt.o); got != tt.want {
			t.Errorf("%s %q+%q, %v %q: adopted=%v, want %v", tt.row.State, tt.row.Reference, tt.row.OtherReference, tt.o.Verdict, tt.o.Reference, got, tt.want)
		}
	}
}

// The answer of the latest send decides, however late, unless a person or a proof has
// decided since (faults 10 and 12).
func TestDecidable(t *testing.T) {
	send, other := [16]byte{7}, [16]byte{8}
	causes := []Cause{ByCall, ByForm, ByLookup, ByAbsence, ByExpiry, ByMissingRow, ByPerson, ByImport, ByConflict}
	for _, state := range append(States(), "later-version") {
		for _, cause := range causes {
			want := state == Captured || state == Doubt && cause != ByMissingRow || state == Held && cause != ByPerson && cause != ByImport && cause != ByConflict && cause != ByMissingRow
			row := Row{State: state, Cause: cause, Open: Open{Send: send}}
			if got := decidable(row, send); got != want {
				t.Errorf("%s by %s: %v, want %v", state, cause, got, want)
			}
			if row.Reference = "pay_1"; state == Held && decidable(row, send) {
				t.Errorf("held by %s with a reference: «nothing was done» would free it", cause)
			}
			if decidable(row, other) {
				t.Errorf("%s by %s: the answer of an earlier send decides", state, cause)
			}
		}
	}
}

// A success whose reference is that of another order is held with it (fault 8).
func TestConflicting(t *testing.T) {
	row := sent(1, 0)
	settled := adopt(row, Outcome{Verdict: Done, Reference: "pay_1", Answer: &Answer{Status: 200}}, ByCall)
	settled.HookDue = "pending"
	got := conflicting(settled, &ReferenceError{Reference: "pay_1", Owner: Key{Order: "A-1", Step: "charge"}})
	if got.State != Held || got.Cause != ByConflict || got.Reference != "pay_1" || got.Answer == nil || got.HookDue != "" || got.Claim != settled.Claim {
		t.Errorf("%+v, want held by conflict with its reference under the same claim", got)
	}
	if decidable(got, row.Open.Send) {
		t.Error("another answer of the call decides about it")
	}
	// The same success once more, as from the journal, does not settle it.
	if !adopted(got, Outcome{Verdict: Done, Reference: "pay_1"}) {
		t.Error("the same success again settles a row that is held for two orders with one reference")
	}
}

// A first delivery's call that did nothing releases nothing once its reserve has ended.
func TestAfterTheReserve(t *testing.T) {
	for _, overslept := range []bool{false, true} {
		for _, o := range []Outcome{{Verdict: Unsent}, {Verdict: TurnedAway}, {Verdict: Refused}, {}, {Verdict: Done, Reference: "p"}} {
			row := sent(1, 0)
			s := saving{outcome: o, overslept: overslept}
			got, plain := s.after(row), after(row, o)
			switch {
			case overslept && plain.State == Released:
				if got.State != Doubt || got.Cause != ByMissingRow || got.Unproven != 1 || got.Tries != 2 {
					t.Errorf("%v: %s by %s, unproven %d; want doubt by missing, 1", o.Verdict, got.State, got.Cause, got.Unproven)
				}
			case got.State != plain.State || got.Unproven != plain.Unproven:
				t.Errorf("%v, overslept %v: %s, want %s", o.Verdict, overslept, got.State, plain.State)
			}
		}
	}
	for name, tt := range map[string]struct {
		row  Row
		want bool
	}{
		"inserted":             {Row{Claim: Claim{Epoch: 1}}, true},
		"with its first id":    {Row{Claim: Claim{Epoch: 2}, Prepared: "pi"}, true},
		"captured once more":   {Row{Claim: Claim{Epoch: 2}}, false},
		"and prepared then":    {Row{Claim: Claim{Epoch: 3}, Prepared: "pi"}, false},
		"of a transaction, 2.": {Row{Claim: Claim{Epoch: 2}}, false},
	} {
		if got := firstCapture(tt.row); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestReserveEnded(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		until time.Time
		want  bool
	}{
		"never":                     {time.Time{}, false},
		"later":                     {now.Add(time.Hour), false},
		"by the wall clock alone":   {now.Add(-time.Second).Round(0), true},
		"by both":                   {now.Add(-time.Second), true},
		"later by the wall clock":   {now.Add(time.Hour).Round(0), false},
		"long ago, without a clock": {time.Unix(1, 0), true},
	} {
		if got := (Effect{ReservedUntil: tt.until}).reserveEnded(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// The deadlines nest: the call's time-out is shorter than its lease, and the time-out
// that is taken back from a lease is never longer than the one it was made of (I2).
func TestLease(t *testing.T) {
	for _, timeout := range []time.Duration{time.Microsecond, time.Second, 9 * time.Second, 10 * time.Second, 11 * time.Second, time.Hour} {
		lease := Lease(timeout)
		if lease < timeout+time.Second || lease-timeout < timeout/10 || callTimeout(lease) > timeout {
			t.Errorf("time-out %s: lease %s, taken back %s", timeout, lease, callTimeout(lease))
		}
	}
}

func TestUnfinished(t *testing.T) {
	for _, state := range append(States(), "later-version") {
		for _, due := range []string{"", "settled"} {
			for _, cause := range []Cause{ByCall, ByForm} {
				row := Row{State: state, Cause: cause, HookDue: due}
				want := !(state == Settled || state == Declined) || due != "" || cause == ByForm
				if row.Unfinished() != want {
					t.Errorf("%s by %s, hook %q: unfinished %v, want %v", state, cause, due, row.Unfinished(), want)
				}
				row.Open = Open{Request: []byte("r"), HookData: []byte("h")}
				done := hooked(row)
				finished := state == Settled || state == Declined
				if done.HookDue != "" || (done.Open.Request == nil) != finished || (done.Open.HookData == nil) != (finished && cause != ByForm) {
					t.Errorf("%s by %s, its hooks done: %+v", state, cause, done)
				}
			}
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
		if (k.Digest() == l.Digest()) != (k == l) {
			t.Errorf("%q and %q: digests %s and %s", k, l, k.Digest(), l.Digest())
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
	if want := "93c315a0-473a-8188-bc8c-3f9db8e75b1c"; err != nil || uuid != want {
		t.Errorf("as a UUID: %s, %v, want %s", uuid, err, want)
	}
}

// The names of states and causes are in tables and files.
func TestNames(t *testing.T) {
	for _, s := range States() {
		if got, ok := ParseState(string(s)); !ok || got != s {
			t.Errorf("%s is parsed as %s, %v", s, got, ok)
		}
	}
	if got, ok := ParseState("later-version"); ok || got != Held {
		t.Errorf("an unknown state is parsed as %s, %v; want held, false", got, ok)
	}
	if got := fmt.Sprint(Unproven, Prepared, Verdict(99)); got != "unproven prepared unproven" {
		t.Errorf("verdicts %q", got)
	}
}
