package provider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sandbox"
)

// What has hit people who charge cards from queues, by the report that tells of it.
func TestPublicReports(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"aws-powertools/powertools-lambda-python#1038": stuckRow,
		"duncanmcclean/statamic-cargo#190":             knownBeforeTheAnswer,
		"stripe/stripe-java#389":                       frozenRequest,
		"odoo/odoo#101243":                             keyOfEachStep,
		"godaddy-wordpress/wc-plugin-framework#492":    keyAfterAFalseError,
		"stripe/stripe-java#389, second part":          findableByTheKey,
		"triggerdotdev/trigger.dev#4953":               forgottenKey,
		"developer.squareup.com/forums/28303":          unknownLife,
		"activemerchant/active_merchant#2118":          heldForReview,
		"woocommerce/woocommerce-paypal-payments#4417": statusBeforeBody,
		"thephpleague/omnipay#519":                     successOfTheTransport,
		"woocommerce/woocommerce-gateway-stripe#1302":  sixtyFourAtOnce,
		"woocommerce/woocommerce-gateway-stripe#3725":  confirmedBeforeTheCrash,
		"juspay/hyperswitch#5282":                      refundWithAnotherAmount,
		"openlinker-project/openlinker#3440":           neverCut,
		"DoliCloud/SellYourSaas#217":                   longReference,
		"laravel/horizon#833":                          lateFinisher,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func ownShop(t *testing.T, o sandbox.Options) *shop {
	s := newShop(t, o, 0, own).asks(provider.RequestSpec{}, payment)
	s.timeout = time.Second
	s.control()
	return s
}

// A row whose worker died is doubt after its lease, and is found.
func stuckRow(t *testing.T) {
	s := ownShop(t, sandbox.Options{IgnoreKeys: true})
	s.killed("A-1", s.provider.Call)
	s.resolve("A-1")
	s.charged("A-1")
}

// A success that another process saves first is the same success.
func knownBeforeTheAnswer(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	alerts := 0
	s.fence.Alert = func(zabor.Alert) { alerts++ }
	s.timeout = 30 * time.Second
	if err := s.do("A-1", func(ctx context.Context, row zabor.Row) zabor.Outcome {
		o := s.provider.Call(ctx, row)
		other := zabor.Resolver{Fence: &zabor.Fence{Store: s.store, Secret: s.fence.Secret}, Lookup: s.provider.Lookup}
		doubt := row
		doubt.Claim, doubt.State = zabor.Claim{Epoch: row.Claim.Epoch + 1, ID: [16]byte{7}}, zabor.Doubt
		if err := s.store.Swap(ctx, row, doubt, zabor.Write{}); err != nil {
			t.Error(err)
		}
		if err := other.Round(ctx); err != nil {
			t.Error(err)
		}
		return o
	}); err != nil {
		t.Fatal(err)
	}
	s.charged("A-1")
	if alerts != 0 || s.row("A-1").OtherReference != "" {
		t.Errorf("%d alerts, another reference %q", alerts, s.row("A-1").OtherReference)
	}
}

// Another request under the same key is refused before a byte leaves.
func frozenRequest(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	s.timeout = 30 * time.Second
	if err := s.do("A-1", s.provider.Call); err != nil {
		t.Fatal(err)
	}
	before := s.bank.Stats().Posts
	e := s.effect("A-1")
	e.Fingerprint.Message = "with metadata"
	if _, err := s.fence.Do(t.Context(), e, s.provider.Call); !errors.Is(err, zabor.ErrOtherRequest) || s.bank.Stats().Posts != before {
		t.Errorf("error %v, %d more posts", err, s.bank.Stats().Posts-before)
	}
}

// keys makes a charge of each key and says under which provider key.
func keys(t *testing.T, s *shop, all ...zabor.Key) []string {
	t.Helper()
	var used []string
	s.timeout = 30 * time.Second
	for _, k := range all {
		e := s.effect(k.Order)
		e.Key = k
		row, err := s.fence.Do(t.Context(), e, s.provider.Call)
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, row.ProviderKey)
	}
	return used
}

func keyOfEachStep(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	used := keys(t, s, zabor.Key{Order: "A-1", Step: "charge"}, zabor.Key{Order: "A-1", Step: "refund:1"}, zabor.Key{Order: "A-1", Step: "refund:2"})
	if used[0] == used[1] || used[1] == used[2] || used[0] == used[2] {
		t.Errorf("provider keys %q", used)
	}
}

// An error that comes after the charge raises no generation and changes no key.
func keyAfterAFalseError(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	if err := s.do("A-1", s.faulty(sandbox.Fault{Kind: sandbox.ActStatus, Status: 500})); !errors.Is(err, zabor.ErrInDoubt) {
		t.Fatalf("error %v", err)
	}
	before := s.row("A-1")
	row := s.resolve("A-1")
	if row.Generation != before.Generation || row.ProviderKey != before.ProviderKey || row.Tries != 1 {
		t.Errorf("generation %d, key %s, %d attempts; before %d, %s", row.Generation, row.ProviderKey, row.Tries, before.Generation, before.ProviderKey)
	}
	s.charged("A-1")
}

