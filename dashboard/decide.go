package dashboard

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"zabor"
	"zabor/dashboard/access"
	"zabor/sqlstore"
)

// choice is a decision that may be made about a row, in words for whoever knows
// payments and not zabor.
type choice struct {
	Action zabor.Action
	Words  string
	Hint   string
	// Reference: the provider's number is asked for. Checked: the person must say
	// that they have looked.
	Reference, Checked bool
}

// Danger reports whether a wrong choice can charge the customer twice.
func (c choice) Danger() bool { return c.Action == zabor.Release }

var allChoices = [...]choice{
	{zabor.Settle, "Charged", "Give the provider's number. Nothing is called again.", true, false},
	{zabor.Decline, "Not charged: cancel", "No money moved. The order is never charged.", false, true},
	{zabor.Release, "Not charged: charge again", "Dangerous if you are wrong: the customer pays twice. Only if you have seen at the provider that nothing was charged.", false, true},
	{zabor.Hold, "Hold it", "Nothing is called until somebody has decided.", false, false},
}

// choices are those that make sense for row.
func choices(row zabor.Row) []choice {
	var may []zabor.Action
	switch row.State {
	case zabor.Settled:
	case zabor.Declined:
		may = []zabor.Action{zabor.Settle, zabor.Release}
	case zabor.Pending:
		may = []zabor.Action{zabor.Settle, zabor.Decline, zabor.Hold}
	case zabor.Captured:
		may = []zabor.Action{zabor.Settle, zabor.Decline, zabor.Hold}
	case zabor.Doubt, zabor.Released:
		may = []zabor.Action{zabor.Settle, zabor.Decline, zabor.Release, zabor.Hold}
	default:
		may = []zabor.Action{zabor.Settle, zabor.Decline, zabor.Release}
	}
	var all []choice
	for _, c := range allChoices {
		if !slices.Contains(may, c.Action) {
			continue
		}
		c.Checked = row.MayHaveActed() && (c.Action == zabor.Release || c.Action == zabor.Decline)
		if row.State == zabor.Declined && row.Cause != zabor.ByPerson && c.Action == zabor.Release && !row.MayHaveActed() {
			c.Words, c.Hint = "A new attempt is wanted", "It is called once more under a new provider key, when its message is delivered."
		}
		all = append(all, c)
	}
	return all
}

// seenText is a row as it was looked at, in a form. The parts of a key are any
// bytes.
type seenText struct {
	Scope, Order, Step []byte
	Epoch              int64
	ID                 []byte
}

