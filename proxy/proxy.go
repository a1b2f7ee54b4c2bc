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
	Fence     *zabor.Fence        // nil, for one that observes: [Proxy.Attach] comes later
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

	// Token is asked with every request what its caller must bring: a token that is
	// rotated is another one at once. Nobody brings an empty one. Nil: none is wanted.
	// Trusted: whoever connects has proved by TLS who they are. Without either only
	// addresses and localhost are taken as Host, so that no web page leads a browser
	// here.
	Token   func() string
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
	fence    atomic.Pointer[zabor.Fence]
	allow    []pattern
	unfenced []pattern
	open     chan struct{} // one for each request under way
	calls    sync.WaitGroup
	passing  context.Context // ends what has no fence
	cut      context.CancelFunc
	observed [len(verdicts)]atomic.Int64
}

// maxOpen is how many requests may be under way: what they hold in memory is
// bounded by it.
const maxOpen = 1024

// Times of a connection.
const (
	bodyTime  = 20 * time.Second // for a request's head and body
	writeTime = 20 * time.Second // for an answer, or the next part of one that is passed on as it comes
)

// New makes a proxy. The error says which pattern is wrong.
func New(o Options) (*Proxy, error) {
	p := &Proxy{o: o, open: make(chan struct{}, maxOpen)}
	p.passing, p.cut = context.WithCancel(context.Background())
	p.fence.Store(o.Fence)
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

// Attach gives an observing proxy that was made without a fence the one to record
// in, from now on. It may be called once.
func (p *Proxy) Attach(f *zabor.Fence) { p.fence.Store(f) }

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.serve(w, r); err != nil {
		p.refuseFor(w, err)
	}
}

// serve answers r, or says why it is not taken. What only reads takes no room of the
// requests that may have an effect.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) error {
	if err := p.admit(r); err != nil {
		return err
	}
	reads := harmless(r.Method)
	room := true
	switch {
	case reads && r.ContentLength != 0 && !p.o.Observe:
		return refuse(400, "a %s with a body is not taken", r.Method)
	case reads && r.ContentLength == 0:
		if err := readUntil(w, time.Time{}); err != nil {
			return err
		}
	case !reads:
		select {
		case p.open <- struct{}{}:
			defer func() { <-p.open }()
		default:
			room = false
		}
	}
	if !room && !p.o.Observe {
		p.refuse(w, problem{status: 503, kind: "busy-proxy", text: fmt.Sprintf("%d requests are under way; nothing was sent", maxOpen), wait: time.Second})
		return nil
	}
	if order, ok := strings.CutPrefix(r.RequestURI, fencesPath); ok {
		return p.serveFence(w, r, order)
	}
	t, err := parseTarget(r.RequestURI)
	if err != nil {
		return err
	}
	up, ok := p.o.Upstreams[t.provider]
	switch {
	case !ok:
		return refuse(403, "no provider %q is configured", visible(t.provider))
	case len(p.allow) > 0 && !listed(p.allow, r, t):
		return refuse(403, "%s %s is not among what the configuration allows (proxy.allow)", r.Method, visible(t.path))
	case !reads && !slices.Contains(effective[:], r.Method):
		return refuse(400, "the method %s is not taken", visible(r.Method))
	case p.o.Observe:
		return p.observe(w, r, up, t, room)
	case reads:
		return p.pass(w, r, up, t, nil, nil)
	case r.ContentLength > int64(p.o.MaxBody):
		return p.tooLong()
	}
	body, whole, err := p.readBody(w, r)
	if err != nil {
		return err
	}
	if !whole {
		return p.tooLong()
	}
	request, k, named, err := p.asked(r, up, t, body)
	switch {
	case err != nil:
		return err
	case named:
		return p.fenced(w, r, up, k, request)
	case listed(p.unfenced, r, t):
		return p.pass(w, r, up, t, body, nil)
	}
	return refuse(400, "neither Zabor-Order and Zabor-Step nor an idempotency key zabor:ORDER:STEP name what this is for; list the path under proxy.unfenced if it may happen twice")
}

