package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zabor"
	"zabor/internal/exit"
	"zabor/internal/servers"
)

// phpShops are the frameworks with which PHP works a shop's queues beside zabor.
var phpShops = []struct {
	name, framework string // of app.php and of put.php
	queue           string // zabor's
	list, target    string // in Redis: zabor's queue, and the one that PHP works beside it
	mail            string // class
}{
	{"laravel", "laravel", "payments", "laravel_database_queues:payments", "laravel_database_queues:default", `App\Jobs\SendMail`},
	{"symfony", "symfony-php", "async", "messages", "default", `App\Message\SendMail`},
}

func needApp(t testing.TB) {
	t.Helper()
	servers.Need(t, "php", "php-cli")
	for dir, debianPackage := range map[string]string{
		"Illuminate/Queue": "php-illuminate-queue", "Illuminate/Redis": "php-illuminate-redis", "Illuminate/Bus": "php-illuminate-bus",
		"Illuminate/Events": "php-illuminate-events", "Illuminate/Console": "php-illuminate-console", "Illuminate/Database": "php-illuminate-database",
		"Symfony/Component/Messenger/Bridge/Redis": "php-symfony-redis-messenger", "Symfony/Component/Messenger/Bridge/Doctrine": "php-symfony-doctrine-messenger",
		"Symfony/Component/EventDispatcher": "php-symfony-event-dispatcher", "Symfony/Component/Console": "php-symfony-console", "Doctrine/DBAL": "php-doctrine-dbal",
	} {
		if _, err := os.Stat("/usr/share/php/" + dir); err != nil {
			servers.Need(t, "/usr/share/php/"+dir, debianPackage)
		}
	}
}

// app starts testdata/app.php.
func (s *shop) app(args ...string) (cmd *exec.Cmd, output *bytes.Buffer) {
	s.t.Helper()
	needApp(s.t)
	output = &bytes.Buffer{}
	cmd = exec.Command("php", append([]string{"testdata/app.php"}, args...)...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, output
}

// phpWorker is a worker of PHP that takes nothing before [phpWorker.start].
type phpWorker struct {
	*exec.Cmd
	s      *shop
	output *bytes.Buffer
}

func (s *shop) phpWorker(framework string) *phpWorker {
	s.t.Helper()
	return s.phpWorkerOf(framework, 1)
}

// phpWorkerOf tries each job so often; 0: without end.
func (s *shop) phpWorkerOf(framework string, tries int) *phpWorker {
	s.t.Helper()
	_, port, _ := strings.Cut(s.o.redis.Addr, ":")
	cmd, output := s.app("work", framework, port, strconv.Itoa(s.o.redis.DB), s.url, strconv.Itoa(tries))
	w := &phpWorker{cmd, s, output}
	w.said("ready")
	return w
}

// said waits until the worker says what.
func (w *phpWorker) said(what string) {
	w.s.t.Helper()
	got, err := w.s.redis.BLPop(w.s.t.Context(), limit, "php:said").Result()
	if err != nil || got[1] != what {
		w.s.t.Fatalf("PHP said %q, %v; want %q", got, err, what)
	}
}

func (w *phpWorker) start() {
	w.s.t.Helper()
	if err := w.s.redis.RPush(w.s.t.Context(), "php:go", "1").Err(); err != nil {
		w.s.t.Fatal(err)
	}
}

// stop lets the worker end as one that is told to.
func (w *phpWorker) stop() {
	w.s.t.Helper()
	if err := w.s.redis.Set(w.s.t.Context(), "php:stop", "1", 0).Err(); err != nil {
		w.s.t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		w.s.t.Errorf("PHP: %v\n%s", err, w.output)
	}
}

// kill is the end of a worker whose machine loses its power.
func (w *phpWorker) kill() {
	w.Process.Signal(syscall.SIGKILL)
	w.Wait()
}

// ended reports whether the worker's process has ended by itself.
func (w *phpWorker) ended() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Process.Pid))
	return err != nil || bytes.Contains(text, []byte(") Z "))
}

// phpHandled is what PHP's handlers were given, by order.
func (s *shop) phpHandled() map[string][]string {
	s.t.Helper()
	list, err := s.redis.LRange(s.t.Context(), "php:handled", 0, -1).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string][]string{}
	for _, text := range list {
		var one struct {
			Order, Class string
			Cents        int
		}
		if err := json.Unmarshal([]byte(text), &one); err != nil || one.Cents != 1999 {
			s.t.Fatalf("PHP handled %s, %v", text, err)
		}
		all[one.Order] = append(all[one.Order], one.Class)
	}
	return all
}

