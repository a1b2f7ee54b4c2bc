package dashboard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/dashboard/access"
	"zabor/sqlstore"
)

// Answers counts the successes that one process reads from providers, apart from
// the rows. Each beat saves the count and compares the latest successes with their
// rows: a success that no row has is an alert. It may be used concurrently.
type Answers struct {
	store *sqlstore.Store
	scope string
	name  string // of its record in zabor_meta
	alert func(zabor.Alert)

	mu      sync.Mutex
	n       int64
	since   time.Time
	saved   int64 // n of the latest record; -1: none was written
	savedAt time.Time
	unsaved int // successes without a row at the latest beat
	latest  []*answered
}

// answered is one success that was read.
type answered struct {
	success
	again   time.Time // next comparison with its row
	missing bool      // at the latest comparison
	alerted bool
}

// success is one success without a row, in the record of its process. The parts of
// a key are any bytes.
type success struct {
	Scope     []byte      `json:"scope"`
	Order     []byte      `json:"order"`
	Step      []byte      `json:"step"`
	Provider  string      `json:"provider"`
	Reference string      `json:"reference"`
	Amount    zabor.Money `json:"amount"`
	At        time.Time   `json:"at"`
}

func (s success) Key() zabor.Key {
	return zabor.Key{Scope: string(s.Scope), Order: string(s.Order), Step: string(s.Step)}
}

// in reports whether the row of s has its reference, as the first or the other one.
func (s success) in(references map[zabor.Key][2]string) bool {
	refs := references[s.Key()]
	return refs[0] == s.Reference || refs[1] == s.Reference
}

// record is what a process has counted, as it is in zabor_meta.
type record struct {
	Scope   string    `json:"scope"`
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"`
	N       int64     `json:"n"`
	Unsaved int       `json:"unsaved,omitempty"` // all of them; Missing has the first ones
	Missing []success `json:"missing,omitempty"`
}

const (
	answersPrefix = "answers/"
	// saveWithin is how long a read success may be on its way into its row.
	saveWithin = 2 * time.Second
	// compareFor is how long a success is compared with its row again and again: a
	// failover of the database can lose rows that were committed.
	compareFor = 10 * time.Minute
	// compareEvery is the time between two comparisons of a success whose row was there.
	compareEvery = time.Minute
	// mostLatest is how many successes wait for comparison; the oldest are left out.
	mostLatest = 5000
	// mostMissing is how many successes without a row a record names.
	mostMissing = 50
)

// NewAnswers makes the counter of a process. alert is told of each success that has no
// row at two beats in a row, once.
func NewAnswers(store *sqlstore.Store, scope string, alert func(zabor.Alert)) *Answers {
	var id [16]byte
	rand.Read(id[:])
	return &Answers{store: store, scope: scope, name: answersPrefix + hex.EncodeToString(id[:]), alert: alert, since: time.Now().UTC(), saved: -1}
}

// Count returns called with a's counting, for [zabor.Observer].Called. called may be nil.
func (a *Answers) Count(called func(zabor.Row, zabor.Outcome, time.Duration)) func(zabor.Row, zabor.Outcome, time.Duration) {
	return func(row zabor.Row, o zabor.Outcome, took time.Duration) {
		if o.Reference != "" && (o.Verdict == zabor.Done || o.Verdict == zabor.Begun) {
			a.add(row, o.Reference)
		}
		if called != nil {
			called(row, o, took)
		}
	}
}

func (a *Answers) add(row zabor.Row, reference string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	if len(a.latest) >= mostLatest {
		at := max(0, slices.IndexFunc(a.latest, func(one *answered) bool { return !one.missing }))
		a.latest = slices.Delete(a.latest, at, at+1)
	}
	a.latest = append(a.latest, &answered{success: success{
		Scope: []byte(row.Scope), Order: []byte(row.Order), Step: []byte(row.Step), Provider: row.Provider, Reference: reference, Amount: row.Amount, At: now.UTC(),
	}, again: now.Add(saveWithin)})
}

// Unsaved is how many successes had no row at the latest beat.
func (a *Answers) Unsaved() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unsaved
}

