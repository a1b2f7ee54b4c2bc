package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"zabor/internal/servers"
	"zabor/sandbox"
)

// scrape sums each of a process's metrics over its labels, or over those with a
// label of that value: name{label=value}.
func scrape(t *testing.T, address string) map[string]float64 {
	t.Helper()
	text, err := request("GET", "http://"+address+"/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			sums[name] += v
			for _, l := range m.Label {
				sums[fmt.Sprintf("%s{%s=%s}", name, l.GetName(), l.GetValue())] += v
			}
		}
	}
	return sums
}

// Workers are killed in the midst of calls, one after another, and what their
// metrics said right then adds up to what the audit counts at the provider and in
// the table. ZABOR_SOAK=1 makes it 1,000 orders instead of 16.
func TestMetricsAgreeWithTheAudit(t *testing.T) {
	t.Parallel()
	n, every := 16, 5
	if os.Getenv("ZABOR_SOAK") == "1" {
		n, every = 1000, 20
	}
	s := newShop(t, databases[0].open(t), options{})
	address := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	s.edit("lanes: ", fmt.Sprintf("metrics: {listen: %q}\nlanes: ", address))
	ids := orders(n)
	var jobs []string
	for _, id := range ids {
		jobs = append(jobs, fmt.Sprintf(`{"uuid":"u-%[1]s","displayName":"x","job":"Illuminate\\Queue\\CallQueuedHandler@call","attempts":0,"data":{"commandName":"App\\Jobs\\ChargeOrder","command":"O:20:\"App\\Jobs\\ChargeOrder\":2:{s:7:\"orderId\";s:%[2]d:\"%[1]s\";s:11:\"amountCents\";i:1999;}"}}`, id, len(id)))
	}
	s.pushJobs(jobs...)

	total := map[string]float64{}
	add := func(life map[string]float64) {
		for name, v := range life {
			total[name] += v
		}
	}
	// There is one lane: while the provider answers a call, everything before is
	// saved and counted, and nothing after has begun.
	lives := make(chan *process, 1)
	calls := 0
	s.onCharge(func(sandbox.Charge) {
		if calls++; calls%every != 0 {
			return
		}
		w := <-lives
		add(scrape(t, address))
		w.kill()
		lives <- w
	})
	killed := 0
	var w *process
	for {
		w = s.worker("--queue", "payments")
		lives <- w
		ended := false
		eventually(t, "the worker has died, or all is done", func() bool {
			select {
			case <-w.done:
				ended = true
			default:
				open, err := s.store.CountUnresolved(t.Context(), "test")
				return err == nil && open == 0 && s.depth() == depth{}
			}
			return ended
		})
		<-lives
		if !ended {
			break
		}
		killed++
	}
	last := scrape(t, address)
	add(last)
	w.signal(syscall.SIGTERM)
	w.exit(0)
	s.allChargedOnce(ids)

	// The audit, from the provider's own list.
	export := filepath.Join(t.TempDir(), "charges.csv")
	var csv strings.Builder
	csv.WriteString("Txn,Sum,Cur,Key\n")
	for _, id := range ids {
		for _, c := range s.provider.Charges(id) {
			fmt.Fprintf(&csv, "%s,%s,%s,%s\n", c.ID, strconv.FormatFloat(float64(c.Amount)/100, 'f', 2, 64), c.Currency, c.Key)
		}
	}
	if err := os.WriteFile(export, []byte(csv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := s.command(0, "audit", "--provider-export", "acquirer="+export, "--columns", "reference=Txn,amount=Sum,currency=Cur,key=Key", "--json")
	var audited struct {
		Successes int `json:"provider_successes"`
		Rows      int `json:"unique_rows"`
	}
	if err := json.Unmarshal([]byte(out), &audited); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		want int
	}{
		{"zabor_provider_successes_total", audited.Successes},
		{"zabor_rows_entered_total{state=settled}", audited.Rows},
		{"zabor_attempts", audited.Rows},
		{"zabor_provider_successes_total{by=look-up}", killed},
		{"zabor_provider_successes_total{by=call}", n - killed},
		{"zabor_captures_total", n},
	} {
		if got := int(total[tt.name]); got != tt.want {
			t.Errorf("%s is %d over all lives, want %d", tt.name, got, tt.want)
		}
	}
	if audited.Successes != n || audited.Rows != n || killed < 2 {
		t.Errorf("%d successes, %d rows, %d kills", audited.Successes, audited.Rows, killed)
	}
	for _, name := range []string{"zabor_rows", "zabor_queue_messages", "zabor_scrape_errors", "zabor_store_errors_total", "zabor_alerts_lost_total"} {
		if last[name] != 0 {
			t.Errorf("%s is %v at the end", name, last[name])
		}
	}
}
