package zabor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// resolving is a resolver with a clock of its own over w's store.
type resolving struct {
	*zabor.Resolver
	w       *world
	clock   time.Time
	finds   map[string]zabor.Finding // by order; others are absent
	lookups int
}

func (w *world) resolver() *resolving {
	r := &resolving{w: w, clock: time.Now(), finds: map[string]zabor.Finding{}}
	r.Resolver = &zabor.Resolver{Fence: w.fence}
	r.Lookup = func(_ context.Context, row zabor.Row) (zabor.Finding, error) {
		r.lookups++
		if f, ok := r.finds[row.Order]; ok {
			if f.Outcome.Reference != "" && row.Scope != "shop" { // two orders share no reference
				f.Outcome.Reference += " of " + row.Scope
			}
			return f, nil
		}
		return zabor.Finding{Absent: true}, nil
	}
	r.Now = func() time.Time { return r.clock }
	return r
}

// after moves the resolver's clock and makes a round, for which no look-up is too
// early by the database's clock.
func (r *resolving) after(d time.Duration) {
	r.w.t.Helper()
	r.clock = r.clock.Add(d)
	r.w.dueNow()
	if err := r.Round(r.w.t.Context()); err != nil {
		r.w.t.Fatal(err)
	}
}

func (w *world) exec(query string) {
	w.t.Helper()
	if _, err := w.store.DB().ExecContext(w.t.Context(), query); err != nil {
		w.t.Fatal(err)
	}
}

// dueNow makes every row due that a resolver may decide about.
func (w *world) dueNow() {
	w.t.Helper()
	w.exec("UPDATE zabor_fences SET due_at = 0, watch_until = 0 WHERE due_at IS NOT NULL AND (state IN ('captured', 'doubt', 'pending') OR hook_due <> '')")
}

// leasesEnd moves leases and due times, as if so much time had passed.
func (w *world) leasesEnd(by time.Duration) {
	w.t.Helper()
	us := fmt.Sprint(by.Microseconds())
	w.exec("UPDATE zabor_fences SET due_at = due_at - " + us + ", watch_until = watch_until - " + us + ", send_until = send_until - " + us + ", state_since = state_since - " + us)
}

// settleControl settles an order that the look-up finds.
func (r *resolving) settleControl() {
	r.w.t.Helper()
	o := zabor.Outcome{Verdict: zabor.Done, Reference: "pay_control"}
	if _, err := r.w.fence.Do(r.w.t.Context(), effect("control"), r.w.answers(o)); err != nil {
		r.w.t.Fatal(err)
	}
	r.finds["control"] = zabor.Finding{Outcome: o}
}

// doubtful leaves order in doubt.
func (w *world) doubtful(order string) zabor.Key {
	w.t.Helper()
	e := effect(order)
	if _, err := w.fence.Do(w.t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
		w.t.Fatalf("error %v, want %v", err, zabor.ErrInDoubt)
	}
	return e.Key
}

// watchTime is how long a resolver must have watched a row of effect before
// absence is proof.
var watchTime = zabor.Lease(effect("").Timeout) + effect("").AbsentAfter

func TestTheResolverSettlesWhatItFinds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		tests := map[string]struct {
			found zabor.Outcome
			state zabor.State
		}{
			"done":    {zabor.Outcome{Verdict: zabor.Done, Reference: "pay_2"}, zabor.Settled},
			"begun":   {zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_3"}, zabor.Pending},
			"refused": {zabor.Outcome{Verdict: zabor.Refused, Reason: "card declined"}, zabor.Declined},
			"unclear": {zabor.Outcome{}, zabor.Doubt},
		}
		w := newWorld(t, s)
		r := w.resolver()
		for name, tt := range tests {
			w.doubtful(name)
			r.finds[name] = zabor.Finding{Outcome: tt.found}
		}
		r.after(0)
		r.after(watchTime) // a no counts late
		for name, tt := range tests {
			if row := w.row(effect(name).Key); row.State != tt.state || row.Reference != tt.found.Reference {
				t.Errorf("%s: %s %q, want %s %q", name, row.State, row.Reference, tt.state, tt.found.Reference)
			}
		}
		// Pending is asked for until there is a verdict.
		r.finds["begun"] = zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: "pay_3"}}
		r.after(time.Minute)
		if row := w.row(effect("begun").Key); row.State != zabor.Settled {
			t.Errorf("pending stays %s, want settled", row.State)
		}
	})
}

