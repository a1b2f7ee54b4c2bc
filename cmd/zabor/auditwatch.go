package main

import (
	"errors"
	"time"

	"zabor/audit"
	"zabor/dashboard/backend"
	"zabor/internal/exit"
	"zabor/metrics"
)

// auditWatch is an audit that is made again and again.
type auditWatch struct {
	*auditor
	seen   audit.Watched
	served *metrics.Audits // nil: metrics are not configured
}

// watch audits again and again, and alerts when the differences have changed.
func (a *auditor) watch(every time.Duration) error {
	if a.File == nil {
		return exit.Usage(errors.New("--watch needs a zabor.yaml: it alerts at its addresses"), "")
	}
	endAlerts, err := a.Alerts(a.File)
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
			a.Log.Warn("cannot audit; trying again", "in", every, "error", err)
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
	if w.File.Metrics == nil {
		return func() {}, nil
	}
	m, err := w.NewMetrics(w.File)
	if err != nil {
		return nil, err
	}
	w.Count, w.served = m.Alert, m.Audits(auditKinds())
	listener, err := w.ListenMetrics(w.File)
	if err != nil {
		return nil, err
	}
	return w.ServeAt(w.ctx, m, listener, []metrics.Check{{Name: "fence", Well: w.Store.Setup().Check}, {Name: "audit", Well: w.served.Well}}), nil
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

// once makes an audit and alerts of what is new in it.
func (w *auditWatch) once() (audit.Total, error) {
	ledger, total, err := w.run(w.ctx)
	if err != nil {
		return total, err
	}
	defer func() { _ = ledger.Remove() }()
	w.Log.Info("audited", "provider_successes", total.ProviderSuccesses, "unique_rows", total.UniqueRows, "double_charged", total.DoubleCharged, "lost", total.Lost, "differences", total.Bad)
	alerts, err := w.seen.Fresh(w.ctx, ledger)
	if err != nil {
		return total, err
	}
	for _, one := range alerts {
		w.Alert(one)
	}
	if w.c.Publish {
		return total, backend.KeepAudit(w.ctx, w.Sources, ledger, total, "zabor audit --watch")
	}
	return total, nil
}
