package sqlstore

import (
	"fmt"
	"testing"
	"time"

	"zabor"
)

// Stored answers end, page by page; rows, statuses and references never do.
func TestEraseAnswers(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		const day = 24 * time.Hour
		moved := 0
		insert := func(order string, state zabor.State, age time.Duration, due string) {
			row := payingRow(order)
			row.State, row.Reference, row.HookDue = state, "pay_"+order, due
			if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			// One millisecond of SQLite has several rows: each gets a moment of its own.
			moved++
			set(t, s, "UPDATE zabor_fences SET captured_at = captured_at - ?, state_since = state_since - ? WHERE order_id = ?", (91*day - time.Duration(moved)*time.Millisecond).Microseconds(), age.Microseconds(), []byte(order))
		}
		ended := map[string]bool{}
		for i := range 25 {
			order := fmt.Sprintf("%02d", i)
			switch i % 6 {
			case 0:
				insert(order, zabor.Settled, 91*day, "")
				ended[order] = true
			case 1:
				insert(order, zabor.Settled, 89*day, "") // captured long before
			case 2:
				insert(order, zabor.Declined, 91*day, "")
				ended[order] = true
			case 3:
				insert(order, zabor.Held, 91*day, "")
			case 4:
				insert(order, zabor.Pending, 91*day, "")
			case 5:
				insert(order, zabor.Settled, 91*day, "settled")
			}
		}
		for round, want := range []int64{int64(len(ended)), 0} {
			erased, pages := eraseAll(t, s, "", 90*day, 7)
			if erased != want || pages != 4 {
				t.Errorf("round %d: %d answers erased on %d pages, want %d on 4", round, erased, pages, want)
			}
		}
		rows, err := s.Reports().List(t.Context(), Filter{})
		if err != nil || len(rows) != 25 {
			t.Fatalf("%d rows, %v; want all 25", len(rows), err)
		}
		for _, row := range rows {
			if row.Reference != "pay_"+row.Order || row.Claim.Epoch != 1 || row.Answer.Status != 201 {
				t.Errorf("%s: reference %q, epoch %d, status %d", row.Order, row.Reference, row.Claim.Epoch, row.Answer.Status)
			}
			if row.Answer.Erased != ended[row.Order] || row.Answer.Readable() == ended[row.Order] {
				t.Errorf("%s (%s): answer %+v; want it ended: %v", row.Order, row.State, row.Answer, ended[row.Order])
			}
		}
	})
}

// eraseAll erases page by page.
func eraseAll(t *testing.T, s *Store, scope string, keep time.Duration, limit int) (erased int64, pages int) {
	t.Helper()
	for from := (time.Time{}); ; {
		n, next, err := s.EraseAnswers(t.Context(), scope, keep, from, limit)
		if err != nil {
			t.Fatal(err)
		}
		erased, pages = erased+n, pages+1
		if from = next; next.IsZero() {
			return erased, pages
		}
	}
}

// An installation ends its own answers alone, page by page, whatever scopes lie between.
func TestEraseAnswersWithin(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		for _, scope := range []string{"", "sho", "shop", "shop-2", "shop/7", "shop/8", "shop0"} {
			for i := range 5 {
				row := payingRow(fmt.Sprint(i))
				row.Scope, row.State, row.Reference = scope, zabor.Settled, "pay_"+scope+fmt.Sprint(i)
				if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		set(t, s, "UPDATE zabor_fences SET state_since = state_since - ?, captured_at = captured_at - ?", time.Hour.Microseconds(), time.Hour.Microseconds())
		if got, _ := eraseAll(t, s, "shop", time.Minute, 2); got != 15 {
			t.Errorf("%d answers of shop ended, want 15", got)
		}
		rows, err := s.Reports().List(t.Context(), Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Answer.Erased != row.In("shop") {
				t.Errorf("%s: answer %+v", row.Key, row.Answer)
			}
		}
		if got, _ := eraseAll(t, s, "", time.Minute, 2); got != 20 {
			t.Errorf("%d answers of all ended then, want 20", got)
		}
	})
}
