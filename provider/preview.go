package provider

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"zabor"
)

// Preview is a request as it would go out, for people: nothing in it is secret.
type Preview struct {
	Method string
	URL    string
	Header []zabor.HeaderField // by name
	Body   string
}

// hidden stands for a secret.
const hidden = "***"

// plainHeaders are header fields of a profile that are no secrets; the values of
// all others are hidden.
var plainHeaders = []string{"Accept", "Content-Type", "User-Agent", "Prefer", "Stripe-Version", "Square-Version", "Gocardless-Version", "Api-Version"}

// Preview is the request of row as [Provider.Call] would send it next. Nothing is
// sent, and no access token is asked for. The values of header fields that hold,
// or may hold, a secret are hidden, as are the account's secrets wherever they
// stand, and a card's number and code are masked. The error says why Call would
// send nothing.
func (p *Provider) Preview(row zabor.Row) (Preview, error) {
	r, err := Thaw(row.Open.Request)
	if err != nil {
		return Preview{}, err
	}
	key := row.ProviderKey
	if row.TwoStep() && row.Prepared == "" {
		key = row.Open.PrepareKey
	}
	l, err := p.lineFor(r.Open())
	if err != nil {
		return Preview{}, err
	}
	if r, err = p.fit(l, r, row, key); err != nil {
		return Preview{}, err
	}
	r, _ = r.Open().WithoutCard()
	shown := Preview{Method: r.Method, URL: p.hide(p.base.String() + r.Path), Body: p.hide(string(r.Body))}
	add := func(name, value string) {
		shown.Header = append(shown.Header, zabor.HeaderField{Name: name, Value: value})
	}
	if r.ContentType != "" {
		add("Content-Type", r.ContentType)
	}
	for _, field := range r.Header {
		if _, own := p.header[field.Name]; !own {
			add(field.Name, p.hide(field.Value))
		}
	}
	for name := range l.header {
		add(name, l.header.Get(name))
	}
	for name, values := range p.header {
		for _, value := range values {
			if !slices.Contains(plainHeaders, name) {
				value = hidden
			}
			add(name, value)
		}
	}
	if p.auth.Grant != nil {
		add("Authorization", "Bearer "+hidden)
	}
	if l.Key.Header != "" {
		if l.Key.UUID {
			if key, err = zabor.UUIDFromProviderKey(key); err != nil {
				return Preview{}, err
			}
		}
		add(l.Key.Header, key)
	}
	slices.SortStableFunc(shown.Header, func(a, b zabor.HeaderField) int { return cmp.Compare(a.Name, b.Name) })
	return shown, nil
}

// hide is text without what authenticates the account: secrets, the digest that
// is made of one, and values of header fields that may be some, however they are
// escaped.
func (p *Provider) hide(text string) string {
	var secrets []string
	for name, values := range p.header {
		if !slices.Contains(plainHeaders, name) {
			for _, value := range values {
				_, credential, two := strings.Cut(value, " ") // Bearer …
				secrets = append(secrets, value)
				if two {
					secrets = append(secrets, credential)
				}
			}
		}
	}
	if p.auth.Grant != nil {
		secrets = append(secrets, p.auth.Grant.Secret)
	}
	if f := p.auth.Fields; f != nil {
		secrets = append(secrets, f.Secret)
	}
	if s := p.auth.Signature; s != nil {
		secrets = append(secrets, s.Secret)
		if document, err := decodeJSON([]byte(text)); err == nil {
			if object, ok := document.(map[string]any); ok {
				if digest, ok := object[s.Name].(string); ok {
					secrets = append(secrets, digest)
				}
			}
		}
	}
	for _, secret := range secrets {
		if len(secret) < 4 {
			continue // it would hide what is none
		}
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			text = strings.ReplaceAll(text, form, hidden)
		}
	}
	return text
}
