package takeover

import (
	"context"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"zabor"
	"zabor/audit"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/step"
)

// Source counts the entries of one source. Read is the sum of Settled,
// Row, Held, Contradicted and Skipped. Its JSON is documented.
type Source struct {
	Source       string           `json:"source"` // the payments query, or a file
	Read         int64            `json:"read"`
	Settled      int64            `json:"settled"`      // their rows are written now
	Row          int64            `json:"row"`          // their rows were there, and say the same
	Held         int64            `json:"held"`         // no reference, or not one payment: held for a person now
	Contradicted int64            `json:"contradicted"` // a row contradicts them; it was left alone
	Skipped      int64            `json:"skipped"`      // no key can be made
	Reasons      map[string]int64 `json:"reasons"`      // of Skipped
}

// Problem is a key for a person to look at.
type Problem struct {
	Key    console.Key `json:"key"`
	What   string      `json:"what"`
	Places []string    `json:"places"`
}

// mostProblems bounds the problems kept in memory; the counts have all.
const mostProblems = 100

// Payments is an import of payments from before zabor: each becomes a settled row.
type Payments struct {
	*Importer
	Ledger   *audit.Ledger
	fallback string // step of entries without one; empty: the only step
	Sources  []Source
	// At most mostProblems of each kind.
	Problems []Problem
	Unsure   int64 // keys with several payments, or a row against them
	mu       sync.Mutex
}

// PaymentsFrom says where payments are read.
type PaymentsFrom struct {
	Query   string         // a SELECT on the application's database; may be empty
	Exports []audit.Export // of providers
	Step    string         // of payments without a step; empty: the only configured one
}

// Payments reads payments and writes their rows. The ledger is the caller's to close. nil
// means no payments in from.
func (i *Importer) Payments(ctx context.Context, from PaymentsFrom, databases *connect.Databases) (*Payments, error) {
	if from.Query == "" && len(from.Exports) == 0 {
		return nil, nil
	}
	if from.Step != "" && !slices.ContainsFunc(i.steps, func(s *step.Step) bool { return s.Name() == from.Step }) {
		return nil, exit.Usage(fmt.Errorf("--step %s: no such step in %s", from.Step, i.file.Path), "")
	}
	ledger, err := audit.Open("")
	if err != nil {
		return nil, exit.Usage(err, "")
	}
	p := &Payments{Importer: i, Ledger: ledger, fallback: from.Step}
	if err := p.read(ctx, from, databases); err != nil {
		return nil, joinClose(err, ledger)
	}
	if err := p.write(ctx); err != nil {
		return nil, joinClose(err, ledger)
	}
	i.payments = p
	return p, nil
}

func joinClose(err error, c io.Closer) error {
	_ = c.Close() // a temporary file
	return err
}

// read puts all evidence into the ledger.
func (p *Payments) read(ctx context.Context, from PaymentsFrom, databases *connect.Databases) error {
	seen := func(what string) func(int64) {
		return func(n int64) { p.say("\r%s: %d read%20s", what, n, "") }
	}
	add := func(name string, entries iter.Seq2[audit.Evidence, error], hint string) error {
		p.Sources = append(p.Sources, Source{Source: name, Reasons: map[string]int64{}})
		n := len(p.Sources) - 1
		read, err := p.Ledger.AddEvidence(ctx, n, p.keyed(n, entries), seen(name))
		if err != nil {
			return exit.Usage(err, hint+"; nothing was written")
		}
		p.Sources[n].Read = read + p.Sources[n].Skipped
		return nil
	}
	if from.Query != "" {
		application, err := databases.At("", "database")
		if err != nil {
			return err
		}
		entries := evidence(audit.QueryPayments(ctx, application, from.Query, len(from.Exports) == 0), audit.Payment.Evidence)
		if err := add("--payments-query", entries, "the query must give a column order, and may give scope, step, reference, amount or major, currency"); err != nil {
			return err
		}
	}
	for _, e := range from.Exports {
		entries := evidence(e.Successes(), audit.Success.Evidence)
		if err := add(filepath.Base(e.Path), entries, "mend the line, or say with --columns what the columns mean"); err != nil {
			return err
		}
	}
	if err := p.Ledger.JoinEvidence(ctx); err != nil {
		return err
	}
	n := 0
	for e, err := range p.Ledger.Homeless(ctx) {
		if err != nil {
			return err
		}
		if n++; n <= mostProblems {
			p.log.Warn("a payment without an order, of which nobody else says whose it is", "reference", e.Reference, "place", e.Place)
		}
		p.skip(e.Source, "it names no order")
	}
	p.say("\r%79s\r", "")
	return nil
}

