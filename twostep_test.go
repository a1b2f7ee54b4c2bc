package zabor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// twoStep is an effect whose first request is harmless.
func twoStep(order string) zabor.Effect {
	e := effect(order)
	e.Prepare = func(k zabor.ProviderKeys) ([]byte, error) { return []byte("prepare with " + k.Prepare), nil }
	e.Render = func(k zabor.ProviderKeys, id string) ([]byte, error) {
		return []byte("confirm " + id + " with " + k.Request), nil
	}
	return e
}

var prepared = zabor.Outcome{Verdict: zabor.Prepared, Reference: "pi_1"}

func TestTwoStepsSaveTheIDBetween(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := twoStep("1001")
		var sent []string
		var prepareKey string
		row, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			sent, prepareKey = append(sent, string(row.Open.Request)), row.Open.PrepareKey
			if row.Prepared == "" {
				return prepared
			}
			if saved := w.row(e.Key); saved.Prepared != "pi_1" || saved.State != zabor.Captured {
				t.Errorf("before the second request the table has %s %q, want captured pi_1", saved.State, saved.Prepared)
			}
			return done
		})
		if err != nil || row.State != zabor.Settled {
			t.Fatalf("%s, %v; want settled", row.State, err)
		}
		want := []string{"prepare with " + prepareKey, "confirm pi_1 with " + row.ProviderKey}
		if len(sent) != 2 || sent[0] != want[0] || sent[1] != want[1] || prepareKey == row.ProviderKey {
			t.Errorf("sent %q, want %q", sent, want)
		}
	})
}

// Whatever becomes of the first request, no money moved: the row is free, or a
// person is asked about a wrong address.
func TestTheFirstOfTwoFails(t *testing.T) {
	tests := map[zabor.Verdict]struct {
		state    zabor.State
		attempts int
	}{
		zabor.Unproven:    {zabor.Released, 1},
		zabor.Unsent:      {zabor.Released, 0},
		zabor.TurnedAway:  {zabor.Released, 0},
		zabor.Refused:     {zabor.Declined, 1},
		zabor.Malformed:   {zabor.Declined, 1},
		zabor.Misdirected: {zabor.Held, 1},
	}
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for verdict, want := range tests {
			w := newWorld(t, s)
			e := twoStep(verdict.String())
			w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{Verdict: verdict}))
			if row := w.row(e.Key); row.State != want.state || row.Tries != want.attempts || w.calls != 1 {
				t.Errorf("%v: %s, attempts=%d, calls=%d; want %s, %d, 1", verdict, row.State, row.Tries, w.calls, want.state, want.attempts)
			}
		}
	})
}

// After a crash before the id was saved nothing is asked of the provider: the
// request that moves money was never sent.
func TestDoubtWithoutAnIDIsFree(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		e := twoStep("1001")
		e.Timeout = time.Millisecond
		w.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			r.after(0) // while the lease runs, it stays
			if row := w.row(e.Key); row.State != zabor.Captured {
				t.Errorf("%s while the lease runs, want captured", row.State)
			}
			waitFor(t, "release", func() bool {
				r.after(0)
				return w.row(e.Key).State == zabor.Released
			})
			return prepared // of a process that is as good as dead
		})
		if r.lookups != 0 {
			t.Errorf("look-ups=%d, want 0", r.lookups)
		}
		// Prepared again, it is charged once, and nobody is alarmed.
		e.Timeout = time.Minute
		var ids []string
		row, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			ids = append(ids, row.Prepared)
			if row.Prepared == "" {
				return zabor.Outcome{Verdict: zabor.Prepared, Reference: "pi_2"}
			}
			return done
		})
		if err != nil || row.State != zabor.Settled || len(ids) != 2 || ids[1] != "pi_2" {
			t.Errorf("%s, %v, ids %q; want settled by pi_2", row.State, err, ids)
		}
		for _, a := range w.alerts {
			if a.Severity == zabor.Critical {
				t.Errorf("critical alert: %+v", a)
			}
		}
	})
}

