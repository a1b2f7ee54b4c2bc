package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// paidShop is an application with a fence in its own database, whose step writes
// a payment with the capture and marks the order as paid with the settlement.
type paidShop struct {
	t     *testing.T
	store *sqlstore.Store
	fence *zabor.Fence
	step  *Step
	calls int

	holder *sql.Tx // of a lock that a hook waits for
}

// lockWait is the fence's in these tests, in the databases that wait for rows.
const lockWait = "lock_wait=1s"

func withParameter(address, parameter string) string {
	if strings.Contains(address, "?") {
		return address + "&" + parameter
	}
	return address + "?" + parameter
}

func newPaidShop(t *testing.T, dialect Dialect, hooks map[zabor.State]Hook) *paidShop {
	t.Helper()
	address := map[Dialect]func() string{
		MySQL:    func() string { return withParameter(servers.MariaDB(t), lockWait) },
		Postgres: func() string { return withParameter(servers.Postgres(t), lockWait) },
		SQLite:   func() string { return "sqlite://" + filepath.Join(t.TempDir(), "shop.db") },
	}[dialect]()
	store, err := sqlstore.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &paidShop{t: t, store: store}
	s.exec(
		"CREATE TABLE orders (id BIGINT PRIMARY KEY, code VARCHAR(20), state VARCHAR(20) NOT NULL, paid INTEGER NOT NULL, reference VARCHAR(64))",
		"CREATE TABLE payments (order_id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, customer VARCHAR(40))",
		"INSERT INTO orders VALUES (1, '7abc', 'new', 0, NULL)",
		"INSERT INTO orders VALUES (7, '7', 'new', 0, NULL)",
	)
	if hooks == nil {
		hooks = map[zabor.State]Hook{
			zabor.Captured: {SQL: "INSERT INTO payments (order_id, amount, customer) VALUES (:order, :amount, :customer)", Rows: 1},
			zabor.Settled:  {SQL: "UPDATE orders SET state = 'paid', paid = paid + 1, reference = :reference WHERE id = :order", Rows: 1},
		}
	}
	s.step = hooked(t, dialect, hooks)
	s.fence = &zabor.Fence{Store: store, Secret: make([]byte, zabor.MinSecret), Hook: s.step.Hook}
	return s
}

func (s *paidShop) exec(statements ...string) {
	s.t.Helper()
	exec(s.t, s.store.DB(), statements...)
}

// deliver lets the fence see the message for order; the provider says yes.
func (s *paidShop) deliver(order any) (zabor.Row, error) {
	s.t.Helper()
	e := effect(s.t, s.step, Message{Data: map[string]any{"orderId": order, "cents": int64(1999), "customer": "Zoë"}})
	return s.fence.Do(s.t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
		s.calls++
		return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1"}
	})
}

// resolve runs one round of a resolver, for which all rows are due.
func (s *paidShop) resolve() error {
	s.exec("UPDATE zabor_fences SET due_at = 0, watch_until = 0 WHERE due_at IS NOT NULL")
	return (&zabor.Resolver{Fence: s.fence}).Round(s.t.Context())
}

func (s *paidShop) row(order string) zabor.Row {
	s.t.Helper()
	row, err := s.store.Load(s.t.Context(), zabor.Key{Scope: "shop", Order: order, Step: "charge"})
	if err != nil {
		s.t.Fatal(err)
	}
	return row
}

// history is the text of all notes on an order's row.
func (s *paidShop) history(order string) string {
	s.t.Helper()
	notes, err := s.store.History().Of(s.t.Context(), zabor.Key{Scope: "shop", Order: order, Step: "charge"})
	if err != nil {
		s.t.Fatal(err)
	}
	all := ""
	for _, n := range notes {
		all += n.Text + "\n"
	}
	return all
}

