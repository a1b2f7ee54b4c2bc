package provider_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sandbox"
)

// builtinShop is one way in which a built-in profile is spoken, to a pretend
// provider that speaks it too.
type builtinShop struct {
	name             string // the profile's, and after a comma what is special
	account          string
	currency         string // empty: EUR
	prepare, request provider.RequestSpec
	replay           bool // the same request may be sent again

	blind     bool // there is no look-up of a call whose answer is lost
	unlisted  bool // what has no verdict yet proves nothing, and is held
	forgetful bool // a refusal is not kept: the same request is carried out anew
	together  bool // the customer may try again, so that a refusal is not final
	later     bool // only a look-up tells a refusal
	duplicate bool // nothing stops a second request but that it is not sent
}

var (
	stripeForm = map[string]string{
		"amount": "{{minor}}", "currency": "{{lower currency}}", "metadata[order]": "{{order}}", "metadata[zabor_key]": "{{provider_key}}",
	}
	stripeAtOnce = map[string]string{
		"amount": "{{minor}}", "currency": "{{lower currency}}", "metadata[order]": "{{order}}", "metadata[zabor_key]": "{{provider_key}}", "confirm": "true", "off_session": "true",
	}
	stripeTogether = map[string]string{
		"amount": "{{minor}}", "currency": "{{lower currency}}", "metadata[order]": "{{order}}", "metadata[zabor_key]": "{{provider_key}}", "confirm": "true",
	}
	minorAmount = object{"value": "{{minor}}", "currency": "{{currency}}"}
	majorAmount = object{"value": "{{major}}", "currency": "{{currency}}"}
	marked      = object{"order": "{{order}}", "zabor_key": "{{provider_key}}"}
)

type object = map[string]any

func posts(path string, body object) provider.RequestSpec {
	return provider.RequestSpec{Path: path, JSON: body}
}

var builtinShops = []builtinShop{
	{name: "stripe, two steps", prepare: provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeForm},
		request: provider.RequestSpec{Path: "/v1/payment_intents/{{prepared}}/confirm", Form: map[string]string{"off_session": "true"}}},
	{name: "stripe, two steps, replayed", prepare: provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeForm},
		request: provider.RequestSpec{Path: "/v1/payment_intents/{{prepared}}/confirm", Form: map[string]string{"off_session": "true"}}, replay: true},
	{name: "stripe, with the customer", request: provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeTogether}, together: true},
	{name: "stripe, one step", request: provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeAtOnce}},
	{name: "yookassa", account: "100500", blind: true, replay: true,
		request: posts("/payments", object{"amount": majorAmount, "capture": true, "metadata": object{"order": "{{order}}"}})},
	{name: "mollie", request: posts("/payments", object{"amount": majorAmount, "sequenceType": "recurring", "metadata": marked})},
	{name: "adyen", account: "shop", blind: true, replay: true,
		request: posts("/payments", object{"amount": minorAmount, "reference": "{{order}}"})},
	{name: "square", account: "production", request: posts("/v2/payments",
		object{"amount_money": object{"amount": "{{minor}}", "currency": "{{currency}}"}, "note": "{{order}}", "reference_id": "{{provider_key}}"})},
	{name: "checkout", request: posts("/payments",
		object{"amount": "{{minor}}", "currency": "{{currency}}", "reference": "{{provider_key}}", "metadata": object{"order": "{{order}}"}})},
	{name: "razorpay", account: "rzp_live_1", currency: "INR", blind: true, replay: true,
		request: posts("/v1/payouts", object{"amount": "{{minor}}", "currency": "{{currency}}", "reference_id": "{{order}}"})},
	{name: "gocardless", replay: true, forgetful: true,
		request: posts("/payments", object{"payments": object{"amount": "{{minor}}", "currency": "{{currency}}", "metadata": marked}})},
	{name: "paystack", currency: "NGN", request: posts("/transaction/charge_authorization",
		object{"amount": "{{minor}}", "currency": "{{currency}}", "authorization_code": "AUTH_1", "metadata": object{"order": "{{order}}"}})},
	{name: "cloudpayments", account: "pk_1", currency: "RUB", unlisted: true, duplicate: true, request: posts("/payments/tokens/charge",
		object{"Amount": "{{major}}", "Currency": "{{currency}}", "AccountId": "{{order}}", "InvoiceId": "{{provider_key}}", "Token": "t"})},
	{name: "sber", account: "shop-api", currency: "RUB", later: true,
		prepare: provider.RequestSpec{Path: "/register.do", Form: map[string]string{"amount": "{{minor}}", "orderNumber": "{{provider_key}}", "jsonParams": "{{order}}"}},
		request: provider.RequestSpec{Path: "/paymentOrderBinding.do", Form: map[string]string{"mdOrder": "{{prepared}}", "bindingId": "b1"}}},
	{name: "mercadopago", currency: "BRL", request: posts("/v1/payments",
		object{"transaction_amount": "{{major}}", "external_reference": "{{provider_key}}", "token": "t", "metadata": object{"order": "{{order}}"}})},
	{name: "tbank", account: "terminal", currency: "RUB",
		prepare: posts("/Init", object{"Amount": "{{minor}}", "OrderId": "{{provider_key}}", "DATA": object{"order": "{{order}}"}}),
		request: posts("/Charge", object{"PaymentId": "{{prepared}}", "RebillId": "145919"})},
	{name: "paypal", account: "A1", prepare: posts("/v2/checkout/orders", paypalOrder), request: posts("/v2/checkout/orders/{{prepared}}/capture", object{})},
	{name: "paypal, replayed", account: "A1", replay: true,
		prepare: posts("/v2/checkout/orders", paypalOrder), request: posts("/v2/checkout/orders/{{prepared}}/capture", object{})},
	{name: "worldpay", account: "u", currency: "GBP", unlisted: true, duplicate: true, request: posts("/api/payments", object{
		"transactionReference": "{{provider_key}}", "merchant": object{"entity": "default"}, "customer": object{"order": "{{order}}"},
		"instruction": object{"method": "card", "value": object{"currency": "{{currency}}", "amount": "{{minor}}"}}})},
}

