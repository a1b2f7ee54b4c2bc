package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"zabor"
)

// What a door needs that takes whole requests from outside instead of making
// them.

// Forward sends a request that has no fence, and gives the answer as it comes;
// the caller closes its body. Behind r.Body comes what is in rest, if that is not
// nil; length is that of both, or below zero where nobody knows. The profile's own
// header fields take the place of the request's. A GET or HEAD without a body may
// share a connection; anything else has one of its own, so that net/http does not
// send it again by itself. No redirect is followed.
func (p *Provider) Forward(ctx context.Context, r Request, rest io.Reader, length int64) (*http.Response, error) {
	client := p.forwards
	if len(r.Body) == 0 && rest == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		client = p.lookups
	}
	auth := p.credentials().auth
	switch signed := auth.Signature != nil || auth.Fields != nil; {
	case signed && rest != nil:
		return nil, errors.New("a request that the provider wants signed must come whole")
	case signed && len(r.Body) > 0:
		var err error
		if r, err = p.signed(r); err != nil {
			return nil, err
		}
	}
	req, err := p.newRequest(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	if rest != nil {
		req.Body, req.ContentLength = io.NopCloser(io.MultiReader(bytes.NewReader(r.Body), rest)), length
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		p.forgetToken()
	}
	return resp, err
}

// MaxReply is how long the body of an answer may be, in bytes, to be judged.
const MaxReply = maxAnswer

// Judge is what a whole answer to row's call proves, as [Provider.Call] says.
func (p *Provider) Judge(r Reply, row zabor.Row) zabor.Outcome {
	lines, sent, err := p.linesOfRow(row)
	if err == nil && sent == nil && len(p.lines) > 1 {
		err = errNotKept
	}
	if err != nil {
		return zabor.Outcome{Reason: oneLine(err)}
	}
	return p.judge(lines[0], answer{r.Status, r.Header, r.Body}, row, row.TwoStep() && row.Prepared == "")
}

// ErrNoObject says that what a row made cannot be got from the provider: its
// profile has no such request, or the provider does not know it there.
var ErrNoObject = errors.New("the provider has no request for it")

// Object gets what row made: by its reference, or else out of what the look-up
// finds. It is [ErrNoObject] where that can never be had; any other error may
// pass.
func (p *Provider) Object(ctx context.Context, row zabor.Row) (*Reply, error) {
	l, w := p.objectOf(row)
	if w.path == nil {
		return nil, ErrNoObject
	}
	var sent *Opened // a closed row has none
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	a, err := p.look(ctx, l, w, sent, row)
	switch {
	case err != nil:
		return nil, err
	case a.status == http.StatusNotFound:
		return nil, ErrNoObject
	case a.status/100 != 2:
		return nil, fmt.Errorf("the provider answered %d %s", a.status, http.StatusText(a.status))
	}
	document, err := decodeAnswer(a.body)
	if err != nil {
		return nil, fmt.Errorf("the answer is not one JSON value: %w", err)
	}
	is := func(object any) bool { return w.id(w.says(0, nil, object).reference, object) == row.Reference }
	if l.find.items == nil || w.byID {
		if !is(document) {
			return nil, ErrNoObject
		}
		return &Reply{a.status, a.header, a.body}, nil
	}
	list, _ := l.find.items.in(document)
	hits, _ := list.([]any)
	for _, hit := range hits {
		if !is(hit) {
			continue
		}
		var body bytes.Buffer
		e := json.NewEncoder(&body)
		e.SetEscapeHTML(false)
		err := e.Encode(hit)
		return &Reply{a.status, a.header, bytes.TrimSuffix(body.Bytes(), []byte("\n"))}, err
	}
	return nil, ErrNoObject
}

// objectOf is how what row made is got: by its reference, where a line whose ids begin
// so has such a request; else by what its call carried.
func (p *Provider) objectOf(row zabor.Row) (*line, way) {
	var byCarried *line
	for _, l := range p.lines {
		if l.find == nil || row.Reference == "" || !strings.HasPrefix(row.Reference, l.prefix) {
			continue
		}
		if l.find.getPending != nil && !names(l.Lookup.Reference, "target") {
			return l, way{l.find.getPending, l.Lookup.text(l.Lookup.Reference), true, l.object}
		}
		if byCarried == nil && l.find.byCarried != nil && !names(l.Lookup.Path, "target") {
			byCarried = l
		}
	}
	if byCarried == nil {
		return nil, way{}
	}
	return byCarried, way{byCarried.find.byCarried, byCarried.Lookup.text(byCarried.Lookup.Path), false, byCarried.hit}
}

// KeyHeaders are the headers in which the provider takes idempotency keys.
func (p *Provider) KeyHeaders() []string {
	var names []string
	for _, l := range p.lines {
		if l.Key.Header != "" && !slices.Contains(names, l.Key.Header) {
			names = append(names, l.Key.Header)
		}
	}
	return names
}

