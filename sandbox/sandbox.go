// Package sandbox is a pretend payment provider: it moves no money, counts each
// time it would have, and can fail in every way that a provider or the network
// before it can. It serves the demo, the proof and the benchmarks.
package sandbox

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zabor/provider"
)

// Options are how this provider behaves. The zero value is a good one: it
// remembers idempotency keys for ever and is seen by its look-up at once.
type Options struct {
	Path      string        // of payments; empty: /payments
	KeyHeader string        // empty: Idempotency-Key
	KeyLife   time.Duration // after which a key is forgotten, so that it charges again; 0: for ever

	// IgnoreKeys makes it a provider without idempotency: each POST charges.
	IgnoreKeys bool

	// LookupLag is how much later the look-up by order or key sees a payment.
	LookupLag time.Duration

	// Secret is the one that requests of the built-in profiles must come with; it
	// signs those that are signed. Empty: any.
	Secret string

	// OnCharge is told of each charge after it is booked and before anything
	// of the answer is written. The answer waits for it. It is called from many
	// goroutines.
	OnCharge func(Charge)
}

// Charge is a payment that moved money.
type Charge struct {
	ID       string    `json:"id"`
	Order    string    `json:"order"`
	Key      string    `json:"key"` // the idempotency key it came with; may be empty
	Amount   int64     `json:"amount"`
	Currency string    `json:"currency"`
	At       time.Time `json:"at"`
}

// Stats counts what has happened since the start.
type Stats struct {
	Posts      int64 `json:"posts"`      // payment requests whose header arrived, whatever was made of them
	Charges    int64 `json:"charges"`    // payments that moved money
	Replays    int64 `json:"replays"`    // answers that were given again under the same key
	Mismatches int64 `json:"mismatches"` // the same key with another amount, currency or order
	Declined   int64 `json:"declined"`
	Pending    int64 `json:"pending"`  // payments that are still without a verdict
	Repeated   int64 `json:"repeated"` // orders that were charged more than once

	Orders map[string]int64 `json:"orders,omitempty"` // charges by order
}

// Sandbox is the provider, as an http.Handler:
//
//	POST /payments                          makes a payment; see payment for the body
//	GET  /payments?merchant_reference=NAME  the payments of an order or key, in "data"
//	GET  /payments?limit=N&since=TIME&after=ID  all payments, page by page; "next" is the next one's after
//	GET  /payments/ID                       one payment
//	POST /intents                           a payment that moves nothing yet; the body is the same
//	POST /intents/ID/confirm                moves its money
//	GET  /intents/ID                        the same as GET /payments/ID
//	POST /_faults                           plans a [Fault]
//	POST /_release                          lets hanging and late calls go on
//	POST /_forget                           forgets all idempotency keys
//	POST /_settle?id=ID&status=paid         gives a pending payment its verdict
//	GET  /_stats                            [Stats]; ?orders=0 without the map
//	GET  /_charges?order=NAME               the charges of an order, or of a key
//	GET  /_wait?charges=N&timeout=10s       answers when N charges are booked
//
// It also speaks every built-in profile that can be called, below its name: POST
// /stripe/v1/payment_intents, POST /yookassa/payments. Each has the provider's own
// place of the key, answers to a key that is known or in use, shapes, look-ups and
// two steps, as far as its profile relies on them; the faults are the same.
//
// It may be used concurrently. A payment costs about 300 bytes, for ever.
type Sandbox struct {
	o        Options
	mux      *http.ServeMux
	now      func() time.Time
	dialects []*dialect

	mu       sync.Mutex
	payments []payment // by number
	byKey    map[string]thread
	byOrder  map[string]thread
	keys     map[[2]string]*known // by dialect and key
	tokens   map[string]time.Time // access tokens, and when they end
	stats    Stats
	faults   []Fault
	release  chan struct{} // closed to let hanging calls go on
	waiters  []waiter
}

// payment is what the sandbox remembers of one. Its number is its id.
type payment struct {
	order, key, currency   string
	carried                string // the provider key, where a look-up finds it by that
	speaks                 *dialect
	amount                 int64
	at                     int64 // Unix nanoseconds
	beforeKey, beforeOrder int32 // the one before under the same name; -1: none
	status                 status

	// Of what is asked for, and not kept.
	atOnce bool   // an intent that is to be paid at once
	intent string // id of the one that is confirmed; empty: none is
	path   string // of the request
}

