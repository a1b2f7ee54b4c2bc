package laravel

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"zabor/internal/servers"
	"zabor/worker"
	"zabor/zabortest"
)

func TestMain(m *testing.M) { servers.Main(m) }

// queue is a source on an empty Redis database, and the other side of it.
type queue struct {
	*Source
	addr servers.RedisDB
	app  *redis.Client // the application's own connection
}

func client(t testing.TB, db servers.RedisDB, name string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: db.Addr, DB: db.DB, ClientName: name, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

func newQueue(t testing.TB, change func(*Config)) queue {
	t.Helper()
	db := servers.Redis(t)
	c := Config{Queue: "default", Prefix: "laravel_database_", Connection: "redis", RetryAfter: 90 * time.Second}
	if change != nil {
		change(&c)
	}
	s, err := NewSource(client(t, db, "zabor"), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return queue{s, db, client(t, db, "app")}
}

func lease(d time.Duration) func(*Config) { return func(c *Config) { c.RetryAfter = d } }

// push does what Laravel's push script does.
func (q queue) push(t testing.TB, payload string) {
	t.Helper()
	ctx := t.Context()
	if err := errors.Join(q.app.RPush(ctx, q.k.ready, payload).Err(), q.app.RPush(ctx, q.k.notify, "1").Err()); err != nil {
		t.Fatal(err)
	}
}

func (q queue) receive(t testing.TB) *worker.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := worker.Next(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (q queue) list(t testing.TB, key string) []string {
	t.Helper()
	v, err := q.app.LRange(t.Context(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (q queue) set(t testing.TB, key string) []redis.Z {
	t.Helper()
	v, err := q.app.ZRangeWithScores(t.Context(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// keys are the names of all keys but those that remember a reserve, which expire.
func (q queue) keys(t testing.TB) []string {
	t.Helper()
	keys, err := q.app.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		left, err := q.app.PTTL(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(key, q.k.reserves) && left > 0 && left <= q.c.RetryAfter
	})
}

// now is Redis's clock in seconds.
func (q queue) now(t testing.TB) float64 {
	t.Helper()
	at, err := q.app.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return float64(at.UnixMicro()) / 1e6
}

func payloadOf(orderID string) string {
	return `{"uuid":"uuid-` + orderID + `","displayName":"App\\Jobs\\Legacy","job":"App\\Jobs\\Legacy@run","data":{"orderId":"` + orderID + `","big":123456789012345678,"none":[]},"id":"id-` + orderID + `","attempts":0,"delay":null}`
}

const createSQLite = `CREATE TABLE failed_jobs (id integer PRIMARY KEY AUTOINCREMENT, uuid varchar NOT NULL UNIQUE, "connection" text NOT NULL,
	"queue" text NOT NULL, payload text NOT NULL, "exception" text NOT NULL, failed_at datetime DEFAULT CURRENT_TIMESTAMP NOT NULL)`

func sqliteJobs(t testing.TB) (*sql.DB, *FailedJobs) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/app.db?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(createSQLite); err != nil {
		t.Fatal(err)
	}
	f, err := NewFailedJobs(db, "sqlite", "failed_jobs", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return db, f
}

func TestSource(t *testing.T) {
	zabortest.Source(t, func(t *testing.T) zabortest.SourceUnderTest {
		db, failed := sqliteJobs(t)
		exec := func(query string) {
			t.Helper()
			if _, err := db.Exec(query); err != nil {
				t.Fatal(err)
			}
		}
		q := newQueue(t, func(c *Config) { c.RetryAfter, c.Failed = 2*time.Second, failed })
		return zabortest.SourceUnderTest{
			Source:     q.Source,
			Reserve:    2 * time.Second,
			Rounding:   time.Second,
			Push:       func(t *testing.T, orderID string) { q.push(t, payloadOf(orderID)) },
			PushRaw:    func(t *testing.T, raw []byte) { q.push(t, string(raw)) },
			Unreadable: []byte("s:5:\"\x00\xff{}\";"),
			Failed: func(t *testing.T) (n int) {
				if err := db.QueryRow("SELECT COUNT(*) FROM failed_jobs").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			},
			BreakFailed: func(t *testing.T) func() {
				exec("ALTER TABLE failed_jobs RENAME TO elsewhere")
				return func() { exec("ALTER TABLE elsewhere RENAME TO failed_jobs") }
			},
			Other:      "other",
			Forwarded:  func(t *testing.T) []string { return q.list(t, "laravel_database_queues:other") },
			Disconnect: func(t *testing.T) { disconnect(t, q) },
			Mortal: func(t *testing.T, dial zabortest.Dial) worker.Source {
				c := redis.NewClient(&redis.Options{Addr: q.addr.Addr, DB: q.addr.DB, MaxRetries: -1, Dialer: dial})
				t.Cleanup(func() { c.Close() })
				s, err := NewSource(c, q.c)
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Retry: func(ctx context.Context, s worker.Source) error {
				for j, err := range s.(*Source).Failed(ctx) {
					return errors.Join(err, s.(*Source).Retry(ctx, j.UUID))
				}
				return errors.New("nothing has failed")
			},
		}
	})
}

// disconnect kills the source's connections.
func disconnect(t *testing.T, q queue) {
	t.Helper()
	clients, err := q.app.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(clients) {
		if !strings.Contains(line, "name=zabor ") || !strings.Contains(line, fmt.Sprintf(" db=%d ", q.addr.DB)) {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if err := q.app.ClientKillByFilter(t.Context(), "ID", id).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		prefix, queue string
		hashTag       bool
		ready, dead   string
	}{
		{"laravel_database_", "default", false, "laravel_database_queues:default", "laravel_database_zabor:default:dead"},
		{"", "default", false, "queues:default", "zabor:default:dead"},
		{"shop:{prod}:", "{orders}", false, "shop:{prod}:queues:{orders}", "shop:{prod}:zabor:{orders}:dead"},
		{"p:", "default", true, "p:queues:{default}", "p:zabor:{default}:dead"},
		{"p:", "a{b}c", true, "p:queues:a{b}c", "p:zabor:a{b}c:dead"},
		{"p:", "a{}c", true, "p:queues:{a{}c}", "p:zabor:{a{}c}:dead"},
	} {
		k := names(tt.prefix, tt.queue, tt.hashTag)
		want := keys{tt.ready, tt.ready + ":delayed", tt.ready + ":reserved", tt.ready + ":notify", tt.dead, strings.TrimSuffix(tt.dead, "dead") + "reserve:"}
		if k != want {
			t.Errorf("%q, %q, %v:\n got %+v\nwant %+v", tt.prefix, tt.queue, tt.hashTag, k, want)
		}
	}
}

func TestNewSourceRefuses(t *testing.T) {
	good := Config{Queue: "q", Connection: "redis", RetryAfter: time.Minute}
	once := redis.NewClient(&redis.Options{MaxRetries: -1})
	again := redis.NewClient(&redis.Options{})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	clusterAgain := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: 2})
	for _, c := range []redis.UniversalClient{once, again, cluster, clusterAgain} {
		defer c.Close()
	}
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		change func(*Config)
		want   string
	}{
		{"good", once, func(*Config) {}, ""},
		{"cluster", cluster, func(*Config) {}, ""},
		{"retries", again, func(*Config) {}, "MaxRetries"},
		{"cluster that retries", clusterAgain, func(*Config) {}, "MaxRetries"},
		{"no queue", once, func(c *Config) { c.Queue = "" }, "without a name"},
		{"no connection", once, func(c *Config) { c.Connection = "" }, "config/queue.php"},
		{"short lease", once, func(c *Config) { c.RetryAfter = time.Millisecond }, "at least 1s"},
	} {
		c := good
		tt.change(&c)
		_, err := NewSource(tt.client, c)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

// The bytes of a payload survive a reserve: only the digits of attempts change.
func TestReserveTouchesOnlyAttempts(t *testing.T) {
	for _, tt := range []struct{ name, payload, member string }{
		{"pushed by Laravel", string(recorded(t, "v12-edge-values-pushed")), strings.Replace(string(recorded(t, "v12-edge-values-pushed")), `"attempts":0`, `"attempts":1`, 1)},
		{"popped by Laravel", string(recorded(t, "v12-edge-values-reserved")), strings.Replace(string(recorded(t, "v12-edge-values-reserved")), `"attempts":1`, `"attempts":2`, 1)},
		{"nine to ten", `{"job":"X","attempts":9}`, `{"job":"X","attempts":10}`},
		{"string of digits", `{"job":"X","attempts":"3","data":[]}`, `{"job":"X","attempts":"4","data":[]}`},
		{"twice", `{"job":"X","attempts":0,"attempts":5,"data":[]}`, `{"job":"X","attempts":0,"attempts":6,"data":[]}`},
		{"inside data only looks like it", `{"job":"X","data":{"attempts":7},"attempts" : 0}`, `{"job":"X","data":{"attempts":7},"attempts" : 1}`},
		{"first, with another behind", `{"attempts":1,"job":"X","data":{"attempts":7,"x":[{"attempts":8}]}}`, `{"attempts":2,"job":"X","data":{"attempts":7,"x":[{"attempts":8}]}}`},
		{"inside data with the same number", `{"attempts":7,"job":"X","data":{"attempts":7}}`, `{"attempts":8,"job":"X","data":{"attempts":7}}`},
		{"inside a string", `{"job":"X","data":"{\"attempts\":7}\\","attempts":0}`, `{"job":"X","data":"{\"attempts\":7}\\","attempts":1}`},
		{"as a value", `{"job":"attempts","x":["attempts",{"attempts":1}],"attempts":0}`, `{"job":"attempts","x":["attempts",{"attempts":1}],"attempts":1}`},
		{"longer key", `{"attempts\"":5,"maxattempts":6,"job":"X","attempts":0}`, `{"attempts\"":5,"maxattempts":6,"job":"X","attempts":1}`},
		{"other case", `{"Attempts":5,"job":"X","attempts":0}`, `{"Attempts":5,"job":"X","attempts":1}`},
		{"float", `{"job":"X","attempts":1.0}`, `{"job":"X","attempts":2}`},
		{"exponent", `{"job":"X","attempts":1e1 }`, `{"job":"X","attempts":11 }`},
		{"negative", `{"job":"X","attempts":-1}`, `{"job":"X","attempts":0}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := newQueue(t, nil)
			q.push(t, tt.payload)
			before := q.now(t)
			m := q.receive(t)
			if m.Err != nil && errors.Is(m.Err, worker.ErrUnreadable) {
				t.Fatal(m.Err)
			}
			if string(m.Raw) != tt.payload {
				t.Errorf("Raw  %q\nwant %q", m.Raw, tt.payload)
			}
			z := q.set(t, q.k.reserved)
			if len(z) != 1 || z[0].Member != tt.member {
				t.Fatalf("reserved %v\nwant %q", z, tt.member)
			}
			// Over at the second that follows; see the scripts.
			if end := z[0].Score + 0.5; end < before+90 || end > q.now(t)+91 || end != math.Trunc(end) {
				t.Errorf("lease ends at %f, asked for 90 s at %f", end, before)
			}
			if n := q.list(t, q.k.notify); len(n) != 0 {
				t.Errorf("notify %q, want its token gone", n)
			}
			if err := q.Ack(t.Context(), m); err != nil {
				t.Error(err)
			}
			if keys := q.keys(t); len(keys) != 0 {
				t.Errorf("keys %q are left", keys)
			}
		})
	}
}

// A key of another type, which somebody else has put where a queue's key belongs,
// stops a script before it has written anything: Redis does not undo a half of one.
func TestKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	type job = *worker.Message
	reserved := map[string]func(q queue, m job) error{
		"later":    func(q queue, m job) error { return q.Later(t.Context(), m, time.Hour) },
		"put back": func(q queue, m job) error { return q.PutBack(t.Context(), m) },
		"renew":    func(q queue, m job) error { return q.Renew(t.Context(), m) },
		"forward":  func(q queue, m job) error { return q.Forward(t.Context(), m, "other") },
		"then": func(q queue, m job) error {
			m.Then = "other"
			return q.Ack(t.Context(), m)
		},
	}
	copies := func(q queue) (n int) {
		for _, k := range []keys{q.k, names(q.c.Prefix, "other", false)} {
			for _, set := range []string{k.delayed, k.reserved} {
				n += len(q.set(t, set))
			}
			n += len(q.list(t, k.ready)) + len(q.list(t, k.dead))
		}
		return n
	}
	spoil := func(q queue, key string) (mend func()) {
		if err := q.app.HSet(t.Context(), key, "x", "y").Err(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := q.app.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := names("laravel_database_", "other", false)
	k := names("laravel_database_", "default", false)
	for _, key := range []string{k.ready, k.delayed, k.notify, k.dead, other.ready, other.delayed, other.notify} {
		for name, do := range reserved {
			q := newQueue(t, nil)
			q.push(t, payloadOf("1"))
			m := q.receive(t)
			mend := spoil(q, key)
			err := do(q, m)
			mend()
			if n := copies(q); n != 1 || errors.Is(err, worker.ErrLost) {
				t.Errorf("%s while %s is a hash: %v, and %d copies are there, want 1", name, key, err, n)
			}
			if err != nil {
				if err := do(q, m); err != nil || copies(q) != 1 {
					t.Errorf("%s once %s is mended: %v, and %d copies", name, key, err, copies(q))
				}
			}
		}
	}
	for _, key := range []string{k.ready, k.delayed, k.reserved, k.notify, k.dead} {
		q := newQueue(t, nil)
		in := map[string]bool{k.ready: true, k.delayed: true, k.reserved: true}
		delete(in, key)
		for name := range in {
			var err error
			if name == k.ready {
				err = q.app.RPush(t.Context(), name, payloadOf(name), "poison").Err()
			} else {
				err = q.app.ZAdd(t.Context(), name, redis.Z{Score: 1, Member: payloadOf(name)}).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := copies(q)
		mend := spoil(q, key)
		if m, err := q.Receive(t.Context(), 1); err == nil {
			t.Errorf("Receive while %s is a hash: %+v, want an error", key, m)
		}
		mend()
		if n := copies(q); n != want {
			t.Errorf("Receive while %s is a hash left %d jobs of %d", key, n, want)
		}
	}
}

func TestPoisonIsKept(t *testing.T) {
	for _, tt := range []struct{ name, payload, want string }{
		{"not JSON", "hello", "not JSON"},
		{"escaped key, and one less inside", `{"\u0061ttempts":3,"job":"X","data":{"attempts":2}}`, "cannot be counted"},
		{"the other half", `{"job":"X","attempts":0,"data":{"order":"\udc00x"}}`, "not JSON"},
		{"byte order mark", "\ufeff" + `{"job":"X","attempts":0}`, "not JSON"},
		{"a million digits", `{"job":"X","attempts":` + strings.Repeat("9", 1_000_000) + `}`, "cannot be counted"},
		{"a number too large for a float", `{"job":"X","attempts":1e999}`, "cannot be counted"},
		{"empty", "", "not JSON"},
		{"number", "7", "not a JSON object"},
		{"string", `""`, "not a JSON object"},
		{"list", "[1]", "without a number of attempts"},
		{"empty object", "{}", "without a number of attempts"},
		{"no attempts", `{"job":"X","data":[]}`, "without a number of attempts"},
		{"null attempts", `{"job":"X","data":[],"attempts":null}`, "without a number of attempts"},
		{"true attempts", `{"job":"X","data":[],"attempts":true}`, "without a number of attempts"},
		{"worded attempts", `{"job":"X","attempts":"one"}`, "cannot be counted"},
		{"hexadecimal attempts", `{"job":"X","attempts":"0x10"}`, "cannot be counted"},
		{"attempts beyond counting", `{"job":"X","attempts":9007199254740993}`, "cannot be counted"},
		{"escaped key", `{"job":"X","\u0061ttempts":0}`, "cannot be counted"},
		{"escaped key, and another inside", `{"job":"X","\u0061ttempts":0,"data":{"attempts":0}}`, "cannot be counted"},
		{"too deep", `{"job":"X","data":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `,"attempts":0}`, "not JSON"},
		{"half a surrogate pair", `{"job":"X","data":"\ud800","attempts":0}`, "not JSON"},
		{"serialized by phpredis", `s:395:"{"uuid":"x"}";`, "not JSON"},
		{"any bytes", "\x00\xff\r\n", "not JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := newQueue(t, nil)
			q.push(t, tt.payload)
			m := q.receive(t)
			if !errors.Is(m.Err, worker.ErrUnreadable) || !strings.Contains(m.Err.Error(), tt.want) {
				t.Fatalf("Err = %v, want ErrUnreadable with %q in it", m.Err, tt.want)
			}
			if string(m.Raw) != tt.payload {
				t.Fatalf("Raw = %q, want %q", m.Raw, tt.payload)
			}
			if got := q.list(t, q.k.dead); len(got) != 1 || got[0] != tt.payload {
				t.Fatalf("dead list %q, want the payload", got)
			}

			// A worker that starts after a crash finds it.
			again, err := NewSource(client(t, q.addr, "zabor"), q.c)
			if err != nil {
				t.Fatal(err)
			}
			q.Source = again
			m = q.receive(t)
			if !errors.Is(m.Err, worker.ErrUnreadable) || string(m.Raw) != tt.payload {
				t.Fatalf("after a restart Err %v, Raw %q", m.Err, m.Raw)
			}
			if err := q.Park(t.Context(), m, "x"); err == nil {
				t.Fatal("an undecodable payload was parked")
			}
			if err := q.Ack(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if keys := q.keys(t); len(keys) != 0 {
				t.Errorf("keys %q are left", keys)
			}
		})
	}
}

// What Redis can decode and Go cannot is reserved, unreadable, and acked.
func TestReservedButUnreadable(t *testing.T) {
	q := newQueue(t, nil)
	q.push(t, `{"job":"X","data":nan,"attempts":0}`)
	m := q.receive(t)
	if !errors.Is(m.Err, worker.ErrUnreadable) {
		t.Fatalf("Err = %v, want ErrUnreadable", m.Err)
	}
	if err := q.Ack(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// An ack names the exact member: JSON that is only equal removes nothing.
func TestAckNeedsTheExactMember(t *testing.T) {
	q := newQueue(t, nil)
	q.push(t, payloadOf("1"))
	m := q.receive(t)
	other := *m
	other.Receipt = receipt{member: strings.ReplaceAll(m.Receipt.(receipt).member, `":`, `": `)}
	if err := q.Ack(t.Context(), &other); !errors.Is(err, worker.ErrLost) {
		t.Fatalf("Ack of an equal JSON text = %v, want ErrLost", err)
	}
	if err := q.Ack(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestDueTimes(t *testing.T) {
	q := newQueue(t, nil)
	ctx := t.Context()
	now := math.Trunc(q.now(t))
	q.app.ZAdd(ctx, q.k.delayed,
		redis.Z{Score: now + 3600, Member: payloadOf("future")}, redis.Z{Score: now, Member: payloadOf("now")}, redis.Z{Score: now - 5, Member: payloadOf("past")})
	q.app.ZAdd(ctx, q.k.reserved, redis.Z{Score: now - 1, Member: payloadOf("lost")})
	for _, want := range []string{"past", "now", "lost"} { // delayed before lost, each by score
		if got := at(t, q.receive(t).Data, "orderId"); got != want {
			t.Errorf("received %v, want %s", got, want)
		}
	}
	if z := q.set(t, q.k.delayed); len(z) != 1 || z[0].Member != payloadOf("future") {
		t.Errorf("delayed %v, want the future one", z)
	}
}

// PHP workers that block wait for the token of a job that was put back.
func TestPutBackPushesAToken(t *testing.T) {
	q := newQueue(t, nil)
	q.push(t, payloadOf("1"))
	if err := q.PutBack(t.Context(), q.receive(t)); err != nil {
		t.Fatal(err)
	}
	if n := q.list(t, q.k.notify); len(n) != 1 {
		t.Errorf("%d tokens for one job", len(n))
	}
}

// A lost job goes behind younger ones.
func TestExpiredJobGoesToTheTail(t *testing.T) {
	q := newQueue(t, nil)
	q.push(t, payloadOf("young"))
	q.app.ZAdd(t.Context(), q.k.reserved, redis.Z{Score: 1, Member: strings.Replace(payloadOf("old"), `"attempts":0`, `"attempts":1`, 1)})
	first, second := q.receive(t), q.receive(t)
	if a, b := at(t, first.Data, "orderId"), at(t, second.Data, "orderId"); a != "young" || b != "old" {
		t.Fatalf("received %v, %v", a, b)
	}
	if first.DeliveredBefore || !second.DeliveredBefore || !second.Rewritten {
		t.Errorf("DeliveredBefore %v, %v; Rewritten %v", first.DeliveredBefore, second.DeliveredBefore, second.Rewritten)
	}
}

// Whole seconds, as Laravel compares them, and never sooner than asked.
func TestTimesAreRoundedUp(t *testing.T) {
	q := newQueue(t, lease(1500*time.Millisecond))
	q.push(t, payloadOf("1"))
	check := func(what, key string, asked float64, act func()) {
		t.Helper()
		before := q.now(t)
		act()
		z := q.set(t, key)
		if len(z) != 1 {
			t.Fatalf("%s: %s holds %v", what, key, z)
		}
		// A lease is over at the second that follows; see the scripts.
		if at := math.Ceil(z[0].Score); at < before+asked || at > q.now(t)+asked+1 || (at == z[0].Score) != (key == q.k.delayed) {
			t.Errorf("%s: score %f at %f, asked for %v s", what, at, before, asked)
		}
	}
	var m *worker.Message
	check("Receive", q.k.reserved, 1.5, func() { m = q.receive(t) })
	check("Renew", q.k.reserved, 1.5, func() {
		if err := q.Renew(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	})
	check("Later", q.k.delayed, 0.3, func() {
		if err := q.Later(t.Context(), m, 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMigrationHasALimit(t *testing.T) {
	q := newQueue(t, nil)
	ctx := t.Context()
	pipe := q.app.Pipeline()
	for i := range 1000 {
		pipe.ZAdd(ctx, q.k.delayed, redis.Z{Score: float64(i), Member: payloadOf(fmt.Sprintf("%04d", i))})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	first := q.receive(t)
	if got := at(t, first.Data, "orderId"); got != "0000" {
		t.Errorf("first %v, want the one due first", got)
	}
	if d, _ := q.Depth(ctx); d != (worker.Depth{Ready: migrate - 1, Reserved: 1, Delayed: 1000 - migrate}) {
		t.Errorf("depth %+v: one Receive moves %d", d, migrate)
	}
	if n := len(q.list(t, q.k.notify)); n != migrate-1 {
		t.Errorf("%d tokens, want one for each job on the list", n)
	}
	for range 999 {
		q.receive(t)
	}
	if d, _ := q.Depth(ctx); d != (worker.Depth{Reserved: 1000}) {
		t.Errorf("depth %+v", d)
	}
}

// Ten thousand jobs are due at once (laravel/framework#43310).
func TestManyDueAtOnce(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	address := servers.RedisDB{Addr: server.Addr()}
	admin := client(t, address, "admin")
	var sources []worker.Source
	for range 4 {
		s, err := NewSource(client(t, address, "zabor"), Config{Queue: "payments", Connection: "redis", RetryAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, s)
	}
	k := sources[0].(*Source).k
	did := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	zabortest.ManyDue(t, admin, sources,
		func(orderID string) {
			did(admin.ZAdd(t.Context(), k.delayed, redis.Z{Score: 1, Member: payloadOf(orderID)}).Err())
		},
		func(orderID string) { did(admin.RPush(t.Context(), k.ready, payloadOf(orderID)).Err()) },
		func() int64 { return admin.ZCard(t.Context(), k.delayed).Val() })
}

// Two byte-equal payloads are one member once reserved: the second stays or is
// delivered, and neither blocks the queue.
func TestEqualPayloads(t *testing.T) {
	q := newQueue(t, nil)
	q.push(t, payloadOf("1"))
	q.push(t, payloadOf("1"))
	a, b := q.receive(t), q.receive(t)
	if err := q.Ack(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := q.Ack(t.Context(), b); !errors.Is(err, worker.ErrLost) {
		t.Fatalf("second Ack = %v, want ErrLost", err)
	}
}

func TestStaleAndMissingTokens(t *testing.T) {
	q := newQueue(t, nil)
	for range 50 { // stale
		q.app.RPush(t.Context(), q.k.notify, "1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if m, err := worker.Next(ctx, q); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive = %v, %v on an empty queue with stale tokens", m, err)
	}
	if n := q.list(t, q.k.notify); len(n) != 0 {
		t.Errorf("%d stale tokens are left", len(n))
	}
	q.app.RPush(t.Context(), q.k.ready, payloadOf("1")) // without a token
	if got := at(t, q.receive(t).Data, "orderId"); got != "1" {
		t.Errorf("received %v", got)
	}
}

// blocked reports whether the source waits for a token.
func (q queue) blocked() bool {
	clients, _ := q.app.ClientList(context.Background()).Result()
	for line := range strings.Lines(clients) {
		if strings.Contains(line, fmt.Sprintf(" db=%d ", q.addr.DB)) && strings.Contains(line, " cmd=blpop ") {
			return true
		}
	}
	return false
}

// A job that is pushed to an idle worker is taken at once, a delayed one when due.
func TestWaitingReceive(t *testing.T) {
	q := newQueue(t, nil)
	pushed := make(chan time.Time, 1)
	go func() {
		for !q.blocked() && t.Context().Err() == nil {
		}
		pushed <- time.Now()
		q.app.RPush(context.Background(), q.k.ready, payloadOf("1"))
		q.app.RPush(context.Background(), q.k.notify, "1")
	}()
	q.receive(t)
	if waited := time.Since(<-pushed); waited > 900*time.Millisecond {
		t.Errorf("a job pushed to an idle worker was received after %v", waited)
	}
	q.app.ZAdd(t.Context(), q.k.delayed, redis.Z{Score: math.Trunc(q.now(t)) + 2, Member: payloadOf("2")})
	start := time.Now()
	q.receive(t)
	if waited := time.Since(start); waited > 4*time.Second {
		t.Errorf("a job due in 2 s was received after %v", waited)
	}
}

func TestPrefixes(t *testing.T) {
	for _, tt := range []struct{ prefix, queue string }{{"", "default"}, {"shop:{prod}:", "{orders}"}, {"p:", "mit leer:zeichen"}} {
		q := newQueue(t, func(c *Config) { c.Prefix, c.Queue = tt.prefix, tt.queue })
		q.push(t, payloadOf("1"))
		if err := q.Later(t.Context(), q.receive(t), 0); err != nil {
			t.Fatal(err)
		}
		if keys := q.keys(t); len(keys) != 1 || keys[0] != tt.prefix+"queues:"+tt.queue+":delayed" {
			t.Errorf("prefix %q: keys %q", tt.prefix, keys)
		}
	}
}

// A deadline that passes while Redis is reserving a job does not leave the job
// reserved for nobody.
func TestDeadlineWhileReserving(t *testing.T) {
	s := servers.OwnRedis(t)
	q := queue{addr: servers.RedisDB{Addr: s.Addr()}}
	q.app = client(t, q.addr, "app")
	strict := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer strict.Close()
	var err error
	if q.Source, err = NewSource(strict, Config{Queue: "default", Connection: "redis", RetryAfter: time.Minute}); err != nil {
		t.Fatal(err)
	}
	q.push(t, payloadOf("1"))
	q.push(t, payloadOf("2"))
	q.receive(t)
	if err := q.app.ClientPause(t.Context(), 500*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	m, err := worker.Next(ctx, q)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	if got := at(t, m.Data, "orderId"); got != "2" {
		t.Errorf("received %v, want 2", got)
	}
}

// With Redis's memory full, nothing that the worker does to a job is refused.
func TestMemoryFull(t *testing.T) {
	s := servers.OwnRedis(t)
	q := queue{addr: servers.RedisDB{Addr: s.Addr()}}
	q.app = client(t, q.addr, "app")
	var err error
	q.Source, err = NewSource(client(t, q.addr, "zabor"), Config{Queue: "default", Connection: "redis", RetryAfter: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	q.push(t, payloadOf("1"))
	q.push(t, "poison")
	q.app.ZAdd(t.Context(), q.k.delayed, redis.Z{Score: 1, Member: payloadOf("2")})
	if err := q.app.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := q.app.RPush(t.Context(), "x", "1").Err(); err == nil {
		t.Fatal("memory is not full")
	}
	m := q.receive(t)
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ok("Renew", q.Renew(t.Context(), m))
	ok("PutBack", q.PutBack(t.Context(), m))
	m = q.receive(t)
	ok("Later", q.Later(t.Context(), m, time.Hour))
	dead := q.receive(t)
	if !errors.Is(dead.Err, worker.ErrUnreadable) {
		t.Errorf("Err = %v", dead.Err)
	}
	ok("Ack", q.Ack(t.Context(), dead))
	ok("Ack", q.Ack(t.Context(), q.receive(t)))
}
