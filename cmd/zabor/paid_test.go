package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zabor/internal/exit"
	"zabor/internal/takeover"

	"github.com/redis/go-redis/v9"

	"zabor"
)

// Payments become settled rows, whoever tells of them; what cannot be one payment
// is held and reported, and a row that says something else is left alone. A message
// that a payment explains is not held, and nothing is charged again.
func TestImportPayments(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database.open(t), options{})
			s.exec("CREATE TABLE payments (order_id VARCHAR(64), ref VARCHAR(64), total VARCHAR(20))")
			for _, values := range []string{
				"'1', 'pay_1', '19.99'",                            // and its message is with a dead worker
				"'2', 'pay_2', '19.99'",                            // told by the export too
				"'3', NULL, '19.99'",                               // no reference, and nobody else has one
				"'4', NULL, '19.99'",                               // the export has the reference
				"'5', 'pay_5a', '19.99'", "'5', 'pay_5b', '19.99'", // two
				"'6', 'pay_6', '19.99'", // has a row already
				"'7', 'pay_7', '19.99'", // has a row with another reference
				"'8', 'pay_8', '5.00'",  // its message wants another amount
				"'', 'pay_9', '19.99'",  // whose is it?
				"'10', 'pay_10', '19.99'",
			} {
				s.exec("INSERT INTO payments VALUES (" + values + ")")
			}
			export := filepath.Join(t.TempDir(), "export.csv")
			if err := os.WriteFile(export, []byte("Txn,Order,Sum,Cur\npay_2,2,19.99,EUR\npay_4,4,19.99,EUR\npay_10,,19.99,EUR\npay_x,,1.00,EUR\npay_12,12,19.99,EUR\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := writeRow(s.fence, zabor.Settled, key("6")); err != nil {
				t.Fatal(err)
			}
			if err := writeRow(s.fence, zabor.Settled, key("7")); err != nil {
				t.Fatal(err)
			}
			s.exec("UPDATE payments SET ref = 'pay_other' WHERE order_id = '7'")
			ctx := t.Context()
			const list = "laravel_database_queues:payments"
			s.redis.RPush(ctx, list, job(t, 8, 0), job(t, 11, 0))
			for _, order := range []int64{1, 12, 13} { // with a worker of PHP's that died; of 13 nobody knows
				s.redis.ZAdd(ctx, list+":reserved", redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: job(t, order, 1)})
			}
			query := "SELECT order_id AS \"order\", ref AS reference, total AS major, 'EUR' AS currency FROM payments"
			if s.store.Dialect() == "mysql" {
				query = strings.ReplaceAll(query, `"`, "`")
			}
			imported := func(code int, args ...string) importResult {
				t.Helper()
				out, _ := s.command(code, append([]string{"import", "--json", "--queue", "payments", "--payments-query", query, "--provider-export", export,
					"--columns", "reference=Txn,order=Order,amount=Sum,currency=Cur"}, args...)...)
				var r importResult
				if err := json.Unmarshal([]byte(out), &r); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				for _, p := range r.Payments {
					if p.Read != p.Settled+p.Row+p.Held+p.Contradicted+p.Skipped {
						t.Errorf("%+v does not add up", p)
					}
				}
				return r
			}
			same := func(r importResult, query, export takeover.Source, held int) {
				t.Helper()
				for n, want := range []takeover.Source{query, export} {
					got := r.Payments[n]
					got.Source, got.Reasons = "", nil
					if got.Read != want.Read || got.Settled != want.Settled || got.Row != want.Row || got.Held != want.Held || got.Contradicted != want.Contradicted || got.Skipped != want.Skipped {
						t.Errorf("%s: %+v, want %+v", r.Payments[n].Source, got, want)
					}
				}
				if n := r.Queues[0].Held; n != held {
					t.Errorf("%d messages held, want %d", n, held)
				}
			}
			first, second := takeover.Source{Read: 11, Settled: 5, Row: 1, Held: 3, Contradicted: 1, Skipped: 1}, takeover.Source{Read: 5, Settled: 4, Skipped: 1}
			before := s.dump()
			same(imported(exit.BadAnswer, "--dry-run"), first, second, 1)
			for name, value := range s.dump() {
				if before[name] != value {
					t.Errorf("a dry run has changed %s", name)
				}
			}
			same(imported(exit.BadAnswer), first, second, 1)
			again := imported(exit.BadAnswer)
			same(again, takeover.Source{Read: 11, Row: 9, Contradicted: 1, Skipped: 1}, takeover.Source{Read: 5, Row: 4, Skipped: 1}, 0)
			if text := again.text(); !strings.Contains(text, "two payments, pay_5a and pay_5b") || !strings.Contains(text, "pay_other") || strings.Contains(text, "pay_6") {
				t.Errorf("the problems are %s", text)
			}
			for order, want := range map[string]string{"1": "settled pay_1", "2": "settled pay_2", "3": "held", "4": "settled pay_4", "5": "held", "6": "settled pay_6", "7": "settled pay_7",
				"8": "settled pay_8", "10": "settled pay_10", "12": "settled pay_12", "13": "held"} {
				row := s.row(order)
				if got := strings.TrimSpace(string(row.State) + " " + row.Reference); got != want {
					t.Errorf("order %s is %s (%s), want %s", order, got, row.Reason, want)
				}
			}

			// One of the two sources alone makes no choice of what both contradicted.
			s.exec("DELETE FROM payments WHERE ref = 'pay_5b'")
			s.command(exit.BadAnswer, "import", "--queue", "payments", "--payments-query", query)
			if row := s.row("5"); row.State != zabor.Held || row.Cause != zabor.ByConflict {
				t.Errorf("order 5 is %s by %s (%s)", row.State, row.Cause, row.Reason)
			}
			if row := s.row("3"); row.Amount != (zabor.Money{Minor: 1999, Currency: "EUR"}) {
				t.Errorf("order 3 is held for %+v", row.Amount)
			}

			// Held first, and explained by a payment later.
			s.exec("INSERT INTO payments VALUES ('13', 'pay_13', '19.99')")
			imported(exit.BadAnswer)
			if row := s.row("13"); row.State != zabor.Settled || row.Reference != "pay_13" {
				t.Errorf("order 13 is %s %q", row.State, row.Reference)
			}
			s.command(exit.BadAnswer, "worker", "--drain", "--queue", "payments")
			if n := s.provider.Stats().Charges; n != 1 {
				t.Errorf("%d charges, want that of order 11 alone", n)
			}
			if laravel, _ := s.failed(); laravel != 1 {
				t.Errorf("%d parked, want order 8, which was paid with another amount", laravel)
			}
		})
	}
}

