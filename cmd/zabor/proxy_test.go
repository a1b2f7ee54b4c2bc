package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
	"zabor/sandbox"
)

// door starts the proxy of s and waits until it listens.
func (s *shop) door(args ...string) *process {
	s.t.Helper()
	p := s.start(append([]string{"proxy", "-c", s.file}, args...)...)
	p.logged("the proxy listens")
	return p
}

// proxied is one charge of order through the proxy, with more header fields, names
// and values in turn; an error: no answer came.
func (s *shop) proxied(order string, more ...string) (status int, header http.Header, body string, err error) {
	r, err := http.NewRequest("POST", "http://"+s.listen+"/acquirer/payments", strings.NewReader(fmt.Sprintf(`{"amount":1999,"currency":"EUR","order":%q}`, order)))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header = http.Header{"Zabor-Order": {order}, "Zabor-Step": {"charge"}, "Content-Type": {"application/json"}}
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(read), err
}

// charged repeats until order is charged, as a queue does that delivers again.
func (s *shop) charged(order string) (header http.Header) {
	s.t.Helper()
	last := ""
	eventually(s.t, order+" is charged through the proxy", func() bool {
		status, h, body, err := s.proxied(order)
		header, last = h, fmt.Sprint(status, body, err)
		if status == 422 || status == 423 || status == 410 || status == 402 {
			s.t.Fatalf("%s: %s", order, last)
		}
		return status == 201 || status == 200 && h.Get("Zabor-Replayed") == "true" // as it is found at the provider
	})
	return header
}

// A proxy that is killed anywhere leaves an order that is charged exactly once in
// the end, by a caller that asks again. The provider here takes no notice of
// idempotency keys.
func TestKilledProxyChargesOnce(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, m := range moments {
			if m.stopAt == "acking" {
				continue
			}
			t.Run(d.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, d.open(t), options{proxy: true})
				var args []string
				if m.stopAt != "" {
					args = []string{"--stop-at", m.stopAt + ":" + target}
				}
				p := s.door(args...)
				s.charged(control)
				s.onCharge(func(c sandbox.Charge) {
					if c.Order == target && m.stopAt == "" {
						p.kill()
					}
				})
				gone := make(chan error, 1)
				go func() {
					_, _, _, err := s.proxied(target)
					gone <- err
				}()
				if m.stopAt != "" {
					p.stopped()
					p.kill()
				}
				p.exit(-1)
				s.onCharge(nil)
				if err := <-gone; err == nil {
					t.Error("the caller got an answer")
				}
				if got := s.state(target); got != m.state {
					t.Fatalf("killed %s: the row is %q, want %q", m.name, got, m.state)
				}
				if got := len(s.provider.Charges(target)); got != m.charges {
					t.Fatalf("killed %s: %d charges, want %d", m.name, got, m.charges)
				}
				p = s.door()
				if h := s.charged(target); (h.Get("Zabor-Replayed") == "true") != (m.charges == 1) {
					t.Errorf("replayed: %v", h)
				}
				s.chargedOnce(control)
				s.chargedOnce(target)
				p.signal(syscall.SIGTERM)
				p.exit(exit.Good)
			})
		}
	}
}

// proxyCaller is a real worker of a framework whose handlers call the proxy.
func (s *shop) proxyCaller(framework string, reserve int) *process {
	s.t.Helper()
	m := newMessage(s.o.redis, framework, "")
	script := map[string]string{"laravel": "laravel_worker.php", "symfony-php": "symfony_worker.php"}[framework]
	cmd := exec.Command("php", "testdata/php/"+script, fmt.Sprint(m.Port), fmt.Sprint(m.DB), fmt.Sprint(reserve))
	cmd.Env = append(os.Environ(), "ZABOR_PROXY=http://"+s.listen)
	return startCommand(s.t, cmd)
}

func needPHPClients(t testing.TB) {
	t.Helper()
	servers.Need(t, "php", "php-cli")
	for dir, debianPackage := range map[string]string{
		"GuzzleHttp": "php-guzzlehttp-guzzle", "Illuminate/Http": "php-illuminate-http", "Illuminate/Events": "php-illuminate-events",
		"Illuminate/Bus": "php-illuminate-bus", "Symfony/Component/HttpClient": "php-symfony-http-client",
		"Symfony/Component/EventDispatcher": "php-symfony-event-dispatcher",
	} {
		if _, err := os.Stat("/usr/share/php/" + dir); err != nil {
			servers.Need(t, "/usr/share/php/"+dir, debianPackage)
		}
	}
	if out, _ := exec.Command("php", "-m").Output(); !bytes.Contains(out, []byte("\ncurl\n")) {
		servers.Need(t, "the curl extension of php", "php-curl")
	}
}