func token(k zabor.Key, c zabor.Claim) string {
	text, err := json.Marshal(seenText{[]byte(k.Scope), []byte(k.Order), []byte(k.Step), c.Epoch, c.ID[:]})
	if err != nil {
		panic(err) // bytes and numbers alone
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func readToken(text string) (k zabor.Key, c zabor.Claim, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var t seenText
	if err != nil || json.Unmarshal(raw, &t) != nil || t.Epoch < 1 || len(t.ID) != len(c.ID) {
		return k, c, false
	}
	c.Epoch = t.Epoch
	copy(c.ID[:], t.ID)
	return zabor.Key{Scope: string(t.Scope), Order: string(t.Order), Step: string(t.Step)}, c, true
}

// mostAtOnce is how many rows one form may decide about.
const mostAtOnce = 200

// readDecisions are the decisions of a form.
func (d *Dashboard) readDecisions(r *http.Request, by string) ([]zabor.Decision, *trouble) {
	back := func(what, next string) *trouble {
		return &trouble{What: what, Next: next + " Nothing was changed.", Link: "/open", Words: "In doubt and held"}
	}
	if err := r.ParseForm(); err != nil {
		return nil, back("This form could not be read", "Choose fewer rows.")
	}
	rows, action, reason := r.PostForm["row"], zabor.Action(r.PostForm.Get("action")), strings.TrimSpace(r.PostForm.Get("reason"))
	switch {
	case len(rows) == 0:
		return nil, back("No row was chosen", "Mark the rows that the decision is about.")
	case len(rows) > mostAtOnce:
		return nil, back("Too many rows at once", "Choose fewer rows.")
	case !slices.ContainsFunc(allChoices[:], func(c choice) bool { return c.Action == action }):
		return nil, back("No decision was chosen", "Say what happened.")
	case reason == "":
		return nil, back("There is no reason", "Say why: it is kept with the decision, under your name.")
	}
	var all []zabor.Decision
	given := map[string]bool{}
	for _, text := range rows {
		key, seen, ok := readToken(text)
		if !ok {
			return nil, back("This form is not complete", "Open the page again.")
		}
		if !key.In(d.o.Scope) {
			t := d.elsewhere(key, "Nothing was changed.", "/open", "In doubt and held")
			return nil, &t
		}
		one := zabor.Decision{Key: key, Seen: seen, Action: action, By: by, Reason: reason, CheckedProvider: r.PostForm.Get("checked") == "yes"}
		if action == zabor.Settle {
			if one.Reference = strings.TrimSpace(r.PostForm.Get("reference." + text)); one.Reference == "" {
				return nil, back("A number of the provider's is missing", "Order "+readable(key.Order)+": what went through has a number at the provider. Give one for each row.")
			}
			if given[one.Reference] {
				return nil, back("One number is given for two rows", "The number "+readable(one.Reference)+" is that of one payment, and a payment settles one row. Look at both again; if they are steps of one order and it is truly that of both, decide them one by one.")
			}
			given[one.Reference] = true
		}
		all = append(all, one)
	}
	return all, nil
}

// verdict is a decision on the page that asks for its confirmation, or says what
// was done.
type verdict struct {
	zabor.Decision
	Token string
	Row   zabor.Row // as it is
	Lines []string
	// Warnings are what must be known before it is confirmed.
	Warnings []string
	Err      string
	Stale    *stale // the row has changed since it was looked at
	// Proposed: it waits for a second person, and is only kept for them. Second is the
	// proposal that the decision is about, as [proposalMark] has it; empty: it needs
	// no second person.
	Proposed bool
	Second   string
}

// stale says who changed the row meanwhile.
type stale struct {
	By, Text string
}

type decidePage struct {
	Words     string
	Action    zabor.Action
	Reason    string
	Checked   bool
	Confirmed bool
	Verdicts  []verdict
	Possible  int
	Done      int
	Next      *zabor.Row // the held row that waits longest and is not among Verdicts; nil: none, or nothing was decided
	Proposals int        // of those that are possible or done: that are only proposed
}

// decide shows what a decision would do, and does it when it is confirmed.
func (d *Dashboard) decide(w http.ResponseWriter, r *http.Request) {
	who := access.From(r.Context())
	decisions, wrong := d.readDecisions(r, who.Name)
	if wrong != nil {
		d.trouble(w, r, http.StatusBadRequest, *wrong)
		return
	}
	// A decision that was begun is finished, though the browser is gone.
	ctx := context.WithoutCancel(r.Context())
	body := decidePage{Action: decisions[0].Action, Reason: decisions[0].Reason, Checked: decisions[0].CheckedProvider, Confirmed: r.PostForm.Get("confirm") == "yes"}
	at := slices.IndexFunc(allChoices[:], func(c choice) bool { return c.Action == body.Action })
	body.Words = allChoices[at].Words
	status := http.StatusOK
	for _, one := range decisions {
		v := verdict{Decision: one, Token: token(one.Key, one.Seen)}
		p, err := d.o.Look(ctx, one)
		v.Row, v.Lines, v.Warnings = p.Row, p.Lines, p.Warnings
		if err == nil {
			v, err = d.second(ctx, v, who, body.Confirmed, r.PostForm.Get("second."+v.Token))
		}
		if err == nil && body.Confirmed && !v.Proposed {
			v.Row, v.Lines, err = d.taken(ctx, v.Decision)
			if err == nil && v.By != who.Name {
				v.Lines = append(v.Lines, "it is decided by two: "+v.By)
			}
		}
		switch {
		case errors.Is(err, zabor.ErrStale):
			status = http.StatusConflict
			v.Err, v.Stale = err.Error(), d.meanwhile(ctx, v.Row)
		case err != nil:
			if status == http.StatusOK && len(decisions) == 1 {
				status = http.StatusUnprocessableEntity
			}
			v.Err = err.Error()
		case body.Confirmed:
			body.Done++
			body.Proposals += b2i(v.Proposed)
		default:
			body.Possible++
			body.Proposals += b2i(v.Proposed)
		}
		body.Verdicts = append(body.Verdicts, v)
	}
	d.changed()
	if body.Confirmed {
		body.Next = d.nextHeld(ctx, body.Verdicts)
	}
	d.show(w, r, status, "decide", body.title(), "/open", body)
}

// Danger reports whether the decision lets a call be made.
func (p decidePage) Danger() bool { return p.Action == zabor.Release }

// nextHeld returns the held row that waits longest and is not among done; nil: there
// is none, or it cannot be read.
func (d *Dashboard) nextHeld(ctx context.Context, done []verdict) *zabor.Row {
	rows, _, err := lookOn(sqlstore.Search{Scope: d.o.Scope, States: []zabor.State{zabor.Held}, Limit: len(done) + 1}, func(search sqlstore.Search) ([]zabor.Row, sqlstore.Mark, error) {
		return d.o.Store.Reports().Oldest(ctx, search)
	})
	if err != nil {
		return nil
	}
	for _, row := range rows {
		if !slices.ContainsFunc(done, func(v verdict) bool { return v.Key == row.Key }) {
			return &row
		}
	}
	return nil
}

// title says how far it has come: what is only proposed is not decided.
func (p decidePage) title() string {
	switch {
	case p.Possible == 0 && p.Done == 0:
		return "Not decided"
	case !p.Confirmed:
		return "Is this right?"
	case p.Proposals == p.Done:
		return "Proposed, not decided yet"
	case p.Proposals > 0:
		return fmt.Sprintf("%d decided, %d proposed", p.Done-p.Proposals, p.Proposals)
	}
	return "Decided"
}

func (d *Dashboard) taken(ctx context.Context, one zabor.Decision) (zabor.Row, []string, error) {
	t, err := d.o.Take(ctx, one)
	if err == nil {
		d.o.Log.Info("decided on the dashboard", "by", one.By, "order", one.Key.Order, "step", one.Key.Step, "scope", one.Key.Scope, "action", string(one.Action), "state", string(t.Row.State), "reason", one.Reason)
	}
	return t.Row, t.Lines, err
}

// meanwhile is who changed row last, as far as it was noted.
func (d *Dashboard) meanwhile(ctx context.Context, row zabor.Row) *stale {
	notes, err := d.o.Store.History().Of(ctx, row.Key)
	if err != nil || len(notes) == 0 {
		return &stale{}
	}
	last := notes[len(notes)-1]
	return &stale{By: last.By, Text: last.Text}
}

// openRow is a row that waits, with what a person needs to decide.
type openRow struct {
	zabor.Row
	Evidence evidence
	Status   int
	Answer   []field
}

type openPage struct {
	Held, Doubt       []openRow
	HeldMore, DubMore string // addresses of the next pages; empty: there are none
	HeldOn, DubOn     bool   // the list goes on from another page: that it is empty is not that there are none
	HeldN, DoubtN     int64
	Proposals         []proposal // releases that wait for a second person
	Choices           []choice
}

// perOpenPage is how many rows with their evidence a page has of a state: it must
// stay small enough for a telephone.
const perOpenPage = 20

// open is the page of what is in doubt and held.
func (d *Dashboard) open(w http.ResponseWriter, r *http.Request) {
	counts, err := d.unclosed(r.Context())
	if err != nil {
		d.away(w, r, err)
		return
	}
	body := openPage{Choices: allChoices[:3]}
	for _, c := range counts {
		switch c.State {
		case zabor.Held:
			body.HeldN = c.Rows
		case zabor.Doubt:
			body.DoubtN = c.Rows
		}
	}
	if body.Proposals, err = d.proposals(r.Context(), access.From(r.Context())); err != nil {
		d.away(w, r, err)
		return
	}
	for _, list := range []struct {
		state zabor.State
		name  string
		rows  *[]openRow
		more  *string
		on    *bool
	}{{zabor.Held, "held", &body.Held, &body.HeldMore, &body.HeldOn}, {zabor.Doubt, "doubt", &body.Doubt, &body.DubMore, &body.DubOn}} {
		after, _ := readMark(r.URL.Query().Get(list.name))
		*list.on = after != sqlstore.Mark{}
		rows, on, err := lookOn(sqlstore.Search{Scope: d.o.Scope, States: []zabor.State{list.state}, After: after, Limit: perOpenPage + 1},
			func(search sqlstore.Search) ([]zabor.Row, sqlstore.Mark, error) {
				return d.o.Store.Reports().Oldest(r.Context(), search)
			})
		if err != nil {
			d.away(w, r, err)
			return
		}
		if len(rows) > perOpenPage {
			rows = rows[:perOpenPage]
			on = sqlstore.OldestMark(rows[len(rows)-1])
		}
		if on != (sqlstore.Mark{}) {
			*list.more = "/open?" + list.name + "=" + writeMark(on)
		}
		for _, row := range rows {
			var notes []zabor.Note
			if row.Cause == zabor.ByPerson || row.Cause == zabor.ByConflict { // the row alone does not say whether it was imported
				if notes, err = d.o.Store.History().Of(r.Context(), row.Key); err != nil {
					d.away(w, r, err)
					return
				}
			}
			one := openRow{Row: row, Evidence: d.evidence(row, notes)}
			one.Status, one.Answer = answerFields(row)
			*list.rows = append(*list.rows, one)
		}
	}
	d.show(w, r, http.StatusOK, "open", "In doubt and held", "/open", body)
}
