package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
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

// countBatches counts the batches of s, and fails t if one of them fails.
func countBatches(t *testing.T, s *Store) *int {
	batches, batch := 0, s.dialect.batch
	s.dialect.batch = func(ctx context.Context, s *Store, all []statement) error {
		batches++
		err := batch(ctx, s, all)
		if err != nil {
			t.Errorf("a batch of %d statements failed, and its writers wrote alone: %v", len(all), err)
		}
		return err
	}
	return &batches
}

// Many inserts and many swaps are each in the table, whole, with few commits.
func TestBatch(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := migrated(t, d.address(t))
			batches := countBatches(t, s)
			const n = 200
			rows := make([]zabor.Row, n)
			var writes []func()
			for i := range n {
				rows[i] = testRow(fmt.Sprint(i), byte(i))
				rows[i].Open.Request = fmt.Appendf(nil, "request \x00\xff %d", i)
				writes = append(writes, func() {
					got, err := s.Insert(t.Context(), rows[i], zabor.Write{Lease: time.Duration(i+1) * time.Minute, ReplayFor: time.Hour})
					if err != nil || got.Claim != rows[i].Claim {
						t.Errorf("insert %d: %v, claim %v", i, err, got.Claim)
					}
				})
			}
			together(t, &s.line, writes...).Wait()
			for i := range n {
				got, err := s.Load(t.Context(), rows[i].Key)
				if err != nil {
					t.Fatal(err)
				}
				if got.State != zabor.Captured || got.Claim != rows[i].Claim || string(got.Open.Request) != string(rows[i].Open.Request) {
					t.Fatalf("row %d: got %+v\nwant %+v", i, got, rows[i])
				}
				lease := time.Duration(i+1) * time.Minute
				if left := got.Open.SendUntil.Sub(got.ReadAt); left > lease || left < lease-30*time.Second {
					t.Errorf("row %d: may send for another %v, want about %v", i, left, lease)
				}
				if left := got.Open.ReplayUntil.Sub(got.ReadAt); left > time.Hour || left < 59*time.Minute {
					t.Errorf("row %d: may be sent again for %v, want about an hour", i, left)
				}
			}

			// Settlements, some of which differ from the others in more than their answer.
			writes = nil
			for i := range n {
				prev := rows[i]
				rows[i].Claim = zabor.Claim{Epoch: 2, ID: [16]byte{byte(i), 0xff}}
				rows[i].State, rows[i].Reference, rows[i].Open = zabor.Settled, fmt.Sprintf("pay é\xff %d", i), zabor.Open{}
				rows[i].Answer = &zabor.Answer{Status: 200 + i%3, Header: []zabor.HeaderField{{Name: "N", Value: fmt.Sprint(i)}}, Body: fmt.Appendf(nil, "body %d", i)}
				switch i % 10 {
				case 0:
					rows[i].State, rows[i].Reference, rows[i].Reason = zabor.Declined, "", "no money"
				case 1:
					rows[i].Tries, rows[i].Answer = 2, nil
				case 2:
					rows[i].State, rows[i].Reference = zabor.Doubt, ""
				}
				writes = append(writes, func() {
					if err := s.Swap(t.Context(), prev, rows[i], zabor.Write{}); err != nil {
						t.Errorf("swap %d: %v", i, err)
					}
				})
			}
			together(t, &s.line, writes...).Wait()
			for i, want := range rows {
				got, err := s.Load(t.Context(), want.Key)
				if err != nil {
					t.Fatal(err)
				}
				want.CapturedAt, want.StateSince, want.ReadAt, want.Open = got.CapturedAt, got.StateSince, got.ReadAt, got.Open
				if !reflect.DeepEqual(got, want) {
					t.Errorf("row %d: got %+v\nwant %+v", i, got, want)
				}
			}
			if *batches == 0 || *batches > 20 {
				t.Errorf("batches=%d for 400 writes, want a few", *batches)
			}
		})
	}
}

