package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/dashboard/access"
	"zabor/doctor"
	"zabor/sqlstore"
)

// Where the last findings are kept, in the fence's table of settings.
const (
	auditName      = "last audit"
	comparisonName = "last comparison" // of an audit that had a provider's list
	doctorName     = "last doctor"
)

// mostFindings is how many findings of an audit, or of the doctor, are kept.
const mostFindings = 300

// AuditReport is what an audit has found, as it is kept for people.
type AuditReport struct {
	At          time.Time          `json:"at"`
	By          string             `json:"by"` // who ran it: the command, or a user of the dashboard
	Total       audit.Total        `json:"total"`
	Exports     int                `json:"exports"` // lists of providers that it was compared with
	Differences []audit.Difference `json:"differences"`

	// Looks are what was looked at. They say whether r covers an earlier comparison.
	Looks []Look `json:"looks,omitempty"`
	// First is when the oldest of what stands in a comparison was found; zero: at At.
	First time.Time `json:"first,omitzero"`
	// From and Lists are in the place of Looks in a report that an earlier version has
	// kept: since when, and by whose lists, it was compared.
	From  time.Time `json:"from,omitzero"`
	Lists []string  `json:"lists,omitempty"`
	// Dealt is who has said what became of what it found; nil: nobody.
	Dealt *Dealt `json:"dealt,omitempty"`
}

// Look is one thing that a comparison has looked at, and of which time.
type Look struct {
	Name  string    `json:"name"`           // a provider, the path of an export of an unknown one, or one of those below
	First time.Time `json:"first,omitzero"` // zero: from the beginning on
	Last  time.Time `json:"last,omitzero"`  // zero: of which time it is was not known
}

// The names of looks at what is no provider's.
const (
	LookPayments = "payments query"
	LookMessages = "queues"
)

// covers reports whether l has looked at all that other has.
func (l Look) covers(other Look) bool {
	return l.Name == other.Name && !l.Last.IsZero() && !other.Last.IsZero() && !l.First.After(other.First) && !l.Last.Before(other.Last)
}

// and is a look at what l and other have, and at what is between them.
func (l Look) and(other Look) Look {
	if other.First.Before(l.First) {
		l.First = other.First
	}
	if !l.Last.IsZero() && (other.Last.IsZero() || other.Last.After(l.Last)) {
		l.Last = other.Last
	}
	return l
}

// Dealt is that a person has dealt with what a comparison found.
type Dealt struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// comparisonDealt is the kind of the note of it, which is on the installation.
const comparisonDealt = "comparison dealt with"

// DoctorReport is what the doctor has found, as it is kept for people.
type DoctorReport struct {
	At       time.Time        `json:"at"`
	By       string           `json:"by"`
	Findings []doctor.Finding `json:"findings"`
	Left     int              `json:"left"` // findings that are not kept
	Failed   string           `json:"failed,omitempty"`
}

// KeepAudit keeps a report of the installation of that scope in place of the one
// before. One of a comparison with a provider's list is kept beside it too: what such
// a list has shown is not undone by an audit that had none, and what is bad in it not
// by a comparison that looks at less, see [AuditReport.After].
func KeepAudit(ctx context.Context, store *sqlstore.Store, scope string, r AuditReport) error {
	all := r.Differences
	r.Differences = nil
	for _, d := range all {
		r.Add(d)
	}
	if r.Compared() {
		text, ok, err := store.Meta().Get(ctx, ofScope(comparisonName, scope))
		if err != nil {
			return fmt.Errorf("keep the %s: %w", comparisonName, err)
		}
		after := r
		var before AuditReport
		if ok && json.Unmarshal(text, &before) == nil { // what cannot be read is replaced
			after = r.After(before)
		}
		if err := keep(ctx, store, scope, comparisonName, after); err != nil {
			return err
		}
	}
	return keep(ctx, store, scope, auditName, r)
}

