package laravel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"zabor/internal/php"
	"zabor/internal/servers"
)

// laravel runs one of the PHP programs in testdata on q.
func laravel(t *testing.T, q queue, program string, args ...any) string {
	t.Helper()
	_, port, _ := strings.Cut(q.addr.Addr, ":")
	argv := []string{"-d", "error_reporting=E_ALL & ~E_DEPRECATED", "testdata/" + program, port, strconv.Itoa(q.addr.DB), q.c.Prefix, q.c.Queue}
	for _, a := range args {
		argv = append(argv, fmt.Sprint(a))
	}
	cmd := exec.Command("php", argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("php %s: %v\n%s%s", program, err, out, stderr.String())
	}
	return string(out)
}

func needLaravel(t *testing.T) {
	t.Helper()
	servers.Need(t, "php", "php-cli")
	needPackages(t, "/usr/share/php/Illuminate/Queue", "php-illuminate-queue", "/usr/share/php/Illuminate/Redis", "php-illuminate-redis")
	if out, _ := exec.Command("php", "-m").Output(); !bytes.Contains(out, []byte("\nredis\n")) {
		servers.Need(t, "the redis extension of php", "php-redis")
	}
}

// needPackages takes folders, each followed by the Debian package that has it.
func needPackages(t *testing.T, dirs ...string) {
	t.Helper()
	for i := 0; i < len(dirs); i += 2 {
		if _, err := os.Stat(dirs[i]); err != nil {
			servers.Need(t, dirs[i], dirs[i+1])
		}
	}
}

// seen is what Laravel's worker saw of a job.
type seen struct {
	Attempts int
	UUID     string
	Body     []byte
	Data     map[string]any
}

func work(t *testing.T, q queue, retryAfter int, action string, count int) []seen {
	t.Helper()
	var jobs []seen
	for line := range strings.Lines(laravel(t, q, "work.php", retryAfter, action, count)) {
		var s seen
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("work.php printed %q: %v", line, err)
		}
		jobs = append(jobs, s)
	}
	return jobs
}

func TestJobsPushedByLaravel(t *testing.T) {
	needLaravel(t)
	for _, tt := range []struct{ prefix, queue string }{
		{"laravel_database_", "default"}, {"", "payments"}, {"shop:{prod}:", "{orders}"},
	} {
		t.Run(tt.prefix+tt.queue, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, func(c *Config) { c.Prefix, c.Queue = tt.prefix, tt.queue })
			laravel(t, q, "push.php", "class", 1, 3)
			laravel(t, q, "push.php", "string", 7, 1)
			laravel(t, q, "push.php", "class", 9, 1, 1)
			for i := 1; i <= 3; i++ {
				m := q.receive(t)
				if m.Err != nil || m.Class != "ChargeOrder" || m.DeliveredBefore || len(m.ID) != 36 {
					t.Fatalf("message %+v", m)
				}
				want := map[string]any{
					"orderId": int64(i), "amountCents": int64(129900), "secret": "p",
					"currency": php.Enum{Class: "Currency", Case: "Euro"}, "self": map[string]any{"a": int64(1)},
					"lines": map[string]any{
						"0":    map[string]any{"sku": "a\"b\x00c", "price": 0.1},
						"1":    map[string]any{"sku": "Zoë 😀", "price": 100.0},
						"same": map[string]any{"a": int64(1)},
					},
				}
				if !reflect.DeepEqual(m.Data, want) {
					t.Errorf("data %#v\nwant %#v", m.Data, want)
				}
			}
			m := q.receive(t)
			if m.Class != `App\Jobs\Legacy` || !reflect.DeepEqual(m.Data, map[string]any{"orderId": json.Number("7"), "big": json.Number("123456789012345678"), "none": []any{}}) {
				t.Errorf("string job %+v", m)
			}
			m = q.receive(t)
			if got := at(t, m.Data, "orderId"); got != int64(9) {
				t.Errorf("delayed job %v", got)
			}
		})
	}
}

