package sqlstore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
)

func keysOf(rows []zabor.Row) string {
	var all []string
	for _, row := range rows {
		all = append(all, row.Key.String())
	}
	return strings.Join(all, " ")
}

func set(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	if _, err := s.DB().Exec(s.dialect.sql(query), args...); err != nil {
		t.Fatal(err)
	}
}

// What people look for: by time, by order, by reference.
func TestSearch(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		referred := rowOf("shop", "12", "refund:R-1", zabor.Settled)
		referred.Reference = "pay_1"
		twice := rowOf("shop/7", "2", "charge", zabor.Settled)
		twice.Reference, twice.OtherReference = "pay_2", "pay_3"
		fill(t, s, rowOf("", "1", "charge", zabor.Held), referred, rowOf("shop", "\xff1", "charge", zabor.Doubt), twice, rowOf("shop", "12", "charge", zabor.Held))
		// Moments that do not depend on the clock's steps; two of one moment.
		for order, at := range map[string]int64{"1": 1_000_000, "12": 2_000_000, "\xff1": 3_000_000, "2": 4_000_000} {
			set(t, s, "UPDATE zabor_fences SET captured_at = ?, state_since = ? WHERE order_id = ?", at, at, []byte(order))
		}
		look := func(states []zabor.State, step string, after Mark, limit int) []zabor.Row {
			t.Helper()
			rows, on, err := s.Reports().Recent(t.Context(), Search{States: states, Step: step, After: after, Limit: limit})
			if err != nil || on != (Mark{}) {
				t.Fatalf("%v, and it goes on at %v", err, on)
			}
			return rows
		}
		var walked []zabor.Row
		for page := look(nil, "", Mark{}, 2); len(page) > 0; page = look(nil, "", MarkOf(page[len(page)-1]), 2) {
			walked = append(walked, page...)
		}
		if got, want := keysOf(walked), keysOf(look(nil, "", Mark{}, 0)); got != want || len(walked) != 5 {
			t.Errorf("page by page %q, at once %q", got, want)
		}
		if got, want := keysOf(walked), "shop/7:2/charge shop:%FF1/charge shop:12/refund:R-1 shop:12/charge 1/charge"; got != want {
			t.Errorf("newest first: %q, want %q", got, want)
		}
		if got := keysOf(look([]zabor.State{zabor.Held}, "charge", Mark{}, 0)); got != "shop:12/charge 1/charge" {
			t.Errorf("held charges: %q", got)
		}
		if got := keysOf(look(nil, "refund", Mark{}, 0)); got != "shop:12/refund:R-1" {
			t.Errorf("refunds with all parts: %q", got)
		}
		held := Search{States: []zabor.State{zabor.Held}, Limit: 1}
		oldest, _, err := s.Reports().Oldest(t.Context(), held)
		if err != nil || keysOf(oldest) != "1/charge" {
			t.Errorf("held longest: %q, %v", keysOf(oldest), err)
		}
		held.After = OldestMark(oldest[0])
		oldest, _, err = s.Reports().Oldest(t.Context(), held)
		if err != nil || keysOf(oldest) != "shop:12/charge" {
			t.Errorf("held next: %q, %v", keysOf(oldest), err)
		}
		for prefix, want := range map[string]string{"1": "1/charge shop:12/charge shop:12/refund:R-1", "12": "shop:12/charge shop:12/refund:R-1", "\xff": "shop:%FF1/charge", "3": ""} {
			rows, _, err := s.Reports().OfOrders(t.Context(), "", prefix, 0)
			if err != nil || keysOf(rows) != want {
				t.Errorf("orders %q: %q, %v; want %q", prefix, keysOf(rows), err, want)
			}
		}
		for reference, want := range map[string]string{"pay_1": "shop:12/refund:R-1", "pay_2": "shop/7:2/charge", "pay_3": "shop/7:2/charge", "pay": ""} {
			rows, err := s.Reports().OfReference(t.Context(), "", reference, 0)
			if err != nil || keysOf(rows) != want {
				t.Errorf("reference %q: %q, %v; want %q", reference, keysOf(rows), err, want)
			}
		}
		sums, err := s.Reports().Sums(t.Context(), "")
		if err != nil || sums.Rows[zabor.Held] != 2 || sums.Rows[zabor.Settled] != 2 || sums.Rows[zabor.Doubt] != 1 || sums.ReadAt.IsZero() {
			t.Errorf("sums %+v, %v", sums, err)
		}
		if got, want := [2]int64{sums.Successes(), sums.Unique()}, [2]int64{3, 2}; got != want {
			t.Errorf("successes and rows %v, want %v", got, want)
		}
		if got, err := s.Reports().Entered(t.Context(), "", zabor.Settled, time.UnixMicro(1_000_000), time.Second); err != nil || len(got) != 2 || got[1] != 1 || got[3] != 1 {
			t.Errorf("settled by second: %v, %v", got, err)
		}
		if got, err := s.Reports().Entered(t.Context(), "", zabor.Held, time.UnixMicro(1_500_000), time.Second); err != nil || len(got) != 1 || got[0] != 1 {
			t.Errorf("held since then: %v, %v", got, err)
		}
		if err := s.Note(t.Context(), walked[0].Key, zabor.Note{Epoch: 1, Kind: "doubt", Text: "x"}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.History().Count(t.Context(), "", "doubt", time.Now().Add(-time.Hour), 2*time.Hour); err != nil || got[0] != 1 {
			t.Errorf("noted: %v, %v", got, err)
		}
	})
}