// Run beats every ten seconds until ctx ends, and once more then. An error is told
// to warn, once until a beat works again: the next beat saves everything.
func (a *Answers) Run(ctx context.Context, warn func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failed, folded := false, false
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			err := a.Beat(ctx, time.Now())
			if err == nil && !folded {
				err, folded = a.fold(ctx, time.Now()), true
			}
			if err != nil && !failed && ctx.Err() == nil {
				warn(err)
			}
			failed = err != nil
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := a.Beat(last, time.Now()); err != nil && !failed {
		warn(err)
	}
}

// Beat compares the successes that are due at now with their rows, and saves the
// count. If nothing has changed it is written once a day, lest it is folded.
func (a *Answers) Beat(ctx context.Context, now time.Time) error {
	a.mu.Lock()
	var due []*answered
	var keys []zabor.Key
	for _, one := range a.latest {
		if one.missing || !one.again.After(now) {
			due = append(due, one)
			keys = append(keys, one.Key())
		}
	}
	a.mu.Unlock()
	there, err := a.store.Reports().References(ctx, keys)
	if err != nil {
		return fmt.Errorf("compare the answers of providers with the rows: %w", err)
	}
	before := a.Unsaved()
	for _, one := range a.compared(due, there, now) {
		a.alert(zabor.Alert{
			Severity: zabor.Critical, Code: "answer-without-row", Key: one.Key(), Amount: one.Amount, Provider: one.Provider,
			Text: fmt.Sprintf("%s answered with the success %s, and no row has it", one.Provider, one.Reference),
			Next: one.Key().ShowCommand(),
		})
	}
	a.mu.Lock()
	r := record{Scope: a.scope, Since: a.since, At: now.UTC(), N: a.n, Unsaved: a.unsaved}
	for _, one := range a.latest {
		if one.missing && len(r.Missing) < mostMissing {
			r.Missing = append(r.Missing, one.success)
		}
	}
	same := a.saved == a.n && r.Unsaved == 0 && before == 0 && now.Sub(a.savedAt) < foldAfter/7 || a.n == 0
	a.mu.Unlock()
	if same {
		return nil
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = a.store.Meta().Set(ctx, a.name, text)
	}
	if err != nil {
		return fmt.Errorf("save the count of providers' answers: %w", err)
	}
	a.mu.Lock()
	a.saved, a.savedAt = r.N, now
	a.mu.Unlock()
	return nil
}

// foldAfter is how long a process has written nothing before its record is folded.
const foldAfter = 7 * 24 * time.Hour

// fold adds the records of ended processes of this installation into one, so that their
// number does not grow with each start. A record that names missing successes stays. If
// another process folds at the same time, one of them does nothing.
func (a *Answers) fold(ctx context.Context, now time.Time) error {
	records, err := a.store.Meta().All(ctx, answersPrefix)
	if err != nil {
		return fmt.Errorf("fold the counts of providers' answers: %w", err)
	}
	into := answersPrefix + "ended " + a.scope
	all, old := record{Scope: a.scope}, map[string][]byte{}
	for name, text := range records {
		var r record
		if json.Unmarshal(text, &r) != nil || r.Scope != a.scope || r.Unsaved > 0 || name != into && now.Sub(r.At) < foldAfter {
			continue
		}
		old[name] = text
		all.N += r.N
		if all.Since.IsZero() || r.Since.Before(all.Since) {
			all.Since = r.Since
		}
		if r.At.After(all.At) {
			all.At = r.At
		}
	}
	if _, there := old[into]; len(old) == 0 || there && len(old) == 1 {
		return nil
	}
	text, err := json.Marshal(all)
	if err == nil {
		_, err = a.store.Meta().Replace(ctx, old, into, text)
	}
	if err != nil {
		return fmt.Errorf("fold the counts of providers' answers: %w", err)
	}
	return nil
}