// What zabor gives back, Laravel takes as if zabor had never had it.
func TestLaravelTakesWhatIsGivenBack(t *testing.T) {
	needLaravel(t)
	for _, kind := range []string{"class", "string"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, nil)
			ctx := t.Context()
			laravel(t, q, "push.php", kind, 1, 2)
			pushed := q.list(t, q.k.ready)
			first, second := q.receive(t), q.receive(t)
			if err := q.Later(ctx, second, 0); err != nil {
				t.Fatal(err)
			}
			if err := q.PutBack(ctx, first); err != nil {
				t.Fatal(err)
			}
			if l, d := q.list(t, q.k.ready), q.set(t, q.k.delayed); len(l) != 1 || l[0] != pushed[0] || len(d) != 1 || d[0].Member != pushed[1] {
				t.Fatalf("list %q, delayed %v\nwere pushed as %q", l, d, pushed)
			}
			deadline := time.Now().Add(time.Minute)
			var jobs []seen
			for len(jobs) < 2 && time.Now().Before(deadline) {
				jobs = append(jobs, work(t, q, 90, "delete", 2)...)
			}
			if len(jobs) != 2 {
				t.Fatalf("Laravel saw %d jobs, want 2", len(jobs))
			}
			for i, j := range jobs {
				if j.Attempts != 1 || string(j.Body) != pushed[i] || fmt.Sprint(j.Data["orderId"]) != fmt.Sprint(i+1) {
					t.Errorf("Laravel saw %+v", j)
				}
			}
			if kind == "class" && (jobs[0].Data["same"] != true || jobs[0].Data["sku"] != "6122620063") {
				t.Errorf("Laravel unserialized %v", jobs[0].Data)
			}
			if keys := q.keys(t); len(keys) != 0 {
				t.Errorf("keys %q are left", keys)
			}
		})
	}
}

// The sign of a call that may have acted costs no attempt in PHP, which keeps it
// when it gives the job back or retries it.
func TestLaravelKeepsTheSign(t *testing.T) {
	needLaravel(t)
	needPackages(t, "/usr/share/php/Illuminate/Database", "php-illuminate-database", "/usr/share/php/Illuminate/Console", "php-illuminate-console")
	for _, kind := range []string{"class", "string"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, failed := sqliteJobs(t)
			q := newQueue(t, func(c *Config) { c.Failed = failed })
			ctx := t.Context()
			laravel(t, q, "push.php", kind, 1, 1)
			pushed := q.list(t, q.k.ready)[0]
			want := strings.TrimSuffix(pushed, "}") + `,"zabor_delivered":true}`
			m := q.receive(t)
			m.MayHaveActed = true
			if err := q.PutBack(ctx, m); err != nil {
				t.Fatal(err)
			}
			jobs := work(t, q, 90, "release", 1)
			if len(jobs) != 1 || jobs[0].Attempts != 1 || string(jobs[0].Body) != want {
				t.Fatalf("Laravel saw %+v\nwant attempt 1 of %s", jobs, want)
			}
			m = q.receive(t)
			if err := q.Park(ctx, m, "card refused"); err != nil {
				t.Fatal(err)
			}
			var file string
			if err := db.QueryRow("SELECT file FROM pragma_database_list").Scan(&file); err != nil {
				t.Fatal(err)
			}
			laravel(t, q, "retry.php", file, m.ID)
			text := q.list(t, q.k.ready)[0]
			if p, err := parse([]byte(text)); err != nil || p.attempts != 0 || !p.hasSign() {
				t.Errorf("queue:retry pushed %s (%v), want no attempts and the sign", text, err)
			}
			if m := q.receive(t); !m.DeliveredBefore || m.Err != nil {
				t.Errorf("DeliveredBefore=%v, error %v", m.DeliveredBefore, m.Err)
			}
		})
	}
}