func TestTwoHitsAreHeld(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		k := w.doubtful("1001")
		r.finds["1001"] = zabor.Finding{Several: true}
		r.after(0)
		if row := w.row(k); row.State != zabor.Held {
			t.Errorf("%s, want held", row.State)
		}
		if _, critical := w.alerted("conflict"); critical != 1 {
			t.Errorf("critical alerts=%d, want 1", critical)
		}
	})
}

// Absence is believed only by a look-up that began late enough, counted from
// when this resolver first saw the row.
func TestAbsenceIsBelievedOnlyLate(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.settleControl()
		k := w.doubtful("1001")
		r.after(0)
		r.after(watchTime - time.Millisecond)
		if row := w.row(k); row.State != zabor.Doubt {
			t.Fatalf("released %v too early: %s", time.Millisecond, row.State)
		}
		r.after(time.Minute)
		row := w.row(k)
		if row.State != zabor.Released || row.Cause != zabor.ByAbsence {
			t.Fatalf("%s by %s, want released by absence", row.State, row.Cause)
		}
		if row.Tries != 1 {
			t.Errorf("attempts=%d, want 1", row.Tries)
		}
	})
}

// A look-up that began too early proves nothing, however late its answer is.
func TestALookupThatBeganEarlyProvesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.settleControl()
		k := w.doubtful("1001")
		ask := r.Lookup
		r.Lookup = func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
			f, err := ask(ctx, row)
			r.clock = r.clock.Add(time.Hour) // the answer takes its time
			return f, err
		}
		r.after(0)
		if row := w.row(k); row.State != zabor.Doubt {
			t.Errorf("%s, want doubt", row.State)
		}
	})
}

// jumped is a database whose clock has jumped.
type jumped struct {
	zabor.Store
	by time.Duration
}

func (j jumped) Watch(ctx context.Context, w zabor.Watch) ([]zabor.Row, error) {
	rows, err := j.Store.Watch(ctx, w)
	for i := range rows {
		rows[i].ReadAt = rows[i].ReadAt.Add(j.by)
	}
	return rows, err
}

// A jump of the database's clock releases nothing early, and keeps nothing from
// being released.
func TestTheDatabasesClockJumps(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			w := newWorld(t, s)
			w.deleteAll()
			r := w.resolver()
			r.settleControl()
			e := effect("1001")
			e.HoldAfter = 10 * time.Hour
			if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatalf("error %v", err)
			}
			w.fence.Store = jumped{w.fence.Store, by}
			r.after(0)
			r.after(watchTime - time.Millisecond)
			if row := w.row(e.Key); row.State != zabor.Doubt {
				t.Errorf("jump of %s: %s before the resolver has watched it long enough", by, row.State)
			}
			r.after(time.Minute)
			if row := w.row(e.Key); row.State != zabor.Released {
				t.Errorf("jump of %s: %s, want released", by, row.State)
			}
		}
	})
}

// A database's clock that was set back by a day keeps no resolver from rows that were due,
// nor from the time that it has watched them.
func TestTheDatabasesClockIsSetBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.settleControl()
		absent, found := w.doubtful("absent"), w.doubtful("found")
		captured := effect("captured")
		w.fence.Do(t.Context(), captured, w.answers(zabor.Outcome{}))
		w.swap(w.row(captured.Key), func(row *zabor.Row) { row.State, row.Cause = zabor.Captured, zabor.ByCall })
		r.after(0)
		w.leasesEnd(-24 * time.Hour)
		for _, order := range []string{"found", "captured"} {
			r.finds[order] = zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: "pay of " + order}}
		}
		for range 4 { // a minute passes by each clock
			r.clock = r.clock.Add(time.Minute)
			if err := r.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.leasesEnd(time.Minute)
		}
		if row := w.row(absent); row.State != zabor.Released || row.Cause != zabor.ByAbsence {
			t.Errorf("%s by %s, want released by absence", row.State, row.Cause)
		}
		for _, k := range []zabor.Key{found, captured.Key} {
			if row := w.row(k); row.State != zabor.Settled {
				t.Errorf("%s is %s, want settled", k, row.State)
			}
		}
	})
}

// swapping notes how many look-ups were under way when a row was written.
type swapping struct {
	zabor.Store
	lookups *[]context.Context
	running int
}

func (s *swapping) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	for _, lookup := range *s.lookups {
		if lookup.Err() == nil {
			s.running++
		}
	}
	return s.Store.Swap(ctx, prev, next, w)
}