// committedOf are the keys of the rows in the given state.
func committedOf(t *testing.T, s *Store, state zabor.State) int {
	t.Helper()
	rows, err := s.Reports().List(t.Context(), Filter{States: []zabor.State{state}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

// capturedRows are n rows that were inserted, and how each is settled.
func capturedRows(t *testing.T, s *Store, n int) (rows, settled []zabor.Row) {
	t.Helper()
	for i := range n {
		row := testRow(fmt.Sprint(i), byte(i))
		if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		next := settledAfter(row)
		next.Claim.ID[0], next.Reference = byte(i), fmt.Sprint("pi_", i)
		rows, settled = append(rows, row), append(settled, next)
	}
	return rows, settled
}

// A batch with a stale claim commits nothing. Its writers write alone: the stale one is
// told so, and the others land.
func TestBatchWithAStaleOne(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := migrated(t, d.address(t))
			failed, batch := 0, s.dialect.batch
			s.dialect.batch = func(ctx context.Context, s *Store, all []statement) error {
				err := batch(ctx, s, all)
				if len(all) == 1 && all[0].rows == 1 || err == nil { // a lone write of PostgreSQL's
					return err
				}
				if failed++; !errors.Is(err, errMissed) {
					t.Errorf("the batch failed with %v, want %v", err, errMissed)
				}
				if n := committedOf(t, s, zabor.Settled) + count(t, s, "SELECT COUNT(*) FROM zabor_references"); n != 0 && failed == 1 {
					t.Errorf("%d rows of the batch that failed were committed", n)
				}
				return err
			}
			rows, settled := capturedRows(t, s, 16)
			var writes []func()
			for i := range rows {
				prev := rows[i]
				if i == 7 {
					prev.Claim.ID[15]++
				}
				writes = append(writes, func() {
					if err := s.Swap(t.Context(), prev, settled[i], zabor.Write{}); (i == 7) != errors.Is(err, zabor.ErrStale) || i != 7 && err != nil {
						t.Errorf("swap %d: %v", i, err)
					}
				})
			}
			together(t, &s.line, writes...).Wait()
			if failed == 0 {
				t.Error("no batch failed: this test shows nothing")
			}
			if n := committedOf(t, s, zabor.Settled); n != 15 {
				t.Errorf("%d rows are settled, want 15", n)
			}
			if n := count(t, s, "SELECT COUNT(*) FROM zabor_references"); n != 15 {
				t.Errorf("%d references, want 15", n)
			}
		})
	}
}

// Of two settlements with one reference one lands, and the other is told whose it is:
// in one batch, in two at once, and alone.
func TestBatchWithOneReferenceTwice(t *testing.T) {
	for _, d := range databases {
		for _, how := range []string{"one batch", "two batches", "alone"} {
			t.Run(d.name+"/"+how, func(t *testing.T) {
				address := d.address(t)
				stores := [2]*Store{migrated(t, address), open(t, address)}
				rows, settled := capturedRows(t, stores[0], 16)
				settled[3].Reference = settled[8].Reference
				var writes [2][]func()
				var mu sync.Mutex
				var refused []zabor.Key
				for i := range rows {
					into := 0
					if how == "two batches" {
						into = i / 8
					}
					writes[into] = append(writes[into], func() {
						err := stores[into].Swap(t.Context(), rows[i], settled[i], zabor.Write{})
						taken, ok := errors.AsType[*zabor.ReferenceError](err)
						switch {
						case ok:
							mu.Lock()
							refused = append(refused, rows[i].Key)
							mu.Unlock()
							if other := rows[3+8-i].Key; taken.Reference != "pi_8" || taken.Owner != other || i != 3 && i != 8 {
								t.Errorf("swap %d: %v; want that pi_8 belongs to %s", i, err, other)
							}
						case err != nil:
							t.Errorf("swap %d: %v", i, err)
						}
					})
				}
				var wg sync.WaitGroup
				for i, s := range stores {
					switch {
					case how == "alone":
						for _, write := range writes[i] {
							write()
						}
					case len(writes[i]) > 0:
						wg.Go(func() { together(t, &s.line, writes[i]...).Wait() })
					}
				}
				wg.Wait()
				if len(refused) != 1 {
					t.Fatalf("%v were refused, want one of two", refused)
				}
				there, err := stores[0].Load(t.Context(), refused[0])
				if err != nil || there.State != zabor.Captured || there.Reference != "" || there.Claim.Epoch != 1 {
					t.Errorf("the refused row is %s with %q, epoch %d, %v; want it as it was", there.State, there.Reference, there.Claim.Epoch, err)
				}
				if n := committedOf(t, stores[0], zabor.Settled); n != 15 {
					t.Errorf("%d rows are settled, want 15", n)
				}
			})
		}
	}
}