// left counts what Redis holds of both queues, zabor's and PHP's.
func (s *shop) left(target string) int64 {
	s.t.Helper()
	ctx, n := s.t.Context(), int64(0)
	d := s.depth()
	n += d.ready + d.reserved + d.delayed + d.unread
	n += s.redis.XLen(ctx, "default").Val() + s.redis.LLen(ctx, target).Val() + s.redis.ZCard(ctx, target+":reserved").Val() + s.redis.ZCard(ctx, target+":delayed").Val()
	return n
}

// Zabor and a worker of PHP take from one queue at the same time: charges, which
// both can run, and mails, which zabor forwards to PHP's own queue where it gets
// them. Each message is handled once, whoever gets it.
func TestPHPAndZaborShareAQueue(t *testing.T) {
	t.Parallel()
	const n = 500
	for _, php := range phpShops {
		t.Run(php.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[1].open(t), options{lanes: 4, timeout: 20 * time.Second, reserve: time.Minute, raced: true})
			s.share()
			s.add(fmt.Sprintf("bus: {forward: {'%s': default}}\n", php.mail))
			worker := s.phpWorker(php.name)
			w := s.worker()
			w.logged("msg=started")
			worker.start()
			ids := orders(n)
			var messages []message
			for i, id := range ids {
				m := newMessage(s.o.redis, php.framework, id)
				if i%5 == 0 {
					m.Class = php.mail
				}
				messages = append(messages, m)
			}
			put(t, messages...)
			eventually(t, "both queues are empty", func() bool { return s.left(php.target) == 0 })
			w.signal(syscall.SIGTERM)
			w.exit(0)
			worker.stop()

			handled, rows := s.phpHandled(), s.rows()
			byPHP, byZabor := 0, 0
			for i, id := range ids {
				charges, row := len(s.provider.Charges(id)), rows["test "+id]
				if i%5 == 0 {
					if len(handled[id]) != 1 || handled[id][0] != php.mail || charges != 0 {
						t.Errorf("mail %s: handled %q, %d charges", id, handled[id], charges)
					}
					continue
				}
				if charges != 1 || len(handled[id])+map[bool]int{true: 1}[row.State == zabor.Settled] != 1 {
					t.Errorf("order %s: %d charges, handled %q by PHP, row %q", id, charges, handled[id], row.State)
				}
				if row.State == zabor.Settled {
					byZabor++
				} else {
					byPHP++
				}
			}
			laravel, symfony := s.failed()
			if byPHP == 0 || byZabor == 0 || laravel+symfony != 0 {
				t.Errorf("PHP charged %d orders, zabor %d; %d and %d messages failed", byPHP, byZabor, laravel, symfony)
			}
			if log := w.log.String(); !strings.Contains(log, "the queue is shared") || strings.Contains(log, "foreign-consumer") {
				t.Error("no warning that the queue is shared, or an alert about who shares it")
			}
			t.Logf("PHP charged %d orders, zabor %d", byPHP, byZabor)
		})
	}
}

