package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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
	if p.lookup == nil {
		if p.auth.Grant != nil {
			return nil
		}
		return ErrNoProbe
	}
	r, err := p.lookup.Render(Vars{Order: "zabor-probe", Step: "probe", ProviderKey: probeKey, Money: zabor.Money{Minor: 1, Currency: "EUR"}})
	if err != nil {
		return ErrNoProbe
	}
	if r, err = p.signed(r); err != nil {
		return err
	}
	req, err := p.newRequest(ctx, r)
	if err != nil {
		return err
	}
	resp, err := p.lookups.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrUnreached, oneLine(err))
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", ErrUnreached, oneLine(err))
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired:
		return fmt.Errorf("it answered the look-up with %d %s: are account and secret right, of the same live or test system, and allowed to read?", a.status, http.StatusText(a.status))
	case a.status == http.StatusNotFound && p.items == nil:
		return nil
	case a.status/100 != 2:
		return fmt.Errorf("it answered the look-up with %d %s: every doubtful call would be left to a person", a.status, http.StatusText(a.status))
	}
	document, err := decodeJSON(a.body)
	if err != nil {
		return fmt.Errorf("the look-up's answer is not one JSON value: %s", oneLine(err))
	}
	if p.items != nil {
		list, _ := p.items.in(document)
		if _, ok := list.([]any); !ok {
			return errors.New("the look-up's answer has no list where lookup.items points to")
		}
	}
	return nil
}
