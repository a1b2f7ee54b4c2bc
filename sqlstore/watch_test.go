package sqlstore

import (
	"testing"
	"time"

	"zabor"
)

// A row that is being written is left out of a lease; a server that cannot skip it waits
// for its writer.
func TestWatchSkipsWhatIsLocked(t *testing.T) {
	for _, d := range databases[1:] {
		for _, waits := range []bool{false, true} {
			t.Run(d.name+map[bool]string{true: ", without SKIP LOCKED"}[waits], func(t *testing.T) {
				t.Parallel()
				s := migrated(t, d.address(t))
				s.waits.Store(waits)
				for _, order := range []string{"1", "2"} {
					row := zabor.Row{Key: zabor.Key{Order: order, Step: "charge"}, State: zabor.Doubt, Claim: zabor.Claim{Epoch: 1}}
					if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
						t.Fatal(err)
					}
				}
				tx, err := s.DB().BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				mustExec(t, tx, "UPDATE zabor_fences SET reason = 'being written' WHERE order_id = '1'")
				type given struct {
					rows []zabor.Row
					err  error
				}
				done := make(chan given, 1)
				go func() {
					mine, err := s.Watch(t.Context(), zabor.Watch{By: [16]byte{1}, For: time.Minute, Limit: 10})
					done <- given{mine, err}
				}()
				want := 1
				if waits {
					select {
					case g := <-done:
						t.Errorf("it did not wait: %+v", g)
					case <-time.After(200 * time.Millisecond):
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					want = 2
				}
				if g := <-done; g.err != nil || len(g.rows) != want {
					t.Errorf("given %d rows, %v; want %d", len(g.rows), g.err, want)
				}
			})
		}
	}
}
