package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"zabor"
	"zabor/step"
)

// name is what a request says of its key: with the scope of the step's own, not
// of the installation.
type name struct{ scope, order, step string }

// ownHeaders are the header fields by which a caller speaks to the proxy.
var ownHeaders = [...]string{"Zabor-Order", "Zabor-Step", "Zabor-Scope", tokenHeader}

const tokenHeader = "Zabor-Token"

// nameOf is what a request's own header fields or its idempotency key name; ok is
// false where neither does. Both may, if they name the same.
func nameOf(h http.Header, idempotencyKey string) (n name, ok bool, err error) {
	if err := checkOwn(h); err != nil {
		return n, false, err
	}
	byHeader, inHeader, err := nameInHeader(h)
	if err != nil {
		return n, false, err
	}
	byKey, inKey, err := nameInKey(idempotencyKey)
	switch {
	case err != nil:
		return n, false, err
	case inHeader && inKey && byHeader != byKey:
		return n, false, refuse(400, "the Zabor header fields and the idempotency key name different keys")
	case inKey:
		return byKey, true, nil
	}
	return byHeader, inHeader, nil
}

// checkOwn refuses header fields that begin like the proxy's own and are none: a
// misspelt scope must not name another key.
func checkOwn(h http.Header) error {
	for field := range h {
		if !strings.HasPrefix(field, "Zabor-") {
			continue
		}
		known := false
		for _, own := range ownHeaders {
			known = known || field == own
		}
		if !known {
			return refuse(400, "there is no header field %s; there are Zabor-Order, Zabor-Step, Zabor-Scope and %s", visible(field), tokenHeader)
		}
	}
	return nil
}

func nameInHeader(h http.Header) (n name, ok bool, err error) {
	for _, part := range []struct {
		field string
		to    *string
	}{{"Zabor-Order", &n.order}, {"Zabor-Step", &n.step}, {"Zabor-Scope", &n.scope}} {
		values := h[part.field]
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 {
			return n, false, refuse(400, "%s is there more than once", part.field)
		}
		if *part.to, err = decode(part.field, values[0]); err != nil {
			return n, false, err
		}
		ok = true
	}
	switch {
	case !ok:
		return n, false, nil
	case n.order == "":
		return n, false, refuse(400, "Zabor-Order is missing")
	case n.step == "":
		return n, false, refuse(400, "Zabor-Step is missing")
	}
	return n, true, nil
}

// keyPrefix begins an idempotency key that names a fence.
const keyPrefix = "zabor:"

// nameInKey reads zabor:ORDER:STEP or zabor:SCOPE:ORDER:STEP, bare or in double
// quotes, as a structured field has it.
func nameInKey(key string) (n name, ok bool, err error) {
	if len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	rest, ok := strings.CutPrefix(key, keyPrefix)
	if !ok {
		return n, false, nil
	}
	parts := strings.Split(rest, ":")
	to := []*string{&n.order, &n.step}
	switch len(parts) {
	case 2:
	case 3:
		to = []*string{&n.scope, &n.order, &n.step}
	default:
		return n, false, refuse(400, "the idempotency key must be zabor:ORDER:STEP or zabor:SCOPE:ORDER:STEP, with %%3A for a colon within a part")
	}
	for i, part := range parts {
		if *to[i], err = decode("the idempotency key", part); err != nil {
			return n, false, err
		}
		if *to[i] == "" {
			return n, false, refuse(400, "a part of the idempotency key is empty")
		}
	}
	return n, true, nil
}

// decode is a percent-encoded text. Servers trim blanks and some recode what is
// not ASCII, so that raw ones would name another order here than in the queue.
func decode(what, raw string) (string, error) {
	if raw == "" {
		return "", refuse(400, "%s is empty", what)
	}
	if !isVisible(raw) {
		return "", refuse(400, "%s has a blank or a sign that is not ASCII: percent-encode it (rawurlencode, encodeURIComponent, url.PathEscape)", what)
	}
	plain, err := url.PathUnescape(raw)
	if err != nil {
		return "", refuse(400, "%s is not percent-encoded as it should be: a percent sign is %%25", what)
	}
	return plain, nil
}

// key is n below the installation's scope.
func (n name) key(installation string) (zabor.Key, error) {
	k := zabor.Key{Scope: step.JoinScope(installation, n.scope), Order: n.order, Step: n.step}
	if err := k.Validate(); err != nil {
		return k, refuse(400, "%s", visible(err.Error()))
	}
	return k, nil
}