var paypalOrder = object{"intent": "CAPTURE", "purchase_units": []any{object{
	"reference_id": "{{order}}", "custom_id": "{{provider_key}}", "amount": object{"value": "{{major}}", "currency_code": "{{currency}}"}}}}

// Every profile that can be called is in the table.
func TestBuiltinShops(t *testing.T) {
	for _, b := range provider.Builtins() {
		known := slices.ContainsFunc(builtinShops, func(s builtinShop) bool { return s.profile() == b.Name })
		if known == (b.Uncallable != "") {
			t.Errorf("%s: it can be called %v, and is in the table %v", b.Name, b.Uncallable == "", known)
		}
	}
}

func (b builtinShop) profile() string {
	for _, one := range provider.Builtins() {
		if b.name == one.Name || len(b.name) > len(one.Name) && b.name[:len(one.Name)+1] == one.Name+"," {
			return one.Name
		}
	}
	return ""
}

// open is the shop; absence is believed absentAfter, which may be 0 for what fits
// a pretend provider without a lag.
func (b builtinShop) open(t *testing.T, absentAfter time.Duration) *shop {
	s := newShop(t, sandbox.Options{Secret: "s3cret"}, 0, func(url string) (provider.Profile, provider.Options) {
		known, ok := provider.BuiltinNamed(b.profile())
		if !ok {
			t.Fatal("no such profile")
		}
		p, err := known.Profile(b.account, "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Calls {
			if l.Lookup != nil {
				l.Lookup.AbsentAfter = cmp.Or(absentAfter, 50*time.Millisecond)
			}
			for i := range l.Rules {
				l.Rules[i].Wait = 0 // a pretend provider is not left alone
			}
		}
		return p, provider.Options{BaseURL: url + "/" + known.Name}
	}).asks(b.prepare, b.request)
	s.replay, s.follow, s.timeout = b.replay, true, time.Second
	s.money.Currency = cmp.Or(b.currency, s.money.Currency)
	s.control()
	s.drive("control", func(row zabor.Row) bool { return row.State == zabor.Settled })
	return s
}

