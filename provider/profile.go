package provider

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Profile is what must be known about a provider to call it once and to read
// its answers. It is data: the profile `custom` is written in the configuration,
// the built-in ones are files of the same shape.
//
// "Pointer" means a JSON pointer (RFC 6901) into the provider's answer.
type Profile struct {
	BaseURL string        `yaml:"base_url"` // https, or http without a proxy; a path in it is put before each request's
	Headers Headers       `yaml:"headers"`  // sent with every request; secrets belong here
	Auth    Auth          `yaml:"-"`        // of a built-in profile whose provider wants more than headers
	Account string        `yaml:"-"`        // whose secret alone the provider takes; empty: Headers alone say whose account it is
	Timeout time.Duration `yaml:"timeout"`  // of one whole call, from before the capture to the end of the answer; above zero
	Key     Key           `yaml:"key"`

	Reference string  `yaml:"reference"` // pointer to the provider's id of what it did: a string or a number
	Settled   Match   `yaml:"settled"`   // a final yes
	Pending   Match   `yaml:"pending"`   // begun, and no verdict yet
	Declined  Refusal `yaml:"declined"`  // a definite no
	Malformed Refusal `yaml:"malformed"` // a definite no about the request's form, so about its maker and not the customer

	Rules     []Rule    `yaml:"rules"`     // before the four lists above; the first one that is met decides
	Prepare   Prepare   `yaml:"prepare"`   // of two-step calls
	Echo      Echo      `yaml:"echo"`      // what of the request an answer repeats
	Amount    Amount    `yaml:"amount"`    // compared with the row; zero: not compared
	Currency  string    `yaml:"currency"`  // pointer, compared with the row; empty: not compared
	Exponents Exponents `yaml:"exponents"` // decimals of minor units where they are not those of ISO 4217
	Lookup    *Lookup   `yaml:"lookup"`    // nil: a doubtful call can only be decided by a person
	List      *List     `yaml:"list"`      // nil: what the provider did cannot be listed

	// HoldAfter and PendingFor are the provider's own horizons: how long doubt and
	// the lack of a verdict are nothing unusual there. The longer of it and the
	// configuration's counts. 0: none.
	HoldAfter  time.Duration `yaml:"hold_after"`
	PendingFor time.Duration `yaml:"pending_for"`

	// RetryAfter points to how many milliseconds an answer asks to be left alone, where
	// it is not the header Retry-After that does. Empty: none does.
	RetryAfter string `yaml:"retry_after"`

	Harmless []Harmless `yaml:"harmless"` // requests that move no money by themselves; empty: none is known

	// Unread are paths, without a query and with * for a segment, of requests whose
	// answers have another shape than the profile's: each call would end with a person.
	Unread []string `yaml:"unread"`
}

