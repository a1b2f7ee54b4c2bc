package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/servers"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// walk is a shop of testdata/switch that changes over to zabor, by the commands
// that docs/switching.md tells its readers to type.
type walk struct {
	*shop
	folder string            // the application's
	blocks map[string]string // of the document, by name
	env    []string

	mu     sync.Mutex
	php    *exec.Cmd
	killed string // order
}

// fenced are the document's blocks with a name.
func fenced(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks, name := map[string]string{}, ""
	for line := range strings.Lines(string(content)) {
		if fence, ok := strings.CutPrefix(line, "```"); ok {
			_, name, _ = strings.Cut(strings.TrimSpace(fence), " walk=")
			continue
		}
		if name != "" {
			blocks[name] += line
		}
	}
	return blocks
}

func newWalk(t *testing.T, framework string) *walk {
	t.Helper()
	needApp(t)
	w := &walk{folder: t.TempDir(), blocks: fenced(t, "../../docs/switching.md")}
	if err := os.CopyFS(w.folder, os.DirFS("testdata/switch/"+framework)); err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile("testdata/switch/acquirer.php")
	if err != nil {
		t.Fatal(err)
	}
	fence := servers.MariaDB(t)
	w.shop = &shop{t: t, o: options{redis: servers.Redis(t)}, fence: fence}
	w.redis = redis.NewClient(&redis.Options{Addr: w.o.redis.Addr, DB: w.o.redis.DB})
	t.Cleanup(func() { w.redis.Close() })
	w.provider = sandbox.New(sandbox.Options{IgnoreKeys: true, OnCharge: w.onPHP})
	server := httptest.NewServer(w.provider)
	t.Cleanup(server.Close)
	if w.store, err = sqlstore.Open(fence); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() })
	w.createFailed()
	w.exec("CREATE TABLE payments (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id VARCHAR(64) NOT NULL, reference VARCHAR(64), cents BIGINT NOT NULL)")
	u, err := url.Parse(fence)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(w.o.redis.Addr, ":")
	env := fmt.Sprintf("APP_NAME=Shop\nAPP_ENV=prod\nAPP_SECRET=0123456789abcdef\nDB_CONNECTION=mysql\nDB_HOST=127.0.0.1\nDB_PORT=%s\nDB_DATABASE=%s\nDB_USERNAME=root\nDB_PASSWORD=\nDATABASE_URL=%s\nREDIS_HOST=127.0.0.1\nREDIS_PORT=%s\nREDIS_DB=%d\n"+
		"MESSENGER_TRANSPORT_DSN=redis://127.0.0.1:%s/messages/symfony?dbindex=%d\nMESSENGER_CONSUMER_NAME=web1\nACQUIRER_URL=%s\n",
		u.Port(), strings.TrimPrefix(u.Path, "/"), fence, port, w.o.redis.DB, port, w.o.redis.DB, server.URL)
	for path, content := range map[string][]byte{filepath.Join(w.folder, "acquirer.php"): library, filepath.Join(w.folder, ".env"): []byte(env)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.env = typed(t)
	return w
}

// typed is an environment in which this program is found as zabor.
func typed(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "zabor")); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NO_COLOR=1", "USER=lead")
}

// onPHP kills the PHP worker whose charge is that of an order named killed, between
// the provider's 200 and the worker's reading of it.
func (w *walk) onPHP(c sandbox.Charge) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Order == "killed" && w.php != nil {
		_ = w.php.Process.Signal(syscall.SIGSTOP)
		w.killed = c.Order
	}
}

// sh is a shell in the application's folder, which has what the document exports.
func (w *walk) sh(text string) *exec.Cmd {
	cmd := exec.Command("sh", "-ec", w.blocks["env"]+text)
	cmd.Dir, cmd.Env = w.folder, w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run types a block of the document and checks the exit code of its last command.
func (w *walk) run(block string, code int) string {
	w.t.Helper()
	text := w.blocks[block]
	if text == "" {
		w.t.Fatalf("docs/switching.md has no block walk=%s", block)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*limit)
	defer cancel()
	cmd := w.sh(text)
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		w.t.Fatalf("%s: exit code %d, want %d\n%s", text, got, code, out)
	}
	return string(out)
}