// Travels reports whether every request under k carries the row's key without the help
// of whoever made it.
func (k Key) Travels() bool { return k.Header != "" || k.Field != "" }

// Opened is a request whose body was read once, for all that want to look into it.
type Opened struct {
	Request
	isJSON   bool
	document any   // the body, where it is JSON; of a property that is there twice the last value
	twice    error // why two programs could read it as two; nil: they cannot
}

// Open reads r's body, which must not change afterwards.
func (r Request) Open() Opened {
	o := Opened{Request: r}
	if len(r.Body) == 0 {
		return o
	}
	document, err := decodeJSON(r.Body)
	if err != nil {
		return o
	}
	o.isJSON, o.document = true, document
	if properties(document) != colons(r.Body) {
		o.twice = distinct(r.Body)
	}
	return o
}

// CheckReading is an error where two programs could read the body as two: JSON of
// which an object has a property twice.
func (r Opened) CheckReading() error { return r.twice }

// Sets reports whether the profile itself sets the header field of that name, such
// as one with credentials.
func (p *Provider) Sets(name string) bool {
	name = http.CanonicalHeaderKey(name)
	_, ok := p.header[name]
	return ok || p.auth.Grant != nil && name == "Authorization"
}

// TakeKey is r without the idempotency key that its maker has put into its body,
// and that key; [Provider.Call] puts the row's own there. The key is empty where
// the profile knows none in a body, or there is none.
func (p *Provider) TakeKey(r Request) (Request, string, error) {
	field := ""
	if l, err := p.lineFor(r.Open()); err == nil { // else it will be refused for that
		field = l.Key.Field
	}
	if field == "" {
		return r, "", nil
	}
	body, key, err := withoutField(r.Body, field)
	if err != nil {
		return r, "", fmt.Errorf("the provider takes its idempotency key as %s in a JSON object: %w", field, err)
	}
	r.Body = body
	return r, key, nil
}

// withoutField is a JSON object without its property of the given name, and what
// that was. Of the other properties no byte is changed.
func withoutField(body []byte, name string) (rest []byte, value string, err error) {
	if _, err := decodeJSON(body); err != nil {
		return nil, "", err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, "", errors.New("the body is no JSON object")
	}
	rest = []byte("{")
	there := false
	for d.More() {
		before := d.InputOffset()
		token, err := d.Token()
		if err != nil {
			return nil, "", err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, "", err
		}
		if token == name {
			if there {
				return nil, "", fmt.Errorf("%s is there twice", name)
			}
			there = true
			if err := json.Unmarshal(raw, &value); err != nil {
				return nil, "", fmt.Errorf("%s is no text", name)
			}
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(rest, bytes.TrimLeft(body[before:d.InputOffset()], ", \t\r\n")...)
	}
	return append(rest, '}'), value, nil
}

// Money is the amount that r itself names where its line says, or where the answers
// have theirs, in JSON or in a form; zero where it does not name both amount and
// currency there, or not so that they can be read exactly.
func (p *Provider) Money(r Opened) zabor.Money {
	document := r.values()
	l, err := p.lineFor(r)
	if err != nil || document == nil || l.askedIn == nil {
		return zabor.Money{}
	}
	at := l.asked
	for _, otherwise := range []pointer{l.minor, l.major} {
		if at == nil {
			at = otherwise
		}
	}
	m, err := l.money(at.scalarIn(document), strings.ToUpper(l.askedIn.scalarIn(document)))
	if err != nil || at == nil {
		return zabor.Money{}
	}
	return m
}

// mostNested is how deep what a field of a form is called may lead, to be looked at:
// deeper than a profile's pointers.
const mostNested = 32

var brackets = strings.NewReplacer("[", "\x00", "]", "")

// values are the body as a JSON document; nil: it is none. Of a form, a[b] is
// property b of a.
func (r Opened) values() any {
	kind, _ := mediaType(r.ContentType)
	if kind == "" {
		return nil
	}
	if kind != formType {
		return r.document
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil {
		return nil
	}
	return nested(form)
}

// nested is a form's fields with a[b] as property b of a.
func nested[V string | []string](form map[string]V) map[string]any {
	document := map[string]any{}
	for name, values := range form {
		if strings.Count(name, "[") > mostNested {
			continue
		}
		at := document
		path := strings.Split(brackets.Replace(name), "\x00")
		for _, part := range path[:len(path)-1] {
			inner, ok := at[part].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[part] = inner
			}
			at = inner
		}
		last := path[len(path)-1]
		one, single := any(values).(string)
		if many, ok := any(values).([]string); ok && len(many) == 1 {
			one, single = many[0], true
		}
		if _, twice := at[last]; twice || !single {
			at[last] = nil // not one value
			continue
		}
		at[last] = one
	}
	return document
}
