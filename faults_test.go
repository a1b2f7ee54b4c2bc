package zabor_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// Another request that is parked while a call is under way says nothing about the call:
// its definite answer decides (fault 10), and raises nothing (fault 11).
func TestParkingTakesNoClaim(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, tt := range map[string]struct {
			o     zabor.Outcome
			state zabor.State
			tries int
		}{
			"declined":    {zabor.Outcome{Verdict: zabor.Refused, Reason: "no money"}, zabor.Declined, 1},
			"unsent":      {zabor.Outcome{Verdict: zabor.Unsent, Reason: "no connection"}, zabor.Released, 0},
			"turned away": {zabor.Outcome{Verdict: zabor.TurnedAway, Reason: "429"}, zabor.Released, 0},
			"no answer":   {zabor.Outcome{}, zabor.Doubt, 1},
		} {
			w := newWorld(t, s)
			e := effect(name)
			w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
				other := e
				other.Fingerprint = zabor.Fingerprint{Message: "m2", Request: "f2"}
				for _, id := range []string{"other 1", "other 2", "other 3"} {
					if _, err := w.fence.Do(t.Context(), other, w.answers(done)); !errors.Is(err, zabor.ErrOtherRequest) {
						t.Errorf("%s: another request: %v", name, err)
					}
					if err := w.fence.Parked(t.Context(), e.Key, id); err != nil {
						t.Error(err)
					}
				}
				return tt.o
			})
			row := w.row(e.Key)
			if row.State != tt.state || row.Tries != tt.tries || w.calls != 0 {
				t.Errorf("%s: %s after %d tries, %d calls of others; want %s, %d, 0", name, row.State, row.Tries, w.calls, tt.state, tt.tries)
			}
			if row.Parked != "other 3" {
				t.Errorf("%s: the call's write has taken the mark %q", name, row.Parked)
			}
		}
	})
}

// The «no» to the only send decides, however late it comes (fault 12), and not after a
// person has.
func TestALateNoDecides(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, tt := range map[string]struct {
			meanwhile func(*zabor.Row)
			o         zabor.Outcome
			state     zabor.State
		}{
			"doubt, declined":            {func(r *zabor.Row) { r.State, r.Cause = zabor.Doubt, zabor.ByExpiry }, zabor.Outcome{Verdict: zabor.Refused}, zabor.Declined},
			"doubt, unsent":              {func(r *zabor.Row) { r.State, r.Cause = zabor.Doubt, zabor.ByExpiry }, zabor.Outcome{Verdict: zabor.Unsent}, zabor.Released},
			"held, declined":             {func(r *zabor.Row) { r.State, r.Cause = zabor.Held, zabor.ByExpiry }, zabor.Outcome{Verdict: zabor.Refused}, zabor.Declined},
			"held by a person, declined": {func(r *zabor.Row) { r.State, r.Cause = zabor.Held, zabor.ByPerson }, zabor.Outcome{Verdict: zabor.Refused}, zabor.Held},
			"released, unsent":           {func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence }, zabor.Outcome{Verdict: zabor.Unsent}, zabor.Released},
		} {
			w := newWorld(t, s)
			e := effect(name)
			w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
				w.swap(w.row(e.Key), tt.meanwhile)
				return tt.o
			})
			if row := w.row(e.Key); row.State != tt.state {
				t.Errorf("%s: %s, want %s", name, row.State, tt.state)
			}
		}
	})
}

// A row whose hook or first request failed may not have acted: it takes another amount
// and is called, and is not held «under the same provider key» (fault 16).
func TestARowThatSentNothingTakesAnotherAmount(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, e := range map[string]zabor.Effect{"hook": effect("hook"), "first request": twoStep("first request")} {
			w := newWorld(t, s)
			fails := name == "hook"
			w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
				if row.State == zabor.Captured && fails {
					return nil, errors.New("no such order")
				}
				return nil, nil
			}
			if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrReleased) {
				t.Fatalf("%s: %v", name, err)
			}
			if row := w.row(e.Key); row.MayHaveActed() || row.Tries != 1 {
				t.Errorf("%s: unproven %d, tries %d; want 0, 1", name, row.Unproven, row.Tries)
			}
			fails, e.Prepare = false, nil
			e.Fingerprint, e.Amount.Minor = zabor.Fingerprint{Message: "m2", Request: "f2"}, 2999
			w.restartKeeping()
			if row, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || row.State != zabor.Settled || row.Amount.Minor != 2999 {
				t.Errorf("%s: %s, %v; want the other amount charged", name, row.State, err)
			}
		}
	})
}