// A job that zabor reserved and lost is popped by Laravel as the second attempt.
func TestLaravelTakesWhatZaborLost(t *testing.T) {
	needLaravel(t)
	q := newQueue(t, lease(time.Second))
	laravel(t, q, "push.php", "class", 1, 1)
	m := q.receive(t)
	deadline := time.Now().Add(time.Minute)
	var jobs []seen
	for len(jobs) == 0 && time.Now().Before(deadline) {
		jobs = work(t, q, 90, "leave", 1)
	}
	if len(jobs) != 1 || jobs[0].Attempts != 2 || string(jobs[0].Body) != m.Receipt.(receipt).member || jobs[0].UUID != m.ID {
		t.Fatalf("Laravel saw %+v, want attempt 2 of %s", jobs, m.ID)
	}
	ctx := t.Context()
	for what, err := range map[string]error{"Ack": q.Ack(ctx, m), "Later": q.Later(ctx, m, 0), "PutBack": q.PutBack(ctx, m), "Renew": q.Renew(ctx, m)} {
		if err == nil {
			t.Errorf("%s of a job that Laravel holds: no error", what)
		}
	}
	if d, _ := q.Depth(ctx); d.Reserved != 1 || d.Ready+d.Delayed != 0 {
		t.Errorf("depth %+v, want Laravel's reservation alone", d)
	}
}

// A job that a PHP worker had when it was killed, or that it released, has been
// delivered before; the JSON numbers of a string job may be rounded then.
func TestJobsThatLaravelHadBefore(t *testing.T) {
	needLaravel(t)
	for _, action := range []string{"leave", "release"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, nil)
			laravel(t, q, "push.php", "class", 1, 1)
			laravel(t, q, "push.php", "string", 2, 1)
			if jobs := work(t, q, 1, action, 2); len(jobs) != 2 {
				t.Fatalf("Laravel saw %d jobs, want 2", len(jobs))
			}
			got := map[string]bool{}
			for range 2 {
				m := q.receive(t)
				order := fmt.Sprint(m.Data["orderId"])
				got[order] = true
				if m.Err != nil || !m.DeliveredBefore || m.Rewritten != (order == "2") {
					t.Errorf("order %s: DeliveredBefore %v, Rewritten %v, error %v", order, m.DeliveredBefore, m.Rewritten, m.Err)
				}
				if order == "2" {
					if big, want := m.Data["big"], json.Number("1.2345678901235e+17"); big != want {
						t.Errorf("big = %v, want %v: cjson rounds", big, want)
					}
				}
			}
			if !got["1"] || !got["2"] {
				t.Errorf("received orders %v", got)
			}
		})
	}
}

