package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor"
)

func fill(t *testing.T, s *Store, rows ...zabor.Row) {
	t.Helper()
	for _, row := range rows {
		if _, err := s.Insert(t.Context(), row, zabor.Write{}); err != nil {
			t.Fatal(err)
		}
	}
}

func rowOf(scope, order, step string, state zabor.State) zabor.Row {
	row := testRow(order, 1)
	row.Key = zabor.Key{Scope: scope, Order: order, Step: step}
	row.State = state
	return row
}

func TestList(t *testing.T) {
	empty, shop := "", "shop"
	onEach(t, func(t *testing.T, s *Store) {
		fill(t, s,
			rowOf("", "1", "charge", zabor.Settled),
			rowOf("", "1", "refund", zabor.Held),
			rowOf("", "1", "refund:R-1", zabor.Doubt),
			rowOf("", "1", "refunds", zabor.Held),
			rowOf("shop", "1", "charge", zabor.Captured),
			rowOf("shop", "2", "charge", zabor.Settled),
			rowOf("shop/7", "2", "refund:R-2", zabor.Settled),
		)
		for _, c := range []struct {
			filter Filter
			want   string
		}{
			{Filter{}, "1/charge 1/refund 1/refund:R-1 1/refunds shop:1/charge shop:2/charge shop/7:2/refund:R-2"},
			{Filter{Limit: 2}, "1/charge 1/refund"},
			{Filter{Limit: 2, After: zabor.Key{Order: "1", Step: "refund"}}, "1/refund:R-1 1/refunds"},
			{Filter{Within: "shop"}, "shop:1/charge shop:2/charge shop/7:2/refund:R-2"},
			{Filter{Within: "shop", States: []zabor.State{zabor.Settled}, Order: "2"}, "shop:2/charge shop/7:2/refund:R-2"},
			{Filter{Within: "sho"}, ""},
			{Filter{Scope: &empty}, "1/charge 1/refund 1/refund:R-1 1/refunds"},
			{Filter{Scope: &shop}, "shop:1/charge shop:2/charge"},
			{Filter{Order: "2"}, "shop:2/charge shop/7:2/refund:R-2"},
			{Filter{Step: "refund"}, "1/refund 1/refund:R-1 shop/7:2/refund:R-2"},
			{Filter{Step: "refund:R-1"}, "1/refund:R-1"},
			{Filter{States: []zabor.State{zabor.Held}}, "1/refund 1/refunds"},
			{Filter{States: []zabor.State{zabor.Held, zabor.Settled}, Step: "refund"}, "1/refund shop/7:2/refund:R-2"},
			{Filter{States: []zabor.State{zabor.Held, zabor.Settled}, Scope: &empty, Order: "1", After: zabor.Key{Order: "1", Step: "charge"}, Limit: 1}, "1/refund"},
			{Filter{Order: "3"}, ""},
		} {
			rows, err := s.Reports().List(t.Context(), c.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, row := range rows {
				got = append(got, row.Key.String())
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("%+v:\n got %s\nwant %s", c.filter, got, c.want)
			}
		}
	})
}

func TestCounts(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		fill(t, s,
			rowOf("shop", "1", "charge", zabor.Settled),
			rowOf("shop", "2", "charge", zabor.Declined),
			rowOf("shop", "3", "charge", zabor.Captured),
			rowOf("shop/7", "4", "charge", zabor.Doubt),
			rowOf("shop/7", "4", "charge:2", zabor.Pending),
			rowOf("shop2", "5", "charge", zabor.Released),
			rowOf("shop2", "5", "charges", zabor.Held),
			rowOf("shop2", "6", "charge", "later"),
			rowOf("shop2", "7", "charge", "a new state"),
			rowOf("shop2", "8", "charge", "doubtful"),
		)
		for _, c := range []struct {
			scope, step string
			want        int64
		}{
			{"", "charge", 7}, {"", "charge:2", 1}, {"", "refund", 0},
			{"shop", "charge", 3}, {"shop/7", "charge", 2}, {"shop2", "charge", 4}, {"sho", "charge", 0},
		} {
			got, err := s.Reports().Open(t.Context(), c.scope, c.step)
			if err != nil || got != c.want {
				t.Errorf("open %s of %q: %d, error %v; want %d", c.step, c.scope, got, err, c.want)
			}
		}
		for scope, want := range map[string]int64{"": 2, "shop": 2, "shop/7": 1, "shop2": 0} {
			got, err := s.Reports().Unresolved(t.Context(), scope)
			if err != nil || got != want {
				t.Errorf("unresolved of %q: %d, error %v; want %d", scope, got, err, want)
			}
		}
	})
}

