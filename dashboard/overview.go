package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/dashboard/access"
	"zabor/sqlstore"
)

// Status is what a process says of itself while it is alive, as JSON in the
// fence's database.
type Status struct {
	Kind    string            `json:"kind"`  // worker, proxy, serve or dashboard
	Scope   string            `json:"scope"` // the installation's
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	Version string            `json:"version"`
	Lanes   int               `json:"lanes,omitempty"`
	Queues  []string          `json:"queues,omitempty"`
	Calls   map[string]Breaks `json:"calls,omitempty"` // by provider that it calls
}

// Breaks is the breaker of a provider in one process.
type Breaks struct {
	Until time.Time `json:"until,omitzero"` // nothing is sent before; zero: it is called
	Why   string    `json:"why,omitempty"`
}

// every is how often a process says that it is alive.
const every = 10 * time.Second

// Tell tells every ten seconds that a process is alive until ctx ends, and then
// that it has ended. An error is told to warn, and the telling goes on: nothing
// depends on it.
func Tell(ctx context.Context, store *sqlstore.Store, id [16]byte, status func() Status, warn func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for failed := false; ; {
		text, err := json.Marshal(status())
		if err == nil {
			err = store.Processes().Alive(ctx, id, text)
		}
		if err != nil && !failed && ctx.Err() == nil {
			warn(err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			_ = store.Processes().Gone(ctx, id)
			cancel()
			return
		case <-tick.C:
		}
	}
}

// process is a process as the overview shows it.
type process struct {
	Status
	Started, Seen time.Time
	Late          bool // it should have been heard of
}

func (d *Dashboard) processes(ctx context.Context) ([]process, error) {
	list, err := d.o.Store.Processes().List(ctx)
	var all []process
	for _, one := range list {
		p := process{Started: one.Started, Seen: one.Seen, Late: one.ReadAt.Sub(one.Seen) > 3*every}
		if json.Unmarshal(one.Status, &p.Status) != nil {
			p.Kind = "unknown"
		} else if d.o.Scope != "" && p.Scope != d.o.Scope {
			continue // its queues and its providers are others
		}
		all = append(all, p)
	}
	return all, err
}

// headline is the number that matters.
type headline struct {
	Successes, Unique int64
	Others            int64         // rows that have two references, and nobody has dealt with them
	Refunded          int64         // those that somebody has dealt with; in none of the numbers
	Undecided         int64         // rows that have a reference, and are neither settled, pending nor declined
	Doubtful          int64         // rows of which it is not known whether they are successes
	UnderWay          int64         // rows whose call runs
	AtRisk            []zabor.Money // the sum of Doubtful, by currency
	Answers           answers       // what processes have read
	AnswersErr        string        // they could not be read
	Counted           time.Time
	Audit, Compared   *AuditReport // see Dashboard.lastAudits
	Err               string       // the rows could not be counted
	AuditErr          string       // what the last audit has found cannot be read
}

// Equal reports whether neither the rows nor the answers that were read contradict it.
func (h headline) Equal() bool { return h.Successes == h.Unique && h.Answers.Lost() == 0 }

// ByAnswers reports whether processes have counted answers. Otherwise the rows are
// all that is known.
func (h headline) ByAnswers() bool { return h.Answers.N > 0 }

// Left is the number of successes.
func (h headline) Left() int64 {
	if h.ByAnswers() {
		return h.Answers.N
	}
	return h.Successes
}

// Right is how many of Left are charged once and have their row.
func (h headline) Right() int64 {
	if h.ByAnswers() {
		return max(0, h.Answers.N-h.Answers.Lost()-(h.Successes-h.Unique))
	}
	return h.Unique
}

// Verdict is what the page says in colour: unequal, where the rows say so or an
// audit does; unknown, where one of them cannot be read; empty or equal, where both
// say nothing else.
func (h headline) Verdict() string {
	switch {
	case h.Err != "":
		return "unknown"
	case !h.Equal() || h.Found() != nil:
		return "unequal"
	case h.AuditErr != "" || h.AnswersErr != "":
		return "unknown"
	case h.Empty() || !h.ByAnswers() && !h.EverCompared():
		return "empty"
	}
	return "equal"
}

// Found is the audit that has found what the rows do not say by themselves; nil:
// none has.
func (h headline) Found() *AuditReport {
	for _, r := range []*AuditReport{h.Compared, h.Audit} {
		if r != nil && r.Bad() {
			return r
		}
	}
	return nil
}

// Audits are the audits that are to be told of, the comparison first.
func (h headline) Audits() (all []*AuditReport) {
	for _, r := range []*AuditReport{h.Compared, h.Audit} {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}

// EverCompared reports whether an audit had a provider's list.
func (h headline) EverCompared() bool {
	return slices.ContainsFunc(h.Audits(), func(r *AuditReport) bool { return r.Compared() })
}

// Old reports whether it was counted long enough ago for a person to be told.
func (h headline) Old() bool { return !h.Counted.IsZero() && time.Since(h.Counted) > 10*time.Second }

func (h headline) Empty() bool { return h.Successes == 0 && h.Unique == 0 && h.Answers.N == 0 }

// tile is a number that wants to be looked at.
type tile struct {
	Name, What, Link, Class string
	N                       int64
	More                    bool // than N
	Oldest                  time.Time
	Unknown                 bool
	Money                   []zabor.Money // the sum of its rows, by currency
}

// providerLine is a provider as the overview shows it.
type providerLine struct {
	Provider
	Paused []pausedAt
	Asked  int // live processes that call it
}

type pausedAt struct {
	Process string
	Breaks
}

type queueLine struct {
	Queue
	Depth
	Err string
}

type overviewPage struct {
	Headline  headline
	Tiles     []tile
	Chart     chart
	ChartErr  string // it could not be counted
	Spans     []string
	Queues    []queueLine
	Providers []providerLine
	Processes []process
	Workers   int // live ones that take messages or calls
	Err       string
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	counts, err := d.unclosed(ctx)
	if err != nil {
		d.away(w, r, err)
		return
	}
	at := slices.IndexFunc(spans[:], func(s span) bool { return s.name == r.FormValue("span") })
	body := overviewPage{}
	for _, s := range spans {
		body.Spans = append(body.Spans, s.name)
	}
	span := spans[max(at, 0)+b2i(at < 0)]
	if body.Chart, err = d.chart(ctx, span); err != nil { // the rest of the page is good without it
		body.Chart, body.ChartErr = chart{Span: span.name}, err.Error()
	}
	body.Headline = d.headline(ctx, counts)
	if body.Processes, _, err = d.numbers.processes.get(ctx, d.processes); err != nil {
		body.Err = err.Error()
	}
	body.Queues, _, _ = d.numbers.queues.get(ctx, func(ctx context.Context) ([]queueLine, error) { return d.queueLines(ctx), nil })
	body.Providers = d.providerLines(body.Processes)
	for _, p := range body.Processes {
		if !p.Late && p.Kind != "dashboard" {
			body.Workers++
		}
	}
	body.Tiles = d.tiles(ctx, counts)
	d.show(w, r, http.StatusOK, "overview", "Overview", "/", body)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *Dashboard) headline(ctx context.Context, counts []sqlstore.StateCount) headline {
	var h headline
	sums, at, err := d.sums(ctx)
	if err != nil {
		h.Err = err.Error()
	}
	h.Successes, h.Unique, h.Counted = sums.Successes(), sums.Unique(), at
	h.Others, h.Undecided = sums.Others, sums.References[""]
	if h.Others > 0 {
		// Where it cannot be read all of them count: rather red than wrong.
		h.Refunded, _ = d.refunded(ctx)
		h.Refunded = min(h.Refunded, h.Others)
		h.Others, h.Successes = h.Others-h.Refunded, h.Successes-h.Refunded
	}
	for _, c := range counts {
		switch c.State {
		case zabor.Doubt, zabor.Held:
			h.Doubtful += c.Rows
		case zabor.Captured:
			h.UnderWay += c.Rows
		}
	}
	if h.Answers, err = d.answers(ctx); err != nil {
		h.AnswersErr = err.Error()
	}
	if sums, err := d.money(ctx); err == nil { // the counts are good without it
		for _, s := range sums {
			if s.State == zabor.Doubt || s.State == zabor.Held {
				h.AtRisk = audit.AddMoney(h.AtRisk, s.Sum)
			}
		}
	}
	if h.Audit, h.Compared, err = d.lastAudits(ctx); err != nil {
		h.AuditErr = err.Error()
	}
	return h
}

func (d *Dashboard) tiles(ctx context.Context, counts []sqlstore.StateCount) []tile {
	by := map[zabor.State]sqlstore.StateCount{}
	for _, c := range counts {
		by[c.State] = c
	}
	sums := map[zabor.State][]zabor.Money{}
	if all, err := d.money(ctx); err == nil { // the counts are good without it
		for _, s := range all {
			sums[s.State] = audit.AddMoney(sums[s.State], s.Sum)
		}
	}
	one := func(s zabor.State, name, what, link, class string) tile {
		c := by[s]
		return tile{Name: name, What: what, Link: link, Class: class, N: c.Rows, Oldest: c.Oldest, Money: sums[s]}
	}
	tiles := []tile{
		one(zabor.Held, "Held", "a person must decide", "/open", "bad"),
		one(zabor.Doubt, "In doubt", "zabor is finding out", "/open#doubt", "warn"),
		one(zabor.Captured, "Under way", "a call runs", "/fences?state=captured", "plain"),
		one(zabor.Pending, "Pending", "no verdict yet", "/fences?state=pending", "plain"),
		one(zabor.Released, "Ready to retry", "called when delivered", "/fences?state=released", "plain"),
	}
	if proposals, err := d.proposals(ctx, access.Identity{}); d.o.SecondPerson {
		t := tile{Name: "Proposed", What: "a second person must confirm", Link: "/open#proposals", Class: "warn", N: int64(len(proposals)), Unknown: err != nil}
		if len(proposals) > 0 {
			t.Oldest = proposals[0].At
		}
		tiles = append(tiles, t)
	}
	if d.o.Failed.List != nil {
		counts, err := d.failedCounts(ctx)
		t := tile{Name: "Failed", What: "messages given up, with the held ones", Link: "/failed", Class: "bad", Unknown: err != nil}
		for _, c := range counts {
			t.N += c.N
			t.More, t.Unknown = t.More || c.More, t.Unknown || c.Err != ""
		}
		tiles = append(tiles, t)
	}
	return tiles
}

// queueWait is how long a queue has to answer a page.
const queueWait = 3 * time.Second

func (d *Dashboard) queueLines(ctx context.Context) []queueLine {
	lines := make([]queueLine, len(d.o.Queues))
	ctx, cancel := context.WithTimeout(ctx, queueWait)
	defer cancel()
	var wg sync.WaitGroup
	for i, q := range d.o.Queues {
		lines[i].Queue = q
		wg.Go(func() {
			var err error
			if lines[i].Depth, err = q.Depth(ctx); err != nil {
				lines[i].Err = err.Error()
			}
		})
	}
	wg.Wait()
	return lines
}

func (d *Dashboard) providerLines(processes []process) []providerLine {
	var lines []providerLine
	for _, p := range d.o.Providers {
		line := providerLine{Provider: p}
		for _, one := range processes {
			b, calls := one.Calls[p.Name]
			if !calls || one.Late {
				continue
			}
			line.Asked++
			if b.Until.After(time.Now()) {
				line.Paused = append(line.Paused, pausedAt{one.Host, b})
			}
		}
		lines = append(lines, line)
	}
	return lines
}
