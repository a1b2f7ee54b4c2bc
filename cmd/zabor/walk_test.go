package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// walk is a shop of testdata/switch that changes over to zabor, by the commands
// that docs/switching.md and docs/switching-out.md tell their readers to type. What stands there under
// /etc/zabor and /var/www/shop lies in temporary folders here.
type walk struct {
	*shop
	framework   string            // laravel or symfony
	folder, etc string            // the application's, and zabor's
	blocks      map[string]string // of the document, by name
	env         []string

	mu     sync.Mutex
	booked []sandbox.Charge
	victim *os.Process // worker that is killed when it has charged doomed; nil: none
	doomed string
}

// fenced are the blocks with a name of all pages.
func fenced(t *testing.T, pages ...string) map[string]string {
	t.Helper()
	blocks := map[string]string{}
	for _, page := range pages {
		content, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		name, indent := "", ""
		for line := range strings.Lines(string(content)) {
			text := strings.TrimLeft(line, " ")
			if fence, ok := strings.CutPrefix(text, "```"); ok {
				_, name, _ = strings.Cut(strings.TrimSpace(fence), " walk=")
				indent = line[:len(line)-len(text)]
				continue
			}
			if name != "" {
				blocks[name] += strings.TrimPrefix(line, indent)
			}
		}
	}
	return blocks
}

func newWalk(t *testing.T, framework string) *walk {
	t.Helper()
	needApp(t)
	w := &walk{framework: framework, folder: t.TempDir(), etc: t.TempDir(), blocks: fenced(t, "switching.md", "switching-out.md")}
	if err := os.CopyFS(w.folder, os.DirFS("testdata/switch/"+framework)); err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile("testdata/switch/acquirer.php")
	if err != nil {
		t.Fatal(err)
	}
	fence := servers.MariaDB(t)
	w.shop = &shop{t: t, o: options{redis: servers.Redis(t)}, fence: fence, file: filepath.Join(w.etc, "zabor.yaml")}
	w.redis = redis.NewClient(&redis.Options{Addr: w.o.redis.Addr, DB: w.o.redis.DB})
	t.Cleanup(func() { w.redis.Close() })
	w.provider = sandbox.New(sandbox.Options{IgnoreKeys: true, OnCharge: w.book})
	server := httptest.NewServer(w.provider)
	t.Cleanup(server.Close)
	if w.store, err = sqlstore.Open(fence); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() })
	w.createFailed()
	w.exec("CREATE TABLE payments (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id VARCHAR(64) NOT NULL UNIQUE, reference VARCHAR(64), cents BIGINT NOT NULL, status VARCHAR(16) NOT NULL)")
	u, err := url.Parse(fence)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(w.o.redis.Addr, ":")
	env := fmt.Sprintf("APP_NAME=Shop\nAPP_ENV=prod\nAPP_SECRET=0123456789abcdef\nDB_CONNECTION=mysql\nDB_HOST=127.0.0.1\nDB_PORT=%s\nDB_DATABASE=%s\nDB_USERNAME=root\nDB_PASSWORD=\nDATABASE_URL=%s\nREDIS_HOST=127.0.0.1\nREDIS_PORT=%s\nREDIS_DB=%d\n"+
		"MESSENGER_TRANSPORT_DSN=redis://127.0.0.1:%s/messages/symfony?dbindex=%d\nCHARGES_TRANSPORT_DSN=redis://127.0.0.1:%s/charges/symfony?dbindex=%d\nMESSENGER_CONSUMER_NAME=web1\nACQUIRER_URL=%s\n",
		u.Port(), strings.TrimPrefix(u.Path, "/"), fence, port, w.o.redis.DB, port, w.o.redis.DB, port, w.o.redis.DB, server.URL)
	w.write(filepath.Join(w.folder, "acquirer.php"), string(library))
	w.write(filepath.Join(w.folder, ".env"), env)
	w.write(filepath.Join(w.etc, "zabor.env"), env)
	w.env = typed(t)
	return w
}

func (w *walk) write(path, text string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) read(path string) string {
	w.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// typed is an environment in which this program is found as zabor, and in which
// sudo changes nobody.
func typed(t *testing.T) []string {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(binary(t), filepath.Join(bin, "zabor")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "ZABOR_C") || strings.HasPrefix(s, "ZABOR_E") })
	return append(env, "PATH="+bin+":"+os.Getenv("PATH"), "NO_COLOR=1", "USER=lead")
}