// They share a queue and are killed, one after the other, while there are messages:
// in the end each message was handled by somebody, or a person is asked about it,
// and zabor has charged no order twice. What a worker of PHP does twice is PHP's:
// it has no fence. ZABOR_SOAK=1: minutes of it, with thousands of messages.
func TestPHPAndZaborAreKilledOnASharedQueue(t *testing.T) {
	t.Parallel()
	n, rounds := 80, 1
	if soaking() {
		n, rounds = 200, 20
	}
	for _, php := range phpShops {
		t.Run(php.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[1].open(t), options{lanes: 4, reserve: 8 * time.Second})
			s.share()
			s.add(fmt.Sprintf("bus: {forward: {'%s': default}}\n", php.mail))
			begin := func() *phpWorker {
				w := s.phpWorkerOf(php.name, 0)
				w.start()
				return w
			}
			w, worker := s.worker(), begin()
			w.logged("msg=started")
			ids := orders(n * rounds)
			for round := range rounds {
				var messages []message
				for i, id := range ids[round*n : (round+1)*n] {
					m := newMessage(s.o.redis, php.framework, id)
					if i%5 == 0 {
						m.Class = php.mail
					}
					messages = append(messages, m)
				}
				put(t, messages...)
				for left := int64(n); left > 0 && s.depth().ready > 0; left -= int64(n / 2) {
					eventually(t, "the workers get on", func() bool { return s.depth().ready <= left-5 })
					worker.kill()
					w.kill()
					w.exit(-1)
					w, worker = s.worker(), begin()
				}
			}
			const patience = 3 * time.Minute // who is in doubt for long is looked up once a minute
			eventuallyWithin(t, patience, "zabor's queue is empty", func() bool {
				if worker.ended() { // Symfony 5.4 ends a worker that cannot ack
					worker = begin()
				}
				d := s.depth()
				if php.list == "messages" && d.reserved == 0 {
					// A worker of PHP that is killed between its ack and its delete leaves the entry.
					groups, err := s.redis.XInfoGroups(t.Context(), php.list).Result()
					if err == nil && len(groups) == 1 && groups[0].Lag == 0 {
						d.ready = 0
					}
				}
				return d == depth{}
			})
			eventuallyWithin(t, patience, "no row is captured or in doubt", func() bool {
				open, err := s.store.Reports().Unresolved(t.Context(), "test")
				return err == nil && open == 0
			})
			w.signal(syscall.SIGTERM)
			w.exit(0)
			worker.kill()

			handled, rows := s.phpHandled(), s.rows()
			// What a dead worker of PHP's had of the mails, its next one takes in its own time.
			held, twice, waiting := 0, 0, s.left(php.target)
			for i, id := range ids {
				row, mine := rows["test "+id], 0
				for _, c := range s.provider.Charges(id) {
					if !strings.HasPrefix(c.Key, "php-") {
						mine++
					}
				}
				switch {
				case mine > 1:
					t.Errorf("order %s: zabor charged it %d times", id, mine)
				case i%5 == 0 && len(handled[id]) == 0 && row.State == "" && waiting > 0:
					waiting--
				case i%5 == 0 && (len(handled[id]) == 0 || row.State != ""):
					t.Errorf("mail %s: handled %q, row %q", id, handled[id], row.State)
				case len(handled[id]) == 0 && row.State != zabor.Settled && row.Parked == "":
					t.Errorf("order %s: nobody handled it, its row is %q", id, row.State)
				}
				if row.State == zabor.Held {
					held++
				}
				if len(handled[id]) > 1 {
					twice++
				}
			}
			if laravel, symfony := s.failed(); laravel+symfony > held { // PHP may have handled one whose row is held
				t.Errorf("%d and %d messages failed, %d rows are held", laravel, symfony, held)
			}
			t.Logf("%d messages, of which %d are held and PHP did %d more than once", len(ids), held, twice)
		})
	}
}

// What zabor forwards, a worker of PHP handles: the same bytes.
func TestPHPHandlesWhatIsForwarded(t *testing.T) {
	t.Parallel()
	for _, php := range phpShops {
		t.Run(php.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[1].open(t), options{})
			s.add(fmt.Sprintf("bus: {forward: {'%s': default}}\n", php.mail))
			var messages []message
			for _, order := range []string{"M-1", "Zoë \"😀\" \\ \x00", "M-3"} {
				m := newMessage(s.o.redis, php.framework, order)
				m.Class = php.mail
				messages = append(messages, m)
			}
			put(t, messages...)
			before := s.values(php.list)
			s.worker("--drain").exit(exit.Good)
			if got := s.values(php.target); len(got) != 3 || !slices.Equal(got, before) {
				t.Fatalf("forwarded as\n%q\nwant\n%q", got, before)
			}
			worker := s.phpWorker(php.name)
			worker.start()
			eventually(t, "PHP has handled them", func() bool { return s.left(php.target) == 0 })
			worker.stop()
			handled := s.phpHandled()
			for _, m := range messages {
				if order := m.Properties["orderId"].(string); len(handled[order]) != 1 {
					t.Errorf("order %q was handled %d times", order, len(handled[order]))
				}
			}
		})
	}
}

// blocked reports whether a client waits for a message in s's database of Redis.
func (s *shop) blocked() bool {
	s.t.Helper()
	clients, err := s.redis.ClientList(s.t.Context()).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(clients) {
		if strings.Contains(line, fmt.Sprintf(" db=%d ", s.o.redis.DB)) && strings.Contains(line, " flags=b ") {
			return true
		}
	}
	return false
}

// values are the bytes of the messages on a list or a stream.
func (s *shop) values(key string) []string {
	s.t.Helper()
	ctx := s.t.Context()
	if s.redis.Type(ctx, key).Val() == "list" {
		return s.redis.LRange(ctx, key, 0, -1).Val()
	}
	var all []string
	for _, e := range s.redis.XRange(ctx, key, "-", "+").Val() {
		all = append(all, e.Values["message"].(string))
	}
	return all
}

