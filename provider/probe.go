package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"zabor"
)

// What [Provider.Probe] answers.
var (
	// ErrNoProbe: the profile has no request that moves nothing and needs no id.
	ErrNoProbe = errors.New("its profile has no request that moves nothing and needs no payment's id")
	// ErrUnreached: no answer came.
	ErrUnreached = errors.New("the provider was not reached")
)

// probeKey is an idempotency key that no call has.
const probeKey = "zaborprobezaborprobezabora"

// Probe asks the provider whether it takes the account's credentials, by requests
// that move nothing: for an access token, where it wants one, and the look-up of a
// key that no call has had. A nil error says that it takes them. Any error that is
// neither [ErrNoProbe] nor [ErrUnreached] says what it answered instead.
func (p *Provider) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if p.auth.Grant != nil {
		if _, err := p.bearer(ctx); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(p.lines, func(l *line) bool {
		return l.find != nil && l.find.byCarried != nil && !names(l.Lookup.Path, "target")
	})
	if i < 0 {
		if p.auth.Grant != nil {
			return nil
		}
		return ErrNoProbe
	}
	l := p.lines[i]
	code := l.units.some()
	row := zabor.Row{Key: zabor.Key{Order: "zabor-probe", Step: "probe"}, ProviderKey: probeKey, Amount: zabor.Money{Minor: 100000, Currency: code}}
	a, err := p.look(ctx, l, way{l.find.byCarried, l.Lookup.text(l.Lookup.Path), false, l.hit}, nil, row)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", ErrUnreached, oneLine(err))
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired:
		return fmt.Errorf("it answered the look-up with %d %s: are account and secret right, of the same live or test system, and allowed to read?", a.status, http.StatusText(a.status))
	case a.status == http.StatusNotFound && l.find.items == nil:
		return nil
	case a.status/100 != 2:
		return fmt.Errorf("it answered the look-up with %d %s: every doubtful call would be left to a person", a.status, http.StatusText(a.status))
	}
	document, err := decodeJSON(a.body)
	if err != nil {
		return fmt.Errorf("the look-up's answer is not one JSON value: %s", oneLine(err))
	}
	if l.find.items != nil {
		list, _ := l.find.items.in(document)
		if _, ok := list.([]any); !ok {
			return errors.New("the look-up's answer has no list where lookul.find.items points to")
		}
	}
	return nil
}