// Each look-up for one decision has a time of its own, and so has the write: slow ones
// decide too.
func TestSlowLookupsDecide(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	r.settleControl()
	k := w.doubtful("1001")
	r.after(0)
	var lookups []context.Context
	store := &swapping{Store: w.store, lookups: &lookups}
	w.fence.Store = store
	ask := r.Lookup
	r.Lookup = func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
		for _, before := range lookups {
			if before.Err() == nil {
				t.Error("it has the time of an earlier look-up")
			}
		}
		if until, ok := ctx.Deadline(); !ok || time.Until(until) > zabor.LookupTime {
			t.Errorf("until %v; want a bound within a lease", until)
		}
		lookups = append(lookups, ctx)
		return ask(ctx, row)
	}
	r.after(watchTime)
	if row := w.row(k); row.State != zabor.Released || row.Cause != zabor.ByAbsence || len(lookups) != 2 || store.running != 0 {
		t.Errorf("%s by %s, %d look-ups, %d under way with the write; want released by absence after 2, 0", row.State, row.Cause, len(lookups), store.running)
	}
}

// A new send starts the watch anew, also where the row was seen in doubt before.
func TestANewSendStartsTheWatchAnew(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.settleControl()
		k := w.doubtful("1001")
		r.after(0)
		r.after(watchTime - time.Millisecond)
		w.swap(w.row(k), func(row *zabor.Row) { row.State, row.Cause = zabor.Released, zabor.ByAbsence })
		w.fence.Do(t.Context(), effect("1001"), w.answers(zabor.Outcome{}))
		if row := w.row(k); row.Open.Silent != 0 {
			t.Errorf("after the second send the row was watched for %s", row.Open.Silent)
		}
		r.after(watchTime)
		if row := w.row(k); row.State != zabor.Doubt {
			t.Fatalf("%s, want doubt: the second send was not watched long enough", row.State)
		}
		r.after(watchTime)
		if row := w.row(k); row.State != zabor.Released {
			t.Errorf("%s, want released", row.State)
		}
	})
}

// The silence of a look-up that has not found a known row proves nothing: its
// credential may be that of another account.
func TestAbsenceNeedsAPositiveControl(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, prepare := range map[string]func(r *resolving){
			"no settled row":     func(*resolving) {},
			"control is absent":  func(r *resolving) { r.settleControl(); delete(r.finds, "control") },
			"control is another": func(r *resolving) { r.settleControl(); r.finds["control"] = zabor.Finding{Outcome: done} },
		} {
			w := newWorld(t, s)
			w.deleteAll()
			r := w.resolver()
			prepare(r)
			k := w.doubtful("1001")
			r.after(0)
			r.after(time.Hour)
			if row := w.row(k); row.State != zabor.Doubt {
				t.Errorf("%s: %s, want doubt", name, row.State)
			}
		}
	})
}

// A resolver leaves rows of another installation alone: the provider of that name has
// another account there, whose silence here proves nothing.
func TestAResolverLooksAtItsOwnRows(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.Scope = "shop"
		want := map[string]zabor.State{"shop": zabor.Settled, "shop/7": zabor.Settled, "shop-2": zabor.Doubt, "": zabor.Doubt}
		for scope := range want {
			e := effect("1001")
			e.Key.Scope = scope
			if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatal(err)
			}
		}
		r.finds["1001"] = zabor.Finding{Outcome: done}
		r.after(watchTime)
		for scope, state := range want {
			if row := w.row(zabor.Key{Scope: scope, Order: "1001", Step: "charge"}); row.State != state {
				t.Errorf("%s is %s, want %s", row.Key, row.State, state)
			}
		}
		if got, want := r.lookups, 2; got != want {
			t.Errorf("look-ups=%d, want %d", got, want)
		}
	})
}

