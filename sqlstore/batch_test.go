package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
)

// together makes the given writes share a commit: it keeps the line busy until
// all of them wait in it.
func together(t *testing.T, g *gathering, writes ...func()) *sync.WaitGroup {
	t.Helper()
	g.mu.Lock()
	g.leading = true
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, write := range writes {
		wg.Go(write)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		g.mu.Lock()
		n := len(g.waiting)
		g.mu.Unlock()
		if n == len(writes) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d writes wait in the line", n, len(writes))
		}
	}
	g.next()
	return &wg
}

// Many inserts and many swaps are each in the table, whole, with few commits.
func TestBatch(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := migrated(t, d.address(t))
			batches, batch := 0, s.dialect.batch
			s.dialect.batch = func(ctx context.Context, s *Store, ops []*batched) error {
				batches++
				err := batch(ctx, s, ops)
				if err != nil {
					t.Errorf("a batch of %d failed, and its writers wrote alone: %v", len(ops), err)
				}
				return err
			}
			const n = 200
			rows := make([]zabor.Row, n)
			var writes []func()
			for i := range n {
				rows[i] = testRow(fmt.Sprint(i), byte(i))
				rows[i].Request = fmt.Appendf(nil, "request \x00\xff %d", i)
				writes = append(writes, func() {
					got, err := s.Insert(t.Context(), rows[i], zabor.Write{Lease: time.Duration(i+1) * time.Minute, ReplayFor: time.Hour})
					if err != nil || got.Claim != rows[i].Claim {
						t.Errorf("insert %d: %v, claim %v", i, err, got.Claim)
					}
				})
			}
			together(t, s.lines[s.text.insert], writes...).Wait()
			check := func(state zabor.State) {
				t.Helper()
				for i := range n {
					got, err := s.Load(t.Context(), rows[i].Key)
					if err != nil {
						t.Fatal(err)
					}
					if got.State != state || got.Claim != rows[i].Claim || string(got.Request) != string(rows[i].Request) || got.Reference != rows[i].Reference {
						t.Fatalf("row %d: got %+v\nwant %+v", i, got, rows[i])
					}
					lease := time.Duration(i+1) * time.Minute
					if left := got.SendUntil.Sub(got.ReadAt); left > lease || left < lease-30*time.Second {
						t.Errorf("row %d: may send for another %v, want about %v", i, left, lease)
					}
					if left := got.ReplayUntil.Sub(got.ReadAt); left > time.Hour || left < 59*time.Minute {
						t.Errorf("row %d: may be sent again for %v, want about an hour", i, left)
					}
				}
			}
			check(rows[0].State)
			writes = nil
			for i := range n {
				prev := rows[i]
				rows[i].Claim = zabor.Claim{Epoch: 2, ID: [16]byte{byte(i), 0xff}}
				rows[i].State, rows[i].Reference, rows[i].Request = zabor.Settled, fmt.Sprintf("pay é\xff %d", i), nil
				writes = append(writes, func() {
					if err := s.Swap(t.Context(), prev, rows[i], zabor.Write{}); err != nil {
						t.Errorf("swap %d: %v", i, err)
					}
				})
			}
			together(t, s.lines[s.text.outcome], writes...).Wait()
			check(zabor.Settled)
			if batches == 0 || batches > 20 {
				t.Errorf("batches=%d for 400 writes, want a few", batches)
			}
		})
	}
}

// A stale write in a batch is told so; those that shared with it are written.
func TestBatchWithAStaleOne(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := migrated(t, d.address(t))
			var writes []func()
			for i := range 16 {
				row := testRow(fmt.Sprint(i), byte(i))
				if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
					t.Fatal(err)
				}
				prev := row
				if i == 7 {
					prev.Claim.ID[15]++
				}
				row.Claim, row.State = zabor.Claim{Epoch: 2, ID: [16]byte{byte(i), 1}}, zabor.Doubt
				writes = append(writes, func() {
					err := s.Swap(t.Context(), prev, row, zabor.Write{})
					if stale := err != nil; stale != (i == 7) {
						t.Errorf("swap %d: %v", i, err)
					}
				})
			}
			together(t, s.lines[s.text.outcome], writes...).Wait()
			doubt, err := s.Open(t.Context(), []zabor.State{zabor.Doubt}, zabor.Key{}, 100)
			if err != nil || len(doubt) != 15 {
				t.Errorf("%d rows in doubt, %v; want 15", len(doubt), err)
			}
		})
	}
}

// Of a batch of 16 with one duplicate and one row that another transaction has
// locked, 14 are captured in good time, the duplicate is recognised, and the
// locked one waits alone.
func TestBatchWithADuplicateAndAStalledOne(t *testing.T) {
	for name, address := range map[string]func(testing.TB) string{"mariadb": servers.MariaDB, "postgres": servers.Postgres} {
		t.Run(name, func(t *testing.T) {
			s := migrated(t, address(t))
			there := testRow("3", 99)
			if _, err := s.Insert(t.Context(), there, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			tx, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			lock(t, s, tx, testRow("5", 98))

			start := time.Now()
			var mu sync.Mutex
			took := map[int]time.Duration{}
			var writes []func()
			for i := range 16 {
				row := testRow(fmt.Sprint(i), byte(i))
				writes = append(writes, func() {
					got, err := s.Insert(t.Context(), row, zabor.Write{Lease: time.Minute})
					mu.Lock()
					defer mu.Unlock()
					took[i] = time.Since(start)
					if err != nil {
						t.Errorf("insert %d: %v", i, err)
					}
					want := row.Claim
					if i == 3 {
						want = there.Claim
					}
					if got.Claim != want {
						t.Errorf("insert %d: claim %v, want %v", i, got.Claim, want)
					}
				})
			}
			wg := together(t, s.lines[s.text.insert], writes...)
			deadline := time.Now().Add(20 * time.Second)
			for {
				mu.Lock()
				n := len(took)
				mu.Unlock()
				if n == 15 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d of 15 were written beside the stalled one", n)
				}
			}
			if limit := batchLimit + 3*time.Second; time.Since(start) > limit {
				t.Errorf("the others took %v, want at most %v", time.Since(start), limit)
			}
			if _, early := took[5]; early {
				t.Error("the locked row was written while it was locked")
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
		})
	}
}

// lock inserts row in tx, which is not committed.
func lock(t *testing.T, s *Store, tx *sql.Tx, row zabor.Row) {
	t.Helper()
	outcome, err := s.outcomeArgs(row)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(keyArgs(row.Key), askedArgs(row), outcome, fromNow(0), fromNow(0))
	if _, err := tx.ExecContext(t.Context(), s.text.insert, args...); err != nil {
		t.Fatal(err)
	}
}
