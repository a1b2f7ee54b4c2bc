package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Audit is what one audit has found.
type Audit struct {
	ProviderSuccesses, UniqueRows, DoubleCharged, Lost int64
	Differences                                        map[string]int64 // by kind; a kind that is missing has none
}

// Audits are the metrics of a process that audits again and again: those of the
// last audit that was complete. It may be used concurrently.
type Audits struct {
	severities  map[string]string
	differences *prometheus.GaugeVec
	successes   prometheus.Gauge
	rows        prometheus.Gauge
	twice       prometheus.Gauge
	lost        prometheus.Gauge
	at          prometheus.Gauge
	took        prometheus.Gauge
	runs        *prometheus.CounterVec

	mu   sync.Mutex
	last error // of the last audit
}

// Audits registers the metrics of audits whose differences have these kinds;
// severities has each kind's. All of them are there from the first complete audit
// on, so that a rule on one of them never lacks a value.
func (m *Metrics) Audits(severities map[string]string) *Audits {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.Registry.MustRegister(g)
		return g
	}
	a := &Audits{
		severities:  severities,
		differences: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "zabor_audit_differences", Help: "What was not as it should be in the last complete audit."}, []string{"kind", "severity"}),
		successes:   gauge("zabor_audit_provider_successes", "200s of the providers in the last complete audit."),
		rows:        gauge("zabor_audit_unique_rows", "Rows with a success in the last complete audit; equal to zabor_audit_provider_successes where all is well."),
		twice:       gauge("zabor_audit_double_charged", "Successes beyond the first of a key in the last complete audit."),
		lost:        gauge("zabor_audit_lost", "Open rows whose message is nowhere in the last complete audit."),
		at:          gauge("zabor_audit_last_complete_timestamp_seconds", "When the last complete audit ended, in Unix time; 0: none has."),
		took:        gauge("zabor_audit_duration_seconds", "How long the last complete audit took."),
		runs:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "zabor_audit_runs_total", Help: "Audits, by how they ended."}, []string{"result"}),
	}
	m.Registry.MustRegister(a.differences, a.runs)
	for _, result := range []string{"complete", "failed"} {
		a.runs.WithLabelValues(result)
	}
	return a
}

// Ended says how an audit ended; with an error, what was found before stays.
func (a *Audits) Ended(found Audit, took time.Duration, err error) {
	a.mu.Lock()
	a.last = err
	a.mu.Unlock()
	if err != nil {
		a.runs.WithLabelValues("failed").Inc()
		return
	}
	for kind, severity := range a.severities {
		a.differences.WithLabelValues(kind, severity).Set(float64(found.Differences[kind]))
	}
	a.successes.Set(float64(found.ProviderSuccesses))
	a.rows.Set(float64(found.UniqueRows))
	a.twice.Set(float64(found.DoubleCharged))
	a.lost.Set(float64(found.Lost))
	a.took.Set(took.Seconds())
	a.at.SetToCurrentTime()
	a.runs.WithLabelValues("complete").Inc()
}

// Well is the error with which the last audit ended; nil before the first.
func (a *Audits) Well(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}
