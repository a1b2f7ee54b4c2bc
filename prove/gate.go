package prove

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"

	"zabor/sandbox"
)

// gate is the provider: the sandbox behind a door at which each order has its
// watcher. It takes no notice of idempotency keys: each request that it carries
// out is a charge, so that only the worker's own doing keeps an order from being
// charged twice.
type gate struct {
	sandbox *sandbox.Sandbox
	server  *http.Server
	url     string

	mu       sync.Mutex
	watchers map[string]watcher
	other    watcher // of orders that have none; nil: nobody
}

// watcher is told what the provider does with an order. Its methods are called
// from many goroutines, and the provider waits for each.
type watcher interface {
	// asked: a payment request was read and nothing was done. gone is closed
	// when its connection is. False: nothing is done, and the connection is closed.
	asked(gone <-chan struct{}) bool
	// charged: money was moved, nothing was answered.
	charged(sandbox.Charge)
	// lookedUp: somebody asks what became of the order.
	lookedUp()
}

func newGate() (*gate, error) {
	g := &gate{watchers: map[string]watcher{}}
	g.sandbox = sandbox.New(sandbox.Options{IgnoreKeys: true, OnCharge: func(c sandbox.Charge) {
		if w := g.watcher(c.Order); w != nil {
			w.charged(c)
		}
	}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.url = "http://" + listener.Addr().String()
	g.server = &http.Server{Handler: g}
	go func() { _ = g.server.Serve(listener) }() // ends with close
	return g, nil
}

func (g *gate) close() { g.server.Close() }

func (g *gate) watcher(order string) watcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w, ok := g.watchers[order]; ok {
		return w
	}
	return g.other
}

// watchAll lets w watch the orders that have no watcher.
func (g *gate) watchAll(w watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.other = w
}

func (g *gate) watch(order string, w watcher) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers[order] = w
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		if watcher := g.watcher(r.URL.Query().Get("order")); watcher != nil {
			watcher.lookedUp()
		}
		g.sandbox.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var asked struct{ Order string }
	if json.Unmarshal(body, &asked) == nil {
		if watcher := g.watcher(asked.Order); watcher != nil && !watcher.asked(r.Context().Done()) {
			panic(http.ErrAbortHandler)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.sandbox.ServeHTTP(w, r)
}