// restartKeeping is restart with the hook of before.
func (w *world) restartKeeping() {
	hook := w.fence.Hook
	w.restart()
	w.fence.Hook = hook
}

// Two orders with one reference: the second is saved with it and held, its message is
// parked, and a person is told at once (fault 8).
func TestOneReferenceSettlesOneOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		same := func(context.Context, zabor.Row) zabor.Outcome { return done }
		if _, err := w.fence.Do(t.Context(), effect("1001"), same); err != nil {
			t.Fatal(err)
		}
		row, err := w.fence.Do(t.Context(), effect("1002"), same)
		if !errors.Is(err, zabor.ErrHeld) || !zabor.Park(err) || row.State != zabor.Held || row.Cause != zabor.ByConflict || row.Reference != "pay_1" {
			t.Errorf("%s by %s %q, %v; want held by conflict with pay_1", row.State, row.Cause, row.Reference, err)
		}
		if _, critical := w.alerted("conflict"); critical != 1 {
			t.Errorf("%d critical alerts, want 1", critical)
		}
		if row := w.row(effect("1001").Key); row.State != zabor.Settled {
			t.Errorf("the first is %s", row.State)
		}
		other := effect("1001") // another step of the first order may
		other.Key.Step = "capture"
		if row, err := w.fence.Do(t.Context(), other, same); err != nil || row.State != zabor.Settled {
			t.Errorf("another step of one order: %s, %v", row.State, err)
		}
		// A person is told so too.
		held := w.doubtful("1003")
		_, err = w.decide(zabor.Decision{Key: held, Seen: w.row(held).Claim, Action: zabor.Settle, Reference: "pay_1"})
		if !errors.Is(err, zabor.ErrRefused) || !strings.Contains(err.Error(), "1001") {
			t.Errorf("settled by hand with another order's reference: %v", err)
		}
	})
}

// away is a store whose writes or reads fail for a while.
type away struct {
	zabor.Store
	insert, load, watch int // failures to come
}

func (a *away) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	if a.insert > 0 {
		a.insert--
		return zabor.Row{}, errAway
	}
	return a.Store.Insert(ctx, row, w)
}

func (a *away) Load(ctx context.Context, k zabor.Key) (zabor.Row, error) {
	if a.load > 0 {
		a.load--
		return zabor.Row{}, errAway
	}
	return a.Store.Load(ctx, k)
}

func (a *away) Watch(ctx context.Context, w zabor.Watch) ([]zabor.Row, error) {
	if a.watch > 0 {
		a.watch--
		return nil, errAway
	}
	return a.Store.Watch(ctx, w)
}

// A database that is away for a moment while an outcome is saved loses none: not where
// the row has moved on, and not where it has vanished.
func TestSavingGoesOnAfterAnOutage(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for _, o := range []zabor.Outcome{done, {Verdict: zabor.Refused, Reason: "no money"}} {
			for name, vanish := range map[string]bool{"moved on": false, "vanished": true} {
				w := newWorld(t, s)
				w.deleteAll()
				store := &away{Store: s}
				w.fence.Store, w.fence.SaveTimeout = store, 5*time.Second
				e := effect("1001")
				w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
					store.load = 1
					if vanish {
						w.deleteAll()
						store.insert = 1
					} else {
						w.swap(w.row(e.Key), func(r *zabor.Row) { r.State, r.Cause = zabor.Doubt, zabor.ByExpiry })
					}
					return o
				})
				want := zabor.Settled
				switch {
				case o.Verdict == zabor.Refused && vanish: // the row of another call may have vanished too
					want = zabor.Doubt
				case o.Verdict == zabor.Refused:
					want = zabor.Declined
				}
				if row, err := s.Load(t.Context(), e.Key); err != nil || row.State != want {
					t.Errorf("%v, %s: %s, %v; want %s", o.Verdict, name, row.State, err, want)
				}
			}
		}
	})
}

