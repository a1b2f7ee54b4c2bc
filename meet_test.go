package zabor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var testNow = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

func testFence() *Fence { return &Fence{Secret: make([]byte, MinSecret)} }

func testEffect() Effect {
	return Effect{
		Key: Key{Scope: "shop", Order: "1001", Step: "charge"}, Provider: "acquirer", Amount: Money{1999, "EUR"},
		Fingerprint: Fingerprint{Message: "m1", Request: "f1", Fields: `{"amount":"1","card":"2"}`},
		Render: func(k ProviderKeys, id string) ([]byte, error) {
			return []byte("pay " + id + " with " + k.Request), nil
		},
		Timeout: time.Second, MaxAttempts: 3, AbsentAfter: time.Second, HoldAfter: time.Hour, PendingFor: time.Hour, ReplayFor: time.Hour,
		MissingRow: Captured, Messages: [2]string{"message 2", "message 1"},
	}
}

// there is a row of testEffect in the table, read after its lease had ended.
func there(state State, unproven int, change ...func(*Row)) Row {
	row, err := testFence().fresh(testEffect())
	if err != nil {
		panic(err)
	}
	row.State, row.Unproven, row.Claim.Epoch = state, unproven, 5
	row.ReadAt, row.Open.SendUntil = testNow, testNow.Add(-time.Minute)
	for _, c := range change {
		c(&row)
	}
	return row
}

