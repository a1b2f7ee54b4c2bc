package zabor_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// onSQLite is a world on a fresh table: for what is no business of the database's.
func onSQLite(t *testing.T) *world {
	t.Helper()
	return newWorld(t, openStore(t, "sqlite://"+filepath.Join(t.TempDir(), "fence.db")))
}

// moving is a world whose provider is called at place, and what each place knows.
type moving struct {
	*world
	place string
	knows map[string]map[string]zabor.Outcome // by place and order
	sent  int
	r     *resolving
}

func newMoving(t *testing.T, w *world) *moving {
	m := &moving{world: w, place: "a", knows: map[string]map[string]zabor.Outcome{"a": {}, "b": {}}}
	w.fence.Address = func(string) string { return m.place }
	m.r = w.resolver()
	m.r.Lookup = func(_ context.Context, row zabor.Row) (zabor.Finding, error) {
		if o, ok := m.knows[m.place][row.Order]; ok {
			return zabor.Finding{Outcome: o}, nil
		}
		return zabor.Finding{Absent: true}, nil
	}
	m.r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
		m.sent++
		return zabor.Outcome{}
	}
	return m
}

// settle makes a payment at the place of now.
func (m *moving) settle(order string) {
	m.t.Helper()
	o := zabor.Outcome{Verdict: zabor.Done, Reference: "pay_" + order}
	if _, err := m.fence.Do(m.t.Context(), effect(order), m.answers(o)); err != nil {
		m.t.Fatal(err)
	}
	m.knows[m.place][order] = o
}

// lose makes a call at the place of now whose answer is lost.
func (m *moving) lose(order string) zabor.Key {
	m.t.Helper()
	e := effect(order)
	e.ReplayFor = 24 * time.Hour
	if _, err := m.fence.Do(m.t.Context(), e, m.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
		m.t.Fatalf("error %v, want %v", err, zabor.ErrInDoubt)
	}
	return e.Key
}

// stays demands that hours of resolving leave the row in doubt, and send nothing.
func (m *moving) stays(k zabor.Key, what string) {
	m.t.Helper()
	for _, d := range []time.Duration{0, watchTime + time.Second, time.Minute, 3 * time.Minute} {
		m.r.after(d)
	}
	if row := m.row(k); row.State != zabor.Doubt || m.sent != 0 {
		m.t.Fatalf("%s: %s (%s), sent again %d times; want doubt, and nothing sent", what, row.State, row.Reason, m.sent)
	}
}

// A row that was called at another address, or with another account's credentials,
// is not sent again here, and is not free because nobody knows it here: not even
// where the look-up finds what was settled here since.
func TestAnotherPlaceKnowsNothing(t *testing.T) {
	t.Parallel()
	m := newMoving(t, onSQLite(t))
	m.settle("old")
	k := m.lose("1001")
	m.place = "b"
	m.settle("new")
	m.stays(k, "called elsewhere")
	// What bears its order here is somebody else's.
	m.knows["b"]["1001"] = zabor.Outcome{Verdict: zabor.Done, Reference: "pay_other"}
	m.stays(k, "found elsewhere")

	m.place = "a"
	delete(m.knows["b"], "1001")
	m.r.Replay = nil
	m.r.after(time.Minute)
	if row := m.row(k); row.State != zabor.Released || row.Cause != zabor.ByAbsence {
		t.Errorf("back again: %s by %s, want released by absence", row.State, row.Cause)
	}
}

// Another secret of the same account is another place too, until what the old one
// has settled is found with it: then it knows what the old one knew. Sent again
// nothing is all the same.
func TestAnotherSecretOfTheSameAccount(t *testing.T) {
	t.Parallel()
	m := newMoving(t, onSQLite(t))
	m.settle("old")
	absent, found := m.lose("1001"), m.lose("1002")
	m.knows["b"] = m.knows["a"]
	m.place = "b"
	m.knows["b"]["1002"] = zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1002"}
	m.r.after(0)
	m.r.after(watchTime + time.Second)
	if row := m.row(absent); row.State != zabor.Released || m.sent != 0 {
		t.Errorf("%s, sent again %d times; want released, and nothing sent", row.State, m.sent)
	}
	if row := m.row(found); row.State != zabor.Settled || row.Reference != "pay_1002" {
		t.Errorf("%s %q, want settled pay_1002", row.State, row.Reference)
	}
	// The next call of the free row goes to where calls go now.
	if _, err := m.fence.Do(t.Context(), func() zabor.Effect { e := effect("1001"); e.ReplayFor = 24 * time.Hour; return e }(), m.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatal(err)
	}
	if row := m.row(absent); row.Endpoint.Address != "b" {
		t.Errorf("place %q, want b", row.Endpoint.Address)
	}
}