type status uint8

const (
	paid status = iota
	processing
	refused
	prepared // nothing is asked of anybody yet
	softly   // refused, and may still be paid
	statuses = iota
)

func (s status) String() string { return ownNames[s] }

// thread is what is known of one order, or of one key.
type thread struct {
	newest  int32 // number of the newest payment; the others hang on it
	charges int32
}

type waiter struct {
	charges int64
	ready   chan struct{}
}

// New makes a provider that has seen nothing yet.
func New(o Options) *Sandbox {
	if o.Path == "" {
		o.Path = "/payments"
	}
	if o.KeyHeader == "" {
		o.KeyHeader = "Idempotency-Key"
	}
	s := &Sandbox{
		o: o, mux: http.NewServeMux(), now: time.Now,
		byKey: map[string]thread{}, byOrder: map[string]thread{}, keys: map[[2]string]*known{}, tokens: map[string]time.Time{}, release: make(chan struct{}),
	}
	mine := ownDialect(o.Path, o.KeyHeader)
	s.speak(&mine)
	for i := range builtins {
		s.speak(&builtins[i])
	}
	s.mux.HandleFunc("POST /_faults", s.serveFaults)
	s.mux.HandleFunc("POST /_forget", func(w http.ResponseWriter, _ *http.Request) { s.Forget(); w.WriteHeader(http.StatusNoContent) })
	s.mux.HandleFunc("POST /_release", func(w http.ResponseWriter, _ *http.Request) { s.Release(); w.WriteHeader(http.StatusNoContent) })
	s.mux.HandleFunc("POST /_settle", s.serveSettle)
	s.mux.HandleFunc("GET /_stats", s.serveStats)
	s.mux.HandleFunc("GET /_charges", s.serveCharges)
	s.mux.HandleFunc("GET /_wait", s.serveWait)
	return s
}

// speak serves the routes of d.
func (s *Sandbox) speak(d *dialect) {
	s.dialects = append(s.dialects, d)
	for _, r := range d.routes {
		path := r.path
		if d.name != "" {
			method, rest, _ := strings.Cut(path, " ")
			path = method + " /" + d.name + rest
		}
		s.mux.HandleFunc(path, s.serve(d, r))
	}
}

func (s *Sandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Profile is the profile of a sandbox with zero Options that listens at baseURL.
// AbsentAfter must cover its LookupLag and the longest delay of a planned fault.
func Profile(baseURL string, absentAfter time.Duration) provider.Profile {
	return provider.Profile{
		BaseURL: baseURL,
		Timeout: 10 * time.Second,
		Line: provider.Line{
			Key: provider.Key{Header: "Idempotency-Key", Life: 24 * time.Hour, Replays: provider.ReplaysAll, Mark: "Idempotent-Replayed"},
			Answers: provider.Answers{
				Reference: "/id",
				Settled:   provider.Match{Pointer: "/status", Values: []string{paid.String()}},
				Pending:   provider.Match{Pointer: "/status", Values: []string{processing.String()}},
				Rules:     []provider.Rule{{Means: "unbegun", Values: map[string][]string{"/status": {prepared.String()}}}},
				Declined:  provider.Refusal{Pointer: "/status", Values: []string{refused.String()}, Statuses: []int{http.StatusPaymentRequired}},
				Malformed: provider.Refusal{Pointer: "/error/code", Values: []string{invalidRequest}},
			},
			Amount: provider.Amount{Minor: "/amount", Currency: "/currency"},
			Lookup: &provider.Lookup{
				Path: "/payments?merchant_reference={{provider_key}}", Items: "/data", AbsentAfter: absentAfter,
				Prepared: "/intents/{{prepared}}", Reference: "/payments/{{reference}}",
			},
		},
		List: &provider.List{
			Path: "/payments?limit=1000&since={{since}}", Items: "/data", Made: "/created", Key: "/idempotency_key", Orders: []string{"/merchant_reference"},
			Next: provider.Next{Parameter: "after", Cursor: "/next"},
		},
	}
}

// Stats counts what has happened, with the charges of each order.
func (s *Sandbox) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Orders = make(map[string]int64, len(s.byOrder))
	for order, t := range s.byOrder {
		stats.Orders[order] = int64(t.charges)
	}
	return stats
}

