package zabor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// A delivery that finds its row settled calls nothing. The probe of a pause goes back for
// it, and the next delivery calls.
func TestADeliveryThatCallsNothingGivesTheProbeBack(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	now := time.Now()
	w.fence.Now = func() time.Time { return now }
	if _, err := w.fence.Do(t.Context(), effect("paid"), w.answers(done)); err != nil {
		t.Fatal(err)
	}
	e := effect("1001")
	if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent, Reason: "no connection"})); !errors.Is(err, zabor.ErrReleased) {
		t.Fatalf("error %v, want %v", err, zabor.ErrReleased)
	}
	if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrPaused) {
		t.Fatalf("error %v, want %v", err, zabor.ErrPaused)
	}
	now = now.Add(10 * time.Second)
	if _, err := w.fence.Do(t.Context(), effect("paid"), w.answers(done)); err != nil {
		t.Errorf("a settled row after the pause: %v", err)
	}
	if row, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || row.State != zabor.Settled {
		t.Errorf("%s, %v; want it called", row.State, err)
	}
}

// lateHook is a store that commits a write with its hook and says that the hook failed, as
// if an earlier try of the write had been committed late.
type lateHook struct{ zabor.Store }

func (l lateHook) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	if err := l.Store.Swap(ctx, prev, next, w); err != nil || w.Hook == nil {
		return err
	}
	return &zabor.HookError{Hook: w.Hook.Name, Err: errors.New("lock wait time-out")}
}

// The write of an outcome whose hook is due is not taken for the one with the hook, which
// was committed after all.
func TestADueHookHasItsOwnClaim(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		w.fence.Store = lateHook{s}
		w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
			if row.State != zabor.Settled {
				return nil, nil
			}
			return &zabor.Hook{Name: "settled", SQL: "DELETE FROM zabor_meta WHERE 1 = 0", Rows: -1}, nil
		}
		row, err := w.fence.Do(t.Context(), effect("1001"), w.answers(done))
		if err != nil || row.State != zabor.Settled || row.HookDue != "" {
			t.Errorf("%s, due %q, %v; want settled, its hook has run", row.State, row.HookDue, err)
		}
	})
}

// watched leases the rows that are due for a resolver, as Round does.
func (w *world) watched(by [16]byte) []zabor.Row {
	w.t.Helper()
	w.dueNow()
	rows, err := w.store.Watch(w.t.Context(), zabor.Watch{By: by, For: zabor.LookupTime, Limit: 10})
	if err != nil || len(rows) != 1 {
		w.t.Fatalf("%d rows, %v; want 1", len(rows), err)
	}
	return rows
}

// seen ends a look at row, which was silent for d by then.
func (w *world) seen(by [16]byte, row zabor.Row, d time.Duration) {
	w.t.Helper()
	row.Open.Watched, row.Open.Silent = d, d
	if err := w.store.Watched(w.t.Context(), by, []zabor.Seen{{Row: row, DueIn: time.Second}}); err != nil {
		w.t.Fatal(err)
	}
}

// A send ends the silence before it. A look that began before it says nothing about the
// time after it, also if the same resolver has leased the row again.
func TestALookFromBeforeASendCountsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		k, by := w.doubtful("1001"), [16]byte{1}
		w.seen(by, w.watched(by)[0], time.Minute)
		before := w.watched(by)[0]
		w.swap(w.row(k), func(r *zabor.Row) { r.Open.Send, r.Unproven = r.Claim.ID, 2 })
		after := w.watched(by)[0]
		w.seen(by, before, time.Hour)
		if row := w.row(k); row.Open.Silent != 0 || row.Open.Watched != time.Minute {
			t.Errorf("watched for %s, silent for %s; want %s, 0", row.Open.Watched, row.Open.Silent, time.Minute)
		}
		w.seen(by, after, time.Minute)
		if row := w.row(k); row.Open.Silent != time.Minute {
			t.Errorf("silent for %s, want %s", row.Open.Silent, time.Minute)
		}
	})
}

// The end of a look whose commit went unconfirmed is written once more, and adds nothing.
func TestWatchedTwiceCountsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		k, by := w.doubtful("1001"), [16]byte{1}
		row := w.watched(by)[0]
		w.seen(by, row, time.Minute)
		w.seen(by, row, time.Minute)
		if row := w.row(k); row.Open.Silent != time.Minute || row.Open.Watched != time.Minute {
			t.Errorf("watched for %s, silent for %s; want %s", row.Open.Watched, row.Open.Silent, time.Minute)
		}
	})
}

// What the provider may carry out later by itself is neither free because it is not found,
// nor sent again: it waits for a person.
func TestWhatLingersIsNotFree(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	r.settleControl()
	replays := 0
	r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
		replays++
		return zabor.Outcome{}
	}
	e := effect("1001")
	e.ReplayFor, e.HoldAfter = 24*time.Hour, 2*time.Hour
	if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Lingers: true, Reason: "500"})); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatal(err)
	}
	w.shift(e.Key, -time.Minute)
	r.after(0)
	r.after(watchTime + time.Second)
	r.after(time.Minute)
	if row := w.row(e.Key); row.State != zabor.Doubt || replays != 0 || r.lookups == 0 {
		t.Errorf("%s by %s, sent again %d times, %d look-ups; want doubt, and nothing sent", row.State, row.Cause, replays, r.lookups)
	}
	w.shift(e.Key, -3*time.Hour)
	r.after(90 * time.Minute)
	r.after(90 * time.Minute)
	if row := w.row(e.Key); row.State != zabor.Held {
		t.Errorf("%s after hold_after, want held", row.State)
	}
}

// A row that a person has settled vouches for no look-up: the reference may be a typing
// error, or that of another system.
func TestWhatAPersonHasSettledIsNoSample(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	control := w.doubtful("control")
	w.leasesEnd(time.Minute)
	if _, err := w.decide(zabor.Decision{Key: control, Seen: w.row(control).Claim, Action: zabor.Settle, Reference: "pay_control"}); err != nil {
		t.Fatal(err)
	}
	r.finds["control"] = zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: "pay_control"}}
	k := w.doubtful("1001")
	r.after(0)
	r.after(watchTime)
	if row := w.row(k); row.State != zabor.Doubt {
		t.Errorf("%s, want doubt", row.State)
	}
	r.settleControlAs("paid")
	r.after(time.Second)
	if row := w.row(k); row.State != zabor.Released {
		t.Errorf("%s beside a row that the provider has settled, want released", row.State)
	}
}

// settleControlAs settles an order that the look-up finds.
func (r *resolving) settleControlAs(order string) {
	r.w.t.Helper()
	o := zabor.Outcome{Verdict: zabor.Done, Reference: "pay_" + order}
	if _, err := r.w.fence.Do(r.w.t.Context(), effect(order), r.w.answers(o)); err != nil {
		r.w.t.Fatal(err)
	}
	r.finds[order] = zabor.Finding{Outcome: o}
}