// A profile whose look-up needs the key in the request says where.
func findableByTheKey(t *testing.T) {
	for name, where := range map[string]string{"stripe": "/metadata/zabor_key", "square": "/reference_id"} {
		b, _ := provider.BuiltinNamed(name)
		if got := b.Base.Calls[0].Lookup.Carried; got != where {
			t.Errorf("%s: carried %q, want %q", name, got, where)
		}
	}
}

func forgottenKey(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	s.replay, s.replayFor = true, time.Millisecond
	s.killed("A-1", s.provider.Call)
	s.bank.Forget()
	before := s.bank.Stats().Posts
	s.resolve("A-1")
	s.charged("A-1")
	if got := s.bank.Stats().Posts; got != before {
		t.Errorf("%d requests were sent", got-before)
	}
}

// Where no life is published nothing is sent again, and nothing is cancelled.
func unknownLife(t *testing.T) {
	b, _ := provider.BuiltinNamed("square")
	p, err := b.Profile("production", "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	if terms, err := p.Terms(nil, posts("/v2/payments", object{})); err != nil || terms.ReplayFor != 0 {
		t.Errorf("sent again for %s, %v", terms.ReplayFor, err)
	}
}

// answered is what a provider's answer makes of a charge by request at profile.
func answered(t *testing.T, profile func(url string) provider.Profile, request provider.RequestSpec, currency string, status int, body string) zabor.Row {
	t.Helper()
	s := newShop(t, sandbox.Options{}, 0, func(string) (provider.Profile, provider.Options) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		return profile(server.URL), provider.Options{BaseURL: server.URL}
	}).asks(provider.RequestSpec{}, request)
	s.timeout, s.money.Currency = 30*time.Second, currency
	s.do("A-1", s.provider.Call)
	return s.row("A-1")
}

func builtin(t *testing.T, name, account string) func(string) provider.Profile {
	return func(string) provider.Profile {
		b, _ := provider.BuiltinNamed(name)
		p, err := b.Profile(account, "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// A first send that is answered as if it were a repeat, with something of another
// order: its reference is not taken, and the row is held.
func TestReplayOfAnotherOrder(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Idempotent-Replayed", "true")
		fmt.Fprint(w, `{"id":"pay_9","status":"paid","amount":1999,"currency":"EUR","merchant_reference":"another"}`)
	}))
	t.Cleanup(server.Close)
	s := newShop(t, sandbox.Options{}, 0, func(string) (provider.Profile, provider.Options) {
		p, o := own(server.URL)
		p.Echo.Order, p.Lookup = "/merchant_reference", nil
		return p, o
	}).asks(provider.RequestSpec{}, payment)
	s.timeout, s.replay, s.holdAfter = time.Second, true, 2*time.Second
	s.replayFor = time.Hour
	if err := s.do("A-1", s.provider.Call); !errors.Is(err, zabor.ErrInDoubt) {
		t.Errorf("error %v", err)
	}
	row := s.resolve("A-1")
	if row.State != zabor.Held || row.Reference != "" {
		t.Errorf("the row is %s %q (%s)", row.State, row.Reference, row.Reason)
	}
}

func heldForReview(t *testing.T) {
	gateway := func(url string) provider.Profile {
		return provider.Profile{
			BaseURL: url, Timeout: 30 * time.Second,
			Line: provider.Line{Answers: provider.Answers{
				Reference: "/transId",
				Settled:   provider.Match{Pointer: "/responseCode", Values: []string{"1"}},
				Pending:   provider.Match{Pointer: "/responseCode", Values: []string{"4"}},
				Declined:  provider.Refusal{Pointer: "/responseCode", Values: []string{"2"}},
			}},
		}
	}
	for code, want := range map[string]zabor.State{"1": zabor.Settled, "4": zabor.Pending, "2": zabor.Declined, "3": zabor.Doubt} {
		row := answered(t, gateway, payment, "EUR", 200, `{"responseCode":"`+code+`","transId":"t1"}`)
		if row.State != want || (want == zabor.Pending && row.Reference != "t1") {
			t.Errorf("code %s: %s %q (%s), want %s", code, row.State, row.Reference, row.Reason, want)
		}
	}
}

