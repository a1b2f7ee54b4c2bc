package metrics

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"zabor"
	"zabor/sqlstore"
)

func newStore(t *testing.T) *sqlstore.Store {
	s, err := sqlstore.Open("sqlite://" + filepath.Join(t.TempDir(), "fence.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func effect(order string) zabor.Effect {
	return zabor.Effect{
		Key: zabor.Key{Order: order, Step: "charge"}, Provider: "stripe", Fingerprint: zabor.Fingerprint{Message: "m", Request: "f"},
		Render:  func(zabor.ProviderKeys, string) ([]byte, error) { return []byte("{}"), nil },
		Timeout: 10 * time.Second, MaxAttempts: 3, HoldAfter: time.Hour, PendingFor: time.Hour, MissingRow: zabor.Captured,
	}
}

// What each kind of outcome counts, over a real store.
func TestCounts(t *testing.T) {
	m := New("v", "h")
	f := &zabor.Fence{Store: m.Store(newStore(t)), Secret: make([]byte, zabor.MinSecret), Observer: zabor.Observer{Called: m.Called, Alert: m.Alert}}
	do := func(order string, o zabor.Outcome) {
		f.Do(t.Context(), effect(order), func(context.Context, zabor.Row) zabor.Outcome { return o })
	}
	done := zabor.Outcome{Verdict: zabor.Done, Reference: "pay_1"}
	do("1", done)
	do("1", done) // the row answers
	do("2", zabor.Outcome{Verdict: zabor.Refused})
	do("3", zabor.Outcome{})
	do("4", zabor.Outcome{Verdict: zabor.Begun, Reference: "pay_4"})
	look := m.Lookup(func(_ context.Context, row zabor.Row) (zabor.Finding, error) {
		switch row.Order {
		case "absent":
			return zabor.Finding{Absent: true}, nil
		case "error":
			return zabor.Finding{}, errors.New("away")
		}
		return zabor.Finding{Outcome: done}, nil
	})
	for _, order := range []string{"absent", "error", "found"} {
		look(t.Context(), zabor.Row{Key: zabor.Key{Order: order}, Endpoint: zabor.Endpoint{Provider: "stripe"}})
	}
	const want = `
# HELP zabor_captures_total Rows that were captured, the first time or again: each is followed by one call.
# TYPE zabor_captures_total counter
zabor_captures_total{provider="stripe"} 4
# HELP zabor_provider_calls_total Calls that can move money, by what they proved.
# TYPE zabor_provider_calls_total counter
zabor_provider_calls_total{provider="stripe",verdict="begun"} 1
zabor_provider_calls_total{provider="stripe",verdict="done"} 1
zabor_provider_calls_total{provider="stripe",verdict="refused"} 1
zabor_provider_calls_total{provider="stripe",verdict="unproven"} 1
# HELP zabor_provider_lookups_total Look-ups of doubtful and pending rows, by what they found; error: nothing could be said.
# TYPE zabor_provider_lookups_total counter
zabor_provider_lookups_total{found="absent",provider="stripe"} 1
zabor_provider_lookups_total{found="done",provider="stripe"} 1
zabor_provider_lookups_total{found="error",provider="stripe"} 1
# HELP zabor_provider_successes_total References that providers gave: a call's, a look-up's or a replay's.
# TYPE zabor_provider_successes_total counter
zabor_provider_successes_total{by="call",provider="stripe"} 2
zabor_provider_successes_total{by="look-up",provider="stripe"} 1
# HELP zabor_repeats_total Deliveries that met a row and were answered from it, by its state, without a call.
# TYPE zabor_repeats_total counter
zabor_repeats_total{provider="stripe",state="settled"} 1
# HELP zabor_rows_entered_total Rows that entered a state.
# TYPE zabor_rows_entered_total counter
zabor_rows_entered_total{provider="stripe",state="captured"} 4
zabor_rows_entered_total{provider="stripe",state="declined"} 1
zabor_rows_entered_total{provider="stripe",state="doubt"} 1
zabor_rows_entered_total{provider="stripe",state="pending"} 1
zabor_rows_entered_total{provider="stripe",state="settled"} 1
`
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), "zabor_captures_total", "zabor_provider_calls_total",
		"zabor_provider_lookups_total", "zabor_provider_successes_total", "zabor_repeats_total", "zabor_rows_entered_total"); err != nil {
		t.Error(err)
	}
}

