package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/prove"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// list is the sandbox's own list, for the provider of a shop.
const list = "    list: {path: \"/payments?limit=2&since={{since}}\", items: /data, made: /created, key: /idempotency_key, orders: [/merchant_reference], next: {parameter: after, cursor: /next}}\n"

// audited is the report of "zabor audit --json", as far as tests look at it.
type audited struct {
	ProviderSuccesses int64            `json:"provider_successes"`
	UniqueRows        int64            `json:"unique_rows"`
	DoubleCharged     int64            `json:"double_charged"`
	Lost              int64            `json:"lost"`
	Kinds             map[string]int64 `json:"kinds"`
	Differences       []struct {
		Kind  string  `json:"kind"`
		Order string  `json:"order"`
		Since *string `json:"since"`
	} `json:"differences"`
}

func (s *shop) audit(code int, args ...string) (a audited) {
	s.t.Helper()
	out, errs := s.command(code, append([]string{"audit", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		s.t.Fatalf("%v: %s%s", err, out, errs)
	}
	return a
}

// strategyWorker starts a worker of a strategy without a fence, as "zabor prove"
// does, on the shop's Laravel queue.
func (s *shop) strategyWorker(strategy prove.Strategy, payments string) *process {
	s.t.Helper()
	settings, err := json.Marshal(prove.WorkerSettings{
		Strategy: strategy, Queue: prove.Laravel, Scope: "test", Redis: s.o.redis.URL(), Prefix: "laravel_database_", Database: payments,
		Provider: s.url, Reserve: 2 * time.Second, LockLife: time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(binary(s.t), "prove-worker")
	cmd.Stdin = bytes.NewReader(settings)
	return startCommand(s.t, cmd)
}

// What "zabor prove" shows of ack-after-call, audit finds in the data: the worker
// that people write dies between the provider's 200 and the ack, the next one
// charges again, and the shop's own table has one payment.
func TestAuditOfProof(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.edit("    lookup:", list+"    lookup:")
	own := "sqlite://" + filepath.Join(t.TempDir(), "shop.db")
	if err := runSQL(own, "CREATE TABLE zabor_prove_payments (scope VARCHAR(64) NOT NULL, order_id VARCHAR(64) NOT NULL, reference VARCHAR(64) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	const query = "SELECT order_id AS \"order\", reference FROM zabor_prove_payments"
	for order := int64(1); order <= 3; order++ {
		s.redis.RPush(t.Context(), "laravel_database_queues:"+prove.LaravelQueue, job(t, order, 0))
	}
	s.killedAtCharge("2", func() *process { return s.strategyWorker(prove.AckAfter, own) })
	s.strategyWorker(prove.AckAfter, own).exit(exit.Good)
	if got := len(s.provider.Charges("2")); got != 2 {
		t.Fatalf("order 2 was charged %d times: that is no proof", got)
	}

	a := s.audit(exit.BadAnswer, "-c", s.file, "--provider-list", "acquirer", "--no-queues")
	if a.ProviderSuccesses != 4 || a.DoubleCharged != 1 || a.Kinds["charged-twice"] != 1 || a.Differences[0].Kind != "charged-twice" || a.Differences[0].Order != "2" {
		t.Errorf("by the provider's list: %+v", a)
	}

	// The same shop without a zabor.yaml: an export, and its own table.
	export := filepath.Join(t.TempDir(), "export.jsonl")
	var lines bytes.Buffer
	for _, order := range []string{"1", "2", "3"} {
		for _, c := range s.provider.Charges(order) {
			fmt.Fprintf(&lines, "{\"id\": %q, \"order\": %q, \"amount\": %d, \"currency\": %q}\n", c.ID, c.Order, c.Amount, c.Currency)
		}
	}
	if err := os.WriteFile(export, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t), "audit", "--json", "--provider-export", export, "--columns", "reference=/id,order=/order,minor=/amount,currency=/currency",
		"--database", "SHOP_DB", "--payments-query", query)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "SHOP_DB="+own)
	out, _ := cmd.Output() // its code is looked at below
	a = audited{}
	if err := json.Unmarshal(out, &a); err != nil || cmd.ProcessState.ExitCode() != exit.BadAnswer {
		t.Fatalf("code %d, %v: %s", cmd.ProcessState.ExitCode(), err, out)
	}
	if a.ProviderSuccesses != 4 || a.UniqueRows != 3 || a.DoubleCharged != 1 || a.Kinds["payment-twice"] != 0 {
		t.Errorf("without a fence: %+v", a)
	}
}

// A row that is open when the queues are wiped is told of by "audit --watch" and
// found by audit, with its order and age: a released one (test 21 of the protocol),
// and one whose worker died (laravel/horizon#72, B033).
func TestAuditOfAWipedQueue(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{noLookup: true, hold: time.Hour})
	in := newInbox(t, http.StatusOK)
	s.add("alerts: [\"" + in.address() + "\"]\nmetrics: {listen: \"${METRICS:-127.0.0.1:" + fmt.Sprint(servers.Port(t)) + "}\"}\n")
	metrics := fmt.Sprintf("127.0.0.1:%d", servers.Port(t)) // the worker has another
	if err := writeRow(s.fence, zabor.Released, zabor.Key{Scope: "test", Order: "1", Step: "charge"}); err != nil {
		t.Fatal(err)
	}
	s.redis.RPush(t.Context(), "laravel_database_queues:payments", job(t, 1, 1), job(t, 2, 0))
	if a := s.audit(exit.Good); a.Lost != 0 || a.Kinds["waiting"] != 1 {
		t.Errorf("before: %+v", a)
	}
	watch := startIn(t, []string{"METRICS=" + metrics}, "audit", "--watch", "1s", "-c", s.file)
	watch.logged("msg=audited")

	if err := s.redis.LPop(t.Context(), "laravel_database_queues:payments").Err(); err != nil { // order 2 alone is taken
		t.Fatal(err)
	}
	s.killedAtCharge("2", func() *process { return s.worker() })
	if err := s.redis.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.leaseOver("2")
	a := s.audit(exit.BadAnswer)
	if a.Lost != 2 || a.Kinds["lost"] != 2 {
		t.Errorf("after: %+v", a)
	}
	orders := []string{}
	for _, d := range a.Differences {
		if d.Kind != "lost" {
			continue
		}
		if orders = append(orders, d.Order); d.Since == nil {
			t.Errorf("order %s without its age", d.Order)
		}
	}
	if slices.Sort(orders); !slices.Equal(orders, []string{"1", "2"}) {
		t.Errorf("lost: %q", orders)
	}
	eventually(t, "the alert has come", func() bool { return strings.Contains(in.all(), "lost") })
	metric := func(text string) {
		t.Helper()
		eventually(t, text, func() bool {
			body, err := request("GET", "http://"+metrics+"/metrics", "")
			return err == nil && strings.Contains(body, text)
		})
	}
	for _, text := range []string{
		`zabor_audit_differences{kind="lost",severity="critical"} 2`, `zabor_audit_differences{kind="charged-twice",severity="critical"} 0`,
		"zabor_audit_lost 2", "zabor_audit_double_charged 0", "zabor_audit_unique_rows 0", "zabor_audit_provider_successes 0", `zabor_alerts_total{code="audit-lost",severity="critical"}`,
		`zabor_audit_runs_total{result="failed"} 0`, "zabor_audit_duration_seconds 0.", "zabor_audit_last_complete_timestamp_seconds 1.", "zabor_config_info",
	} {
		metric(text)
	}
	watch.signal(syscall.SIGTERM)
	watch.exit(exit.Good)
}

// A stream is trimmed while a worker has a message of it (symfony/symfony#53406): a
// worker that lives settles its row; of one that dies the row stays open, audit
// lists it as lost, and doctor says of the stream that it was trimmed.
func TestAuditOfATrimmedStream(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{noLookup: true, hold: time.Hour})
	trim := func() {
		if err := s.redis.XTrimMaxLen(context.Background(), "messages", 0).Err(); err != nil {
			t.Error(err)
		}
	}
	put(t, newMessage(s.o.redis, "symfony-json", "1001"))
	s.onCharge(func(sandbox.Charge) { trim() })
	w := s.worker()
	eventually(t, "the row is settled", func() bool { return s.state("1001") == zabor.Settled && s.depth() == depth{} })
	w.signal(syscall.SIGTERM)
	w.exit(exit.Good)

	put(t, newMessage(s.o.redis, "symfony-json", "1002"))
	s.killedAtCharge("1002", func() *process { return s.worker() })
	trim()
	s.leaseOver("1002")
	a := s.audit(exit.BadAnswer)
	if a.Lost != 1 || a.Kinds["lost"] != 1 {
		t.Errorf("%+v", a)
	}
	for _, d := range a.Differences {
		if d.Order != "1002" || d.Since == nil {
			t.Errorf("%+v, want only order 1002 with its age", d)
		}
	}
	if out, _ := s.command(exit.BadAnswer, "doctor"); !strings.Contains(out, "ZB141") {
		t.Errorf("doctor: %s", out)
	}
}

// On a replica of MariaDB, as a user that may only read, audit finds what it finds
// on the primary, and doctor says that it is one: read-only, or one that takes
// writes as well.
func TestAuditOfAReplica(t *testing.T) {
	t.Parallel()
	primary, replica := servers.MariaDBPair(t)
	s := newShop(t, servers.MariaDBDatabase(t, primary), options{})
	put(t, newMessage(s.o.redis, "laravel", "1001"), newMessage(s.o.redis, "laravel", "1002"))
	s.worker("--drain").exit(exit.Good)
	if err := writeRow(s.fence, zabor.Held, key("1003")); err != nil {
		t.Fatal(err)
	}
	admin := func(address, statement string) {
		t.Helper()
		store, err := sqlstore.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := store.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	admin(s.fence, "CREATE USER reader@'%'")
	admin(s.fence, "GRANT SELECT ON *.* TO reader@'%'")
	root := strings.Replace(s.fence, primary.Addr(), replica.Addr(), 1)
	there, err := sqlstore.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	eventually(t, "the replica has followed", func() bool {
		var n int
		err := there.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM mysql.user WHERE User = 'reader'").Scan(&n)
		return err == nil && n == 1
	})
	asReader := []string{"REPLICA=" + strings.Replace(root, "root@", "reader@", 1)}
	run := func(code int, args ...string) string {
		t.Helper()
		p := startIn(t, asReader, args...)
		p.exit(code)
		return p.log.String()
	}
	before := s.audit(exit.BadAnswer, "--no-queues")
	var a audited
	out := run(exit.BadAnswer, "audit", "-c", s.file, "--json", "--no-queues", "--replica", "REPLICA")
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&a); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if fmt.Sprint(a.Kinds, a.ProviderSuccesses, a.UniqueRows) != fmt.Sprint(before.Kinds, before.ProviderSuccesses, before.UniqueRows) || a.UniqueRows != 2 || a.Kinds["held"] != 1 {
		t.Errorf("on the replica %+v, on the primary %+v", a, before)
	}
	if out := run(exit.BadAnswer, "doctor", "--database", "REPLICA"); !strings.Contains(out, "error ZB172") || !strings.Contains(out, "the server is read-only") {
		t.Errorf("doctor on the replica: %s", out)
	}
	admin(root, "SET GLOBAL read_only = 0")
	if out := run(exit.BadAnswer, "doctor", "--database", "REPLICA"); !strings.Contains(out, "warning ZB172") || !strings.Contains(out, "the server follows another one") {
		t.Errorf("doctor on a replica that takes writes: %s", out)
	}
	admin(root, "STOP SLAVE")
	if out := run(exit.Good, "doctor", "--database", "REPLICA"); strings.Contains(out, "ZB172") {
		t.Errorf("doctor on a server that follows none any more: %s", out)
	}
}

// A client of the proxy that hangs up is answered by nobody, and its charge is
// settled: audit lists it. A second attempt with another key of the client's own is
// the same charge (test 35 of the protocol).
func TestAuditOfAHangUp(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true, timeout: 30 * time.Second, reserve: 2 * time.Minute})
	s.door()
	s.charged("control")
	if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.ActHang, Order: "1001"}); err != nil {
		t.Fatal(err)
	}
	attempt := func(ctx context.Context, key string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.listen+"/acquirer/payments", strings.NewReader(`{"amount":1999,"currency":"EUR","order":"1001"}`))
		if err != nil {
			return nil, err
		}
		r.Header = http.Header{"Zabor-Order": {"1001"}, "Zabor-Step": {"charge"}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
		r.GetBody, r.Close = nil, true
		return http.DefaultClient.Do(r)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		resp, err := attempt(ctx, "first-of-the-client")
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	s.charges(2)
	hangUp()
	if err := <-gone; err == nil {
		t.Fatal("the client has its answer: that is no hang-up")
	}
	s.charged("between") // by now the proxy has read that the connection has ended
	s.provider.Release()
	eventually(t, "the row is settled", func() bool { return s.state("1001") == zabor.Settled })
	eventually(t, "audit lists what nobody fetched", func() bool { return s.audit(exit.Good, "--no-queues").Kinds["unfetched"] == 1 })

	resp, err := attempt(t.Context(), "second-of-the-client")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Zabor-Replayed") != "true" {
		t.Errorf("the second attempt: %s, replayed %q", resp.Status, resp.Header.Get("Zabor-Replayed"))
	}
	s.chargedOnce("1001")
}
