package metrics

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		reasons := ill(r.Context(), checks)
		w.Header().Set("Content-Type", "application/json")
		if len(reasons) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"ready": len(reasons) == 0, "reasons": reasons})
	})
	return mux
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

// Serve answers at l until ctx ends.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, checks []Check) error {
	server := &http.Server{Handler: m.Handler(checks), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	defer stop()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
