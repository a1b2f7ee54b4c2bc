package sqlstore

import (
	"errors"
	"strings"
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

// A row that cannot be read is named, and keeps no other from being looked at: it is leased
// as they are, and is no sample.
func TestOneRowThatCannotBeRead(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		insert := func(order string, state zabor.State) {
			t.Helper()
			row := testRow(order, 1)
			row.State, row.Reference, row.Answer, row.ProviderKey = state, "pay_"+order, &zabor.Answer{Status: 200}, order
			if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		for _, order := range []string{"bad", "good"} {
			insert(order, zabor.Doubt)
			insert(order+" sample", zabor.Settled)
		}
		mustExec(t, s.DB(), "UPDATE zabor_fences SET answer_header = '{' WHERE provider_key IN ('bad', 'bad sample')")
		due := zabor.Watch{By: [16]byte{1}, For: time.Minute, Limit: 10}
		rows, err := s.Watch(t.Context(), due)
		if !errors.Is(err, zabor.ErrUnfit) || !strings.Contains(err.Error(), "bad/charge") || len(rows) != 1 || rows[0].Order != "good" {
			t.Errorf("leased %d rows, %v; want the good one, and the bad one named", len(rows), err)
		}
		if rows, err := s.Watch(t.Context(), due); err != nil || len(rows) != 0 {
			t.Errorf("leased again: %d rows, %v; want none", len(rows), err)
		}
		like := testRow("any", 1)
		samples, err := s.Samples(t.Context(), like, 10)
		if err != nil || len(samples) != 1 || samples[0].Order != "good sample" {
			t.Errorf("%d samples, %v; want the good one", len(samples), err)
		}
		mustExec(t, s.DB(), "UPDATE zabor_fences SET answer_header = '{' WHERE provider_key = 'good sample'")
		if samples, err := s.Samples(t.Context(), like, 10); !errors.Is(err, zabor.ErrUnfit) || len(samples) != 0 {
			t.Errorf("%d samples that can be read, %v; want %v", len(samples), err, zabor.ErrUnfit)
		}
	})
}