func eachBuiltin(t *testing.T, test func(t *testing.T, b builtinShop, s *shop)) {
	for _, b := range builtinShops {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b, b.open(t, 0))
		})
	}
}

// faulty makes the call for which nothing is sent before with fault planned for
// the request that moves the money.
func (s *shop) faulty(fault sandbox.Fault) zabor.Call {
	return func(ctx context.Context, row zabor.Row) zabor.Outcome {
		if !row.TwoStep() || row.Prepared != "" {
			if err := s.bank.Plan(fault); err != nil {
				s.t.Error(err)
			}
		}
		return s.provider.Call(ctx, row)
	}
}

// killed makes order's charge by a process that dies when the provider has
// answered the request that moves the money.
func (s *shop) killed(order string, call zabor.Call) {
	s.t.Helper()
	err := s.do(order, func(ctx context.Context, row zabor.Row) zabor.Outcome {
		o := call(context.WithoutCancel(ctx), row) // however busy the machine is
		if o.Verdict == zabor.Prepared {
			return o
		}
		panic(errDied)
	})
	if !errors.Is(err, errDied) {
		s.t.Fatalf("error %v", err)
	}
}

func TestBuiltinCharges(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, b builtinShop, s *shop) {
		s.timeout = 30 * time.Second
		if err := s.do("1001", s.provider.Call); err != nil {
			t.Fatal(err)
		}
		if row := s.row("1001"); row.State != zabor.Settled && row.State != zabor.Pending {
			t.Errorf("the row is %s (%s)", row.State, row.Reason)
		}
		s.drive("1001", func(zabor.Row) bool { return false })
		s.charged("1001")
	})
}

func TestBuiltinDeclines(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, b builtinShop, s *shop) {
		s.timeout = 30 * time.Second
		if err := s.do("1001", s.faulty(sandbox.Fault{Kind: sandbox.Declined})); err != nil {
			t.Fatal(err)
		}
		if b.later {
			s.drive("1001", func(row zabor.Row) bool { return row.State == zabor.Declined })
		}
		if row := s.row("1001"); row.State != b.refused() || len(s.bank.Charges("1001")) != 0 {
			t.Errorf("the row is %s (%s)", row.State, row.Reason)
		}
	})
}

// refused is what a refusal makes of a row.
func (b builtinShop) refused() zabor.State {
	if b.together {
		return zabor.Pending
	}
	return zabor.Declined
}

// A decline whose answer is lost is found out too.
func TestBuiltinDeclineIsFound(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, b builtinShop, s *shop) {
		s.follow = !b.together
		s.killed("1001", s.faulty(sandbox.Fault{Kind: sandbox.Declined}))
		row := s.resolve("1001")
		if b.forgetful && row.State == zabor.Settled { // it was sent again before the look-up could be believed
			s.charged("1001")
			return
		}
		if row.State != b.refused() || len(s.bank.Charges("1001")) != 0 {
			t.Errorf("the row is %s (%s)", row.State, row.Reason)
		}
	})
}

// A process that is killed after the charge and before it has saved the answer.
func TestBuiltinKilledAfterTheCharge(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, b builtinShop, s *shop) {
		s.killed("1001", s.provider.Call)
		s.resolve("1001")
		s.charged("1001")
	})
}

// The same, found out when the provider has forgotten the key: it is looked up or
// held, and never sent again.
func TestBuiltinKilledAndTheKeyIsForgotten(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, b builtinShop, s *shop) {
		s.replayFor, s.holdAfter = time.Millisecond, 500*time.Millisecond
		s.killed("1001", s.provider.Call)
		s.bank.Forget()
		before := s.bank.Stats().Posts
		row := s.resolve("1001")
		if got := s.bank.Stats().Posts; got != before || len(s.bank.Charges("1001")) != 1 {
			t.Fatalf("%d requests were sent, and there are the charges %+v", got-before, s.bank.Charges("1001"))
		}
		if b.blind {
			if row.State != zabor.Held {
				t.Errorf("the row is %s (%s), want held", row.State, row.Reason)
			}
			return
		}
		s.charged("1001")
	})
}