// What a delivery does: docs/protocol.md, line for line.
func TestMeet(t *testing.T) {
	const same, loaded, other = "same", "another loaded row", "another message"
	running := func(r *Row) { r.Open.SendUntil = testNow.Add(time.Minute) }
	spent := func(r *Row) { r.Tries = 3 }
	by := func(c Cause) func(*Row) { return func(r *Row) { r.Cause = c } }
	parked := func(id string) func(*Row) { return func(r *Row) { r.Parked = id } }
	due := func(r *Row) { r.HookDue = string(r.State) }
	for _, tt := range []struct {
		name    string
		row     Row
		request string
		next    State // empty: nothing is written
		err     error // of the delivery; nil: it calls, or the message is acked
	}{
		{"captured, lease running", there(Captured, 1, running), same, "", ErrBusy},
		{"captured, lease running, loaded row", there(Captured, 1, running), loaded, "", ErrBusy},
		{"captured, lease running, other", there(Captured, 1, running), other, "", ErrOtherRequest},
		{"captured, lease ended", there(Captured, 1), same, Doubt, ErrInDoubt},
		{"captured, lease ended, other", there(Captured, 1), other, "", ErrOtherRequest},
		{"doubt", there(Doubt, 1), same, "", ErrInDoubt},
		{"doubt, loaded row", there(Doubt, 1), loaded, "", ErrInDoubt},
		{"doubt, other", there(Doubt, 1), other, "", ErrOtherRequest},
		{"released, nothing acted", there(Released, 0), same, Captured, nil},
		{"released, nothing acted, loaded row", there(Released, 0), loaded, Captured, nil},
		{"released, nothing acted, other", there(Released, 0), other, Captured, nil},
		{"released, nothing acted, tries used up", there(Released, 0, spent), same, "", ErrSpent},
		{"released, may have acted", there(Released, 1), same, Captured, nil},
		{"released, may have acted, loaded row", there(Released, 1), loaded, Held, ErrHeld},
		{"released, may have acted, loaded row, tries used up", there(Released, 1, spent), loaded, Held, ErrHeld},
		{"released, may have acted, other", there(Released, 1), other, "", ErrOtherRequest},
		{"released, tries used up", there(Released, 1, spent), same, "", ErrSpent},
		{"released, tries used up, by a person", there(Released, 1, spent, by(ByPerson)), same, Captured, nil},
		{"released, tries used up, by a person, loaded row", there(Released, 1, spent, by(ByPerson)), loaded, Held, ErrHeld},
		{"released, tries used up, the parked message", there(Released, 1, spent, parked("message 2")), same, Captured, nil},
		{"released, tries used up, a retry of the parked message", there(Released, 1, spent, parked("message 1")), same, Captured, nil},
		{"released, tries used up, another message is parked", there(Released, 1, spent, parked("message 3")), same, "", ErrSpent},
		{"released, tries used up, the parked message asks for another", there(Released, 1, spent, parked("message 2")), other, "", ErrOtherRequest},
		{"settled", there(Settled, 1), same, "", nil},
		{"settled, loaded row", there(Settled, 1), loaded, "", nil},
		{"settled, other", there(Settled, 1), other, "", ErrOtherRequest},
		{"settled, hook due", there(Settled, 1, due), same, "", ErrHookDue},
		{"settled by import, another amount", there(Settled, 1, by(ByImport), func(r *Row) { r.Fingerprint, r.Amount.Minor = Fingerprint{}, 5 }), same, "", ErrOtherRequest},
		{"settled by import", there(Settled, 1, by(ByImport), func(r *Row) { r.Fingerprint = Fingerprint{} }), same, "", nil},
		{"pending", there(Pending, 1), same, "", nil},
		{"pending, loaded row", there(Pending, 1), loaded, "", nil},
		{"pending, other", there(Pending, 1), other, "", ErrOtherRequest},
		{"declined", there(Declined, 0), same, "", nil},
		{"declined, loaded row", there(Declined, 0), loaded, "", ErrOtherRequest},
		{"declined, other", there(Declined, 0), other, "", ErrOtherRequest},
		{"declined by a person before any row", there(Declined, 0, by(ByPerson), func(r *Row) { r.Fingerprint = Fingerprint{} }), same, "", nil},
		{"declined for its form", there(Declined, 0, by(ByForm)), same, "", ErrMalformed},
		{"declined for its form, loaded row", there(Declined, 0, by(ByForm)), loaded, "", ErrOtherRequest},
		{"held", there(Held, 1), same, "", ErrHeld},
		{"held, loaded row", there(Held, 1), loaded, "", ErrHeld},
		{"held, other", there(Held, 1), other, "", ErrOtherRequest},
		{"a state of a later version", there("later-version", 0), same, "", ErrHeld},
		{"a state of a later version, other", there("later-version", 0), other, "", ErrOtherRequest},
		{"held, and its request cannot be read", there(Held, 1, func(r *Row) { r.Open.Sealed.Request = []byte("?") }), same, "", ErrHeld},
		{"released, may have acted, and its request cannot be read", there(Released, 1, func(r *Row) { r.Open.Sealed.Request = []byte("?") }), same, "", ErrReleased},
		{"released, nothing acted, and its request cannot be read", there(Released, 0, func(r *Row) { r.Open.Sealed.Request = []byte("?") }), same, Captured, nil},
	} {
		e := testEffect()
		switch tt.request {
		case loaded:
			e.Fingerprint.Request = "f2"
		case other:
			e.Fingerprint.Message, e.Fingerprint.Request = "m2", "f2"
		}
		f := testFence()
		next, _, err := f.meet(tt.row, e)
		if written := err == nil && next.Claim != tt.row.Claim; written != (tt.next != "") {
			t.Errorf("%s: written %v (%s, %v), want %v", tt.name, written, next.State, err, tt.next != "")
			continue
		}
		if tt.next != "" && (next.State != tt.next || next.Claim.Epoch != tt.row.Claim.Epoch+1) {
			t.Errorf("%s: %s of epoch %d, want %s of the next", tt.name, next.State, next.Claim.Epoch, tt.next)
		}
		if err == nil && next.State != Captured || next.Claim == tt.row.Claim && err == nil {
			err = stateError(next)
		}
		if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		}
		// Plan says the same, and writes nothing.
		_, calls, planned := f.Plan(&tt.row, e)
		if calls != (tt.next == Captured) || !errors.Is(planned, tt.err) || tt.err == nil && planned != nil {
			t.Errorf("%s: planned %v, %v; want %v, %v", tt.name, calls, planned, tt.next == Captured, tt.err)
		}
	}
}

