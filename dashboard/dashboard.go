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
	"zabor/dashboard/access"
	"zabor/listen"
	"zabor/provider"
	"zabor/sqlstore"
)

// Options is what a dashboard stands on. Functions may be called concurrently; one
// that is nil is left out of the pages.
type Options struct {
	Store     *sqlstore.Store // not nil
	Scope     string          // the installation's: only its rows are shown, counted and decided, see [zabor.Key.In]; empty: all
	Version   string
	Queues    []Queue
	Providers []Provider

	// OrderURL is the address of an order in the shop, with [OrderMark] in the place of
	// its id; empty: there is no link.
	OrderURL string
	// Find returns the messages of an order that lie on the queues, in failure transports
	// and in quarantine. more: there are messages that were not searched.
	Find func(ctx context.Context, order string) (found []Waiting, more bool, err error)

	// Look says what a decision would do; nothing is changed. What would be refused is
	// refused here already: the error is [zabor.ErrRefused]. Where the decision
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

	// Health answers /livez and /readyz, to everybody who reaches the dashboard.
	Health http.Handler

	// Guard says who asks, and is not nil.
	Guard *access.Guard
	// SecondPerson: a release waits until another operator has confirmed it.
	SecondPerson bool

	Log *slog.Logger
}

// OrderMark stands for the order's id in [Options].OrderURL.
const OrderMark = "{{order}}"

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
	// Console says where a person looks a row up at the provider, and by what; nil:
	// nothing is known of it.
	Console func(zabor.Row) Console
}

// Console is a provider's own page for people.
type Console struct {
	URL    string          // https; empty: not known
	Search []provider.Clue // what its search finds the row's call by, the surest first
	How    string          // in sentences; may be empty
}

// Prospect is what a decision would do.
type Prospect struct {
	Row      zabor.Row // as it is; zero: there is none
	Lines    []string  // in words
	Warnings []string  // what whoever decides must know before, in words
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
	guarded http.Handler
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
		"/decide": d.decide, "/withdraw": d.withdraw, "/refunded": d.refundedOne, "/answer": d.answerDealtWith, "/failed/retry": d.retry, "/failed/forget": d.forget, "/audit": d.runAudit, "/audit/dealt": d.auditDealt, "/doctor": d.runDoctor,
	} {
		d.mux.Handle("POST "+path, d.operators(handle))
	}
	d.mux.HandleFunc("/", d.nothing)
	d.guarded = o.Guard.Handler(d.mux)
	return d, nil
}

// ServeHTTP serves a page to whom the guard lets through, and its health to
// everybody.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.o.Health != nil && (r.URL.Path == "/livez" || r.URL.Path == "/readyz") {
		d.o.Health.ServeHTTP(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if r.Method == http.MethodGet {
		ctx, cancel := context.WithTimeoutCause(r.Context(), longestPage, errSlow)
		defer cancel()
		r = r.WithContext(ctx)
	}
	d.guarded.ServeHTTP(w, r)
}

// operators tells a viewer in a page that only operators do this; the guard
// itself refuses whoever else is none.
func (d *Dashboard) operators(next http.Handler) http.Handler {
	guarded := d.o.Guard.Operator(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := access.From(r.Context()); id.Role == access.Viewer {
			d.o.Log.Warn("a viewer asked for what operators do", "user", id.Name, "path", r.URL.Path)
			d.trouble(w, r, http.StatusForbidden, trouble{What: "Operators do this", Detail: []string{id.Name + " is a viewer, and may see everything and change nothing."}, Next: "Nothing was done. Ask an operator.", Link: "/", Words: "To the overview"})
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// longestPage is how long a page waits for the database and the queues. A browser gives
// a renewal up after 4 s.
const longestPage = 3500 * time.Millisecond

// errSlow is why a page has stopped waiting.
var errSlow = errors.New("no answer within 3.5 s")

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

// Serve serves the dashboard until ctx ends, and closes listener. A decision that was begun
// is finished within a minute.
func (d *Dashboard) Serve(ctx context.Context, listener net.Listener) error {
	err := listen.Serve(ctx, listener, listen.Options{Handler: d, Read: 30 * time.Second, Write: 2 * time.Minute, Finish: time.Minute, Log: d.o.Log})
	if err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	return nil
}

func (d *Dashboard) provider(name string) (Provider, bool) {
	for _, p := range d.o.Providers {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{Name: name}, false
}