// One failed list of open rows takes no watched time away (fault 15), and a resolver that
// is killed leaves it to the next.
func TestWatchedTimeSurvives(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		store := &away{Store: s}
		w.fence.Store = store
		r := w.resolver()
		r.settleControl()
		k := w.doubtful("1001")
		r.after(0)
		r.after(watchTime / 2)
		store.watch = 1
		if err := r.Round(t.Context()); !errors.Is(err, errAway) {
			t.Fatalf("error %v, want %v", err, errAway)
		}
		killed := w.resolver() // another process, which knows nothing but the table
		killed.finds, killed.clock = r.finds, r.clock
		killed.after(0)
		if row := w.row(k); row.Open.Silent != watchTime/2 {
			t.Errorf("watched for %s, want %s", row.Open.Silent, watchTime/2)
		}
		killed.after(watchTime/2 - time.Millisecond)
		if row := w.row(k); row.State != zabor.Doubt {
			t.Fatalf("%s too early", row.State)
		}
		killed.after(time.Second)
		killed.after(time.Second)
		if row := w.row(k); row.State != zabor.Released {
			t.Errorf("%s, want released", row.State)
		}
	})
}

// A jump of the database's clock ahead holds no row that resolvers have not watched for
// its time (fault 24).
func TestAJumpHoldsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		doubt := w.doubtful("1001")
		begun := zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_2"}
		pending := effect("1002")
		r.finds["1002"] = zabor.Finding{Outcome: begun}
		if _, err := w.fence.Do(t.Context(), pending, w.answers(begun)); err != nil {
			t.Fatal(err)
		}
		w.shift(doubt, -30*24*time.Hour)
		r.after(0)
		r.after(time.Minute)
		for k, want := range map[zabor.Key]zabor.State{doubt: zabor.Doubt, pending.Key: zabor.Pending} {
			if row := w.row(k); row.State != want {
				t.Errorf("%s is %s (%s) after a jump of the clock, want %s", k, row.State, row.Reason, want)
			}
		}
		r.after(2 * time.Hour)
		r.after(time.Second)
		for _, k := range []zabor.Key{doubt, pending.Key} {
			if row := w.row(k); row.State != zabor.Held {
				t.Errorf("%s is %s after its time by both clocks, want held", k, row.State)
			}
		}
	})
}

// The sample of a look-up is asked for again for each decision: an index that has broken
// since is not believed (fault 27).
func TestTheSampleIsAskedForAgain(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	r.settleControl()
	first := w.doubtful("1001")
	r.after(0)
	r.after(watchTime)
	if row := w.row(first); row.State != zabor.Released {
		t.Fatalf("%s, want released", row.State)
	}
	delete(r.finds, "control") // the index answers empty lists now
	second := w.doubtful("1002")
	r.after(0)
	r.after(watchTime)
	r.after(time.Minute)
	if row := w.row(second); row.State != zabor.Doubt {
		t.Errorf("%s by an index that finds nothing any more, want doubt", row.State)
	}
}

// In a busy shop the newest settled rows are not in the provider's index yet: the oldest of
// those that were settled after the send vouches for the look-up. If none of them is found,
// the index has stopped, and a row from before the send vouches for nothing.
func TestASampleThatIsInTheIndex(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"late": false, "stopped": true} {
		w := onSQLite(t)
		r := w.resolver()
		r.settleControl()
		k := w.doubtful("1001")
		r.after(0)
		for _, order := range []string{"new 1", "new 2", "new 3", "new 4", "new 5"} {
			o := zabor.Outcome{Verdict: zabor.Done, Reference: "pay of " + order}
			if _, err := w.fence.Do(t.Context(), effect(order), w.answers(o)); err != nil {
				t.Fatal(err)
			}
			if order == "new 1" && !stopped {
				r.finds[order] = zabor.Finding{Outcome: o}
			}
		}
		r.after(watchTime)
		want := zabor.Released
		if stopped {
			want = zabor.Doubt
		}
		if row := w.row(k); row.State != want {
			t.Errorf("an index that is %s: %s, want %s", name, row.State, want)
		}
	}
}

// A provider that failed inside may carry the request out later by itself: absence never
// releases such a row, and it is not sent again.
func TestACallThatLingers(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	r.settleControl()
	e := effect("1001")
	e.ReplayFor = time.Hour
	if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Reason: "500", Lingers: true})); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatal(err)
	}
	r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
		t.Error("it is sent again")
		return zabor.Outcome{}
	}
	r.after(0)
	r.after(watchTime)
	if row := w.row(e.Key); row.State != zabor.Doubt || !row.Open.Lingers {
		t.Fatalf("%s, lingers %v; want doubt", row.State, row.Open.Lingers)
	}
	r.finds["1001"] = zabor.Finding{Outcome: done}
	r.after(time.Minute)
	if row := w.row(e.Key); row.State != zabor.Settled {
		t.Errorf("%s, want settled by the hit", row.State)
	}
}

