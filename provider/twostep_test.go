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
	intent = provider.RequestSpec{Path: "/intents", JSON: map[string]any{
		"amount": "{{minor}}", "currency": "{{currency}}", "order": "{{order}}"}}
	confirm = provider.RequestSpec{Path: "/intents/{{prepared}}/confirm"}
	payment = provider.RequestSpec{Path: "/payments", JSON: intent.JSON}
)

func TestTwoStep(t *testing.T) {
	t.Parallel()
	s := newShop(t, sandbox.Options{}, 0, own).asks(intent, confirm)
	var sent []zabor.Row
	err := s.do("1001", func(ctx context.Context, row zabor.Row) zabor.Outcome {
		sent = append(sent, row)
		return s.provider.Call(ctx, row)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.charged("1001")
	if len(sent) != 2 || sent[0].Prepared != "" || sent[1].Prepared != "pay_1" || sent[0].Open.PrepareKey == sent[0].ProviderKey {
		t.Errorf("sent for %+v", sent)
	}
	if c := s.bank.Charges("1001")[0]; c.Key != sent[0].ProviderKey {
		t.Errorf("charged under key %q, want %q", c.Key, sent[0].ProviderKey)
	}
	if got := s.bank.Stats(); got.Posts != 2 {
		t.Errorf("%d posts", got.Posts)
	}
}

// A process that dies between any two of the things that a two-step call does,
// with a provider that remembers keys and with one that does not.
func TestTwoStepKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"before prepare", "after prepare", "before confirm", "after confirm", "saved"} {
		for _, ignore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, keys ignored %v", at, ignore), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, sandbox.Options{IgnoreKeys: ignore}, 0, own).asks(intent, confirm)
				s.control()
				s.fence.At = func(m zabor.Checkpoint, _ zabor.Key) {
					if at == "saved" && m == zabor.Saved {
						panic(errDied)
					}
				}
				err := s.do("1001", func(ctx context.Context, row zabor.Row) zabor.Outcome {
					step := "prepare"
					if row.Prepared != "" {
						step = "confirm"
					}
					if at == "before "+step {
						panic(errDied)
					}
					o := s.provider.Call(context.WithoutCancel(ctx), row)
					if at == "after "+step {
						panic(errDied)
					}
					return o
				})
				if !errors.Is(err, errDied) {
					t.Fatalf("error %v", err)
				}
				s.resolve("1001")
				s.charged("1001")
			})
		}
	}
}

// What the provider, or the network before it, does to either request.
func TestTwoStepFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		first, second  sandbox.Fault
		state          zabor.State // after the first Do
		charges, after int         // at once, and once it is resolved
		end            zabor.State
	}{
		{"prepare's answer is lost", sandbox.Fault{Kind: sandbox.ActClose}, sandbox.Fault{}, zabor.Released, 0, 1, zabor.Settled},
		{"prepare is not taken", sandbox.Fault{Kind: sandbox.Status, Status: 500}, sandbox.Fault{}, zabor.Released, 0, 1, zabor.Settled},
		{"prepare is refused", sandbox.Fault{Kind: sandbox.Status, Status: 402}, sandbox.Fault{}, zabor.Declined, 0, 0, zabor.Declined},
		{"prepare is turned away", sandbox.Fault{Kind: sandbox.Status, Status: 429}, sandbox.Fault{}, zabor.Released, 0, 1, zabor.Settled},
		{"prepare goes nowhere", sandbox.Fault{Kind: sandbox.Status, Status: 404}, sandbox.Fault{}, zabor.Held, 0, 0, zabor.Held},
		{"confirm's answer is lost", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.ActClose}, zabor.Doubt, 1, 1, zabor.Settled},
		{"confirm's answer is cut", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.ActCut}, zabor.Doubt, 1, 1, zabor.Settled},
		{"confirm is answered 502 after it was done", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.ActStatus, Status: 502}, zabor.Doubt, 1, 1, zabor.Settled},
		{"confirm is not done", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.Close}, zabor.Doubt, 0, 1, zabor.Settled},
		{"confirm is turned away", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.Status, Status: 429}, zabor.Released, 0, 1, zabor.Settled},
		{"confirm is declined", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.Declined}, zabor.Declined, 0, 0, zabor.Declined},
		{"confirm is pending", sandbox.Fault{}, sandbox.Fault{Kind: sandbox.Pending}, zabor.Pending, 0, 0, zabor.Pending},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, sandbox.Options{IgnoreKeys: true}, 0, own).asks(intent, confirm)
			s.control()
			calls := 0
			s.do("1001", func(ctx context.Context, row zabor.Row) zabor.Outcome {
				calls++
				fault := tt.first
				if calls == 2 {
					fault = tt.second
				}
				if fault.Kind != "" {
					if err := s.bank.Plan(fault); err != nil {
						t.Error(err)
					}
				}
				return s.provider.Call(ctx, row)
			})
			if row := s.row("1001"); row.State != tt.state || len(s.bank.Charges("1001")) != tt.charges {
				t.Fatalf("the row is %s (%s) with %d charges, want %s with %d", row.State, row.Reason, len(s.bank.Charges("1001")), tt.state, tt.charges)
			}
			if row := s.resolve("1001"); row.State != tt.end || len(s.bank.Charges("1001")) != tt.after {
				t.Fatalf("then the row is %s (%s) with %d charges, want %s with %d", row.State, row.Reason, len(s.bank.Charges("1001")), tt.end, tt.after)
			}
			if tt.end == zabor.Settled {
				s.charged("1001")
			}
		})
	}
}

// A process that is stopped between its look at the clock and the first byte, for
// longer than the provider keeps a silent connection: the bytes go to a connection
// that is dead, and what they lead to is found out without a second charge.
func TestStoppedBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	for _, ignore := range []bool{false, true} {
		for _, replay := range []bool{false, true} {
			if ignore && replay {
				continue // what is sent again needs keys
			}
			t.Run(fmt.Sprintf("keys ignored %v, replay %v", ignore, replay), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, sandbox.Options{IgnoreKeys: ignore}, time.Second, own).asks(provider.RequestSpec{}, payment)
				s.replay, s.timeout = replay, 5*time.Second
				s.control()
				<-s.ended
				stopped := false
				s.provider.BeforeWrite(func() {
					if stopped {
						return
					}
					stopped = true
					<-s.ended
				})
				// Whether the kernel still took the bytes, or the write failed with
				// none taken, is a matter of who is faster.
				if err := s.do("1001", s.provider.Call); !errors.Is(err, zabor.ErrInDoubt) && !errors.Is(err, zabor.ErrReleased) {
					t.Errorf("error %v", err)
				}
				if got := s.bank.Charges("1001"); len(got) != 0 || !stopped {
					t.Fatalf("charges %+v", got)
				}
				s.resolve("1001")
				s.charged("1001")
			})
		}
	}
}
