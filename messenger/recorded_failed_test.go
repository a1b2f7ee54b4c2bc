package messenger

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"zabor/internal/php"
	"zabor/internal/servers"
	"zabor/worker"
)

// failureTables is what was recorded of one version of Symfony.
type failureTables struct {
	Schemas   map[string]string
	Scenarios []failureScenario
	Texts     [][]byte
}

type failureScenario struct {
	Database, Name string
	States         map[string][]failureRow
	Shown          *struct{ Class, At, Error string } // nil: failed:show threw
}

type failureRow struct {
	ID            int64
	Body, Headers int     // in Texts
	QueueName     string  `json:"queue_name"`
	CreatedAt     string  `json:"created_at"`
	AvailableAt   string  `json:"available_at"`
	DeliveredAt   *string `json:"delivered_at"`
}

func recordedFailures(t *testing.T) map[string]failureTables {
	t.Helper()
	files, err := filepath.Glob("testdata/failed/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files of failure tables, %v", len(files), err)
	}
	all := map[string]failureTables{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		ok(t, err)
		var v failureTables
		ok(t, json.Unmarshal(b, &v))
		if len(v.Scenarios) != 16 {
			t.Fatalf("%s has %d scenarios, want 16", f, len(v.Scenarios))
		}
		all[strings.TrimSuffix(filepath.Base(f), ".json")] = v
	}
	return all
}

// What Symfony left in its failure table is listed, read, retried and forgotten: of
// each version, in its own schema, by both serializers. What PHP's failed:show
// would delete stays.
func TestFailureTablesOfSymfony(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"mysql", "sqlite"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			driver, source := "sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(10000)"
			if database == "mysql" {
				u, err := url.Parse(servers.MariaDB(t))
				ok(t, err)
				driver, source = "mysql", "root@tcp("+u.Host+")"+u.Path+"?charset=utf8mb4"
			}
			db, err := sql.Open(driver, source)
			ok(t, err)
			t.Cleanup(func() { db.Close() })
			tr := open(t, dsn(t, "delete_after_ack=1"))
			for version, recorded := range recordedFailures(t) {
				for i, sc := range recorded.Scenarios {
					if sc.Database != database {
						continue
					}
					for state, rows := range sc.States {
						name := fmt.Sprintf("%s/%s/%s", version, sc.Name, state)
						t.Run(name, func(t *testing.T) {
							table := fmt.Sprintf("t%d_%s_%s", i, strings.NewReplacer("-", "", ".", "").Replace(version), state)
							testRecordedTable(t, tr, db, table, recorded, sc, rows)
						})
					}
				}
			}
		})
	}
}