// What can never be kept, or whose row cannot be read, is parked: it is not called, and
// no outage.
func TestWhatIsUnfitIsParked(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 4<<20+1)
	for name, change := range map[string]func(w *world, e *zabor.Effect){
		"a long request": func(_ *world, e *zabor.Effect) {
			e.Render = func(zabor.ProviderKeys, string) ([]byte, error) { return long, nil }
		},
		"long values of hooks": func(_ *world, e *zabor.Effect) { e.HookData = long },
		"no request": func(_ *world, e *zabor.Effect) {
			e.Render = func(zabor.ProviderKeys, string) ([]byte, error) { return nil, errors.New("no amount") }
		},
		"no order": func(_ *world, e *zabor.Effect) { e.Key.Order = "" },
		"a long request of a row that is free": func(w *world, e *zabor.Effect) {
			w.fence.Do(w.t.Context(), *e, w.answers(zabor.Outcome{Verdict: zabor.Unsent}))
			w.restart()
			w.calls = 0
			e.Render = func(zabor.ProviderKeys, string) ([]byte, error) { return long, nil }
		},
		"no request of a row that is free": func(w *world, e *zabor.Effect) {
			w.fence.Do(w.t.Context(), *e, w.answers(zabor.Outcome{Verdict: zabor.Unsent}))
			w.restart()
			w.calls = 0
			e.Render = func(zabor.ProviderKeys, string) ([]byte, error) { return nil, errors.New("no amount") }
		},
		"an attempt id of another program": func(w *world, e *zabor.Effect) {
			w.fence.Do(w.t.Context(), *e, w.answers(done))
			w.calls = 0
			if w.store.Dialect() == "mysql" { // whose column has 16 bytes
				w.exec("UPDATE zabor_fences SET answer_header = '{'")
				return
			}
			w.exec("UPDATE zabor_fences SET attempt_id = substr(attempt_id, 1, 3)")
		},
		"headers of another program": func(w *world, e *zabor.Effect) {
			w.fence.Do(w.t.Context(), *e, w.answers(done))
			w.calls = 0
			w.exec("UPDATE zabor_fences SET answer_header = 'x'")
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *sqlstore.Store) {
				w := newWorld(t, s)
				e := effect("1001")
				change(w, &e)
				if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrUnfit) || !zabor.Park(err) || w.calls != 0 {
					t.Errorf("error %v, parked %v, calls=%d; want %v, parked, no call", err, zabor.Park(err), w.calls, zabor.ErrUnfit)
				}
			})
		})
	}
}

// That a call lingers is not lost where its answer comes late: its lease has ended, its
// request was sent again, or its row has vanished.
func TestALateAnswerOfACallThatLingers(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, e zabor.Effect){
		"expired": func(w *world, e zabor.Effect) {
			w.swap(w.row(e.Key), func(r *zabor.Row) { r.State, r.Cause = zabor.Doubt, zabor.ByExpiry })
		},
		"sent again": func(w *world, e zabor.Effect) {
			w.swap(w.row(e.Key), func(r *zabor.Row) {
				r.State, r.Cause, r.Unproven, r.Open.Replays, r.Open.Send = zabor.Doubt, zabor.ByExpiry, 2, 1, [16]byte{1}
			})
		},
		"vanished": func(w *world, _ zabor.Effect) { w.deleteAll() },
		"vanished, and delivered again": func(w *world, e zabor.Effect) {
			w.deleteAll()
			e.MissingRow = zabor.Doubt
			if _, err := w.fence.Do(w.t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrInDoubt) {
				w.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *sqlstore.Store) {
				w := newWorld(t, s)
				e := effect("1001")
				e.ReplayFor = time.Hour
				w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
					meanwhile(w, e)
					return zabor.Outcome{Lingers: true, Reason: "500"}
				})
				r := w.resolver()
				r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
					t.Error("it is sent again")
					return zabor.Outcome{}
				}
				r.settleControl()
				r.after(0)
				w.leasesEnd(time.Minute)
				r.after(watchTime)
				if row := w.row(e.Key); row.State != zabor.Doubt || !row.Open.Lingers {
					t.Errorf("%s by %s, lingers %v; want doubt", row.State, row.Cause, row.Open.Lingers)
				}
			})
		})
	}
}