// A look that meets too many others on its way ends, says where, and goes on from
// there: nothing is missed, and nothing is found twice.
func TestSearchBounded(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		for i := range 30 {
			row := rowOf("shop", fmt.Sprint(i), "charge", zabor.Settled)
			switch i % 10 {
			case 3:
				row.Step = "deposit:" + fmt.Sprint(i)
			case 4:
				row.Scope, row.State = "shop/7", zabor.Held
			case 5:
				row.Scope = "other"
			}
			fill(t, s, row)
			set(t, s, "UPDATE zabor_fences SET captured_at = ? WHERE order_id = ?", int64(1_000_000+i/3), []byte(row.Order)) // three at a moment
		}
		for _, c := range []struct {
			name   string
			search Search
			want   string
		}{
			{"rare step", Search{Step: "deposit"}, "shop:23/deposit:23 shop:13/deposit:13 shop:3/deposit:3"},
			{"rare scope", Search{Scope: "shop/7"}, "shop/7:24/charge shop/7:14/charge shop/7:4/charge"},
			{"rare step of a scope", Search{Scope: "shop", Step: "deposit:13"}, "shop:13/deposit:13"},
			{"rare state", Search{Scope: "shop", States: []zabor.State{zabor.Held}}, "shop/7:24/charge shop/7:14/charge shop/7:4/charge"},
			{"none", Search{Scope: "nobody", Step: "deposit"}, ""},
		} {
			for _, limit := range []int{1, 2, 50} {
				search, looks := c.search, 0
				search.Look, search.Limit = 4, limit
				var found []zabor.Row
				for ; ; looks++ {
					rows, on, err := s.Reports().Recent(t.Context(), search)
					if err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					found = append(found, rows...)
					if search.After = on; on == (Mark{}) {
						if len(rows) < limit {
							break
						}
						search.After = MarkOf(rows[len(rows)-1])
					}
				}
				if got := keysOf(found); got != c.want {
					t.Errorf("%s, %d at a time: %q, want %q", c.name, limit, got, c.want)
				}
				if looks < 3 {
					t.Errorf("%s: %d looks through thirty rows, four at a time", c.name, looks)
				}
			}
		}
	})
}

