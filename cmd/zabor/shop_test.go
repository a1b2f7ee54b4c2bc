package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// The databases that a fence can be in.
var databases = []struct {
	name string
	open func(testing.TB) string
}{
	{"sqlite", func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "fence.db") }},
	{"mariadb", servers.MariaDB},
	{"postgres", servers.Postgres},
}

// The ways in which a message can have been put on a queue, as put.php names
// them, with the queue of [shop] it goes to.
var frameworks = []struct{ name, queue string }{
	{"laravel", "payments"}, {"symfony-php", "async"}, {"symfony-json", "async"},
}

// options are what one test wants of a shop's configuration.
type options struct {
	redis    servers.RedisDB // zero: an empty database of the shared server
	lanes    int             // 0: 1
	timeout  time.Duration   // 0: 2s: a busy machine must not time out, or no call has settled the control order
	reserve  time.Duration   // of both queues; 0: 5s, the shortest for a time-out of 2s
	noLookup bool            // else a look-up whose silence is proof after 1s
	replays  bool            // the provider keeps idempotency keys, and the configuration says so
	hold     time.Duration   // 0: 5m
	merchant bool            // a second step, with a scope from the message
	proxy    bool            // it has a proxy
	raced    bool            // the race detector watches its worker or proxy
}

// shop is an installation of zabor with its queues, its fence and its provider.
// The provider charges each request that reaches it, whatever its key.
type shop struct {
	t        testing.TB
	o        options
	file     string // the configuration
	fence    string // address
	store    *sqlstore.Store
	redis    *redis.Client
	provider *sandbox.Sandbox
	url      string // of the provider
	listen   string // of the proxy; empty: it has none

	mu     sync.Mutex
	charge func(sandbox.Charge)
}

func newShop(t testing.TB, fence string, o options) *shop {
	t.Helper()
	if o.redis.Addr == "" {
		o.redis = servers.Redis(t)
	}
	s := &shop{t: t, o: o, file: filepath.Join(t.TempDir(), "zabor.yaml"), fence: fence}
	s.redis = redis.NewClient(&redis.Options{Addr: o.redis.Addr, DB: o.redis.DB})
	t.Cleanup(func() { s.redis.Close() })

	s.provider = sandbox.New(sandbox.Options{IgnoreKeys: !o.replays, OnCharge: func(c sandbox.Charge) {
		s.mu.Lock()
		told := s.charge
		s.mu.Unlock()
		if told != nil {
			told(c)
		}
	}})
	server := httptest.NewServer(s.provider)
	t.Cleanup(server.Close)
	s.url = server.URL

	var err error
	if s.store, err = sqlstore.Open(fence); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.store.Close() })
	if err := s.store.Setup().Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.createFailed()
	if o.proxy {
		s.listen = fmt.Sprintf("127.0.0.1:%d", servers.Port(t))
	}
	s.configure()
	return s
}