// An insert of a vanished row whose confirmation is lost stays doubt at the next try.
func TestAVanishedRowOfALostConfirmation(t *testing.T) {
	t.Parallel()
	for _, o := range []zabor.Outcome{{Verdict: zabor.Unsent}, {Verdict: zabor.TurnedAway}, {Verdict: zabor.Refused}} {
		w := onSQLite(t)
		w.fence.Store = &unconfirmed{Store: w.store}
		e := effect("1001")
		w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			w.deleteAll()
			w.fence.Store.(*unconfirmed).inserts = 1
			return o
		})
		if row := w.row(e.Key); row.State != zabor.Doubt || !row.MayHaveActed() {
			t.Errorf("%v: %s, unproven %d; want doubt", o.Verdict, row.State, row.Unproven)
		}
	}
}

// unconfirmed loses the confirmation of so many inserts.
type unconfirmed struct {
	zabor.Store
	inserts int
}

func (u *unconfirmed) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	row, err := u.Store.Insert(ctx, row, w)
	if err == nil && u.inserts > 0 {
		u.inserts--
		return zabor.Row{}, errAway
	}
	return row, err
}

// A pending row whose hook fails is looked up all the same.
func TestAPendingRowWhoseHookFails(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
		if row.State == zabor.Pending {
			return nil, errors.New("no such table")
		}
		return nil, nil
	}
	e := effect("1001")
	if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1"})); !errors.Is(err, zabor.ErrHookDue) {
		t.Fatalf("error %v, want %v", err, zabor.ErrHookDue)
	}
	r := w.resolver()
	r.finds["1001"] = zabor.Finding{Outcome: done}
	for range 3 {
		r.clock = r.clock.Add(time.Minute)
		w.dueNow()
		r.Round(t.Context())
	}
	if row := w.row(e.Key); row.State != zabor.Settled {
		t.Errorf("%s after %d look-ups, want settled: the payment was decided", row.State, r.lookups)
	}
}

// A look-up's wish to be left alone is bounded by hold_after, and stops no charges
// (faults 20 and 22).
func TestALookupsWishIsBounded(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	r := w.resolver()
	w.fence.Now = r.Now
	asked := 0
	r.Lookup = func(context.Context, zabor.Row) (zabor.Finding, error) {
		asked++
		return zabor.Finding{}, &zabor.LaterError{After: 24 * time.Hour, Err: errors.New("429")}
	}
	w.doubtful("1001") // HoldAfter is an hour
	w.dueNow()
	r.Round(t.Context())
	if _, err := w.fence.Do(t.Context(), effect("1002"), w.answers(done)); err != nil {
		t.Errorf("a charge after a look-up was turned away: %v", err)
	}
	r.clock = r.clock.Add(time.Hour - time.Second)
	w.dueNow()
	r.Round(t.Context())
	if asked != 1 {
		t.Errorf("asked %d times within the hour, want once", asked)
	}
	r.clock = r.clock.Add(2 * time.Second)
	w.dueNow()
	r.Round(t.Context())
	if asked != 2 {
		t.Errorf("asked %d times after hold_after, want twice", asked)
	}
}

// Keys, references and bodies come back from the journal byte for byte (fault 9).
func TestTheJournalKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"B\xfcro-17", "\x00", "x ", "\xff\xfe"} {
		w := onSQLite(t)
		journal, err := zabor.OpenJournal(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		store := &deafUntil{Store: w.store, deaf: true}
		w.fence.Store, w.fence.Journal, w.fence.SaveTimeout = store, journal, 50*time.Millisecond
		o := zabor.Outcome{Verdict: zabor.Done, Reference: "pay\xff\x00", Answer: &zabor.Answer{Status: 200, Body: []byte("\xff\x00")}}
		if _, err := w.fence.Do(t.Context(), effect(order), w.answers(o)); !errors.Is(err, zabor.ErrInDoubt) {
			t.Fatalf("error %v, want %v", err, zabor.ErrInDoubt)
		}
		store.deaf = false
		if n, err := w.fence.ReplayJournal(t.Context()); n != 1 || err != nil {
			t.Errorf("%q: %d saved, %v", order, n, err)
		}
		row := w.row(effect(order).Key)
		if row.State != zabor.Settled || row.Reference != o.Reference || row.Answer == nil || string(row.Answer.Body) != "\xff\x00" {
			t.Errorf("%q: %s %q, answer %+v", order, row.State, row.Reference, row.Answer)
		}
	}
}