// evidence gives a list of payments as evidence, up to its first error.
func evidence[T any](all iter.Seq2[T, error], of func(T) audit.Evidence) iter.Seq2[audit.Evidence, error] {
	return func(yield func(audit.Evidence, error) bool) {
		for one, err := range all {
			if !yield(of(one), err) || err != nil {
				return
			}
		}
	}
}

func (p *Payments) skip(source int, reason string) {
	p.Sources[source].Skipped++
	p.Sources[source].Reasons[reason]++
}

// keyed gives entries their whole keys. An entry without a possible key, or with money
// going back, is counted as skipped. An entry without an order may still be found by
// its reference.
func (p *Payments) keyed(source int, entries iter.Seq2[audit.Evidence, error]) iter.Seq2[audit.Evidence, error] {
	return func(yield func(audit.Evidence, error) bool) {
		for e, err := range entries {
			why := ""
			switch {
			case err != nil:
			case e.Amount.Minor < 0:
				why = "its amount is below zero: money that went back"
			case e.Key.Order != "":
				e.Key, why = p.key(e)
			}
			if why != "" {
				p.skip(source, why)
				continue
			}
			if !yield(e.WithoutPlaceholder(), err) {
				return
			}
		}
	}
}

// key returns the whole key of e, or why it has no key.
func (p *Payments) key(e audit.Evidence) (k zabor.Key, why string) {
	name, part, hasPart := strings.Cut(e.Key.Step, ":")
	if name == "" {
		name = p.fallback
	}
	var s *step.Step
	for _, one := range p.steps {
		switch {
		case name == one.Name():
			s = one
		case name == "" && s != nil && s.Name() != one.Name():
			return k, "it names no step, and there are several: --step NAME says which"
		case name == "":
			s = one
		}
	}
	switch {
	case s == nil:
		return k, "its step is not configured"
	case s.HasPart() && (!hasPart || part == ""):
		return k, fmt.Sprintf("step %s has parts, and it names none: write %s:PART", s.Name(), s.Name())
	case hasPart && !s.HasPart():
		return k, fmt.Sprintf("step %s has no parts, and it names one", s.Name())
	}
	k = zabor.Key{Scope: p.file.Scope, Order: e.Key.Order, Step: s.Name()}
	if hasPart {
		k.Step += ":" + part
	}
	inner := strings.TrimPrefix(e.Key.Scope, p.file.Scope+"/")
	switch {
	case s.HasScope() && (inner == "" || inner == p.file.Scope):
		return k, fmt.Sprintf("step %s has a scope, and it names none", s.Name())
	case s.HasScope():
		k.Scope = step.JoinScope(p.file.Scope, inner)
	}
	if err := k.Validate(); err != nil {
		return k, err.Error()
	}
	return k, ""
}

// writers is how many rows are written at a time: they share commits.
const writers = 16

// write makes the rows of all keys.
func (p *Payments) write(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan audit.Claimed)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for c := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := p.one(ctx, c); err != nil {
					cancel(err)
				}
			}
		})
	}
	n := 0
	var failed error
	for c, err := range p.Ledger.Claimed(ctx) {
		if failed = err; err != nil {
			break
		}
		if n++; n%100 == 0 {
			p.say("\rpayments: %d keys", n)
		}
		work <- c
	}
	close(work)
	wg.Wait()
	p.say("\r%79s\r", "")
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return failed
}