// book is told of each charge before the provider answers. A worker that is
// doomed dies here: between the provider's 200 and its own reading of it.
func (w *walk) book(c sandbox.Charge) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.booked = append(w.booked, c)
	if w.victim != nil && c.Order == w.doomed {
		_ = w.victim.Kill()
		w.victim = nil
	}
}

// sh is a shell in the application's folder.
func (w *walk) sh(text string) *exec.Cmd {
	text = strings.NewReplacer("/etc/zabor/", w.etc+"/", "/var/www/shop", w.folder).Replace(text)
	cmd := exec.Command("sh", "-ec", text)
	cmd.Dir, cmd.Env = w.folder, w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// block is a block of the document.
func (w *walk) block(name string) string {
	w.t.Helper()
	text := w.blocks[name]
	if text == "" {
		w.t.Fatalf("no page of docs has a block walk=%s", name)
	}
	return text
}

// run types a block of the document, in a shell that has what the document
// exports, and checks the exit code of its last command.
func (w *walk) run(name string, code int) string {
	w.t.Helper()
	return w.types(w.blocks["env"]+w.block(name), code)
}

// types types text.
func (w *walk) types(text string, code int) string {
	w.t.Helper()
	cmd := w.sh(text)
	timer := time.AfterFunc(3*limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		w.t.Fatalf("%s: exit code %d, want %d\n%s", text, got, code, out)
	}
	return string(out)
}

// begin starts what a block types, which goes on.
func (w *walk) begin(name string) *process {
	w.t.Helper()
	return startCommand(w.t, w.sh(w.blocks["env"]+"exec "+w.block(name)))
}

// end stops what was begun, as systemctl does.
func (w *walk) end(p *process) {
	w.t.Helper()
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good)
}

// The application.

// console is a command of the application's.
func (w *walk) console(args ...string) *exec.Cmd {
	file := map[string]string{"laravel": "artisan", "symfony": "bin/console"}[w.framework]
	cmd := exec.Command("php", append([]string{"-d", "error_reporting=E_ALL & ~E_DEPRECATED", file}, args...)...)
	cmd.Dir, cmd.Env = w.folder, w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// order orders at the shop: ORDER or ORDER+SECONDS, for a message that waits.
func (w *walk) order(ids ...string) {
	w.t.Helper()
	if out, err := w.console(append([]string{"shop:order", "1999"}, ids...)...).CombinedOutput(); err != nil {
		w.t.Fatalf("order %v: %v\n%s", ids, err, out)
	}
}

// worker is PHP's own worker of a queue, which ends when it has handled n messages
// (Symfony's) or all (Laravel's).
func (w *walk) worker(queue string, n int) *exec.Cmd {
	if w.framework == "laravel" {
		return w.console("queue:work", "redis", "--queue="+queue, "--stop-when-empty")
	}
	return w.console("messenger:consume", queue, "--limit="+strconv.Itoa(n))
}

// works lets PHP work a queue.
func (w *walk) works(queue string, n int) string {
	w.t.Helper()
	cmd := w.worker(queue, n)
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code < 0 {
		w.t.Fatalf("PHP's worker of %s does not end:\n%s", queue, out)
	}
	return string(out)
}

// dies orders, and lets PHP's worker be killed when the provider has charged that.
func (w *walk) dies(order, queue string) {
	w.t.Helper()
	w.order(order)
	before := len(w.provider.Charges(order))
	w.mu.Lock()
	php := w.worker(queue, 1)
	err := php.Start()
	w.victim, w.doomed = php.Process, order
	w.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { _ = php.Process.Kill() })
	defer timer.Stop()
	_ = php.Wait()
	if n := len(w.provider.Charges(order)); n != before+1 || php.ProcessState.ExitCode() != -1 {
		w.t.Fatalf("order %s was charged %d times, and its worker ended with %s", order, n, php.ProcessState)
	}
}

// again lets PHP do once more what a worker of the old queue died with: by itself, or,
// where Laravel has no tries left, by the retry that somebody types at night.
func (w *walk) again() {
	w.t.Helper()
	w.due()
	w.works("payments", 1)
	if w.framework == "laravel" {
		w.retries()
		w.works("payments", 1)
	}
}

