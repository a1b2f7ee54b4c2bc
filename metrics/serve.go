package metrics

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"zabor/listen"
)

// Check is one thing without which a process can do nothing.
type Check struct {
	Name string // such as "fence"
	Well func(ctx context.Context) error
}

// checkTime bounds one look at everything.
const checkTime = 3 * time.Second

// Handler answers /metrics, /livez (the process runs) and /readyz (it can work: 200,
// or 503 with the reasons, as a JSON object of names and errors).
func (m *Metrics) Handler(checks []Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, ill(r.Context(), checks)) })
	return mux
}

// Health answers /livez and /readyz alone, for an address that strangers reach: it
// names what is not well and keeps the reason to itself, and it looks once a second
// at most. The reasons go to tell, one call at a time.
func Health(checks []Check, tell func(reasons map[string]string)) http.Handler {
	var mu sync.Mutex
	var looked time.Time
	var names map[string]string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(looked) > time.Second {
			names = map[string]string{}
			reasons := ill(context.WithoutCancel(r.Context()), checks)
			for name := range reasons {
				names[name] = "not well; the log says why"
			}
			if len(reasons) > 0 {
				tell(reasons)
			}
			looked = time.Now()
		}
		ready(w, names)
	})
	return mux
}

func live(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

func ready(w http.ResponseWriter, reasons map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	if len(reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"ready": len(reasons) == 0, "reasons": reasons})
}

// ill is what is not well, by name.
func ill(ctx context.Context, checks []Check) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	reasons := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range checks {
		wg.Go(func() {
			if err := c.Well(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				reasons[c.Name] = err.Error()
			}
		})
	}
	wg.Wait()
	return reasons
}

// Serve answers at l until ctx ends, and closes l.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, checks []Check) error {
	return listen.Serve(ctx, l, listen.Options{Handler: m.Handler(checks), Read: 5 * time.Second, Write: 30 * time.Second, Finish: time.Second})
}
