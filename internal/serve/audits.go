package serve

import (
	"context"
	"time"

	"zabor/audit"
	"zabor/internal/config"
	"zabor/metrics"
	"zabor/sqlstore"
)

// AuditMetrics answers at metrics.listen of file, if it has one, for an audit made
// again and again. ended takes the end of each audit. done waits until ctx has ended and
// the last answer was given.
func (p *Process) AuditMetrics(ctx context.Context, file *config.Config, store *sqlstore.Store) (ended func(audit.Total, time.Duration, error), done func(), err error) {
	if file.Metrics == nil {
		return func(audit.Total, time.Duration, error) {}, func() {}, nil
	}
	m, err := p.newMetrics(file)
	if err != nil {
		return nil, nil, err
	}
	kinds, severities := audit.Kinds()
	names := map[string]string{}
	for i, kind := range kinds {
		names[string(kind)] = string(severities[i])
	}
	audits := m.Audits(names)
	p.count = m.Alert
	listener, err := p.listenMetrics(file)
	if err != nil {
		return nil, nil, err
	}
	done = p.serveAt(ctx, m, listener, []metrics.Check{{Name: "fence", Well: store.Setup().Check}, {Name: "audit", Well: audits.Well}})
	return func(t audit.Total, took time.Duration, err error) { audits.Ended(measured(t), took, err) }, done, nil
}

// measured returns t as the metrics take it.
func measured(t audit.Total) metrics.Audit {
	r := metrics.Audit{ProviderSuccesses: t.ProviderSuccesses, UniqueRows: t.UniqueRows, DoubleCharged: t.DoubleCharged, Lost: t.Lost, Differences: map[string]int64{}}
	for kind, n := range t.Differences {
		r.Differences[string(kind)] = n
	}
	return r
}
