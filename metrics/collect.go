package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"zabor"
)

// State is what a process stands on, read when somebody asks for the metrics.
// A nil function is left out.
type State struct {
	Rows   func(ctx context.Context) ([]Rows, error)
	Queues []Queue
	// Paused is how long nothing is sent to a provider.
	Paused     func(provider string) time.Duration
	Providers  []string
	AlertsLost func() int64
	// Unsaved is how many successes this process has read and no row has.
	Unsaved func() int
	// Timeout bounds what one scrape reads; zero: 5 s.
	Timeout time.Duration
}

// Rows is how many rows are in a state that is not closed.
type Rows struct {
	State  zabor.State
	N      int64
	Oldest time.Duration // how long the oldest is in it
	Older  []int64       // how many are in it for at least each of [Ages]
}

// Ages divide the rows of a state by how long they are in it, the youngest first.
func Ages() []time.Duration {
	return []time.Duration{0, time.Minute, 15 * time.Minute, time.Hour, 24 * time.Hour}
}

// ageNames are Ages as labels.
var ageNames = [...]string{"0s", "1m", "15m", "1h", "24h"}

// Queue is one queue and a look at how much it holds.
type Queue struct {
	Name  string
	Depth func(ctx context.Context) (ready, reserved, delayed int64, err error)
	// Oldest is since when the first ready message waits; zero: none does, or the
	// queue does not say. It is asked only where there is a ready one.
	Oldest func(ctx context.Context) (time.Time, error)
}

var (
	rowsDesc   = prometheus.NewDesc("zabor_rows", "Rows that are not closed, by state. Every state that is missing has none.", []string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("zabor_rows_oldest_seconds", "How long the oldest row is in its state.", []string{"state"}, nil)
	ageDesc    = prometheus.NewDesc("zabor_rows_by_age", "Rows that are not closed, by state and by how long they are in it: at least age, and less than the next one.", []string{"state", "age"}, nil)
	depthDesc  = prometheus.NewDesc("zabor_queue_messages", "Messages on a queue: ready, reserved, delayed.", []string{"queue", "place"}, nil)
	waitDesc   = prometheus.NewDesc("zabor_queue_oldest_seconds", "How long the first ready message has waited since it was put on the queue; 0: none waits. Missing where messages do not say when they were put there.", []string{"queue"}, nil)
	pausedDesc = prometheus.NewDesc("zabor_provider_paused_seconds", "How long nothing will be sent to a provider; 0: it is called.", []string{"provider"}, nil)
	missDesc   = prometheus.NewDesc("zabor_answers_without_row", "Successes that this process has read from providers and that no row has: compare with zabor_provider_successes_total{by=\"call\"}.", nil, nil)
	lostDesc   = prometheus.NewDesc("zabor_alerts_lost_total", "Messages of alerts that could not be delivered, of each address.", nil, nil)
	failedDesc = prometheus.NewDesc("zabor_scrape_errors", "1 where the fence's database or a queue could not be read for this scrape; queue is empty for the fence.", []string{"what", "queue"}, nil)
)

// Watch adds what is read at each scrape.
func (m *Metrics) Watch(s State) { m.registerer.MustRegister(&watched{s}) }

type watched struct{ State }

func (w *watched) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rowsDesc, oldestDesc, ageDesc, depthDesc, waitDesc, pausedDesc, missDesc, lostDesc, failedDesc} {
		out <- d
	}
}

func (w *watched) Collect(out chan<- prometheus.Metric) {
	limit := w.Timeout
	if limit == 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	failed := func(what, queue string, err error) {
		v := 0.0
		if err != nil {
			v = 1
		}
		gauge(failedDesc, v, what, queue)
	}
	if w.Rows != nil {
		rows, err := w.Rows(ctx)
		failed("fence", "", err)
		for _, r := range rows {
			gauge(rowsDesc, float64(r.N), string(r.State))
			gauge(oldestDesc, r.Oldest.Seconds(), string(r.State))
			for i, older := range r.Older[:min(len(r.Older), len(ageNames))] {
				if i+1 < len(r.Older) {
					older -= r.Older[i+1]
				}
				gauge(ageDesc, float64(older), string(r.State), ageNames[i])
			}
		}
	}
	for _, q := range w.Queues {
		ready, reserved, delayed, err := q.Depth(ctx)
		failed("queue", q.Name, err)
		if err == nil {
			gauge(depthDesc, float64(ready), q.Name, "ready")
			gauge(depthDesc, float64(reserved), q.Name, "reserved")
			gauge(depthDesc, float64(delayed), q.Name, "delayed")
			w.waited(ctx, q, ready, gauge)
		}
	}
	if w.Paused != nil {
		for _, name := range w.Providers {
			gauge(pausedDesc, w.Paused(name).Seconds(), name)
		}
	}
	if w.Unsaved != nil {
		gauge(missDesc, float64(w.Unsaved()))
	}
	if w.AlertsLost != nil {
		out <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(w.AlertsLost()))
	}
}

// waited gives how long the first ready message of q waits.
func (w *watched) waited(ctx context.Context, q Queue, ready int64, gauge func(*prometheus.Desc, float64, ...string)) {
	if ready == 0 {
		gauge(waitDesc, 0, q.Name)
		return
	}
	if q.Oldest == nil {
		return
	}
	if since, err := q.Oldest(ctx); err == nil && !since.IsZero() {
		gauge(waitDesc, max(0, time.Since(since).Seconds()), q.Name)
	}
}

func registerRuntime(r *prometheus.Registry) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