// Looking for what is open does not scan what is closed.
func TestPlans(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		fill(t, s, rowOf("shop", "0", "charge", zabor.Settled))
		columns := columnsBut(t, s, "order_id", "captured_at")
		for i := range 12 { // 4096 settled rows
			shift := fmt.Sprintf("CONCAT('%d-', order_id)", i)
			if s.Dialect() == "postgres" {
				shift = fmt.Sprintf("'%d-'::bytea || order_id", i)
			}
			if s.Dialect() == "sqlite" {
				shift = fmt.Sprintf("CAST('%d-' || order_id AS BLOB)", i)
			}
			mustExec(t, s.DB(), fmt.Sprintf("INSERT INTO zabor_fences (%s, order_id, captured_at) SELECT %s, %s, captured_at + %d FROM zabor_fences", columns, columns, shift, 1<<i))
		}
		mustExec(t, s.DB(), "INSERT INTO zabor_references (reference, installation, provider, account, address, order_id, scope, step, noted_at) SELECT order_id, scope, provider, account, address, order_id, scope, step, captured_at FROM zabor_fences")
		fill(t, s, rowOf("shop", "open", "charge", zabor.Captured), rowOf("shop", "open 2", "charge", zabor.Doubt))
		queue := map[string]string{"mysql": "'payments'", "postgres": "'payments'::bytea", "sqlite": "CAST('payments' AS BLOB)"}[s.Dialect()]
		id := map[string]string{"mysql": "UNHEX(SHA2(order_id, 256))", "postgres": "sha256(order_id)", "sqlite": "order_id"}[s.Dialect()]
		mustExec(t, s.DB(), "INSERT INTO zabor_unreadable (id, queue, bytes, reason, at) SELECT "+id+", "+queue+", order_id, '', state_since FROM zabor_fences")
		if s.Dialect() == "sqlite" {
			checkSearches(t, s)
			checkPlans(t, s) // nobody ever analyzes it there
		}
		mustExec(t, s.DB(), map[string]string{"mysql": "ANALYZE TABLE zabor_fences, zabor_references, zabor_unreadable", "postgres": "VACUUM ANALYZE zabor_fences, zabor_references, zabor_unreadable", "sqlite": "ANALYZE"}[s.Dialect()])
		checkPlans(t, s)
		checkSearches(t, s)
	})
}

// checkSearches explains the list of fences with every combination of what it can be
// narrowed by: each walks along the index of captures, as far as it looks, and sorts
// nothing on its way.
func checkSearches(t *testing.T, s *Store) {
	t.Helper()
	before, behind := time.Now().Add(-time.Hour), time.Now().Add(time.Hour) // of all rows
	key := zabor.Key{Scope: "shop", Order: "3", Step: "charge"}
	for _, states := range [][]zabor.State{nil, {zabor.Settled}, {zabor.Doubt}} {
		for _, scope := range []string{"", "shop", "nobody"} {
			for _, step := range []string{"", "charge"} {
				for _, after := range []Mark{{}, {Since: behind, Key: key}} {
					search, end := Search{Scope: scope, States: states, Step: step, After: after, Limit: 51}, time.Time{}
					name := fmt.Sprintf("states %v, scope %q, step %q, after %v", states, scope, step, after)
					if search.narrow() {
						end = before
						query, args := lookEnd(search)
						checkWalk(t, s, "end of "+name, s.dialect.sql(query), args)
					}
					query, args := newest(search, end)
					checkWalk(t, s, name, s.dialect.sql(query), args)
				}
			}
		}
	}
}

// checkWalk demands that the plan of query goes along the index of captures, or where
// the planner knows better by the primary key, and reads no other row.
func checkWalk(t *testing.T, s *Store, name, query string, args []any) {
	t.Helper()
	plan := explain(t, s, query, args)
	if !strings.Contains(plan, "zabor_fences_captured") && !strings.Contains(plan, primaryKeys[s.Dialect()]) && !strings.Contains(plan, "zabor_fences_due") {
		t.Errorf("%s does not walk along an index:\n%s", name, plan)
	}
	// A walk along the index, in which the bound of the page ends it.
	checkScans(t, name, strings.NewReplacer("SCAN zabor_fences USING INDEX zabor_fences_captured", "WALK", "SCAN zabor_fences USING COVERING INDEX zabor_fences_captured", "WALK", "zabor_fences index zabor_fences_captured", "WALK").Replace(plan))
}

var primaryKeys = map[string]string{"mysql": "PRIMARY", "postgres": "zabor_fences_pkey", "sqlite": "sqlite_autoindex_zabor_fences_1"}

