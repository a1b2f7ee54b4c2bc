// Package proxy is the fence for handlers that stay in PHP or in any language:
// they call it in place of the provider, name order and step, and get the stored
// answer on a repeat.
package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zabor"
	"zabor/provider"
)

// Upstream is a provider that may be called.
type Upstream struct {
	*provider.Provider
	Account  string
	Volatile []string // as in [step.Print]
}

// Options are what a Proxy is made of.
type Options struct {
	Fence     *zabor.Fence
	Upstreams map[string]Upstream // by the provider's name
	Scope     string              // the installation's; in every key

	Attempts   int // as in [zabor.Effect]
	HoldAfter  time.Duration
	PendingFor time.Duration

	// Check says why the key may not be used here, such as a step that needs a
	// part; nil: every key may.
	Check func(scoped bool, k zabor.Key) error
	// Show is a row as GET /fences shows it, for JSON: an object.
	Show func(zabor.Row) any

	Allow    []string // patterns METHOD /provider/path; none: all
	Unfenced []string // patterns of what may be sent without a key

	// Token, where there is one, must come with every request. Trusted: whoever
	// connects has proved by TLS who they are. Without either only addresses and
	// localhost are taken as Host, so that no web page leads a browser here.
	Token   string
	Trusted bool

	// Trace follows a fenced request until its row is saved: what is done about it is
	// done under the context that it gives. Calling is a call that is shown within.
	// Nil: nothing is shown.
	Trace   func(ctx context.Context, r *http.Request, k zabor.Key) (_ context.Context, end func(zabor.Row, error))
	Calling func(zabor.Call) zabor.Call

	Observe bool // let everything pass and count: no fence
	MaxBody int  // bytes of the longest body that is taken; above zero
	Log     *slog.Logger
}

// Proxy is the door, as an http.Handler:
//
//	METHOD /{provider}/{path as at the provider}
//	GET    /fences/{order}/{step}?scope=
//
// It takes requests through [Proxy.Serve], whose connections refuse what net/http
// is too lenient with. It may be used concurrently.
type Proxy struct {
	o        Options
	allow    []pattern
	unfenced []pattern
	token    [sha256.Size]byte
	open     chan struct{} // one for each request under way
	calls    sync.WaitGroup
	observed [len(verdicts)]atomic.Int64
}

// maxOpen is how many requests may be under way: what they hold in memory is
// bounded by it.
const maxOpen = 1024

// Times of a connection.
const (
	headTime  = 10 * time.Second // for a request's head
	bodyTime  = 20 * time.Second // for its body
	writeTime = 20 * time.Second // for an answer, or the next part of one that is passed on as it comes
	idleTime  = time.Minute      // between two requests
)

// New makes a proxy. The error says which pattern is wrong.
func New(o Options) (*Proxy, error) {
	p := &Proxy{o: o, token: sha256.Sum256([]byte(o.Token)), open: make(chan struct{}, maxOpen)}
	for _, list := range []struct {
		name  string
		texts []string
		to    *[]pattern
	}{{"allow", o.Allow, &p.allow}, {"unfenced", o.Unfenced, &p.unfenced}} {
		for _, text := range list.texts {
			one, err := parsePattern(text)
			if err == nil && o.Upstreams[one.provider].Provider == nil {
				err = fmt.Errorf("%q: there is no provider %q", text, one.provider)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list.name, err)
			}
			*list.to = append(*list.to, one)
		}
	}
	return p, nil
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case p.open <- struct{}{}:
		defer func() { <-p.open }()
	default:
		p.refuse(w, problem{status: 503, kind: "busy-proxy", text: fmt.Sprintf("%d requests are under way; nothing was sent", maxOpen), wait: time.Second})
		return
	}
	if err := p.serve(w, r); err != nil {
		p.refuseFor(w, err)
	}
}

// serve answers r, or says why it is not taken.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) error {
	if err := p.admit(r); err != nil {
		return err
	}
	if order, ok := strings.CutPrefix(r.RequestURI, fencesPath); ok {
		return p.serveFence(w, r, order)
	}
	t, err := parseTarget(r.RequestURI)
	if err != nil {
		return err
	}
	up, ok := p.o.Upstreams[t.provider]
	if !ok {
		return refuse(403, "no provider %q is configured", visible(t.provider))
	}
	if matches := func(one pattern) bool { return one.matches(r.Method, t) }; len(p.allow) > 0 && !slices.ContainsFunc(p.allow, matches) {
		return refuse(403, "%s %s is not among what the configuration allows (proxy.allow)", r.Method, visible(t.path))
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if r.ContentLength != 0 {
			return refuse(400, "a %s with a body is not taken", r.Method)
		}
		return p.pass(w, r, up, t, nil)
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return refuse(400, "the method %s is not taken", visible(r.Method))
	}
	body, err := p.readBody(w, r)
	if err != nil {
		return err
	}
	request := provider.Request{Method: r.Method, Path: t.path, ContentType: r.Header.Get("Content-Type"), Body: body, Header: forwarded(r.Header, up)}
	if len(body) > 0 && request.ContentType == "" {
		return refuse(400, "a body without Content-Type")
	}
	request, incoming, err := up.TakeKey(request)
	if err != nil {
		return refuse(400, "%s", visible(err.Error()))
	}
	if up.KeyHeader() != "" {
		if values := r.Header.Values(up.KeyHeader()); len(values) > 1 {
			return refuse(400, "%s is there more than once", up.KeyHeader())
		}
		incoming = r.Header.Get(up.KeyHeader())
	}
	k, ok, err := p.keyOf(r.Header, incoming)
	switch {
	case err != nil && p.o.Observe:
		return p.misnamed(w, r, up, t, body, err)
	case err != nil:
		return err
	case ok && p.o.Observe:
		return p.observe(w, r, up, t, body, k, request)
	case ok:
		return p.fenced(w, r, up, k, request)
	case p.o.Observe:
		p.count(w, withoutKey)
		return p.pass(w, r, up, t, body)
	case slices.ContainsFunc(p.unfenced, func(one pattern) bool { return one.matches(r.Method, t) }):
		return p.pass(w, r, up, t, body)
	}
	return refuse(400, "neither Zabor-Order and Zabor-Step nor an idempotency key zabor:ORDER:STEP name what this is for; list the path under proxy.unfenced if it may happen twice")
}

