package zabor_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

func TestMain(m *testing.M) { servers.Main(m) }

// eachStore runs test on a fresh table of every database.
func eachStore(t *testing.T, test func(t *testing.T, s *sqlstore.Store)) {
	t.Parallel()
	addresses := map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "fence.db") },
		"mariadb":  func(t *testing.T) string { return servers.MariaDB(t) },
		"postgres": func(t *testing.T) string { return servers.Postgres(t) },
	}
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openStore(t, address(t)))
		})
	}
}

func openStore(t *testing.T, address string) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// world is a fence on a store, with a provider that does what it is told.
type world struct {
	t     *testing.T
	store *sqlstore.Store
	fence *zabor.Fence

	mu     sync.Mutex
	calls  int
	alerts []zabor.Alert
}

func newWorld(t *testing.T, s *sqlstore.Store) *world {
	w := &world{t: t, store: s}
	w.restart()
	return w
}

// restart gives w the fence of a new process, which has seen no call yet.
func (w *world) restart() {
	w.fence = &zabor.Fence{Store: w.store, Secret: make([]byte, zabor.MinSecret), Observer: zabor.Observer{Alert: w.alert}}
}

func (w *world) alert(a zabor.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alerts = append(w.alerts, a)
}

// alerted counts the alerts of a code, and the critical ones among them.
func (w *world) alerted(code string) (all, critical int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.alerts {
		if a.Code == code {
			all++
			if a.Severity == zabor.Critical {
				critical++
			}
		}
	}
	return all, critical
}

// paid has the first key of each store's references.
var paid sync.Map

// answers makes a call that ends with o at once.
func (w *world) answers(o zabor.Outcome) zabor.Call {
	return func(_ context.Context, row zabor.Row) zabor.Outcome {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls++
		if o.Reference != "" { // two orders share none
			first, _ := paid.LoadOrStore([2]any{w.store, o.Reference}, row.Key)
			if k := first.(zabor.Key); k.Order != row.Order || k.Scope != row.Scope {
				o.Reference += " of " + row.Scope + row.Order
			}
		}
		return o
	}
}

func (w *world) row(k zabor.Key) zabor.Row {
	w.t.Helper()
	row, err := w.store.Load(w.t.Context(), k)
	if err != nil {
		w.t.Fatal(err)
	}
	return row
}

func (w *world) deleteAll() {
	w.t.Helper()
	for _, table := range []string{"zabor_fences", "zabor_references"} {
		if _, err := w.store.DB().ExecContext(w.t.Context(), "DELETE FROM "+table); err != nil {
			w.t.Fatal(err)
		}
	}
}

// swap makes a write of row as anybody may who has read it.
func (w *world) swap(row zabor.Row, change func(*zabor.Row)) zabor.Row {
	w.t.Helper()
	next := row
	next.Claim.Epoch++
	next.Claim.ID[0]++
	change(&next)
	if err := w.store.Swap(w.t.Context(), row, next, zabor.Write{}); err != nil {
		w.t.Fatal(err)
	}
	return w.row(row.Key)
}

var done = zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1", Answer: &zabor.Answer{Status: 200, Body: []byte(`{"id":"pay_1"}`)}}

func effect(order string) zabor.Effect {
	return zabor.Effect{
		Key:      zabor.Key{Scope: "shop", Order: order, Step: "charge"},
		Provider: "acquirer", Amount: zabor.Money{Minor: 1999, Currency: "EUR"},
		Fingerprint: zabor.Fingerprint{Message: "m1", Request: "f1"},
		Render:      func(k zabor.ProviderKeys, _ string) ([]byte, error) { return []byte("pay with " + k.Request), nil },
		Timeout:     time.Second, MaxAttempts: 3, AbsentAfter: time.Second, HoldAfter: time.Hour, PendingFor: time.Hour,
		MissingRow: zabor.Captured,
	}
}

func TestTheSecondDeliveryDoesNotCall(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		for range 2 {
			row, err := w.fence.Do(t.Context(), effect("1001"), w.answers(done))
			if err != nil {
				t.Fatal(err)
			}
			if row.State != zabor.Settled || row.Reference != "pay_1" || string(row.Answer.Body) != `{"id":"pay_1"}` {
				t.Fatalf("row is %s %q %v, want settled pay_1 with its answer", row.State, row.Reference, row.Answer)
			}
		}
		if w.calls != 1 {
			t.Fatalf("calls=%d, want 1", w.calls)
		}
		if row := w.row(effect("1001").Key); row.Open.Request != nil || row.ClosedAt().IsZero() {
			t.Errorf("a closed row keeps its request %q, settled at %v", row.Open.Request, row.ClosedAt())
		}
	})
}