// checkPlans explains what workers, resolvers and the pages of the dashboard ask for.
func checkPlans(t *testing.T, s *Store) {
	t.Helper()
	after := zabor.Key{Scope: "shop", Order: "3", Step: "charge"}
	open, openArgs := s.dialect.list(Filter{States: []zabor.State{zabor.Captured, zabor.Doubt, zabor.Pending}, After: after, Limit: 100})
	page, pageArgs := s.dialect.list(Filter{After: after, Limit: 10})
	settled, settledArgs := s.dialect.list(Filter{States: []zabor.State{zabor.Settled}, After: after, Limit: 10})
	watched, watchedArgs := s.dueOpen(zabor.Watch{By: [16]byte{1}, Scope: "shop", Providers: []string{"stripe"}, Limit: 10})
	now := time.Now().UnixMicro()
	ofOrder, ofOrderArgs := ofOrders("shop", "3-", []byte("4"), 50)
	lastOrder, lastOrderArgs := orderAt(" WHERE order_id >= ? AND order_id < ?", []any{[]byte("3-"), []byte("3.")}, LookedAt)
	oldestHeld, oldestHeldArgs := oldest(Search{Scope: "shop", States: []zabor.State{zabor.Held}, Limit: 26})
	current, currentArgs := currentNotes("shop", []string{"proposed release", "withdrawn release"})
	latest, latestArgs := latestNotes("shop", 20, []string{"message retried", "message forgotten"})
	everywhere, _ := unclosed("", nil)
	inShop, inShopArgs := unclosed("shop", []time.Duration{0, time.Hour})
	unread, unreadArgs, err := unreadableAfter("payments", KeptUnreadable{ID: "00", At: time.Now()}, 50)
	if err != nil {
		t.Fatal(err)
	}
	const due = "zabor_fences_due"
	primary := primaryKeys[s.Dialect()]
	row := zabor.Key{Scope: "shop", Order: "0", Step: "charge"}
	key := keyArgs(row)
	sampleArgs := append(append([]any{[]byte("stripe"), []byte(""), ""}, stepArgs("charge")...), now, int64(3))
	for _, c := range []struct {
		name, query string
		args        []any
		index       string // one of them
	}{
		{"open", open, openArgs, due + "|" + primary},
		{"settled page", settled, settledArgs, primary},
		{"page", page, pageArgs, primary},
		{"one row", s.text.load, key, primary},
		{"what is due", watched, watchedArgs, due},
		{"keys of open rows", "SELECT " + keyColumns + " FROM zabor_fences WHERE due_at IS NOT NULL", nil, due},
		{"notes of a row", s.dialect.sql(notesQuery), key, "zabor_notes_key"},
		{"unclosed", s.dialect.sql(everywhere), nil, due},
		{"unclosed of a scope", s.dialect.sql(inShop), inShopArgs, due},
		{"oldest open", s.dialect.sql(oldestHeld), oldestHeldArgs, due},
		{"current notes", s.dialect.sql(current), currentArgs, "zabor_notes_recent"},
		{"latest notes", s.dialect.sql(latest), latestArgs, "zabor_notes_recent"},
		{"later samples", s.text.laterSamples, sampleArgs, "zabor_references_newest"},
		{"earlier samples", s.text.earlierSamples, sampleArgs, "zabor_references_newest|zabor_references_pkey|" + primary},
		{"of an order", s.dialect.sql(ofOrder), ofOrderArgs, primary},
		{"last order", s.dialect.sql(lastOrder), lastOrderArgs, primary},
		{"of a reference", s.dialect.sql(ownersOf), []any{[]byte("pay_1")}, map[string]string{"mysql": "PRIMARY", "postgres": "zabor_references_pkey", "sqlite": "sqlite_autoindex_zabor_references_1"}[s.Dialect()]},
		{"of a reference in dispute", s.dialect.sql(disputed), []any{[]byte("pay_1"), []byte("pay_1")}, due},
		{"entered", s.dialect.sql(enteredQuery + byBucket), []any{now, int64(1), "settled", now}, "zabor_fences_captured"},
		{"noted", s.dialect.sql(notedInQuery + byBucket), []any{now, int64(1), "doubt", now}, "zabor_notes_recent"},
		{"end of a page of answers", s.dialect.sql(answersEnd), []any{int64(1), int64(1), int64(99)}, "zabor_fences_captured"},
		{"unreadable", s.dialect.sql(selectUnreadable + unread), unreadArgs, "zabor_unreadable_recent"},
		{"count open", s.dialect.sql("SELECT COUNT(*)" + openRows + notClosed + " AND " + ofStep), stepArgs("charge"), due},
	} {
		plan := explain(t, s, c.query, c.args)
		if !slices.ContainsFunc(strings.Split(c.index, "|"), func(index string) bool { return strings.Contains(plan, index) }) {
			t.Errorf("%s does not use %s:\n%s", c.name, c.index, plan)
		}
		checkScans(t, c.name, plan)
	}
}