// console runs a command of the application's.
func (w *walk) console(args ...string) {
	w.t.Helper()
	cmd := w.command(args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func (w *walk) command(args ...string) *exec.Cmd {
	cmd := exec.Command("php", append([]string{"-d", "error_reporting=E_ALL & ~E_DEPRECATED"}, args...)...)
	cmd.Dir, cmd.Env = w.folder, w.env
	return cmd
}

// The whole way from a shop that charges without a fence to a protected one, and
// back, by the document's own commands: every order is charged once, the one whose
// worker was killed after the provider's 200 is held, and nothing is lost.
func TestSwitch(t *testing.T) {
	t.Parallel()
	for _, framework := range []string{"laravel", "symfony"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			w := newWalk(t, framework)
			console, work := []string{"artisan"}, []string{"artisan", "queue:work", "redis", "--queue=payments", "--stop-when-empty"}
			queue, list, delayed := "payments", "shop_database_queues:payments", "shop_database_queues:payments:delayed"
			if framework == "symfony" {
				console, work = []string{"bin/console"}, []string{"bin/console", "messenger:consume", "payments", "--limit=1"}
				list, delayed = "messages", "messages__queue"
			}
			ctx := t.Context()
			order := func(id string, delay ...string) {
				t.Helper()
				w.console(append(append(console, "shop:order", id, "1999"), delay...)...)
			}
			// Before: PHP charges. One message fails after its charge, one is
			// paid, and one worker is killed between the 200 and the ack.
			for _, id := range []string{"broken", "paid"} {
				order(id)
				cmd := w.command(work...)
				out, err := cmd.CombinedOutput()
				if n := len(w.provider.Charges(id)); n != 1 {
					t.Fatalf("order %s was charged %d times by PHP: %v\n%s", id, n, err, out)
				}
			}
			order("killed")
			w.mu.Lock()
			w.php = w.command(work...)
			if err := w.php.Start(); err != nil {
				t.Fatal(err)
			}
			w.mu.Unlock()
			w.charges(3)
			eventually(t, "the worker is stopped in its call", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.killed != ""
			})
			_ = w.php.Process.Signal(syscall.SIGKILL)
			_ = w.php.Wait()
			w.mu.Lock()
			w.php = nil
			w.mu.Unlock()
			ids := []string{"late"}
			order("late", "3600")
			for i := range 10 {
				ids = append(ids, fmt.Sprintf("ready-%d", i))
				order(ids[len(ids)-1])
			}

			// In.
			w.run("init", exitGood)
			w.file = filepath.Join(w.folder, "zabor.yaml")
			text, err := os.ReadFile(w.file)
			if err != nil {
				t.Fatal(err)
			}
			more := w.blocks["laravel"]
			if framework == "symfony" {
				more = strings.Replace(more, `'App\Jobs\ChargeOrder'`, `'App\Message\ChargeOrder'`, 1)
				// They count as gone a minute after they have ended.
				eventuallyWithin(t, 3*limit, "Symfony's consumers are gone", func() bool {
					consumers, err := w.redis.XInfoConsumers(ctx, "messages", "symfony").Result()
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range consumers {
						if c.Idle < limit {
							return false
						}
					}
					return true
				})
			}
			if err := os.WriteFile(w.file, append(text, more...), 0o600); err != nil {
				t.Fatal(err)
			}
			w.run("check", exitGood)
			before := w.dump()
			out := w.run("peek", exitGood)
			for name, value := range w.dump() {
				if before[name] != value {
					t.Errorf("peek has changed %s", name)
				}
			}
			if calls, holds := strings.Count(out, "verdict  call"), strings.Count(out, "verdict  hold"); calls != 11 || holds != 2 {
				t.Errorf("peek says call of %d messages and hold of %d, want 11 and 2\n%s", calls, holds, out)
			}
			w.run("import", exitGood)
			for id, want := range map[string]zabor.State{"paid": zabor.Settled, "broken": zabor.Settled, "killed": zabor.Held, "late": "", "ready-0": ""} {
				if row := w.row(id); row.State != want {
					t.Fatalf("after the import order %s is %q (%s), want %q", id, row.State, row.Reason, want)
				}
			}
			w.run("failed", exitGood)
			worker := w.sh("exec " + w.blocks["worker"])
			running := startCommand(t, worker)
			w.charges(13)
			due := float64(time.Now().Unix() - 1)
			if framework == "symfony" {
				due *= 1000
			}
			if err := w.redis.ZAdd(ctx, delayed, redis.Z{Score: due, Member: w.redis.ZRange(ctx, delayed, 0, 0).Val()[0]}).Err(); err != nil { // an hour later
				t.Fatal(err)
			}
			w.charges(14)
			eventuallyWithin(t, 2*limit, "the one that PHP had is parked", func() bool { laravel, symfony := w.failed(); return laravel+symfony == 1 })
			for _, id := range ids {
				eventually(t, "the shop knows of order "+id, func() bool { return w.row(id).State == zabor.Settled })
			}
			running.signal(syscall.SIGTERM)
			running.exit(exitGood)
			if got := w.row("killed").State; got != zabor.Held {
				t.Errorf("order killed is %s, want held", got)
			}

			// Out: what is held is decided first.
			if out := w.run("out", exitBad); !strings.Contains(out, "killed/charge is held") {
				t.Errorf("the drain does not list what is held:\n%s", out)
			}
			w.env = append(w.env, "ORDER=killed", "REFERENCE="+w.provider.Charges("killed")[0].ID)
			w.run("settle", exitGood)
			w.run("out", exitGood)
			if laravel, symfony := w.failed(); laravel+symfony != 0 {
				t.Errorf("%d and %d failed messages are left, want none", laravel, symfony)
			}
			order("after")
			w.run("back-"+framework, exitGood)
			for _, id := range append(ids, "broken", "paid", "killed", "after") {
				if n := len(w.provider.Charges(id)); n != 1 {
					t.Errorf("order %s was charged %d times, want once", id, n)
				}
			}
			if n := w.payments(); n != 15 {
				t.Errorf("the shop has %d payments, want 15", n)
			}
			if n := w.redis.LLen(ctx, list).Val(); framework == "laravel" && n != 0 {
				t.Errorf("%d messages are left on queue %s", n, queue)
			}
		})
	}
}

// payments counts the shop's payments, each of another order.
func (w *walk) payments() (n int) {
	w.t.Helper()
	if err := w.store.DB().QueryRow("SELECT COUNT(DISTINCT order_id) FROM payments").Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
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
