package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor/internal/produce"
	"zabor/internal/servers"
	"zabor/sqlstore"
)

// pageLimit is what each page may take at the median.
const pageLimit = 200 * time.Millisecond

// pages are all pages of the dashboard that read rows, with what they are asked
// for. Orders are 1000000 and up, see fillPages.
type page struct{ name, path string }

var pages = []page{
	{name: "overview", path: "/"},
	{name: "overview 1h", path: "/?span=1h"},
	{name: "overview 30d", path: "/?span=30d"},
	{name: "fences", path: "/fences"},
	{name: "fences by state", path: "/fences?state=settled"},
	{name: "fences by step", path: "/fences?step=refund"},
	{name: "fences by rare step", path: "/fences?step=deposit"},
	{name: "fences by state and rare step", path: "/fences?state=settled&step=deposit"},
	{name: "fences by step of nobody", path: "/fences?step=nobody"},
	{name: "fences by state and step", path: "/fences?state=held&state=declined&step=charge"},
	{name: "fences by order", path: "/fences?q=1000777"},
	{name: "fences by beginning", path: "/fences?q=10"},
	{name: "fences by reference", path: "/fences?q=pay_1000778"},
	{name: "fences, none", path: "/fences?q=nobody"},
	{name: "fence", path: "/fence?scope=bench&order=1000008&step=charge"},
	{name: "fence held", path: "/fence?scope=bench%2Feu&order=1001000&step=charge"},
	{name: "in doubt and held", path: "/open"},
	{name: "failed", path: "/failed"},
	{name: "audit", path: "/audit"},
	{name: "doctor", path: "/doctor"},
}

// BenchmarkPages asks the dashboard, which runs as a process of its own, for each
// of its pages and for an older page of those that have several, over 20,000 rows;
// with ZABOR_SOAK=1 over a million. first-ms is the first answer, when nothing is
// counted yet; p50-ms and p99-ms are of those that follow:
//
//	ZABOR_SOAK=1 make bench BENCH=Pages
func BenchmarkPages(b *testing.B) {
	rows := 20_000
	if os.Getenv("ZABOR_SOAK") == "1" {
		rows = 1_000_000
	}
	for _, d := range databases {
		b.Run(fmt.Sprintf("%s/rows=%d", d.name, rows), func(b *testing.B) {
			dir := diskDir(b)
			address := d.address(b)
			store := openStore(b, address)
			fillPages(b, store, rows)
			site := serveDashboard(b, dir, address)
			all := slices.Clone(pages)
			for _, list := range []struct{ name, path, link string }{
				{"fences, older", "/fences", "/fences?after="}, {"held, older", "/open", "/open?held="},
			} {
				all = append(all, page{name: list.name, path: linkOn(b, site, list.path, list.link)})
			}
			for _, page := range all {
				b.Run(strings.ReplaceAll(page.name, " ", "_"), func(b *testing.B) {
					var took []time.Duration
					size := 0
					begun := time.Now()
					textOf(b, site+page.path)
					first := time.Since(begun)
					for b.Loop() {
						begun := time.Now()
						size = len(textOf(b, site+page.path))
						took = append(took, time.Since(begun))
					}
					slices.Sort(took)
					median := took[len(took)/2]
					b.ReportMetric(first.Seconds()*1000, "first-ms")
					b.ReportMetric(median.Seconds()*1000, "p50-ms")
					b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
					b.ReportMetric(float64(size)/1000, "kB")
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(0, "B/op") // of this process alone
					b.ReportMetric(0, "allocs/op")
					if median > pageLimit {
						b.Errorf("%s: %s at the median, at most %s", page.path, median, pageLimit)
					}
				})
			}
		})
	}
}

// textOf is a page's text.
func textOf(b *testing.B, address string) string {
	b.Helper()
	response, err := http.Get(address)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s, %v\n%s", address, response.Status, err, body)
	}
	return string(body)
}

// linkOn is the first link on a page that begins so.
func linkOn(b *testing.B, site, path, link string) string {
	b.Helper()
	text := textOf(b, site+path)
	_, after, found := strings.Cut(text, `href="`+link)
	if !found {
		b.Fatalf("%s has no link to %s", path, link)
	}
	rest, _, _ := strings.Cut(after, `"`)
	return link + strings.ReplaceAll(rest, "&amp;", "&")
}

const pagesConfig = `
scope: bench
fence: "${FENCE}"
redis: "${REDIS}"
dashboard: {listen: "${LISTEN}"}
queues: {payments: {laravel: {connection: redis, retry_after: 90s}}}
providers: {stripe: {profile: stripe, secret: sk_test_bench}}
steps:
  charge:
    message: 'App\Jobs\ChargeOrder'
    order: orderId
    amount: amountCents
    currency: EUR
    provider: stripe
    request: {path: /v1/payment_intents, form: {amount: "{{minor}}", currency: "{{currency}}", confirm: "true"}}
`