// A worker of PHP is killed while it has two messages: the mail goes on to PHP's
// queue, and of the charge nobody knows whether PHP has made it. With a look-up
// that finds nothing it is made, without one a person decides. On a queue that is
// shared it always is a person: PHP's call had no key that could be looked up.
func TestPHPWorkerIsKilled(t *testing.T) {
	t.Parallel()
	for _, php := range phpShops {
		for _, kind := range []string{"look-up", "no look-up", "shared"} {
			t.Run(php.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				lookup := kind == "look-up"
				o := options{noLookup: kind == "no look-up"}
				if o.noLookup {
					o.hold = time.Second
				}
				s := newShop(t, databases[1].open(t), o)
				if kind == "shared" {
					s.share()
				}
				s.add(fmt.Sprintf("bus: {forward: {'%s': default}}\n", php.mail))
				put(t, newMessage(s.o.redis, php.framework, control))
				w := s.worker() // a start would refuse Symfony's consumers for a minute
				eventually(t, "an order is settled, for the look-up's silence to be worth something", func() bool { return s.state(control) == zabor.Settled && s.left(php.target) == 0 })
				w.signal(syscall.SIGSTOP)
				w.stopped()
				eventually(t, "zabor waits for nothing", func() bool { return !s.blocked() })

				order := "hang-charge"
				charge, mail := newMessage(s.o.redis, php.framework, order), newMessage(s.o.redis, php.framework, "hang-mail")
				mail.Class = php.mail
				workers := []*phpWorker{s.phpWorker(php.name), s.phpWorker(php.name)}
				for _, worker := range workers {
					worker.start()
				}
				put(t, charge, mail)
				eventually(t, "PHP has begun both", func() bool { return s.redis.LLen(t.Context(), "php:said").Val() == 2 })
				for _, worker := range workers {
					worker.kill()
				}
				if d := s.depth(); d.reserved != 2 {
					t.Fatalf("the queue holds %+v, want both messages with workers that are dead", d)
				}
				w.signal(syscall.SIGCONT)
				want := zabor.Settled
				if !lookup {
					want = zabor.Held
				}
				eventually(t, "the charge is decided", func() bool { return s.state(order) == want && s.depth() == depth{} })
				w.signal(syscall.SIGTERM)
				w.exit(exit.Good)
				laravel, symfony := s.failed()
				if lookup {
					s.chargedOnce(order)
				} else if n := len(s.provider.Charges(order)); n != 0 || laravel+symfony != 1 || s.row(order).Parked == "" {
					t.Errorf("%d charges, %d and %d failed messages; want it parked for a person", n, laravel, symfony)
				}
				if got := s.values(php.target); len(got) != 1 || !strings.Contains(got[0], "hang-mail") {
					t.Errorf("PHP's queue holds %q, want the mail", got)
				}
			})
		}
	}
}

// phpRetry runs queue:retry or messenger:failed:retry for all that has failed.
func (s *shop) phpRetry(framework string) {
	s.t.Helper()
	u, err := url.Parse(s.fence)
	if err != nil {
		s.t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.o.redis.Addr, ":")
	cmd, output := s.app("retry", framework, u.Port(), strings.TrimPrefix(u.Path, "/"), port, strconv.Itoa(s.o.redis.DB))
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("retry: %v\n%s", err, output)
	}
}

// Zabor gives a message up while a paused worker still has the provider's yes; then
// that yes is saved. PHP's own command puts the message back, and it is acked
// without a call.
func TestPHPRetriesWhatZaborGaveUp(t *testing.T) {
	t.Parallel()
	for _, php := range phpShops {
		t.Run(php.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, databases[1].open(t), options{noLookup: true, hold: time.Second})
			put(t, newMessage(s.o.redis, php.framework, target))
			first := s.worker("--stop-at", "answered:"+target)
			first.stopped()
			s.leaseOver(target)
			s.worker("--drain").exit(exit.BadAnswer)
			if laravel, symfony := s.failed(); laravel+symfony != 1 || s.state(target) != zabor.Held {
				t.Fatalf("%d and %d failed messages, the row is %s", laravel, symfony, s.state(target))
			}
			first.signal(syscall.SIGCONT)
			eventually(t, "the success is saved", func() bool { return s.state(target) == zabor.Settled })
			first.signal(syscall.SIGTERM)
			first.exit(0)

			s.phpRetry(php.name)
			if d := s.depth(); d.ready != 1 {
				t.Fatalf("PHP's retry left the queues with %+v, want the message", d)
			}
			w := s.worker("--drain")
			w.exit(exit.Good)
			w.logged("msg=done")
			s.chargedOnce(target)
			if posts := s.provider.Stats().Posts; posts != 1 {
				t.Errorf("%d requests reached the provider, want the first alone", posts)
			}
			// Symfony before 6.4.31 on MySQL only marks the row of what it has retried.
			if out := s.failedCommand(0, "list", "--json"); strings.TrimSpace(out) != "[]" {
				t.Errorf("in the failure transports are still %s", out)
			}
			s.empty()
		})
	}
}