// effective are the methods that may have an effect.
var effective = [...]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// harmless reports whether a request of that method needs no fence.
func harmless(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func listed(list []pattern, r *http.Request, t target) bool {
	return slices.ContainsFunc(list, func(one pattern) bool { return one.matches(r.Method, t) })
}

// asked is what r asks for, and the key that it names for it; named is false
// where it names none. The error says why it cannot be fenced.
func (p *Proxy) asked(r *http.Request, up Upstream, t target, body []byte) (request provider.Request, k zabor.Key, named bool, err error) {
	request = provider.Request{Method: r.Method, Path: t.path, ContentType: r.Header.Get("Content-Type"), Body: body, Header: forwarded(r.Header, up)}
	request, incoming, keyErr := up.TakeKey(request)
	for i, name := range up.KeyHeaders() {
		values := r.Header.Values(name)
		switch {
		case len(values) > 1:
			return request, k, false, refuse(400, "%s is there more than once", name)
		case i == 0 || len(values) == 1:
			incoming = r.Header.Get(name)
		}
	}
	k, named, err = p.keyOf(r.Header, incoming)
	switch {
	case err != nil || !named && listed(p.unfenced, r, t): // no key is wanted
	case keyErr != nil:
		err = refuse(400, "%s", visible(keyErr.Error()))
	case len(body) > 0 && request.ContentType == "":
		err = refuse(400, "a body without Content-Type")
	}
	return request, k, named, err
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
	if p.o.Token != nil && !knows(r, p.o.Token()) {
		return refuse(401, "the token is missing or wrong: send it as the bearer token, as the password of Basic, or in %s", tokenHeader)
	}
	for _, name := range overrides {
		if len(r.Header[name]) > 0 {
			return refuse(400, "%s may make another request of it than the one that is judged here: it is not taken", name)
		}
	}
	if len(r.Header["Origin"]) > 0 || r.Header.Get("Sec-Fetch-Site") != "" {
		return refuse(403, "a browser may not ask here (Origin)")
	}
	if p.o.Token == nil && !p.o.Trusted && !plainHost(r.Host) {
		return refuse(403, "Host %q: without a token only an address or localhost is taken", visible(r.Host))
	}
	return nil
}

// overrides are header fields in which servers look for another method or path
// than that of the request.
var overrides = [...]string{
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Method", "X-Original-Uri", "X-Original-Url", "X-Override-Url", "X-Rewrite-Url",
}

// knows reports whether r brings token, which it does not where there is none. It
// takes the same time whatever r brings instead.
func knows(r *http.Request, token string) bool {
	_, password, _ := r.BasicAuth()
	bearer := r.Header.Get("Authorization")
	if scheme, rest, _ := strings.Cut(bearer, " "); strings.EqualFold(scheme, "Bearer") {
		bearer = rest
	}
	known, want := 0, sha256.Sum256([]byte(token))
	for _, text := range []string{r.Header.Get(tokenHeader), bearer, password} {
		sum := sha256.Sum256([]byte(text))
		known |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	return known == 1 && token != ""
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

// readBody reads the body up to the longest that is taken: nothing is captured for
// a request that is not there. whole is false where there is more of it.
func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request) (body []byte, whole bool, err error) {
	if err := readUntil(w, time.Now().Add(bodyTime)); err != nil {
		return nil, false, err
	}
	// It grows as it comes: a length that was only announced costs no memory.
	most := int64(p.o.MaxBody) + 1
	if body, err = io.ReadAll(io.LimitReader(r.Body, most)); err != nil || int64(len(body)) < min(r.ContentLength, most) {
		return nil, false, refuse(400, "the body did not come whole within %s", bodyTime)
	}
	if err := readUntil(w, time.Time{}); err != nil {
		return nil, false, err
	}
	return body, int64(len(body)) < most, nil
}

// readUntil bounds the reading of a request; the zero time: nothing more is awaited. A
// writer of a test has no deadlines.
func readUntil(w http.ResponseWriter, at time.Time) error {
	err := http.NewResponseController(w).SetReadDeadline(at)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (p *Proxy) tooLong() *refusal {
	return refuse(413, "the body has more than the %d bytes that are taken (proxy.max_body)", p.o.MaxBody)
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
		if !goesOn(name) || up.Sets(name) || slices.ContainsFunc(up.KeyHeaders(), func(key string) bool { return strings.EqualFold(key, name) }) || name == "Content-Type" {
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
	lower := strings.ToLower(name)
	return !slices.Contains(notForwarded[:], name) &&
		!slices.ContainsFunc(credentials[:], func(suffix string) bool { return strings.HasSuffix(lower, suffix) }) &&
		!slices.ContainsFunc(notForwardedPrefixes[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// notForwarded are header fields that do not go on to a provider.
var notForwarded = [...]string{
	"Accept-Encoding", "Authorization", "Connection", "Content-Length", "Cookie", "Date", "Dnt", "Expect", "Forwarded", "From", "Host", "Http2-Settings", "Keep-Alive",
	"Origin", "Pragma", "Cache-Control", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests", "Via", "X-Real-Ip",
	// keys of libraries, new with each attempt; the profile's own is replaced
	"Idempotency-Key", "Idempotence-Key", "X-Idempotency-Key", "Paypal-Request-Id", "X-Request-Id", "X-Correlation-Id", "X-Payout-Idempotency", "Cko-Idempotency-Key",
	// what tracing and libraries add, other with each attempt
	"Traceparent", "Tracestate", "Baggage", "B3", "Sentry-Trace", "Uber-Trace-Id", "X-Cloud-Trace-Context", "Newrelic",
	"X-Stripe-Client-User-Agent", "X-Stripe-Client-Telemetry",
}

// credentials end the names of header fields by which callers show who they are.
var credentials = [...]string{"api-key", "apikey", "auth-token", "access-token", "session-token", "secret", "secret-key", "password"}

var notForwardedPrefixes = [...]string{"Zabor-", "Proxy-", "Sec-", "X-Forwarded-", "X-B3-", "X-Datadog-", "X-Amzn-"}