// told is what the application's tables say of order 7.
func (s *paidShop) told() string {
	s.t.Helper()
	var state string
	var paid, payments int
	var reference, customer sql.NullString
	var amount sql.NullInt64
	err := errors.Join(
		s.store.DB().QueryRow("SELECT state, paid, reference FROM orders WHERE id = 7").Scan(&state, &paid, &reference),
		s.store.DB().QueryRow("SELECT COUNT(*), MAX(amount), MAX(customer) FROM payments WHERE order_id = 7").Scan(&payments, &amount, &customer),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%s %d %s, %d payment of %d by %s", state, paid, reference.String, payments, amount.Int64, customer.String)
}

const wellTold = "paid 1 pay_1, 1 payment of 1999 by Zoë"

func eachDialect(t *testing.T, test func(t *testing.T, dialect Dialect)) {
	for _, dialect := range []Dialect{SQLite, MySQL, Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			test(t, dialect)
		})
	}
}

func TestHooksRideAlong(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect Dialect) {
		s := newPaidShop(t, dialect, nil)
		for range 2 {
			row, err := s.deliver("7")
			if err != nil || row.State != zabor.Settled {
				t.Fatalf("%s, %v", row.State, err)
			}
		}
		if got := s.told(); got != wellTold || s.calls != 1 {
			t.Errorf("%d calls; the shop says %s, want %s", s.calls, got, wellTold)
		}
		if row := s.row("7"); row.HookDue != "" || !reflect.DeepEqual(row.Open, zabor.Open{}) {
			t.Errorf("due %q, and the finished row keeps %+v", row.HookDue, row.Open)
		}
	})
}

// The settled hook fails three times and then works: one call, the reference is
// saved before the first failure is told, and the hook has run once.
func TestASettledHookIsRepeatedAlone(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect Dialect) {
		s := newPaidShop(t, dialect, nil)
		s.exec("UPDATE orders SET id = 8 WHERE id = 7") // the order is not there
		_, err := s.deliver("7")
		if !errors.Is(err, zabor.ErrHookDue) {
			t.Fatalf("error %v, want ErrHookDue", err)
		}
		saved := s.row("7")
		if saved.State != zabor.Settled || saved.Reference != "pay_1" || saved.HookDue != "settled" || saved.Open.HookData == nil {
			t.Fatalf("row %+v, want it settled, with its reference and a due hook", saved)
		}
		if said := s.history("7"); !strings.Contains(said, "hook settled") || !strings.Contains(said, "it hit 0 rows, not 1") {
			t.Errorf("the history says %q", said)
		}
		if err := s.resolve(); err == nil || !strings.Contains(err.Error(), "it hit 0 rows, not 1") {
			t.Errorf("the second time: error %v", err)
		}
		if _, err := s.deliver("7"); !errors.Is(err, zabor.ErrHookDue) {
			t.Errorf("delivered again: error %v, want ErrHookDue", err)
		}
		if err := s.resolve(); err == nil {
			t.Error("the third time: no error")
		}
		s.exec("UPDATE orders SET id = 7 WHERE id = 8")
		for range 2 {
			if err := s.resolve(); err != nil {
				t.Fatal(err)
			}
		}
		row, err := s.deliver("7")
		if err != nil || row.HookDue != "" || row.Open.HookData != nil || row.Reference != "pay_1" {
			t.Errorf("row %+v, %v; want nothing due", row, err)
		}
		if got := s.told(); got != wellTold || s.calls != 1 {
			t.Errorf("%d calls; the shop says %s, want %s", s.calls, got, wellTold)
		}
	})
}

// obstacle is what makes a hook fail, and how it is taken away again.
type obstacle struct {
	name  string
	waits bool // for another's lock, which SQLite's hooks never do
	state zabor.State
	hook  Hook // in place of the shop's own; empty: that one
	set   func(s *paidShop)
	clear func(s *paidShop)
	says  string
}

