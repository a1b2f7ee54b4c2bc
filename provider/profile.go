package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Profile is what must be known about a provider to call it once and to read
// its answers. It is data: the profile `custom` is written in the configuration,
// the built-in ones are files of the same shape.
//
// "Pointer" means a JSON pointer (RFC 6901) into the provider's answer.
type Profile struct {
	BaseURL string        `yaml:"base_url"` // https, or http without a proxy; a path in it is put before each request's
	Headers Headers       `yaml:"headers"`  // sent with every request; secrets belong here
	Timeout time.Duration `yaml:"timeout"`  // of one whole call, from before the capture to the end of the answer; above zero
	Key     Key           `yaml:"key"`

	Reference string  `yaml:"reference"` // pointer to the provider's id of what it did: a string or a number
	Settled   Match   `yaml:"settled"`   // a final yes
	Pending   Match   `yaml:"pending"`   // begun, and no verdict yet
	Declined  Refusal `yaml:"declined"`  // a definite no
	Malformed Refusal `yaml:"malformed"` // a definite no about the request's form, so about its maker and not the customer

	Amount   Amount  `yaml:"amount"`   // compared with the row; zero: not compared
	Currency string  `yaml:"currency"` // pointer, compared with the row; empty: not compared
	Lookup   *Lookup `yaml:"lookup"`   // nil: a doubtful call can only be decided by a person
}

// Key says how the provider takes an idempotency key and what it does with one.
type Key struct {
	Header  string        `yaml:"header"`  // empty: none, or a template puts {{provider_key}} into the request
	Life    time.Duration `yaml:"life"`    // how long the provider surely remembers a key; 0: never rely on it
	Replays Replays       `yaml:"replays"` // what a second request under the same key is answered
}

// Replays is what a provider answers to a second request under the same key.
type Replays string

// What providers do. Only with the first two does a refusal also speak for
// earlier requests under the key.
const (
	ReplaysAll     Replays = "all"     // the first answer, refusals included
	ReplaysState   Replays = "state"   // the present state of what the first made
	ReplaysSuccess Replays = "success" // the first answer if it was a success; else it runs again
	ReplaysNone    Replays = "none"    // nothing that can be relied on, or an error; the same as empty
)

// Match is met when the string, number or boolean at Pointer is one of Values,
// compared byte for byte with how it is written in the answer (true, 0).
type Match struct {
	Pointer string   `yaml:"pointer"`
	Values  []string `yaml:"values"`
}

// Refusal is a definite no: either the Match is met, in an answer 2xx or 4xx, or
// the status is one of Statuses. No other 4xx is a no.
type Refusal struct {
	Pointer  string   `yaml:"pointer"`
	Values   []string `yaml:"values"`
	Statuses []int    `yaml:"statuses"`
}

// Amount is where the answer has the amount: at most one of the pointers.
type Amount struct {
	Minor string `yaml:"minor"` // pointer to minor units, 1999
	Major string `yaml:"major"` // pointer to a decimal, 19.99
}

// Lookup is how a doubtful call is looked up without moving money.
//
// The request itself must carry the filter, by {{provider_key}}, {{order}},
// {{reference}} or {{prepared}}: every hit is taken for an answer about the row.
// The answer must hold all hits: no further pages are fetched.
type Lookup struct {
	Method string `yaml:"method"` // GET; empty means GET
	Path   string `yaml:"path"`   // template; only what comes from the row may be in it
	// Items points to the list of hits; an empty list means absent. Without it
	// the whole answer is the one hit, and 404 means absent.
	Items string `yaml:"items"`
	// AbsentAfter is how long after the last moment at which anything may have
	// been sent "absent" becomes proof: at least the provider's idle limit, its
	// longest late execution and the lag of its look-up together. Above zero.
	AbsentAfter time.Duration `yaml:"absent_after"`
}

// Headers are header fields by name. Their values do not appear when they are
// printed.
type Headers map[string]string

func (h Headers) String() string   { return fmt.Sprint(slices.Sorted(maps.Keys(h))) }
func (h Headers) GoString() string { return "provider.Headers" + h.String() }

// Validate names the first rule that p breaks, its value, and what to write
// instead.
func (p Profile) Validate() error {
	_, err := compile(p)
	return err
}

// compiled is a profile that has been checked.
type compiled struct {
	base      *url.URL
	header    http.Header
	reference pointer
	settled   match
	pending   match
	declined  match
	malformed match
	statuses  map[int]word // declined or malformed
	minor     pointer      // at most one of minor and major
	major     pointer
	currency  pointer
	lookup    *Template // nil: none
	items     pointer
}

type match struct {
	at     pointer
	values []string
}

func (m match) met(document any) bool {
	return len(m.values) > 0 && slices.Contains(m.values, m.at.scalarIn(document))
}

