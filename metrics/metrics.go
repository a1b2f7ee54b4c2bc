// Package metrics counts what a process of zabor does, for Prometheus, and says
// whether it is well.
//
// Counters are of one process and start again with it: what a killed process has
// done and not been asked for is not in them. Whether 200s equal rows is the
// audit's to say; the metrics say where to look, and when.
package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zabor"
)

// Metrics are the counters of one process. Their labels are names of the
// configuration and words of zabor's own, so that there are few of them whatever
// messages say. It may be used concurrently.
type Metrics struct {
	Registry *prometheus.Registry // that of [New], which a program may register its own with; nil: the metrics are in the caller's

	registerer prometheus.Registerer

	calls     *prometheus.CounterVec
	durations *prometheus.HistogramVec
	lookups   *prometheus.CounterVec
	successes *prometheus.CounterVec
	rows      *prometheus.CounterVec
	captures  *prometheus.CounterVec
	repeats   *prometheus.CounterVec
	attempts  *prometheus.HistogramVec
	store     *prometheus.HistogramVec
	storeErr  *prometheus.CounterVec
	alerts    *prometheus.CounterVec
	taken     *prometheus.CounterVec
}

// New makes the metrics of a process, with those of Go itself. hash stands for
// the configuration that it was started with.
func New(version, hash string) *Metrics {
	r := prometheus.NewRegistry()
	m := Register(r)
	m.Registry = r
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "zabor_config_info", Help: "1; the configuration and version that this process was started with."}, []string{"hash", "version"})
	info.WithLabelValues(hash, version).Set(1)
	r.MustRegister(info)
	registerRuntime(r)
	return m
}

// Register makes the fence's metrics and registers them with r, for a program
// that has a registry of its own. It panics where r has metrics of these names
// already, as Registerer.MustRegister does.
func Register(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(v)
		return v
	}
	return &Metrics{
		registerer: r,

		calls:     counter("zabor_provider_calls_total", "Calls that can move money, by what they proved.", "provider", "verdict"),
		durations: histogram("zabor_provider_call_duration_seconds", "How long such calls took.", []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80}, "provider"),
		lookups:   counter("zabor_provider_lookups_total", "Look-ups of doubtful and pending rows, by what they found; error: nothing could be said.", "provider", "found"),
		successes: counter("zabor_provider_successes_total", "References that providers gave: a call's, a look-up's or a replay's.", "provider", "by"),
		rows:      counter("zabor_rows_entered_total", "Rows that entered a state.", "provider", "state"),
		captures:  counter("zabor_captures_total", "Rows that were captured, the first time or again: each is followed by one call.", "provider"),
		repeats:   counter("zabor_repeats_total", "Deliveries that met a row and were answered from it, by its state, without a call.", "provider", "state"),
		attempts:  histogram("zabor_attempts", "Tries of each row that was settled, pending or declined; calls that surely did nothing are not counted.", []float64{1, 2, 3, 5, 10}, "provider"),
		store:     histogram("zabor_store_duration_seconds", "How long the fence's writes and reads took.", prometheus.ExponentialBuckets(.0005, 2, 14), "operation"),
		storeErr:  counter("zabor_store_errors_total", "Writes and reads of the fence that failed; a row that another was faster to write is none.", "operation"),
		alerts:    counter("zabor_alerts_total", "Alerts that were raised.", "code", "severity"),
		taken:     counter("zabor_messages_taken_total", "Messages that were taken from a queue, as often as each was.", "queue"),
	}
}

// Called counts a call of [zabor.Fence], which is given it as its field Called.
func (m *Metrics) Called(row zabor.Row, o zabor.Outcome, took time.Duration) {
	m.called(row, o, took, "call")
}

// Replay is a zabor.Call of the resolver's that is counted.
func (m *Metrics) Replay(call zabor.Call) zabor.Call {
	return func(ctx context.Context, row zabor.Row) zabor.Outcome {
		begun := time.Now()
		o := call(ctx, row)
		m.called(row, o, time.Since(begun), "replay")
		return o
	}
}

func (m *Metrics) called(row zabor.Row, o zabor.Outcome, took time.Duration, by string) {
	m.durations.WithLabelValues(row.Provider).Observe(took.Seconds())
	m.calls.WithLabelValues(row.Provider, o.Verdict.String()).Inc()
	if o.Verdict == zabor.Done || o.Verdict == zabor.Begun {
		m.successes.WithLabelValues(row.Provider, by).Inc()
	}
}

// Lookup is a zabor.Lookup that is counted.
func (m *Metrics) Lookup(look zabor.Lookup) zabor.Lookup {
	return func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
		found, err := look(ctx, row)
		what := "absent"
		switch {
		case err != nil:
			what = "error"
		case found.Several:
			what = "several"
		case !found.Absent:
			what = found.Outcome.Verdict.String()
			if row.Reference == "" && found.Outcome.Reference != "" {
				m.successes.WithLabelValues(row.Provider, "look-up").Inc()
			}
		}
		m.lookups.WithLabelValues(row.Provider, what).Inc()
		return found, err
	}
}

// Alert counts an alert.
func (m *Metrics) Alert(a zabor.Alert) { m.alerts.WithLabelValues(a.Code, string(a.Severity)).Inc() }

// Taken counts a message that was taken from a queue.
func (m *Metrics) Taken(queue string) { m.taken.WithLabelValues(queue).Inc() }

// Takes says that this process takes messages from a queue: it counts from zero on,
// so that a rule sees one that it takes none from.
func (m *Metrics) Takes(queue string) { m.taken.WithLabelValues(queue) }

// Store is s with its writes and reads timed, and its rows counted.
func (m *Metrics) Store(s zabor.Store) zabor.Store { return &store{s, m} }

type store struct {
	zabor.Store
	m *Metrics
}

func (s *store) timed(operation string, begun time.Time, err error) {
	s.m.store.WithLabelValues(operation).Observe(time.Since(begun).Seconds())
	if err != nil && !errors.Is(err, zabor.ErrStale) && !errors.Is(err, zabor.ErrNoRow) {
		s.m.storeErr.WithLabelValues(operation).Inc()
	}
}

func (s *store) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	begun := time.Now()
	there, err := s.Store.Insert(ctx, row, w)
	s.timed("insert", begun, err)
	switch {
	case err != nil:
	case there.Claim == row.Claim:
		s.entered(there)
	case there.State != zabor.Released:
		s.m.repeats.WithLabelValues(there.Provider, string(there.State)).Inc()
	}
	return there, err
}

func (s *store) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	begun := time.Now()
	err := s.Store.Swap(ctx, prev, next, w)
	s.timed("swap", begun, err)
	if err == nil && prev.State != next.State {
		s.entered(next)
	}
	return err
}

func (s *store) Load(ctx context.Context, k zabor.Key) (zabor.Row, error) {
	begun := time.Now()
	row, err := s.Store.Load(ctx, k)
	s.timed("load", begun, err)
	return row, err
}

func (s *store) entered(row zabor.Row) {
	s.m.rows.WithLabelValues(row.Provider, string(row.State)).Inc()
	switch row.State {
	case zabor.Settled, zabor.Pending, zabor.Declined:
		s.m.attempts.WithLabelValues(row.Provider).Observe(float64(row.Tries))
	case zabor.Captured:
		s.m.captures.WithLabelValues(row.Provider).Inc()
	}
}
