package zabor_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
	"zabor/provider"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// Of many resolvers on one table one asks about a row: the provider is not asked as
// often as there are processes.
func TestManyResolversAskOnceAboutARow(t *testing.T) {
	const resolvers, doubtful, allowed = 4, 200, 4
	for name, address := range map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "fence.db") },
		"mariadb":  servers.MariaDB,
		"postgres": servers.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := address(t)
			w := newWorld(t, openStore(t, place))
			bank := sandbox.New(sandbox.Options{})
			var looks atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					looks.Add(1)
				}
				bank.ServeHTTP(rw, r)
			}))
			t.Cleanup(server.Close)
			acquirer, err := provider.New("acquirer", sandbox.Profile(server.URL, time.Minute), provider.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var making sync.WaitGroup
			orders := make(chan int, doubtful)
			for i := range doubtful {
				orders <- i
			}
			close(orders)
			for range 8 {
				making.Go(func() {
					for i := range orders {
						e := effect(fmt.Sprint(i))
						e.Timeout, e.AbsentAfter = time.Minute, time.Minute
						e.Render = func(k zabor.ProviderKeys, _ string) ([]byte, error) {
							return provider.Freeze(provider.Request{
								Method: "POST", Path: "/payments", ContentType: "application/json",
								Body: fmt.Appendf(nil, `{"amount":1999,"currency":"EUR","order":"%d","merchant_reference":%q}`, i, k.Request),
							})
						}
						// Of its own for each: many lost answers in a row pause one.
						f := &zabor.Fence{Store: w.store, Secret: w.fence.Secret}
						f.Do(t.Context(), e, func(ctx context.Context, row zabor.Row) zabor.Outcome {
							if o := acquirer.Call(ctx, row); o.Verdict != zabor.Done {
								t.Errorf("the call: %+v", o)
							}
							return zabor.Outcome{Reason: "the answer was lost"}
						})
					}
				})
			}
			making.Wait()

			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			var running sync.WaitGroup
			for range resolvers {
				store, err := sqlstore.Open(place)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				r := &zabor.Resolver{
					Fence:  &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret)},
					Lookup: acquirer.Lookup, Every: 20 * time.Millisecond,
				}
				running.Go(func() { r.Run(ctx, func(err error) { t.Error(err) }) })
			}
			left := doubtful
			for left > 0 && ctx.Err() == nil {
				if err := w.store.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM zabor_fences WHERE state = 'doubt'").Scan(&left); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			running.Wait()
			if got := looks.Load(); left > 0 || got > doubtful+allowed {
				t.Errorf("%d rows are left, %d look-ups, want at most %d", left, got, doubtful+allowed)
			}
			if s := bank.Stats(); s.Charges != doubtful || s.Repeated != 0 {
				t.Errorf("charges %d, %d orders more than once", s.Charges, s.Repeated)
			}
		})
	}
}

// A resolver that dies while it asks keeps others from its rows for LookTime, and no
// longer. What it was told by then is saved all the same.
func TestAResolverThatDiesWhileItAsks(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		k := w.doubtful("1001")
		asked, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		found := zabor.Finding{Outcome: zabor.Outcome{Verdict: zabor.Done, Reference: "pay_2"}}
		dead := zabor.Resolver{Fence: w.fence, Lookup: func(context.Context, zabor.Row) (zabor.Finding, error) {
			close(asked)
			<-end // as good as dead
			return found, nil
		}}
		w.dueNow()
		go func() { defer close(ended); dead.Round(context.WithoutCancel(t.Context())) }()
		<-asked
		looks := 0
		other := zabor.Resolver{Fence: &zabor.Fence{Store: s, Secret: w.fence.Secret, Observer: zabor.Observer{Alert: w.alert}}, Lookup: func(context.Context, zabor.Row) (zabor.Finding, error) {
			looks++
			return found, nil
		}}
		round := func(later time.Duration) {
			t.Helper()
			w.leasesEnd(later)
			if err := other.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		round(0)
		if looks != 0 {
			t.Error("two resolvers ask about one row")
		}
		round(zabor.LookupTime)
		if row := w.row(k); looks != 1 || row.State != zabor.Settled || row.Reference != "pay_2" {
			t.Errorf("%d look-ups, the row is %s %q", looks, row.State, row.Reference)
		}
		close(end)
		<-ended
		if row := w.row(k); row.State != zabor.Settled || row.OtherReference != "" {
			t.Errorf("after the late answer: %s, other reference %q", row.State, row.OtherReference)
		}
	})
}

// A resolver that is stopped leaves what it has not asked about to others, once its
// lease has ended.
func TestAResolverThatStops(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		for i := range 5 {
			w.doubtful(fmt.Sprint(i))
		}
		w.dueNow()
		ctx, stop := context.WithCancel(t.Context())
		looks := 0
		r := zabor.Resolver{Fence: w.fence, Lookup: func(context.Context, zabor.Row) (zabor.Finding, error) {
			stop()
			looks++
			return zabor.Finding{Outcome: zabor.Outcome{}}, nil
		}}
		r.Round(ctx)
		if looks != 1 {
			t.Errorf("%d look-ups, want one and the stop", looks)
		}
		w.leasesEnd(zabor.LookupTime)
		rows, err := s.Watch(t.Context(), zabor.Watch{By: [16]byte{1}, For: time.Second, Limit: 10})
		if err != nil || len(rows) < 4 {
			t.Errorf("%d rows for another resolver, %v; want at least the four that were not asked about", len(rows), err)
		}
	})
}

// A payment that stays without a verdict is held with its reference when its time
// is over, and is not called again.
func TestPendingEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *sqlstore.Store) {
		w := newWorld(t, s)
		r := w.resolver()
		e := effect("1001")
		e.PendingFor = time.Microsecond
		begun := zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_1"}
		r.finds["1001"] = zabor.Finding{Outcome: begun}
		if _, err := w.fence.Do(t.Context(), e, w.answers(begun)); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "hold", func() bool {
			r.after(time.Second)
			return w.row(e.Key).State == zabor.Held
		})
		row := w.row(e.Key)
		if n, _ := w.alerted("held"); n != 1 || row.Reference != "pay_1" || r.lookups == 0 {
			t.Errorf("%d alerts, reference %q, %d look-ups", n, row.Reference, r.lookups)
		}
		if _, err := w.fence.Do(t.Context(), e, w.answers(done)); w.calls != 1 || !zabor.Park(err) {
			t.Errorf("delivered again: %v, %d calls, want one", err, w.calls)
		}
	})
}
