package messenger

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zabor/internal/php"
	"zabor/internal/servers"
)

// runPHP runs a driver of testdata/php with Debian's Symfony.
func runPHP(t *testing.T, script string, args ...string) string {
	t.Helper()
	const packages = "php-cli php-redis php-symfony-redis-messenger php-symfony-doctrine-messenger php-symfony-console php-doctrine-dbal"
	php := servers.Need(t, "php", packages)
	cmd := exec.Command(php, append([]string{filepath.Join("testdata/php", script)}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		servers.Need(t, "one of the packages of "+script, packages)
	}
	if errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s%s", script, err, out, exit.Stderr)
	}
	ok(t, err)
	return string(out)
}

// told is what PHP saw in a message.
type told struct {
	Class, OrderID, Error, From string
	Same                        bool
	At                          time.Time
	Stamps                      map[string]int
}

func tell(t *testing.T, out string) (list []told) {
	t.Helper()
	for line := range strings.Lines(out) {
		var m told
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		list = append(list, m)
	}
	return list
}

// Messages that PHP sent arrive, due ones at once and delayed ones in time, with
// every serializer of phpredis; what zabor puts back arrives in PHP.
func TestPHPSends(t *testing.T) {
	for _, serializer := range []string{"0", "1", "2", "4"} {
		t.Run("serializer="+serializer, func(t *testing.T) {
			t.Parallel()
			address := dsn(t, "delete_after_ack=1&serializer="+serializer)
			tr := open(t, address)
			runPHP(t, "send.php", address, "0", "1")
			m := tr.next(t)
			if m.Class != `App\Message\Charge` || m.Data["note"] != "it's \"ok\" \\ / zażółć" {
				t.Errorf("%s %v", m.Class, m.Data)
			}
			ok(t, tr.Later(t.Context(), m, 0))
			took := tell(t, runPHP(t, "consume.php", address, "1"))
			if len(took) != 1 || took[0].OrderID != "1" || took[0].Stamps[`Symfony\Component\Messenger\Stamp\BusNameStamp`] != 1 {
				t.Errorf("PHP took %+v, want order 1", took)
			}

			runPHP(t, "send.php", address, "0", "pair", "json:3")
			runPHP(t, "send.php", address, "1500", "4", "json:5")
			sent := time.Now()
			var got []string
			for range 4 {
				m := tr.next(t)
				if m.Err != nil || m.DeliveredBefore {
					t.Fatalf("%q: %v, DeliveredBefore=%v", m.Raw, m.Err, m.DeliveredBefore)
				}
				order := fmt.Sprint(m.Data["orderId"])
				got = append(got, order)
				if order == "<nil>" {
					ok(t, tr.Later(t.Context(), m, time.Hour))
					continue
				}
				ok(t, tr.Ack(t.Context(), m))
			}
			if waited := time.Since(sent); waited > 10*time.Second {
				t.Errorf("what was delayed by 1.5 s came after %v", waited)
			}
			if want := []string{"<nil>", "3", "4", "5"}; !slices.Equal(got, want) {
				t.Errorf("orders %v, want %v", got, want)
			}
			// The pair waits for an hour: make it due, and let PHP promote it.
			ok(t, tr.redis.Do(t.Context(), "ZADD", tr.queue(), "XX", time.Now().UnixMilli(), tr.redis.ZRange(t.Context(), tr.queue(), 0, 0).Val()[0]).Err())
			if m := tell(t, runPHP(t, "consume.php", address, "1")); len(m) != 1 || !m[0].Same {
				t.Errorf("PHP took %+v, want a pair whose references hold", m)
			}
			if d, err := tr.Depth(t.Context()); err != nil || !d.Empty() {
				t.Errorf("Depth = %+v, %v, want nothing", d, err)
			}
		})
	}
}

// PHP promotes and reads what carries the sign of a call that may have acted, in
// the form of either serializer, with every serializer of phpredis.
func TestPHPReadsTheSign(t *testing.T) {
	for _, serializer := range []string{"0", "1", "2", "4"} {
		t.Run("serializer="+serializer, func(t *testing.T) {
			t.Parallel()
			address := dsn(t, "delete_after_ack=1&serializer="+serializer)
			tr := open(t, address)
			sign := func(want bool) {
				t.Helper()
				m := tr.next(t)
				if m.Err != nil || m.DeliveredBefore != want {
					t.Fatalf("%q: %v, DeliveredBefore=%v, want %v", m.Raw, m.Err, m.DeliveredBefore, want)
				}
				m.MayHaveActed = true
				ok(t, tr.Later(t.Context(), m, 0))
			}
			runPHP(t, "send.php", address, "0", "pair")
			sign(false)
			sign(true)
			if took := tell(t, runPHP(t, "consume.php", address, "1")); len(took) != 1 || !took[0].Same {
				t.Errorf("PHP took %+v, want a pair whose references hold", took)
			}
			runPHP(t, "send.php", address, "0", "json:3")
			sign(false)
			sign(true)
			runPHP(t, "promote.php", address)
			promoted := values(t, tr.client, "messages")
			if len(promoted) != 1 {
				t.Fatalf("PHP has promoted %q, want one message", promoted)
			}
			if m := Decode([]byte(promoted[0])); m.Err != nil || !m.DeliveredBefore || fmt.Sprint(m.Data["orderId"]) != "3" {
				t.Errorf("PHP has promoted it as %q: DeliveredBefore=%v, %v", promoted[0], m.DeliveredBefore, m.Err)
			}
		})
	}
}

