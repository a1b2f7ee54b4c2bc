package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"zabor/audit"
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
}

// DoctorReport is what the doctor has found, as it is kept for people.
type DoctorReport struct {
	At       time.Time        `json:"at"`
	By       string           `json:"by"`
	Findings []doctor.Finding `json:"findings"`
	Left     int              `json:"left"` // findings that are not kept
	Failed   string           `json:"failed,omitempty"`
}

// KeepAudit keeps a report of the installation of that scope in place of the one
// before. One of a comparison with a
// provider's list is kept beside it too, until there is a newer comparison: what such
// a list has shown is not undone by an audit that had none.
func KeepAudit(ctx context.Context, store *sqlstore.Store, scope string, r AuditReport) error {
	r.Differences = r.Differences[:min(len(r.Differences), mostFindings)]
	if r.Compared() {
		if err := keep(ctx, store, scope, comparisonName, r); err != nil {
			return err
		}
	}
	return keep(ctx, store, scope, auditName, r)
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
// lost, or another critical difference.
func (r AuditReport) Bad() bool {
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
	return store.SetMeta(ctx, ofScope(name, scope), text)
}

func (d *Dashboard) last(ctx context.Context, name string, into any) (bool, error) {
	text, ok, err := d.o.Store.Meta(ctx, ofScope(name, d.o.Scope))
	if err != nil || !ok {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("the %s cannot be read: %w; make a new one, with --publish", name, err)
	}
	return true, nil
}

// lastAudits are the last audit, and the last comparison with a provider's list
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
	if last != nil && last.Compared() {
		compared = nil
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