func TestOfManyAtOnceOneCalls(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		e.Timeout = time.Minute
		const n = 32
		var wg sync.WaitGroup
		var calls, busy, acked atomic.Int32
		inCall := make(chan struct{})
		for range n {
			wg.Go(func() {
				_, err := w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
					calls.Add(1)
					<-inCall
					return done
				})
				switch {
				case err == nil:
					acked.Add(1)
				case errors.Is(err, zabor.ErrBusy):
					if busy.Add(1) == n-1 {
						close(inCall)
					}
				default:
					t.Errorf("unexpected error: %v", err)
				}
			})
		}
		wg.Wait()
		if calls.Load() != 1 || acked.Load() != 1 {
			t.Errorf("calls=%d acked=%d, want 1 and 1", calls.Load(), acked.Load())
		}
	})
}

// Every outcome's error says what becomes of the message.
func TestWhatTheWorkerIsTold(t *testing.T) {
	tests := []struct {
		outcome zabor.Outcome
		want    error
		state   zabor.State
		next    error // of the delivery after it
	}{
		{done, nil, zabor.Settled, nil},
		{zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1"}, nil, zabor.Pending, nil},
		{zabor.Outcome{Verdict: zabor.Refused}, nil, zabor.Declined, nil},
		{zabor.Outcome{Verdict: zabor.Malformed}, zabor.ErrMalformed, zabor.Declined, zabor.ErrMalformed},
		{zabor.Outcome{Verdict: zabor.Unsent}, zabor.ErrReleased, zabor.Released, zabor.ErrPaused},
		{zabor.Outcome{Verdict: zabor.TurnedAway}, zabor.ErrReleased, zabor.Released, zabor.ErrPaused},
		{zabor.Outcome{Verdict: zabor.Misdirected}, zabor.ErrHeld, zabor.Held, zabor.ErrHeld},
		{zabor.Outcome{}, zabor.ErrInDoubt, zabor.Doubt, zabor.ErrInDoubt},
	}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		for i, tt := range tests {
			e := effect(fmt.Sprint(i))
			e.Provider += fmt.Sprint(i)
			_, err := w.fence.Do(t.Context(), e, w.answers(tt.outcome))
			if !errors.Is(err, tt.want) {
				t.Errorf("%v: error %v, want %v", tt.outcome.Verdict, err, tt.want)
			}
			if got := w.row(e.Key).State; got != tt.state {
				t.Errorf("%v: state %s, want %s", tt.outcome.Verdict, got, tt.state)
			}
			if _, err := w.fence.Do(t.Context(), e, w.answers(tt.outcome)); !errors.Is(err, tt.next) {
				t.Errorf("%v, delivered again: error %v, want %v", tt.outcome.Verdict, err, tt.next)
			}
		}
	})
}

// A success is saved in whatever state its row is by then.
func TestALateSuccessIsSavedInEveryState(t *testing.T) {
	tests := []struct {
		name     string
		meanwile func(w *world, row zabor.Row)
		code     string // of the critical alert; empty: none
	}{
		{"released by absence", func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence })
		}, ""},
		{"released by a person", func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByPerson })
		}, "late-success"},
		{"held", func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Held, zabor.ByExpiry })
		}, ""},
		{"declined by a person", func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Declined, zabor.ByPerson })
		}, "late-success"},
		{"doubt", func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Doubt, zabor.ByExpiry })
		}, ""},
		{"captured by another", func(w *world, row zabor.Row) {
			row = w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence })
			w.swap(row, func(r *zabor.Row) { r.State, r.Tries = zabor.Captured, 2 })
		}, ""},
		{"a state of a later version", func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State = "later-version" })
		}, ""},
		{"no row", func(w *world, row zabor.Row) { w.deleteAll() }, "row-vanished"},
	}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for _, tt := range tests {
			w := newWorld(t, s)
			w.deleteAll()
			e := effect(tt.name)
			row, err := w.fence.Do(t.Context(), e, func(ctx context.Context, row zabor.Row) zabor.Outcome {
				tt.meanwile(w, w.row(row.Key))
				return done
			})
			if err != nil || row.State != zabor.Settled {
				t.Errorf("%s: %s, %v; want settled and no error", tt.name, row.State, err)
			}
			if got := w.row(e.Key); got.State != zabor.Settled || got.Reference != "pay_1" {
				t.Errorf("%s: the table has %s %q, want settled pay_1", tt.name, got.State, got.Reference)
			}
			for _, code := range []string{"late-success", "row-vanished"} {
				_, critical := w.alerted(code)
				if want := tt.code == code; (critical == 1) != want {
					t.Errorf("%s: %d critical alerts %s, want one: %v", tt.name, critical, code, want)
				}
			}
		}
	})
}