// retries types PHP's own retry of all that has failed.
func (w *walk) retries() {
	w.t.Helper()
	args := []string{"queue:retry", "all"}
	if w.framework == "symfony" {
		args = []string{"messenger:failed:retry", "--force", "--no-interaction"}
		rows, err := w.store.DB().Query("SELECT id FROM messenger_messages WHERE delivered_at IS NULL ORDER BY id")
		if err != nil {
			w.t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				w.t.Fatal(err)
			}
			args = append(args, id)
		}
		if err := rows.Err(); err != nil {
			w.t.Fatal(err)
		}
	}
	if out, err := w.console(args...).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

var handler = regexp.MustCompile(`(?s)    public function (handle|__invoke)\(.*?\n    \}\n`)

// deploy gives the shop a handler: with the call, as it is in testdata, or
// without it, as the document has it.
func (w *walk) deploy(call bool) {
	w.t.Helper()
	file := map[string]string{"laravel": "app/Jobs/ChargeOrder.php", "symfony": "src/MessageHandler/ChargeOrderHandler.php"}[w.framework]
	text := w.read(filepath.Join("testdata/switch", w.framework, file))
	if !call {
		lines := strings.SplitAfter(strings.TrimRight(w.block("handler-"+w.framework), "\n"), "\n")
		without := "    " + strings.Join(lines, "    ") + "\n"
		changed := handler.ReplaceAllLiteralString(text, without)
		if changed == text || strings.Contains(changed, "purchase(") {
			w.t.Fatalf("%s still has its call:\n%s", file, changed)
		}
		text = changed
	}
	w.write(filepath.Join(w.folder, file), text)
}

// setting gives the application a variable.
func (w *walk) setting(name, value string) {
	w.t.Helper()
	path := filepath.Join(w.folder, ".env")
	w.write(path, w.read(path)+name+"="+value+"\n")
}

// gone waits until Symfony's consumers count as gone: a minute after they have
// ended.
func (w *walk) gone(streams ...string) {
	w.t.Helper()
	if w.framework != "symfony" {
		return
	}
	for _, stream := range streams {
		eventuallyWithin(w.t, 3*limit, "Symfony's consumers are gone", func() bool {
			consumers, err := w.redis.XInfoConsumers(w.t.Context(), stream, "symfony").Result()
			if err != nil {
				w.t.Fatal(err)
			}
			return !slices.ContainsFunc(consumers, func(c redis.XInfoConsumer) bool { return strings.HasPrefix(c.Name, "php-") && c.Idle < limit })
		})
	}
}

