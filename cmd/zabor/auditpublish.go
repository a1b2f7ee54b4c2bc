package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"zabor/audit"
	"zabor/dashboard"
)

// publish keeps what an audit has found for the dashboard.
func (a *auditor) publish(ctx context.Context, ledger *audit.Ledger, total audit.Total, by string) error {
	looks, err := a.looks(ctx, ledger)
	if err != nil {
		return err
	}
	report := dashboard.AuditReport{At: time.Now().UTC(), By: by, Total: total, Exports: len(a.Exports) + len(a.Lists), Looks: looks}
	for d, err := range ledger.Differences(ctx) {
		if err != nil {
			return err
		}
		report.Add(d)
	}
	return dashboard.KeepAudit(ctx, a.Store, a.File.Scope, report)
}

// looks are what an audit has looked at: the lists and exports that had something in
// them, and the payments and queues where they were read.
func (a *auditor) looks(ctx context.Context, ledger *audit.Ledger) (looks []dashboard.Look, err error) {
	for _, one := range a.Lists {
		began, n, err := ledger.Began(ctx, "successes list of "+one.Name())
		if err != nil {
			return nil, err
		}
		if n > 0 {
			looks = append(looks, dashboard.Look{Name: one.Name(), First: a.Since, Last: began})
		}
	}
	for _, e := range a.Exports { // each has what it has, however far back it was asked for
		first, last, n, err := ledger.Span(ctx, e.Provider, e.Path+":")
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		name, configured := e.Provider, slices.Collect(maps.Keys(a.File.Providers))
		if name == "" && len(configured) == 1 {
			name = configured[0]
		} else if name == "" {
			if name, err = filepath.Abs(e.Path); err != nil {
				return nil, err
			}
		}
		looks = append(looks, dashboard.Look{Name: name, First: first, Last: last})
	}
	payments, n, err := ledger.Began(ctx, "payments")
	if err != nil {
		return nil, err
	}
	if n > 0 { // beside the rows since then
		looks = append(looks, dashboard.Look{Name: dashboard.LookPayments, First: a.Since, Last: payments})
	}
	messages, _, err := ledger.Began(ctx, "messages")
	if err != nil {
		return nil, err
	}
	if !messages.IsZero() { // beside all rows that are open
		looks = append(looks, dashboard.Look{Name: dashboard.LookMessages, Last: messages})
	}
	return looks, nil
}
