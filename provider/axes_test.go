package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sqlstore"
)

// axisBank answers each request as it is told, the first one of two with an id.
type axisBank struct {
	url string

	mu      sync.Mutex
	prepare string            // path of the first request of two; empty: there is none
	made    string            // its answer
	give    map[string]string // header of the answer; nil: none comes
	status  int
	body    string
	hold    chan struct{} // not nil: the answer waits for it
	got     []string      // method, path, key headers and body of each request that moves money
}

func newAxisBank(t testing.TB) *axisBank {
	b := &axisBank{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasSuffix(r.URL.Path, "/oauth2/token") {
			io.WriteString(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
			return
		}
		b.mu.Lock()
		if b.prepare != "" && r.URL.Path == b.prepare {
			made := b.made
			b.mu.Unlock()
			io.WriteString(w, made)
			return
		}
		keys := ""
		for _, name := range []string{"Idempotency-Key", "Idempotence-Key", "PayPal-Request-Id", "Cko-Idempotency-Key", "X-Payout-Idempotency", "X-Refund-Idempotency", "X-Idempotency-Key", "X-Request-Id"} {
			keys += r.Header.Get(name) + " "
		}
		b.got = append(b.got, r.Method+" "+r.URL.RequestURI()+" "+keys+string(body))
		give, status, text, hold := b.give, b.status, b.body, b.hold
		b.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if give == nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		for name, value := range give {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *axisBank) tell(give map[string]string, status int, body string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give, b.status, b.body, b.got = give, status, body, nil
}

func (b *axisBank) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// axes is one line of a profile at work.
type axes struct {
	*testing.T
	line    provider.Line
	sample  *sample
	prepare *sample // of the first request of two; nil: there is one request
	bank    *axisBank
	call    *provider.Provider // at the bank
	nowhere *provider.Provider // where nobody listens
	store   *sqlstore.Store
}

// yes is the body of a final yes for the key; empty: no word of the line is one.
func (a *axes) yes(key string) string {
	for word, is := range a.sample.Words {
		if is == "settled" {
			return strings.ReplaceAll(strings.ReplaceAll(a.sample.Body, "WORD", word), "%KEY%", key)
		}
	}
	return ""
}

func (a *axes) effect(order string) zabor.Effect {
	a.Helper()
	asked, err := a.sample.request(a.T, sampleKey, a.line.Amount.Units)
	if err != nil {
		a.Fatal(err)
	}
	terms, err := a.call.Terms(asked.Open())
	if err != nil {
		a.Fatal(err)
	}
	e := zabor.Effect{
		Key: zabor.Key{Scope: scope(order), Order: order, Step: "charge"}, Provider: "bank", Amount: a.sample.money(), Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Timeout: 10 * time.Second, MaxAttempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour, MissingRow: zabor.Captured, ReplayFor: terms.ReplayFor,
		Render: func(keys zabor.ProviderKeys, _ string) ([]byte, error) {
			request, err := a.sample.request(a.T, keys.Request, a.line.Amount.Units)
			if err != nil {
				return nil, err
			}
			return provider.Freeze(request)
		},
	}
	if a.prepare != nil {
		e.Prepare = func(keys zabor.ProviderKeys) ([]byte, error) {
			request, err := a.prepare.request(a.T, keys.Request, a.line.Amount.Units)
			if err != nil {
				return nil, err
			}
			return provider.Freeze(request)
		}
	}
	return e
}

func (a *axes) fence() *zabor.Fence {
	return &zabor.Fence{Store: a.store, Secret: make([]byte, zabor.MinSecret)}
}

// do makes the effect by p, and returns the row.
func (a *axes) do(f *zabor.Fence, e zabor.Effect, p *provider.Provider) (zabor.Row, error) {
	a.Helper()
	_, err := f.Do(a.Context(), e, p.Call)
	row, loadErr := a.store.Load(a.Context(), e.Key)
	if loadErr != nil {
		a.Fatalf("%s: %v, %v", e.Key.Order, err, loadErr)
	}
	return row, err
}

// open leaves a row in doubt behind: its answer was lost.
func (a *axes) open(order string) (zabor.Effect, string) {
	a.Helper()
	e := a.effect(order)
	a.bank.tell(nil, 0, "")
	row, _ := a.do(a.fence(), e, a.call)
	sent := a.bank.requests()
	if row.State != zabor.Doubt || len(sent) != 1 {
		a.Errorf("%s: the row is %s (%s) after %d requests, want doubt after one", order, row.State, row.Reason, len(sent))
		return e, ""
	}
	return e, sent[0]
}

// resolve is one round of a resolver over the row, whose lease is over and whose key is
// known for another hour, or was until an hour ago.
func (a *axes) resolve(e zabor.Effect, known bool) (zabor.Row, []string) {
	a.Helper()
	until := time.Now().Add(time.Hour)
	if !known {
		until = time.Now().Add(-time.Hour)
	}
	_, err := a.store.DB().ExecContext(a.Context(), "UPDATE zabor_fences SET send_until = 1, silent = ?, due_at = 1, replay_until = CASE replay_until WHEN 0 THEN 0 ELSE ? END WHERE order_id = ?",
		time.Hour.Microseconds(), until.UnixMicro(), []byte(e.Key.Order))
	if err != nil {
		a.Fatal(err)
	}
	r := zabor.Resolver{Fence: a.fence(), Replay: a.call.Call, Scope: e.Key.Scope}
	if err := r.Round(a.Context()); err != nil {
		a.Fatal(err)
	}
	row, err := a.store.Load(a.Context(), e.Key)
	if err != nil {
		a.Fatal(err)
	}
	return row, a.bank.requests()
}

// try runs the line along each axis. The results are those of docs/protocol.md; which of
// them a replay decides stands in the sample.
func (a *axes) try() {
	asJSON := map[string]string{}
	// The answer is lost before anything was sent.
	a.bank.tell(asJSON, 200, "{}")
	if row, _ := a.do(a.fence(), a.effect("nobody there, "+a.line.Name), a.nowhere); row.State != zabor.Released || row.MayHaveActed() {
		a.Errorf("nobody there: the row is %s (%s)", row.State, row.Reason)
	}
	if len(a.bank.requests()) != 0 {
		a.Error("nobody there: it was sent elsewhere")
	}

	// It is lost afterwards, and the key is still known, or is not.
	for _, known := range []bool{true, false} {
		order := "known, " + a.line.Name
		if !known {
			order = "forgotten, " + a.line.Name
		}
		e, sent := a.open(order)
		key, err := a.store.Load(a.Context(), e.Key)
		if err != nil {
			a.Fatal(err)
		}
		yes := a.yes(key.ProviderKey)
		a.bank.tell(asJSON, statusOf(a.sample), yes)
		row, again := a.resolve(e, known)
		switch want := known && a.sample.Again > 0; {
		case !want && len(again) > 0:
			a.Errorf("%s: it was sent again", order)
		case !want && row.State != zabor.Doubt:
			a.Errorf("%s: the row is %s (%s), want doubt", order, row.State, row.Reason)
		case want && (len(again) != 1 || again[0] != sent):
			a.Errorf("%s: sent again %q, want %q once", order, again, sent)
		case want && yes != "" && row.State != zabor.Settled:
			a.Errorf("%s: the row is %s (%s), want settled", order, row.State, row.Reason)
		}
	}

	// A repeat while it runs is not sent.
	running := a.effect("running, " + a.line.Name)
	hold := make(chan struct{})
	a.bank.tell(nil, 0, "")
	a.bank.mu.Lock()
	a.bank.hold = hold
	a.bank.mu.Unlock()
	fence, done := a.fence(), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = fence.Do(context.WithoutCancel(a.Context()), running, a.call.Call)
	}()
	for len(a.bank.requests()) == 0 {
		select {
		case <-done:
			a.Fatal("running: it was not sent")
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := a.do(a.fence(), running, a.call); !errors.Is(err, zabor.ErrBusy) {
		a.Errorf("a repeat while it runs: %v", err)
	}
	if got := a.bank.requests(); len(got) != 1 {
		a.Errorf("a repeat while it runs: %d requests", len(got))
	}
	close(hold)
	<-done
	a.bank.mu.Lock()
	a.bank.hold = nil
	a.bank.mu.Unlock()

	// A success, in another content type too; then a repeat, and one with another body.
	e := a.effect("repeated, " + a.line.Name)
	var row zabor.Row
	a.bank.tell(map[string]string{"Content-Type": "text/plain"}, statusOf(a.sample), "")
	yes := ""
	_, err := a.fence().Do(a.Context(), e, func(ctx context.Context, row zabor.Row) zabor.Outcome {
		yes = a.yes(row.ProviderKey)
		a.bank.tell(map[string]string{"Content-Type": "text/plain"}, statusOf(a.sample), yes)
		return a.call.Call(ctx, row)
	})
	if row, _ = a.store.Load(a.Context(), e.Key); yes != "" && row.State != zabor.Settled {
		a.Errorf("as text/plain: the row is %s (%s), %v", row.State, row.Reason, err)
	}
	before := len(a.bank.requests())
	if yes != "" {
		if _, err := a.do(a.fence(), e, a.call); err != nil {
			a.Errorf("a repeat: %v", err)
		}
		e.Fingerprint = zabor.Fingerprint{Message: "other", Request: "other"}
		if again, err := a.do(a.fence(), e, a.call); !errors.Is(err, zabor.ErrOtherRequest) || again.Claim != row.Claim {
			a.Errorf("another body: %v, the row is %s", err, again.State)
		}
	}
	if got := len(a.bank.requests()); got != before {
		a.Errorf("repeats were sent: %d requests more", got-before)
	}
}

func statusOf(s *sample) int {
	if s.Status == 0 {
		return 200
	}
	return s.Status
}

// Every line of every profile, through the fence and a socket: its answer is lost before
// or after it was sent, with the key known or forgotten; a repeat comes while it runs,
// afterwards, and with another body. The answers themselves are TestLinesThroughTheFence's.
func TestLinesAlongTheAxes(t *testing.T) {
	t.Parallel()
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	for name, s := range readSamples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, bank := profileOf(t, name, s), newAxisBank(t)
			call, err := provider.New("bank", p, provider.Options{BaseURL: bank.url})
			if err != nil {
				t.Fatal(err)
			}
			nowhere, err := provider.New("bank", p, provider.Options{BaseURL: nobody.URL})
			if err != nil {
				t.Fatal(err)
			}
			store, err := sqlstore.Open("sqlite://" + strings.ReplaceAll(filepath.Join(t.TempDir(), "fence.db"), "#", "%23"))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := store.Setup().Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for lineName, one := range s.Lines {
				line, ok := lineNamed(p, lineName)
				if !ok || line.Does == provider.Prepares {
					continue
				}
				a := &axes{T: t, line: line, sample: one, bank: bank, call: call, nowhere: nowhere, store: store}
				bank.prepare = ""
				if one.Prepared {
					a.prepare, bank.prepare, bank.made = s.first(t, p)
				}
				a.try()
			}
		})
	}
}

// first is the first request of two of a profile, its path, and an answer with prep_1.
func (s *samples) first(t *testing.T, p provider.Profile) (*sample, string, string) {
	t.Helper()
	for name, one := range s.Lines {
		if line, _ := lineNamed(p, name); line.Does != provider.Prepares {
			continue
		}
		for word, is := range one.Words {
			if is == "prepared" {
				body := strings.ReplaceAll(one.Body, "WORD", word)
				return one, one.Path, strings.ReplaceAll(body, `"`+one.Reference+`"`, `"prep_1"`)
			}
		}
	}
	t.Fatal("no line is the first of two")
	return nil, "", ""
}