func obstacles() []obstacle {
	paid := Hook{SQL: "UPDATE orders SET state = 'paid', paid = paid + 1, reference = :reference WHERE id = :order OR code = 'twin'", Rows: 1}
	seven := func(statement string) func(*paidShop) { return func(s *paidShop) { s.exec(statement) } }
	hold := func(statement string) func(*paidShop) {
		return func(s *paidShop) {
			var err error
			if s.holder, err = s.store.DB().Begin(); err != nil {
				s.t.Fatal(err)
			}
			if _, err := s.holder.Exec(statement); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	letGo := func(s *paidShop) {
		if err := s.holder.Rollback(); err != nil {
			s.t.Fatal(err)
		}
	}
	return []obstacle{
		{
			name: "its own duplicate key", state: zabor.Captured,
			set: seven("INSERT INTO payments VALUES (7, 5, 'x')"), clear: seven("DELETE FROM payments"), says: "hook captured: ",
		},
		{
			name: "its own duplicate key", state: zabor.Settled,
			hook: Hook{SQL: "UPDATE orders SET state = 'paid', paid = paid + 1, reference = :reference, id = 13 - 6 * (SELECT COUNT(*) FROM payments) WHERE id = :order", Rows: 1},
			set:  seven("INSERT INTO payments VALUES (8, 5, 'x')"), clear: seven("DELETE FROM payments WHERE order_id = 8"), says: "hook settled: ",
		},
		{
			name: "no row", state: zabor.Captured,
			hook: Hook{SQL: "INSERT INTO payments (order_id, amount, customer) SELECT id, 1999, 'Zoë' FROM orders WHERE id = :order", Rows: 1},
			set:  seven("UPDATE orders SET id = 8 WHERE id = 7"), clear: seven("UPDATE orders SET id = 7 WHERE id = 8"), says: "it hit 0 rows, not 1",
		},
		{name: "no row", state: zabor.Settled, set: seven("UPDATE orders SET id = 8 WHERE id = 7"), clear: seven("UPDATE orders SET id = 7 WHERE id = 8"), says: "it hit 0 rows, not 1"},
		{
			name: "two rows", state: zabor.Captured,
			hook: Hook{SQL: "INSERT INTO payments (order_id, amount, customer) SELECT id, 1999, 'Zoë' FROM orders WHERE id = :order OR code = 'twin'", Rows: 1},
			set:  seven("UPDATE orders SET code = 'twin' WHERE id = 1"), clear: seven("UPDATE orders SET code = 'x' WHERE id = 1"), says: "it hit 2 rows, not 1",
		},
		{name: "two rows", state: zabor.Settled, hook: paid, set: seven("UPDATE orders SET code = 'twin' WHERE id = 1"), clear: seven("UPDATE orders SET code = 'x' WHERE id = 1"), says: "it hit 2 rows, not 1"},
		{name: "a lock", waits: true, state: zabor.Captured, set: hold("INSERT INTO payments VALUES (7, 5, 'x')"), clear: letGo, says: "hook captured: "},
		{name: "a lock", waits: true, state: zabor.Settled, set: hold("UPDATE orders SET state = 'x' WHERE id = 7"), clear: letGo, says: "hook settled: "},
	}
}

// A hook that fails: the row says so and nothing of the hook is there. That of
// the capture means that nothing is sent; that of a settlement takes nothing of
// what is known back. It runs once the obstacle is gone.
func TestFailedHooks(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect Dialect) {
		for _, o := range obstacles() {
			if o.waits && dialect == SQLite {
				continue
			}
			t.Run(string(o.state)+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				s := newPaidShop(t, dialect, nil)
				if o.hook.SQL != "" {
					hooks := s.step.spec.Hooks
					hooks[o.state] = o.hook
					s.step = hooked(t, dialect, hooks)
					s.fence.Hook = s.step.Hook
				}
				o.set(s)
				before := ""
				if !strings.HasPrefix(o.name, "no row") {
					before = s.told()
				}
				_, err := s.deliver("7")
				row := s.row("7")
				said := row.Reason
				if o.state != zabor.Captured { // the reason is the row's own; the history has why the hook failed
					said = s.history("7")
				}
				if !strings.Contains(said, o.says) {
					t.Errorf("it says %q, want %q in it", said, o.says)
				}
				if o.state == zabor.Captured {
					if !errors.Is(err, zabor.ErrReleased) || row.State != zabor.Released || row.Cause != zabor.ByCall || row.Tries != 1 || row.Open.HookDone || s.calls != 0 {
						t.Fatalf("error %v, %d calls, row %+v; want it released by its hook, with one attempt and no call", err, s.calls, row)
					}
					if before != "" && s.told() != before {
						t.Errorf("the shop says %s, want as before %s", s.told(), before)
					}
					o.clear(s)
					if row, err := s.deliver("7"); err != nil || row.State != zabor.Settled || row.Tries != 2 {
						t.Fatalf("delivered again: %v, row %+v", err, row)
					}
				} else {
					if !errors.Is(err, zabor.ErrHookDue) || row.State != zabor.Settled || row.Reference != "pay_1" || row.HookDue != "settled" {
						t.Fatalf("error %v, row %+v; want it settled with a due hook", err, row)
					}
					if before != "" && !strings.HasPrefix(s.told(), strings.SplitN(before, ",", 2)[0]) {
						t.Errorf("the shop says %s, want as before %s", s.told(), before)
					}
					o.clear(s)
					if err := s.resolve(); err != nil {
						t.Fatal(err)
					}
				}
				if row := s.row("7"); row.HookDue != "" || row.State != zabor.Settled {
					t.Errorf("row %+v, want it settled and nothing due", row)
				}
				if got := s.told(); got != wellTold || s.calls != 1 {
					t.Errorf("%d calls; the shop says %s, want %s", s.calls, got, wellTold)
				}
			})
		}
	})
}