// Charges are the charges of an order or of an idempotency key, oldest first.
func (s *Sandbox) Charges(name string) []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Charge
	for _, n := range s.named(name) {
		if s.payments[n].status == paid {
			out = append(out, s.charge(n))
		}
	}
	return out
}

// Settle gives the pending payment with the given id its verdict, and reports
// whether there was one. A yes is a charge.
func (s *Sandbox) Settle(id string, yes bool) bool {
	s.mu.Lock()
	n, ok := s.anyNumber(id)
	if !ok || s.payments[n].status != processing && s.payments[n].status != softly {
		s.mu.Unlock()
		return false
	}
	s.stats.Pending--
	s.payments[n].status = refused
	if yes {
		s.payments[n].status = paid
		s.book(n)
	} else {
		s.stats.Declined++
	}
	c := s.charge(n)
	s.mu.Unlock()
	if yes && s.o.OnCharge != nil {
		s.o.OnCharge(c)
	}
	return true
}

// Release lets all calls go on that hang now.
func (s *Sandbox) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.release)
	s.release = make(chan struct{})
}

// Wait returns a channel that is closed when at least n charges are booked.
func (s *Sandbox) Wait(n int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make(chan struct{})
	if s.stats.Charges >= n {
		close(ready)
	} else {
		s.waiters = append(s.waiters, waiter{n, ready})
	}
	return ready
}

// forget takes back a Wait that nobody waits for any more.
func (s *Sandbox) forget(ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool { return w.ready == ready })
}

// add remembers p under its order and key. The caller holds mu.
func (s *Sandbox) add(p payment) int32 {
	n := int32(len(s.payments))
	p.at, p.intent, p.path = s.now().UnixNano(), "", ""
	p.beforeKey, p.beforeOrder = link(s.byKey, p.key, n), link(s.byOrder, p.order, n)
	s.payments = append(s.payments, p)
	s.enter(n)
	return n
}

// enter counts payment n in the status that it has come to. The caller holds mu.
func (s *Sandbox) enter(n int32) {
	switch s.payments[n].status {
	case paid:
		s.book(n)
	case processing:
		s.stats.Pending++
	case refused:
		s.stats.Declined++
	case softly:
		s.stats.Pending++
	}
}

// link puts payment n on the thread of name, and returns the one before it.
func link(threads map[string]thread, name string, n int32) (before int32) {
	t, ok := threads[name]
	if !ok {
		t.newest = -1
	}
	before, t.newest = t.newest, n
	threads[name] = t
	return before
}

// book counts payment n as a charge. The caller holds mu.
func (s *Sandbox) book(n int32) {
	p := s.payments[n]
	s.stats.Charges++
	count(s.byKey, p.key)
	if p.order != "" && count(s.byOrder, p.order) == 2 {
		s.stats.Repeated++
	}
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		if s.stats.Charges < w.charges {
			return false
		}
		close(w.ready)
		return true
	})
}

func count(threads map[string]thread, name string) int32 {
	t := threads[name]
	t.charges++
	threads[name] = t
	return t.charges
}

// named are the payments whose order or key is name, oldest first. The caller
// holds mu.
func (s *Sandbox) named(name string) []int32 {
	var out []int32
	if t, ok := s.byKey[name]; ok && name != "" {
		for n := t.newest; n >= 0; n = s.payments[n].beforeKey {
			out = append(out, n)
		}
	}
	if t, ok := s.byOrder[name]; ok && name != "" {
		for n := t.newest; n >= 0; n = s.payments[n].beforeOrder {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Sandbox) charge(n int32) Charge {
	p := s.payments[n]
	return Charge{ID: p.speaks.moved + p.speaks.id(n), Order: p.order, Key: p.key, Amount: p.amount, Currency: p.currency, At: time.Unix(0, p.at).UTC()}
}

// number is the payment of d with the given id. The caller holds mu.
func (s *Sandbox) number(d *dialect, id string) (int32, bool) {
	digits, ok := strings.CutPrefix(id, d.prefix)
	n, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || n < 1 || n > int64(len(s.payments)) || s.payments[n-1].speaks.prefix != d.prefix {
		return 0, false
	}
	return int32(n - 1), true
}

// anyNumber is the payment with the given id, whoever's it is. The caller holds mu.
func (s *Sandbox) anyNumber(id string) (int32, bool) {
	for _, d := range s.dialects {
		if n, ok := s.number(d, strings.TrimPrefix(id, d.moved)); ok {
			return n, true
		}
	}
	return 0, false
}
