package dashboard

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/dashboard/access"
	"zabor/sqlstore"
)

// perPage is how many rows a page lists.
const perPage = 50

type fencesPage struct {
	Query, Step string
	States      []stateChoice
	Rows        []zabor.Row
	Next        string // address of the next page; empty: this is the last
	Filtered    bool
	Waiting     []Waiting // messages of the order
	Unsearched  string    // the queues could not be searched, and why
	Partly      bool      // there are messages that were not searched
	// Looked is how many rows of the search were looked through where there are more
	// of them, and no next page; 0: all were.
	Looked int64
	// Until is the moment down to which was looked where that is not all, see Next;
	// zero: there are older rows that fit, or none.
	Until time.Time
}

type stateChoice struct {
	State   zabor.State
	Checked bool
}

func (d *Dashboard) fences(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body := fencesPage{Query: q.Get("q"), Step: q.Get("step")}
	var states []zabor.State
	for _, s := range q["state"] {
		if state, ok := zabor.ParseState(s); ok {
			states = append(states, state)
		}
	}
	for _, s := range zabor.States() {
		body.States = append(body.States, stateChoice{s, slices.Contains(states, s)})
	}
	body.Filtered = body.Query != "" || body.Step != "" || len(states) > 0
	var err error
	if body.Query != "" {
		body.Rows, body.Looked, err = d.find(r, body.Query, body.Step, states)
		d.findWaiting(r.Context(), &body)
	} else {
		after, ok := readMark(q.Get("after"))
		if !ok {
			d.trouble(w, r, http.StatusBadRequest, trouble{What: "This address is not complete", Next: "Begin from the front.", Link: "/fences", Words: "All fences"})
			return
		}
		var on sqlstore.Mark
		body.Rows, on, err = lookOn(sqlstore.Search{Scope: d.o.Scope, States: states, Step: body.Step, After: after, Limit: perPage + 1},
			func(search sqlstore.Search) ([]zabor.Row, sqlstore.Mark, error) {
				return d.o.Store.Reports().Recent(r.Context(), search)
			})
		body.Until = on.Since
		if len(body.Rows) > perPage {
			body.Rows = body.Rows[:perPage]
			on = sqlstore.MarkOf(body.Rows[perPage-1])
		}
		if on != (sqlstore.Mark{}) {
			next := url.Values{"after": {writeMark(on)}, "state": q["state"]}
			if body.Step != "" {
				next.Set("step", body.Step)
			}
			body.Next = "/fences?" + next.Encode()
		}
	}
	if err != nil {
		d.away(w, r, err)
		return
	}
	d.show(w, r, http.StatusOK, "fences", "Fences", "/fences", body)
}

// How far a page looks for rows that no index leads to: first at a few, each time at
// four times as many, and not again when lookFor is over.
const (
	firstLook = 1000
	mostLook  = 32_000
	lookFor   = 80 * time.Millisecond
)

// lookOn looks until there are as many rows as search wants, no more of them, or until
// a page has waited long enough: then there may be more behind on.
func lookOn(search sqlstore.Search, look func(sqlstore.Search) ([]zabor.Row, sqlstore.Mark, error)) (rows []zabor.Row, on sqlstore.Mark, err error) {
	begun, limit := time.Now(), search.Limit
	for search.Look = firstLook; ; search.Look = min(4*search.Look, mostLook) {
		found, on, err := look(search)
		rows = append(rows, found...)
		if err != nil || on == (sqlstore.Mark{}) || time.Since(begun) > lookFor {
			return rows, on, err
		}
		search.After, search.Limit = on, limit-len(rows)
	}
}

// mostFound is how many rows a search shows, and mostLooked how many it looks
// through for those of a step or a state: no index has them in the order of their
// orders.
const (
	mostFound  = 100
	mostLooked = sqlstore.LookedAt
)

// find looks for an order, for what an order begins with, and for a reference.
// looked is how many rows were looked through where there are more; 0: all were.
func (d *Dashboard) find(r *http.Request, text, step string, states []zabor.State) (rows []zabor.Row, looked int64, err error) {
	most := mostFound
	if step != "" || len(states) > 0 {
		most = mostLooked
	}
	byReference, err := d.o.Store.Reports().OfReference(r.Context(), d.o.Scope, text, most)
	if err != nil {
		return nil, 0, err
	}
	byOrder, more, err := d.o.Store.Reports().OfOrders(r.Context(), d.o.Scope, text, most)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case more && len(byOrder) < most:
		looked = mostLooked
	case more, len(byReference) == most:
		looked = int64(len(byOrder) + len(byReference))
	}
	seen := map[zabor.Key]bool{}
	for _, row := range append(byReference, byOrder...) {
		name, _, _ := strings.Cut(row.Step, ":")
		if seen[row.Key] || step != "" && row.Step != step && name != step || len(states) > 0 && !slices.Contains(states, row.State) {
			continue
		}
		if len(rows) == mostFound {
			return rows, max(looked, int64(len(rows))), nil
		}
		seen[row.Key] = true
		rows = append(rows, row)
	}
	return rows, looked, nil
}

// markText is a [sqlstore.Mark] in an address. The parts of a key are any bytes.
type markText struct {
	Since              int64
	Scope, Order, Step []byte
}

