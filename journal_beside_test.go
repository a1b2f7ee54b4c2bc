package zabor_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
)

// A write that hangs keeps no success in memory alone: after a second the journal has
// it, and what can be kept nowhere is told at once.
func TestTheJournalBesideASlowWrite(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(testing.TB) string{"mariadb": servers.MariaDB, "postgres": servers.Postgres} {
		for _, gone := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "", true: ", no journal's folder"}[gone], func(t *testing.T) {
				t.Parallel()
				at := address(t)
				store := openStore(t, at+map[bool]string{false: "?", true: "&"}[strings.Contains(at, "?")]+"lock_wait=60s")
				w := newWorld(t, store)
				w.fence.SaveTimeout = 10 * time.Second // the write waits for the lock until then
				dir := t.TempDir()
				var err error
				if w.fence.Journal, err = zabor.OpenJournal(dir); err != nil {
					t.Fatal(err)
				}
				if gone {
					if err := os.Remove(dir); err != nil {
						t.Fatal(err)
					}
				}
				entries := func() int {
					paths, err := filepath.Glob(filepath.Join(dir, "*.success"))
					if err != nil {
						t.Error(err)
					}
					return len(paths)
				}
				locked, free := make(chan error), make(chan struct{})
				type result struct {
					row zabor.Row
					err error
				}
				ended := make(chan result, 1)
				e := effect("1001")
				go func() {
					row, err := w.fence.Do(context.Background(), e, func(context.Context, zabor.Row) zabor.Outcome {
						go func() {
							tx, err := store.DB().Begin()
							if err == nil {
								_, err = tx.Exec("UPDATE zabor_fences SET forwarded = forwarded")
							}
							locked <- err
							<-free
							tx.Rollback()
						}()
						if err := <-locked; err != nil {
							t.Error(err)
						}
						return done
					})
					ended <- result{row, err}
				}()
				told := func() bool { all, _ := w.alerted("kept-nowhere"); return all > 0 }
				for entries() == 0 && !told() {
					select {
					case r := <-ended:
						t.Fatalf("ended as %s, %v, and nothing was kept", r.row.State, r.err)
					case <-time.After(10 * time.Millisecond):
					}
				}
				close(free)
				r := <-ended
				if r.err != nil || r.row.State != zabor.Settled {
					t.Errorf("the row is %s, %v", r.row.State, r.err)
				}
				if n := entries(); n != 0 {
					t.Errorf("%d entries are left of what was saved", n)
				}
				if _, critical := w.alerted("kept-nowhere"); (critical == 1) != gone {
					t.Errorf("told %d times that a success is kept nowhere; the folder is gone: %v", critical, gone)
				}
			})
		}
	}
}