// A worker of PHP that is killed after the provider's 200 and before its ack, at
// any moment in between, charges once: its queue delivers again, the handler runs
// again, and the proxy answers with what it has. ZABOR_SOAK=1: twenty kills each.
func TestKilledPHPWorkerChargesOnce(t *testing.T) {
	t.Parallel()
	needPHPClients(t)
	kills := 3
	if os.Getenv("ZABOR_SOAK") == "1" {
		kills = 20
	}
	for _, framework := range []string{"laravel", "symfony-php"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[0].open(t), options{proxy: true})
			s.door()
			ids := orders(kills + 2)
			var messages []message
			for _, id := range ids {
				messages = append(messages, newMessage(s.o.redis, framework, id))
			}
			put(t, messages...)
			replayed := 0
			count := func(w *process) { replayed += strings.Count(w.log.String(), " true ") }
			charged := make(chan sandbox.Charge, len(ids)*2)
			s.onCharge(func(c sandbox.Charge) { charged <- c })
			const reserve = 2
			w := s.proxyCaller(framework, reserve)
			for range kills {
				select {
				case <-charged: // the provider has done it, and its answer is on the way
				case <-time.After(limit):
					t.Fatal("no charge")
				}
				// From before the proxy has answered to shortly before the ack,
				// which the handler puts off by 100 ms.
				<-time.After(time.Duration(rand.Int64N(int64(90 * time.Millisecond))))
				w.kill()
				count(w)
				w = s.proxyCaller(framework, reserve)
			}
			eventually(t, "every message is acked", func() bool { return s.depth() == depth{} })
			w.kill()
			count(w)
			for _, id := range ids {
				s.chargedOnce(id)
			}
			if got := len(s.rows()); got != len(ids) {
				t.Errorf("%d rows, want %d", got, len(ids))
			}
			if replayed == 0 {
				t.Error("no handler got a stored answer")
			}
			t.Logf("%d kills, %d stored answers", kills, replayed)
		})
	}
}

// A stop waits for calls that were begun, and takes no new ones.
func TestProxyStops(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true, raced: true, timeout: 30 * time.Second, reserve: 2 * time.Minute})
	p := s.door()
	if err := s.provider.Plan(sandbox.Fault{Kind: sandbox.ActHang}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() {
		status, _, _, _ := s.proxied("1001")
		answered <- status
	}()
	s.charges(1)
	p.signal(syscall.SIGTERM)
	eventually(t, "no new caller is taken", func() bool {
		_, _, _, err := s.proxied("1002")
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	s.provider.Release()
	if status := <-answered; status != 201 {
		t.Errorf("status %d, want 201", status)
	}
	p.exit(exit.Good)
	s.chargedOnce("1001")
}

// Worker and proxy in one process, over one fence: what the one has charged the
// other does not charge, whatever it is asked for.
func TestServe(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{proxy: true, raced: true})
	put(t, newMessage(s.o.redis, "laravel", "1001"), newMessage(s.o.redis, "symfony-json", "1002"))
	p := s.start("serve", "-c", s.file)
	s.charges(2)
	s.charged("1003")
	eventually(t, "the queues are empty", func() bool { return s.depth() == depth{} })
	if status, _, body, err := s.proxied("1001"); status != 422 || err != nil {
		t.Errorf("the worker's order through the proxy: %d %s, %v", status, body, err)
	}
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good)
	for _, id := range []string{"1001", "1002", "1003"} {
		s.chargedOnce(id)
	}
}

// A proxy that only observes starts without its database too, and records once that
// is there.
func TestObserverStartsWithoutDatabase(t *testing.T) {
	t.Parallel()
	database := servers.OwnMariaDB(t)
	s := newShop(t, servers.MariaDBDatabase(t, database), options{proxy: true})
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	observing := strings.Replace(string(text), "proxy: {", "proxy: {observe: true, ", 1)
	if err := os.WriteFile(s.file, []byte(observing), 0o600); err != nil {
		t.Fatal(err)
	}
	database.Kill()
	p := s.door()
	if status, h, body, err := s.proxied("1001"); status != 201 || h.Get("Zabor-Observed") != "unavailable" || err != nil {
		t.Errorf("%d %v %s, %v", status, h, body, err)
	}
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	p.logged("what passes is recorded")
	if status, h, body, err := s.proxied("1002"); status != 201 || h.Get("Zabor-Observed") != "call" || err != nil {
		t.Errorf("%d %v %s, %v", status, h, body, err)
	}
	p.signal(syscall.SIGTERM)
	p.exit(exit.Good)
}

// While the database is away nothing is sent; when it is back, calls are made.
func TestProxyWithoutDatabase(t *testing.T) {
	t.Parallel()
	database := servers.OwnMariaDB(t)
	s := newShop(t, servers.MariaDBDatabase(t, database), options{proxy: true})
	s.door()
	s.charged("1001")
	database.Kill()
	status, h, body, err := s.proxied("1002")
	if status != 503 || h.Get("Retry-After") == "" || !strings.Contains(body, "nothing was sent") || err != nil {
		t.Errorf("%d %v %s, %v", status, h, body, err)
	}
	if posts := s.provider.Stats().Posts; posts != 1 {
		t.Errorf("posts=%d, want 1", posts)
	}
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	s.charged("1002")
	s.chargedOnce("1002")
	if row := s.row("1001"); row.State != zabor.Settled {
		t.Errorf("row %+v", row)
	}
}
