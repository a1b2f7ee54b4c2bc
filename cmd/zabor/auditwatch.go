package main

import (
	"errors"
	"time"

	"zabor/audit"
	"zabor/dashboard/backend"
	"zabor/internal/exit"
)

// auditWatch is an audit made again and again.
type auditWatch struct {
	*auditor
	seen audit.Watched
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
	ended, done, err := a.AuditMetrics(a.ctx, a.File, a.Store)
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
		ended(total, time.Since(begun), err)
		select {
		case <-a.ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// once makes an audit and alerts of new differences.
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
	if w.c.Replica == "" {
		if err := w.noteReversed(w.ctx, ledger); err != nil {
			return total, err
		}
	}
	if w.c.Publish {
		return total, backend.KeepAudit(w.ctx, w.Sources, ledger, total, "zabor audit --watch")
	}
	return total, nil
}