// All names are as Prometheus's conventions want them: of what is counted, of what is
// read at each scrape, and of audits.
func TestNames(t *testing.T) {
	m := New("v", "h")
	f := &zabor.Fence{Store: m.Store(newStore(t)), Secret: make([]byte, zabor.MinSecret), Observer: zabor.Observer{Called: m.Called, Alert: m.Alert}}
	f.Do(t.Context(), effect("1"), func(context.Context, zabor.Row) zabor.Outcome { return zabor.Outcome{} })
	m.Taken("payments")
	m.Alert(zabor.Alert{Code: "held", Severity: zabor.Warning})
	m.Watch(State{
		Rows: func(context.Context) ([]Rows, error) {
			return []Rows{{State: zabor.Doubt, N: 1, Older: []int64{1, 1, 1, 1, 1}}}, nil
		},
		Queues: []Queue{{Name: "payments", Depth: func(context.Context) (ready, reserved, delayed int64, err error) { return 1, 0, 0, nil },
			Oldest: func(context.Context) (time.Time, error) { return time.Now(), nil }}},
		Paused: func(string) time.Duration { return 0 }, Providers: []string{"stripe"}, AlertsLost: func() int64 { return 0 }, Unsaved: func() int { return 3 },
	})
	m.Audits(map[string]string{"charged-twice": "critical"}).Ended(Audit{}, time.Second, nil)
	if problems, err := testutil.GatherAndLint(m.Registry); err != nil || len(problems) > 0 {
		t.Errorf("names: %v %v", problems, err)
	}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"zabor_rows_by_age", "zabor_alerts_lost_total", "zabor_answers_without_row", "zabor_scrape_errors", "zabor_audit_runs_total", "zabor_messages_taken_total", "zabor_store_duration_seconds"} {
		if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name }) {
			t.Errorf("%s was not looked at", name)
		}
	}
}

// Readiness says why not, and the metrics still come when the database is away.
func TestHandler(t *testing.T) {
	m := New("v", "h")
	var away error
	m.Watch(State{
		Rows: func(context.Context) ([]Rows, error) {
			return []Rows{{State: zabor.Held, N: 3, Oldest: time.Hour, Older: []int64{3, 2, 2, 1, 0}}}, away
		},
		Queues: []Queue{
			{Name: "payments", Depth: func(context.Context) (int64, int64, int64, error) { return 3, 2, 1, away },
				Oldest: func(context.Context) (time.Time, error) { return time.Now().Add(-90 * time.Second), away }},
		},
		Paused: func(string) time.Duration { return 30 * time.Second }, Providers: []string{"stripe"},
	})
	m.Taken("payments")
	server := httptest.NewServer(m.Handler([]Check{{"fence", func(context.Context) error { return away }}}))
	defer server.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	for _, tt := range []struct {
		path   string
		away   error
		status int
		want   []string
	}{
		{"/livez", nil, 200, []string{"ok"}},
		{"/readyz", nil, 200, []string{`"ready":true`}},
		{"/metrics", nil, 200, []string{`zabor_rows{state="held"} 3`, `zabor_rows_oldest_seconds{state="held"} 3600`, `zabor_rows_by_age{age="0s",state="held"} 1`, `zabor_rows_by_age{age="1m",state="held"} 0`,
			`zabor_rows_by_age{age="15m",state="held"} 1`, `zabor_rows_by_age{age="1h",state="held"} 1`, `zabor_rows_by_age{age="24h",state="held"} 0`, `zabor_queue_messages{place="delayed",queue="payments"} 1`,
			`zabor_queue_oldest_seconds{queue="payments"} 90.`, `zabor_provider_paused_seconds{provider="stripe"} 30`, `zabor_config_info{hash="h",version="v"} 1`, `zabor_scrape_errors{queue="",what="fence"} 0`, `zabor_messages_taken_total{queue="payments"} 1`, "go_goroutines", "process_open_fds"}},
		{"/livez", errors.New("connection refused"), 200, []string{"ok"}},
		{"/readyz", errors.New("connection refused"), 503, []string{`"ready":false`, `"fence":"connection refused"`}},
		{"/metrics", errors.New("connection refused"), 200, []string{`zabor_scrape_errors{queue="",what="fence"} 1`, `zabor_scrape_errors{queue="payments",what="queue"} 1`}},
		{"/", nil, 404, nil},
	} {
		away = tt.away
		status, body := get(tt.path)
		if status != tt.status {
			t.Errorf("%s: %d, want %d", tt.path, status, tt.status)
		}
		for _, want := range tt.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %q:\n%s", tt.path, want, body)
			}
		}
	}
}
