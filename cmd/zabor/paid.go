package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"zabor"
	"zabor/audit"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/provider"
	"zabor/step"
)

// What was charged before zabor came, as the application's payments and a
// provider's export tell it, becomes settled rows.

// paidSource counts what became of the entries of one source. Read is the sum of
// Settled, Row, Held, Contradicted and Skipped.
type paidSource struct {
	Source       string           `json:"source"` // the payments query, or a file
	Read         int64            `json:"read"`
	Settled      int64            `json:"settled"`      // their rows are written now
	Row          int64            `json:"row"`          // their rows were there, and say the same
	Held         int64            `json:"held"`         // no reference, or not one payment: held for a person now
	Contradicted int64            `json:"contradicted"` // there is a row that says something else; it was left alone
	Skipped      int64            `json:"skipped"`      // no key can be made
	Reasons      map[string]int64 `json:"reasons"`      // of Skipped
}

// paidProblem is a key for which a person is wanted.
type paidProblem struct {
	Key    console.Key `json:"key"`
	What   string      `json:"what"`
	Places []string    `json:"places"`
}

// mostProblems bounds what is kept in memory and printed; the counts have all.
const mostProblems = 100

// paidImport is one import of payments.
type paidImport struct {
	*importer
	ledger   *audit.Ledger
	fallback string // step of entries that name none; empty: the one that there is
	sources  []paidSource
	// At most mostProblems of each kind.
	problems []paidProblem
	unsure   int64 // keys that cannot be one payment, or whose row says something else
	mu       sync.Mutex
}

// importPaid reads the evidence that c names and writes its rows. The ledger is the
// caller's to close; nil: there is no evidence.
func (i *importer) importPaid(by *program, c *importCommand, databases *connect.Databases) (*paidImport, error) {
	ctx := by.ctx
	if c.PaymentsQuery == "" && len(c.ProviderExport) == 0 {
		return nil, nil
	}
	exports, err := c.exports(by, i)
	if err != nil {
		return nil, err
	}
	ledger, err := audit.Open("")
	if err != nil {
		return nil, exit.Usage(err, "")
	}
	p := &paidImport{importer: i, ledger: ledger, fallback: c.Step}
	if err := p.read(ctx, c, exports, databases); err != nil {
		return nil, joinClose(err, ledger)
	}
	if err := p.write(ctx); err != nil {
		return nil, joinClose(err, ledger)
	}
	return p, nil
}

func joinClose(err error, c io.Closer) error {
	_ = c.Close() // a temporary file
	return err
}

// exports are the files that the flags name.
func (c *importCommand) exports(p *program, i *importer) ([]audit.Export, error) {
	if c.Step != "" && !slices.ContainsFunc(i.steps, func(s *step.Step) bool { return s.Name() == c.Step }) {
		return nil, exit.Usage(fmt.Errorf("--step %s: no such step in %s", c.Step, i.file.Path), "")
	}
	exports, err := p.readExports(c.ProviderExport, c.Columns)
	if err != nil {
		return nil, err
	}
	for n, e := range exports {
		if _, known := i.file.Providers[e.Provider]; e.Provider != "" && !known {
			return nil, exit.Usage(fmt.Errorf("--provider-export %s=%s: %s has no provider of that name", e.Provider, e.Path, i.file.Path), "the name before = is the one under providers:")
		}
		if e.Provider == "" && len(i.file.Providers) == 1 {
			exports[n].Provider = slices.Collect(maps.Keys(i.file.Providers))[0]
		}
		exports[n].Units = unitsOf(i.file, e.Provider)
	}
	return exports, nil
}