// Steps of one order may share a reference, also where both come at once.
func TestStepsShareAReference(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		var writes []func()
		for i, step := range []string{"charge", "capture"} {
			row := testRow("1", byte(i))
			row.Step = step
			if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			next := settledAfter(row)
			writes = append(writes, func() {
				if err := s.Swap(t.Context(), row, next, zabor.Write{}); err != nil {
					t.Errorf("%s: %v", step, err)
				}
			})
		}
		together(t, &s.line, writes...).Wait()
		if n := committedOf(t, s, zabor.Settled); n != 2 {
			t.Errorf("%d rows are settled, want 2", n)
		}
	})
}

// A batch whose COMMIT is refused was not committed, although each of its statements went
// well.
func TestBatchWhoseCommitFails(t *testing.T) {
	s := migrated(t, servers.Postgres(t))
	mustExec(t, s.DB(),
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.order_id = ''7'' THEN RAISE EXCEPTION ''not this one''; END IF; RETURN NULL; END'",
		"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON zabor_fences DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()")
	var writes []func()
	for i := range 16 {
		writes = append(writes, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, err := s.Insert(ctx, testRow(fmt.Sprint(i), byte(i)), zabor.Write{}); (err != nil) != (i == 7) {
				t.Errorf("insert %d: %v", i, err)
			}
		})
	}
	together(t, &s.line, writes...).Wait()
	if n := committedOf(t, s, zabor.Captured); n != 15 {
		t.Errorf("%d rows are there, want 15", n)
	}
}

// A batch of settlements makes no temporary table on MariaDB's disk.
func TestNoTemporaryTables(t *testing.T) {
	s := migrated(t, servers.MariaDBDatabase(t, servers.OwnMariaDB(t)))
	rows, settled := capturedRows(t, s, 128)
	batches := countBatches(t, s)
	var writes []func()
	for i := range rows {
		settled[i].Answer = &zabor.Answer{Status: 200, Body: bytes.Repeat([]byte("x"), 2000)}
		writes = append(writes, func() {
			if err := s.Swap(t.Context(), rows[i], settled[i], zabor.Write{}); err != nil {
				t.Errorf("swap %d: %v", i, err)
			}
		})
	}
	const onDisk = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Created_tmp_disk_tables'"
	count(t, s, onDisk) // it makes one itself, once and for all
	before := count(t, s, onDisk)
	own := count(t, s, onDisk) - before
	together(t, &s.line, writes...).Wait()
	if made := count(t, s, onDisk) - before - 2*own; made != 0 || *batches == 0 {
		t.Errorf("%d temporary tables on disk for %d batches, want none", made, *batches)
	}
	if n := committedOf(t, s, zabor.Settled); n != 128 {
		t.Errorf("%d rows are settled, want 128", n)
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
			wg := together(t, &s.line, writes...)
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
	c, err := s.insertion(row, zabor.Write{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), c.first.query, c.first.args...); err != nil {
		t.Fatal(err)
	}
}

// A panic in a shared commit is its leader's alone: the others write by themselves, and so
// does whoever comes after them.
func TestAPanicInABatch(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		batch, first := s.dialect.batch, true
		s.dialect.batch = func(ctx context.Context, s *Store, all []statement) error {
			if first {
				first = false
				panic("driver")
			}
			return batch(ctx, s, all)
		}
		var panics, written atomic.Int32
		ended := make(chan struct{}, 4)
		write := func(order string) func() {
			return func() {
				defer func() {
					if recover() != nil { // as net/http does
						panics.Add(1)
					}
					ended <- struct{}{}
				}()
				if _, err := s.Insert(t.Context(), testRow(order, 1), zabor.Write{Lease: time.Minute}); err == nil {
					written.Add(1)
				}
			}
		}
		wait := func() {
			t.Helper()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatalf("%d writers have panicked and %d written; the others wait", panics.Load(), written.Load())
			}
		}
		together(t, &s.line, write("a"), write("b"), write("c"))
		for range 3 {
			wait()
		}
		go write("d")()
		wait()
		if panics.Load() != 1 || written.Load() != 3 {
			t.Errorf("%d writers have panicked and %d written, want 1 and 3", panics.Load(), written.Load())
		}
	})
}
