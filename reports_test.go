package zabor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// What has hit people who keep locks, leases and order ids in a database, by the
// report that tells of it. Those about answers are in zabor/provider.
func TestPublicReports(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		for _, tt := range []struct {
			name string
			test func(w *world)
		}{
			{"alphagov/pay-connector#1729", noStep},
			{"apache/hadoop#5673", fiftyNewKeys},
			{"arnoldasgudas/Hangfire.MySqlStorage#18", primaryKey},
			{"AOEpeople/Aoe_AsyncCache#3", notMine},
			{"oxidecomputer/omicron#1168", sameResult},
			{"johanhaleby/occurrent#659", workersClock},
			{"mlflow/mlflow#25199", leaseNeverShorter},
			{"gchq/stroom#5772", failedWriteBetweenTwo},
			{"laravel/framework#59567", lateRelease},
			{"Automattic/woocommerce-payments#3520", twoReportOneSuccess},
			{"mollie/laravel-mollie#142", twoEqualJobs("charge")},
			{"coopcycle/coopcycle-web#4341", twoEqualJobs("refund:R-1")},
			{"magento/magento2#390", twoOrders("M00000101", "M00000102")},
			{"roblesterjr04/EloquentSalesForce#76", twoOrders("00123", "123")},
			{"unkeyed/unkey#4091", twoOrders("api_4qD329", "api_4qd329")},
			{"indigo-iam/iam#1136", twoOrders("A-1", "A-1 ")},
			{"HubSpot/Blazar-Archive#351", twoOrders("x🎩", "x💥")},
			{"godaddy-wordpress/wc-plugin-framework#492, second part", twoSites},
		} {
			t.Run(tt.name, func(t *testing.T) {
				w := newWorld(t, s)
				w.deleteAll()
				tt.test(w)
			})
		}
	})
}

func (w *world) rows() int {
	w.t.Helper()
	n := 0
	if err := w.store.DB().QueryRowContext(w.t.Context(), "SELECT COUNT(*) FROM zabor_fences").Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) wants(calls, rows int) {
	w.t.Helper()
	if got := w.rows(); w.calls != calls || got != rows {
		w.t.Errorf("%d calls, %d rows; want %d and %d", w.calls, got, calls, rows)
	}
}

// A step has no default.
func noStep(w *world) {
	e := effect("A-1")
	e.Key.Step = ""
	if _, err := w.fence.Do(w.t.Context(), e, w.answers(done)); err == nil {
		w.t.Error("a key without a step was taken")
	}
	w.wants(0, 0)
}

// New keys stand in nobody's way.
func fiftyNewKeys(w *world) {
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if _, err := w.fence.Do(w.t.Context(), effect(fmt.Sprint(i)), w.answers(done)); err != nil {
				w.t.Error(err)
			}
		})
	}
	all.Wait()
	w.wants(50, 50)
}

// The table itself has one row for a key, and no part of the key may be missing.
func primaryKey(w *world) {
	if err := w.store.Setup().Check(w.t.Context()); err != nil {
		w.t.Errorf("check: %v", err)
	}
	w.fence.Do(w.t.Context(), effect("A-1"), w.answers(done))
	for _, column := range []string{"scope", "order_id", "step"} {
		if _, err := w.store.DB().ExecContext(w.t.Context(), "UPDATE zabor_fences SET "+column+" = NULL"); err == nil {
			w.t.Errorf("%s may be NULL", column)
		}
	}
	w.wants(1, 1)
}

// The second capture of a key knows that it is not its own, also of a row whose
// values it would not change.
func notMine(w *world) {
	for range 3 {
		if _, err := w.fence.Do(w.t.Context(), effect("A-1"), w.answers(done)); err != nil {
			w.t.Error(err)
		}
	}
	w.wants(1, 1)
}

func sameResult(w *world) {
	first, err := w.fence.Do(w.t.Context(), effect("A-1"), w.answers(done))
	if err != nil {
		w.t.Fatal(err)
	}
	second, err := w.fence.Do(w.t.Context(), effect("A-1"), w.answers(done))
	if err != nil || second.State != first.State || second.Reference != first.Reference || string(second.Answer.Body) != string(first.Answer.Body) || second.Claim != first.Claim {
		w.t.Errorf("%v, second %+v; want %+v", err, second, first)
	}
}