// A row that is captured once more keeps generation, key and, if the request is the
// same, its bytes; the parked entry is used up by it.
func TestRecapture(t *testing.T) {
	f := testFence()
	row := there(Released, 1, func(r *Row) {
		r.Open.Request, r.Parked, r.Open.Replays, r.Tries = []byte("as it was"), "message 1", 4, 3
		r.Open.Silent = time.Hour
	})
	next, w, err := f.meet(row, testEffect())
	if err != nil {
		t.Fatal(err)
	}
	if string(next.Open.Request) != "as it was" || next.ProviderKey != row.ProviderKey || next.Generation != 1 || next.Tries != 3 || next.Unproven != 2 {
		t.Errorf("sends %q under %s as generation %d, try %d, unproven %d", next.Open.Request, next.ProviderKey, next.Generation, next.Tries, next.Unproven)
	}
	if next.Open.Silent != 0 { // a later write would keep it: absence would be believed at once
		t.Errorf("a new send was watched for %s", next.Open.Silent)
	}
	if next.Parked != "" || next.Open.Replays != 0 || next.Open.Send != next.Claim.ID || w.Lease != Lease(time.Second) || w.ReplayFor != -1 && w.ReplayFor != 0 {
		t.Errorf("parked %q, replays %d, send %x of claim %x, %+v", next.Parked, next.Open.Replays, next.Open.Send, next.Claim.ID, w)
	}
	// A row none of whose sends may have acted takes the request as it is now (fault 16).
	e := testEffect()
	e.Fingerprint, e.Amount = Fingerprint{Message: "m2", Request: "f2"}, Money{2999, "EUR"}
	row = there(Released, 0, func(r *Row) { r.Open.Request, r.Parked = []byte("as it was"), "message 3" })
	next, w, err = f.meet(row, e)
	if err != nil || next.Amount.Minor != 2999 || next.Fingerprint != e.Fingerprint || !strings.HasPrefix(string(next.Open.Request), "pay") || next.Unproven != 1 {
		t.Errorf("%v: %+v", err, next)
	}
	if next.Parked != "message 3" || w.ReplayFor != time.Hour {
		t.Errorf("parked %q, replay for %s; want another's mark left alone, and an hour", next.Parked, w.ReplayFor)
	}
	// A sensitive request is rendered anew, and kept nowhere.
	e = testEffect()
	e.Sensitive = true
	next, w, err = f.meet(there(Released, 1), e)
	if err != nil || next.Open.Request != nil || w.ReplayFor != -1 {
		t.Errorf("sensitive: %v, keeps %q, replay for %s", err, next.Open.Request, w.ReplayFor)
	}
}

// Another request makes its first request anew, under a key of its own: a provider that
// knows the old key would answer with the id that moves the old amount. That is so
// also if the answer of the old first request was lost.
func TestAnotherRequestPreparesUnderAnotherKey(t *testing.T) {
	f := testFence()
	two := func() Effect {
		e := testEffect()
		e.Prepare = func(k ProviderKeys) ([]byte, error) { return []byte("prepare with " + k.Prepare), nil }
		return e
	}
	inserted, err := f.fresh(two())
	if err != nil {
		t.Fatal(err)
	}
	for name, prepared := range map[string]string{"its id was saved": "pi_1", "its answer was lost": ""} {
		row := inserted
		row.State, row.Unproven, row.Claim.Epoch, row.Prepared = Released, 0, 5, prepared
		same, _, err := f.meet(row, two())
		if err != nil || same.Prepared != prepared || same.Open.PrepareKey != inserted.Open.PrepareKey {
			t.Errorf("%s, the same request: %v, id %q under %s, want %q under %s", name, err, same.Prepared, same.Open.PrepareKey, prepared, inserted.Open.PrepareKey)
		}
		e := two()
		e.Fingerprint, e.Amount = Fingerprint{Message: "m2", Request: "f2"}, Money{2999, "EUR"}
		other, _, err := f.meet(row, e)
		if err != nil || other.Prepared != "" || other.Open.PrepareKey == inserted.Open.PrepareKey || other.Open.PrepareKey == "" {
			t.Errorf("%s, another request: %v, id %q under %s, want none under another key", name, err, other.Prepared, other.Open.PrepareKey)
		}
		// Declined by a person, the row has forgotten its keys; the old ones stay used.
		e.Fingerprint.Request = "f3"
		forgotten := other
		forgotten.State, forgotten.Cause, forgotten.Unproven, forgotten.Open = Released, ByPerson, 0, Open{}
		again, _, err := f.meet(forgotten, e)
		if err != nil || again.Open.PrepareKey == inserted.Open.PrepareKey || again.Open.PrepareKey == other.Open.PrepareKey {
			t.Errorf("%s, after a person's decline: %v, prepared under %s once more", name, err, again.Open.PrepareKey)
		}
	}
}

