package zabor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// A replay sends the frozen request, under the same key, while the profile
// allows it and not before the first send is surely over.
func TestReplay(t *testing.T) {
	tests := map[string]struct {
		answer zabor.Outcome
		state  zabor.State
	}{
		"done":           {zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1"}, zabor.Settled},
		"begun":          {zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1"}, zabor.Pending},
		"stored refusal": {zabor.Outcome{Verdict: zabor.Refused, StoredRefusal: true}, zabor.Declined},
		"refusal":        {zabor.Outcome{Verdict: zabor.Refused}, zabor.Doubt},
		"unsent":         {zabor.Outcome{Verdict: zabor.Unsent}, zabor.Doubt},
		"turned away":    {zabor.Outcome{Verdict: zabor.TurnedAway}, zabor.Doubt},
		"misdirected":    {zabor.Outcome{Verdict: zabor.Misdirected}, zabor.Held},
		"nothing":        {zabor.Outcome{}, zabor.Doubt},
	}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, tt := range tests {
			w := newWorld(t, s)
			w.deleteAll()
			r := w.resolver()
			e := effect(name)
			e.Timeout, e.AbsentAfter, e.ReplayFor = 20*time.Second, 0, time.Hour
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
			first := w.row(e.Key)
			var sent []zabor.Row
			r.Replay = func(ctx context.Context, row zabor.Row) zabor.Outcome {
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > zabor.Lease(e.Timeout) {
					t.Errorf("%s: the replay's deadline is %v", name, deadline)
				}
				sent = append(sent, row)
				return tt.answer
			}
			r.after(0)
			if len(sent) != 0 {
				t.Fatalf("%s: replayed while the first send may be under way", name)
			}
			r.after(zabor.Lease(e.Timeout) + time.Second) // by the resolver's clock alone
			if len(sent) != 0 {
				t.Fatalf("%s: replayed before the lease ended by the database's clock", name)
			}
			w.shift(e.Key, -time.Minute)
			r.after(0)
			if len(sent) != 1 {
				t.Fatalf("%s: %d replays, want one", name, len(sent))
			}
			row := w.row(e.Key)
			if row.State != tt.state || row.Tries != 1 || sent[0].Open.Replays != 1 || sent[0].Unproven != 2 {
				t.Errorf("%s: %s, attempts=%d, replays=%d, unproven %d; want %s, 1, 1, 2", name, row.State, row.Tries, sent[0].Open.Replays, sent[0].Unproven, tt.state)
			}
			if string(sent[0].Open.Request) != string(first.Open.Request) || sent[0].ProviderKey != first.ProviderKey {
				t.Errorf("%s: replayed %q under %s, want %q under %s", name, sent[0].Open.Request, sent[0].ProviderKey, first.Open.Request, first.ProviderKey)
			}
			if row.Unfinished() && !row.Open.SendUntil.After(first.Open.SendUntil) {
				t.Errorf("%s: may have sent until %v, not later than %v", name, row.Open.SendUntil, first.Open.SendUntil)
			}
		}
	})
}

// Outside the profile's time nothing is sent again.
func TestNoReplayAfterItsTime(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
			t.Error("replayed")
			return done
		}
		for order, replayFor := range map[string]time.Duration{"never": 0, "too short": time.Second} {
			e := effect(order)
			e.Timeout, e.AbsentAfter, e.ReplayFor = time.Millisecond, 0, replayFor
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
			waitFor(t, "end of the lease", func() bool { row := w.row(e.Key); return row.ReadAt.After(row.Open.SendUntil) })
			r.after(time.Hour)
			r.after(time.Hour)
			if row := w.row(e.Key); row.State != zabor.Doubt || row.Open.Replays != 0 {
				t.Errorf("%s: %s after %d replays, want doubt after none", order, row.State, row.Open.Replays)
			}
		}
	})
}

// While a claim may still send, nothing is sent again beside it.
func TestNoReplayBeforeTheLeaseEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.Replay = func(context.Context, zabor.Row) zabor.Outcome { return done }
		e := effect("1001")
		e.Timeout, e.AbsentAfter, e.ReplayFor = time.Minute, 0, time.Hour
		w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
		w.shift(e.Key, -time.Hour) // the database's clock has jumped
		r.after(0)
		r.after(zabor.Lease(e.Timeout))
		if row := w.row(e.Key); row.State != zabor.Doubt || row.Open.Replays != 0 {
			t.Fatalf("%s after %d replays, want doubt after none", row.State, row.Open.Replays)
		}
		r.after(time.Second)
		if row := w.row(e.Key); row.State != zabor.Settled {
			t.Errorf("%s, want settled by the replay", row.State)
		}
	})
}

