// Package dashboard is zabor's page for people: what is going on, what waits for
// somebody, and the decisions about it. It calls no provider and takes no message;
// it decides nothing itself, but hands each decision to whom the command hands it.
package dashboard

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// Options is what a dashboard stands on. Functions may be called concurrently; one
// that is nil is left out of the pages.
type Options struct {
	Store     *sqlstore.Store // not nil
	Scope     string          // the installation's, shown in the head; may be empty
	Version   string
	Queues    []Queue
	Providers []Provider

	// Look says what a decision would do; nothing is changed. Where the decision
	// names the claim of the row that was looked at, and the row has another one
	// by now, the error is [zabor.ErrStale], with the row as it is.
	Look func(ctx context.Context, d zabor.Decision) (Prospect, error)
	// Take takes a decision about exactly the row that was looked at, tells the
	// shop, and lets the row's messages go where they belong.
	Take func(ctx context.Context, d zabor.Decision) (Taken, error)

	Failed Failures

	// Doctor and Audit examine now, and keep what they find under [DoctorReport]
	// and [AuditReport].
	Doctor func(ctx context.Context) error
	Audit  func(ctx context.Context) error

	// Who is signed in, and whether they may change anything.
	Who func(ctx context.Context) (name string, operator bool)
	// Operator lets only those pass who may change something; nil: all do.
	Operator func(http.Handler) http.Handler

	Log *slog.Logger
}

// Queue is a queue of the configuration.
type Queue struct {
	Name string
	Kind string // laravel or symfony
	// Depth counts what it holds. Oldest is when its first ready message was put
	// there; zero: there is none, or the queue does not say.
	Depth func(ctx context.Context) (Depth, error)
}

// Depth is how much a queue holds.
type Depth struct {
	Ready, Reserved, Delayed int64
	Oldest                   time.Time
}

// Provider is a provider of the configuration.
type Provider struct {
	Name  string // in the configuration
	Title string
	Mode  string // LIVE, TEST or empty: not known
	// Console says where a person looks a row up at the provider; nil: not known.
	Console func(zabor.Row) Console
}

// Console is a provider's own page for people.
type Console struct {
	URL  string   // https; empty: not known
	Type []string // what to type into its search, the surest first
	How  string   // a sentence; may be empty
}

// Prospect is what a decision would do.
type Prospect struct {
	Row   zabor.Row // as it is; zero: there is none
	Lines []string  // in words
}

// Taken is what a decision has done.
type Taken struct {
	Row   zabor.Row
	Lines []string // what became of its messages
}

//go:embed templates/*.html static
var files embed.FS

// Dashboard serves the pages. It may be used concurrently.
type Dashboard struct {
	o       Options
	pages   pages
	numbers numbers
	running running
	mux     *http.ServeMux
}

// New makes the dashboard.
func New(o Options) (*Dashboard, error) {
	d := &Dashboard{o: o, mux: http.NewServeMux()}
	if err := d.pages.parse(); err != nil {
		return nil, err
	}
	static, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	d.mux.Handle("GET /static/", http.StripPrefix("/static/", forever(http.FileServerFS(static))))
	d.mux.HandleFunc("GET /{$}", d.overview)
	d.mux.HandleFunc("GET /fences", d.fences)
	d.mux.HandleFunc("GET /fence", d.fence)
	d.mux.HandleFunc("GET /open", d.open)
	d.mux.HandleFunc("GET /failed", d.failedList)
	d.mux.HandleFunc("GET /failed/message", d.failedOne)
	d.mux.HandleFunc("GET /audit", d.auditPage)
	d.mux.HandleFunc("GET /doctor", d.doctorPage)
	for path, handle := range map[string]http.HandlerFunc{
		"/decide": d.decide, "/failed/retry": d.retry, "/failed/forget": d.forget, "/audit": d.runAudit, "/doctor": d.runDoctor,
	} {
		var handler http.Handler = handle
		if o.Operator != nil {
			handler = o.Operator(handler)
		}
		d.mux.Handle("POST "+path, handler)
	}
	d.mux.HandleFunc("/", d.nothing)
	return d, nil
}

// ServeHTTP serves a page.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	d.mux.ServeHTTP(w, r)
}

// maxForm is the longest form that is taken, in bytes.
const maxForm = 1 << 20

// forever lets what is asked for with its version be kept.
func forever(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
			http.NotFound(w, r)
			return
		}
		if r.URL.RawQuery != "" {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		next.ServeHTTP(w, r)
	})
}

// Serve serves handler, which stands before the dashboard, until ctx ends.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		// A decision that was begun is finished.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = server.Shutdown(limit)
	})
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("dashboard: %w", err)
}

func (d *Dashboard) who(ctx context.Context) (name string, operator bool) {
	if d.o.Who == nil {
		return "", false
	}
	return d.o.Who(ctx)
}

func (d *Dashboard) provider(name string) (Provider, bool) {
	for _, p := range d.o.Providers {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{Name: name}, false
}