func statusBeforeBody(t *testing.T) {
	row := answered(t, func(string) provider.Profile { b, _ := provider.BuiltinNamed("paypal"); return b.Base }, posts("/v2/checkout/orders/5O1/capture", object{}), "EUR", 422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"INSTRUMENT_DECLINED"}]}`)
	if row.State != zabor.Declined || strings.Contains(row.Reason, "reference") {
		t.Errorf("%s: %s", row.State, row.Reason)
	}
}

func successOfTheTransport(t *testing.T) {
	row := answered(t, builtin(t, "paystack", ""), posts("/transaction/charge_authorization", object{"amount": "{{minor}}", "currency": "{{currency}}"}), "NGN", 200, `{"status":true,"data":{"id":7,"status":"failed"}}`)
	if row.State != zabor.Declined {
		t.Errorf("%s: %s", row.State, row.Reason)
	}
}

func sixtyFourAtOnce(t *testing.T) {
	s := ownShop(t, sandbox.Options{IgnoreKeys: true})
	s.timeout = time.Minute
	var calls atomic.Int32
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			s.do("A-1", func(ctx context.Context, row zabor.Row) zabor.Outcome {
				calls.Add(1)
				return s.provider.Call(ctx, row)
			})
		})
	}
	all.Wait()
	s.charged("A-1")
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// The intent that was confirmed before the crash is adopted, and no other is made.
func confirmedBeforeTheCrash(t *testing.T) {
	s := newShop(t, sandbox.Options{IgnoreKeys: true}, 0, own).asks(intent, confirm)
	s.timeout = time.Second
	s.control()
	s.killed("A-1", s.provider.Call)
	before := s.bank.Stats().Posts
	s.resolve("A-1")
	s.charged("A-1")
	if got := s.bank.Stats().Posts; got != before {
		t.Errorf("%d requests were sent", got-before)
	}
}

func refundWithAnotherAmount(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	s.timeout = 30 * time.Second
	e := s.effect("A-1")
	e.Key.Step, e.Fingerprint.Message = "refund:r1", "5"
	if _, err := s.fence.Do(t.Context(), e, s.provider.Call); err != nil {
		t.Fatal(err)
	}
	e.Fingerprint.Message = "7"
	if _, err := s.fence.Do(t.Context(), e, s.provider.Call); !errors.Is(err, zabor.ErrOtherRequest) || len(s.bank.Charges("A-1")) != 1 {
		t.Errorf("error %v, charges %+v", err, s.bank.Charges("A-1"))
	}
}

func neverCut(t *testing.T) {
	s := ownShop(t, sandbox.Options{})
	long := strings.Repeat("x", 199)
	used := keys(t, s, zabor.Key{Order: long + "1", Step: "charge"}, zabor.Key{Order: long + "2", Step: "charge"})
	if used[0] == used[1] || len(used[0]) != 26 {
		t.Errorf("provider keys %q", used)
	}
	s.charged(long + "1")
	s.charged(long + "2")
}

// A reference of 300 bytes is kept whole; where the database cannot take it, it is
// in the journal.
func longReference(t *testing.T) {
	id := strings.Repeat("r", 300)
	s := ownShop(t, sandbox.Options{})
	s.timeout = 30 * time.Second
	done := func(context.Context, zabor.Row) zabor.Outcome {
		return zabor.Outcome{Verdict: zabor.Done, Reference: id}
	}
	if err := s.do("A-1", done); err != nil || s.row("A-1").Reference != id {
		t.Errorf("%v, reference of %d bytes", err, len(s.row("A-1").Reference))
	}
	dir := t.TempDir()
	journal, err := zabor.OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.fence.Journal, s.fence.SaveTimeout = journal, 100*time.Millisecond
	s.do("A-2", func(ctx context.Context, row zabor.Row) zabor.Outcome {
		s.store.Close()
		return done(ctx, row)
	})
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 1 {
		t.Fatalf("in the journal: %q", files)
	}
	if kept, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(kept), id) {
		t.Errorf("%s, %v", kept, err)
	}
}

// A worker that finishes long after its lease is right, and nobody has charged
// meanwhile.
func lateFinisher(t *testing.T) {
	s := ownShop(t, sandbox.Options{IgnoreKeys: true})
	defer s.bank.Release()
	let, late := make(chan struct{}), make(chan error, 1)
	go func() {
		late <- s.do("A-1", func(ctx context.Context, row zabor.Row) zabor.Outcome {
			<-let
			return s.provider.Call(context.WithoutCancel(ctx), row)
		})
	}()
	waitRow(t, s, "A-1", zabor.Captured, func(context.Context) {})
	r := zabor.Resolver{Fence: &zabor.Fence{Store: s.store, Secret: s.fence.Secret}, Lookup: s.provider.Lookup}
	waitRow(t, s, "A-1", zabor.Doubt, func(ctx context.Context) {
		if err := r.Round(ctx); err != nil {
			t.Error(err)
		}
	})
	close(let)
	if err := <-late; err != nil {
		t.Errorf("error %v", err)
	}
	s.charged("A-1")
}

// waitRow does something until order's row is there and in the given state.
func waitRow(t *testing.T, s *shop, order string, state zabor.State, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		row, err := s.store.Load(ctx, zabor.Key{Order: order, Step: "charge"})
		if err == nil && row.State == state {
			return
		}
		do(ctx)
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("%s is %s and not %s: %v", order, row.State, state, err)
		}
	}
}
