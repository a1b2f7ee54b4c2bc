package backend

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"zabor/audit"
	"zabor/audit/sources"
	"zabor/dashboard"
	"zabor/dashboard/access"
	"zabor/doctor"
	"zabor/internal/preflight"
	"zabor/sqlstore"
)

// KeepDoctor keeps findings about the servers for the dashboard. by is who asked; failed is
// the error of servers without an answer, or nil.
func KeepDoctor(ctx context.Context, store *sqlstore.Store, scope, by string, findings []doctor.Finding, failed error) error {
	report := dashboard.DoctorReport{At: time.Now().UTC(), By: by, Findings: findings}
	if failed != nil {
		report.Failed = failed.Error()
	}
	return dashboard.KeepDoctor(ctx, store, scope, report)
}

// KeepAudit keeps the report of an audit for the dashboard. by is who audited.
func KeepAudit(ctx context.Context, a *sources.Sources, ledger *audit.Ledger, total audit.Total, by string) error {
	looks, err := coverage(ctx, a, ledger)
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

// coverage returns the sources of an audit: the lists and exports with entries,
// and the payments and queues if they were read.
func coverage(ctx context.Context, a *sources.Sources, ledger *audit.Ledger) (looks []dashboard.Look, err error) {
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

// audit compares rows and queues, without any provider's list, and keeps the report.
func (o *Backend) audit(ctx context.Context) error {
	from := &sources.Sources{File: o.File, Store: o.Store, Log: o.Log, Alert: o.Alert, Say: func(string, ...any) {}}
	ledger, total, err := from.Read(ctx, "", time.Time{})
	if err != nil {
		return err
	}
	return errors.Join(KeepAudit(ctx, from, ledger, total, access.From(ctx).Name), ledger.Remove())
}

// Doctor examines the servers of the configuration, and keeps the report.
func (o *Backend) Doctor(ctx context.Context) error {
	var servers preflight.Servers
	defer servers.Close()
	if err := servers.AddFile(o.File); err != nil {
		return err
	}
	findings, err := servers.Examine(ctx, nil)
	return KeepDoctor(ctx, o.Store, o.File.Scope, access.From(ctx).Name, findings, err)
}
