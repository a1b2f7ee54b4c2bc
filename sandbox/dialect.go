package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"zabor"
	"zabor/provider"
)

// dialect is how one provider's payments look from outside. Its requests are below
// /NAME, the name being that of the built-in profile; the sandbox's own are at the
// top.
type dialect struct {
	name      string
	prefix    string // of ids
	moved     string // before the id of a payment, that of what moved its money; empty: they are one
	auth      provider.AuthKind
	keyHeader string
	keyField  string // in the body
	again     again
	mark      bool // an answer that is given again says so
	asks      asks
	routes    []route
	answers   [statuses]int  // HTTP statuses of what has a status
	refuses   map[string]int // HTTP statuses of failures, where they are not the usual ones

	object   func(result) any // a payment as it is looked up
	made     func(result) any // as it is answered to whoever made it; nil: as it is looked up
	declined func(result) any // where it is refused; nil: the same
	failure  func(failed) any
}

// again is what a dialect answers to a second request under a key that it knows.
type again uint8

const (
	first    again = iota // the first answer, also where that was a 500 of its own
	present               // the present state of what the first request made
	success               // the first answer where it was a success; else the request is carried out anew
	conflict              // a failure that names what the first request made
	taken                 // a failure
	never                 // keys are not looked at
)

// asks says where a request has what a payment is made of. Paths have points: the
// first element of a list is 0.
type asks struct {
	amount   string // empty: amount, as a number or as an object with value and currency
	major    bool   // it is a decimal
	currency string // empty: that of home
	home     string // the account's currency; empty: roubles
	orders   []string
	carried  string // the provider key, by which a look-up finds it; empty: the order
	id       string // of the intent that a request confirms, where it is not in the path
	atOnce   string // an intent that is paid at once has true there
}

// route is one request of a dialect.
type route struct {
	does does
	path string // method and path, as for http.ServeMux
	// name is what is looked for, of finds; nil: everything.
	name func(r *http.Request, fields map[string]any) string
	list func([]any) any // of finds; nil: the newest alone
	// id is where a request of gets has the id, if it is not in the path; empty: asks.id.
	id string
	// shows is a payment as it is got there; nil: as everywhere.
	shows func(result) any
	// pages lists everything where nothing is looked for; where something could be,
	// only if a limit is given. nil: there is no list.
	pages *pages
}

type does uint8

const (
	pays     does = iota
	intends       // makes a payment that moves nothing yet
	confirms      // moves it
	gets          // by its id
	finds         // by what its request carried
	grants        // an access token
)

// failed is what a request is answered that is not carried out.
type failed struct {
	code, text string
	known      result // what was made before, where it is about that
}

// What a failure can be about.
const (
	invalidRequest  = "invalid_request"
	keyMismatch     = "idempotency_mismatch"
	keyTaken        = "already_made" // under this key
	inFlight        = "in_flight"
	unexpectedState = "unexpected_state"
	notFound        = "not_found"
	unauthorized    = "unauthorized"
	faultCode       = "fault" // planned
)

// refusal is why a request is not carried out.
type refusal struct{ failed }

func (e *refusal) Error() string { return e.text }

func refuse(code, text string) *refusal { return &refusal{failed{code: code, text: text}} }

// status is the HTTP status of a failure.
func (d *dialect) status(code string) int {
	if status, ok := d.refuses[code]; ok {
		return status
	}
	switch code {
	case inFlight:
		return http.StatusConflict
	case notFound:
		return http.StatusNotFound
	case unauthorized:
		return http.StatusUnauthorized
	}
	return http.StatusBadRequest
}

func (d *dialect) id(n int32) string { return fmt.Sprintf("%s%d", d.prefix, n+1) }

// body is r as it is answered to whoever made it.
func (d *dialect) body(r result) []byte {
	switch {
	case (r.status == refused || r.status == softly) && d.declined != nil:
		return encode(d.declined(r))
	case d.made != nil:
		return encode(d.made(r))
	}
	return encode(d.object(r))
}

func (d *dialect) fail(w http.ResponseWriter, status int, f failed) {
	reply(w, status, encode(d.failure(f)))
}

// failWith answers with the failure that err is.
func (d *dialect) failWith(w http.ResponseWriter, err error) {
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		why = refuse(invalidRequest, err.Error())
	}
	d.fail(w, d.status(why.code), why.failed)
}

func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // only types of this package
	}
	return out
}

const maxBody = 1 << 20

// readFields is the body of r: a JSON object, or a form in which a[b] is b in the
// object a.
func readFields(w http.ResponseWriter, r *http.Request) (map[string]any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case len(body) == 0:
	case kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(form)) {
			outer, inner, nested := strings.Cut(strings.TrimSuffix(name, "]"), "[")
			if !nested {
				fields[name] = form.Get(name)
				continue
			}
			object, ok := fields[outer].(map[string]any)
			if !ok {
				object = map[string]any{}
				fields[outer] = object
			}
			object[inner] = form.Get(name)
		}
	default:
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			return nil, fmt.Errorf("the body is not a JSON object: %w", err)
		}
	}
	return fields, nil
}

// at is the text at a path with points; empty: there is none.
func at(v any, path string) string {
	if path == "" {
		return ""
	}
	for name := range strings.SplitSeq(path, ".") {
		switch here := v.(type) {
		case map[string]any:
			v = here[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(here) {
				return ""
			}
			v = here[i]
		default:
			return ""
		}
	}
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	}
	return ""
}

// payment is what fields ask for.
func (a asks) payment(fields map[string]any) (payment, error) {
	money, err := a.money(fields)
	if err != nil {
		return payment{}, err
	}
	p := payment{amount: money.Minor, currency: money.Currency, carried: at(fields, a.carried), atOnce: at(fields, a.atOnce) == "true"}
	for _, path := range a.orders {
		if p.order == "" {
			p.order = at(fields, path)
		}
	}
	return p, nil
}

func (a asks) money(fields map[string]any) (zabor.Money, error) {
	path, major, currency := a.amount, a.major, cmp.Or(a.home, "RUB")
	switch {
	case path == "" && at(fields, "amount") == "":
		path, major, currency = "amount.value", true, at(fields, "amount.currency")
	case path == "":
		path, currency = "amount", at(fields, "currency")
	case a.currency != "":
		currency = at(fields, a.currency)
	}
	amount, currency := at(fields, path), strings.ToUpper(currency)
	if major {
		return provider.ParseMajor(amount, currency)
	}
	minor, err := strconv.ParseInt(amount, 10, 64)
	if err != nil || minor <= 0 {
		return zabor.Money{}, fmt.Errorf("amount %q is not a whole number of minor units above zero", amount)
	}
	if _, ok := provider.Digits(currency); !ok {
		return zabor.Money{}, fmt.Errorf("currency %q is not one", currency)
	}
	return zabor.Money{Minor: minor, Currency: currency}, nil
}