// serveDashboard starts the dashboard over the fence of that address and is where
// it answers.
func serveDashboard(b *testing.B, dir, fence string) (site string) {
	file := filepath.Join(dir, "zabor.yaml")
	if err := os.WriteFile(file, []byte(pagesConfig), 0o600); err != nil {
		b.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", servers.Port(b))
	cmd := exec.Command(buildCommand(b, dir), "dashboard", "-c", file) //nolint:noctx // it is told to end, below
	cmd.Env = append(os.Environ(), "FENCE="+fence, "LISTEN="+listen, "REDIS="+servers.Redis(b).URL())
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if b.Failed() {
			b.Logf("the dashboard says:\n%s", &log)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if response, err := http.Get("http://" + listen + "/doctor"); err == nil {
			response.Body.Close()
			return "http://" + listen
		}
	}
	b.Fatalf("the dashboard does not answer:\n%s", &log)
	return ""
}

// words are what a database writes otherwise than the others.
type words struct {
	numbers string // a table of the numbers 0 to n, as n, where there is one argument
	bytes   string // a text as bytes
	id      string // 16 bytes made of n
	patient string // lets a statement take its time
	settle  string // what the server itself does after a while
}

var dialects = map[string]words{
	"sqlite": {
		numbers: "(WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) SELECT n FROM numbers)",
		bytes:   "CAST(%s AS BLOB)", id: "randomblob(16)", patient: "SELECT 1", settle: "PRAGMA wal_checkpoint(TRUNCATE)",
	},
	"mysql":    {numbers: "(SELECT seq AS n FROM seq_0_to_%d)", bytes: "%s", id: "UNHEX(MD5(%s))", patient: "SET SESSION max_statement_time = 0", settle: "ANALYZE TABLE zabor_fences, zabor_notes"},
	"postgres": {numbers: "generate_series(0::bigint, %d) AS n (n)", bytes: "convert_to(%s, 'UTF8')", id: "decode(md5((%s)::text), 'hex')", patient: "SET statement_timeout = 0", settle: "VACUUM ANALYZE"},
}

// keptRequest is what is kept of a request while its row is open.
const keptRequest = `{"v":1,"method":"POST","path":"/v1/payment_intents","type":"application/json","body":"{\"amount\":1999,\"currency\":\"eur\",\"customer\":\"cus_9\",\"metadata\":{\"order\":\"1000000\",\"zabor_key\":\"k0123456789012345678901234\"}}"}`

// fillPages makes n rows as two months of a shop leave them: of a thousand three are
// held, one in doubt, one under way, two pending, one free again, twenty declined
// and the others settled; every fiftieth is a refund, and one in a hundred thousand
// a deposit. Those that were not plain have notes. A thousand messages failed.
func fillPages(b *testing.B, store *sqlstore.Store, n int) {
	w := dialects[store.Dialect()]
	raw := func(text string) string { return fmt.Sprintf(w.bytes, text) }
	id := func(number string) string {
		if !strings.Contains(w.id, "%s") {
			return w.id
		}
		return fmt.Sprintf(w.id, number)
	}
	numbers := fmt.Sprintf(w.numbers, n-1)
	if store.Dialect() != "postgres" {
		numbers += " numbered"
	}
	now := time.Now().UnixMicro()
	since := fmt.Sprintf("%d - (n * 7919 %% 5184000) * 1000000 - n %% 1000000", now)
	const state = "CASE WHEN n % 1000 < 3 THEN 'held' WHEN n % 1000 = 3 THEN 'doubt' WHEN n % 1000 = 4 THEN 'captured' WHEN n % 1000 < 7 THEN 'pending' " +
		"WHEN n % 1000 = 7 THEN 'released' WHEN n % 1000 < 28 THEN 'declined' ELSE 'settled' END"
	const step = "CASE WHEN n % 100000 = 99999 THEN 'deposit' WHEN n % 50 = 49 THEN CONCAT('refund:R-', n) ELSE 'charge' END"
	key := raw("CASE WHEN n % 50 = 0 THEN 'bench/eu' ELSE 'bench' END") + ", " + raw("CONCAT('', 1000000 + n)") + ", " + raw(step)
	conn, err := store.DB().Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	run := func(query string) {
		b.Helper()
		if _, err := conn.ExecContext(b.Context(), query); err != nil {
			b.Fatalf("%.300s: %v", query, err)
		}
	}
	run(w.patient)
	run(`INSERT INTO zabor_fences (scope, order_id, step, state, cause, epoch, attempt_id, provider, account, address, generation, provider_key, prepare_key,
		amount_minor, currency, message_fp, request_fp, request, prepared, reference, other_reference, answer_status, answer_header, answer_body,
		reason, hook_due, parked, tries, unproven, lease, absent_after, hold_after, pending_for, fields, hook_data, hook_done, replays, lingers,
		forwarded, captured_at, send_until, replay_until, state_since, send_id, due_at, watcher, watch_until, watched, silent)
		SELECT ` + key + `, ` + state + `, 'call', 2, ` + id("n") + `, ` + raw("'stripe'") + `, ` + raw("''") + `, '', 0, CONCAT('k', 1000000 + n, '0123456789012345678'), '',
		1000 + n % 9000, 'EUR', ` + raw("'0123456789abcdef0123456789abcdef'") + `, ` + raw("'0123456789abcdef0123456789abcdef'") + `,
		CASE WHEN n % 1000 < 8 THEN ` + raw("'"+keptRequest+"'") + ` ELSE NULL END, ` + raw("''") + `,
		CASE WHEN n % 1000 < 8 THEN ` + raw("''") + ` ELSE ` + raw("CONCAT('pay_', 1000000 + n)") + ` END, CASE WHEN n % 200000 = 150 THEN ` + raw("CONCAT('pay_again_', n)") + ` ELSE ` + raw("''") + ` END,
		200, '', NULL, CASE WHEN n % 1000 < 4 THEN 'no answer came within 30s' ELSE '' END, '', ` + raw("''") + `,
		1, 1, 30000000, 60000000, 3600000000, 0, ` + raw("''") + `, NULL, 0, 0, 0,
		0, ` + since + ` - 1500000, ` + since + ` + 30000000, 0, ` + since + `, ` + id("n") + `, CASE WHEN ` + state + ` IN ('settled', 'declined') THEN NULL ELSE 4611686018427387904 END, ` + raw("''") + `, 0, 0, 0
		FROM ` + numbers)
	for at, kind := range []string{"doubt", "held"} {
		run(`INSERT INTO zabor_notes (id, scope, order_id, step, epoch, at, kind, actor, note)
			SELECT ` + id(fmt.Sprintf("n + %d", (at+1)*n)) + `, ` + key + `, ` + fmt.Sprint(at+2) + `, ` + since + ` + ` + fmt.Sprint(at) + `, '` + kind + `', ` + raw("''") + `, 'no answer came within 30s'
			FROM ` + numbers + ` WHERE n % 1000 < 4 OR n % 40 = 39`)
	}
	run(w.settle)
	if err := conn.Close(); err != nil {
		b.Fatal(err)
	}
	fillFailed(b, store)
}

// fillFailed makes Laravel's failed_jobs, with a thousand jobs.
func fillFailed(b *testing.B, store *sqlstore.Store) {
	serial, text, at := "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "TEXT", "DATETIME"
	mark := func(int) string { return "?" }
	switch store.Dialect() {
	case "mysql":
		serial, text = "BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY NOT NULL", "LONGTEXT"
	case "postgres":
		serial, at = "BIGSERIAL PRIMARY KEY NOT NULL", "TIMESTAMP(0)"
		mark = func(i int) string { return fmt.Sprintf("$%d", i) }
	}
	if _, err := store.DB().ExecContext(b.Context(), "CREATE TABLE failed_jobs (id "+serial+", uuid VARCHAR(255) NOT NULL UNIQUE, connection "+text+" NOT NULL, queue "+text+" NOT NULL, "+
		"payload "+text+" NOT NULL, exception "+text+" NOT NULL, failed_at "+at+" DEFAULT CURRENT_TIMESTAMP NOT NULL)"); err != nil {
		b.Fatal(err)
	}
	tx, err := store.DB().BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		payload, err := produce.Laravel(produce.Charge{Order: int64(1_000_000 + i), Minor: 1999})
		if err == nil {
			_, err = tx.ExecContext(b.Context(), "INSERT INTO failed_jobs (uuid, connection, queue, payload, exception) VALUES ("+mark(1)+", 'redis', 'payments', "+mark(2)+", 'RuntimeException: held')",
				fmt.Sprintf("u-%d", i), string(payload))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPeoplesIndexes is what the indexes cost on the charge road that only
// people and the dashboard need: those of the second migration. Compare its two
// halves with one another, which run in turn.
func BenchmarkPeoplesIndexes(b *testing.B) {
	for _, d := range databases {
		for _, with := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/indexes=%v", d.name, with), func(b *testing.B) {
				s := openStore(b, d.address(b))
				if !with {
					for _, name := range []string{"recent", "order", "reference", "other"} {
						drop := "DROP INDEX zabor_fences_" + name
						if s.Dialect() == "mysql" {
							drop += " ON zabor_fences"
						}
						if _, err := s.DB().ExecContext(b.Context(), drop); err != nil {
							b.Fatal(err)
						}
					}
				}
				benchFence(b, s, 64)
			})
		}
	}
}