// deafUntil is a store whose swaps fail while it is deaf.
type deafUntil struct {
	zabor.Store
	deaf bool
}

func (d *deafUntil) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	if d.deaf {
		return errAway
	}
	return d.Store.Swap(ctx, prev, next, w)
}

// A bad entry of the journal is set aside, and its row is held; the others and the start
// go on (fault 14). If none can be decrypted, the start is refused, also without a key.
func TestABadJournalEntry(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	dir := t.TempDir()
	xor := func(b []byte) []byte {
		out := []byte("sealed")
		for _, c := range b {
			out = append(out, c^0x55)
		}
		return out
	}
	unxor := func(key bool) func([]byte) ([]byte, error) {
		return func(b []byte) ([]byte, error) {
			if !key || !strings.HasPrefix(string(b), "sealed") {
				return nil, errors.New("wrong key")
			}
			return xor(b[len("sealed"):])[len("sealed"):], nil
		}
	}
	journal := func(seal, key bool) *zabor.Journal {
		j, err := zabor.OpenJournal(dir)
		if err != nil {
			t.Fatal(err)
		}
		if seal {
			j.Seal, j.Open = xor, unxor(key)
		}
		return j
	}
	store := &deafUntil{Store: w.store, deaf: true}
	w.fence.Store, w.fence.Journal, w.fence.SaveTimeout = store, journal(true, true), 50*time.Millisecond
	for _, order := range []string{"good", "bad"} {
		w.fence.Do(t.Context(), effect(order), w.answers(done))
	}
	store.deaf = false
	files := func(ending string) []string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, "*"+ending))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for name, j := range map[string]*zabor.Journal{"another key": journal(true, false), "no key": journal(false, false)} {
		w.fence.Journal = j
		if n, err := w.fence.ReplayJournal(t.Context()); n != 0 || err == nil || len(files(".success")) != 2 {
			t.Fatalf("%s: %d saved, %v, %d entries are left; want the start refused and both kept", name, n, err, len(files(".success")))
		}
	}
	for _, path := range files(".success") {
		if strings.HasPrefix(filepath.Base(path), effect("bad").Key.Digest()) {
			if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.fence.Journal = journal(true, true)
	if n, err := w.fence.ReplayJournal(t.Context()); n != 1 || err != nil {
		t.Errorf("%d saved, %v; want the good one", n, err)
	}
	if row := w.row(effect("good").Key); row.State != zabor.Settled {
		t.Errorf("the good one is %s", row.State)
	}
	if row := w.row(effect("bad").Key); row.State != zabor.Held || row.Cause != zabor.ByConflict {
		t.Errorf("the bad one is %s by %s, want held by conflict", row.State, row.Cause)
	}
	if _, critical := w.alerted("journal-unreadable"); critical != 1 || len(files(".success")) != 0 || len(files(".unreadable")) != 1 {
		t.Errorf("%d critical alerts, %v, %v", critical, files(".success"), files(".unreadable"))
	}
}

// While nothing is sent, a message whose row would be held is not parked: nothing was
// written, and nobody was told.
func TestNothingIsParkedWhilePaused(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	k := w.doubtful("1001")
	w.swap(w.row(k), func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence })
	w.fence.Refuse = func(zabor.Key) error { return errors.New("no beat") }
	e := effect("1001")
	e.Fingerprint.Request = "f2"
	if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrPaused) || zabor.Park(err) {
		t.Errorf("error %v, want %v", err, zabor.ErrPaused)
	}
}

// A person's release, and a retry of what was parked, allow one call that may act: one
// that is turned away is not it.
func TestAReleaseIsNotSpentByAnOutage(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	row := w.held("1001")
	row = w.swap(row, func(r *zabor.Row) { r.Tries = 3 })
	if _, err := w.decide(zabor.Decision{Key: row.Key, Seen: row.Claim, Action: zabor.Release, CheckedProvider: true}); err != nil {
		t.Fatal(err)
	}
	e := effect("1001")
	if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.TurnedAway, Reason: "429"})); !errors.Is(err, zabor.ErrReleased) {
		t.Fatal(err)
	}
	w.restart()
	if row, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || row.State != zabor.Settled {
		t.Errorf("%s, %v; want it called", row.State, err)
	}
}