// Key says how the provider takes an idempotency key and what it does with one.
type Key struct {
	Header  string        `yaml:"header"`  // empty: none, or a template puts {{provider_key}} into the request
	Field   string        `yaml:"field"`   // property of the request's JSON object that holds the key; put in where it is missing. Empty: none
	UUID    bool          `yaml:"uuid"`    // Header has the key as a UUID
	Life    time.Duration `yaml:"life"`    // how long the provider surely remembers a key; 0: never rely on it
	Replays Replays       `yaml:"replays"` // what a second request under the same key is answered
	Mark    string        `yaml:"mark"`    // header that is "true" in an answer that is given again; empty: none
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

// Rule says what an answer means that meets all of its conditions.
type Rule struct {
	// Means is one of
	//
	//   - settled, pending, declined, malformed: as the lists of those names;
	//   - unbegun: there is something at the provider that has moved nothing, and
	//     by itself will not;
	//   - transient: nothing was done, and the same request may be sent later;
	//   - unclear: it proves nothing, whatever else is in it;
	//   - earlier: the answer is about another request than this one, under the
	//     same key or for the same order. It proves nothing, whatever else is in it.
	Means    string              `yaml:"means"`
	Statuses []int               `yaml:"statuses"` // empty: any
	Header   map[string]string   `yaml:"header"`   // all of these
	Values   map[string][]string `yaml:"values"`   // at each pointer one of the values
	// Reference points to the provider's id in an answer of this kind, where it
	// is not at the profile's. With means: pending such an answer may be a 409.
	Reference string `yaml:"reference"`
}

// Prepare is what the answer to the harmless first request of a two-step call
// has.
type Prepare struct {
	Reference string `yaml:"reference"` // pointer to the id; empty: the profile's
}

// Echo is where an answer, or a hit of a look-up, repeats what the request said.
// What is there and is not the row's makes it an answer about something else; it
// then proves nothing. Where a first send is answered by something that the
// provider marks as given again, it must be there.
type Echo struct {
	Key   string `yaml:"key"`   // pointer to {{provider_key}}
	Order string `yaml:"order"` // pointer to {{order}}
}

// Exponents are numbers of decimals by currency.
type Exponents map[string]int

// Amount is where the answer has the amount: at most one of the pointers.
type Amount struct {
	Minor string `yaml:"minor"` // pointer to minor units, 1999
	Major string `yaml:"major"` // pointer to a decimal, 19.99
	// Optional: an answer without amount and currency is as good as one with.
	Optional bool `yaml:"optional"`
}

// Lookup is how a doubtful call is looked up without moving money.
//
// Without Match the look-up itself must carry the filter, by {{provider_key}},
// {{reference}} or {{prepared}}: every hit is taken for an answer about the row. One by
// {{order}} alone also finds what another part of the step, or a try before, has made:
// it needs Echo.Key, and a hit with another key there is about another request. No
// further pages are fetched: where More says that there are some, absence is no proof.
type Lookup struct {
	Method string `yaml:"method"` // GET; empty means GET
	// Body makes the look-up a POST with this JSON object, of templates as in Path.
	// A built-in profile alone may have one: that a POST moves no money is
	// something to know about a provider. It goes with exactly one of Path,
	// Prepared and Reference.
	Body map[string]any `yaml:"body"`
	// Path finds a call by what its request carried. It is a template; only what
	// comes from the row may be in it. Empty: a call whose id is not known
	// cannot be looked up.
	Path string `yaml:"path"`
	// Carried points to where a request's body must hold the provider key for Path
	// to find what it makes, so that absence of a request without it means nothing:
	// /metadata/zabor_key, which in a form is metadata[zabor_key]. Empty: Path finds
	// every request.
	Carried string `yaml:"carried"`
	// Elsewhere points to where a request's body says that what it makes is not, or may
	// not be, where Path looks; silence about one that has something there means nothing.
	Elsewhere string `yaml:"elsewhere"`
	// More points to what an answer has, other than false, where there are further
	// pages. Empty: nothing says so.
	More string `yaml:"more"`
	// Match points to where a hit repeats the provider key: Path gets the newest
	// there is, whoever's, and a hit without the key there is about another
	// request. Absence is then proof only where Made says that the list reaches
	// back to before the first send, or where it has fewer hits than Full and no More.
	Match string `yaml:"match"`
	Made  string `yaml:"made"` // pointer to when a hit was made, as in RFC 3339; with Match
	Full  int    `yaml:"full"` // hits of a full list; with Match
	// As is the name under which an answer to a call has what a look-up gives
	// plainly: the pointers of the profile then fit both. Empty: they have the same
	// shape.
	As string `yaml:"as"`
	// Paths are the paths of the requests that Path finds, without a query;
	// absence of another one means nothing. Empty: of all.
	Paths []string `yaml:"paths"`
	// Prepared gets the object of a two-step call by its {{prepared}} id, and is
	// taken instead of Path where there is one. The answer is the one hit; 404 is
	// an error, since the object is there.
	Prepared string `yaml:"prepared"`
	// Reference gets the object of a pending row by its {{reference}}, likewise.
	Reference string `yaml:"reference"`
	// References are, by what a reference begins with, the requests that get such an
	// object, in place of Reference. None of the beginnings is that of another.
	References map[string]string `yaml:"references"`
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

func (h Headers) String() string { return fmt.Sprint(slices.Sorted(maps.Keys(h))) }

// GoString keeps the values out of %#v.
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
	auth      Auth
	reference pointer
	settled   match
	pending   match
	declined  match
	malformed match
	statuses  map[int]word // declined or malformed
	minor     pointer      // at most one of minor and major
	major     pointer
	currency  pointer
	rules     []rule
	prepared  pointer // id in the answer to a first request of two
	echoKey   pointer
	echoOrder pointer
	optional  bool      // Amount.Optional
	later     pointer   // RetryAfter; nil: none
	exponents Exponents // may be nil

	look        bool      // there is a look-up
	lookup      *Template // Lookup.Path; nil: none
	getPrepared *Template // nil: none
	getPending  *Template // nil: none
	getByPrefix map[string]*Template
	byKey       bool     // lookup filters by {{provider_key}}
	byOrder     bool     // lookup filters by {{order}}
	byKeyAt     bool     // lookup filters by {{order}} alone: a hit's key says whether it is the row's
	carried     pointer  // nil: nothing must be in the request
	paths       []string // empty: all
	items       pointer
	elsewhere   pointer // nil: nothing in a request hides what it makes
	more        pointer // nil: nothing says that there is more
	match       pointer // nil: every hit is about the row
	made        pointer
	full        int
	as          string

	list *listing // nil: there is none
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
	if c.auth = p.Auth; c.auth.validate() != nil {
		return c, c.auth.validate()
	}
	if p.HoldAfter < 0 || p.PendingFor < 0 {
		return c, fmt.Errorf("hold_after %s, pending_for %s: 0 or more", p.HoldAfter, p.PendingFor)
	}
	for i, h := range p.Harmless {
		if err := CheckPath(h.Path); err != nil {
			return c, fmt.Errorf("harmless.%d: %w", i, err)
		}
	}
	for i, pattern := range p.Unread {
		if _, err := path.Match(pattern, "/"); err != nil || !strings.HasPrefix(pattern, "/") {
			return c, fmt.Errorf("unread.%d: %q is no pattern of a path", i, pattern)
		}
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
		{"prepare.reference", cmp.Or(p.Prepare.Reference, p.Reference), &c.prepared},
		{"retry_after", p.RetryAfter, &c.later},
		{"echo.key", p.Echo.Key, &c.echoKey},
		{"echo.order", p.Echo.Order, &c.echoOrder},
	} {
		if o.text == "" {
			continue
		}
		if *o.to, err = parsePointer(o.text); err != nil {
			return c, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	c.optional, c.exponents = p.Amount.Optional, p.Exponents
	if err := p.Exponents.validate(); err != nil {
		return c, err
	}
	if c.rules, err = compileRules(p.Rules); err != nil {
		return c, err
	}
	if c.list, err = compileList(p.List); err != nil {
		return c, err
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
	case strings.IndexFunc(u.Hostname(), func(r rune) bool { return r <= ' ' || r >= utf8.RuneSelf }) >= 0:
		return nil, fmt.Errorf("base_url %q: its host is not in ASCII; write the provider's host, one of other letters in its xn-- form", u.Redacted())
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
		if err := checkField(name, value); err != nil {
			return nil, fmt.Errorf("headers: %w", err)
		}
		if strings.EqualFold(name, key) {
			return nil, fmt.Errorf("headers: %s is also key.header; a fixed idempotency key would make all calls one", name)
		}
		h.Set(name, value)
	}
	return h, nil
}

// checkField refuses a header field that would change how a request is sent.
func checkField(name, value string) error {
	switch {
	case !isToken(name):
		return fmt.Errorf("%q is not the name of a header", name)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("the value of %s has a control character, perhaps a newline at its end", name)
	case slices.Contains(reservedHeaders, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("%s is set by the program itself; remove it", name)
	}
	return nil
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
	case k.UUID && k.Header == "":
		return errors.New("key.uuid: only the key in a header has a form; write key.header")
	case k.Mark != "" && !isToken(k.Mark):
		return fmt.Errorf("key.mark: %q is not the name of a header", k.Mark)
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
	c.byKey, c.byOrder = names(l.Path, "provider_key"), names(l.Path, "order")
	c.byKeyAt = c.byOrder && !c.byKey && l.Match == ""
	c.look, c.paths, c.full, c.as = true, l.Paths, l.Full, l.As
	for _, at := range []struct {
		name, text string
		to         *pointer
	}{{"items", l.Items, &c.items}, {"carried", l.Carried, &c.carried}, {"elsewhere", l.Elsewhere, &c.elsewhere}, {"more", l.More, &c.more}, {"match", l.Match, &c.match}, {"made", l.Made, &c.made}} {
		if at.text == "" {
			continue
		}
		if *at.to, err = parsePointer(at.text); err != nil {
			return fmt.Errorf("lookup.%s: %w", at.name, err)
		}
	}
	requests := 0
	for _, text := range []string{l.Path, l.Prepared, l.Reference} {
		if text != "" {
			requests++
		}
	}
	switch {
	case requests == 0:
		return errors.New("lookup.path: empty; write the request that finds a call, such as /payments?reference={{provider_key}}")
	case c.byOrder && !c.byKey && l.Match == "" && c.echoKey == nil:
		return errors.New("lookup.path: by {{order}} alone it also finds what another part of the step, or a try before, has made; look up by {{provider_key}}, or say with echo.key where the provider repeats it")
	case l.Body != nil && requests > 1:
		return errors.New("lookup.body: it goes with one of path, prepared and reference")
	case l.Match == "" && (l.Made != "" || l.Full != 0), l.Match != "" && (l.Items == "" || l.Made == "" || l.Full < 1 || l.Carried == ""):
		return errors.New("lookup.match: it goes with items, carried, made and full")
	}
	for _, t := range []struct {
		name, text string
		to         **Template
	}{{"lookup", l.Path, &c.lookup}, {"lookup.prepared", l.Prepared, &c.getPrepared}, {"lookup.reference", l.Reference, &c.getPending}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = newLookupTemplate(t.text, l.Body); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	c.getByPrefix = map[string]*Template{}
	for prefix, text := range l.References {
		t, err := newLookupTemplate(text, nil)
		if err != nil {
			return fmt.Errorf("lookup.references.%s: %w", prefix, err)
		}
		c.getByPrefix[prefix] = t
	}
	return nil
}

func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

// names reports whether a template names the row's value.
func names(template, value string) bool {
	for rest := template; ; {
		_, after, found := strings.Cut(rest, "{{")
		if !found {
			return false
		}
		inside, next, _ := strings.Cut(after, "}}")
		if slices.Contains(strings.FieldsFunc(inside, func(r rune) bool { return r == ' ' || r == '(' || r == ')' || r == '|' }), value) {
			return true
		}
		rest = next
	}
}
