package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"zabor/internal/servers"
)

// upgraded is a provider that has charges of before, and counts those that are
// asked of it now.
type upgraded struct {
	mu      sync.Mutex
	charges map[string]string // provider key: order
	calls   map[string]int    // order: requests that moved money
}

func (u *upgraded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var body struct{ Order string }
	if text, err := io.ReadAll(r.Body); err == nil && len(text) > 0 {
		_ = json.Unmarshal(text, &body) // all zeroes fail the test
	}
	payment := func(order string) string {
		return fmt.Sprintf(`{"id": "pay_%s", "status": "paid", "amount": 1999, "currency": "EUR"}`, order)
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodGet:
		items := ""
		if order := u.charges[r.URL.Query().Get("merchant_reference")]; order != "" {
			items = payment(order)
		}
		fmt.Fprintf(w, `{"data": [%s]}`, items)
	case r.URL.Path == "/intents":
		fmt.Fprint(w, `{"id": "in_2"}`)
	default:
		u.calls[body.Order]++
		u.charges[r.Header.Get("Idempotency-Key")] = body.Order
		fmt.Fprint(w, payment(body.Order))
	}
}

// A table that the version of before has written, with rows open in every way that
// there is, under this program: before its migration a worker refuses and changes
// nothing; after it what was open is found out or called once, what was done stays,
// and a repeat calls nobody.
// testdata/upgrade says how the dumps were made.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			fence := database.open(t)
			name := map[string]string{"mysql": "mysql", "postgres": "postgres"}[strings.SplitN(fence, ":", 2)[0]]
			if name == "" {
				name = "sqlite"
			}
			dump, err := os.ReadFile("testdata/upgrade/" + name + ".sql")
			if err != nil {
				t.Fatal(err)
			}
			if err := runSQL(fence, string(dump)); err != nil {
				t.Fatal(err)
			}
			provider := &upgraded{charges: map[string]string{}, calls: map[string]int{}}
			server := httptest.NewServer(provider)
			t.Cleanup(server.Close)
			s := &shop{t: t, o: options{redis: servers.Redis(t)}, fence: fence, file: filepath.Join(t.TempDir(), "zabor.yaml")}
			text, err := os.ReadFile("testdata/upgrade/zabor.yaml")
			if err != nil {
				t.Fatal(err)
			}
			here := strings.NewReplacer("${FENCE}", fence, "${REDIS}", s.o.redis.URL(), "${ACQUIRER_URL}", server.URL).Replace(string(text))
			here += "backoff: [1s]\n"
			if err := os.WriteFile(s.file, []byte(here), 0o600); err != nil {
				t.Fatal(err)
			}
			rows := func() map[string]string {
				out, _ := s.command(exitGood, "fence", "list", "--json")
				var all []rowJSON
				if err := json.Unmarshal([]byte(out), &all); err != nil {
					t.Fatal(err)
				}
				states := map[string]string{}
				for _, row := range all {
					order := string(row.Order)
					states[order] = strings.TrimSpace(row.State + " " + row.Reference)
					if strings.HasSuffix(order, "-paid") || order == "settled" || order == "pending" {
						provider.mu.Lock()
						provider.charges[row.ProviderKey] = order
						provider.mu.Unlock()
					}
				}
				return states
			}
			if got, want := rows(), map[string]string{
				"settled": "settled pay_settled", "pending": "pending pay_pending", "declined": "declined", "held": "held", "released": "released", "prepared": "captured",
				"doubt-paid": "doubt", "doubt-absent": "doubt", "captured-paid": "captured", "captured-absent": "captured",
			}; !maps.Equal(got, want) {
				t.Fatalf("the dump has %v, want %v", got, want)
			}
			before := rows()
			refused := start(t, "worker", "-c", s.file)
			refused.exit(exitUsage)
			if log := refused.log.String(); !strings.Contains(log, "zabor migrate") {
				t.Errorf("a worker on the table of before does not say what to do:\n%s", log)
			}
			s.command(exitGood, "migrate")
			if got := rows(); !maps.Equal(got, before) {
				t.Fatalf("refused and migrated, the table has %v, and had %v", got, before)
			}
			client := redis.NewClient(&redis.Options{Addr: s.o.redis.Addr, DB: s.o.redis.DB})
			t.Cleanup(func() { client.Close() })
			push := func(order, class string) {
				payload := fmt.Sprintf(`{"uuid":"u-%[1]s","displayName":"App\\Jobs\\%[2]s@run","job":"App\\Jobs\\%[2]s@run","maxTries":null,"timeout":null,"data":{"orderId":"%[1]s","cents":1999},"id":"i-%[1]s","attempts":0}`, order, class)
				if err := client.RPush(t.Context(), "laravel_database_queues:payments", payload).Err(); err != nil {
					t.Fatal(err)
				}
			}
			// Where these were called the version of before did not keep: that nobody knows
			// them here is no proof that they were never made.
			unknown := []string{"doubt-absent", "captured-absent", "prepared"}
			want := map[string]string{"declined": "declined", "held": "held"}
			for _, order := range unknown {
				want[order] = "held"
			}
			for order := range rows() {
				if class := map[string]string{"prepared": "ConfirmOrder"}[order]; class != "" {
					push(order, class)
				} else {
					push(order, "ChargeOrder")
				}
				if want[order] == "" {
					want[order] = "settled pay_" + order
				}
			}
			running := start(t, "worker", "-c", s.file)
			becomes := func(what string) {
				t.Helper()
				eventuallyWithin(t, 2*limit, what, func() bool {
					select {
					case <-running.done:
						t.Fatalf("the worker ended with %d", running.code)
					default:
					}
					return maps.Equal(rows(), want)
				})
			}
			becomes("all that was open is settled or held")
			for _, order := range unknown { // a person has looked at the provider
				eventuallyWithin(t, 2*limit, "its message is parked", func() bool {
					for line := range strings.Lines(running.log.String()) {
						if strings.Contains(line, "parked in the failure transport") && strings.Contains(line, " message=u-"+order+" ") {
							return true
						}
					}
					return false
				})
				name := map[string]string{"prepared": "confirm"}[order]
				if name == "" {
					name = "charge"
				}
				s.command(exitGood, "fence", "release", order, name, "--reason", "looked", "--by", "ops", "--i-have-checked-the-provider", "--yes")
				want[order] = "settled pay_" + order
			}
			becomes("what a person released is called once")
			running.signal(syscall.SIGTERM)
			running.exit(exitGood)
			provider.mu.Lock()
			defer provider.mu.Unlock()
			if calls := map[string]int{"captured-absent": 1, "doubt-absent": 1, "released": 1, "prepared": 1}; !maps.Equal(provider.calls, calls) {
				t.Errorf("calls %v, want %v", provider.calls, calls)
			}
		})
	}
}