// Nobody knows when the first call of a row was made that vanished: the provider
// may have forgotten its key. So it is looked up, and nothing is sent again.
func TestNoReplayOfAMissingRow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
			t.Error("sent again")
			return done
		}
		for order, absentAfter := range map[string]time.Duration{"no look-up": 0, "look-up": time.Second} {
			e := effect(order)
			e.MissingRow, e.Timeout, e.AbsentAfter, e.ReplayFor = zabor.Doubt, time.Millisecond, absentAfter, time.Hour
			if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatal(err)
			}
			waitFor(t, "end of the lease", func() bool { row := w.row(e.Key); return row.ReadAt.After(row.Open.SendUntil) })
			r.after(0)
			r.after(time.Minute)
			if row := w.row(e.Key); row.State != zabor.Doubt || row.Open.Replays != 0 {
				t.Errorf("%s: %s after %d replays, want doubt after none", order, row.State, row.Open.Replays)
			}
		}
	})
}

// shift moves what the table says of a row's times, as a jump of the database's
// clock would.
func (w *world) shift(k zabor.Key, by time.Duration) {
	w.t.Helper()
	us := fmt.Sprint(by.Microseconds())
	w.exec("UPDATE zabor_fences SET send_until = send_until + (" + us + "), captured_at = captured_at + (" + us + "), state_since = state_since + (" + us + ")")
}

// A database's clock that jumps releases nothing early, and holds nothing up.
func TestTheDatabaseClockJumps(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, jump := range map[string]time.Duration{"an hour on": -time.Hour, "an hour back": time.Hour} {
			w := newWorld(t, s)
			w.deleteAll()
			r := w.resolver()
			r.settleControl()
			k := w.doubtful("1001")
			w.shift(k, jump)
			r.after(0)
			r.after(watchTime / 2)
			if row := w.row(k); row.State != zabor.Doubt {
				t.Errorf("%s: %s by a clock that is not the resolver's own, want doubt", name, row.State)
			}
			r.after(watchTime)
			r.after(time.Minute)
			if row := w.row(k); row.State != zabor.Released {
				t.Errorf("%s: %s after the resolver's own wait, want released", name, row.State)
			}
		}
	})
}

// A hook that is due runs until it works, alone.
func TestADueHook(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		failures := 3
		var states []zabor.State
		w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
			states = append(states, row.State)
			if row.State == zabor.Settled && row.Reference != "pay_1" {
				t.Errorf("the hook of settled sees the reference %q", row.Reference)
			}
			rows := -1
			if row.State == zabor.Settled && failures > 0 {
				failures--
				rows = 7
			}
			return &zabor.Hook{Name: string(row.State), SQL: "DELETE FROM zabor_meta WHERE 1 = 0", Rows: rows}, nil
		}
		e := effect("1001")
		e.HookData = []byte(`{"a":1}`)
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrHookDue) {
			t.Fatalf("error %v, want %v", err, zabor.ErrHookDue)
		}
		if row := w.row(e.Key); row.State != zabor.Settled || row.Reference != "pay_1" || row.HookDue != "settled" || row.Open.HookData == nil {
			t.Fatalf("%s %q, due %q, data %q; want settled pay_1 with its hook due", row.State, row.Reference, row.HookDue, row.Open.HookData)
		}
		if n, _ := w.alerted("hook-due"); n != 1 {
			t.Errorf("alerts=%d, want 1", n)
		}
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrHookDue) {
			t.Errorf("delivered again: error %v, want %v", err, zabor.ErrHookDue)
		}
		waitFor(t, "hook", func() bool { // its gap grows by the resolver's clock, which stands still
			r.Round(t.Context())
			return w.row(e.Key).HookDue == ""
		})
		if row := w.row(e.Key); row.Open.HookData != nil || row.State != zabor.Settled {
			t.Errorf("%s with hook data %q, want settled without", row.State, row.Open.HookData)
		}
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || w.calls != 1 {
			t.Errorf("after the hook: %v, calls=%d; want acked after one call", err, w.calls)
		}
	})
}

