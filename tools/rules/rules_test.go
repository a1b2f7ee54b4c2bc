package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// alerts are the expressions of the rules, by the alert's name.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(read(t, "contrib/prometheus/zabor.rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	return all
}

// panels are the expressions of the Grafana dashboard, with its variables filled in.
func panels(t *testing.T) map[string]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "contrib/grafana/zabor.json"), &board); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			all[fmt.Sprintf("%s, %d", p.Title, i+1)] = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(target.Expr)
		}
	}
	return all
}

// documented are the labels of each metric that the documentation's tables have.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	line := regexp.MustCompile("(?m)^\\| (`zabor_[^|]*) \\|([a-z, ]*)\\|")
	for _, found := range line.FindAllStringSubmatch(string(read(t, "docs/metrics.md")), -1) {
		for _, name := range regexp.MustCompile(`zabor_[a-z_]+`).FindAllString(found[1], -1) {
			known[name] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ' ' || r == ',' })
		}
	}
	if len(known) < 20 {
		t.Fatalf("%d metrics are documented", len(known))
	}
	return known
}

// Every expression is one of Prometheus's, about metrics and labels that there are.
func TestExpressions(t *testing.T) {
	t.Parallel()
	known := documented(t)
	all := panels(t)
	for name, expr := range alerts(t) {
		all[name] = expr
	}
	if len(all) < 25 {
		t.Fatalf("%d expressions", len(all))
	}
	for where, text := range all {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %s: %v", where, text, err)
			continue
		}
		has := []string{"instance", "job"} // Prometheus's own
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			selector, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			name := selector.Name
			mine, there := known[name]
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if base, cut := strings.CutSuffix(name, part); cut && !there {
					mine, there = known[base]
					mine = append(slices.Clone(mine), "le")
				}
			}
			if !there {
				t.Errorf("%s: there is no metric %s", where, name)
			}
			has = append(has, mine...)
			for _, m := range selector.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(mine, m.Name) {
					t.Errorf("%s: %s has no label %s", where, name, m.Name)
				}
			}
			return nil
		})
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if by, ok := n.(*parser.AggregateExpr); ok {
				for _, label := range by.Grouping {
					if !slices.Contains(has, label) {
						t.Errorf("%s: nothing in it has the label %s", where, label)
					}
				}
			}
			return nil
		})
	}
}