// A deadlock is not the hook's fault: the database ends one of the two, and the
// write is made again.
func TestADeadlockedHookRunsAgain(t *testing.T) {
	t.Parallel()
	for _, dialect := range []Dialect{MySQL, Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			s := newPaidShop(t, dialect, map[zabor.State]Hook{
				zabor.Captured: {SQL: "UPDATE orders SET paid = paid + 1 WHERE id >= 1 AND id <= :order", Rows: 2},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 50 { // what weighs in a deadlock of InnoDB
				s.exec(fmt.Sprintf("INSERT INTO payments VALUES (%d, 1, 'x')", 100+i))
			}
			other, err := s.store.DB().BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Rollback()
			for _, statement := range []string{"UPDATE payments SET amount = 2", "UPDATE orders SET state = 'x' WHERE id = 7"} {
				if _, err := other.ExecContext(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() {
				_, err := s.deliver("7")
				done <- err
			}()
			// The hook has order 1 and waits for order 7.
			for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
				var id int
				if err := s.store.DB().QueryRowContext(ctx, "SELECT id FROM orders WHERE id = 1 FOR UPDATE NOWAIT").Scan(&id); err != nil {
					if ctx.Err() != nil {
						t.Fatal("the hook never came to order 1")
					}
					break
				}
			}
			_, err = other.ExecContext(ctx, "UPDATE orders SET state = 'x' WHERE id = 1")
			t.Logf("the other transaction: %v", err)
			other.Rollback()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			var paid int
			if err := s.store.DB().QueryRow("SELECT SUM(paid) FROM orders").Scan(&paid); err != nil || paid != 2 || s.calls != 1 {
				t.Errorf("%d rows were changed, %v, %d calls; want 2 and 1", paid, err, s.calls)
			}
			if row := s.row("7"); row.State != zabor.Settled || row.Tries != 1 {
				t.Errorf("row %+v, want it settled by the first attempt", row)
			}
		})
	}
}

// A text is never taken for the number that it begins with, nor a number for
// such a text: another order would be marked as paid.
func TestAHookNeverHitsAnotherOrder(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect Dialect) {
		for hook, order := range map[string]any{
			"UPDATE orders SET state = 'paid' WHERE id = :order":          "7abc",
			"UPDATE orders SET state = 'paid' WHERE :order = id":          "007",
			"UPDATE orders SET state = 'paid' WHERE id = :order OR 1 = 2": "7.0",
			"UPDATE orders SET state = 'paid' WHERE code = :customer":     int64(7),
		} {
			s := newPaidShop(t, dialect, map[zabor.State]Hook{zabor.Settled: {SQL: hook, Rows: 1}})
			s.exec("UPDATE orders SET code = 'x' WHERE id = 7")
			e := effect(t, s.step, Message{Data: map[string]any{"orderId": order, "cents": int64(1), "customer": int64(7)}})
			_, err := s.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
				return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1"}
			})
			if !errors.Is(err, zabor.ErrHookDue) {
				t.Errorf("%s with %v: error %v, want a due hook", hook, order, err)
			}
			var paid int
			if err := s.store.DB().QueryRow("SELECT COUNT(*) FROM orders WHERE state = 'paid'").Scan(&paid); err != nil || paid != 0 {
				t.Errorf("%s with %v: %d orders are paid, %v", hook, order, paid, err)
			}
		}
	})
}

