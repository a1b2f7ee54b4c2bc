// Package provider calls a payment provider once and says what its answer
// proves. Nothing in it decides what becomes of a row; that is the fence's.
package provider

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"zabor"
)

// Provider is one configured provider account. It may be used concurrently.
type Provider struct {
	compiled
	name      string
	timeout   time.Duration
	keep      Keep
	dialer    *dialer
	lookups   *http.Client
	forwards  *http.Client // what may have an effect: a connection for each
	token     token        // of auth.Grant
	proof     atomic.Pointer[proof]
	rotated   func() (Profile, bool)
	listPause time.Duration // before a page of a list is asked for again; doubled each time

	beforeWrite func() // tests: right before the first byte, after the clock was read; nil: nothing
}

// Options are what a profile cannot say, because it is about this host.
type Options struct {
	Proxy *url.URL    // http://[user:password@]host:port; nil: none. The environment is never asked
	TLS   *tls.Config // client certificate, own root certificates; nil: the system's
	Keep  Keep        // how much of an answer is kept
	// BaseURL takes the place of the profile's, for a pretend provider that
	// speaks the profile. Empty: the profile's.
	BaseURL string
	// Rotated is asked before each request whether the credentials are others by
	// now: it gives a profile once for each change, of which Headers and Auth are
	// taken. It returns at once and may be called concurrently; nil: they stay.
	Rotated func() (Profile, bool)
}

// New checks p and makes the provider that the configuration calls name. No
// connection is made.
func New(name string, p Profile, o Options) (*Provider, error) {
	p.BaseURL = cmp.Or(o.BaseURL, p.BaseURL)
	c, err := compile(p)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	d, err := newDialer(c.base, o)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	pr := &Provider{
		compiled: c, name: name, timeout: p.Timeout, dialer: d, keep: o.Keep.orDefault(),
		lookups: newClient(d, p.Timeout), listPause: time.Second,
		forwards: newClient(d, p.Timeout),
		rotated:  o.Rotated,
	}
	pr.proof.Store(pr.prove(p, c.header))
	pr.forwards.Transport.(*http.Transport).DisableKeepAlives = true
	return pr, nil
}

// Name is the provider's name in the configuration.
func (p *Provider) Name() string { return p.name }

// Timeout is how long one whole call may take.
func (p *Provider) Timeout() time.Duration { return p.timeout }

// Replays reports whether some request may be sent again under its key.
func (p *Provider) Replays() bool {
	return slices.ContainsFunc(p.lines, func(l *line) bool { return l.Key.replayFor(p.timeout) > 0 })
}

// Call is a [zabor.Call]: it sends row.Open.Request once, with row.ProviderKey in
// the place that the profile says, and says what the answer proves. It makes no
// second attempt of any kind. The first byte leaves before the deadline of ctx,
// or none does; without a deadline, the profile's time-out is one.
//
// Where row is two-step and has no Prepared id yet, row.Open.Request is the harmless
// first request: it goes under row.Open.PrepareKey, and a 2xx with an id that is
// neither a final yes nor a no is Prepared. What else comes is judged like the
// answer to the request that moves the money.
//
// What it proves:
//
//   - no line is about the request, or it lacks what its line demands, and it was not
//     sent: Malformed;
//   - no byte left this machine: Unsent;
//   - 2xx: what the profile's settled, pending and declined say of it, if it was
//     read whole, is exactly one JSON value, has a reference (but for a refusal)
//     and the row's amount and currency, as far as the profile points to them;
//   - a 4xx that the profile declares a no: Refused, or Malformed;
//   - what the profile's rules call transient: TurnedAway; earlier: Unproven;
//   - another order or key in what the answer repeats: Unproven;
//   - other statuses: the table in classOf;
//   - anything else: Unproven.
//
// StoredRefusal is true where the profile says that refusals are stored under
// the key; whoever sends a row again does so within the key's life.
func (p *Provider) Call(ctx context.Context, row zabor.Row) zabor.Outcome {
	o, _ := p.Exchange(ctx, row)
	return o
}

