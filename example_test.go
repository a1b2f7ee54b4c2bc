package zabor_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sqlstore"
)

// acquirer is the caller's own provider. It charges what it is sent, each time.
type acquirer struct {
	*httptest.Server
	charges int
	last    string // the idempotency key of the last charge
}

func newAcquirer() *acquirer {
	a := &acquirer{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/intents": // harmless
			fmt.Fprint(w, `{"id":"int_1","status":"created"}`)
		case r.Method == http.MethodPost:
			a.charges++
			a.last = r.Header.Get("Idempotency-Key")
			fmt.Fprintf(w, `{"id":"pay_%d","status":"paid"}`, a.charges)
		case a.last == "" || r.URL.Query().Get("key") != a.last: // a look-up by our key
			fmt.Fprint(w, `{"data":[]}`)
		default:
			fmt.Fprintf(w, `{"data":[{"id":"pay_%d","status":"paid"}]}`, a.charges)
		}
	}))
	return a
}

// client says what must be known about the provider: how it takes a key, what its
// answers mean, and how a doubtful call is looked up.
func (a *acquirer) client() *provider.Provider {
	p, err := provider.New("acquirer", provider.Profile{
		BaseURL: a.URL,
		Timeout: 10 * time.Second,
		Line: provider.Line{
			Key: provider.Key{Header: "Idempotency-Key"},
			Answers: provider.Answers{
				Reference: "/id",
				Settled:   provider.Match{Pointer: "/status", Values: []string{"paid"}},
				Declined:  provider.Refusal{Pointer: "/status", Values: []string{"refused"}, Statuses: []int{402}},
			},
			Lookup: &provider.Lookup{Path: "/payments?key={{provider_key}}", Items: "/data", AbsentAfter: time.Minute},
		},
	}, provider.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return p
}

// charge is what a shop asks for: 19.99 EUR for an order, once.
func charge(p *provider.Provider, order string) zabor.Effect {
	body := []byte(`{"amount":1999,"currency":"EUR"}`)
	request := provider.Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: body}
	terms, err := p.Terms(request.Open())
	if err != nil {
		log.Fatal(err)
	}
	return zabor.Effect{
		Key:         zabor.Key{Scope: "shop", Order: order, Step: "charge"},
		Provider:    p.Name(),
		Amount:      zabor.Money{Minor: 1999, Currency: "EUR"},
		Fingerprint: zabor.Fingerprint{Message: "1999 EUR", Request: "1999 EUR"}, // two requests with the same key and another one are not the same
		Render: func(zabor.ProviderKeys, string) ([]byte, error) {
			return provider.Freeze(request)
		},
		Timeout: p.Timeout(), MaxAttempts: 3, AbsentAfter: terms.AbsentAfter, ReplayFor: terms.ReplayFor, HoldAfter: 30 * time.Minute,
		MissingRow: zabor.Captured,
	}
}

