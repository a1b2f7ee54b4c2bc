package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"zabor/audit"
	"zabor/doctor"
	"zabor/sqlstore"
)

// Where the last findings are kept, in the fence's table of settings.
const (
	auditName  = "last audit"
	doctorName = "last doctor"
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

// KeepAudit keeps a report in place of the one before.
func KeepAudit(ctx context.Context, store *sqlstore.Store, r AuditReport) error {
	r.Differences = r.Differences[:min(len(r.Differences), mostFindings)]
	return keep(ctx, store, auditName, r)
}

// KeepDoctor keeps a report in place of the one before.
func KeepDoctor(ctx context.Context, store *sqlstore.Store, r DoctorReport) error {
	if more := len(r.Findings) - mostFindings; more > 0 {
		r.Findings, r.Left = r.Findings[:mostFindings], more
	}
	return keep(ctx, store, doctorName, r)
}

func keep(ctx context.Context, store *sqlstore.Store, name string, report any) error {
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("keep the %s: %w", name, err)
	}
	return store.SetMeta(ctx, name, text)
}

func (d *Dashboard) last(ctx context.Context, name string, into any) (bool, error) {
	text, ok, err := d.o.Store.Meta(ctx, name)
	if err != nil || !ok {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("the %s cannot be read: %w; run it again", name, err)
	}
	return true, nil
}

func (d *Dashboard) lastAudit(ctx context.Context) (r AuditReport, ok bool, err error) {
	ok, err = d.last(ctx, auditName, &r)
	return r, ok, err
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

// checkPage is the page of a report that is kept.
type checkPage[R any] struct {
	Report  *R // nil: there is none yet
	Running time.Time
	Failure string
	CanRun  bool
}

// showCheck shows the report of that name, on the page that is named like its template.
func showCheck[R any](d *Dashboard, w http.ResponseWriter, r *http.Request, name, title string, run func(context.Context) error) {
	var report R
	ok, err := d.last(r.Context(), name, &report)
	if err != nil {
		d.away(w, r, err)
		return
	}
	body := checkPage[R]{CanRun: run != nil}
	body.Running, body.Failure = d.running.state(name)
	if ok {
		body.Report = &report
	}
	page := strings.ToLower(title)
	d.show(w, r, http.StatusOK, page, title, "/"+page, body)
}

func (d *Dashboard) auditPage(w http.ResponseWriter, r *http.Request) {
	showCheck[AuditReport](d, w, r, auditName, "Audit", d.o.Audit)
}

func (d *Dashboard) doctorPage(w http.ResponseWriter, r *http.Request) {
	showCheck[DoctorReport](d, w, r, doctorName, "Doctor", d.o.Doctor)
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