// A late no of an older claim changes nothing, and is noted.
func TestALateRefusalChangesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		var second zabor.Row
		_, err := w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			row := w.swap(w.row(e.Key), func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence })
			second = w.swap(row, func(r *zabor.Row) { r.State, r.Tries, r.Open.Send = zabor.Captured, 2, [16]byte{2} })
			return zabor.Outcome{Verdict: zabor.Refused, Reason: "card declined"}
		})
		if !errors.Is(err, zabor.ErrBusy) {
			t.Errorf("error %v, want %v", err, zabor.ErrBusy)
		}
		if got := w.row(e.Key); got.Claim != second.Claim || got.State != zabor.Captured {
			t.Errorf("the row is %s %v, want captured %v", got.State, got.Claim, second.Claim)
		}
		notes, err := s.History().Of(t.Context(), e.Key)
		if err != nil || len(notes) != 1 {
			t.Fatalf("%d notes, %v; want one", len(notes), err)
		}
	})
}

func TestTwoReferencesAreBothKept(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		_, err := w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			w.swap(w.row(e.Key), func(r *zabor.Row) { r.State, r.Reference = zabor.Settled, "pay_0" })
			return done
		})
		if err != nil {
			t.Fatal(err)
		}
		got := w.row(e.Key)
		if got.Reference != "pay_0" || got.OtherReference != "pay_1" || got.State != zabor.Settled {
			t.Errorf("%s %q %q, want settled pay_0 pay_1", got.State, got.Reference, got.OtherReference)
		}
		if _, critical := w.alerted("two-references"); critical != 1 {
			t.Errorf("critical alerts=%d, want 1", critical)
		}
		// The same one again says nothing new.
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil {
			t.Fatal(err)
		}
		if again := w.row(e.Key); again.Claim != got.Claim {
			t.Errorf("the row was written again: %v, was %v", again.Claim, got.Claim)
		}
	})
}

// The row has room for two; a third one is told of and noted.
func TestAThirdReferenceIsNotLost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		_, err := w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			w.swap(w.row(e.Key), func(r *zabor.Row) {
				r.State, r.Reference, r.OtherReference = zabor.Settled, "pay_8", "pay_9"
			})
			return done
		})
		if err != nil {
			t.Fatal(err)
		}
		notes, err := s.History().Of(t.Context(), e.Key)
		if err != nil {
			t.Fatal(err)
		}
		noted := slices.ContainsFunc(notes, func(n zabor.Note) bool { return strings.Contains(n.Text, "pay_1") })
		if _, critical := w.alerted("two-references"); critical != 1 || !noted {
			t.Errorf("%d critical alerts, notes %+v; want one, and pay_1 in a note", critical, notes)
		}
		if row := w.row(e.Key); row.State != zabor.Settled || row.Reference != "pay_8" || row.OtherReference != "pay_9" {
			t.Errorf("%s %q %q, want the two as they were", row.State, row.Reference, row.OtherReference)
		}
	})
}

// A message that was delivered before and finds no row may have been called for.
func TestAMissingRowIsDoubt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for missing, want := range map[zabor.State]error{zabor.Doubt: zabor.ErrInDoubt, zabor.Held: zabor.ErrHeld} {
			w := newWorld(t, s)
			e := effect("order " + string(missing))
			e.MissingRow = missing
			_, err := w.fence.Do(t.Context(), e, w.answers(done))
			if !errors.Is(err, want) || w.calls != 0 {
				t.Errorf("missing row as %s: error %v calls=%d, want %v and 0", missing, err, w.calls, want)
			}
			if row := w.row(e.Key); row.State != missing || row.Tries != 1 || !row.Open.SendUntil.After(row.ReadAt) {
				t.Errorf("missing row as %s: row %s, attempts %d, may send until %v", missing, row.State, row.Tries, row.Open.SendUntil)
			}
		}
	})
}

