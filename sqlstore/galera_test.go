package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
)

// Two nodes of a Galera cluster both take writes, and do not see each other's row
// locks: of two captures of one key both inserts succeed, and the commit that
// comes second fails. Nothing was captured by it and nothing is sent.
func TestGalera(t *testing.T) {
	t.Parallel()
	nodes := servers.Galera(t)
	address := servers.MariaDBDatabase(t, nodes[0])
	near := migrated(t, address)
	mustExec(t, near.DB(), "CREATE TABLE payments (order_id VARCHAR(64) PRIMARY KEY)")
	far := "mysql://root@" + nodes[1].Addr() + address[len("mysql://root@"+nodes[0].Addr()):]
	p, detour := newProxy(t, far)
	stores := [2]*Store{near, open(t, detour)}
	secret, err := near.Setup().Secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var fences [2]*zabor.Fence
	for i, s := range stores {
		fences[i] = &zabor.Fence{Store: s, Secret: secret}
	}
	var calls atomic.Int64
	deliver := func(f *zabor.Fence, order string) (zabor.Row, error) {
		return f.Do(t.Context(), zabor.Effect{
			Key: zabor.Key{Order: order, Step: "charge"}, Provider: "stripe", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
			Render:  func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("frozen-request"), nil },
			Timeout: 30 * time.Second, MaxAttempts: 3, MissingRow: zabor.Captured,
		}, func(context.Context, zabor.Row) zabor.Outcome {
			return zabor.Outcome{Verdict: zabor.Done, Reference: fmt.Sprint("pi_", calls.Add(1))}
		})
	}
	conflicts := func() int { // as both nodes have counted them
		n := 0
		for _, s := range stores {
			n += count(t, s, "SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')")
		}
		return n
	}

	t.Run("a commit that fails", func(t *testing.T) {
		hook := func(row zabor.Row) (*zabor.Hook, error) {
			if row.State != zabor.Captured {
				return nil, nil
			}
			return &zabor.Hook{Name: "captured", SQL: "INSERT INTO payments VALUES (?)", Args: []any{row.Order}, Rows: 1}, nil
		}
		hooked := [2]*zabor.Fence{{Store: stores[0], Secret: secret, Hook: hook}, {Store: stores[1], Secret: secret, Hook: hook}}
		before := conflicts()
		p.breakNext(slow, []byte("COMMIT"))
		type result struct {
			row zabor.Row
			err error
		}
		late := make(chan result)
		go func() {
			row, err := deliver(hooked[1], "1001")
			late <- result{row, err}
		}()
		<-p.broken // its capture and its hook are done, and the commit is on its way
		first, err := deliver(hooked[0], "1001")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other node ends the transaction that came second", func() bool { return conflicts() > before })
		close(p.release)
		second := <-late
		if second.err != nil || second.row.Reference != first.Reference || calls.Load() != 1 {
			t.Errorf("%d calls; the second worker has %q and %v, want the first one's %q", calls.Load(), second.row.Reference, second.err, first.Reference)
		}
		if n := count(t, stores[1], "SELECT COUNT(*) FROM payments"); n != 1 || first.Tries != 1 {
			t.Errorf("%d payments and %d tries, want one of each", n, first.Tries)
		}
	})

	t.Run("many keys at once", func(t *testing.T) {
		before, called := conflicts(), calls.Load()
		keys := 0
		for deadline := time.Now().Add(time.Minute); conflicts() == before; {
			if time.Now().After(deadline) {
				t.Fatal("no two commits have met: this test shows nothing")
			}
			const some = 16
			var all sync.WaitGroup
			for i := range some {
				for _, f := range fences {
					all.Go(func() {
						if _, err := deliver(f, fmt.Sprint("many-", keys+i)); err != nil && !errors.Is(err, zabor.ErrBusy) {
							t.Error(err)
						}
					})
				}
			}
			all.Wait()
			keys += some
		}
		if got := calls.Load() - called; got != int64(keys) {
			t.Errorf("%d calls for %d keys", got, keys)
		}
		for _, s := range stores {
			if n := count(t, s, "SELECT COUNT(*) FROM zabor_fences WHERE state = 'settled' AND order_id LIKE 'many-%'"); n != keys {
				t.Errorf("%d rows are settled, want %d", n, keys)
			}
		}
	})

	// What one node has committed, a write on the other takes into account: a
	// claim has one successor.
	t.Run("one successor of a claim", func(t *testing.T) {
		for i := range 16 {
			row := testRow(fmt.Sprint("claim-", i), 1)
			if _, err := near.Insert(t.Context(), row, zabor.Write{Lease: row.Open.Lease}); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			var errs [2]error
			for j, s := range stores {
				next := settledAfter(row)
				next.Claim.ID[0] = byte(j)
				next.Reference = "pi of " + row.Order
				all.Go(func() { errs[j] = s.Swap(t.Context(), row, next, zabor.Write{}) })
			}
			all.Wait()
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), zabor.ErrStale) {
				t.Errorf("%s: %v and %v, want one write and one that is stale", row.Key, errs[0], errs[1])
			}
		}
	})
}