// A call in doubt after the second request repeats with the saved id.
func TestTheRepeatUsesTheSavedID(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := twoStep("1001")
		first := func(_ context.Context, row zabor.Row) zabor.Outcome {
			if row.Prepared == "" {
				return prepared
			}
			return zabor.Outcome{}
		}
		if _, err := w.fence.Do(t.Context(), e, first); !errors.Is(err, zabor.ErrInDoubt) {
			t.Fatal(err)
		}
		w.swap(w.row(e.Key), func(r *zabor.Row) { r.State, r.Cause = zabor.Released, zabor.ByAbsence })
		var sent []string
		if _, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			sent = append(sent, string(row.Open.Request))
			return done
		}); err != nil {
			t.Fatal(err)
		}
		if want := "confirm pi_1 with " + w.row(e.Key).ProviderKey; len(sent) != 1 || sent[0] != want {
			t.Errorf("sent %q, want %q", sent, want)
		}
	})
}

// The row of a call that somebody else has made may have vanished with its id: that
// this one has none says nothing about the request that moves money.
func TestAMissingRowOfTwoStepsIsLookedUp(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for name, make := range map[string]func(w *world, e zabor.Effect) error{
			"delivered before": func(w *world, e zabor.Effect) error {
				e.MissingRow = zabor.Doubt
				_, err := w.fence.Do(t.Context(), e, w.answers(done))
				return err
			},
			"given to others meanwhile": func(w *world, e zabor.Effect) error {
				e.ReservedUntil = time.Now().Add(-time.Second)
				_, err := w.fence.Do(t.Context(), e, w.answers(zabor.Outcome{}))
				return err
			},
			"given to others meanwhile, after the first request": func(w *world, e zabor.Effect) error {
				e.ReservedUntil = time.Now().Add(-time.Second)
				_, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
					if row.Prepared == "" {
						return prepared
					}
					return zabor.Outcome{Verdict: zabor.Unsent}
				})
				return err
			},
		} {
			w := newWorld(t, s)
			w.deleteAll()
			r := w.resolver()
			e := twoStep(name)
			if err := make(w, e); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatalf("%s: %v, want doubt", name, err)
			}
			w.shift(e.Key, -time.Minute)
			r.after(0)
			r.after(time.Minute)
			if row := w.row(e.Key); row.State != zabor.Doubt || r.lookups == 0 {
				t.Errorf("%s: %s by %s after %d look-ups; want doubt, since no look-up has proved anything", name, row.State, row.Cause, r.lookups)
			}
			r.finds[name] = zabor.Finding{Outcome: done}
			r.after(time.Second)
			if row := w.row(e.Key); row.State != zabor.Settled {
				t.Errorf("%s: %s, want settled by the other's call", name, row.State)
			}
		}
	})
}

// An id belongs to the request that it was made for: confirmed for another one it
// would move the old amount. And the first request for another amount has another
// key: some providers answer a key without comparing what came with it.
func TestAnotherRequestForgetsTheSavedID(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		e := twoStep("1001")
		if _, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			if row.Prepared == "" {
				return prepared
			}
			return zabor.Outcome{Verdict: zabor.Unsent} // surely: the row takes the request as it is now
		}); !errors.Is(err, zabor.ErrReleased) {
			t.Fatal(err)
		}
		before := w.row(e.Key)
		w.restart()
		e.Fingerprint, e.Amount.Minor = zabor.Fingerprint{Message: "m2", Request: "f2"}, 2999
		var sent []string
		var prepareKey string
		row, err := w.fence.Do(t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
			sent, prepareKey = append(sent, string(row.Open.Request)), row.Open.PrepareKey
			if row.Prepared == "" {
				return zabor.Outcome{Verdict: zabor.Prepared, Reference: "pi_2"}
			}
			return done
		})
		if err != nil || row.State != zabor.Settled {
			t.Fatalf("%s, %v", row.State, err)
		}
		want := []string{"prepare with " + prepareKey, "confirm pi_2 with " + before.ProviderKey}
		if len(sent) != 2 || sent[0] != want[0] || sent[1] != want[1] || prepareKey == before.Open.PrepareKey {
			t.Errorf("sent %q, want %q and another key for the first than %s", sent, want, before.Open.PrepareKey)
		}
	})
}