// A row that is inserted as held has the shop told: the hook of the capture runs
// with it, that of the hold is due.
func TestAMissingRowThatIsHeldTellsTheShop(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		if _, err := s.DB().ExecContext(t.Context(), "CREATE TABLE told (state VARCHAR(20))"); err != nil {
			t.Fatal(err)
		}
		for _, broken := range []bool{false, true} {
			w := newWorld(t, s)
			w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
				table := "told"
				if broken && row.State == zabor.Captured {
					table = "nowhere"
				}
				return &zabor.Hook{Name: string(row.State), SQL: fmt.Sprintf("INSERT INTO %s VALUES ('%s')", table, row.State), Rows: 1}, nil
			}
			e := effect(fmt.Sprint(broken))
			e.MissingRow = zabor.Held
			if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrHookDue) || w.calls != 0 {
				t.Errorf("error %v calls=%d, want ErrHookDue and 0", err, w.calls)
			}
			r := zabor.Resolver{Fence: w.fence}
			w.dueNow()
			if err := r.Round(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrHeld) || w.calls != 0 {
				t.Errorf("error %v calls=%d, want ErrHeld and 0", err, w.calls)
			}
			row := w.row(e.Key)
			if row.Open.HookDone == broken || !strings.Contains(row.Reason, "another worker had the message") || strings.Contains(row.Reason, "nowhere") != broken {
				t.Errorf("hooked %t, reason %q", row.Open.HookDone, row.Reason)
			}
		}
		var n int
		if err := s.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM told").Scan(&n); err != nil || n != 3 {
			t.Errorf("told %d times, %v; want captured once and held twice", n, err)
		}
	})
}

// An import holds what has no row, and nothing else.
func TestImport(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		settled := effect("settled")
		if _, err := w.fence.Do(t.Context(), settled, w.answers(done)); err != nil {
			t.Fatal(err)
		}
		bare := zabor.Effect{Key: effect("bare").Key, Fingerprint: zabor.Fingerprint{Message: "m1"}}
		for _, tt := range []struct {
			name     string
			e        zabor.Effect
			inserted bool
			state    zabor.State
		}{
			{"no row", effect("new"), true, zabor.Held},
			{"again", effect("new"), false, zabor.Held},
			{"settled", settled, false, zabor.Settled},
			{"a request that cannot be made", bare, true, zabor.Held},
		} {
			row, inserted, err := w.fence.Import(t.Context(), tt.e, "PHP had it")
			if err != nil || inserted != tt.inserted || row.State != tt.state {
				t.Errorf("%s: %s inserted=%t, %v; want %s, %t", tt.name, row.State, inserted, err, tt.state, tt.inserted)
			}
		}
		if len(w.alerts) > 0 {
			t.Errorf("alerts %v", w.alerts)
		}
		for _, order := range []string{"new", "bare"} {
			if _, err := w.fence.Do(t.Context(), effect(order), w.answers(done)); !errors.Is(err, zabor.ErrHeld) {
				t.Errorf("order %s: %v, want ErrHeld", order, err)
			}
			row := w.row(effect(order).Key)
			if row.Cause != zabor.ByImport || row.Reason != "PHP had it" || row.Tries != 1 || row.ProviderKey == "" || !row.Open.ReplayUntil.IsZero() {
				t.Errorf("order %s: %+v", order, row)
			}
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for later := time.Now().Add(30 * time.Second); ; <-tick.C { // not before nobody can have sent any more
				d := zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release, By: "ops", Reason: "not there", CheckedProvider: true}
				_, err := w.fence.Decide(t.Context(), d)
				if err == nil {
					break
				}
				if !errors.Is(err, zabor.ErrRefused) || time.Now().After(later) {
					t.Fatal(err)
				}
			}
			if row, err := w.fence.Do(t.Context(), effect(order), w.answers(done)); err != nil || row.State != zabor.Settled {
				t.Errorf("order %s after its release: %s, %v", order, row.State, err)
			}
		}
		if w.calls != 3 {
			t.Errorf("calls=%d, want 3", w.calls)
		}
		if _, _, err := w.fence.Import(t.Context(), zabor.Effect{}, "x"); err == nil {
			t.Error("no error without a key")
		}
	})
}