// A hook that fails takes nothing from the row: why it is in its state stays, and is what
// the hook is given when it runs. The failure is in the row's history.
func TestADueHookKeepsTheReason(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome   zabor.Outcome
		meanwhile func(w *world, row zabor.Row)
		state     zabor.State
		want      string
	}{
		"a no": {zabor.Outcome{Verdict: zabor.Refused, Reason: "insufficient funds"}, func(*world, zabor.Row) {}, zabor.Declined, "insufficient funds"},
		"held": {zabor.Outcome{Verdict: zabor.Misdirected, Reason: "HTTP 404"}, func(*world, zabor.Row) {}, zabor.Held, "HTTP 404"},
		"two references": {done, func(w *world, row zabor.Row) {
			w.swap(row, func(r *zabor.Row) { r.State, r.Reference = zabor.Pending, "pay_0" })
		}, zabor.Settled, "two references: pay_0 and pay_1"},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *sqlstore.Store) {
				w := newWorld(t, s)
				broken, bound := true, ""
				w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
					switch {
					case row.State != tt.state:
						return nil, nil
					case broken:
						return nil, errors.New("the shop's table is locked")
					}
					bound = row.Reason
					return nil, nil
				}
				e := effect("1001")
				w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
					tt.meanwhile(w, row)
					return tt.outcome
				})
				due := w.row(e.Key)
				if due.State != tt.state || due.HookDue != string(tt.state) || due.Reason != tt.want {
					t.Errorf("%s, due %q, reason %q; want %s, its hook due, %q", due.State, due.HookDue, due.Reason, tt.state, tt.want)
				}
				notes, err := s.History().Of(t.Context(), e.Key)
				if err != nil || len(notes) != 1 || !strings.Contains(notes[0].Text, "failed: the shop's table is locked") || notes[0].Epoch != due.Claim.Epoch {
					t.Errorf("history %+v, %v; want the failure of the hook", notes, err)
				}
				broken = false
				if err := w.fence.RunHook(t.Context(), due); err != nil {
					t.Fatal(err)
				}
				if row := w.row(e.Key); row.Reason != tt.want || bound != tt.want || row.HookDue != "" {
					t.Errorf("after the hook: reason %q, it was given %q, due %q; want %q", row.Reason, bound, row.HookDue, tt.want)
				}
			})
		})
	}
}

// A capture whose hook fails sends nothing; it counts as an attempt.
func TestTheCapturesHookFails(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		rows := 7
		w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
			if row.State != zabor.Captured {
				return nil, nil
			}
			return &zabor.Hook{Name: "captured", SQL: "DELETE FROM zabor_meta WHERE 1 = 0", Rows: rows}, nil
		}
		e := effect("1001")
		for attempts := 1; attempts <= 2; attempts++ {
			if _, err := w.fence.Do(t.Context(), e, w.answers(done)); !errors.Is(err, zabor.ErrReleased) || w.calls != 0 {
				t.Fatalf("error %v, calls=%d; want %v and no call", err, w.calls, zabor.ErrReleased)
			}
			if row := w.row(e.Key); row.State != zabor.Released || row.Tries != attempts || row.Open.HookDone {
				t.Fatalf("%s, attempts=%d, hooked=%v; want released, %d, false", row.State, row.Tries, row.Open.HookDone, attempts)
			}
		}
		rows = -1
		if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent})); !errors.Is(err, zabor.ErrReleased) {
			t.Fatal(err)
		}
		// It has run now, and would fail if it ran again.
		rows = 7
		hook := w.fence.Hook
		w.restart()
		w.fence.Hook = hook
		if row, err := w.fence.Do(t.Context(), e, w.answers(done)); err != nil || row.State != zabor.Settled {
			t.Errorf("%s, %v; want settled", row.State, err)
		}
	})
}

// A replay is a send: absence is proof only so long after it, and not after the
// first call alone.
func TestAReplayStartsTheWatchAnew(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		r.settleControl()
		e := effect("1001")
		e.AbsentAfter, e.ReplayFor = time.Minute, time.Hour
		watch := zabor.Lease(e.Timeout) + e.AbsentAfter
		w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
		w.shift(e.Key, -time.Minute)
		replays := 0
		r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
			replays++
			return zabor.Outcome{}
		}
		r.after(0)
		r.after(zabor.Lease(e.Timeout) + time.Second)
		r.Replay = nil
		r.after(0) // the row is seen with the replay
		r.after(watch - time.Second)
		if row := w.row(e.Key); row.State != zabor.Doubt || replays != 1 {
			t.Fatalf("%s after %d replays, want doubt after 1: the replay was not watched long enough", row.State, replays)
		}
		r.after(watch)
		if row := w.row(e.Key); row.State != zabor.Released {
			t.Errorf("%s, want released", row.State)
		}
	})
}