// What zabor parks, PHP shows and takes, back-references included.
func TestPHPReadsTheFailureTransport(t *testing.T) {
	type database struct {
		dialect, driver string
		open            func(t *testing.T) (dbal, dataSource string)
	}
	for _, d := range []database{
		{"sqlite", "sqlite", func(t *testing.T) (string, string) {
			file := filepath.Join(t.TempDir(), "app.db")
			return "sqlite:///" + file, file
		}},
		{"mysql", "mysql", func(t *testing.T) (string, string) {
			u, err := url.Parse(servers.MariaDB(t))
			ok(t, err)
			return "pdo-mysql://root@" + u.Host + u.Path + "?charset=utf8mb4", "root@tcp(" + u.Host + ")" + u.Path + "?charset=utf8mb4"
		}},
		{"postgres", "pgx", func(t *testing.T) (string, string) {
			address := servers.Postgres(t)
			return "pdo-pgsql://" + strings.TrimPrefix(address, "postgres://"), address
		}},
	} {
		t.Run(d.dialect, func(t *testing.T) {
			t.Parallel()
			dbal, source := d.open(t)
			runPHP(t, "failed.php", "setup", dbal, "failed")
			db, err := sql.Open(d.driver, source)
			ok(t, err)
			t.Cleanup(func() { db.Close() })
			table, err := NewTable(db, d.dialect, "messenger_messages", "failed", time.UTC)
			ok(t, err)
			address := dsn(t, "delete_after_ack=1")
			tr := open(t, address, func(o *Options) { o.Failed = table })
			runPHP(t, "send.php", address, "0", "1", "pair")
			for range 2 {
				ok(t, tr.Park(t.Context(), tr.next(t), "held: «нет» \xff, 19.99"))
			}
			if count(t, db) != 2 {
				t.Fatalf("%d rows, want 2", count(t, db))
			}
			shown := runPHP(t, "failed.php", "show", dbal, "failed")
			for _, want := range []string{`App\Message\Charge`, `App\Message\Pair`, "held: «нет» \uFFFD, 19.99", `zabor\Parked`, "async"} {
				if !strings.Contains(shown, want) {
					t.Errorf("failed:show does not show %q:\n%s", want, shown)
				}
			}
			listed := failedIDs(t, tr.Source)
			if len(listed) != 2 {
				t.Fatalf("Failed lists %v, want 2", listed)
			}
			for _, id := range listed {
				m, err := tr.FailedMessage(t.Context(), id)
				ok(t, err)
				if m.ID != id || m.Reason != "held: «нет» \uFFFD, 19.99" || m.Message.Err != nil || time.Since(m.At).Abs() > time.Minute {
					t.Errorf("failed message %+v, %+v", m.Kept, m.Message)
				}
			}
			took := tell(t, runPHP(t, "failed.php", "take", dbal, "failed"))
			if len(took) != 2 || took[0].OrderID != "1" || !took[1].Same {
				t.Fatalf("PHP took %+v, want order 1 and a pair whose references hold", took)
			}
			for _, m := range took {
				if m.From != "async" || m.Error != "held: «нет» \uFFFD, 19.99" || time.Since(m.At).Abs() > time.Minute {
					t.Errorf("from %q, error %q, at %v", m.From, m.Error, m.At)
				}
			}
			if count(t, db) != 0 {
				t.Errorf("%d rows left, want 0", count(t, db))
			}
			// What zabor retries, PHP reads as what it sent.
			runPHP(t, "send.php", address, "0", "pair")
			ok(t, tr.Park(t.Context(), tr.next(t), "again"))
			listed = failedIDs(t, tr.Source)
			ok(t, tr.Retry(t.Context(), listed[0]))
			took = tell(t, runPHP(t, "consume.php", address, "1"))
			if len(took) != 1 || !took[0].Same || count(t, db) != 0 {
				t.Errorf("PHP took %+v, %d rows left", took, count(t, db))
			}
		})
	}
}