// A row that vanishes at any step is written again by whoever still knows of it,
// or met as missing by the next delivery; nobody calls for free.
func TestAVanishedRowIsNotFree(t *testing.T) {
	outcomes := map[zabor.State]zabor.Outcome{
		zabor.Declined: {Verdict: zabor.Refused, Reason: "card declined"},
		zabor.Doubt:    {},
		zabor.Held:     {Verdict: zabor.Misdirected},
		zabor.Released: {Verdict: zabor.Unsent},
	}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for state, o := range outcomes {
			w := newWorld(t, s)
			e := effect("order " + string(state))
			w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
				w.deleteAll()
				return o
			})
			if got := w.row(e.Key); got.State != zabor.Doubt || got.Cause != zabor.ByMissingRow {
				t.Errorf("%s: row %s by %s, want doubt by %s: the row of another call may have vanished too", state, got.State, got.Cause, zabor.ByMissingRow)
			}
		}
	})
}

func TestAStateOfALaterVersionIsHeld(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
		w.swap(w.row(e.Key), func(r *zabor.Row) { r.State = "later-version" })
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrHeld) || w.calls != 1 {
			t.Errorf("error %v, calls %d; want %v and no call", err, w.calls, zabor.ErrHeld)
		}
	})
}

// The same key with another request is refused before its state is looked at.
func TestAnotherRequestUnderTheKey(t *testing.T) {
	type change struct {
		outcome  zabor.Outcome
		message  string
		full     string
		want     error
		state    zabor.State
		alert    bool
		newCalls int
	}
	tests := map[string]change{
		"settled, other message":   {done, "m2", "f2", zabor.ErrOtherRequest, zabor.Settled, true, 0},
		"settled, loaded row":      {done, "m1", "f2", nil, zabor.Settled, false, 0},
		"pending, loaded row":      {zabor.Outcome{Verdict: zabor.Begun, Reference: "p"}, "m1", "f2", nil, zabor.Pending, false, 0},
		"declined, other message":  {zabor.Outcome{Verdict: zabor.Refused}, "m2", "f2", zabor.ErrOtherRequest, zabor.Declined, true, 0},
		"declined, loaded row":     {zabor.Outcome{Verdict: zabor.Refused}, "m1", "f2", zabor.ErrOtherRequest, zabor.Declined, true, 0},
		"doubt, other message":     {zabor.Outcome{}, "m2", "f2", zabor.ErrOtherRequest, zabor.Doubt, true, 0},
		"doubt, loaded row":        {zabor.Outcome{}, "m1", "f2", zabor.ErrInDoubt, zabor.Doubt, false, 0},
		"nothing sent, other all":  {zabor.Outcome{Verdict: zabor.Unsent}, "m2", "f2", nil, zabor.Settled, false, 1},
		"turned away, loaded row":  {zabor.Outcome{Verdict: zabor.TurnedAway}, "m1", "f2", nil, zabor.Settled, false, 1},
		"turned away, same again":  {zabor.Outcome{Verdict: zabor.TurnedAway}, "m1", "f1", nil, zabor.Settled, false, 1},
		"misdirected, other bytes": {zabor.Outcome{Verdict: zabor.Misdirected}, "m1", "f2", zabor.ErrHeld, zabor.Held, false, 0},
	}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, tt := range tests {
			w := newWorld(t, s)
			e := effect(name)
			w.fence.Do(t.Context(), e, w.answers(tt.outcome))
			e.Fingerprint = zabor.Fingerprint{Message: tt.message, Request: tt.full}
			w.restart()
			_, err := w.fence.Do(t.Context(), e, w.answers(done))
			if !errors.Is(err, tt.want) || w.calls-1 != tt.newCalls {
				t.Errorf("%s: error %v, %d more calls; want %v and %d", name, err, w.calls-1, tt.want, tt.newCalls)
			}
			if got := w.row(e.Key).State; got != tt.state {
				t.Errorf("%s: state %s, want %s", name, got, tt.state)
			}
			if n, _ := w.alerted("other-request"); (n == 1) != tt.alert {
				t.Errorf("%s: %d alerts, want one: %v", name, n, tt.alert)
			}
		}
	})
}