// A look-up by an id vouches for none by what the request carried, and the other way
// round: a search that never finds anything frees nothing.
func TestTheControlIsTheSameLookUp(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	two := twoStep("two")
	paid := zabor.Outcome{Verdict: zabor.Done, Reference: "pay_two"}
	if _, err := w.fence.Do(t.Context(), two, func(_ context.Context, row zabor.Row) zabor.Outcome {
		if row.Prepared == "" {
			return prepared
		}
		return paid
	}); err != nil {
		t.Fatal(err)
	}
	r := w.resolver()
	searches := false // finds anything
	r.Lookup = func(_ context.Context, row zabor.Row) (zabor.Finding, error) {
		if row.Order == "two" && (row.Prepared != "" || searches) {
			return zabor.Finding{Outcome: paid}, nil
		}
		return zabor.Finding{Absent: true}, nil
	}
	lost := twoStep("lost")
	if _, err := w.fence.Do(t.Context(), lost, func(_ context.Context, row zabor.Row) zabor.Outcome {
		if row.Prepared == "" {
			return zabor.Outcome{Verdict: zabor.Prepared, Reference: "pi_2"}
		}
		return zabor.Outcome{}
	}); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatal(err)
	}
	one := w.doubtful("1001")
	missing := twoStep("missing")
	missing.MissingRow = zabor.Doubt
	if _, err := w.fence.Do(t.Context(), missing, w.answers(done)); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatal(err)
	}
	r.after(0)
	r.after(watchTime + time.Second)
	r.after(time.Minute)
	if row := w.row(lost.Key); row.State != zabor.Released {
		t.Errorf("by its id: %s, want released: the same look-up has found a settled row", row.State)
	}
	for _, k := range []zabor.Key{one, missing.Key} {
		if row := w.row(k); row.State != zabor.Doubt {
			t.Errorf("%s: %s by %s, want doubt: no search has found anything yet", k, row.State, row.Cause)
		}
	}
	searches = true
	r.after(time.Minute)
	for _, k := range []zabor.Key{one, missing.Key} {
		if row := w.row(k); row.State != zabor.Released {
			t.Errorf("%s: %s, want released", k, row.State)
		}
	}
}

// A no that a look-up finds early is no proof: the request that it does not know of
// may still be on its way.
func TestAFoundNoIsBelievedLate(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	k := w.doubtful("1001")
	r.finds["1001"] = zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Refused, Reason: "card declined"}}
	r.after(0)
	r.after(watchTime - time.Millisecond)
	if row := w.row(k); row.State != zabor.Doubt {
		t.Fatalf("%s too early, want doubt", row.State)
	}
	r.after(time.Second)
	if row := w.row(k); row.State != zabor.Declined || row.Cause != zabor.ByLookup {
		t.Errorf("%s by %s, want declined by look-up", row.State, row.Cause)
	}
}

// A row that has vanished by the time of the answer is written again with its hook
// due: the message is not acked before the shop knows.
func TestAVanishedRowIsTold(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		var ran []zabor.State
		w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
			if row.State == zabor.Captured || row.State == zabor.Doubt {
				return nil, nil
			}
			ran = append(ran, row.State)
			return &zabor.Hook{Name: string(row.State), SQL: "DELETE FROM zabor_meta WHERE 1 = 0", Rows: -1}, nil
		}
		for _, o := range []zabor.Outcome{done, {Verdict: zabor.Done, Reference: "pay_2"}} {
			w.deleteAll()
			e := effect("1001")
			e.HookData = []byte(`{"a":1}`)
			_, err := w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
				w.deleteAll()
				return o
			})
			row := w.row(e.Key)
			if !errors.Is(err, zabor.ErrHookDue) || row.HookDue != string(row.State) || row.Open.HookData == nil {
				t.Fatalf("%v: error %v, the row is %s, due %q, data %q; want %v with the hook of its state due", o.Verdict, err, row.State, row.HookDue, row.Open.HookData, zabor.ErrHookDue)
			}
			ran = nil
			w.resolver().after(0)
			if row := w.row(e.Key); row.HookDue != "" || row.Open.HookData != nil || len(ran) != 1 || ran[0] != row.State {
				t.Errorf("%v: due %q, data %q, ran %v; want the hook of %s to have run", o.Verdict, row.HookDue, row.Open.HookData, ran, row.State)
			}
			if _, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || w.calls != 0 {
				t.Errorf("%v: delivered again: %v, calls=%d; want acked", o.Verdict, err, w.calls)
			}
		}
		if n, _ := w.alerted("row-vanished"); n != 2 {
			t.Errorf("alerts=%d, want 2", n)
		}
	})
}

// What asks to be left alone is: nothing is looked up or sent again before its time,
// which only hold_after bounds.
func TestRetryAfterOfADoubt(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	w.fence.Now = r.Now
	replays := 0
	r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
		replays++
		return zabor.Outcome{}
	}
	e := effect("1001")
	e.Timeout, e.ReplayFor, e.HoldAfter = time.Millisecond, 24*time.Hour, 10*time.Minute
	if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Reason: "503", RetryAfter: time.Hour})); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatal(err)
	}
	if n, _ := w.alerted("provider-paused"); n != 1 {
		t.Errorf("alerts=%d, want 1", n)
	}
	r.after(0)
	r.after(10*time.Minute - time.Second)
	if r.lookups != 0 || replays != 0 {
		t.Fatalf("look-ups=%d replays=%d before the provider wants to be asked", r.lookups, replays)
	}
	w.shift(e.Key, -time.Minute)
	r.after(2 * time.Second)
	if r.lookups == 0 || replays != 1 {
		t.Errorf("look-ups=%d replays=%d when it does", r.lookups, replays)
	}
}

// A look-up that is turned away is not made again before its time, for no row of the
// provider's.
func TestRetryAfterOfALookup(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	asked := 0
	r.Lookup = func(context.Context, zabor.Row) (zabor.Finding, error) {
		asked++
		return zabor.Finding{}, &zabor.LaterError{After: time.Minute, Err: errors.New("429")}
	}
	w.doubtful("1001")
	w.doubtful("1002")
	w.dueNow()
	r.Round(t.Context())
	r.after(59 * time.Second)
	if asked != 1 {
		t.Errorf("asked %d times within a minute, want once", asked)
	}
	r.clock = r.clock.Add(2 * time.Second)
	w.dueNow()
	r.Round(t.Context())
	if asked != 2 {
		t.Errorf("asked %d times after it, want twice", asked)
	}
}