// admit checks who asks, and that no browser was led here.
func (p *Proxy) admit(r *http.Request) error {
	if text := r.Header.Get(refusedHeader); text != "" {
		status, why, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(status)
		if err != nil {
			n = 400
		}
		return refuse(n, "%s", why)
	}
	if p.o.Token != "" && !p.knows(r) {
		return refuse(401, "the token is missing or wrong: send it as the bearer token, as the password of Basic, or in %s", tokenHeader)
	}
	if len(r.Header["Origin"]) > 0 || r.Header.Get("Sec-Fetch-Site") != "" {
		return refuse(403, "a browser may not ask here (Origin)")
	}
	if p.o.Token == "" && !p.o.Trusted && !plainHost(r.Host) {
		return refuse(403, "Host %q: without a token only an address or localhost is taken", visible(r.Host))
	}
	return nil
}

// knows reports whether r brings the token. It takes the same time whatever r
// brings instead.
func (p *Proxy) knows(r *http.Request) bool {
	_, password, _ := r.BasicAuth()
	bearer := r.Header.Get("Authorization")
	if scheme, rest, _ := strings.Cut(bearer, " "); strings.EqualFold(scheme, "Bearer") {
		bearer = rest
	}
	known := 0
	for _, text := range []string{r.Header.Get(tokenHeader), bearer, password} {
		sum := sha256.Sum256([]byte(text))
		known |= subtle.ConstantTimeCompare(sum[:], p.token[:])
	}
	return known == 1
}

// plainHost reports whether host is an address or localhost: no name that a
// web page's owner could point here.
func plainHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host) != nil
}

// readBody reads the whole body: nothing is captured for a request that is not
// there.
func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > int64(p.o.MaxBody) {
		return nil, refuse(413, "the body has %d bytes, and at most %d are taken (proxy.max_body)", r.ContentLength, p.o.MaxBody)
	}
	if r.ContentLength < 0 {
		return nil, refuse(411, "send the body with its Content-Length")
	}
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(bodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	// It grows as it comes: a length that was only announced costs no memory.
	body, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength))
	if err != nil || int64(len(body)) < r.ContentLength {
		return nil, refuse(400, "the body did not come whole within %s", bodyTime)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return body, nil
}

// keyOf is the key that a request names; ok is false where it names none.
func (p *Proxy) keyOf(h http.Header, incoming string) (k zabor.Key, ok bool, err error) {
	n, ok, err := nameOf(h, incoming)
	if err != nil || !ok {
		return zabor.Key{}, false, err
	}
	if k, err = n.key(p.o.Scope); err != nil {
		return zabor.Key{}, false, err
	}
	if p.o.Check != nil {
		if wrong := p.o.Check(n.scope != "", k); wrong != nil {
			return zabor.Key{}, false, refuse(400, "%s", visible(wrong.Error()))
		}
	}
	return k, true, nil
}

// forwarded are the header fields of a caller's that go on to up: all but those
// that belong to the connection, to who asks whom, or to how the caller counts
// and traces. What goes on is part of the request: it tells one from another.
func forwarded(h http.Header, up Upstream) []zabor.HeaderField {
	var fields []zabor.HeaderField
	for _, name := range sortedNames(h) {
		if !goesOn(name) || up.Sets(name) || strings.EqualFold(name, up.KeyHeader()) || name == "Content-Type" {
			continue
		}
		for _, value := range h[name] {
			fields = append(fields, zabor.HeaderField{Name: name, Value: value})
		}
	}
	return fields
}

func sortedNames(h http.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func goesOn(name string) bool {
	return !slices.Contains(notForwarded[:], name) &&
		!slices.ContainsFunc(notForwardedPrefixes[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// notForwarded are header fields that do not go on to a provider.
var notForwarded = [...]string{
	"Accept-Encoding", "Authorization", "Connection", "Content-Length", "Cookie", "Date", "Dnt", "Expect", "Forwarded", "From", "Host", "Keep-Alive",
	"Origin", "Pragma", "Cache-Control", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests", "Via", "X-Real-Ip",
	// keys of libraries, new with each attempt; the profile's own is replaced
	"Idempotency-Key", "Idempotence-Key", "X-Idempotency-Key", "Paypal-Request-Id", "X-Request-Id", "X-Correlation-Id", "X-Payout-Idempotency", "Cko-Idempotency-Key",
	// what tracing and libraries add, other with each attempt
	"Traceparent", "Tracestate", "Baggage", "B3", "Sentry-Trace", "Uber-Trace-Id", "X-Cloud-Trace-Context", "Newrelic",
	"X-Stripe-Client-User-Agent", "X-Stripe-Client-Telemetry",
}

var notForwardedPrefixes = [...]string{"Zabor-", "Proxy-", "Sec-", "X-Forwarded-", "X-B3-", "X-Datadog-", "X-Amzn-"}