// What was released by absence keeps its key and its request: other bytes under
// that key are for a person.
func TestReleasedByAbsence(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
		absent := func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence }
		before := w.swap(w.row(e.Key), absent)

		other := e
		other.Fingerprint.Request = "f2"
		if _, err := w.fence.Do(t.Context(), other, w.answers(done)); !errors.Is(err, zabor.ErrHeld) || w.calls != 1 {
			t.Fatalf("other bytes: %v, calls %d; want held and no call", err, w.calls)
		}
		w.swap(w.row(e.Key), absent)

		var sent string
		_, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			sent = string(row.Open.Request)
			return done
		})
		if err != nil {
			t.Fatal(err)
		}
		after := w.row(e.Key)
		if sent != string(before.Open.Request) || after.ProviderKey != before.ProviderKey || after.Generation != 1 {
			t.Errorf("sent %q under generation %d, want %q under 1", sent, after.Generation, before.Open.Request)
		}
		if after.Tries != 2 {
			t.Errorf("attempts=%d, want 2", after.Tries)
		}
	})
}

// Attempts are counted in the row; each parking allows exactly one more call.
func TestAttemptsAndParking(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		e.MaxAttempts, e.Messages = 2, [2]string{"message 2", "message 1"}
		try := func(want error, calls int) {
			t.Helper()
			w.restart()
			if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, want) || w.calls != calls {
				t.Fatalf("error %v, calls=%d; want %v, %d", err, w.calls, want, calls)
			}
			if row := w.row(e.Key); row.State == zabor.Doubt {
				w.swap(row, func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence })
			}
		}
		// Calls that surely did nothing spend none.
		for range 5 {
			w.restart()
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent}))
		}
		w.calls = 0
		try(zabor.ErrInDoubt, 1)
		try(zabor.ErrInDoubt, 2)
		try(zabor.ErrSpent, 2)
		try(zabor.ErrSpent, 2)
		for range 2 {
			if err := w.fence.Parked(t.Context(), e.Key, "message 1"); err != nil {
				t.Fatal(err)
			}
			w.calls = 0
			try(zabor.ErrInDoubt, 1)
			try(zabor.ErrSpent, 1)
		}
	})
}

// While a provider does nothing with what it is sent, no row is written for
// what has none, and what is done already is acked from its row.
func TestAPausedProvider(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		if _, err := w.fence.Do(t.Context(), effect("done"), w.answers(done)); err != nil {
			t.Fatal(err)
		}
		w.fence.Do(t.Context(), effect("refused"), w.answers(zabor.Outcome{Verdict: zabor.Unsent, Reason: "connection refused"}))
		if n, _ := w.alerted("provider-paused"); n != 1 {
			t.Errorf("alerts=%d, want 1", n)
		}
		for order, want := range map[string]error{"done": nil, "refused": zabor.ErrPaused, "new": zabor.ErrPaused} {
			if _, err := w.fence.Do(t.Context(), effect(order), w.answers(done)); !errors.Is(err, want) {
				t.Errorf("%s: error %v, want %v", order, err, want)
			}
		}
		if w.calls != 2 {
			t.Errorf("calls=%d, want 2", w.calls)
		}
		if _, err := s.Load(t.Context(), effect("new").Key); !errors.Is(err, zabor.ErrNoRow) {
			t.Errorf("a row was written: %v", err)
		}
	})
}

// Saving is not cancelled, and what cannot be saved in time becomes doubt by
// itself; the reference is in a critical alert.
func TestSavingIsNotCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		ctx, cancel := context.WithCancel(t.Context())
		row, err := w.fence.Do(ctx, e, func(callCtx context.Context, _ zabor.Row) zabor.Outcome {
			cancel()
			if callCtx.Err() != nil {
				t.Error("a stop cancelled the call")
			}
			return done
		})
		if err != nil || row.State != zabor.Settled {
			t.Fatalf("%s, %v; want settled", row.State, err)
		}

		e = effect("1002")
		w.fence.SaveTimeout = 50 * time.Millisecond
		_, err = w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			s.Close()
			return done
		})
		if !errors.Is(err, zabor.ErrInDoubt) {
			t.Errorf("error %v, want %v", err, zabor.ErrInDoubt)
		}
		if _, critical := w.alerted("unsaved"); critical != 1 {
			t.Errorf("critical alerts=%d, want 1 with the reference", critical)
		}
	})
}