// A provider that hangs delays nobody else's rows, where each provider has a resolver of
// its own.
func TestAProviderThatHangsDelaysItsOwnRows(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		rows := map[string]zabor.Key{}
		for _, provider := range []string{"hangs", "answers"} {
			e := effect("of " + provider)
			e.Provider = provider
			if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatal(err)
			}
			rows[provider] = e.Key
		}
		hanging, let, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		of := func(provider string) *resolving {
			r := w.resolver()
			r.Providers = []string{provider}
			r.finds["of hangs"], r.finds["of answers"] = zabor.Finding{Outcome: done}, zabor.Finding{Outcome: done}
			return r
		}
		slow := of("hangs")
		find := slow.Lookup
		slow.Lookup = func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
			close(hanging)
			<-let
			return find(ctx, row)
		}
		w.dueNow()
		go func() { over <- slow.Round(t.Context()) }()
		<-hanging
		quick := of("answers")
		quick.after(watchTime)
		if row := w.row(rows["answers"]); row.State != zabor.Settled {
			t.Errorf("beside a provider that hangs %s is %s, want settled", row.Key, row.State)
		}
		if row := w.row(rows["hangs"]); row.State != zabor.Doubt || quick.lookups != 1 {
			t.Errorf("%s is %s after %d look-ups by the other's resolver, want doubt, 1", row.Key, row.State, quick.lookups)
		}
		close(let)
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		if row := w.row(rows["hangs"]); row.State != zabor.Settled {
			t.Errorf("%s is %s in the end, want settled", row.Key, row.State)
		}
	})
}

// A row that another program has spoilt keeps no other from being looked at.
func TestAnUnreadableRowStopsNoOther(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		w.doubtful("bad")
		w.exec("UPDATE zabor_fences SET answer_status = 200, answer_header = '{', answer_body = order_id")
		k := w.doubtful("good")
		r.finds["good"] = zabor.Finding{Outcome: done}
		w.dueNow()
		if err := r.Round(t.Context()); !errors.Is(err, zabor.ErrUnfit) {
			t.Errorf("error %v, want %v", err, zabor.ErrUnfit)
		}
		if row := w.row(k); row.State != zabor.Settled {
			t.Errorf("beside a row that cannot be read %s is %s, want settled", k, row.State)
		}
		if err := r.Round(t.Context()); err != nil { // it has a lease as any other
			t.Errorf("the next round: %v", err)
		}
	})
}

// Look-ups leave no trace in the row: they take no lease.
func TestLookupsDoNotMoveTheRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		k := w.doubtful("1001")
		before := w.row(k)
		for range 100 {
			r.after(time.Minute)
		}
		after := w.row(k)
		if r.lookups < 100 {
			t.Fatalf("look-ups=%d, want 100", r.lookups)
		}
		if !after.Open.SendUntil.Equal(before.Open.SendUntil) || after.Claim != before.Claim {
			t.Errorf("the row moved: %v %v, was %v %v", after.Open.SendUntil, after.Claim, before.Open.SendUntil, before.Claim)
		}
	})
}

// A doubt that nothing decides is held; without a look-up that counts from the
// end of the lease.
func TestDoubtEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for _, lookup := range []bool{true, false} {
			w := newWorld(t, s)
			w.deleteAll()
			r := w.resolver()
			e := effect("1001")
			e.HoldAfter = time.Microsecond
			e.Timeout = time.Millisecond
			e.AbsentAfter = time.Microsecond
			if !lookup {
				e.AbsentAfter = 0
			}
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
			r.after(0)
			if row := w.row(e.Key); row.State != zabor.Doubt {
				t.Fatalf("look-up %v: %s before the lease has ended, want doubt", lookup, row.State)
			}
			waitFor(t, "hold", func() bool {
				r.after(time.Second)
				return w.row(e.Key).State == zabor.Held
			})
			if n, _ := w.alerted("held"); n != 1 {
				t.Errorf("look-up %v: alerts=%d, want 1", lookup, n)
			}
			if asked := r.lookups > 0; asked != lookup {
				t.Errorf("look-up %v: asked %d times", lookup, r.lookups)
			}
		}
	})
}

// A worker that died leaves a captured row: doubt once its lease has ended.
func TestACapturedRowOfADeadWorkerBecomesDoubt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		e := effect("1001")
		e.Timeout = time.Millisecond
		inCall, end := make(chan struct{}), make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.fence.Do(context.WithoutCancel(t.Context()), e, func(context.Context, zabor.Row) zabor.Outcome {
				close(inCall)
				<-end // as good as dead
				return done
			})
		}()
		<-inCall
		r.after(0)
		if row := w.row(e.Key); row.State != zabor.Captured {
			t.Fatalf("%s while the lease runs, want captured", row.State)
		}
		waitFor(t, "doubt", func() bool {
			r.after(0)
			return w.row(e.Key).State == zabor.Doubt
		})
		// And its success is saved all the same.
		close(end)
		<-ended
		if row := w.row(e.Key); row.State != zabor.Settled || row.Reference != "pay_1" {
			t.Errorf("%s %q, want settled pay_1", row.State, row.Reference)
		}
	})
}

// waitFor polls until ok; the time between is the condition's own.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for: %s", what)
		}
	}
}