// Every type of parameter, in columns of the types that applications have.
func TestHooksWriteExactValues(t *testing.T) {
	t.Parallel()
	types := map[Dialect]string{
		MySQL:    "scope VARCHAR(64), amount BIGINT, answer JSON, big BIGINT, price DECIMAL(12,2), ratio DOUBLE, yes BOOLEAN, raw VARBINARY(20), note TEXT CHARACTER SET utf8mb4, absent TEXT",
		Postgres: "scope TEXT, amount NUMERIC, answer JSONB, big BIGINT, price NUMERIC(12,2), ratio DOUBLE PRECISION, yes BOOLEAN, raw BYTEA, note TEXT, absent INTEGER",
		SQLite:   "scope TEXT, amount INTEGER, answer TEXT, big INTEGER, price DECIMAL(12,2), ratio REAL, yes BOOLEAN, raw BLOB, note TEXT, absent TEXT",
	}
	eachDialect(t, func(t *testing.T, dialect Dialect) {
		s := newPaidShop(t, dialect, map[zabor.State]Hook{
			zabor.Settled: {SQL: "INSERT INTO seen VALUES (:scope, :amount, :answer, :big, :price, :ratio, :yes, :raw, :note, :absent)", Rows: 1},
		})
		s.exec("CREATE TABLE seen (" + types[dialect] + ")")
		e := effect(t, s.step, Message{Data: map[string]any{
			"orderId": "7", "cents": int64(1999), "big": int64(9223372036854775807), "price": "1000000.10", "ratio": 0.1, "yes": true,
			"raw": "\xff\x00\x01", "note": "naïve 🙂 'quoted' :order ?", "absent": nil,
		}})
		row, err := s.fence.Do(t.Context(), e, func(context.Context, zabor.Row) zabor.Outcome {
			return zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1", Answer: &zabor.Answer{Status: 200, Body: []byte(`{"id": "a\\b"}`)}}
		})
		if err != nil {
			t.Fatalf("%v: %s", err, row.Reason)
		}
		text := map[Dialect]string{MySQL: "CHAR", Postgres: "TEXT", SQLite: "TEXT"}[dialect]
		cast := func(column string) string { return "CAST(" + column + " AS " + text + ")" }
		var scope, amount, answer, big, price, ratio, note string
		var yes bool
		var raw []byte
		var absent any
		if err := s.store.DB().QueryRow("SELECT scope, "+cast("amount")+", "+cast("answer")+", "+cast("big")+", "+cast("price")+", "+cast("ratio")+
			", yes, raw, note, absent FROM seen").Scan(&scope, &amount, &answer, &big, &price, &ratio, &yes, &raw, &note, &absent); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s %s %s %s %s %s %v %q %s %v", scope, amount, strings.ReplaceAll(answer, " ", ""), big, strings.TrimSuffix(price, "0"), ratio, yes, raw, note, absent)
		want := `shop 1999 {"id":"a\\b"} 9223372036854775807 1000000.1 0.1 true "\xff\x00\x01" naïve 🙂 'quoted' :order ? <nil>`
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
