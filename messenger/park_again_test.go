package messenger

import (
	"context"
	"errors"
	"testing"
)

// A message whose parking was not confirmed, and which then came back as a new entry,
// is not parked a second time.
func TestParkAgainAfterLater(t *testing.T) {
	t.Parallel()
	table, db := failedTable(t)
	tr := open(t, dsn(t, ""))
	tr.failed = Failed(lostPut{table})
	tr.add(t, entry(phpBody("1")))
	m := tr.next(t)
	if err := tr.Park(t.Context(), m, "x"); err == nil {
		t.Fatal("the answer of the failure transport was not lost")
	}
	ok(t, tr.Later(t.Context(), m, 0))
	tr.failed = table
	ok(t, tr.Park(t.Context(), tr.next(t), "x"))
	var n int
	ok(t, db.QueryRow("SELECT COUNT(*) FROM messenger_messages").Scan(&n))
	if n != 1 {
		t.Errorf("%d messages in the failure transport, want 1", n)
	}
}

// lostPut is a failure transport whose answer to Put is lost.
type lostPut struct{ Failed }

func (f lostPut) Put(ctx context.Context, m Parked, again bool) error {
	if err := f.Failed.Put(ctx, m, again); err != nil {
		return err
	}
	return errors.New("the answer is lost")
}