// Add keeps a difference, unless there are as many already and none of them is milder:
// of those the last gives way. Those of one severity stay in the order in which they
// came. It does not count. kept: d is among them.
func (r *AuditReport) Add(d audit.Difference) (kept bool) {
	milder := func(of audit.Difference) bool { return grave(of.Severity) < grave(d.Severity) }
	if n := len(r.Differences); n >= mostFindings {
		if !milder(r.Differences[n-1]) {
			return false
		}
		r.Differences = r.Differences[:mostFindings-1]
	}
	at := len(r.Differences)
	for at > 0 && milder(r.Differences[at-1]) {
		at--
	}
	r.Differences = slices.Insert(r.Differences, at, d)
	return true
}

// grave is how grave a severity is: 0 is the mildest.
func grave(s audit.Severity) int {
	return slices.Index([]audit.Severity{audit.Info, audit.Warning, audit.Critical}, s)
}

// After is what stands after r, where before stood: r, unless before is bad and r does
// not cover it. Then before stands, with what r has found too, and is as new as r: who
// has dealt with before has not seen it.
func (r AuditReport) After(before AuditReport) AuditReport {
	if !before.Bad() || r.covers(before) {
		return r
	}
	if !r.Bad() {
		return before
	}
	before.First, before.At, before.By = cmp.Or(before.First, before.At), r.At, r.By
	before.Looks, before.From, before.Lists = before.looks(), time.Time{}, nil
	for _, look := range r.Looks {
		i := slices.IndexFunc(before.Looks, func(l Look) bool { return l.Name == look.Name })
		switch {
		case i >= 0:
			before.Looks[i] = before.Looks[i].and(look)
		case len(before.Looks) > 0 && len(before.Looks) < mostFindings: // none are covered by nothing, and stay so
			before.Looks = append(before.Looks, look)
		}
	}
	fresh := map[audit.Kind]int64{}
	var bad int64
	for _, d := range r.Differences {
		same := func(b audit.Difference) bool {
			return b.Kind == d.Kind && b.Key == d.Key && b.Reference == d.Reference && b.Other == d.Other
		}
		if !slices.ContainsFunc(before.Differences, same) && before.Add(d) {
			fresh[d.Kind]++
			bad += int64(b2i(d.Severity != audit.Info))
		}
	}
	// Of what there was no room for nobody knows whether it was counted before. There
	// are as many as r has, at least.
	counts := map[audit.Kind]int64{}
	for _, of := range []map[audit.Kind]int64{before.Total.Differences, r.Total.Differences, fresh} {
		for kind := range of {
			counts[kind] = max(before.Total.Differences[kind]+fresh[kind], r.Total.Differences[kind])
		}
	}
	t := &before.Total
	t.Differences, t.Bad = counts, max(t.Bad+bad, r.Total.Bad)
	t.DoubleCharged = max(t.DoubleCharged+fresh[audit.ChargedTwice], r.Total.DoubleCharged)
	t.Lost = max(t.Lost+fresh[audit.Lost], r.Total.Lost)
	return before
}

// covers reports whether r has looked at all that other has. What nobody knows to have
// been looked at is not covered.
func (r AuditReport) covers(other AuditReport) bool {
	looks := other.looks()
	for _, one := range looks {
		if !slices.ContainsFunc(r.Looks, func(l Look) bool { return l.covers(one) }) {
			return false
		}
	}
	return len(looks) > 0
}

// looks are what r has looked at, as far as it is known of one that an earlier version
// has kept.
func (r AuditReport) looks() []Look {
	if len(r.Looks) > 0 || len(r.Lists) == 0 {
		return r.Looks
	}
	var looks []Look
	for _, name := range r.Lists {
		looks = append(looks, Look{Name: name, First: r.From, Last: r.At})
	}
	if r.Total.Payments > 0 {
		looks = append(looks, Look{Name: LookPayments, First: r.From, Last: r.At})
	}
	if r.Total.Messages > 0 || r.Total.Lost > 0 {
		looks = append(looks, Look{Name: LookMessages, Last: r.At})
	}
	return looks
}

// Compared reports whether r is of a comparison with a provider's list that had
// something in it.
func (r AuditReport) Compared() bool { return r.Exports > len(r.Total.Empty) }

// Critical is how many differences are about money that moved, or may have, and is
// not where it should be.
func (r AuditReport) Critical() (n int64) {
	kinds, severities := audit.Kinds()
	for i, kind := range kinds {
		if severities[i] == audit.Critical {
			n += r.Total.Differences[kind]
		}
	}
	return n
}

