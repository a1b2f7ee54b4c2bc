package keyschema

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// A database that has gone back is told once: by a process that has seen it further,
// and at a start by what lies beside the queue and in the journal's folder.
func TestAnOlderDatabase(t *testing.T) {
	eachDatabase(t, func(t *testing.T, store *sqlstore.Store) {
		db := servers.Redis(t)
		client := redis.NewClient(&redis.Options{Addr: db.Addr, DB: db.DB})
		t.Cleanup(func() { client.Close() })
		journal, err := zabor.OpenJournal(t.TempDir())
		ok(t, err)
		queue := []Queue{{Name: "payments", Location: "here", Redis: client, Key: t.Name()}}
		type told struct{ now, seen uint64 }
		start := func(queues []Queue, journal *zabor.Journal) (*Guard, *[]told) {
			t.Helper()
			i := &Installation{Store: store, Scope: "shop", Steps: steps(t, "shop", "id"), Queues: queues}
			r := review(t, i)
			ok(t, r.Err(i.Scope))
			ok(t, i.Adopt(t.Context(), r))
			g := i.NewGuard(r, time.Hour, func(said Said) ([]byte, error) {
				return json.Marshal(map[string]any{"scope": i.Scope, "key_schemas": said})
			})
			all := &[]told{}
			g.Journal, g.Older = journal, func(now, seen uint64) { *all = append(*all, told{now, seen}) }
			ok(t, g.Beat(t.Context()))
			return g, all
		}
		back := func(to string) { t.Helper(); ok(t, store.Meta().Set(t.Context(), countName, []byte(to))) }

		first, heard := start(queue, journal)
		second, _ := start(queue, nil)
		for range 5 {
			ok(t, second.Beat(t.Context()))
			ok(t, first.Beat(t.Context()))
		}
		if len(*heard) != 0 {
			t.Fatalf("told %v while two processes raise the count", *heard)
		}
		back("2")
		ok(t, first.Beat(t.Context()))
		ok(t, first.Beat(t.Context()))
		if want := []told{{2, 11}}; !slices.Equal(*heard, want) {
			t.Errorf("told %v, want %v", *heard, want)
		}
		for name, one := range map[string]struct {
			queues  []Queue
			journal *zabor.Journal
			told    int
		}{"the queue": {queue, nil, 1}, "the journal's folder": {nil, journal, 1}, "nothing": {nil, nil, 0}} {
			back("1")
			if _, heard := start(one.queues, one.journal); len(*heard) != one.told {
				t.Errorf("a start that knows of %s tells %v", name, *heard)
			}
			if _, heard := start(one.queues, one.journal); len(*heard) != 0 {
				t.Errorf("a second start that knows of %s tells %v", name, *heard)
			}
		}
	})
}