// Whether a lease has ended says the database's clock, not the worker's.
func workersClock(w *world) {
	e := effect("A-1")
	e.Timeout = 30 * time.Second
	w.fence.Do(w.t.Context(), e, func(ctx context.Context, _ zabor.Row) zabor.Outcome {
		other := &zabor.Fence{Store: w.store, Secret: w.fence.Secret}
		other.Now = func() time.Time { return time.Now().Add(10 * time.Minute) }
		if _, err := other.Do(ctx, e, w.answers(done)); !errors.Is(err, zabor.ErrBusy) {
			w.t.Errorf("error %v, want %v", err, zabor.ErrBusy)
		}
		return done
	})
	w.wants(0, 1)
}

// A later claim never ends before an earlier one, whatever the database's clock
// does in between.
func leaseNeverShorter(w *world) {
	e := effect("A-1")
	w.fence.Do(w.t.Context(), e, w.answers(zabor.Outcome{Verdict: zabor.Unsent, Reason: "no connection"}))
	const ahead = "UPDATE zabor_fences SET send_until = send_until + 3600000000" // as if the clock stood an hour later then
	if _, err := w.store.DB().ExecContext(w.t.Context(), ahead); err != nil {
		w.t.Fatal(err)
	}
	before := w.row(e.Key).Open.SendUntil
	w.restart()
	if _, err := w.fence.Do(w.t.Context(), e, w.answers(zabor.Outcome{})); !errors.Is(err, zabor.ErrInDoubt) {
		w.t.Fatal(err)
	}
	if row := w.row(e.Key); row.Open.SendUntil.Before(before) || row.Tries != 1 {
		w.t.Errorf("after %d captures the lease ends at %s, before that at %s", row.Tries, row.Open.SendUntil, before)
	}
}

// Whoever has lost a claim and comes back late gives nothing free: the holder of
// the later epoch is untouched, and its success is the one that is saved.
func lateRelease(w *world) {
	e := effect("A-1")
	_, err := w.fence.Do(w.t.Context(), e, func(_ context.Context, first zabor.Row) zabor.Outcome {
		released := w.swap(first, func(next *zabor.Row) { next.State = zabor.Released }) // as a resolver does when the first is gone
		w.restart()
		row, err := w.fence.Do(w.t.Context(), e, func(_ context.Context, second zabor.Row) zabor.Outcome {
			late := first
			late.State = zabor.Released
			late.Claim.Epoch++ // each write of a row is one more
			if err := w.store.Swap(w.t.Context(), first, late, zabor.Write{}); !errors.Is(err, zabor.ErrStale) {
				w.t.Errorf("the late release of epoch %d: error %v, want %v", first.Claim.Epoch, err, zabor.ErrStale)
			}
			if row := w.row(e.Key); row.State != zabor.Captured || row.Claim != second.Claim || second.Claim.Epoch <= released.Claim.Epoch {
				w.t.Errorf("the row is %s under %+v, want captured under %+v", row.State, row.Claim, second.Claim)
			}
			return done
		})
		if err != nil || row.State != zabor.Settled {
			w.t.Errorf("the second claim ends %s, %v", row.State, err)
		}
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "no connection"} // the first says so when it is too late
	})
	if row := w.row(e.Key); row.State != zabor.Settled {
		w.t.Errorf("the row is %s after the late first claim, %v", row.State, err)
	}
}

// deaf is a store whose writes of claims fail.
type deaf struct{ zabor.Store }

func (deaf) Swap(context.Context, zabor.Row, zabor.Row, zabor.Write) error {
	return errors.New("the database is away")
}

// Where the write between two requests fails, the second is not sent.
func failedWriteBetweenTwo(w *world) {
	e := twoStep("A-1")
	w.fence.Store = deaf{w.store}
	_, err := w.fence.Do(w.t.Context(), e, w.answers(prepared))
	if !errors.Is(err, zabor.ErrInDoubt) {
		w.t.Errorf("error %v, want %v", err, zabor.ErrInDoubt)
	}
	w.wants(1, 1)
}

// mails counts, as an application's table does, how often the settled hook ran.
func (w *world) mails() (count func() int) {
	w.t.Helper()
	for _, text := range []string{"DROP TABLE IF EXISTS mails", "CREATE TABLE mails (n INT NOT NULL)", "INSERT INTO mails (n) VALUES (0)"} {
		if _, err := w.store.DB().ExecContext(w.t.Context(), text); err != nil {
			w.t.Fatal(err)
		}
	}
	w.fence.Hook = func(row zabor.Row) (*zabor.Hook, error) {
		if row.State != zabor.Settled {
			return nil, nil
		}
		return &zabor.Hook{Name: "settled", SQL: "UPDATE mails SET n = n + 1", Rows: 1}, nil
	}
	return func() (n int) {
		w.t.Helper()
		if err := w.store.DB().QueryRowContext(w.t.Context(), "SELECT n FROM mails").Scan(&n); err != nil {
			w.t.Fatal(err)
		}
		return n
	}
}