// A worker of Laravel that renews nothing respects a lease that zabor renewed.
func TestLaravelRespectsARenewedLease(t *testing.T) {
	t.Parallel()
	needLaravel(t)
	const reserve = 10 * time.Second // PHP takes seconds to start on a busy machine
	q := newQueue(t, lease(reserve))
	laravel(t, q, "push.php", "class", 1, 1)
	m := q.receive(t)
	for end := time.Now().Add(reserve + 2*time.Second); time.Now().Before(end); {
		if jobs := work(t, q, 90, "delete", 1); len(jobs) != 0 {
			t.Fatalf("Laravel took %+v", jobs)
		}
		if err := q.Renew(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Ack(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// Laravel's own queue:retry takes what Park wrote, and Laravel and zabor both
// take what it pushed.
func TestLaravelRetriesWhatZaborParked(t *testing.T) {
	needLaravel(t)
	needPackages(t, "/usr/share/php/Illuminate/Database", "php-illuminate-database", "/usr/share/php/Illuminate/Console", "php-illuminate-console")
	db, failed := sqliteJobs(t)
	q := newQueue(t, func(c *Config) { c.Failed = failed })
	ctx := t.Context()
	laravel(t, q, "push.php", "class", 1, 2)
	q.push(t, `{"job":"App\\Jobs\\Legacy@run","data":{"orderId":3,"none":[]},"attempts":0}`) // a foreign one, without a uuid
	if jobs := work(t, q, 1, "leave", 1); len(jobs) != 1 {
		t.Fatalf("Laravel saw %d jobs, want 1", len(jobs))
	}
	for range 3 { // order 1 is at its second attempt
		m := q.receive(t)
		if err := q.Park(ctx, m, "card refused\nsecond line"); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := q.Depth(ctx); err != nil || !d.Empty() {
		t.Fatalf("depth %+v, error %v", d, err)
	}
	parked := rows(t, db)
	if len(parked) != 3 {
		t.Fatalf("rows %q, want 3", parked)
	}
	var file string
	if err := db.QueryRow("SELECT file FROM pragma_database_list").Scan(&file); err != nil {
		t.Fatal(err)
	}
	for _, r := range parked {
		if out := laravel(t, q, "retry.php", file, r.uuid); !strings.Contains(out, "has been pushed back") {
			t.Fatalf("queue:retry printed %q", out)
		}
	}
	if left := rows(t, db); len(left) != 0 {
		t.Errorf("rows %q are left", left)
	}
	var pushed []string
	for _, text := range q.list(t, q.k.ready) {
		pushed = append(pushed, canonical(t, text))
	}
	for i, r := range parked {
		if want := canonical(t, strings.Replace(r.payload, `"attempts":1`, `"attempts":0`, 1)); i >= len(pushed) || pushed[i] != want {
			t.Fatalf("Laravel pushed\n%s\nwant\n%s", pushed, want)
		}
	}
	for i, r := range parked[:2] {
		m := q.receive(t)
		if m.Err != nil || m.ID != r.uuid || m.DeliveredBefore {
			t.Errorf("job %d: ID %s, DeliveredBefore %v, error %v; want %s", i, m.ID, m.DeliveredBefore, m.Err, r.uuid)
		}
	}
	jobs := work(t, q, 90, "delete", 1)
	if len(jobs) != 1 || jobs[0].UUID != parked[2].uuid || jobs[0].Attempts != 1 {
		t.Errorf("Laravel saw %+v, want %s", jobs, parked[2].uuid)
	}
}

// canonical is a JSON text in one form.
func canonical(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// What zabor forwards and what it retries, a worker of Laravel takes as if the
// application had just pushed it.
func TestLaravelTakesWhatIsForwardedAndRetried(t *testing.T) {
	needLaravel(t)
	_, failed := sqliteJobs(t)
	q := newQueue(t, func(c *Config) { c.Failed = failed })
	ctx := t.Context()
	laravel(t, q, "push.php", "class", 1, 3)
	pushed := q.list(t, q.k.ready)
	if jobs := work(t, q, 1, "leave", 1); len(jobs) != 1 {
		t.Fatalf("Laravel saw %d jobs, want 1", len(jobs))
	}
	second := q.receive(t) // the first is reserved by a worker that was killed
	if err := q.Forward(ctx, second, "other"); err != nil {
		t.Fatal(err)
	}
	third := q.receive(t)
	third.Then = "done"
	if err := q.Ack(ctx, third); err != nil {
		t.Fatal(err)
	}
	first := q.receive(t)
	if err := q.Park(ctx, first, "held"); err != nil {
		t.Fatal(err)
	}
	if err := q.Retry(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	other := queue{addr: q.addr, app: q.app, Source: &Source{c: Config{Queue: "other", Prefix: q.c.Prefix}}}
	done := queue{addr: q.addr, app: q.app, Source: &Source{c: Config{Queue: "done", Prefix: q.c.Prefix}}}
	for i, from := range []queue{q, other, done} {
		jobs := work(t, from, 90, "delete", 2)
		if len(jobs) != 1 || jobs[0].Attempts != 1 || canonical(t, string(jobs[0].Body)) != canonical(t, pushed[i]) || fmt.Sprint(jobs[0].Data["orderId"]) != fmt.Sprint(i+1) {
			t.Errorf("Laravel saw %+v on queue %s, want order %d as it was pushed", jobs, from.c.Queue, i+1)
		}
	}
	if keys := q.keys(t); len(keys) != 0 {
		t.Errorf("keys %q are left", keys)
	}
}