// The time of a replay counts from the key's first capture at its provider.
func TestReplayAgain(t *testing.T) {
	until := func(d time.Duration) func(*Row) {
		return func(r *Row) { r.Open.ReplayUntil = testNow.Add(d) }
	}
	never := func(r *Row) { r.Open.ReplayUntil = time.Time{} }
	for name, tt := range map[string]struct {
		row      Row
		provider string
		allows   time.Duration
		want     time.Duration // of the write; -1: never, 0: as it was
	}{
		"the same":                       {there(Released, 1, until(30*time.Minute)), "acquirer", time.Hour, 0},
		"the same, which allows less":    {there(Released, 1, until(30*time.Minute)), "acquirer", time.Minute, time.Minute},
		"the same, which keeps no keys":  {there(Released, 1, until(30*time.Minute)), "acquirer", 0, -1},
		"its time is over":               {there(Released, 1, until(-time.Minute)), "acquirer", time.Hour, 0},
		"it was never allowed":           {there(Released, 1, never), "acquirer", time.Hour, 0},
		"nothing has acted":              {there(Released, 0, until(-time.Minute)), "acquirer", time.Hour, time.Hour},
		"another provider":               {there(Released, 1, until(30*time.Minute)), "other", time.Hour, time.Hour},
		"another, which keeps none":      {there(Released, 1, until(30*time.Minute)), "other", 0, -1},
		"a new generation":               {there(Released, 0, until(-time.Minute), func(r *Row) { r.Fingerprint = Fingerprint{} }), "acquirer", time.Hour, time.Hour},
		"a new generation, keeping none": {there(Released, 0, func(r *Row) { r.Fingerprint = Fingerprint{} }), "acquirer", 0, -1},
	} {
		e := testEffect()
		e.Provider, e.ReplayFor = tt.provider, tt.allows
		if got := replayAgain(tt.row, e); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// The row answers alone if its request cannot be made. Whether a new attempt of what
// was declined is wanted cannot be told then, and nothing is acked in silence (fault 13).
func TestAnswerAlone(t *testing.T) {
	by := func(c Cause) func(*Row) { return func(r *Row) { r.Cause = c } }
	for _, tt := range []struct {
		name  string
		row   Row
		other bool
		want  error
	}{
		{"declined", there(Declined, 0), false, ErrReleased},
		{"declined by a person", there(Declined, 1, by(ByPerson)), false, ErrReleased},
		{"declined by a person before any row", there(Declined, 0, by(ByPerson), func(r *Row) { r.Fingerprint = Fingerprint{} }), false, nil},
		{"declined, other", there(Declined, 0), true, ErrOtherRequest},
		{"declined for its form", there(Declined, 0, by(ByForm)), false, ErrMalformed},
		{"settled", there(Settled, 1), false, nil},
		{"settled, other", there(Settled, 1), true, ErrOtherRequest},
		{"settled, hook due", there(Settled, 1, func(r *Row) { r.HookDue = "settled" }), false, ErrHookDue},
		{"pending", there(Pending, 1), false, nil},
		{"doubt", there(Doubt, 1), false, ErrInDoubt},
		{"held", there(Held, 1), false, ErrHeld},
		{"captured", there(Captured, 1), false, ErrBusy},
		{"released", there(Released, 1), false, ErrReleased},
		{"released, nothing acted", there(Released, 0), false, ErrReleased},
		{"released, nothing acted, other", there(Released, 0), true, ErrReleased},
		{"released, other", there(Released, 1), true, ErrOtherRequest},
		{"later", there("later-version", 1), false, ErrHeld},
	} {
		e := Effect{Key: tt.row.Key, Provider: "acquirer", Fingerprint: Fingerprint{Message: "m1"}}
		if tt.other {
			e.Fingerprint.Message = "m2"
		}
		next, calls, err := testFence().Plan(&tt.row, e)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil || calls || next.Claim != tt.row.Claim {
			t.Errorf("%s: %v, calls %v; want %v, false", tt.name, err, calls, tt.want)
		}
	}
	if _, calls, err := testFence().Plan(nil, Effect{Key: testEffect().Key}); calls || !errors.Is(err, ErrNoRow) {
		t.Errorf("no row: %v, calls %v", err, calls)
	}
}

// Where there is no row, the delivery itself says whether it calls.
func TestPlanWithoutARow(t *testing.T) {
	for missing, want := range map[State]error{Captured: nil, Doubt: ErrInDoubt, Held: ErrHeld} {
		e := testEffect()
		e.MissingRow = missing
		row, calls, err := testFence().Plan(nil, e)
		if calls != (missing == Captured) || !errors.Is(err, want) || row.State != missing {
			t.Errorf("%s: %s, calls %v, %v; want %v", missing, row.State, calls, err, want)
		}
		// What was delivered before may have acted, by a send that is not known.
		if row.Tries != 1 || row.Unproven != 1 || (row.Open.Send == [16]byte{}) != (missing != Captured) || row.Cause != ByCall && row.Cause != ByMissingRow || (row.Cause == ByMissingRow) != (missing != Captured) {
			t.Errorf("%s: tries %d, unproven %d, send %x, by %s", missing, row.Tries, row.Unproven, row.Open.Send, row.Cause)
		}
	}
	e := testEffect()
	e.Sensitive = true
	if row, calls, err := testFence().Plan(nil, e); !calls || err != nil || len(row.Open.Request) == 0 {
		t.Errorf("sensitive: %v, %v, request %q", calls, err, row.Open.Request)
	}
	e.Timeout = 0
	if _, calls, err := testFence().Plan(nil, e); calls || err == nil {
		t.Errorf("no time-out: calls %v, %v", calls, err)
	}
}

// The fields of another request are named, and never their values.
func TestDiffering(t *testing.T) {
	fields := func(s string) Effect { return Effect{Fingerprint: Fingerprint{Fields: s}} }
	for _, tt := range []struct{ was, is, want string }{
		{`{"amount":"1","card":"2"}`, `{"amount":"3","card":"2"}`, " (another amount)"},
		{`{"amount":"1","card":"2"}`, `{"amount":"3","name":"2"}`, " (another amount, card, name)"},
		{`{"amount":"1"}`, `{"amount":"1"}`, ""},
		{``, `{"amount":"1"}`, ""},
		{`{"amount":"1"}`, `no`, ""},
		// a message's row, and what came to the proxy
		{`{"amount":"1","currency":"2","message.cents":"3","path":"4"}`, `{"path":"5","header.Merchant":"6"}`, " (another path)"},
		{`{"path":"4","body.amount":"6"}`, `{"amount":"1","currency":"2","load.cents":"3","path":"4"}`, " (another body.amount)"},
		{`{"path":"4"}`, `{"amount":"1","message.cents":"3","path":"4"}`, " (one is a message's, the other came to the proxy)"},
		{`{"amount":"1"}`, `{"amount":"1","message.cents":"3"}`, " (another message.cents)"},
	} {
		if got := differing(Row{Fingerprint: Fingerprint{Message: "m", Fields: tt.was}}, fields(tt.is)); got != tt.want {
			t.Errorf("%s and %s: %q, want %q", tt.was, tt.is, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Effect){
		"order":       func(e *Effect) { e.Key.Order = "" },
		"provider":    func(e *Effect) { e.Provider = "" },
		"message":     func(e *Effect) { e.Fingerprint.Message = "" },
		"request":     func(e *Effect) { e.Fingerprint.Request = "" },
		"long":        func(e *Effect) { e.Fingerprint.Request = strings.Repeat("x", 256) },
		"long fields": func(e *Effect) { e.Fingerprint.Fields = strings.Repeat("x", 4001) },
		"render":      func(e *Effect) { e.Render = nil },
		"time-out":    func(e *Effect) { e.Timeout = 0 },
		"attempts":    func(e *Effect) { e.MaxAttempts = 0 },
		"missing row": func(e *Effect) { e.MissingRow = Released },
	} {
		e := testEffect()
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&e)
		if err := e.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := testFence().fresh(e); err == nil {
			t.Errorf("%s: it makes a row", name)
		}
	}
	e := testEffect()
	e.Render = func(ProviderKeys, string) ([]byte, error) { return nil, fmt.Errorf("no template") }
	if _, err := testFence().fresh(e); err == nil {
		t.Error("a request that cannot be made makes a row")
	}
}