func (r importResult) text() string {
	text, _ := json.Marshal(r.Problems)
	return string(text)
}

// One reference for two orders, a word in the place of one, money that went back, and
// another id of the same payment: each alone would settle what was not paid, or hold
// what was paid once.
func TestImportDoubtfulPayments(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.exec("CREATE TABLE payments (order_id VARCHAR(64), ref VARCHAR(64), cents BIGINT)")
	for _, values := range []string{"'1', 'pay_1', 1999", "'2', 'pay_1', 1999", "'3', 'pending', 1999", "'4', ' ', 1999", "'5', 're_5', -1999", "'6', 'ch_6', 1999", "'7', 'pay_7', 1999"} {
		s.exec("INSERT INTO payments VALUES (" + values + ")")
	}
	export := filepath.Join(t.TempDir(), "export.csv")
	if err := os.WriteFile(export, []byte("Txn,Charge,Order,Sum,Cur\npi_6,ch_6,6,1999,EUR\npi_7,pay_7,,1999,EUR\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, log := s.command(exit.BadAnswer, "import", "--queue", "payments", "--payments-query", `SELECT order_id, ref AS reference, cents AS amount, 'EUR' AS currency FROM payments`,
		"--provider-export", export, "--columns", "reference=Txn,alias=Charge,order=Order,minor=Sum,currency=Cur")
	for order, want := range map[string]string{"1": "held", "2": "held", "3": "held", "4": "held", "5": "", "6": "settled ch_6", "7": "settled pay_7"} {
		row := s.row(order)
		if got := strings.TrimSpace(string(row.State) + " " + row.Reference); got != want {
			t.Errorf("order %s is %q (%s), want %q", order, got, row.Reason, want)
		}
	}
	for _, text := range []string{"the reference pay_1 is that of 2/charge too", "money that went back", `"pending" is no reference`} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	if !strings.Contains(log, "names no status") {
		t.Errorf("no warning that failed payments count too:\n%s", log)
	}
	if show, _ := s.command(exit.Good, "fence", "show", "3", "charge"); strings.Contains(show, "may have sent") || !strings.Contains(show, "none of zabor's") || !strings.Contains(show, "19.99 EUR") {
		t.Errorf("shown as\n%s", show)
	}
}

// A reference that the row of another order has, from an earlier import or from
// zabor's own call, is no payment of a second order.
func TestImportFindsReferencesOfRows(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, database.open(t), options{})
			s.exec("CREATE TABLE payments (order_id VARCHAR(64), ref VARCHAR(64), cents BIGINT)")
			if err := writeRow(s.fence, zabor.Settled, key("1")); err != nil { // zabor's own call
				t.Fatal(err)
			}
			called := s.row("1").Reference
			pay := func(want int, flags ...string) (out string) {
				out, _ = s.command(want, append([]string{"import", "--queue", "payments", "--payments-query", "SELECT order_id, ref AS reference, cents AS amount, 'EUR' AS currency FROM payments"}, flags...)...)
				s.exec("DELETE FROM payments")
				return out
			}
			s.exec("INSERT INTO payments VALUES ('2', 'pay_2', 1999), ('3', 'pay_3', 1999)")
			pay(exit.Good)
			again := "INSERT INTO payments VALUES ('3', 'pay_3', 1999), ('4', 'pay_2', 1999), ('5', '" + called + "', 1999)"
			for _, flags := range [][]string{{"--dry-run"}, nil, nil} {
				s.exec(again)
				out := pay(exit.BadAnswer, flags...)
				for _, text := range []string{"4/charge: the reference pay_2 is that of 2/charge too, whose row had it before and stays settled", "5/charge: the reference " + called + " is that of 1/charge too"} {
					if !strings.Contains(out, text) {
						t.Errorf("%v: no %q in\n%s", flags, text, out)
					}
				}
				if flags != nil {
					continue
				}
				for order, want := range map[string]string{"1": "settled " + called, "2": "settled pay_2", "3": "settled pay_3", "4": "held", "5": "held"} {
					row := s.row(order)
					if got := strings.TrimSpace(string(row.State) + " " + row.Reference); got != want {
						t.Errorf("order %s is %q (%s), want %q", order, got, row.Reason, want)
					}
				}
			}
		})
	}
}
