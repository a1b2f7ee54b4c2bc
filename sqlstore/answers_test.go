package sqlstore

import (
	"fmt"
	"testing"
	"time"

	"zabor"
)

// Stored answers end, page by page; rows and references never do.
func TestEndAnswers(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		const day = 24 * time.Hour
		insert := func(order string, state zabor.State, age time.Duration, due string) {
			row := payingRow(order)
			row.State, row.Reference, row.HookDue = state, "pay_1", due
			if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.DB().Exec(s.dialect.sql("UPDATE zabor_fences SET state_since = state_since - ? WHERE order_id = ?"), age.Microseconds(), []byte(order)); err != nil {
				t.Fatal(err)
			}
		}
		ended := map[string]bool{}
		for i := range 25 {
			order := fmt.Sprintf("%02d", i)
			switch i % 6 {
			case 0:
				insert(order, zabor.Settled, 91*day, "")
				ended[order] = true
			case 1:
				insert(order, zabor.Settled, 89*day, "")
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
			var erased int64
			pages := 0
			for after := (zabor.Key{}); ; pages++ {
				n, last, err := s.EndAnswers(t.Context(), "", 90*day, after, 7)
				if err != nil {
					t.Fatal(err)
				}
				erased += n
				if after = last; last == (zabor.Key{}) {
					break
				}
			}
			if erased != want || pages != 3 {
				t.Errorf("round %d: %d answers erased on %d pages, want %d on 4", round, erased, pages+1, want)
			}
		}
		rows, err := s.List(t.Context(), Filter{})
		if err != nil || len(rows) != 25 {
			t.Fatalf("%d rows, %v; want all 25", len(rows), err)
		}
		for _, row := range rows {
			if row.Reference != "pay_1" || row.Claim.Epoch != 1 {
				t.Errorf("%s: reference %q, epoch %d", row.Order, row.Reference, row.Claim.Epoch)
			}
			if (row.Answer == nil) != ended[row.Order] || (row.AnswerEnded == 201) != ended[row.Order] {
				t.Errorf("%s (%s): answer %v, ended %d; want it ended: %v", row.Order, row.State, row.Answer, row.AnswerEnded, ended[row.Order])
			}
		}
	})
}

// An installation ends its own answers alone, page by page, whatever scopes lie between.
func TestEndAnswersWithin(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		scopes := []string{"", "sho", "shop", "shop-2", "shop/7", "shop/8", "shop0"}
		for _, scope := range scopes {
			for i := range 5 {
				row := payingRow(fmt.Sprint(i))
				row.Scope, row.State, row.Reference = scope, zabor.Settled, "pay_1"
				if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		set(t, s, "UPDATE zabor_fences SET state_since = state_since - ?", int64(time.Hour/time.Microsecond))
		end := func(scope string) (erased int64) {
			t.Helper()
			for after := (zabor.Key{}); ; {
				n, last, err := s.EndAnswers(t.Context(), scope, time.Minute, after, 2)
				if err != nil {
					t.Fatal(err)
				}
				erased += n
				if after = last; last == (zabor.Key{}) {
					return erased
				}
			}
		}
		if got := end("shop"); got != 15 {
			t.Errorf("%d answers of shop ended, want 15", got)
		}
		rows, err := s.List(t.Context(), Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if (row.Answer == nil) != row.In("shop") {
				t.Errorf("%s: answer %v", row.Key, row.Answer)
			}
		}
		if got := end(""); got != 20 {
			t.Errorf("%d answers of all ended then, want 20", got)
		}
	})
}