func testRecordedTable(t *testing.T, tr *transport, db *sql.DB, table string, recorded failureTables, sc failureScenario, rows []failureRow) {
	for statement := range strings.SplitSeq(recorded.Schemas[sc.Database], ";") {
		statement = strings.NewReplacer("messenger_messages", table, "INDEX IDX", "INDEX "+table).Replace(statement)
		_, err := db.Exec(statement)
		ok(t, err)
	}
	var waiting []string // the newest first
	for _, r := range rows {
		_, err := db.Exec("INSERT INTO "+table+" (id, body, headers, queue_name, created_at, available_at, delivered_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			r.ID, string(recorded.Texts[r.Body]), string(recorded.Texts[r.Headers]), r.QueueName, r.CreatedAt, r.AvailableAt, r.DeliveredAt)
		ok(t, err)
		if r.DeliveredAt == nil {
			waiting = append(waiting, strconv.FormatInt(r.ID, 10))
		}
	}
	slices.Reverse(waiting)
	kept, err := NewTable(db, sc.Database, table, "failed", time.UTC)
	ok(t, err)
	tr.failed = kept
	if got := failedIDs(t, tr.Source); !slices.Equal(got, waiting) {
		t.Fatalf("Failed lists %q, want %q", got, waiting)
	}
	left := func() (n int) {
		t.Helper()
		ok(t, db.QueryRow("SELECT COUNT(*) FROM "+table).Scan(&n))
		return n
	}
	for _, r := range rows {
		id := strconv.FormatInt(r.ID, 10)
		body, headers := recorded.Texts[r.Body], recorded.Texts[r.Headers]
		if r.DeliveredAt != nil { // Symfony is done with it, and deletes it later
			if _, err := tr.FailedMessage(t.Context(), id); !errors.Is(err, ErrNotKept) {
				t.Errorf("message %s: %v, want ErrNotKept", id, err)
			}
			for what, err := range map[string]error{"Retry": tr.Retry(t.Context(), id), "Forget": tr.Forget(t.Context(), id)} {
				if !errors.Is(err, ErrNotKept) {
					t.Errorf("%s of message %s: %v, want ErrNotKept", what, id, err)
				}
			}
			continue
		}
		m, err := tr.FailedMessage(t.Context(), id)
		ok(t, err)
		if got := m.At.Format(time.DateTime); got != r.CreatedAt || m.Body != string(body) || m.Headers != string(headers) {
			t.Errorf("message %s of %s is %q %q", id, got, m.Body, m.Headers)
		}
		before := left()
		if sc.Shown == nil {
			if !errors.Is(m.Message.Err, worker.ErrUnreadable) {
				t.Errorf("message %s: %v, want ErrUnreadable", id, m.Message.Err)
			}
			if n := left(); n != before {
				t.Errorf("%d rows after it was looked at, were %d", n, before)
			}
			ok(t, tr.Forget(t.Context(), id))
			if n := left(); n != before-1 {
				t.Errorf("%d rows after it was forgotten, were %d", n, before)
			}
			continue
		}
		if m.Message.Err != nil || m.Message.Class != sc.Shown.Class || m.Reason != sc.Shown.Error {
			t.Errorf("message %s is a %s that failed for %q, %v; failed:show said %+v", id, m.Message.Class, m.Reason, m.Message.Err, *sc.Shown)
		}
		ok(t, tr.Retry(t.Context(), id))
		if n := left(); n != before-1 {
			t.Errorf("%d rows after a retry, were %d", n, before)
		}
		again := tr.next(t)
		e, err := readEnvelope(mustUnwrap(t, again.Raw))
		ok(t, err)
		if e.body != string(body) || !bytes.Equal(e.headersJSON, headers) {
			t.Errorf("message %s came back as\n%q %s, was\n%q %s", id, e.body, e.headersJSON, body, headers)
		}
		if !again.DeliveredBefore && sc.Name != "foreign_php_no_redelivery" && sc.Name != "foreign_php_no_sent" {
			t.Errorf("message %s came back as if nobody had ever had it", id)
		}
		ok(t, tr.Ack(t.Context(), again))
	}
}

func mustUnwrap(t *testing.T, raw []byte) []byte {
	t.Helper()
	text, err := unwrap(raw)
	ok(t, err)
	return text
}

// A message that zabor parks is written as Symfony writes one whose handler failed,
// byte by byte: but for the error, which is zabor's and has no trace, and for what
// each version writes of its own in a RedeliveryStamp.
func TestParkedAsSymfonyParks(t *testing.T) {
	compared := 0
	for version, recorded := range recordedFailures(t) {
		for _, sc := range recorded.Scenarios {
			if !strings.HasPrefix(sc.Name, "failed_") {
				continue
			}
			for _, r := range sc.States["rows"] {
				compared++
				t.Run(version+"/"+sc.Database+"/"+sc.Name, func(t *testing.T) {
					body, headers := string(recorded.Texts[r.Body]), recorded.Texts[r.Headers]
					if sc.Name == "failed_json" {
						sameAsParkedJSON(t, body, headers)
					} else {
						sameAsParkedPHP(t, body)
					}
				})
			}
		}
	}
	if compared != 3*2*2 {
		t.Errorf("compared %d, want 12", compared)
	}
}

// appended are the stamps that a message gets on its way into the failure
// transport.
var appended = []string{errorDetailsStamp, sentToFailureStamp, delayStamp, redeliveryStamp}

func sameAsParkedPHP(t *testing.T, body string) {
	want, err := readDocument(body)
	ok(t, err)
	stampOf := func(class string) *php.Object {
		i := slices.IndexFunc(want.stamps.Items, func(it php.Item) bool { return it.Key == php.String(class) })
		return php.Deref(php.Deref(want.stamps.Items[i].Value).(*php.Array).Items[0].Value).(*php.Object)
	}
	set := func(o *php.Object, property string, v php.Value) {
		for i, it := range o.Items {
			if name, _ := php.Bare(string(it.Key.(php.String))); name == property {
				o.Items[i].Value = v
			}
		}
	}
	details := stampOf(errorDetailsStamp)
	set(details, "exceptionClass", php.String(failureClass))
	set(details, "exceptionCode", php.Int(0))
	set(details, "flattenException", php.Null{})
	redelivered := stampOf(redeliveryStamp)
	redelivered.Items = slices.DeleteFunc(redelivered.Items, func(it php.Item) bool { // written by 5.4 alone, always null
		name, _ := php.Bare(string(it.Key.(php.String)))
		return name == "exceptionMessage" || name == "flattenException"
	})
	slices.SortFunc(redelivered.Items, func(a, b php.Item) int { // retryCount is the first but in 7.x
		return -strings.Compare(string(a.Key.(php.String)), string(b.Key.(php.String)))
	})
	wanted, err := want.body()
	ok(t, err)

	v, _ := redelivered.Prop("redeliveredAt")
	date, _ := v.(*php.Object).Prop("date")
	at, err := time.Parse("2006-01-02 15:04:05.000000", string(date.(php.String)))
	ok(t, err)
	sent, err := readDocument(body)
	ok(t, err)
	sent.stamps.Items = slices.DeleteFunc(sent.stamps.Items, func(it php.Item) bool {
		return slices.Contains(appended, string(it.Key.(php.String)))
	})
	text, err := sent.body()
	ok(t, err)
	parked, err := (&envelope{body: text, headersJSON: []byte("[]")}).parked("async", "boom", nil, at)
	ok(t, err)
	if parked.body != wanted {
		t.Errorf("parked as\n%q, Symfony parks it as\n%q", parked.body, wanted)
	}
}

func sameAsParkedJSON(t *testing.T, body string, recorded []byte) {
	want, err := readHeaders(recorded)
	ok(t, err)
	var at time.Time
	for i, h := range want {
		switch h.name {
		case stampPrefix + errorDetailsStamp:
			want[i] = header{name: h.name, value: `[{"exceptionClass":"zabor\\Parked","exceptionCode":0,"exceptionMessage":"boom","flattenException":null}]`}
		case stampPrefix + redeliveryStamp:
			var list []struct {
				RedeliveredAt time.Time
			}
			ok(t, json.Unmarshal([]byte(h.value), &list))
			at = list[0].RedeliveredAt
			want[i] = header{name: h.name, value: `[{"retryCount":0,"redeliveredAt":"` + at.Format("2006-01-02T15:04:05-07:00") + `"}]`}
		}
	}
	sent := &envelope{body: body}
	for _, h := range want {
		if !slices.Contains(appended, strings.TrimPrefix(h.name, stampPrefix)) {
			sent.headers = append(sent.headers, h)
		}
	}
	parked, err := sent.parked("async", "boom", nil, at)
	ok(t, err)
	if wanted := writeHeaders(want); !bytes.Equal(parked.headersJSON, wanted) || parked.body != body {
		t.Errorf("parked as\n%s %s, Symfony parks it as\n%s %s", parked.body, parked.headersJSON, body, wanted)
	}
}