// configure writes the configuration.
func (s *shop) configure() {
	s.t.Helper()
	o := s.o
	reserve := cmp.Or(o.reserve, 5*time.Second)
	lookup := "    lookup: {path: \"/payments?merchant_reference={{provider_key}}\", items: /data, absent_after: 1s}\n"
	if o.noLookup {
		lookup = ""
	}
	key := "life: 0s, replays: none"
	if o.replays {
		key = "life: 24h, replays: all"
	}
	merchant := ""
	if o.merchant {
		merchant = `  merchant:
    message: 'App\Jobs\ChargeForMerchant'
    scope: merchantId
` + chargeStep
	}
	text := fmt.Sprintf(`scope: test
fence: "%s"
redis: "%s"
lanes: %d
hold_after: %s
backoff: [1s]
queues:
  payments:
    laravel: {connection: redis, prefix: laravel_database_, retry_after: %s}
  async:
    symfony: {dsn: "redis://%s/messages/symfony?dbindex=%d&redeliver_timeout=%d&delete_after_ack=true"}
providers:
  acquirer:
    profile: custom
    base_url: %s
    timeout: %s
    key: {header: Idempotency-Key, %s}
    reference: /id
    settled: {pointer: /status, values: [paid]}
    pending: {pointer: /status, values: [processing]}
    declined: {pointer: /status, values: [refused], statuses: [402]}
    amount: {minor: /amount}
    currency: /currency
%ssteps:
  charge:
    message: ['App\Jobs\ChargeOrder', 'App\Message\ChargeOrder']
%s%s`, s.fence, o.redis.URL(), max(1, o.lanes), cmp.Or(o.hold, 5*time.Minute), reserve,
		o.redis.Addr, o.redis.DB, int(reserve/time.Second), s.url, cmp.Or(o.timeout, 2*time.Second), key, lookup, chargeStep, merchant)
	if s.listen != "" {
		text += fmt.Sprintf("proxy: {listen: %q}\n", s.listen)
	}
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// chargeStep is what both steps have.
const chargeStep = `    order: orderId
    amount: amountCents
    currency: EUR
    provider: acquirer
    request: {path: /payments, json: {amount: "{{minor}}", currency: "{{currency}}", order: "{{order}}"}}
`

// createFailed makes the failure transports, as the migrations of Laravel and
// Doctrine do.
func (s *shop) createFailed() {
	s.t.Helper()
	id, text, at := "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL", "TEXT", "DATETIME"
	switch s.store.Dialect() {
	case "mysql":
		id, text = "BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY NOT NULL", "LONGTEXT"
	case "postgres":
		id, at = "BIGSERIAL PRIMARY KEY NOT NULL", "TIMESTAMP(0)"
	}
	for _, statement := range []string{
		"CREATE TABLE failed_jobs (id " + id + ", uuid VARCHAR(255) NOT NULL UNIQUE, connection " + text + " NOT NULL, queue " + text + " NOT NULL, " +
			"payload " + text + " NOT NULL, exception " + text + " NOT NULL, failed_at " + at + " DEFAULT CURRENT_TIMESTAMP NOT NULL)",
		"CREATE TABLE messenger_messages (id " + id + ", body " + text + " NOT NULL, headers " + text + " NOT NULL, queue_name VARCHAR(190) NOT NULL, " +
			"created_at " + at + " NOT NULL, available_at " + at + " NOT NULL, delivered_at " + at + " DEFAULT NULL)",
	} {
		if _, err := s.store.DB().Exec(statement); err != nil {
			s.t.Fatal(err)
		}
	}
}

// start starts the program as the options want it.
func (s *shop) start(args ...string) *process {
	s.t.Helper()
	path := binary(s.t)
	if s.o.raced {
		path = raced(s.t)
	}
	return startCommand(s.t, command(path, nil, args...))
}

// worker starts a worker of s.
func (s *shop) worker(args ...string) *process {
	s.t.Helper()
	return s.start(append([]string{"worker", "-c", s.file}, args...)...)
}

// onCharge is told of each charge before the provider answers.
func (s *shop) onCharge(f func(sandbox.Charge)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge = f
}

// killedAtCharge starts a process and kills it when the provider has charged the
// order and not answered yet.
func (s *shop) killedAtCharge(order string, start func() *process) {
	s.t.Helper()
	var p *process
	started := make(chan struct{})
	s.onCharge(func(c sandbox.Charge) {
		if c.Order == order {
			<-started
			p.kill()
		}
	})
	p = start()
	close(started)
	p.exit(-1)
	s.onCharge(nil)
}

// edit changes the configuration's text.
func (s *shop) edit(old, new string) {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		s.t.Fatalf("%q is not in the configuration", old)
	}
	if err := os.WriteFile(s.file, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// command runs a command in this process and checks its exit code.
func (s *shop) command(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*limit)
	defer cancel()
	if got := run(ctx, append(args, "-c", s.file), &out, &errs); got != code {
		s.t.Fatalf("zabor %q: exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// charges waits until the provider has booked n charges.
func (s *shop) charges(n int64) {
	s.t.Helper()
	select {
	case <-s.provider.Wait(n):
	case <-time.After(limit):
		s.t.Fatalf("%d charges after %s, want %d", s.provider.Stats().Charges, limit, n)
	}
}

// key is that of the step charge of order.
func key(order string) zabor.Key { return zabor.Key{Scope: "test", Order: order, Step: "charge"} }

// row is the row of order; a zero row: there is none.
func (s *shop) row(order string) zabor.Row {
	s.t.Helper()
	rows, err := s.store.Reports().List(s.t.Context(), sqlstore.Filter{Order: order, Limit: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(rows) == 0 {
		return zabor.Row{}
	}
	return rows[0]
}

func (s *shop) state(order string) zabor.State {
	s.t.Helper()
	return s.row(order).State
}

// rows are all rows, by their scope and order.
func (s *shop) rows() map[string]zabor.Row {
	s.t.Helper()
	all := map[string]zabor.Row{}
	f := sqlstore.Filter{Limit: 1000}
	for {
		rows, err := s.store.Reports().List(s.t.Context(), f)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, row := range rows {
			all[row.Scope+" "+row.Order] = row
			f.After = row.Key
		}
		if len(rows) < f.Limit {
			return all
		}
	}
}

// chargedOnce checks that order was charged exactly once, and that its row holds
// what the provider says of it.
func (s *shop) chargedOnce(order string) {
	s.t.Helper()
	charges := s.provider.Charges(order)
	if len(charges) != 1 {
		s.t.Errorf("order %q: charges %v, want one", order, charges)
		return
	}
	row := s.row(order)
	if row.State != zabor.Settled || row.Reference != charges[0].ID || row.ProviderKey != charges[0].Key ||
		row.Amount.Minor != charges[0].Amount || row.OtherReference != "" {
		s.t.Errorf("order %q: row %+v\nfor the charge %+v", order, row, charges[0])
	}
}

// depth is how many messages both queues hold, by where they are, without zabor's
// own reckoning.
type depth struct{ ready, reserved, delayed, unread int64 }

func (s *shop) depth() depth {
	s.t.Helper()
	const list = "laravel_database_queues:payments"
	pipe := s.redis.TxPipeline()
	ready, reserved, delayed := pipe.LLen(s.t.Context(), list), pipe.ZCard(s.t.Context(), list+":reserved"), pipe.ZCard(s.t.Context(), list+":delayed")
	unread := pipe.LLen(s.t.Context(), "laravel_database_zabor:payments:dead")
	stream, later := pipe.XLen(s.t.Context(), "messages"), pipe.ZCard(s.t.Context(), "messages__queue")
	if _, err := pipe.Exec(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	pending := int64(0)
	if p, err := s.redis.XPending(s.t.Context(), "messages", "symfony").Result(); err == nil {
		pending = p.Count // else there is no group yet
	}
	return depth{
		ready: ready.Val() + stream.Val() - pending, reserved: reserved.Val() + pending,
		delayed: delayed.Val() + later.Val(), unread: unread.Val(),
	}
}

// empty checks that no queue holds anything.
func (s *shop) empty() {
	s.t.Helper()
	if d := s.depth(); d != (depth{}) {
		s.t.Errorf("the queues hold %+v", d)
	}
}

// failed counts what is in both failure transports.
func (s *shop) failed() (laravel, symfony int) {
	s.t.Helper()
	for table, n := range map[string]*int{"failed_jobs": &laravel, "messenger_messages WHERE queue_name = 'failed'": &symfony} {
		if err := s.store.DB().QueryRow("SELECT COUNT(*) FROM " + table).Scan(n); err != nil {
			s.t.Fatal(err)
		}
	}
	return laravel, symfony
}

// message is one message for put.php.
type message struct {
	To         string         `json:"to"`
	Port       int            `json:"port"`
	DB         int            `json:"db"`
	Class      string         `json:"class"`
	Properties map[string]any `json:"properties"`
}

// newMessage is a message that wants order charged, for the framework of that
// name.
func newMessage(r servers.RedisDB, framework string, order any) message {
	_, text, _ := strings.Cut(r.Addr, ":")
	port, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	class := `App\Message\ChargeOrder`
	if framework == "laravel" {
		class = `App\Jobs\ChargeOrder`
	}
	return message{framework, port, r.DB, class, map[string]any{"orderId": order, "amountCents": 1999}}
}

// put lets PHP put messages on their queues, by one run for all of them: PHP
// starts slowly.
func put(t testing.TB, messages ...message) {
	t.Helper()
	needPHP(t)
	list, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "php", "-d", "error_reporting=E_ALL & ~E_DEPRECATED", "testdata/put.php")
	cmd.Stdin = bytes.NewReader(list)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("put.php: %v\n%s", err, out)
	}
}

// needPHP ends the test where PHP or a framework's queue is missing.
func needPHP(t testing.TB) {
	t.Helper()
	servers.Need(t, "php", "php-cli")
	for dir, debianPackage := range map[string]string{
		"Illuminate/Queue": "php-illuminate-queue", "Illuminate/Redis": "php-illuminate-redis",
		"Symfony/Component/Messenger": "php-symfony-messenger", "Symfony/Component/Messenger/Bridge/Redis": "php-symfony-redis-messenger",
	} {
		if _, err := os.Stat("/usr/share/php/" + dir); err != nil {
			servers.Need(t, "/usr/share/php/"+dir, debianPackage)
		}
	}
}
