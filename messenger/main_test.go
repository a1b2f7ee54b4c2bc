package messenger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"zabor"
	"zabor/internal/servers"
	"zabor/worker"
)

func TestMain(m *testing.M) { servers.Main(m) }

// dsn is the address of an empty database, with options.
func dsn(t testing.TB, options string) string {
	r := servers.Redis(t)
	return fmt.Sprintf("redis://%s/messages?dbindex=%d&%s", r.Addr, r.DB, options)
}

func parse(t testing.TB, dsn string) Config {
	t.Helper()
	c, err := ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func connect(t testing.TB, c Config) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(c.Options())
	t.Cleanup(func() { client.Close() })
	return client
}

// transport is a source with its client and the alerts it gave.
type transport struct {
	*Source
	redis redis.UniversalClient

	mu     sync.Mutex
	alerts []zabor.Alert
}

func (tr *transport) codes() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var codes []string
	for _, a := range tr.alerts {
		codes = append(codes, a.Code)
	}
	return codes
}

// open makes the source async of dsn, on host web1 unless edit says otherwise.
func open(t testing.TB, dsn string, edit ...func(*Options)) *transport {
	t.Helper()
	c := parse(t, dsn)
	tr := &transport{redis: connect(t, c)}
	o := Options{Name: "async", Config: c, Host: "web1", Alert: func(a zabor.Alert) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.alerts = append(tr.alerts, a)
	}}
	for _, e := range edit {
		e(&o)
	}
	var err error
	if tr.Source, err = NewSource(tr.redis, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		tr.Close(ctx)
	})
	return tr
}

// next is the next message, which must come.
func (tr *transport) next(t testing.TB) *worker.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	m, err := worker.Next(ctx, tr)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return m
}

// none checks that no message comes for two rounds.
func (tr *transport) none(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*block)
	defer cancel()
	if m, err := worker.Next(ctx, tr); err == nil {
		t.Fatalf("Receive = %+v, want nothing", m)
	}
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
		time.Sleep(5 * time.Millisecond) // a poll, not a wait for a moment
	}
}

// phpBody is PhpSerializer's body of App\Message\Charge{orderId: order}.
func phpBody(order string) string {
	return string(addSlashes(fmt.Appendf(nil, "O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{"+
		"s:44:\"\x00Symfony\\Component\\Messenger\\Envelope\x00stamps\";a:0:{}"+
		"s:45:\"\x00Symfony\\Component\\Messenger\\Envelope\x00message\";"+
		"O:18:\"App\\Message\\Charge\":1:{s:7:\"orderId\";s:%d:\"%s\";}}", len(order), order)))
}

// entry is the value of a stream entry with an empty header list.
func entry(body string) string {
	return string(SerializerPHP.wrap(fmt.Appendf(nil, `{"body":%s,"headers":[]}`, phpQuote(body))))
}

// phpQuote is json_encode of a string.
func phpQuote(s string) string {
	var b strings.Builder
	for _, r := range string(quote(s)) {
		switch {
		case r == '/':
			b.WriteString(`\/`)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r > 0x7e:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (tr *transport) add(t testing.TB, value string) string {
	t.Helper()
	id, err := tr.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: tr.cfg.Stream, Values: []any{"message", value}}).Result()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failedTable is an SQLite failure transport as Doctrine makes it.
func failedTable(t testing.TB) (*Table, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(10000)")
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec(`CREATE TABLE messenger_messages (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, body CLOB NOT NULL, headers CLOB NOT NULL,
		queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT NULL, available_at DATETIME NOT NULL, delivered_at DATETIME DEFAULT NULL)`)
	ok(t, err)
	table, err := NewTable(db, "sqlite", "messenger_messages", "failed", time.UTC)
	ok(t, err)
	return table, db
}

// recorded is one value that Symfony left in Redis.
type recorded struct {
	Name, Key string
	Fields    map[string][]byte
	Score     string
	Member    []byte
}

func recordings(t testing.TB) map[string][]recorded {
	t.Helper()
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files of recordings, %v", len(files), err)
	}
	all := map[string][]recorded{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		ok(t, err)
		var list []recorded
		ok(t, json.Unmarshal(b, &list))
		all[strings.TrimSuffix(filepath.Base(f), ".json")] = list
	}
	return all
}

func (r recorded) fields() map[string]string {
	fields := map[string]string{}
	for name, value := range r.Fields {
		fields[name] = string(value)
	}
	return fields
}
