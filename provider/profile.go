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

	// RetryAfter points to how many milliseconds an answer asks to be left alone, where
	// it is not the header Retry-After that does. Empty: none does.
	RetryAfter string `yaml:"retry_after"`

	// Whom names the header fields for another account, such as Stripe-Account. A look-up
	// repeats those of the request. It needs a table; without one, a look-up repeats all
	// fields of the request except those about the body.
	Whom []string `yaml:"whom"`

	// Line describes every request of a provider without a table. With a table it is zero.
	Line `yaml:"line"`
	// Calls is the table. Each request has exactly one line; a request without a line is
	// never sent.
	Calls []Line `yaml:"calls"`

	List *List `yaml:"list"` // nil: what the provider did cannot be listed
	// After reads payments again that were a final yes. Empty: how is not known.
	After []After `yaml:"after"`
}

// Line is one kind of request: its effect, and all knowledge about it.
type Line struct {
	Name string `yaml:"name"` // unique in its table
	Does Does   `yaml:"does"`
	// Call is the method and the path as sent: POST /v1/payment_intents/*/capture. * is
	// one segment. Empty: every request.
	Call string `yaml:"call"`
	// Where has conditions on the body, by JSON pointer: one of the values, as text. "*"
	// is any value, "" is no value or null.
	Where map[string][]string `yaml:"where"`
	// Refused is the reason never to send such a request. The rest of the line is then zero.
	Refused string `yaml:"refused"`
	// Target points to the id, in the body, of the object on which the call acts, for
	// {{target}}. Empty: the id is the first * of the path.
	Target string `yaml:"target"`

	Headers Headers `yaml:"headers"` // of these requests alone
	Key     Key     `yaml:"key"`
	Answers `yaml:"answers"`
	Amount  Amount  `yaml:"amount"` // zero: not compared
	Lookup  *Lookup `yaml:"lookup"` // nil: a doubtful call can only be decided by a person

	// HoldAfter and PendingFor are the provider's own horizons: how long doubt and
	// the lack of a verdict are nothing unusual there. The longer of it and the
	// configuration's counts. 0: none.
	HoldAfter  time.Duration `yaml:"hold_after"`
	PendingFor time.Duration `yaml:"pending_for"`
}

// Does is the effect of a call.
type Does string

// The effects.
const (
	Charges  Does = "charge"  // takes money, or holds it
	Captures Does = "capture" // takes held money
	Refunds  Does = "refund"
	PaysOut  Does = "payout"
	Cancels  Does = "cancel"
	Prepares Does = "prepare" // moves nothing by itself: the first request of two
)

// Source is the source of a part of a profile: a document or a project, and a date.
type Source struct {
	From string `yaml:"source" json:"source,omitempty"`
	// Unverified names the facts without a source. Their values are the cautious ones.
	Unverified string `yaml:"unverified" json:"unverified,omitempty"`
}

// Answers says how an answer, or an object of the provider, is read.
type Answers struct {
	Source `yaml:",inline"`
	// Reference points to the provider's id of what it did: a string or a number. The
	// text {{prepared}} is the id from the first request of two, where an answer has none.
	Reference string  `yaml:"reference"`
	Prefix    string  `yaml:"prefix"`    // beginning of such an id; another text is no id
	Settled   Match   `yaml:"settled"`   // a final yes
	Pending   Match   `yaml:"pending"`   // begun, and no verdict yet
	Declined  Refusal `yaml:"declined"`  // a definite no
	Malformed Refusal `yaml:"malformed"` // a definite no about the request's form, so about its maker and not the customer
	Rules     []Rule  `yaml:"rules"`     // before the four lists above; the first one that is met decides
	Prepare   Prepare `yaml:"prepare"`   // of two-step calls
	Echo      Echo    `yaml:"echo"`      // what of the request an answer repeats
	// Later says, for people, how a final state may still change. Empty: it does not.
	Later string `yaml:"later"`
}