// one makes the row of one key. If the evidence cannot be one payment, the row is held
// for a person.
func (p *Payments) one(ctx context.Context, c audit.Claimed) error {
	where := strings.Join(c.Places, ", ")
	if c.Against == "" {
		var err error
		if c.Against, err = p.elsewhere(ctx, c); err != nil {
			return exit.Store(err)
		}
	}
	paid := zabor.Payment{
		Key: c.Key, Provider: c.Provider, Amount: c.Amount, Reference: c.Reference, Aliases: c.Aliases,
		Contradicted: c.Against != "", Reason: "paid before zabor came: " + where,
	}
	against := c.Against
	if against == "" && c.Reference == "" {
		against = "a payment without a reference"
	}
	if against != "" {
		paid.Reason = against + ": " + where
	}
	var row zabor.Row
	var written bool
	var err error
	if p.readOnly {
		row, written, err = p.plan(ctx, paid)
	} else {
		row, written, err = p.fence.ImportPayment(ctx, paid)
	}
	if err != nil {
		return exit.Store(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(c.Key)
	count := func(field func(*Source) *int64) {
		for n, pieces := range c.From {
			*field(&p.Sources[n]) += pieces
		}
	}
	imported := row.Cause == zabor.ByImport || row.Cause == zabor.ByConflict
	switch {
	case written && row.State == zabor.Held:
		count(func(s *Source) *int64 { return &s.Held })
	case written:
		count(func(s *Source) *int64 { return &s.Settled })
	case paid.Agrees(row),
		against != "" && row.State == zabor.Held && imported,
		against != "" && c.Against == "" && row.State == zabor.Settled:
		count(func(s *Source) *int64 { return &s.Row })
	default:
		count(func(s *Source) *int64 { return &s.Contradicted })
		against = fmt.Sprintf("the row is %s (%s), and the payment is %s", row.State, rowText(row), paidText(paid))
		c.Against = against
	}
	if c.Against != "" {
		p.Unsure++
	}
	if against != "" && len(p.Problems) < mostProblems {
		p.Problems = append(p.Problems, Problem{console.NewKey(c.Key), against, c.Places})
	}
	return nil
}

// elsewhere says why c cannot be a payment of its own: the row of another order has its
// reference. The row is left as it is. Another step of the same order may have the
// reference, as after a rename. Empty: no row has it.
func (p *Payments) elsewhere(ctx context.Context, c audit.Claimed) (against string, err error) {
	for _, id := range append([]string{c.Reference}, c.Aliases...) {
		if id == "" {
			continue
		}
		rows, err := p.store.Reports().OfReference(ctx, p.file.Scope, id, 0)
		if err != nil {
			return "", err
		}
		for _, row := range rows {
			other := row.Scope != c.Key.Scope || row.Order != c.Key.Order
			if other && (row.Provider == "" || c.Provider == "" || row.Provider == c.Provider) {
				return fmt.Sprintf("the reference %s is that of %s/%s too, whose row had it before and stays %s", id, row.Order, row.Step, row.State), nil
			}
		}
	}
	return "", nil
}

// plan returns the row of paid, and whether one would write it. It is a dry run.
func (p *Payments) plan(ctx context.Context, paid zabor.Payment) (row zabor.Row, written bool, err error) {
	there, err := p.store.Reports().Row(ctx, paid.Key)
	if err != nil {
		return zabor.Row{}, false, err
	}
	row, written = paid.Plan(there)
	return row, written, nil
}

func rowText(row zabor.Row) string {
	return strings.TrimSpace(strings.Join([]string{row.Reference, console.Money(row.Amount)}, " "))
}

func paidText(p zabor.Payment) string {
	return strings.TrimSpace(strings.Join([]string{p.Reference, console.Money(p.Amount)}, " "))
}