func compile(p Profile) (c compiled, err error) {
	if c.base, err = parseBase(p.BaseURL); err != nil {
		return c, err
	}
	if p.Timeout <= 0 {
		return c, fmt.Errorf("timeout %s: must be above zero, such as 10s", p.Timeout)
	}
	if c.header, err = compileHeader(p.Headers, p.Key.Header); err != nil {
		return c, err
	}
	if err := p.Key.validate(); err != nil {
		return c, err
	}
	if c.reference, err = parsePointer(p.Reference); err != nil {
		return c, fmt.Errorf("reference: %w", err)
	}
	if len(p.Settled.Values) == 0 {
		return c, errors.New("settled: no values; without them no answer is ever a yes")
	}
	if c.settled, err = compileMatch("settled", p.Settled); err != nil {
		return c, err
	}
	if c.pending, err = compileMatch("pending", p.Pending); err != nil {
		return c, err
	}
	if c.declined, err = compileMatch("declined", Match{p.Declined.Pointer, p.Declined.Values}); err != nil {
		return c, err
	}
	if c.malformed, err = compileMatch("malformed", Match{p.Malformed.Pointer, p.Malformed.Values}); err != nil {
		return c, err
	}
	if err := disjoint(p); err != nil {
		return c, err
	}
	c.statuses = map[int]word{}
	for _, r := range [...]struct {
		word
		statuses []int
	}{{declined, p.Declined.Statuses}, {malformed, p.Malformed.Statuses}} {
		for _, status := range r.statuses {
			if !mayRefuse(status) || classOf(status) == answered {
				return c, fmt.Errorf("%s.statuses: %d is not a definite no; only a 4xx other than 401, 407, 408, 409, 421, 423, 424, 425 and 429 can be", r.word, status)
			}
			if other, twice := c.statuses[status]; twice && other != r.word {
				return c, fmt.Errorf("%d is both %s and %s; keep one", status, other, r.word)
			}
			c.statuses[status] = r.word
		}
	}
	if p.Amount.Minor != "" && p.Amount.Major != "" {
		return c, errors.New("amount: minor and major exclude each other; keep the one that the answer has")
	}
	for _, o := range []struct {
		name, text string
		to         *pointer
	}{
		{"amount.minor", p.Amount.Minor, &c.minor},
		{"amount.major", p.Amount.Major, &c.major},
		{"currency", p.Currency, &c.currency},
	} {
		if o.text == "" {
			continue
		}
		if *o.to, err = parsePointer(o.text); err != nil {
			return c, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return c, compileLookup(p.Lookup, &c)
}

func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("base_url is not an address; write https://host/path") // err would show a password
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return nil, fmt.Errorf("base_url %q: write https://host or https://host/path", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("base_url %q holds a user; put credentials into headers", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("base_url %q: a query or fragment belongs into a request's path", u.Redacted())
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u, nil
}

// compileHeader checks that no header changes how a request is sent.
func compileHeader(headers Headers, key string) (http.Header, error) {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {"zabor"}}
	for name, value := range headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !isToken(name):
			return nil, fmt.Errorf("headers: %q is not the name of a header", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, fmt.Errorf("headers: the value of %s has a control character, perhaps a newline at its end", name)
		case slices.Contains(reservedHeaders, canonical):
			return nil, fmt.Errorf("headers: %s is set by the program itself; remove it", name)
		case strings.EqualFold(name, key):
			return nil, fmt.Errorf("headers: %s is also key.header; a fixed idempotency key would make all calls one", name)
		}
		h.Set(name, value)
	}
	return h, nil
}

var reservedHeaders = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade",
	"Expect", "Accept-Encoding", "Proxy-Authorization", "Proxy-Connection",
}

func (k Key) validate() error {
	switch {
	case k.Header != "" && !isToken(k.Header):
		return fmt.Errorf("key.header: %q is not the name of a header", k.Header)
	case slices.Contains(append(reservedHeaders, "Authorization", "Content-Type"), http.CanonicalHeaderKey(k.Header)):
		return fmt.Errorf("key.header: %s has another meaning", k.Header)
	case k.Life < 0:
		return fmt.Errorf("key.life %s: 0 or more", k.Life)
	}
	switch k.Replays {
	case ReplaysAll, ReplaysState, ReplaysSuccess, ReplaysNone, "":
		return nil
	}
	return fmt.Errorf("key.replays %q: all, state, success or none", k.Replays)
}

func compileMatch(name string, m Match) (match, error) {
	if m.Pointer == "" && len(m.Values) == 0 {
		return match{}, nil
	}
	at, err := parsePointer(m.Pointer)
	switch {
	case err != nil:
		return match{}, fmt.Errorf("%s.pointer: %w", name, err)
	case len(m.Values) == 0:
		return match{}, fmt.Errorf("%s: a pointer without values; list what stands at %s", name, m.Pointer)
	case slices.Contains(m.Values, ""):
		return match{}, fmt.Errorf("%s.values: an empty value would be met by an answer that has none", name)
	}
	return match{at, m.Values}, nil
}

// disjoint refuses one value that means two things.
func disjoint(p Profile) error {
	seen := map[[2]string]string{}
	for _, m := range []struct {
		name string
		Match
	}{
		{"settled", p.Settled}, {"pending", p.Pending}, {"declined", Match{p.Declined.Pointer, p.Declined.Values}},
		{"malformed", Match{p.Malformed.Pointer, p.Malformed.Values}},
	} {
		for _, value := range m.Values {
			other, twice := seen[[2]string{m.Pointer, value}]
			if twice && other != m.name {
				return fmt.Errorf("%q at %s is both %s and %s; keep one", value, m.Pointer, other, m.name)
			}
			seen[[2]string{m.Pointer, value}] = m.name
		}
	}
	return nil
}

func compileLookup(l *Lookup, c *compiled) (err error) {
	if l == nil {
		return nil
	}
	if l.Method != "" && l.Method != http.MethodGet {
		return fmt.Errorf("lookup.method %q: only GET is sure not to move money", l.Method)
	}
	if l.AbsentAfter <= 0 {
		return fmt.Errorf("lookup.absent_after %s: above zero; how late may a call still be executed, and how late is it seen by the look-up?", l.AbsentAfter)
	}
	if l.Items != "" {
		if c.items, err = parsePointer(l.Items); err != nil {
			return fmt.Errorf("lookup.items: %w", err)
		}
	}
	if c.lookup, err = newLookupTemplate(l.Path); err != nil {
		return fmt.Errorf("lookup: %w", err)
	}
	return nil
}

func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}