// checkScans demands that a plan goes through no table, nor a whole index of it, but
// to count all rows.
func checkScans(t *testing.T, name, plan string) {
	t.Helper()
	scans := []string{"Seq Scan", "SCAN zabor_fences\n", "SCAN zabor_fences \n", "zabor_fences ALL"}
	if !strings.HasPrefix(name, "count") {
		scans = append(scans, "SCAN zabor_fences USING", "zabor_fences index ")
	}
	for _, scan := range scans {
		if strings.Contains(plan, scan) {
			t.Errorf("%s scans the table:\n%s", name, plan)
		}
	}
}

// explain is the plan of query, a step a line.
func explain(t *testing.T, s *Store, query string, args []any) string {
	t.Helper()
	prefix := map[string]string{"mysql": "EXPLAIN ", "postgres": "EXPLAIN ", "sqlite": "EXPLAIN QUERY PLAN "}[s.Dialect()]
	tx, err := s.DB().Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if s.Dialect() == "postgres" { // so small a table is read whole, whatever its indexes
		if _, err := tx.Exec("SET LOCAL enable_seqscan = off"); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(prefix+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			switch v := (*v.(*any)).(type) {
			case []byte:
				if columns[i] != "possible_keys" {
					fmt.Fprintf(&plan, "%s ", v)
				}
			default:
				if columns[i] == "type" || columns[i] == "rows" || slices.Contains([]string{"QUERY PLAN", "detail", "key", "table"}, columns[i]) {
					fmt.Fprintf(&plan, "%v ", v)
				}
			}
		}
		plan.WriteString("\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

func TestNotes(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		k := zabor.Key{Scope: "shop", Order: "1\xff", Step: "charge"}
		for i, text := range []string{"first", "second", "a\x00b", strings.Repeat("é", 5000)} {
			if err := s.Note(t.Context(), k, zabor.Note{Epoch: int64(i + 1), Text: text}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Note(t.Context(), zabor.Key{Scope: "shop", Order: "1", Step: "charge"}, zabor.Note{Epoch: 1, Text: "other"}); err != nil {
			t.Fatal(err)
		}
		notes, err := s.History().Of(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if len(notes) != 4 {
			t.Fatalf("notes=%d, want 4", len(notes))
		}
		for i, want := range []string{"first", "second", "a\uFFFDb", strings.Repeat("é", 1998) + "…"} {
			if notes[i].Text != want || notes[i].Epoch != int64(i+1) || notes[i].At.IsZero() {
				t.Errorf("note %d: %.20q… (%d bytes), epoch %d, at %s; want %.20q…", i, notes[i].Text, len(notes[i].Text), notes[i].Epoch, notes[i].At, want)
			}
		}
		if none, err := s.History().Of(t.Context(), zabor.Key{Order: "2", Step: "charge"}); err != nil || len(none) != 0 {
			t.Errorf("notes=%d, error %v; want none", len(none), err)
		}
	})
}

func TestUnreadable(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		for _, u := range []Unreadable{
			{"payments", []byte("\x00\xff{"), "no JSON"},
			{"payments", []byte("\x00\xff{"), "no JSON, once more"},
			{"refunds", []byte("\x00\xff{"), "no JSON"},
			{"payments", nil, strings.Repeat("é", 5000)},
			{"payment", []byte("s"), "where the queue's name ends"},
		} {
			if err := s.Quarantine().Save(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(t, s, "SELECT COUNT(*) FROM zabor_unreadable"); n != 4 {
			t.Errorf("entries=%d, want 4", n)
		}
		mustExec(t, s.DB(), "DELETE FROM zabor_unreadable")
		if err := s.Quarantine().Save(t.Context(), Unreadable{Queue: "payments", Bytes: []byte("\x00\xff{"), Reason: "again"}); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM zabor_unreadable"); n != 1 {
			t.Errorf("entries=%d once it was taken away, want 1", n)
		}
		if err := s.Quarantine().Save(t.Context(), Unreadable{Queue: strings.Repeat("q", 256)}); err == nil {
			t.Error("a queue's name of 256 bytes: no error")
		}
	})
}

func TestMeta(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		if _, ok, err := s.Meta().Get(t.Context(), "queue:a"); ok || err != nil {
			t.Errorf("there is a value, error %v; want none", err)
		}
		for _, c := range []struct{ name, add, want string }{{"queue:a", "1\xff", "1\xff"}, {"queue:a", "2", "1\xff"}, {"queue:A", "3", "3"}, {"queue:a ", "", ""}} {
			got, err := s.Meta().Add(t.Context(), c.name, []byte(c.add))
			if err != nil || string(got) != c.want {
				t.Errorf("add %q to %q: %q, error %v; want %q", c.add, c.name, got, err, c.want)
			}
		}
		for _, value := range []string{"4", "4", ""} {
			if err := s.Meta().Set(t.Context(), "queue:a", []byte(value)); err != nil {
				t.Fatal(err)
			}
			if got, ok, err := s.Meta().Get(t.Context(), "queue:a"); string(got) != value || !ok || err != nil {
				t.Errorf("%q, %v, error %v; want %q", got, ok, err, value)
			}
		}
	})
}

func TestClean(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"plain", 5, "plain"}, {"plainer", 6, "pla…"}, {"ééé", 5, "é…"}, {"ééé", 6, "ééé"}, {"😀😀", 7, "😀…"}, {"a\xffb\x00", 50, "a\uFFFDb\uFFFD"}, {"😀", 3, "…"},
	} {
		if got := clean(c.text, c.limit); got != c.want {
			t.Errorf("clean(%q, %d)=%q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

// A lease is never shorter in the table than its holder believes.
func TestMicros(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, time.Second: 1e6, time.Second + 1: 1e6 + 1} {
		if got := micros(d); got != want {
			t.Errorf("micros(%d ns)=%d, want %d", d, got, want)
		}
	}
}

// What reads every row, or counts the open ones, on each database.
func TestOutlineAndCounts(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, d.address(t))
			states := []zabor.State{zabor.Held, zabor.Settled, zabor.Doubt, zabor.Held, zabor.Declined, "a state to come"}
			for i, state := range states {
				row := testRow(fmt.Sprint(i), byte(i))
				row.State, row.Open.Request, row.OtherReference = state, []byte("{}"), fmt.Sprint("other_", i)
				if _, err := s.Insert(t.Context(), row, zabor.Write{Lease: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			var after zabor.Key
			for {
				rows, err := s.Reports().Outline(t.Context(), after, 4)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) == 0 {
					break
				}
				for _, r := range rows {
					full, err := s.Load(t.Context(), r.Key)
					if err != nil {
						t.Fatal(err)
					}
					if r.State != full.State || r.ProviderKey != full.ProviderKey || r.Reference != full.Reference || r.OtherReference != full.OtherReference ||
						r.Amount != full.Amount || !r.CapturedAt.Equal(full.CapturedAt) || !r.Open.SendUntil.Equal(full.Open.SendUntil) || r.ReadAt.IsZero() || r.Open.Request != nil {
						t.Errorf("outline %+v of %+v", r, full)
					}
					got = append(got, r.Order)
				}
				after = rows[len(rows)-1].Key
			}
			if want := []string{"0", "1", "2", "3", "4", "5"}; !slices.Equal(got, want) {
				t.Errorf("rows %q, want %q", got, want)
			}
			set(t, s, "UPDATE zabor_fences SET state_since = state_since - 90000000 WHERE order_id = ?", []byte("0"))
			counts, err := s.Reports().Unclosed(t.Context(), "", 0, time.Minute, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, c := range counts {
				if age := c.ReadAt.Sub(c.Oldest); age < 0 || age > time.Hour {
					t.Errorf("the oldest %s row is %s old", c.State, age)
				}
				said = append(said, fmt.Sprintf("%s %d %d", c.State, c.Rows, c.Older))
			}
			if want := []string{"a state to come 1 [1 0 0]", "doubt 1 [1 0 0]", "held 2 [2 1 0]"}; !slices.Equal(said, want) {
				t.Errorf("counts %q, want %q", said, want)
			}
			if counts, err := s.Reports().Unclosed(t.Context(), "another scope"); err != nil || len(counts) > 0 {
				t.Errorf("of another scope: %v, %v", counts, err)
			}
			for _, order := range []string{"0", "1"} {
				if err := s.Note(t.Context(), testRow(order, 0).Key, zabor.Note{Kind: "unfetched", Text: "x"}); err != nil {
					t.Fatal(err)
				}
			}
			noted := 0
			for k, err := range s.History().Keys(t.Context(), "unfetched") {
				if err != nil || k.Step == "" {
					t.Fatal(k, err)
				}
				noted++
			}
			for range s.History().Keys(t.Context(), "unfetched") {
				break
			}
			if noted != 2 {
				t.Errorf("noted=%d, want 2", noted)
			}
		})
	}
}