// Two shops on one table do not meet: what people look for and what is counted is of
// the one that asks, and of the scopes in it.
func TestSearchWithin(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		mine, inMine, other := rowOf("shop", "1", "charge", zabor.Settled), rowOf("shop/7", "1", "charge", zabor.Settled), rowOf("shop-2", "1", "charge", zabor.Settled)
		for _, row := range []*zabor.Row{&mine, &inMine, &other} {
			row.Reference, row.OtherReference = "pay_1", "pay_2"
			row.Provider = "of " + row.Scope // one installation has two accounts
		}
		fill(t, s, mine, inMine, other, rowOf("shop", "2", "charge", zabor.Held), rowOf("shop0", "2", "charge", zabor.Held), rowOf("", "2", "charge", zabor.Held))
		for _, key := range []zabor.Key{mine.Key, inMine.Key, other.Key} {
			if err := s.Note(t.Context(), key, zabor.Note{Epoch: 1, Kind: "doubt", Text: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		long := time.Now().Add(-time.Hour)
		for scope, want := range map[string]struct {
			settled, held, order, reference string
			successes, noted                int64
		}{
			"shop":   {"shop/7:1/charge shop:1/charge", "shop:2/charge", "shop:1/charge shop/7:1/charge", "shop:1/charge shop/7:1/charge", 4, 2},
			"shop/7": {"shop/7:1/charge", "", "shop/7:1/charge", "shop/7:1/charge", 2, 1},
			"sho":    {},
		} {
			check := func(what string, rows []zabor.Row, err error, want string) {
				t.Helper()
				got, wanted := strings.Fields(keysOf(rows)), strings.Fields(want)
				slices.Sort(got)
				slices.Sort(wanted)
				if err != nil || !slices.Equal(got, wanted) {
					t.Errorf("%s of %s: %q, %v; want %q", what, scope, got, err, wanted)
				}
			}
			rows, _, err := s.Reports().Recent(t.Context(), Search{Scope: scope, States: []zabor.State{zabor.Settled}})
			check("what changed last", rows, err, want.settled)
			rows, _, err = s.Reports().Recent(t.Context(), Search{Scope: scope, States: []zabor.State{zabor.Settled}, Step: "charge", After: Mark{Since: time.Now().Add(time.Hour)}})
			check("what changed before", rows, err, want.settled)
			rows, _, err = s.Reports().Oldest(t.Context(), Search{Scope: scope, States: []zabor.State{zabor.Held}})
			check("what is held", rows, err, want.held)
			rows, _, err = s.Reports().OfOrders(t.Context(), scope, "1", 0)
			check("orders", rows, err, want.order)
			rows, err = s.Reports().OfReference(t.Context(), scope, "pay_1", 0)
			check("references", rows, err, want.reference)
			sums, err := s.Reports().Sums(t.Context(), scope)
			if err != nil || sums.Successes() != want.successes || sums.Unique()*2 != want.successes || sums.Rows[zabor.Settled]*2 != want.successes {
				t.Errorf("sums of %s: %+v, %v; want %d successes", scope, sums, err, want.successes)
			}
			entered, err := s.Reports().Entered(t.Context(), scope, zabor.Settled, long, 2*time.Hour)
			if err != nil || entered[0]*2 != want.successes {
				t.Errorf("settled of %s: %v, %v", scope, entered, err)
			}
			noted, err := s.History().Count(t.Context(), scope, "doubt", long, 2*time.Hour)
			if err != nil || noted[0] != want.noted {
				t.Errorf("noted of %s: %v, %v", scope, noted, err)
			}
		}
	})
}

// A look among orders says that there is more where there is, and only there. An order
// is looked at whole.
func TestTheEndOfALookAmongOrders(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		template := rowOf("other", "x", "charge", zabor.Settled)
		fill(t, s, template)
		query := "INSERT INTO zabor_fences (" + columnsBut(t, s, "order_id", "step") + ", order_id, step) SELECT " + columnsBut(t, s, "order_id", "step") + ", ?, ? FROM zabor_fences WHERE order_id = ?"
		tx, err := s.DB().Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		st, err := tx.Prepare(s.dialect.sql(query))
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		add := func(order string, step int) {
			if _, err := st.Exec([]byte(order), fmt.Appendf(nil, "step %d", step), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		for i := range LookedAt { // exactly so many orders, one more, and orders with as many steps
			add(fmt.Sprintf("a%04d", i), 0)
			add(fmt.Sprintf("b%04d", i), 0)
			add("c1", i)
			add("d1", i)
			add("e1", i)
		}
		add("b9999", 0)
		add("d1", LookedAt)
		add("e1", LookedAt)
		add("e2", 0)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		fill(t, s, rowOf("shop", "a1999", "charge", zabor.Settled), rowOf("shop", "c1", "charge", zabor.Settled), rowOf("shop", "e2", "charge", zabor.Settled))
		if _, err := s.DB().Exec(s.dialect.sql("DELETE FROM zabor_fences WHERE order_id = ? AND step = ?"), []byte("a0000"), []byte("step 0")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			scope, prefix string
			found         string
			more          bool
		}{
			{"shop", "a", "shop:a1999/charge", false}, // 2000 entries
			{"shop", "b", "", true},                   // 2001
			{"shop", "c", "shop:c1/charge", false},    // one order of 2001
			{"shop", "d", "", false},
			{"shop", "e", "", true}, // and one behind it
			{"shop", "e2", "shop:e2/charge", false},
			{"shop", "b9", "", false},
			{"shop", "none", "", false},
			{"", "b9", "other:b9999/step 0", false},
		} {
			rows, more, err := s.Reports().OfOrders(t.Context(), c.scope, c.prefix, 0)
			if err != nil || keysOf(rows) != c.found || more != c.more {
				t.Errorf("%s of %q: %q, more %v, %v; want %q, %v", c.prefix, c.scope, keysOf(rows), more, err, c.found, c.more)
			}
		}
	})
}

// columnsBut are the columns of the fence's rows but these.
func columnsBut(t *testing.T, s *Store, but ...string) string {
	t.Helper()
	rows, err := s.DB().Query("SELECT * FROM zabor_fences WHERE 1 = 0")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil || rows.Err() != nil {
		t.Fatal(err, rows.Err())
	}
	return strings.Join(slices.DeleteFunc(names, func(name string) bool { return slices.Contains(but, name) }), ", ")
}

// A process is alive, says something else, and has ended.
func TestProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		one, two := [16]byte{1}, [16]byte{2}
		for _, say := range []struct {
			id   [16]byte
			text string
		}{{one, "a"}, {two, "b"}, {one, "c"}} {
			if err := s.Processes().Alive(t.Context(), say.id, []byte(say.text)); err != nil {
				t.Fatal(err)
			}
		}
		set(t, s, "UPDATE zabor_processes SET seen = seen - ?, started = started - ? WHERE id = ?", int64(25*time.Hour/time.Microsecond), int64(25*time.Hour/time.Microsecond), two[:])
		all, err := s.Processes().List(t.Context())
		if err != nil || len(all) != 2 || !bytes.Equal(all[0].Status, []byte("c")) || all[0].ID != one || all[1].ReadAt.Sub(all[1].Seen) < 24*time.Hour {
			t.Errorf("processes %+v, %v", all, err)
		}
		if err := s.Processes().Gone(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := s.Processes().Alive(t.Context(), [16]byte{3}, nil); err != nil {
			t.Fatal(err)
		}
		all, err = s.Processes().List(t.Context())
		if err != nil || len(all) != 1 || all[0].ID != [16]byte{3} {
			t.Errorf("processes %+v, %v; want the third alone", all, err)
		}
	})
}
