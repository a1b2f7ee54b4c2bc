package zabortest

import (
	"context"
	"errors"
	"testing"
	"time"

	"zabor"
)

// Transaction is one of the caller's own on a store's database.
type Transaction struct {
	Insert           zabor.InsertTx
	Commit, Rollback func() error
}

// CaptureTx tests [zabor.Fence.CaptureTx] on a store. open gives each test a store
// on an empty table of its own, and what begins a transaction on its database.
func CaptureTx(t *testing.T, open func(t *testing.T) (zabor.Store, func(*testing.T) Transaction)) {
	for _, c := range []struct {
		name string
		test func(*txTest)
	}{
		{"committed", txCommitted},
		{"rolled back", txRolledBack},
		{"rolled back, and then another's", txAnothers},
		{"not committed yet", txEarly},
		{"a row that is there", txFound},
		{"another request", txOtherRequest},
		{"two at once", txTwo},
		{"a process that died before its call", txDied},
		{"a worker that was faster", txWorker},
		{"tried again", txAgain},
		{"what a transaction cannot capture", txRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store, begin := open(t)
			c.test(&txTest{T: t, store: store, begin: begin, fence: &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)}})
		})
	}
}

type txTest struct {
	*testing.T
	store zabor.Store
	begin func(*testing.T) Transaction
	fence *zabor.Fence
	calls int
}

func (t *txTest) effect(amount int64) zabor.Effect {
	return zabor.Effect{
		Key: zabor.Key{Order: "1001", Step: "charge"}, Provider: "acquirer", Amount: zabor.Money{Minor: amount, Currency: "EUR"},
		Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Render:      func(k zabor.ProviderKeys, _ string) ([]byte, error) { return []byte("pay with " + k.Request), nil },
		Timeout:     time.Second, MaxAttempts: 3, AbsentAfter: time.Second, HoldAfter: time.Hour, ReplayFor: time.Hour,
		MissingRow: zabor.Captured,
	}
}