func writeMark(m sqlstore.Mark) string {
	text, err := json.Marshal(markText{m.Since.UnixMicro(), []byte(m.Key.Scope), []byte(m.Key.Order), []byte(m.Key.Step)})
	if err != nil {
		panic(err) // bytes and numbers alone
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func readMark(text string) (sqlstore.Mark, bool) {
	if text == "" {
		return sqlstore.Mark{}, true
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var m markText
	if err != nil || json.Unmarshal(raw, &m) != nil {
		return sqlstore.Mark{}, false
	}
	return sqlstore.Mark{Since: time.UnixMicro(m.Since), Key: zabor.Key{Scope: string(m.Scope), Order: string(m.Order), Step: string(m.Step)}}, true
}

// fencePage is all that is known of one row.
type fencePage struct {
	Row      zabor.Row
	Events   []Event
	Evidence evidence
	Request  []field
	Why      string // the request is not shown
	Answer   []field
	Status   int // of the answer; 0: none
	Others   []zabor.Row
	Choices  []choice
	Steps    []step
	Proposal *access.Proposal // of a release that waits for a second person; nil: none
	Own      bool             // whoever looks has proposed it
	Second   string           // the proposal in the form that confirms it
	Refunded *zabor.Note      // who has dealt with its second reference; nil: nobody, or there is none
}

func (d *Dashboard) fence(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r.URL.Query())
	if err != nil {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "No row is named", Detail: []string{err.Error()}, Next: "Look the row up.", Link: "/fences", Words: "All fences"})
		return
	}
	if !key.In(d.o.Scope) {
		d.trouble(w, r, http.StatusNotFound, d.elsewhere(key, "See what there is of this order here.", "/fences?"+url.Values{"q": {key.Order}}.Encode(), "All rows of the order"))
		return
	}
	row, err := d.o.Store.Load(r.Context(), key)
	if errors.Is(err, zabor.ErrNoRow) {
		d.trouble(w, r, http.StatusNotFound, trouble{
			What: "There is no such row", Detail: []string{readable(key.String()) + ": nothing was ever called for it through this fence. Orders are compared byte for byte: A1 is not a1, and 7 is not 007."},
			Next: "See what there is of this order.", Link: "/fences?" + url.Values{"q": {key.Order}}.Encode(), Words: "All rows of the order",
		})
		return
	}
	if err != nil {
		d.away(w, r, err)
		return
	}
	notes, err := d.o.Store.History().Of(r.Context(), key)
	if err != nil {
		d.away(w, r, err)
		return
	}
	others, _, err := d.o.Store.Reports().OfOrders(r.Context(), d.o.Scope, key.Order, 20)
	if err != nil {
		d.away(w, r, err)
		return
	}
	body := fencePage{Row: row, Events: History(row, notes), Evidence: d.evidence(row, notes), Choices: choices(row)}
	body.Steps = life(row, body.Evidence.Imported)
	body.Others = slices.DeleteFunc(others, func(o zabor.Row) bool { return o.Key == key || o.Order != key.Order })
	if p, waits := access.Proposed(notes, row.Claim); waits {
		body.Proposal, body.Own, body.Second = &p, p.By == access.From(r.Context()).Name, proposalMark(p, waits)
	}
	for _, n := range notes {
		if n.Kind == sqlstore.Refunded && row.OtherReference != "" {
			body.Refunded = &n
		}
	}
	body.Request, body.Why = requestFields(row)
	body.Status, body.Answer = answerFields(row)
	d.show(w, r, http.StatusOK, "fence", "Order "+readable(row.Order)+", "+readable(row.Step), "/fences", body)
}

// elsewhere says that a row is of another installation than this dashboard's: it is
// neither shown nor decided here, with this installation's providers and hooks.
func (d *Dashboard) elsewhere(key zabor.Key, next, link, words string) trouble {
	return trouble{
		What:   "This row is not of this installation",
		Detail: []string{"The scope " + readable(key.Scope) + " is not in " + readable(d.o.Scope) + ", which zabor.yaml has. Two installations on one table do not meet."},
		Next:   next, Link: link, Words: words,
	}
}

// refundedOne notes that somebody has dealt with a row's second reference.
func (d *Dashboard) refundedOne(w http.ResponseWriter, r *http.Request) {
	who := access.From(r.Context())
	key, seen, ok := readToken(r.PostFormValue("row"))
	reason := strings.TrimSpace(r.PostFormValue("reason"))
	if !ok || reason == "" {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "This form is not complete", Next: "Say what became of the second number. Nothing was noted.", Link: "/fences", Words: "Fences"})
		return
	}
	if !key.In(d.o.Scope) {
		d.trouble(w, r, http.StatusForbidden, d.elsewhere(key, "Nothing was noted.", "/fences", "Fences"))
		return
	}
	ctx := context.WithoutCancel(r.Context())
	row, err := d.o.Store.Load(ctx, key)
	switch {
	case errors.Is(err, zabor.ErrNoRow) || err == nil && (row.Claim != seen || row.OtherReference == ""):
		d.trouble(w, r, http.StatusConflict, trouble{What: "This row has changed since you looked at it", Next: "Look at it again. Nothing was noted.", Link: rowURL(key), Words: "The row"})
		return
	case err == nil:
		err = d.o.Store.Note(ctx, key, zabor.Note{Epoch: row.Claim.Epoch, Kind: sqlstore.Refunded, By: who.Name, Text: row.Reference + " and " + row.OtherReference + ": " + reason})
	}
	if err != nil {
		d.away(w, r, err)
		return
	}
	d.o.Log.Info("two references were dealt with", "by", who.Name, "order", key.Order, "step", key.Step, "scope", key.Scope, "reason", reason)
	d.numbers.mended.forget()
	http.Redirect(w, r, rowURL(key), http.StatusSeeOther)
}