// The failure transport on Redis: PHP's own worker takes what was parked, and zabor
// sees that what PHP retries was delivered before.
func TestPHPTakesFromTheFailedStream(t *testing.T) {
	address := dsn(t, "delete_after_ack=1")
	failed := strings.Replace(address, "/messages?", "/failed?", 1)
	tr := open(t, address, func(o *Options) { o.Failed = &Stream{Client: connect(t, o.Config), Config: parse(t, failed)} })
	runPHP(t, "send.php", address, "0", "pair")
	ok(t, tr.Park(t.Context(), tr.next(t), "held"))
	took := tell(t, runPHP(t, "consume.php", failed, "1"))
	if len(took) != 1 || !took[0].Same || took[0].From != "async" || took[0].Error != "held" {
		t.Errorf("PHP took %+v", took)
	}
}

// What goes on, with its ack or out of the failure transport, PHP's worker takes
// as a message that has never failed.
func TestPHPTakesWhatGoesOn(t *testing.T) {
	address := dsn(t, "delete_after_ack=1")
	failed := strings.Replace(address, "/messages?", "/failed?", 1)
	tr := open(t, address, func(o *Options) { o.Failed = &Stream{Client: connect(t, o.Config), Config: parse(t, failed)} })
	runPHP(t, "send.php", address, "0", "pair", "1")
	ok(t, tr.Park(t.Context(), tr.next(t), "held"))
	ids := failedIDs(t, tr.Source)
	if len(ids) != 1 {
		t.Fatalf("parked are %v, want one", ids)
	}
	ok(t, tr.MoveOn(t.Context(), ids[0], "beside"))
	m := tr.next(t)
	m.Then = "beside"
	ok(t, tr.Ack(t.Context(), m))
	took := tell(t, runPHP(t, "consume.php", strings.Replace(address, "/messages?", "/beside?", 1), "2"))
	if len(took) != 2 || !took[0].Same || took[0].From != "" || took[1].OrderID != "1" {
		t.Errorf("PHP took %+v, want a pair whose references hold, and order 1", took)
	}
	if left := failedIDs(t, tr.Source); len(left) != 0 {
		t.Errorf("left in the failure transport: %v", left)
	}
}

// A message that a PHP worker had when it died is known as delivered before.
func TestPHPWorkerDied(t *testing.T) {
	address := dsn(t, "redeliver_timeout=1&claim_interval=50&delete_after_ack=1")
	tr := open(t, address)
	runPHP(t, "send.php", address, "0", "1")
	tr.deliverTo(t, "consumer", 0)
	m := tr.next(t)
	if !m.DeliveredBefore {
		t.Error("DeliveredBefore=false")
	}
	ok(t, tr.Ack(t.Context(), m))
}

// With the stamps of the failure transport in front of it, PHP reads each recorded
// message as the one that it was, back-references included.
func TestPHPReadsParkedMessages(t *testing.T) {
	t.Parallel()
	program := servers.Need(t, "php", "php-cli")
	type pair struct {
		Was []byte `json:"was"`
		Now []byte `json:"now"`
		In  string `json:"in"`
	}
	var names []string
	var pairs []pair
	for version, list := range recordings(t) {
		for _, r := range list {
			text := r.Member
			if text == nil {
				var err error
				if text, err = unwrap(r.Fields["message"]); err != nil {
					continue
				}
			}
			e, err := readEnvelope(text)
			if err != nil || e.header(typeHeader) != "" {
				continue
			}
			before, err := readDocument(e.body)
			if err != nil {
				continue
			}
			parked, err := e.parked("async", "held", nil, parkedAt)
			ok(t, err)
			after, err := readDocument(parked.body)
			ok(t, err)
			was, err := php.Marshal(before.root)
			ok(t, err)
			now, err := php.Marshal(after.root)
			ok(t, err)
			names, pairs = append(names, version+"/"+r.Name), append(pairs, pair{was, now, "message"})
		}
	}
	input, err := json.Marshal(pairs)
	ok(t, err)
	cmd := exec.Command(program, "../internal/php/testdata/equal.php")
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.Output()
	ok(t, err)
	answers := strings.Fields(string(out))
	if len(answers) != len(names) || len(names) < 100 {
		t.Fatalf("%d answers to %d pairs", len(answers), len(names))
	}
	for i, name := range names {
		if answers[i] == "other" || answers[i] == "unread" && !strings.Contains(name, "php_enum") && !strings.Contains(name, "custom_serialize") {
			t.Errorf("%s: %s\nwas %q\nnow %q", name, answers[i], pairs[i].Was, pairs[i].Now)
		}
	}
}
