package failures

import (
	"path/filepath"
	"testing"

	"zabor/messenger"
	"zabor/sqlstore"
)

// The list of undecoded messages goes on from any mark, also from a deleted message.
func TestUnreadablesFromAMarkOn(t *testing.T) {
	t.Parallel()
	store, err := sqlstore.Open("sqlite://" + filepath.Join(t.TempDir(), "fence.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const n = 105 // more than a page
	for i := range n {
		if err := store.Quarantine().Save(t.Context(), sqlstore.Unreadable{Queue: "payments", Bytes: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	u := &unreadables{store: store, queue: "payments", decode: messenger.Decode}
	seen := map[string]bool{}
	for mark, last := "", -1; len(seen) > last; {
		last = len(seen)
		for m, err := range u.Entries(t.Context(), mark) {
			if err != nil {
				t.Fatal(err)
			}
			if mark, seen[m.FailedID] = m.Mark, true; len(seen)%40 == 0 {
				if err := u.Forget(t.Context(), m.FailedID); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d were listed", len(seen), n)
	}
}