// Bad reports whether r says that somebody was charged too often, that a message is
// lost, or another critical difference, and nobody has dealt with it.
func (r AuditReport) Bad() bool {
	if r.Dealt != nil {
		return false
	}
	return r.Critical() > 0 || r.Total.DoubleCharged > 0 || r.Total.Lost > 0
}

// KeepDoctor keeps a report of the installation of that scope in place of the one
// before.
func KeepDoctor(ctx context.Context, store *sqlstore.Store, scope string, r DoctorReport) error {
	if more := len(r.Findings) - mostFindings; more > 0 {
		r.Findings, r.Left = r.Findings[:mostFindings], more
	}
	return keep(ctx, store, scope, doctorName, r)
}

// ofScope is where the findings of that name are kept for an installation: two on
// one table have each its own.
func ofScope(name, scope string) string {
	if scope == "" {
		return name
	}
	return name + " of " + scope
}

func keep(ctx context.Context, store *sqlstore.Store, scope, name string, report any) error {
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("keep the %s: %w", name, err)
	}
	return store.Meta().Set(ctx, ofScope(name, scope), text)
}

func (d *Dashboard) last(ctx context.Context, name string, into any) (bool, error) {
	text, ok, err := d.o.Store.Meta().Get(ctx, ofScope(name, d.o.Scope))
	if err != nil || !ok {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("the %s cannot be read: %w; make a new one, with --publish", name, err)
	}
	return true, nil
}

// lastAudits are the last audit, and the comparison with a provider's list that stands
// where that is another one; nil: there is none.
func (d *Dashboard) lastAudits(ctx context.Context) (last, compared *AuditReport, err error) {
	var found [2]*AuditReport
	for i, name := range []string{auditName, comparisonName} {
		var r AuditReport
		ok, err := d.last(ctx, name, &r)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			found[i] = &r
		}
	}
	last, compared = found[0], found[1]
	if last != nil && compared != nil && last.At.Equal(compared.At) && last.Compared() {
		last, compared = compared, nil // with what was done about it
	}
	return last, compared, nil
}

// running is what was begun by a page and goes on behind it: one of a kind at a
// time.
type running struct {
	mu      sync.Mutex
	since   map[string]time.Time
	failure map[string]string
}

// begin runs job behind the page, unless it runs already.
func (r *running) begin(name string, job func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since == nil {
		r.since, r.failure = map[string]time.Time{}, map[string]string{}
	}
	if !r.since[name].IsZero() {
		return
	}
	r.since[name], r.failure[name] = time.Now(), ""
	go func() {
		err := job()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.since, name)
		if err != nil {
			r.failure[name] = err.Error()
		}
	}()
}

func (r *running) state(name string) (since time.Time, failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since[name], r.failure[name]
}

// check is what a page of a report says of the next one.
type check struct {
	Running time.Time // it runs since; zero: none runs
	Failure string    // why the last one that was begun here has no report
	CanRun  bool
}

func (d *Dashboard) check(name string, run func(context.Context) error) check {
	c := check{CanRun: run != nil}
	c.Running, c.Failure = d.running.state(name)
	return c
}

// part is the part of a list that a page has room for.
type part struct {
	From, To int
	Next     string // address of the page behind it; empty: this is the last
	Whole    int
}

// perReport is how many of them a page has: each may be long.
const perReport = 30

// partOf is the part of n things that the address asks for.
func partOf(r *http.Request, n int) part {
	from, err := strconv.Atoi(r.FormValue("from"))
	if err != nil || from < 0 || from >= n {
		from = 0
	}
	p := part{From: from, To: min(from+perReport, n), Whole: n}
	if p.To < n {
		next := r.URL.Query()
		next.Set("from", strconv.Itoa(p.To))
		p.Next = r.URL.Path + "?" + next.Encode()
	}
	return p
}

// First is the number of the first of them, from 1 on.
func (p part) First() int { return p.From + 1 }

// Some reports whether p is not all there is.
func (p part) Some() bool { return p.To-p.From < p.Whole }

type auditBody struct {
	check
	Report *AuditReport // nil: there is none yet
	part                // of its differences
	// Compared is the last comparison with a provider's list where the last audit
	// had none; nil: there is none, or it is the report.
	Compared *AuditReport
}