// compared notes which of due are in their rows. It returns those that a person must
// be told of: missing for the second time.
func (a *Answers) compared(due []*answered, there map[zabor.Key][2]string, now time.Time) (fresh []success) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range due {
		missing := !one.in(there)
		if missing && one.missing && !one.alerted {
			one.alerted = true
			fresh = append(fresh, one.success)
		}
		one.missing, one.again = missing, now.Add(compareEvery)
	}
	a.latest = slices.DeleteFunc(a.latest, func(one *answered) bool { return !one.missing && now.Sub(one.At) > compareFor })
	a.unsaved = 0
	for _, one := range a.latest {
		if one.missing {
			a.unsaved++
		}
	}
	return fresh
}

// answers is what all processes of the installation have read.
type answers struct {
	N       int64
	Since   time.Time // the first counting
	Missing []success // no row has them, and nobody has dealt with them
	More    int       // beside Missing
}

// Money sums the missing successes by currency.
func (a answers) Money() []zabor.Money {
	var sums []zabor.Money
	for _, s := range a.Missing {
		sums = audit.AddMoney(sums, s.Amount)
	}
	return sums
}

func (a answers) Lost() int64 { return int64(len(a.Missing) + a.More) }

// answers reads the records of all processes, and compares the missing successes with
// their rows again: the process that missed them may be gone.
func (d *Dashboard) answers(ctx context.Context) (answers, error) {
	all, _, err := d.numbers.answers.get(ctx, d.readAnswers)
	return all, err
}

func (d *Dashboard) readAnswers(ctx context.Context) (answers, error) {
	var all answers
	records, err := d.o.Store.Meta().All(ctx, answersPrefix)
	if err != nil {
		return all, err
	}
	var missing []success
	var keys []zabor.Key
	for _, text := range records {
		var r record
		if json.Unmarshal(text, &r) != nil || d.o.Scope != "" && !(zabor.Key{Scope: r.Scope}).In(d.o.Scope) {
			continue
		}
		all.N += r.N
		if all.Since.IsZero() || r.Since.Before(all.Since) {
			all.Since = r.Since
		}
		missing = append(missing, r.Missing...)
		all.More += r.Unsaved - len(r.Missing)
	}
	for _, s := range missing {
		keys = append(keys, s.Key())
	}
	there, err := d.o.Store.Reports().References(ctx, keys)
	if err != nil {
		return answers{}, err
	}
	for _, s := range missing {
		if s.in(there) {
			continue
		}
		notes, err := d.o.Store.History().Of(ctx, s.Key())
		if err != nil {
			return answers{}, err
		}
		if !slices.ContainsFunc(notes, func(n zabor.Note) bool {
			return n.Kind == answerDealt && strings.HasPrefix(n.Text, s.Reference+": ")
		}) {
			all.Missing = append(all.Missing, s)
		}
	}
	slices.SortFunc(all.Missing, func(a, b success) int { return a.At.Compare(b.At) })
	return all, nil
}

// answerDealt is the kind of a note that a person has dealt with a success without
// a row. Its text begins with the reference.
const answerDealt = "answer-dealt"

// answerDealtWith notes what became of a success that no row has.
func (d *Dashboard) answerDealtWith(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(url.Values{"scope": {r.PostFormValue("scope")}, "order": {r.PostFormValue("order")}, "step": {r.PostFormValue("step")}})
	reference, reason := r.PostFormValue("reference"), strings.TrimSpace(r.PostFormValue("reason"))
	if err != nil || reference == "" || reason == "" || !key.In(d.o.Scope) {
		d.trouble(w, r, http.StatusBadRequest, trouble{What: "This form is not complete", Next: "Say what became of the payment. Nothing was noted.", Link: "/", Words: "To the overview"})
		return
	}
	who := access.From(r.Context())
	if err := d.o.Store.Note(context.WithoutCancel(r.Context()), key, zabor.Note{Kind: answerDealt, By: who.Name, Text: reference + ": " + reason}); err != nil {
		d.away(w, r, err)
		return
	}
	d.o.Log.Info("a success without a row was dealt with", "by", who.Name, "order", key.Order, "step", key.Step, "scope", key.Scope, "reference", reference, "reason", reason)
	d.changed()
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