// busy is how long even a machine that has much else to do needs at most to
// connect.
const busy = 4 * time.Second

// The provider carries the first request out after our time-out, and after a
// look-up has said that there is nothing: absence is not believed that early.
func TestBuiltinLate(t *testing.T) {
	t.Parallel()
	for _, b := range builtinShops {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := b.open(t, time.Hour)
			defer s.bank.Release()
			s.timeout = busy
			if err := s.do("1001", s.faulty(sandbox.Fault{Kind: sandbox.ActLate})); !errors.Is(err, zabor.ErrInDoubt) {
				t.Fatalf("error %v", err)
			}
			sent := s.row("1001").Open.SendUntil
			rounds := 0
			row := s.drive("1001", func(row zabor.Row) bool {
				if row.ReadAt.After(sent) {
					rounds++
				}
				return rounds > 3
			})
			if row.State != zabor.Doubt || len(s.bank.Charges("1001")) != 0 {
				t.Fatalf("the row is %s (%s), and there are the charges %+v", row.State, row.Reason, s.bank.Charges("1001"))
			}
			if found, err := s.provider.Lookup(t.Context(), row); !b.blind && (err != nil || found.Outcome.Verdict != zabor.Unproven) {
				t.Errorf("look-up %+v, %v", found, err)
			}
			s.bank.Release()
			<-s.bank.Wait(2) // the control's and this one
			s.resolve("1001")
			s.charged("1001")
		})
	}
}

// The same, where absence is believed too early and the request goes out once
// more: the same key, or the one intent that both confirm, stops the second.
func TestBuiltinLateAndReleased(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, b builtinShop, s *shop) {
		if b.duplicate || b.blind {
			return // nothing stops a second one, so absence must not be believed early; or it is never believed
		}
		defer s.bank.Release()
		s.timeout = busy
		if err := s.do("1001", s.faulty(sandbox.Fault{Kind: sandbox.ActLate})); !errors.Is(err, zabor.ErrInDoubt) {
			t.Fatalf("error %v", err)
		}
		again := false
		s.replay = false
		s.drive("1001", func(row zabor.Row) bool {
			again = again || row.State == zabor.Released
			return again && row.State != zabor.Released
		})
		if !again {
			t.Fatal("it was never released")
		}
		s.bank.Release()
		<-s.bank.Wait(2)
		s.resolve("1001")
		s.charged("1001")
	})
}

// What the network or the provider does after, or instead of, the charge: at one
// provider of each way to find out.
func TestBuiltinFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []sandbox.Fault{
		{Kind: sandbox.ActClose}, {Kind: sandbox.ActCut}, {Kind: sandbox.ActStatus, Status: 502}, {Kind: sandbox.ActStatus, Status: 500},
		{Kind: sandbox.ActStatus, Status: 409}, {Kind: sandbox.Close}, {Kind: sandbox.Status, Status: 500}, {Kind: sandbox.Status, Status: 429},
	} {
		t.Run(fmt.Sprintf("%s %d", fault.Kind, fault.Status), func(t *testing.T) {
			t.Parallel()
			for _, b := range builtinShops {
				if !slices.Contains([]string{"stripe, two steps, replayed", "yookassa", "checkout", "tbank"}, b.name) {
					continue
				}
				t.Run(b.name, func(t *testing.T) {
					t.Parallel()
					s := b.open(t, 0)
					s.do("1001", s.faulty(fault))
					if row := s.row("1001"); row.Open.Lingers { // Stripe's own 500 may be carried out later: nothing but a hit decides
						if row.State != zabor.Doubt || fault.Status != 500 {
							t.Errorf("%s, and it lingers", row.State)
						}
						if fault.Kind == sandbox.Status {
							return
						}
					}
					s.resolve("1001")
					s.charged("1001")
				})
			}
		})
	}
}

