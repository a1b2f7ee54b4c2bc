package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/metrics"
)

// auditWatch is an audit that is made again and again.
type auditWatch struct {
	*auditor
	before map[difference]bool // of the audit before, above info
	served *metrics.Audits     // nil: nobody asks for them
}

// difference stands for what makes one differ from another.
type difference [16]byte

func differenceOf(d audit.Difference) difference {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{string(d.Kind), d.Key.Scope, d.Key.Order, d.Key.Step, d.Reference, d.Other}))
	return difference(sum[:16])
}

// watch audits again and again, and alerts when the differences have changed.
func (a *auditor) watch(every time.Duration) error {
	if a.file == nil {
		return exit.Usage(errors.New("--watch needs a zabor.yaml: it alerts at its addresses"), "")
	}
	endAlerts, err := a.alerts(a.file)
	if err != nil {
		return err
	}
	defer endAlerts()
	w := &auditWatch{auditor: a}
	done, err := w.serve()
	if err != nil {
		return err
	}
	defer done()
	for {
		begun := time.Now()
		total, err := w.once()
		switch {
		case a.ctx.Err() != nil:
			return nil
		case err != nil:
			a.log.Warn("cannot audit; trying again", "in", every, "error", err)
		}
		if w.served != nil {
			w.served.Ended(result(total), time.Since(begun), err)
		}
		select {
		case <-a.ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// serve answers at metrics.listen, where there is one, until the program ends.
func (w *auditWatch) serve() (done func(), err error) {
	if w.file.Metrics == nil {
		return func() {}, nil
	}
	m, err := newMetrics(w.file)
	if err != nil {
		return nil, err
	}
	w.count, w.served = m.Alert, m.Audits(auditKinds())
	listener, err := w.listenMetrics(w.file)
	if err != nil {
		return nil, err
	}
	return w.serveAt(w.ctx, m, listener, []metrics.Check{{Name: "fence", Well: w.store.Setup().Check}, {Name: "audit", Well: w.served.Well}}), nil
}

func auditKinds() map[string]string {
	kinds, severities := audit.Kinds()
	names := map[string]string{}
	for i, kind := range kinds {
		names[string(kind)] = string(severities[i])
	}
	return names
}

func result(t audit.Total) metrics.Audit {
	r := metrics.Audit{ProviderSuccesses: t.ProviderSuccesses, UniqueRows: t.UniqueRows, DoubleCharged: t.DoubleCharged, Lost: t.Lost, Differences: map[string]int64{}}
	for kind, n := range t.Differences {
		r.Differences[string(kind)] = n
	}
	return r
}

// mostWatched is how many differences are remembered from one audit to the next;
// those beyond are counted, and not told one from another.
const mostWatched = 1_000_000

// fewDifferences of a kind are told one by one.
const fewDifferences = 10

// freshDifferences are those of a kind that the audit before had not.
type freshDifferences struct {
	n     int64
	first []audit.Difference // at most fewDifferences
}

// once makes an audit and tells what is new in it.
func (w *auditWatch) once() (audit.Total, error) {
	ledger, total, err := w.run(w.ctx)
	if err != nil {
		return total, err
	}
	defer func() { _ = ledger.Remove() }()
	w.log.Info("audited", "provider_successes", total.ProviderSuccesses, "unique_rows", total.UniqueRows, "double_charged", total.DoubleCharged, "lost", total.Lost, "differences", total.Bad)
	now, fresh := map[difference]bool{}, map[audit.Kind]*freshDifferences{}
	for d, err := range ledger.Differences(w.ctx) {
		if err != nil {
			return total, err
		}
		if d.Severity == audit.Info || len(now) == mostWatched {
			continue
		}
		id := differenceOf(d)
		now[id] = true
		if w.before[id] {
			continue
		}
		f := fresh[d.Kind]
		if f == nil {
			f = &freshDifferences{}
			fresh[d.Kind] = f
		}
		if f.n++; f.n <= fewDifferences {
			f.first = append(f.first, d)
		}
	}
	w.tell(fresh)
	w.before = now
	if w.c.Publish {
		return total, w.publish(w.ctx, ledger, total, "zabor audit --watch")
	}
	return total, nil
}

// tell alerts of what is new: one by one where they are few.
func (w *auditWatch) tell(fresh map[audit.Kind]*freshDifferences) {
	for kind, f := range fresh {
		severity := zabor.Warning
		if f.first[0].Severity == audit.Critical {
			severity = zabor.Critical
		}
		if f.n > fewDifferences {
			w.alert(zabor.Alert{Severity: severity, Code: "audit-" + string(kind), Text: fmt.Sprintf("the audit has found %d more of %s", f.n, kind), Next: "zabor audit"})
			continue
		}
		for _, d := range f.first {
			w.alert(zabor.Alert{Severity: severity, Code: "audit-" + string(kind), Key: d.Key, State: d.State, Amount: d.Amount, Text: told(d), Next: "zabor fence list --order " + d.Key.Order})
		}
	}
}

// told is d in a line.
func told(d audit.Difference) string {
	parts := []string{string(d.Kind)}
	for _, part := range []string{d.Reference, d.Other, console.Money(d.OtherAmount), d.Place} {
		if part != "" {
			parts = append(parts, console.Printable(part))
		}
	}
	return strings.Join(parts, ", ")
}
