package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// gate lets the provider answer until so many charges more were made, and then holds
// every answer back until it is opened.
type gate struct {
	mu      sync.Mutex
	armed   bool
	skip    int           // charges that are answered before it shuts
	waiting int           // answers that it holds back
	open    chan struct{} // closed when it opens
}

func (g *gate) arm(skip int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.skip, g.waiting, g.open = true, skip, 0, make(chan struct{})
}

func (g *gate) charge(sandbox.Charge) {
	g.mu.Lock()
	if !g.armed || g.skip > 0 {
		g.skip--
		g.mu.Unlock()
		return
	}
	g.waiting++
	open := g.open
	g.mu.Unlock()
	<-open
}

func (g *gate) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.armed {
		g.armed = false
		close(g.open)
	}
}

// Workers with several lanes are killed in the midst of calls, at random, one after
// another, and what their metrics said right then adds up to what the audit counts at
// the provider and in the table. ZABOR_SOAK=1 makes it 1,000 orders and 30 kills on
// each database, instead of 18 and 2 on one.
func TestMetricsAgreeWithTheAudit(t *testing.T) {
	t.Parallel()
	if os.Getenv("ZABOR_SOAK") != "1" {
		metricsAgree(t, databases[0].open(t), 18, 2)
		return
	}
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			metricsAgree(t, d.open(t), 1000, 30)
		})
	}
}

func metricsAgree(t *testing.T, fence string, n, kills int) {
	const lanes = 3
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newShop(t, fence, options{lanes: lanes, timeout: 5 * time.Second, reserve: 8 * time.Second, raced: true})
	address := fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	s.edit("lanes: ", fmt.Sprintf("metrics: {listen: %q}\nlanes: ", address))
	ids := orders(n)
	var jobs []string
	for _, id := range ids {
		jobs = append(jobs, fmt.Sprintf(`{"uuid":"u-%[1]s","displayName":"x","job":"Illuminate\\Queue\\CallQueuedHandler@call","attempts":0,"data":{"commandName":"App\\Jobs\\ChargeOrder","command":"O:20:\"App\\Jobs\\ChargeOrder\":2:{s:7:\"orderId\";s:%[2]d:\"%[1]s\";s:11:\"amountCents\";i:1999;}"}}`, id, len(id)))
	}
	total := map[string]float64{}
	add := func(life map[string]float64) {
		for name, v := range life {
			total[name] += v
		}
	}
	var g gate
	s.onCharge(g.charge)
	t.Cleanup(g.release)
	const byCall, byLookup, settled = "zabor_provider_successes_total{by=call}", "zabor_provider_successes_total{by=look-up}", "zabor_rows_entered_total{state=settled}"
	// push puts the next jobs on the queue. Only as many are on it as a life may charge.
	push := func(more int) {
		s.pushJobs(jobs[:more]...)
		jobs = jobs[more:]
	}
	cut := 0 // calls whose worker was killed before it had the answer
	var w *process
	for killed := 0; ; killed++ {
		w = s.worker("--queue", "payments")
		// What the one before has left in doubt is looked up first: a look-up between
		// the scrape and the kill would be counted by nobody.
		eventually(t, "what was cut off is found", func() bool {
			return int(total[byLookup]+scrape(t, address)[byLookup]) == cut
		})
		if killed == kills {
			break
		}
		skip := random.IntN(n/kills - lanes)
		g.arm(skip)
		push(skip + lanes)
		eventually(t, "every lane waits for the provider", func() bool { return g.held() == lanes })
		// Nothing more can begin; what had begun before is saved and counted.
		var life map[string]float64
		eventually(t, "all but what waits is counted", func() bool {
			life = scrape(t, address)
			return int(life["zabor_captures_total"]-life[byCall]) == lanes && life[settled] == life[byCall]+life[byLookup]
		})
		w.kill()
		add(life)
		cut += lanes
		g.release()
	}
	push(len(jobs))
	eventually(t, "all is done", func() bool {
		open, err := s.store.Reports().Unresolved(t.Context(), "test")
		return err == nil && open == 0 && s.depth() == depth{}
	})
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
		{settled, audited.Rows},
		{"zabor_attempts", audited.Rows},
		{byLookup, cut},
		{byCall, n - cut},
		{"zabor_captures_total", n},
	} {
		if got := int(total[tt.name]); got != tt.want {
			t.Errorf("%s is %d over all lives, want %d", tt.name, got, tt.want)
		}
	}
	if audited.Successes != n || audited.Rows != n || cut < 2*lanes {
		t.Errorf("%d successes, %d rows, %d calls cut off", audited.Successes, audited.Rows, cut)
	}
	for _, name := range []string{"zabor_rows", "zabor_queue_messages", "zabor_scrape_errors", "zabor_store_errors_total", "zabor_alerts_lost_total"} {
		if last[name] != 0 {
			t.Errorf("%s is %v at the end", name, last[name])
		}
	}
}
