package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zabor"
	"zabor/internal/console"
)

// mark identifies a difference from one audit to the next.
type mark [16]byte

// markOf returns the mark of d.
func markOf(d Difference) mark {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{string(d.Kind), d.Key.Scope, d.Key.Order, d.Key.Step, d.Reference, d.Other}))
	return mark(sum[:16])
}

// mostWatched is how many differences are remembered from one audit to the next. Those
// beyond are counted, and are not told apart.
const mostWatched = 1_000_000

// fewDifferences is how many new differences of a kind have an alert each.
const fewDifferences = 10

// newOnes are the differences of a kind that the audit before had not.
type newOnes struct {
	n     int64
	first []Difference // at most fewDifferences
}

// Watched remembers the differences of one audit for the next. Its zero value has seen
// none.
type Watched struct {
	before map[mark]bool // above info
}

// Fresh returns alerts of the differences of ledger that the audit before had not: one by
// one where they are few. Info is left out. After an error nothing is remembered.
func (w *Watched) Fresh(ctx context.Context, ledger *Ledger) ([]zabor.Alert, error) {
	now, fresh := map[mark]bool{}, map[Kind]*newOnes{}
	for d, err := range ledger.Differences(ctx) {
		if err != nil {
			return nil, err
		}
		if d.Severity == Info || len(now) == mostWatched {
			continue
		}
		id := markOf(d)
		now[id] = true
		if w.before[id] {
			continue
		}
		f := fresh[d.Kind]
		if f == nil {
			f = &newOnes{}
			fresh[d.Kind] = f
		}
		if f.n++; f.n <= fewDifferences {
			f.first = append(f.first, d)
		}
	}
	w.before = now
	return alerts(fresh), nil
}

// alerts returns the alerts of new differences.
func alerts(fresh map[Kind]*newOnes) (alerts []zabor.Alert) {
	for _, kind := range slices.Sorted(maps.Keys(fresh)) {
		f, severity := fresh[kind], zabor.Warning
		if f.first[0].Severity == Critical {
			severity = zabor.Critical
		}
		if f.n > fewDifferences {
			alerts = append(alerts, zabor.Alert{Severity: severity, Code: "audit-" + string(kind), Text: fmt.Sprintf("the audit has found %d more of %s", f.n, kind), Next: "zabor audit"})
			continue
		}
		for _, d := range f.first {
			alerts = append(alerts, zabor.Alert{Severity: severity, Code: "audit-" + string(kind), Key: d.Key, State: d.State, Amount: d.Amount, Text: Describe(d), Next: "zabor fence list --order " + d.Key.Order})
		}
	}
	return alerts
}

// Describe returns d in one line.
func Describe(d Difference) string {
	parts := []string{string(d.Kind)}
	for _, part := range []string{d.Reference, d.Other, console.Money(d.OtherAmount), d.Place} {
		if part != "" {
			parts = append(parts, console.Printable(part))
		}
	}
	return strings.Join(parts, ", ")
}