// read puts all evidence into the ledger.
func (p *paidImport) read(ctx context.Context, c *importCommand, exports []audit.Export, databases *connect.Databases) error {
	seen := func(what string) func(int64) {
		return func(n int64) { p.say("\r%s: %d read%20s", what, n, "") }
	}
	add := func(name string, entries iter.Seq2[audit.Evidence, error], hint string) error {
		p.sources = append(p.sources, paidSource{Source: name, Reasons: map[string]int64{}})
		n := len(p.sources) - 1
		read, err := p.ledger.AddEvidence(ctx, n, p.keyed(n, entries), seen(name))
		if err != nil {
			return exit.Usage(err, hint+"; nothing was written")
		}
		p.sources[n].Read = read + p.sources[n].Skipped
		return nil
	}
	if c.PaymentsQuery != "" {
		application, err := databases.At("", "database")
		if err != nil {
			return err
		}
		entries := evidence(payments(ctx, application, c.PaymentsQuery, len(exports) == 0), audit.Payment.Evidence)
		if err := add("--payments-query", entries, "the query must give a column order, and may give scope, step, reference, amount or major, currency"); err != nil {
			return err
		}
	}
	for _, e := range exports {
		entries := evidence(e.Successes(), audit.Success.Evidence)
		if err := add(filepath.Base(e.Path), entries, "mend the line, or say with --columns what the columns mean"); err != nil {
			return err
		}
	}
	if err := p.ledger.JoinEvidence(ctx); err != nil {
		return err
	}
	n := 0
	for e, err := range p.ledger.Homeless(ctx) {
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

// evidence gives what a list of payments says, up to its first error.
func evidence[T any](all iter.Seq2[T, error], of func(T) audit.Evidence) iter.Seq2[audit.Evidence, error] {
	return func(yield func(audit.Evidence, error) bool) {
		for one, err := range all {
			if !yield(of(one), err) || err != nil {
				return
			}
		}
	}
}

func (p *paidImport) skip(source int, reason string) {
	p.sources[source].Skipped++
	p.sources[source].Reasons[reason]++
}

// keyed gives entries their whole keys; those of which none can be made, and money
// that went back, are counted as skipped. An entry without an order may still be found
// by its reference.
func (p *paidImport) keyed(source int, entries iter.Seq2[audit.Evidence, error]) iter.Seq2[audit.Evidence, error] {
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

// key is the whole key of e; why is not empty where there is none.
func (p *paidImport) key(e audit.Evidence) (k zabor.Key, why string) {
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
func (p *paidImport) write(ctx context.Context) error {
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
	for c, err := range p.ledger.Claimed(ctx) {
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

// one makes the row of one key. Where the evidence cannot be one payment, a person
// decides: the row is held.
func (p *paidImport) one(ctx context.Context, c audit.Claimed) error {
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
		row, written, err = p.foresee(ctx, paid)
	} else {
		row, written, err = p.fence.ImportPayment(ctx, paid)
	}
	if err != nil {
		return exit.Store(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met(c.Key)
	count := func(field func(*paidSource) *int64) {
		for n, pieces := range c.From {
			*field(&p.sources[n]) += pieces
		}
	}
	imported := row.Cause == zabor.ByImport || row.Cause == zabor.ByConflict
	switch {
	case written && row.State == zabor.Held:
		count(func(s *paidSource) *int64 { return &s.Held })
	case written:
		count(func(s *paidSource) *int64 { return &s.Settled })
	case paid.Agrees(row),
		against != "" && row.State == zabor.Held && imported,
		against != "" && c.Against == "" && row.State == zabor.Settled:
		count(func(s *paidSource) *int64 { return &s.Row })
	default:
		count(func(s *paidSource) *int64 { return &s.Contradicted })
		against = fmt.Sprintf("the row is %s (%s), and the payment is %s", row.State, rowText(row), paidText(paid))
		c.Against = against
	}
	if c.Against != "" {
		p.unsure++
	}
	if against != "" && len(p.problems) < mostProblems {
		p.problems = append(p.problems, paidProblem{console.NewKey(c.Key), against, c.Places})
	}
	return nil
}

// elsewhere is why c cannot be a payment of its own: the row of another order has its
// reference, from an earlier import or from zabor's own call. That row is left as it
// is. Another step of the same order may have it, as where a step was renamed. Empty:
// no row has it.
func (p *paidImport) elsewhere(ctx context.Context, c audit.Claimed) (against string, err error) {
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

// foresee is what one would find and write, without writing it.
func (p *paidImport) foresee(ctx context.Context, paid zabor.Payment) (row zabor.Row, written bool, err error) {
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

// print is the part of the report that is about payments.
func (p *paidImport) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	now := "now"
	if p.readOnly {
		now = "to be"
	}
	fmt.Fprintf(w, "payments from\tread\t%s settled\thave a row\t%s held\tcontradict a row\tskipped\t\n", now, now)
	for _, s := range p.sources {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Source, s.Read, s.Settled, s.Row, s.Held, s.Contradicted, s.Skipped)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range p.sources {
		for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
			fmt.Fprintf(to, "%s: skipped %d: %s\n", s.Source, s.Reasons[reason], reason)
		}
	}
	for _, one := range p.problems {
		fmt.Fprintf(to, "%s: %s (%s)\n", one.Key.Plain(), console.Printable(one.What), strings.Join(one.Places, ", "))
	}
	_, err := fmt.Fprintln(to)
	return err
}

// unitsOf are the units in which the provider of that name writes amounts; without a
// name, those of the only one.
func unitsOf(file *config.Config, name string) provider.Units {
	if name == "" && len(file.Providers) == 1 {
		name = slices.Collect(maps.Keys(file.Providers))[0]
	}
	if p := file.Providers[name]; p != nil {
		if known, ok := provider.BuiltinNamed(p.Profile); ok {
			return known.Units()
		}
	}
	return nil
}

// readExports are the files that --provider-export names.
func (p *program) readExports(named []string, columns string) ([]audit.Export, error) {
	var mapped *audit.Columns
	if columns != "" {
		read, err := audit.ParseColumns(columns)
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("--columns: %w", err), "")
		}
		mapped = &read
		if len(read.Status) == 0 && len(read.Reference) > 0 && len(named) > 0 {
			p.log.Warn("--columns names no status: every line of the export counts as a payment that went through, also one that failed", "fix", "add status=COLUMN:paid|captured, or take a file in which only such lines are")
		}
	}
	var exports []audit.Export
	for _, text := range named {
		name, path, ok := strings.Cut(text, "=")
		if !ok {
			name, path = "", text
		}
		if _, err := os.Stat(path); err != nil {
			return nil, exit.Usage(fmt.Errorf("--provider-export: %w", err), "")
		}
		exports = append(exports, audit.Export{Path: path, Provider: name, Columns: mapped})
	}
	return exports, nil
}