func (t *txTest) capture(tx Transaction, e zabor.Effect) *zabor.Capture {
	t.Helper()
	c, err := t.fence.CaptureTx(t.Context(), tx.Insert, e)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (t *txTest) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answers is a call that ends with o, and is counted.
func (t *txTest) answers(o zabor.Outcome) zabor.Call {
	return func(context.Context, zabor.Row) zabor.Outcome {
		t.calls++
		return o
	}
}

var yes = zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1"}

func (t *txTest) wantCalls(want int) {
	t.Helper()
	if t.calls != want {
		t.Fatalf("calls=%d, want %d", t.calls, want)
	}
}

func (t *txTest) wantState(row zabor.Row, err error, want zabor.State) {
	t.Helper()
	if err != nil || row.State != want {
		t.Fatalf("the row is %s %q, error %v; want %s", row.State, row.Reason, err, want)
	}
}

func txCommitted(t *txTest) {
	e := t.effect(1999)
	tx := t.begin(t.T)
	c := t.capture(tx, e)
	if c.Found || c.Row.State != zabor.Released || c.Row.Tries != 0 || c.Row.MayHaveActed() {
		t.Fatalf("found %v, %s, %d tries; want a new row that is free", c.Found, c.Row.State, c.Row.Tries)
	}
	t.must(tx.Commit())
	if row := load(t.T, t.store, e.Key); row.State != zabor.Released || row.MayHaveActed() || !row.Open.SendUntil.IsZero() || len(row.Open.Request) == 0 {
		t.Fatalf("committed as %s by %s, to be sent until %s, request %q", row.State, row.Cause, row.Open.SendUntil, row.Open.Request)
	}
	before := load(t.T, t.store, e.Key).ReadAt
	row, err := c.Do(t.Context(), func(_ context.Context, row zabor.Row) zabor.Outcome {
		t.calls++
		there := load(t.T, t.store, e.Key)
		if there.State != zabor.Captured || there.Tries != 1 || there.Unproven != 1 || there.Open.SendUntil.Sub(before) < e.Timeout || there.Open.ReplayUntil.Sub(before) < 59*time.Minute {
			t.Errorf("the call of a row that is %s, try %d, until %s, again until %s", there.State, there.Tries, there.Open.SendUntil, there.Open.ReplayUntil)
		}
		if string(row.Open.Request) != "pay with "+row.ProviderKey {
			t.Errorf("sends %q", row.Open.Request)
		}
		return yes
	})
	t.wantState(row, err, zabor.Settled)
	row, err = c.Do(t.Context(), t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	row, err = t.fence.Do(t.Context(), e, t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	t.wantCalls(1)
}

// committed captures e in a transaction that is committed.
func (t *txTest) committed(e zabor.Effect) *zabor.Capture {
	t.Helper()
	tx := t.begin(t.T)
	c := t.capture(tx, e)
	t.must(tx.Commit())
	return c
}

func txRolledBack(t *txTest) {
	e := t.effect(1999)
	tx := t.begin(t.T)
	c := t.capture(tx, e)
	t.must(tx.Rollback())
	for range 2 {
		_, err := c.Do(t.Context(), t.answers(yes))
		wantErr(t.T, err, zabor.ErrNoRow)
	}
	_, err := t.store.Load(t.Context(), e.Key)
	wantErr(t.T, err, zabor.ErrNoRow)
	t.wantCalls(0)
}

// The row that is there proves nothing for a capture that was rolled back.
func txAnothers(t *txTest) {
	e := t.effect(1999)
	tx := t.begin(t.T)
	gone := t.capture(tx, e)
	t.must(tx.Rollback())
	other := t.committed(e)
	_, err := gone.Do(t.Context(), t.answers(yes))
	wantErr(t.T, err, zabor.ErrReleased)
	t.wantCalls(0)
	row, err := other.Do(t.Context(), t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	row, err = gone.Do(t.Context(), t.answers(yes)) // answered from the row
	t.wantState(row, err, zabor.Settled)
	t.wantCalls(1)
}

func txEarly(t *txTest) {
	e := t.effect(1999)
	tx := t.begin(t.T)
	c := t.capture(tx, e)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // some databases wait for the transaction
	defer cancel()
	if _, err := c.Do(ctx, t.answers(yes)); err == nil {
		t.Error("an open transaction is no error")
	}
	t.wantCalls(0)
	t.must(tx.Commit())
	row, err := c.Do(t.Context(), t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	t.wantCalls(1)
}

// A row that was there before is answered from: that this transaction was
// committed could not be seen in it.
func txFound(t *txTest) {
	e := t.effect(1999)
	t.committed(e)
	tx := t.begin(t.T)
	c := t.capture(tx, e)
	if !c.Found {
		t.Fatal("the row was there before, and is not said to be")
	}
	t.must(tx.Rollback())
	_, err := c.Do(t.Context(), t.answers(yes))
	wantErr(t.T, err, zabor.ErrReleased)
	t.wantCalls(0)

	row, err := t.fence.Do(t.Context(), e, t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	c = t.committed(e)
	row, err = c.Do(t.Context(), t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	t.wantCalls(1)
}

func txOtherRequest(t *txTest) {
	first := t.committed(t.effect(1999))
	e := t.effect(2999)
	e.Fingerprint = zabor.Fingerprint{Message: "m2", Request: "f2"}
	tx := t.begin(t.T)
	_, err := t.fence.CaptureTx(t.Context(), tx.Insert, e)
	wantErr(t.T, err, zabor.ErrOtherRequest)
	t.must(tx.Rollback())
	row, err := first.Do(t.Context(), t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	if row.Amount.Minor != 1999 {
		t.Errorf("charged %d", row.Amount.Minor)
	}
	t.wantCalls(1)
}

// The second waits for the first transaction, and then finds its row.
func txTwo(t *txTest) {
	e := t.effect(1999)
	first := t.begin(t.T)
	one := t.capture(first, e)
	second := make(chan error, 1)
	go func() {
		_, err := t.fence.Do(t.Context(), e, t.answers(yes))
		second <- err
	}()
	t.must(first.Commit())
	row, err := one.Do(t.Context(), t.answers(yes))
	if err != nil && !errors.Is(err, zabor.ErrBusy) {
		t.Fatalf("%s, error %v", row.State, err)
	}
	if err := <-second; err != nil && !errors.Is(err, zabor.ErrBusy) {
		t.Fatal(err)
	}
	t.wantCalls(1)
}

func txDied(t *txTest) {
	e := t.effect(1999)
	t.committed(e)
	t.fence = &zabor.Fence{Store: t.store, Secret: make([]byte, zabor.MinSecret)}
	r := &zabor.Resolver{Fence: t.fence}
	t.must(r.Round(t.Context()))
	if row := load(t.T, t.store, e.Key); row.State != zabor.Released {
		t.Fatalf("the resolver made it %s", row.State)
	}
	row, err := t.fence.Do(t.Context(), e, t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	t.wantCalls(1)
}

func txWorker(t *txTest) {
	e := t.effect(1999)
	c := t.committed(e)
	if _, err := t.fence.Do(t.Context(), e, t.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatalf("error %v, want %v", err, zabor.ErrInDoubt)
	}
	_, err := c.Do(t.Context(), t.answers(yes))
	wantErr(t.T, err, zabor.ErrInDoubt)
	t.wantCalls(1)
}

// A call that surely did nothing may be made again by the same capture.
func txAgain(t *txTest) {
	e := t.effect(1999)
	c := t.committed(e)
	now := time.Now()
	t.fence.Now = func() time.Time { return now }
	_, err := c.Do(t.Context(), t.answers(zabor.Outcome{Verdict: zabor.Unsent}))
	wantErr(t.T, err, zabor.ErrReleased)
	_, err = c.Do(t.Context(), t.answers(yes))
	wantErr(t.T, err, zabor.ErrPaused)
	now = now.Add(time.Minute)
	row, err := c.Do(t.Context(), t.answers(yes))
	t.wantState(row, err, zabor.Settled)
	t.wantCalls(2)
}

func txRefused(t *txTest) {
	for name, change := range map[string]func(*zabor.Effect){
		"no order":                   func(e *zabor.Effect) { e.Key.Order = "" },
		"no time-out":                func(e *zabor.Effect) { e.Timeout = 0 },
		"delivered before":           func(e *zabor.Effect) { e.MissingRow = zabor.Doubt },
		"a provider's name too long": func(e *zabor.Effect) { e.Provider = string(make([]byte, 200)) },
	} {
		e := t.effect(1999)
		change(&e)
		tx := t.begin(t.T)
		if _, err := t.fence.CaptureTx(t.Context(), tx.Insert, e); err == nil {
			t.Errorf("%s: no error", name)
		}
		t.must(tx.Rollback())
	}
}