// openFence is a fence on a store in memory, as tests use it. A program opens a
// database, checks it, and takes the installation's secret from it.
func openFence(ctx context.Context) (*zabor.Fence, *sqlstore.Store) {
	store, err := sqlstore.OpenMemory(ctx)
	if err != nil {
		log.Fatal(err)
	}
	secret, err := store.Setup().Secret(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return &zabor.Fence{Store: store, Secret: secret}, store
}

// A charge that is asked for twice is made once.
func ExampleFence_Do() {
	ctx := context.Background()
	a := newAcquirer()
	defer a.Close()
	fence, store := openFence(ctx)
	defer store.Close()
	p := a.client()

	for range 2 { // a queue delivers at least once
		row, err := fence.Do(ctx, charge(p, "1001"), p.Call)
		switch {
		case err == nil:
			fmt.Println("ack:", row.State, row.Reference)
		case zabor.Park(err):
			fmt.Println("to the failure transport:", err)
		default:
			fmt.Println("later:", err)
		}
	}
	fmt.Println("charges:", a.charges)
	// Output:
	// ack: settled pay_1
	// ack: settled pay_1
	// charges: 1
}

// Where the provider can make something harmless first, its id is saved before
// the request that moves the money.
func ExampleEffect_twoSteps() {
	ctx := context.Background()
	a := newAcquirer()
	defer a.Close()
	fence, store := openFence(ctx)
	defer store.Close()
	p := a.client()

	e := charge(p, "1001")
	e.Prepare = func(zabor.ProviderKeys) ([]byte, error) {
		return provider.Freeze(provider.Request{Method: "POST", Path: "/intents", ContentType: "application/json", Body: []byte(`{"amount":1999}`)})
	}
	e.Render = func(_ zabor.ProviderKeys, prepared string) ([]byte, error) {
		return provider.Freeze(provider.Request{Method: "POST", Path: "/intents/" + prepared + "/confirm"})
	}
	row, err := fence.Do(ctx, e, p.Call)
	fmt.Println(row.State, row.Prepared, row.Reference, err)
	// Output: settled int_1 pay_1 <nil>
}

// The order and the row of its charge are committed together; the call follows.
func ExampleFence_CaptureTx() {
	ctx := context.Background()
	a := newAcquirer()
	defer a.Close()
	fence, store := openFence(ctx)
	defer store.Close()
	p := a.client()
	db := store.DB() // or the application's own pool, which the store was made of
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}

	place := func(order string, commit bool) (*zabor.Capture, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", order); err != nil {
			return nil, err
		}
		capture, err := fence.CaptureTx(ctx, store.Tx(tx), charge(p, order))
		if err != nil || !commit {
			return capture, err
		}
		return capture, tx.Commit()
	}
	for order, commit := range map[string]bool{"1001": true, "1002": false} {
		capture, err := place(order, commit)
		if err != nil {
			log.Fatal(err)
		}
		row, err := capture.Do(ctx, p.Call)
		if commit {
			fmt.Println("committed:", row.State, row.Reference)
		} else if !errors.Is(err, zabor.ErrNoRow) {
			fmt.Println("rolled back, and not refused:", err)
		}
	}
	fmt.Println("charges:", a.charges)
	// Output:
	// committed: settled pay_1
	// charges: 1
}

// A person decides what no machine may, about the row as it was looked at.
func ExampleFence_Decide() {
	ctx := context.Background()
	fence, store := openFence(ctx)
	defer store.Close()
	a := newAcquirer()
	defer a.Close()
	e := charge(a.client(), "1001")

	// A call to a wrong address: nobody knows what is there.
	_, err := fence.Do(ctx, e, func(context.Context, zabor.Row) zabor.Outcome {
		return zabor.Outcome{Verdict: zabor.Misdirected, Reason: "404 from what answers there"}
	})
	fmt.Println(errors.Is(err, zabor.ErrHeld))

	row, err := store.Load(ctx, e.Key)
	if err != nil {
		log.Fatal(err)
	}
	row, err = fence.Decide(ctx, zabor.Decision{
		Key: e.Key, Seen: row.Claim, Action: zabor.Settle, Reference: "pay_7",
		By: "anna", Reason: "found at the provider",
	})
	fmt.Println(row.State, row.Reference, err)
	// Output:
	// true
	// settled pay_7 <nil>
}

// The resolver finds out what came of calls whose answer was lost.
func ExampleResolver() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a := newAcquirer()
	defer a.Close()
	fence, store := openFence(ctx)
	defer store.Close()
	p := a.client()

	e := charge(p, "1001")
	_, err := fence.Do(ctx, e, func(ctx context.Context, row zabor.Row) zabor.Outcome {
		p.Call(ctx, row) // the provider acts, and the answer gets lost
		return zabor.Outcome{Reason: "the connection was cut"}
	})
	fmt.Println(errors.Is(err, zabor.ErrInDoubt))

	resolver := &zabor.Resolver{Fence: fence, Lookup: p.Lookup, Replay: p.Call, Every: 10 * time.Millisecond}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resolver.Run(ctx, func(err error) { log.Print(err) })
	}()

	row, err := fence.Do(ctx, e, p.Call)
	for errors.Is(err, zabor.ErrInDoubt) { // as a queue that delivers again
		row, err = fence.Do(ctx, e, p.Call)
	}
	fmt.Println(row.State, row.Reference, err)
	fmt.Println("charges:", a.charges)
	stop()
	<-ended
	// Output:
	// true
	// settled pay_1 <nil>
	// charges: 1
}