// Key says how the provider takes an idempotency key and what it does with one.
type Key struct {
	Source  `yaml:",inline"`
	Header  string        `yaml:"header"`  // empty: none, or a template puts {{provider_key}} into the request
	Field   string        `yaml:"field"`   // property of the request's JSON object that holds the key; put in where it is missing. Empty: none
	UUID    bool          `yaml:"uuid"`    // Header has the key as a UUID
	Life    time.Duration `yaml:"life"`    // how long the provider surely remembers a key; 0: never rely on it
	Replays Replays       `yaml:"replays"` // what a second request under the same key is answered
	Mark    string        `yaml:"mark"`    // header that is "true" in an answer that is given again; empty: none
	Scope   string        `yaml:"scope"`   // of a key, for people: the account, a region
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
// compared byte for byte with how it is written in the answer (true, 0). The value
// "*" is any.
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
	//   - lingers: it proves nothing, and the provider may still carry the request out
	//     by itself: neither silence nor the same request proves anything later;
	//   - earlier: the answer is about another request than this one, under the
	//     same key or for the same order. It proves nothing, whatever else is in it.
	Means    string              `yaml:"means"`
	Statuses []int               `yaml:"statuses"` // empty: any
	Header   map[string]string   `yaml:"header"`   // all of these
	Values   map[string][]string `yaml:"values"`   // at each pointer one of the values
	// Reference points to the provider's id in an answer of this kind, where it
	// is not at the profile's. With means: pending such an answer may be a
	// 409, or a 4xx that is among Statuses.
	Reference string `yaml:"reference"`
	// Wait is how long such an answer wants the provider left alone. 0: it does not say.
	Wait time.Duration `yaml:"wait"`
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

// Amount is where the answer has the amount: at most one of the pointers Minor and
// Major.
type Amount struct {
	Source   `yaml:",inline"`
	Minor    string `yaml:"minor"`    // pointer to minor units, 1999
	Major    string `yaml:"major"`    // pointer to a decimal, 19.99
	Currency string `yaml:"currency"` // pointer, compared with the row; empty: not compared
	// Asked points to where a request has the amount, written as in the answer. What is
	// there must be the row's. Empty: it is not looked at.
	Asked string `yaml:"asked"`
	// AskedCurrency points to where it has the currency. Empty: as in the answer.
	AskedCurrency string `yaml:"asked_currency"`
	// Optional: an answer without amount and currency is as good as one with.
	Optional bool  `yaml:"optional"`
	Units    Units `yaml:"units"` // nil: those of ISO 4217
}

// Reading is how an object is read that has another shape than the call's answer.
type Reading struct {
	Answers `yaml:"answers"`
	Amount  Amount `yaml:"amount"`
}

// Lookup is how a doubtful call is looked up without moving money.
//
// Without Match the look-up itself must carry the filter, by {{provider_key}},
// {{reference}} or {{prepared}}: every hit is taken for an answer about the row. One by
// {{order}} alone also finds what another part of the step, or a try before, has made:
// it needs Echo.Key, and a hit with another key there is about another request. No
// further pages are fetched: where More says that there are some, absence is no proof.
type Lookup struct {
	Source  `yaml:",inline"`
	Headers Headers `yaml:"headers"` // of look-ups alone, in place of the profile's
	Method  string  `yaml:"method"`  // GET; empty means GET
	// Body makes the look-up a POST with this JSON object, of templates as in Path.
	// A built-in profile alone may have one: that a POST moves no money is
	// something to know about a provider. It goes with exactly one of Path,
	// Prepared and Reference.
	Body map[string]any `yaml:"body"`
	// Form is the same with a form.
	Form map[string]string `yaml:"form"`
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
	// Paths are the paths of the requests that Path finds, without a query; absence of
	// another one means nothing. Empty: of all of the line.
	Paths []string `yaml:"paths"`
	// Prepared gets the object of a two-step call by its {{prepared}} id, and is
	// taken instead of Path where there is one. The answer is the one hit; 404 is
	// an error, since the object is there.
	Prepared string `yaml:"prepared"`
	// Reference gets the object of a pending row by its {{reference}}, likewise.
	Reference string `yaml:"reference"`
	// Target gets the object that the call acts on by {{target}}, likewise, where there
	// is neither a Prepared nor a Reference to get.
	Target string `yaml:"target"`
	// Hit is how the hits of Path are read, and Object how what Reference gets is; nil:
	// as an answer to the call.
	Hit    *Reading `yaml:"hit"`
	Object *Reading `yaml:"object"`
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
	base   *url.URL
	header http.Header
	auth   Auth
	later  pointer  // RetryAfter; nil: none
	whom   []string // nil: all fields
	lines  []*line  // at least one
	list   *listing // nil: there is none
	after  []later
}

func compile(p Profile) (c compiled, err error) {
	if c.base, err = parseBase(p.BaseURL); err != nil {
		return c, err
	}
	if p.Timeout <= 0 {
		return c, fmt.Errorf("timeout %s: must be above zero, such as 10s", p.Timeout)
	}
	if c.header, err = compileHeader(p.Headers); err != nil {
		return c, err
	}
	if c.auth = p.Auth; c.auth.validate() != nil {
		return c, c.auth.validate()
	}
	if c.later, err = optional("retry_after", p.RetryAfter); err != nil {
		return c, err
	}
	if len(p.Calls) > 0 {
		c.whom = append([]string{}, p.Whom...)
	}
	if c.lines, err = compileLines(p); err != nil {
		return c, err
	}
	for _, l := range c.lines {
		for _, headers := range []Headers{p.Headers, l.Headers} {
			for name := range headers {
				if strings.EqualFold(name, l.Key.Header) {
					return c, fmt.Errorf("headers: %s is also key.header; a fixed idempotency key would make all calls one", name)
				}
			}
		}
	}
	if c.after, err = compileAfter(p.After, c.lines); err != nil {
		return c, err
	}
	if len(p.Calls) == 0 {
		c.after = laterOf(c.lines[0])
	}
	c.list, err = compileList(p.List, c.lines)
	return c, err
}

// optional is the pointer of that name; nil: text is empty.
func optional(name, text string) (pointer, error) {
	if text == "" {
		return nil, nil
	}
	at, err := parsePointer(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return at, nil
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
func compileHeader(headers Headers) (http.Header, error) {
	h, err := compileFields(headers)
	for name, value := range map[string]string{"Accept": "application/json", "User-Agent": "zabor"} {
		if err == nil && h.Get(name) == "" {
			h.Set(name, value)
		}
	}
	return h, err
}

func compileFields(headers Headers) (http.Header, error) {
	h := http.Header{}
	for name, value := range headers {
		if err := checkField(name, value); err != nil {
			return nil, fmt.Errorf("headers: %w", err)
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