// auditPage shows the last audit, or the last comparison with a provider's list.
func (d *Dashboard) auditPage(w http.ResponseWriter, r *http.Request) {
	last, compared, err := d.lastAudits(r.Context())
	if err != nil {
		d.away(w, r, err)
		return
	}
	body := auditBody{check: d.check(auditName, d.o.Audit), Report: last, Compared: compared}
	if compared != nil && r.FormValue("of") == "comparison" {
		body.Report, body.Compared = compared, nil
	}
	if body.Report != nil {
		body.part = partOf(r, len(body.Report.Differences))
		body.Report.Differences = body.Report.Differences[body.From:body.To]
	}
	d.show(w, r, http.StatusOK, "audit", "Audit", "/audit", body)
}

// auditDealt notes what became of what a comparison has found.
func (d *Dashboard) auditDealt(w http.ResponseWriter, r *http.Request) {
	who, reason := access.From(r.Context()), strings.TrimSpace(r.PostFormValue("reason"))
	wrong := func(status int, what, next string) {
		d.trouble(w, r, status, trouble{What: what, Next: next + " Nothing was noted.", Link: "/audit", Words: "Audit"})
	}
	if reason == "" {
		wrong(http.StatusBadRequest, "There is no reason", "Say what became of it: it is kept under your name.")
		return
	}
	ctx := context.WithoutCancel(r.Context())
	var compared AuditReport
	found, err := d.last(ctx, comparisonName, &compared)
	switch {
	case err != nil:
		d.away(w, r, err)
		return
	case !found || !compared.Bad() || strconv.FormatInt(compared.At.UnixMicro(), 10) != r.PostFormValue("at"):
		wrong(http.StatusConflict, "There is another comparison now", "Look at it again.")
		return
	}
	text := fmt.Sprintf("the comparison of %s: %s", compared.At.UTC().Format(time.RFC3339), reason)
	if err := d.o.Store.Note(ctx, zabor.Key{Scope: d.o.Scope}, zabor.Note{Kind: comparisonDealt, By: who.Name, Text: text}); err != nil {
		d.away(w, r, err)
		return
	}
	compared.Dealt = &Dealt{By: who.Name, At: time.Now().UTC(), Reason: reason}
	if err := keep(ctx, d.o.Store, d.o.Scope, comparisonName, compared); err != nil {
		d.away(w, r, err)
		return
	}
	d.o.Log.Info("a comparison was dealt with on the dashboard", "by", who.Name, "reason", reason)
	http.Redirect(w, r, "/audit", http.StatusSeeOther)
}

type doctorBody struct {
	check
	Report *DoctorReport // nil: there is none yet
	part                 // of its findings
}

func (d *Dashboard) doctorPage(w http.ResponseWriter, r *http.Request) {
	var report DoctorReport
	ok, err := d.last(r.Context(), doctorName, &report)
	if err != nil {
		d.away(w, r, err)
		return
	}
	body := doctorBody{check: d.check(doctorName, d.o.Doctor)}
	if ok {
		body.part = partOf(r, len(report.Findings))
		report.Findings = report.Findings[body.From:body.To]
		body.Report = &report
	}
	d.show(w, r, http.StatusOK, "doctor", "Doctor", "/doctor", body)
}

func (d *Dashboard) runAudit(w http.ResponseWriter, r *http.Request) {
	d.run(w, r, auditName, "/audit", d.o.Audit)
}

func (d *Dashboard) runDoctor(w http.ResponseWriter, r *http.Request) {
	d.run(w, r, doctorName, "/doctor", d.o.Doctor)
}

// longestRun bounds what a page begins and does not wait for.
const longestRun = 30 * time.Minute

func (d *Dashboard) run(w http.ResponseWriter, r *http.Request, name, back string, job func(context.Context) error) {
	if job == nil {
		d.nothing(w, r)
		return
	}
	base := context.WithoutCancel(r.Context())
	d.running.begin(name, func() error {
		ctx, cancel := context.WithTimeout(base, longestRun)
		defer cancel()
		return job(ctx)
	})
	http.Redirect(w, r, back, http.StatusSeeOther)
}
