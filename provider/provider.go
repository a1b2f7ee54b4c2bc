// Package provider calls a payment provider once and says what its answer
// proves. Nothing in it decides what becomes of a row; that is the fence's.
package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"zabor"
)

// Provider is one configured provider account. It may be used concurrently.
type Provider struct {
	compiled
	name        string
	timeout     time.Duration
	absentAfter time.Duration
	keyHeader   string
	storesNo    bool // a refusal is stored under the key
	dialer      *dialer
	lookups     *http.Client
}

// Options are what a profile cannot say, because it is about this host.
type Options struct {
	Proxy *url.URL    // http://[user:password@]host:port; nil: none. The environment is never asked
	TLS   *tls.Config // client certificate, own root certificates; nil: the system's
}

// New checks p and makes the provider that the configuration calls name. No
// connection is made.
func New(name string, p Profile, o Options) (*Provider, error) {
	c, err := compile(p)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	d, err := newDialer(c.base, o)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	pr := &Provider{
		compiled: c, name: name, timeout: p.Timeout, keyHeader: p.Key.Header, dialer: d,
		storesNo: p.Key.Life > 0 && (p.Key.Replays == ReplaysAll || p.Key.Replays == ReplaysState),
		lookups:  lookupClient(d),
	}
	if p.Lookup != nil {
		pr.absentAfter = p.Lookup.AbsentAfter
	}
	return pr, nil
}

// Name is the provider's name in the configuration.
func (p *Provider) Name() string { return p.name }

// Timeout is how long one whole call may take.
func (p *Provider) Timeout() time.Duration { return p.timeout }

// AbsentAfter is how long after the last possible send a look-up that finds
// nothing is proof; 0: there is no look-up.
func (p *Provider) AbsentAfter() time.Duration { return p.absentAfter }

// Call is a [zabor.Call]: it sends row.Request once, with row.ProviderKey in
// the profile's header, and says what the answer proves. It makes no second
// attempt of any kind. The first byte leaves before the deadline of ctx, or none
// does; without a deadline, the profile's time-out is one.
//
// What it proves:
//
//   - no byte left this machine: Unsent;
//   - 2xx: what the profile's settled, pending and declined say of it, if it was
//     read whole, is exactly one JSON value, has a reference (but for a refusal)
//     and the row's amount and currency, as far as the profile points to them;
//   - a 4xx that the profile declares a no: Refused, or Malformed;
//   - other statuses: the table in classOf;
//   - anything else: Unproven.
//
// StoredRefusal is true where the profile says that refusals are stored under
// the key; whoever sends a row again does so within the key's life.
func (p *Provider) Call(ctx context.Context, row zabor.Row) zabor.Outcome {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	request, err := Thaw(row.Request)
	if err != nil {
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "nothing was sent: " + oneLine(err)}
	}
	a, err := p.send(ctx, request, row.ProviderKey)
	var unsent unsentError
	switch {
	case errors.As(err, &unsent):
		return zabor.Outcome{Verdict: zabor.Unsent, Reason: "nothing was sent: " + oneLine(err)}
	case err != nil:
		return zabor.Outcome{Reason: "the request may have been executed, and no whole answer came: " + oneLine(err)}
	}
	return p.judge(a, row)
}