// Reply is an answer of the provider's as it was received.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Exchange is Call for whoever wants the answer itself too; nil: none was read
// whole.
func (p *Provider) Exchange(ctx context.Context, row zabor.Row) (zabor.Outcome, *Reply) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	request, err := Thaw(row.Open.Request)
	if err != nil {
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "nothing was sent: " + oneLine(err)}, nil
	}
	l, err := p.lineFor(request.Open())
	if err != nil {
		return zabor.Outcome{Verdict: zabor.Malformed, Reason: "nothing was sent: " + oneLine(err)}, nil
	}
	preparing := row.TwoStep() && row.Prepared == ""
	key := row.ProviderKey
	if preparing {
		key = row.Open.PrepareKey
	}
	if request, err = p.fit(l, request, row, key); err != nil {
		return zabor.Outcome{Verdict: zabor.Malformed, Reason: "nothing was sent: " + oneLine(err)}, nil
	}
	begun := time.Now()
	a, err := p.send(ctx, l, request, key)
	if err == nil && a.status == http.StatusUnauthorized {
		p.forgetToken()
	}
	var unsent unsentError
	switch {
	case errors.As(err, &unsent):
		why, local := p.ownFault(ctx, begun, err)
		local = local && row.Prepared == "" // of two requests the first may have taken the time
		return zabor.Outcome{Verdict: zabor.Unsent, Local: local, Reason: "nothing was sent: " + why + oneLine(err)}, nil
	case err != nil:
		return zabor.Outcome{Reason: "the request may have been executed, and no whole answer came: " + oneLine(err)}, nil
	}
	return p.judge(l, a, row, preparing), &Reply{a.status, a.header, a.body}
}

// fit is r with the key in its body, where the provider takes it there, and signed.
// An error is about the form of r, which no second try would change.
func (p *Provider) fit(l *line, r Request, row zabor.Row, key string) (Request, error) {
	if err := l.sameMoneyAsked(r.Open(), row); err != nil {
		return r, err
	}
	var err error
	if l.Key.Field != "" {
		if r.Body, err = withField(r.Body, l.Key.Field, key); err != nil {
			return r, fmt.Errorf("the provider takes its idempotency key in the request: %w", err)
		}
	}
	return p.signed(r)
}

// signed is r with its signature, where the provider wants one.
func (p *Provider) signed(r Request) (_ Request, err error) {
	auth := p.credentials().auth
	if auth.Fields != nil {
		return auth.Fields.add(r)
	}
	signature := auth.Signature
	if signature == nil {
		return r, nil
	}
	if r.ContentType == "" {
		r.ContentType = "application/json"
	}
	r.Body, err = signature.sign(r.Body)
	return r, err
}

// sameMoneyAsked refuses a request whose amount is not the row's: it would charge a
// hundred times too much or too little where the provider's minor units are not those
// of ISO 4217. Without a table it is not known where it stands: the provider's number
// must then be somewhere in a request that has units of its own.
func (l *line) sameMoneyAsked(r Opened, row zabor.Row) error {
	if row.Amount.Currency == "" {
		return nil
	}
	decimals, err := l.units.decimals(row.Amount.Currency)
	if err != nil {
		return err
	}
	if l.asked != nil {
		document := r.values()
		text, code := l.asked.scalarIn(document), strings.ToUpper(l.askedIn.scalarIn(document))
		if code != "" && code != row.Amount.Currency {
			return fmt.Errorf("the request is in %q and not in %s", code, row.Amount.Currency)
		}
		if text == "" {
			return nil
		}
		if m, err := l.money(text, row.Amount.Currency); err != nil || m != row.Amount {
			return fmt.Errorf("the request asks for %q, which is not %s %s as the provider counts; write {{minor}} or {{major}}", text, Major(row.Amount), row.Amount.Currency)
		}
		return nil
	}
	if iso, _ := Digits(row.Amount.Currency); decimals == iso || l.minor == nil || l.path != nil || row.Prepared != "" {
		return nil
	}
	minor, err := l.units.minor(row.Amount)
	if err != nil || bytes.Contains(r.Body, strconv.AppendInt(nil, minor, 10)) {
		return err
	}
	return fmt.Errorf("%s %s is %d in the provider's minor units, and the request does not say so; write {{minor}}", Major(row.Amount), row.Amount.Currency, minor)
}
