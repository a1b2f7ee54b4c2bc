package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"zabor"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// The application's own rows: a payment with the capture, the order marked with
// the outcome.
const shopHooks = `    captured: "INSERT INTO payments (order_id, amount) VALUES (:order, :amountCents)"
    settled: "UPDATE orders SET state = 'paid', paid = paid + 1, reference = :reference WHERE id = :order"
    declined: "UPDATE orders SET state = :reason WHERE id = :order"
    held: {sql: "UPDATE orders SET state = 'payment_check' WHERE id = :order", rows: -1}
`

const twoRequests = `    prepare: {path: /intents, json: {amount: "{{minor}}", currency: "{{currency}}", order: "{{order}}"}}
    request: {path: "/intents/{{prepared}}/confirm"}
`

// withHooks changes the step charge of s to one with hooks, and with two
// requests where that is wanted. The orders are not paid yet.
func (s *shop) withHooks(twoStep bool, orders ...string) {
	s.t.Helper()
	step := chargeStep + shopHooks
	if twoStep {
		before, _, _ := strings.Cut(chargeStep, "    request:")
		step = before + twoRequests + shopHooks
	}
	content, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.file, []byte(strings.Replace(string(content), chargeStep, step, 1)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.exec("CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, state VARCHAR(200) NOT NULL, paid INTEGER NOT NULL, reference VARCHAR(64))")
	s.exec("CREATE TABLE payments (order_id VARCHAR(64) PRIMARY KEY, amount BIGINT NOT NULL)")
	for _, order := range orders {
		s.newOrder(order)
	}
}

func (s *shop) newOrder(order string) {
	s.t.Helper()
	s.exec("INSERT INTO orders VALUES ('" + order + "', 'new', 0, NULL)")
}

func (s *shop) exec(statement string) {
	s.t.Helper()
	if _, err := s.store.DB().Exec(statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// anyRequest makes the rows of a condition accept any request: none that a test has
// written is for the request of a message.
func (s *shop) anyRequest(where string) {
	s.t.Helper()
	none := cmp.Or(map[string]string{"postgres": "''"}[s.store.Dialect()], "x''")
	s.exec("UPDATE zabor_fences SET message_fp = " + none + ", request_fp = " + none + " WHERE " + where)
}

// told is what the application's tables say of order: its state, how often it was
// marked as paid, its reference, and the amount of its payment.
func (s *shop) told(order string) string {
	s.t.Helper()
	var state, reference string
	var paid, amount int
	err := s.store.DB().QueryRow("SELECT o.state, o.paid, COALESCE(o.reference, '-'), COALESCE(p.amount, 0) FROM orders o LEFT JOIN payments p ON p.order_id = o.id WHERE o.id = '"+order+"'").
		Scan(&state, &paid, &reference, &amount)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		s.t.Fatal(err)
	}
	return fmt.Sprint(state, " ", paid, " ", reference, " ", amount)
}

// paidOnce checks that the order was charged once and that the application says
// so.
func (s *shop) paidOnce(order string) {
	s.t.Helper()
	s.chargedOnce(order)
	row := s.row(order)
	if got, want := s.told(order), "paid 1 "+row.Reference+" 1999"; got != want || row.HookDue != "" || row.Open.HookData != nil {
		s.t.Errorf("order %s: the shop says %q, want %q; hook %q is due with %s", order, got, want, row.HookDue, row.Open.HookData)
	}
}

// The order is paid in the shop exactly when its row is settled, also when the
// worker is killed between the provider's answer and that, and with two requests.
func TestHooksAndTwoRequests(t *testing.T) {
	t.Parallel()
	type cell struct {
		database int
		twoStep  bool
		moment   moment
	}
	var cells []cell
	for d := range databases {
		for _, twoStep := range []bool{false, true} {
			for _, m := range []moment{moments[1], moments[3], moments[4]} {
				cells = append(cells, cell{d, twoStep, m})
			}
		}
	}
	var redis []servers.RedisDB
	var messages []message
	for i := range cells {
		redis = append(redis, servers.Redis(t))
		messages = append(messages, newMessage(redis[i], "laravel", control), newMessage(redis[i], "laravel", target))
	}
	put(t, messages...)
	for i, c := range cells {
		d := databases[c.database]
		t.Run(fmt.Sprintf("%s/two requests %v/killed %s", d.name, c.twoStep, c.moment.name), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, d.open(t), options{redis: redis[i], reserve: 7 * time.Second})
			s.withHooks(c.twoStep, control, target)
			s.killed("payments", c.moment)
			want := "new 0 - 1999"
			if c.moment.state == zabor.Settled {
				want = "paid 1 " + s.row(target).Reference + " 1999"
			}
			if got := s.told(target); got != want {
				t.Errorf("after the kill the shop says %q, want %q", got, want)
			}
			s.worker("--drain").exit(0)
			s.paidOnce(control)
			s.paidOnce(target)
			if row := s.row(target); (row.Prepared != "") != c.twoStep {
				t.Errorf("prepared as %q", row.Prepared)
			}
			s.empty()
		})
	}
}

// A shop that has no such order yet: the money is where it is, the message waits
// until the shop can be told, and nothing is called twice. A no is told as well.
func TestHookThatIsDue(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.withHooks(false, "refused")
	if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.Declined, Order: "refused"}); err != nil {
		t.Fatal(err)
	}
	put(t, newMessage(s.o.redis, "laravel", "late"), newMessage(s.o.redis, "laravel", "refused"))
	w := s.worker("--drain")
	eventually(t, "the hook of order late is due", func() bool { return s.row("late").HookDue == "settled" })
	w.logged("hook-due")
	if row := s.row("late"); row.State != zabor.Settled || row.Reference == "" {
		t.Errorf("row %+v, want its reference saved", row)
	}
	if s.depth() == (depth{}) {
		t.Error("the message was acked before the shop was told")
	}
	s.newOrder("late")
	w.exit(0)
	s.paidOnce("late")
	refused := s.row("refused")
	if got, want := s.told("refused"), refused.Reason+" 0 - 1999"; refused.State != zabor.Declined || got != want {
		t.Errorf("the refused order is %s, and the shop says %q, want %q", refused.State, got, want)
	}
	s.empty()
}

// A person's decision tells the shop in its own transaction.
func TestADecisionRunsItsHook(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.withHooks(false, "1001")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	row := zabor.Row{
		Key: key("1001"), State: zabor.Held, Cause: zabor.ByExpiry, Claim: zabor.Claim{Epoch: 1, ID: [16]byte{1}}, Generation: 1,
		ProviderKey: "k", Endpoint: zabor.Endpoint{Provider: "acquirer"}, Tries: 1, Unproven: 1, Open: zabor.Open{HookData: []byte(`{"amountCents":1999}`)},
	}
	if _, err := s.store.Insert(ctx, row, zabor.Write{}); err != nil {
		t.Fatal(err)
	}
	start(t, "fence", "settle", "-c", s.file, "1001", "charge", "pay_9", "--by", "ops", "--reason", "seen", "--yes").exit(0)
	if got, want := s.told("1001"), "paid 1 pay_9 0"; got != want {
		t.Errorf("the shop says %q, want %q", got, want)
	}
}
