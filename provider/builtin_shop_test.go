package provider_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sandbox"
)

var (
	stripeForm = map[string]string{
		"amount": "{{minor}}", "currency": "{{lower currency}}", "metadata[order]": "{{order}}", "metadata[zabor_key]": "{{provider_key}}",
	}
	stripeAtOnce = map[string]string{
		"amount": "{{minor}}", "currency": "{{lower currency}}", "metadata[order]": "{{order}}", "metadata[zabor_key]": "{{provider_key}}", "confirm": "true",
	}
)

// builtinShops are the ways in which a built-in profile is spoken to a pretend
// provider that speaks it too.
var builtinShops = []struct {
	name, profile, account, base string
	prepare, request             provider.RequestSpec
	replay                       bool
}{
	{"stripe, two steps", "stripe", "", "", provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeForm},
		provider.RequestSpec{Path: "/v1/payment_intents/{{prepared}}/confirm", Form: map[string]string{"off_session": "true"}}, false},
	{"stripe, two steps, replayed", "stripe", "", "", provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeForm},
		provider.RequestSpec{Path: "/v1/payment_intents/{{prepared}}/confirm", Form: map[string]string{"off_session": "true"}}, true},
	{"stripe, one step", "stripe", "", "", provider.RequestSpec{}, provider.RequestSpec{Path: "/v1/payment_intents", Form: stripeAtOnce}, false},
	{"yookassa, replayed", "yookassa", "100500", "/v3", provider.RequestSpec{}, provider.RequestSpec{Path: "/payments", JSON: map[string]any{
		"amount":  map[string]any{"value": "{{major}}", "currency": "{{currency}}"},
		"capture": true, "metadata": map[string]any{"order": "{{order}}"},
	}}, true},
}

func eachBuiltin(t *testing.T, test func(t *testing.T, s *shop)) {
	for _, tt := range builtinShops {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, sandbox.Options{}, 0, func(url string) (provider.Profile, provider.Options) {
				b, ok := provider.BuiltinNamed(tt.profile)
				if !ok {
					t.Fatal("no such profile")
				}
				p, err := b.Profile(tt.account, "s3cret")
				if err != nil {
					t.Fatal(err)
				}
				p.Lookup.AbsentAfter = 50 * time.Millisecond // the pretend provider has no lag
				return p, provider.Options{BaseURL: url + tt.base}
			}).asks(tt.prepare, tt.request)
			s.replay = tt.replay
			s.control()
			test(t, s)
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

func TestBuiltinCharges(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, s *shop) {
		s.timeout = 30 * time.Second
		if err := s.do("1001", s.provider.Call); err != nil {
			t.Fatal(err)
		}
		s.charged("1001")
	})
}

func TestBuiltinDeclines(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, s *shop) {
		s.timeout = 30 * time.Second
		if err := s.do("1001", s.faulty(sandbox.Fault{Kind: sandbox.Declined})); err != nil {
			t.Fatal(err)
		}
		if row := s.row("1001"); row.State != zabor.Declined || len(s.bank.Charges("1001")) != 0 {
			t.Errorf("the row is %s (%s)", row.State, row.Reason)
		}
	})
}

// A decline whose answer is lost is found out too.
func TestBuiltinDeclineIsFound(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, s *shop) {
		err := s.do("1001", func(ctx context.Context, row zabor.Row) zabor.Outcome {
			o := s.faulty(sandbox.Fault{Kind: sandbox.Declined})(ctx, row)
			if o.Verdict == zabor.Prepared {
				return o
			}
			panic(errDied)
		})
		if !errors.Is(err, errDied) {
			t.Fatalf("error %v", err)
		}
		if row := s.resolve("1001"); row.State != zabor.Declined || len(s.bank.Charges("1001")) != 0 {
			t.Errorf("the row is %s (%s)", row.State, row.Reason)
		}
	})
}

// A process that is killed after the charge and before it has saved the answer.
func TestBuiltinKilledAfterTheCharge(t *testing.T) {
	t.Parallel()
	eachBuiltin(t, func(t *testing.T, s *shop) {
		err := s.do("1001", func(ctx context.Context, row zabor.Row) zabor.Outcome {
			o := s.provider.Call(ctx, row)
			if o.Verdict == zabor.Prepared {
				return o
			}
			panic(errDied)
		})
		if !errors.Is(err, errDied) {
			t.Fatalf("error %v", err)
		}
		s.resolve("1001")
		s.charged("1001")
	})
}

// What the network or the provider does after, or instead of, the charge.
func TestBuiltinFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []sandbox.Fault{
		{Kind: sandbox.ActClose}, {Kind: sandbox.ActCut}, {Kind: sandbox.ActStatus, Status: 502}, {Kind: sandbox.ActStatus, Status: 500},
		{Kind: sandbox.ActStatus, Status: 409}, {Kind: sandbox.Close}, {Kind: sandbox.Status, Status: 500}, {Kind: sandbox.Status, Status: 429},
	} {
		t.Run(fmt.Sprintf("%s %d", fault.Kind, fault.Status), func(t *testing.T) {
			t.Parallel()
			eachBuiltin(t, func(t *testing.T, s *shop) {
				s.do("1001", s.faulty(fault))
				s.resolve("1001")
				s.charged("1001")
			})
		})
	}
}

// What has no verdict at first is asked about by its id until it has one.
func TestBuiltinPending(t *testing.T) {
	t.Parallel()
	for _, yes := range []bool{true, false} {
		t.Run(fmt.Sprint(yes), func(t *testing.T) {
			t.Parallel()
			eachBuiltin(t, func(t *testing.T, s *shop) {
				s.timeout = 30 * time.Second
				if err := s.do("1001", s.faulty(sandbox.Fault{Kind: sandbox.Pending})); err != nil {
					t.Fatal(err)
				}
				row := s.row("1001")
				if row.State != zabor.Pending || row.Reference == "" {
					t.Fatalf("the row is %s (%s)", row.State, row.Reason)
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
			})
		})
	}
}