// A worker and a resolver, who stands for the webhook, report the same success at
// the same moment.
func twoReportOneSuccess(w *world) {
	mails := w.mails()
	e := effect("A-1")
	var resolving sync.WaitGroup
	_, err := w.fence.Do(w.t.Context(), e, func(_ context.Context, row zabor.Row) zabor.Outcome {
		w.swap(row, func(next *zabor.Row) { next.State = zabor.Doubt })
		r := zabor.Resolver{Fence: w.fence, Lookup: func(context.Context, zabor.Row) (zabor.Finding, error) {
			return zabor.Finding{Outcome: done}, nil
		}}
		resolving.Go(func() {
			if err := r.Round(w.t.Context()); err != nil {
				w.t.Error(err)
			}
		})
		return done
	})
	resolving.Wait()
	if row := w.row(e.Key); err != nil || row.State != zabor.Settled || row.OtherReference != "" || mails() != 1 {
		w.t.Errorf("%v, %s, other reference %q, %d mails", err, row.State, row.OtherReference, mails())
	}
	if len(w.alerts) != 0 {
		w.t.Errorf("alerts %+v", w.alerts)
	}
}

// Two equal jobs are one effect, and the shop is told once.
func twoEqualJobs(step string) func(*world) {
	return func(w *world) {
		mails := w.mails()
		e := effect("A-1")
		e.Key.Step = step
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				for {
					_, err := w.fence.Do(w.t.Context(), e, w.answers(done))
					if !errors.Is(err, zabor.ErrBusy) {
						if err != nil {
							w.t.Error(err)
						}
						return
					}
				}
			})
		}
		both.Wait()
		w.wants(1, 1)
		if mails() != 1 {
			w.t.Errorf("%d mails, want 1", mails())
		}
	}
}

// Order ids are bytes: what a database, a language or a reader may take for one is
// two.
func twoOrders(a, b string) func(*world) {
	return func(w *world) {
		first, second := effect(a), effect(b)
		twoKeys(w, first, second)
	}
}

// Two sites of one provider account have the same order numbers.
func twoSites(w *world) {
	first, second := effect("1001"), effect("1001")
	first.Key.Scope, second.Key.Scope = "t1", "t2"
	twoKeys(w, first, second)
}

func twoKeys(w *world, effects ...zabor.Effect) {
	w.t.Helper()
	keys := map[string]bool{}
	for range 2 {
		for _, e := range effects {
			row, err := w.fence.Do(w.t.Context(), e, w.answers(done))
			if err != nil || row.Key != e.Key {
				w.t.Errorf("%s, %v; want %s", row.Key, err, e.Key)
			}
			keys[row.ProviderKey] = true
		}
	}
	w.wants(2, 2)
	if len(keys) != 2 {
		w.t.Errorf("provider keys %v, want two", keys)
	}
}

// Another card after a no is another request: under the same key it is refused with
// an alert and parked, and as another part of the step it is charged.
func TestAnotherCardAfterADecline(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		pay := func(step, card string, o zabor.Outcome) (zabor.Row, error) {
			e := effect("1001")
			e.Key.Step, e.Fingerprint.Request = step, card
			return w.fence.Do(t.Context(), e, w.answers(o))
		}
		first, err := pay("charge:1", "visa", zabor.Outcome{Verdict: zabor.Refused, Reason: "no money"})
		if err != nil || first.State != zabor.Declined {
			t.Fatalf("%s, %v", first.State, err)
		}
		if _, err := pay("charge:1", "mastercard", done); !errors.Is(err, zabor.ErrOtherRequest) || !zabor.Park(err) || w.calls != 1 {
			t.Errorf("the same part: %v, %d calls", err, w.calls)
		}
		if n, _ := w.alerted("other-request"); n != 1 {
			t.Errorf("%d alerts, want 1", n)
		}
		if _, err := pay("charge:1", "visa", done); err != nil || w.calls != 1 {
			t.Errorf("the same card again: %v, %d calls; want the no acked", err, w.calls)
		}
		second, err := pay("charge:2", "mastercard", done)
		if err != nil || second.State != zabor.Settled || second.ProviderKey == first.ProviderKey || w.calls != 2 {
			t.Errorf("another part: %s, %v, %d calls", second.State, err, w.calls)
		}
		if row := w.row(first.Key); row.State != zabor.Declined {
			t.Errorf("the first part is %s by it", row.State)
		}
	})
}