// What has no verdict at first is asked about by its id until it has one.
func TestBuiltinPending(t *testing.T) {
	t.Parallel()
	for _, kind := range []sandbox.Kind{sandbox.Pending, sandbox.Soft} {
		for _, yes := range []bool{true, false} {
			t.Run(fmt.Sprint(kind, yes), func(t *testing.T) {
				t.Parallel()
				for _, b := range builtinShops {
					soft := slices.Contains([]string{"gocardless", "checkout", "stripe, with the customer"}, b.name)
					if b.unlisted || kind == sandbox.Soft && !soft || b.together && !yes {
						continue
					}
					t.Run(b.name, func(t *testing.T) {
						t.Parallel()
						s := b.open(t, 0)
						s.pending(kind, yes)
					})
				}
			})
		}
	}
}

func (s *shop) pending(kind sandbox.Kind, yes bool) {
	t := s.t
	s.timeout = 30 * time.Second
	if err := s.do("1001", s.faulty(sandbox.Fault{Kind: kind})); err != nil {
		t.Fatal(err)
	}
	row := s.row("1001")
	if row.State != zabor.Pending || row.Reference == "" {
		t.Fatalf("the row is %s (%s)", row.State, row.Reason)
	}
	if s.terms.AbsentAfter == 0 {
		return // it is held when pending_for is over
	}
	if found, err := s.provider.Lookup(t.Context(), row); err != nil || found.Outcome.Verdict != zabor.Begun {
		t.Errorf("%+v, %v", found, err)
	}
	if !s.bank.Settle(row.Reference, yes) {
		t.Fatal("there is no such payment")
	}
	found, err := s.provider.Lookup(t.Context(), row)
	want := zabor.Refused
	if yes {
		want = zabor.Done
	}
	if err != nil || found.Outcome.Verdict != want {
		t.Errorf("%+v, %v, want %s", found, err, want)
	}
}

// A direct debit, or a bank transfer, that gets no verdict within the provider's own
// horizon is held with its reference and an alert, and is never called again. Until
// then it is left alone, however long the configuration waits elsewhere.
func TestBuiltinPendingEnds(t *testing.T) {
	t.Parallel()
	for _, b := range builtinShops {
		if b.name != "gocardless" && b.name != "mollie" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := b.open(t, 0)
			s.timeout = 30 * time.Second
			horizon := s.terms.PendingFor
			e := s.effect("1001")
			e.PendingFor = max(time.Hour, horizon)
			if row, err := s.fence.Do(t.Context(), e, s.faulty(sandbox.Fault{Kind: sandbox.Pending})); err != nil || row.State != zabor.Pending || horizon < 10*24*time.Hour {
				t.Fatalf("%s, %v; the profile waits %s", row.State, err, horizon)
			}
			var told []zabor.Alert
			s.restart()
			s.fence.Alert = func(a zabor.Alert) { told = append(told, a) }
			r := zabor.Resolver{Fence: s.fence, Lookup: s.provider.Lookup, Replay: s.provider.Call}
			before := s.bank.Stats().Posts
			for _, step := range []struct {
				passes time.Duration
				want   zabor.State
			}{{horizon - time.Hour, zabor.Pending}, {2 * time.Hour, zabor.Held}} {
				us := step.passes.Microseconds()
				if _, err := s.store.DB().ExecContext(t.Context(), "UPDATE zabor_fences SET state_since = state_since - ?, send_until = send_until - ?, watched = watched + ?, due_at = 0 WHERE due_at IS NOT NULL", us, us, us); err != nil {
					t.Fatal(err)
				}
				if err := r.Round(t.Context()); err != nil {
					t.Fatal(err)
				}
				if row := s.row("1001"); row.State != step.want || row.Reference == "" {
					t.Errorf("%s later: %s %q (%s), want %s", step.passes, row.State, row.Reference, row.Reason, step.want)
				}
			}
			if len(told) != 1 || told[0].Code != "held" {
				t.Errorf("alerts %+v", told)
			}
			if _, err := s.fence.Do(t.Context(), e, s.provider.Call); !errors.Is(err, zabor.ErrHeld) {
				t.Errorf("delivered again: %v", err)
			}
			if got := s.bank.Stats().Posts; got != before {
				t.Errorf("%d requests were sent", got-before)
			}
		})
	}
}