// due lets the time come for all that is reserved or delayed on the old queue.
func (w *walk) due() {
	w.t.Helper()
	ctx := w.t.Context()
	now := float64(time.Now().Unix() - 1)
	if w.framework == "laravel" {
		for _, place := range []string{":reserved", ":delayed"} {
			for _, member := range w.redis.ZRange(ctx, w.list("payments")+place, 0, -1).Val() {
				w.redis.ZAddXX(ctx, w.list("payments")+place, redis.Z{Score: now, Member: member})
			}
		}
		return
	}
	for _, member := range w.redis.ZRange(ctx, "messages__queue", 0, -1).Val() {
		w.redis.ZAddXX(ctx, "messages__queue", redis.Z{Score: 1000 * now, Member: member})
	}
	pending := w.redis.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "messages", Group: "symfony", Start: "-", End: "+", Count: 100}).Val()
	for _, p := range pending {
		if err := w.redis.Do(ctx, "XCLAIM", "messages", "symfony", p.Consumer, 0, p.ID, "IDLE", 100_000, "JUSTID").Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// list is Laravel's list of a queue.
func (w *walk) list(queue string) string { return "shop_database_queues:" + queue }

// onQueue counts what is on both queues, wherever.
func (w *walk) onQueue() (n int64) {
	w.t.Helper()
	ctx := w.t.Context()
	for _, queue := range []string{"payments", "charges"} {
		n += w.redis.LLen(ctx, w.list(queue)).Val() + w.redis.ZCard(ctx, w.list(queue)+":reserved").Val() + w.redis.ZCard(ctx, w.list(queue)+":delayed").Val()
	}
	for _, stream := range []string{"messages", "charges"} {
		n += w.redis.XLen(ctx, stream).Val() + w.redis.ZCard(ctx, stream+"__queue").Val()
	}
	return n
}

// parked counts what is in the failure transport. What Symfony has retried it only
// marks, on MySQL: as delivered at the end of time.
func (w *walk) parked() (n int) {
	w.t.Helper()
	err := w.store.DB().QueryRow("SELECT (SELECT COUNT(*) FROM failed_jobs) + (SELECT COUNT(*) FROM messenger_messages WHERE delivered_at IS NULL OR delivered_at < '9999-01-01')").Scan(&n)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// zabor.

// prepare walks "Prepare": the file, with what more is added to it, and the tables.
func (w *walk) prepare(more string) {
	w.t.Helper()
	w.run("init", exit.Good)
	text := w.read(w.file)
	steps := w.block("laravel")
	if w.framework == "symfony" {
		steps = strings.Replace(steps, `'App\Jobs\ChargeOrder'`, `'App\Message\ChargeOrder'`, 1)
	}
	w.write(w.file, text+steps+more)
	w.run("init", exit.Good) // typed again: the file is left alone
	if got := w.read(w.file); got != text+steps+more {
		w.t.Fatalf("a second init has changed the file:\n%s", got)
	}
	w.run("check", exit.Good)
}

// export is the provider's list of payments, where one is refunded, without those
// of orders that are not in it yet.
func (w *walk) export(refunded string, without ...string) {
	w.t.Helper()
	text := "id,order,amount,currency,status\n"
	w.mu.Lock()
	for _, c := range w.booked {
		status := "paid"
		if c.ID == refunded {
			status = "refunded"
		}
		if !slices.Contains(without, c.Order) {
			text += fmt.Sprintf("%s,%s,%d,%s,%s\n", c.ID, c.Order, c.Amount, c.Currency, status)
		}
	}
	w.mu.Unlock()
	w.write(filepath.Join(w.folder, "payments.csv"), text)
}

// forgets removes what has failed of orders from the failure transport.
func (w *walk) forgets(orders ...string) {
	w.t.Helper()
	var failed []failedJSON
	if err := json.Unmarshal([]byte(w.types(w.block("env")+"zabor failed list --json", exit.Good)), &failed); err != nil {
		w.t.Fatal(err)
	}
	for _, order := range orders {
		at := slices.IndexFunc(failed, func(m failedJSON) bool { return m.Key != nil && string(m.Key.Order) == order })
		if at < 0 {
			w.t.Fatalf("order %s is not among the failed messages %v", order, failed)
		}
		w.types(w.block("env")+"ID="+failed[at].ID+"\n"+w.block("forget"), exit.Good)
	}
}

// noted lets the lead note by hand what PHP charged and the shop does not know.
func (w *walk) noted(orders ...string) {
	w.t.Helper()
	for _, order := range orders {
		w.exec("UPDATE payments SET status = 'paid', reference = '" + w.row(order).Reference + "' WHERE order_id = '" + order + "'")
	}
}

// settles decides that orders were paid.
func (w *walk) settles(orders ...string) {
	w.t.Helper()
	for _, order := range orders {
		w.types(w.block("env")+"ORDER="+order+" REFERENCE="+w.provider.Charges(order)[0].ID+"\n"+w.block("settle"), exit.Good)
	}
}

// releases decides that an order was not paid, and shall be: again, until it is not
// too early any more.
func (w *walk) releases(order string) {
	w.t.Helper()
	var out []byte
	eventuallyWithin(w.t, limit, "order "+order+" is released", func() bool {
		cmd := w.sh(w.block("env") + "ORDER=" + order + "\n" + w.block("release"))
		out, _ = cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != exit.Good && !strings.Contains(string(out), "too early") {
			w.t.Fatalf("release of %s: %s\n%s", order, cmd.ProcessState, out)
		}
		return cmd.ProcessState.ExitCode() == exit.Good
	})
}

// once checks that each order was charged exactly once, and that the shop knows.
func (w *walk) once(orders ...string) {
	w.t.Helper()
	for _, order := range orders {
		charges := w.provider.Charges(order)
		var status string
		var reference *string
		if err := w.store.DB().QueryRow("SELECT status, reference FROM payments WHERE order_id = ?", order).Scan(&status, &reference); err != nil {
			w.t.Fatal(err)
		}
		if len(charges) != 1 || status != "paid" || reference == nil || *reference != charges[0].ID {
			w.t.Errorf("order %s was charged %d times (%v), and the shop has it as %s; want once, and paid", order, len(charges), charges, status)
		}
	}
}

// states checks the rows of orders; "" is none.
func (w *walk) states(when string, want map[string]string) {
	w.t.Helper()
	for order, state := range want {
		if row := w.row(order); string(row.State) != state {
			w.t.Errorf("%s order %s is %q (%s), want %q", when, order, row.State, row.Reason, state)
		}
	}
}

// eventuallyWithin is eventually with more time.
func eventuallyWithin(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not after %s: %s", d, what)
		}
	}
}