// Each alert is there when it must be, and is not when all is well: by series as
// zabor's processes make them, one sample a minute.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tests := map[string][]struct {
		series string
		fires  bool
	}{
		"ZaborCritical": {
			{`zabor_alerts_total{code="two-references",severity="critical"} _x30 1x10`, true}, // the first of its code
			{`zabor_alerts_total{code="two-references",severity="critical"} 1x32 2x8`, true},
			{`zabor_alerts_total{code="two-references",severity="critical"} 1x40`, false}, // half an hour ago
			{`zabor_alerts_total{code="held",severity="warning"} _x30 1x10`, false},
		},
		"ZaborHeld": {
			{`zabor_rows{state="held"} 2x40`, true},
			{`zabor_rows{state="doubt"} 2x40`, false},
		},
		"ZaborDoubtIsOld": {
			{`zabor_rows_oldest_seconds{state="doubt"} 0+60x40`, true},
			{`zabor_rows_oldest_seconds{state="doubt"} 600x40`, false},
			{`zabor_rows_oldest_seconds{state="held"} 0+60x40`, false},
		},
		"ZaborProviderPaused": {
			{`zabor_provider_paused_seconds{provider="stripe"} 30x40`, true},
			{`zabor_provider_paused_seconds{provider="stripe"} 0x40`, false},
		},
		"ZaborAnswerWithoutRow": {
			{`zabor_answers_without_row{instance="a"} 1x40`, true},
			{`zabor_answers_without_row{instance="a"} 0x40`, false},
		},
		"ZaborAlertsLost": {
			{`zabor_alerts_lost_total 0x20 1x20`, true},
			{`zabor_alerts_lost_total 3x100`, false},
		},
		"ZaborQueueIsOld": {
			{`zabor_queue_oldest_seconds{queue="payments"} 301x40`, true},
			{`zabor_queue_oldest_seconds{queue="payments"} 299x40`, false},
		},
		"ZaborStands": {
			{`zabor_queue_messages{queue="payments",place="ready"} 5x40`, true}, // by the dashboard alone: no worker is there
			{"zabor_queue_messages{queue=\"payments\",place=\"ready\"} 5x40\n  zabor_messages_taken_total{queue=\"payments\"} 7x40", true},
			{"zabor_queue_messages{queue=\"payments\",place=\"ready\"} 5x40\n  zabor_messages_taken_total{queue=\"payments\"} 0+3x40", false},
			{"zabor_queue_messages{queue=\"stuck\",place=\"ready\"} 5x40\n  zabor_messages_taken_total{queue=\"stuck\"} 7x40\n" + // beside a busy one
				"  zabor_queue_messages{queue=\"payments\",place=\"ready\"} 5x40\n  zabor_messages_taken_total{queue=\"payments\"} 0+3x40\n  zabor_captures_total{provider=\"stripe\"} 0+3x40", true},
			{"zabor_queue_messages{queue=\"payments\",place=\"ready\"} 5x40\n  zabor_messages_taken_total{queue=\"payments\",instance=\"a\"} 7x40\n  zabor_messages_taken_total{queue=\"payments\",instance=\"b\"} 0+1x40", false},
			{`zabor_queue_messages{queue="payments",place="delayed"} 5x40`, false},
			{`zabor_queue_messages{queue="payments",place="ready"} 0x40`, false},
		},
		"ZaborGone": {
			{`zabor_scrape_errors{what="fence",instance="a"} 0x20`, true}, // every process has ended
			{`zabor_audit_double_charged 0x40`, true},                     // whoever audits charges nothing
			{"zabor_scrape_errors{what=\"fence\",instance=\"a\"} 0x20\n  zabor_scrape_errors{what=\"fence\",instance=\"b\"} 0x40", false},
			{`zabor_scrape_errors{what="fence",instance="a"} 1x40`, false}, // it is there, and cannot see
		},
		"ZaborQueueUnseen": {
			{"zabor_queue_messages{queue=\"payments\",place=\"ready\"} 0x20\n  zabor_queue_messages{queue=\"mail\",place=\"ready\"} 0x40", true},
			{"zabor_queue_messages{queue=\"payments\",place=\"ready\",instance=\"a\"} 0x20\n  zabor_queue_messages{queue=\"payments\",place=\"ready\",instance=\"b\"} 0x40", false},
			{`zabor_queue_messages{queue="payments",place="ready"} 0x40`, false},
		},
		"ZaborFenceUnwritable": {
			{`zabor_store_errors_total{operation="insert",instance="a"} _x34 1+2x5`, true},
			{`zabor_store_errors_total{operation="insert",instance="a"} 4x40`, false},
		},
		"ZaborScrapeBlind": {
			{`zabor_scrape_errors{what="fence",queue="",instance="a"} 1x40`, true},
			{`zabor_scrape_errors{what="queue",queue="payments",instance="a"} 1x40`, true},
			{`zabor_scrape_errors{what="fence",instance="a"} 0x40`, false},
		},
		"ZaborAuditDiffers": {
			{"zabor_audit_double_charged 1x40\n  zabor_audit_lost 0x40", true},
			{"zabor_audit_double_charged 0x40\n  zabor_audit_lost 2x40", true},
			{"zabor_audit_double_charged 0x40\n  zabor_audit_lost 0x40", false},
		},
		"ZaborAuditIsOld": {
			{`zabor_audit_last_complete_timestamp_seconds{instance="a"} -1800x40`, true}, // time begins at 0 here, and it is 2,400
			{`zabor_audit_last_complete_timestamp_seconds{instance="a"} 1200x40`, false},
		},
	}
	all := alerts(t)
	for name := range all {
		if len(tests[name]) == 0 {
			t.Errorf("%s is not tested", name)
		}
	}
	for name, cases := range tests {
		if all[name] == "" {
			t.Errorf("there is no alert %s", name)
			continue
		}
		for i, c := range cases {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				want := "0"
				if c.fires {
					want = "1"
				}
				input := fmt.Sprintf("load 1m\n  %s\n\neval instant at 40m count(%s) > bool 0 or vector(0)\n  {} %s\n", c.series, all[name], want)
				promqltest.RunTest(t, input, promqltest.NewTestEngine(t, false, 5*time.Minute, 100_000))
			})
		}
	}
}