// How long the same request may be sent again is what the provider of the call allows:
// not what another one did that the key was free at before, nor a longer time of an
// earlier configuration.
func TestAReplayKeepsToItsOwnProvidersTime(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		provider string
		allows   time.Duration
		anew     bool          // a person wants a new attempt of what the first provider declined
		want     time.Duration // 0: never
	}{
		"another provider, which keeps no keys":           {"other", 0, false, 0},
		"another provider, which keeps them longer":       {"other", 2 * day, false, 2 * day},
		"another provider, which keeps them for a while":  {"other", time.Hour, false, time.Hour},
		"the same, which was thought to keep them":        {"acquirer", 0, false, 0},
		"the same, which was thought to keep them longer": {"acquirer", time.Hour, false, time.Hour},
		"the same": {"acquirer", day, false, day},
		"the same, which keeps them longer than was thought": {"acquirer", 2 * day, false, 2 * day}, // nothing has acted yet
		"a new attempt where no keys are kept":               {"acquirer", 0, true, 0},
		"a new attempt":                                      {"acquirer", 2 * day, true, 2 * day},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *sqlstore.Store) {
				w := newWorld(t, s)
				e := effect("1001")
				e.ReplayFor, e.AbsentAfter = day, 0
				first := zabor.Outcome{Verdict: zabor.Unsent}
				if tt.anew {
					first.Verdict = zabor.Refused
				}
				w.fence.Do(t.Context(), e, w.answers(first))
				if tt.anew {
					if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: w.row(e.Key).Claim, Action: zabor.Release}); err != nil {
						t.Fatal(err)
					}
				}
				e.Provider, e.ReplayFor = tt.provider, tt.allows
				w.fence = &zabor.Fence{Store: s, Secret: w.fence.Secret, Address: w.fence.Address} // a process that knows of no pause
				if _, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
					t.Fatalf("error %v, want %v", err, zabor.ErrInDoubt)
				}
				row := w.row(e.Key)
				if got := row.Open.ReplayUntil.Sub(row.CapturedAt).Round(time.Minute); tt.want == 0 && !row.Open.ReplayUntil.IsZero() || tt.want != 0 && got != tt.want {
					t.Errorf("it may be sent again until %s, captured %s: want %s after that", row.Open.ReplayUntil, row.CapturedAt, tt.want)
				}
				if tt.want > 0 {
					return
				}
				r := w.resolver()
				r.Replay = func(context.Context, zabor.Row) zabor.Outcome {
					t.Error("sent again at a provider that keeps no keys")
					return zabor.Outcome{}
				}
				for range 5 {
					r.after(time.Minute)
				}
			})
		})
	}
}

// The hook of the capture belongs to that of a no: it runs again for a new attempt after
// one, and not for another try of the same attempt. A hook that cannot run twice sends
// nothing, and a person gets the order going again.
func TestTheCapturesHookAfterADecline(t *testing.T) {
	const reserve, giveBack = "UPDATE app SET n = n + 1 WHERE id = 1", "UPDATE app SET n = n - 1 WHERE id = 1"
	for name, tt := range map[string]struct {
		captured string
		mend     string // by the shop; empty: nothing is wrong
		n        int    // at the end
	}{
		"UPDATE":        {reserve, "", 1},
		"INSERT":        {"INSERT INTO app VALUES (2, 0)", "DELETE FROM app WHERE id = 2", -1},
		"INSERT or not": {"INSERT INTO app SELECT 2, 0 WHERE NOT EXISTS (SELECT 1 FROM app WHERE id = 2)", "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *sqlstore.Store) {
				w := newWorld(t, s)
				w.exec("CREATE TABLE app (id INT PRIMARY KEY, n INT)")
				w.exec("INSERT INTO app VALUES (1, 0)")
				hook := func(row zabor.Row) (*zabor.Hook, error) {
					switch row.State {
					case zabor.Captured:
						return &zabor.Hook{Name: "captured", SQL: tt.captured, Rows: -1}, nil
					case zabor.Declined:
						return &zabor.Hook{Name: "declined", SQL: giveBack, Rows: 1}, nil
					}
					return nil, nil
				}
				e := effect("1001")
				e.MaxAttempts = 2
				do := func(o zabor.Outcome, want error) {
					t.Helper()
					w.restart()
					w.fence.Hook = hook
					if _, err := w.fence.Do(t.Context(), e, w.answers(o)); !errors.Is(err, want) {
						t.Fatalf("error %v, want %v", err, want)
					}
				}
				release := func() {
					t.Helper()
					if _, err := w.decide(zabor.Decision{Key: e.Key, Seen: w.row(e.Key).Claim, Action: zabor.Release}); err != nil {
						t.Fatal(err)
					}
				}
				do(zabor.Outcome{Verdict: zabor.Unsent}, zabor.ErrReleased)
				do(zabor.Outcome{Verdict: zabor.Refused, Reason: "card"}, nil)
				release()
				if tt.mend != "" {
					do(done, zabor.ErrReleased)
					do(done, zabor.ErrSpent)
					if row := w.row(e.Key); w.calls != 2 || !strings.Contains(row.Reason, "hook captured") || !strings.Contains(row.Reason, "nothing was sent") {
						t.Errorf("calls=%d, reason %q; want 2, and that the hook failed", w.calls, row.Reason)
					}
					w.exec(tt.mend)
					release()
				}
				do(done, nil)
				var n int
				if err := s.DB().QueryRowContext(t.Context(), "SELECT n FROM app WHERE id = 1").Scan(&n); err != nil || n != tt.n || w.calls != 3 {
					t.Errorf("n=%d, %v, calls=%d; want %d, 3", n, err, w.calls, tt.n)
				}
			})
		})
	}
}