// The deadline of a call is counted from before the capture.
func TestTheDeadlineCountsFromBeforeTheCapture(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := effect("1001")
		var start time.Time
		w.fence.At = func(m zabor.Checkpoint, _ zabor.Key) {
			if m == zabor.Capturing {
				start = time.Now()
			}
		}
		w.fence.Do(t.Context(), e, func(ctx context.Context, row zabor.Row) zabor.Outcome {
			deadline, ok := ctx.Deadline()
			if !ok || deadline.After(start.Add(e.Timeout)) {
				t.Errorf("deadline %v after the start, want at most %v", deadline.Sub(start), e.Timeout)
			}
			if row := w.row(e.Key); row.Open.Lease <= e.Timeout {
				t.Errorf("lease %v, not longer than the call's %v", row.Open.Lease, e.Timeout)
			}
			return done
		})
	})
}

// A success that the database could not take is in the journal, and is saved
// from there by the next process before it takes a message.
func TestTheJournal(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]struct {
		server  func(testing.TB) *servers.Server
		address func(testing.TB, *servers.Server) string
	}{
		"mariadb":  {servers.OwnMariaDB, servers.MariaDBDatabase},
		"postgres": {servers.OwnPostgres, servers.PostgresDatabase},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start.server(t)
			w := newWorld(t, openStore(t, start.address(t, server)))
			dir := t.TempDir()
			journal, err := zabor.OpenJournal(dir)
			if err != nil {
				t.Fatal(err)
			}
			w.fence.Journal = journal
			w.fence.SaveTimeout = 100 * time.Millisecond
			if n, err := w.fence.ReplayJournal(t.Context()); n != 0 || err != nil {
				t.Fatalf("an empty journal: %d saved, %v", n, err)
			}
			e := effect("1001")
			_, err = w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
				server.Kill()
				return done
			})
			if !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatalf("error %v, want %v", err, zabor.ErrInDoubt)
			}
			if n, err := w.fence.ReplayJournal(t.Context()); n != 0 || err == nil {
				t.Fatalf("while the database is away: %d saved, %v; want none and an error", n, err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			w.restart()
			w.fence.Journal = journal
			for _, want := range []int{1, 0} {
				if n, err := w.fence.ReplayJournal(t.Context()); n != want || err != nil {
					t.Fatalf("%d saved, %v; want %d", n, err, want)
				}
			}
			row, err := w.fence.Do(t.Context(), e, w.answers(done))
			if err != nil || row.Reference != "pay_1" || w.calls != 0 {
				t.Errorf("%s %q, %v, %d calls; want settled pay_1 without a call", row.State, row.Reference, err, w.calls)
			}
			if _, critical := w.alerted("unsaved"); critical != 0 {
				t.Errorf("critical alerts=%d, want none: the success was kept", critical)
			}
		})
	}
}

// A row inserted for a first delivery, by a worker that slept until the queue
// gave the message to another, is no proof that nothing was done: the other's
// row may be lost.
func TestAFirstDeliveryThatTookTooLong(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, tt := range map[string]struct {
			until time.Time
			state zabor.State
		}{
			"reserved":        {time.Now().Add(time.Hour), zabor.Released},
			"never given on":  {time.Time{}, zabor.Released},
			"given to others": {time.Now().Add(-time.Second), zabor.Doubt},
		} {
			w := newWorld(t, s)
			e := effect(name)
			e.ReservedUntil = tt.until
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent, Reason: "too late"}))
			if row := w.row(e.Key); row.State != tt.state {
				t.Errorf("%s: %s, want %s", name, row.State, tt.state)
			}
			// Found by somebody before, it is that row which counts.
			w.restart()
			e = effect(name + " again")
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent}))
			w.restart()
			e.ReservedUntil = tt.until
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent}))
			if row := w.row(e.Key); row.State != zabor.Released {
				t.Errorf("%s, second delivery: %s, want released", name, row.State)
			}
		}
	})
}
