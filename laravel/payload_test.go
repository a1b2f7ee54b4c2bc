package laravel

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"zabor/internal/php"
	"zabor/worker"
)

var (
	every       = []string{"v8", "v10", "v11", "v12", "v13"}
	from11      = every[2:]
	withHorizon = []string{"v11"}
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "payloads", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testKey(t testing.TB, letter string) AppKey {
	t.Helper()
	k, err := ParseAppKey("base64:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32))))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// at follows a dotted path into properties.
func at(t testing.TB, data map[string]any, path string) any {
	t.Helper()
	var v any = data
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = in[name]; !ok {
				t.Fatalf("%s: no %q in %v", path, name, in)
			}
		case []any:
			i := int(name[0] - '0')
			v = in[i]
		default:
			t.Fatalf("%s: %q is in a %T", path, name, v)
		}
	}
	return v
}

// order is a ModelIdentifier as a message shows it.
func order(id any) map[string]any {
	return map[string]any{"class": `App\Models\Order`, "id": id, "relations": []any{}, "connection": "mysql"}
}

func TestDecodeRecordedPayloads(t *testing.T) {
	num := func(s string) json.Number { return json.Number(s) }
	for _, tt := range []struct {
		name     string
		versions []string
		class    string
		data     map[string]any // by path
		before   bool
		rewritten,
		again bool
		refused string
	}{
		{name: "plain-pushed", versions: every, class: `App\Jobs\Plain`, data: map[string]any{"orderId": int64(1042)}},
		{name: "model-pushed", versions: every, class: `App\Jobs\CaptureOrder`, data: map[string]any{
			"order.class": `App\Models\Order`, "order.id": int64(1042), "order.connection": "mysql", "amountCents": int64(129900)}},
		{name: "model-pushed", versions: every[:1], class: `App\Jobs\CaptureOrder`, data: map[string]any{"order": order(int64(1042)), "secret": "p"}},
		{name: "model-collection", versions: every, class: `App\Jobs\ManyOrders`, data: map[string]any{"orders.id": []any{int64(7), int64(8)}}},
		{name: "model-without-trait", versions: every, class: `App\Jobs\RawModel`, data: map[string]any{"order.attributes.id": int64(1042)}},
		{name: "php-types", versions: every, class: `App\Jobs\Values`, data: map[string]any{
			"v.big": int64(math.MaxInt64), "v.neg": int64(-7), "v.float": 0.1, "v.floatint": 100.0, "v.exp": 1.5e300, "v.inf": math.Inf(-1),
			"v.true": true, "v.null": nil, "v.utf8": "Zoë 😀", "v.quote": `a"b;}{`, "v.nul": "a\x00b", "v.empty": "",
			"v.list": []any{int64(1), []any{int64(2), []any{}}}, "v.map": map[string]any{"x": int64(1), "5": "five"},
			"v.enum":       php.Enum{Class: `App\Jobs\Status`, Case: "Paid"},
			"v.obj":        map[string]any{"cents": int64(500), "currency": "EUR", "fee": map[string]any{"cents": int64(-3), "currency": "EUR", "fee": nil}},
			"v.same.cents": int64(500),
			"v.date":       map[string]any{"date": "2026-01-15 12:00:00.250000", "timezone_type": int64(3), "timezone": "Europe/Berlin"},
			"v.carbon":     map[string]any{"date": "2026-01-15 12:00:00.000000", "timezone_type": int64(3), "timezone": "UTC"},
			"v.std.a":      map[string]any{}}},
		{name: "second-attempt-reserved", versions: every, class: `App\Jobs\CaptureOrder`, before: true, data: map[string]any{"order.id": int64(1042)}},
		{name: "delayed-then-exception", versions: every, class: `App\Jobs\Values`, before: true, data: map[string]any{"v": []any{int64(1)}}},
		{name: "context", versions: from11, class: `App\Jobs\Plain`, data: map[string]any{"orderId": int64(1)}},
		{name: "encrypted", versions: every, class: `App\Jobs\Secret`, data: map[string]any{"orderId": int64(1042)}},

		{name: "string-array-data", versions: every, class: `App\Jobs\Legacy`, data: map[string]any{
			"order_id": num("1042"), "meta.a": num("1"), "list": []any{num("1"), num("2"), num("3")}}},
		{name: "unicode-pushed", versions: every, class: `App\Jobs\Legacy`, data: map[string]any{
			"name": "Zoë 😀 日本", "slash": `a/b\c`, "ctl": "tab\tnl\n", "sep": "\u2028", "html": `<a href="x">&</a>`, "del": "\x7f"}},
		{name: "unicode-reserved", versions: every, class: `App\Jobs\Legacy`, before: true, rewritten: true, data: map[string]any{
			"name": "Zoë 😀 日本", "slash": `a/b\c`, "ctl": "tab\tnl\n", "sep": "\u2028", "html": `<a href="x">&</a>`, "del": "\x7f"}},
		{name: "edge-values-pushed", versions: every, class: `App\Jobs\Legacy`, data: map[string]any{
			"empty_list": []any{}, "empty_object": map[string]any{}, "int53": num("9007199254740993"), "int64": num("9223372036854775807"),
			"int15": num("123456789012345"), "third": num("0.3333333333333333"), "exp": num("1.0e+25"), "str_num": "0012", "deep": []any{[]any{[]any{}}}}},
		{name: "edge-values-reserved", versions: every, class: `App\Jobs\Legacy`, before: true, rewritten: true, data: map[string]any{
			"empty_list": map[string]any{}, "empty_object": map[string]any{}, "int53": num("9.007199254741e+15"), "int64": num("9.2233720368548e+18"),
			"int15": num("1.2345678901234e+14"), "third": num("0.33333333333333"), "exp": num("1e+25"), "str_num": "0012"}},

		{name: "horizon-pushed", versions: withHorizon, class: `App\Jobs\CaptureOrder`, data: map[string]any{"order.id": int64(1042)}},
		{name: "horizon-pushed-string", versions: withHorizon, class: `App\Jobs\Legacy`, data: map[string]any{"name": "Zoë 😀", "empty": []any{}}},
		{name: "horizon-retry", versions: withHorizon, class: `App\Jobs\Values`, before: true}, // retry_of, with attempts 0
		{name: "horizon-reserved", versions: withHorizon, class: `App\Jobs\CaptureOrder`, before: true},

		{name: "batch", versions: every, class: `App\Jobs\Batched`, refused: "batch"},
		{name: "chained", versions: every, class: `App\Jobs\CaptureOrder`, refused: "chain"},
		{name: "closure", versions: every, class: `Illuminate\Queue\CallQueuedClosure`, refused: "closure"},
		{name: "listener", versions: every, class: `App\Listeners\SendReceipt`, data: map[string]any{"data.0.order.id": int64(1042)}},
	} {
		for _, v := range tt.versions {
			t.Run(v+"-"+tt.name, func(t *testing.T) {
				raw := recorded(t, v+"-"+tt.name)
				m := Decode(raw, []AppKey{testKey(t, "k")})
				if tt.refused != "" {
					if m.Err == nil || errors.Is(m.Err, worker.ErrUnreadable) || !strings.Contains(m.Err.Error(), tt.refused) {
						t.Errorf("Err = %v, want a refusal with %q in it", m.Err, tt.refused)
					}
				} else if m.Err != nil {
					t.Fatalf("Err = %v", m.Err)
				}
				if m.Class != tt.class {
					t.Errorf("Class = %q, want %q", m.Class, tt.class)
				}
				if want := "00000000-0000-4000-8000-"; !strings.HasPrefix(m.ID, want) {
					t.Errorf("ID = %q, want %s…", m.ID, want)
				}
				if m.DeliveredBefore != tt.before || m.Rewritten != tt.rewritten {
					t.Errorf("DeliveredBefore, Rewritten = %v, %v, want %v, %v", m.DeliveredBefore, m.Rewritten, tt.before, tt.rewritten)
				}
				if string(m.Raw) != string(raw) {
					t.Error("Raw is not the payload")
				}
				for path, want := range tt.data {
					if got := at(t, m.Data, path); !reflect.DeepEqual(got, want) {
						t.Errorf("%s = %#v, want %#v", path, got, want)
					}
				}
			})
		}
	}
}

// Since 9.4 a property with its class's default value is not on the wire.
func TestDecodeLeavesOutWhatIsNotThere(t *testing.T) {
	p, err := parse(recorded(t, "v12-batch"))
	if err != nil {
		t.Fatal(err)
	}
	envelope := p.fields["data"].(map[string]any)
	envelope["batchId"] = nil
	envelope["command"] = `O:16:"App\Jobs\Batched":0:{}`
	class, data, _, err := p.command(nil)
	if err != nil || class != `App\Jobs\Batched` || len(data) != 0 {
		t.Fatalf("class %q, data %v, error %v; want no data", class, data, err)
	}
}

func jobPayload(command string) string {
	data, _ := json.Marshal(map[string]any{"commandName": "Job", "command": command})
	return `{"uuid":"u-1","job":"Illuminate\\Queue\\CallQueuedHandler@call","data":` + string(data) + `,"attempts":0}`
}

func identifier(id string) string {
	return `O:3:"Job":1:{s:5:"order";O:45:"Illuminate\Contracts\Database\ModelIdentifier":1:{s:2:"id";` + id + `}}`
}

func TestDecodeModelIDs(t *testing.T) {
	for _, tt := range []struct {
		name, id string
		want     any
	}{
		{"uuid", `s:36:"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";`, "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"},
		{"pivot", `s:21:"user_id:3:role_id:999";`, "user_id:3:role_id:999"},
		{"eighteen digits", `i:123456789012345678;`, int64(123456789012345678)},
	} {
		m := Decode([]byte(jobPayload(identifier(tt.id))), nil)
		if m.Err != nil {
			t.Errorf("%s: %v", tt.name, m.Err)
			continue
		}
		if got := at(t, m.Data, "order.id"); got != tt.want {
			t.Errorf("%s: order.id = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestDecodeUnreadable(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"text", "hello", "not a JSON object"},
		{"empty", "", "not a JSON object"},
		{"list", "[1]", "not a JSON object"},
		{"null", "null", "no field job"},
		{"deleted", "{}", "no field job"},
		{"serialized by phpredis", `s:5:"{\"a\"";`, "not a JSON object"},
		{"no attempts", `{"job":"X","data":[]}`, "number of attempts"},
		{"null attempts", `{"job":"X","data":[],"attempts":null}`, "number of attempts"},
		{"worded attempts", `{"job":"X","data":[],"attempts":"nan"}`, "number of attempts"},
		{"other case", `{"Job":"X","data":[],"attempts":0}`, "no field job"},
		{"two objects", `{"job":"X","attempts":0}{}`, "something follows"},
		{"not UTF-8", "{\"job\":\"X\",\"data\":\"\xff\",\"attempts\":0}", "not UTF-8"},
	} {
		m := Decode([]byte(tt.raw), nil)
		if !errors.Is(m.Err, worker.ErrUnreadable) || !strings.Contains(m.Err.Error(), tt.want) {
			t.Errorf("%s: Err = %v, want unreadable with %q in it", tt.name, m.Err, tt.want)
		}
		if string(m.Raw) != tt.raw || m.ID == "" {
			t.Errorf("%s: Raw %q, ID %q", tt.name, m.Raw, m.ID)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"no command", `{"uuid":"u-1","job":"Illuminate\\Queue\\CallQueuedHandler@call","displayName":"Job","data":[],"attempts":0}`, "no command"},
		{"another class", jobPayload(`O:5:"Other":0:{}`), "PHP would run that one"},
		{"broken", jobPayload(`O:3:"Job":1:{s:1:"a";i:1;`), "cannot be read"},
		{"middleware", jobPayload(`O:3:"Job":1:{s:10:"middleware";a:1:{i:0;O:1:"M":0:{}}}`), "middleware"},
		{"batch named beside the command", strings.Replace(jobPayload(`O:3:"Job":0:{}`), `"data":{`, `"data":{"batchId":"b",`, 1), "batch"},
		{"debounced", jobPayload(`O:3:"Job":1:{s:13:"debounceOwner";s:1:"x";}`), "debounced"},
		{"chain behind protected", jobPayload("O:3:\"Job\":1:{s:10:\"\x00*\x00chained\";a:1:{i:0;s:1:\"x\";}}"), "chain"},
		{"two of a name", jobPayload("O:3:\"Job\":2:{s:4:\"\x00A\x00a\";i:1;s:4:\"\x00B\x00a\";i:2;}"), "two values of the name"},
		{"encrypted", jobPayload("eyJpdiI6"), "APP_KEY"},
	} {
		m := Decode([]byte(tt.raw), nil)
		if m.Err == nil || errors.Is(m.Err, worker.ErrUnreadable) || !strings.Contains(m.Err.Error(), tt.want) {
			t.Errorf("%s: Err = %v, want a refusal with %q in it", tt.name, m.Err, tt.want)
		}
		if m.ID != "u-1" || m.Class != "Job" {
			t.Errorf("%s: ID %q, class %q; want u-1 and Job", tt.name, m.ID, m.Class)
		}
	}
}

func TestDecodeStringJobs(t *testing.T) {
	for _, tt := range []struct {
		raw   string
		class string
		data  map[string]any
	}{
		{`{"job":"App\\Jobs\\Legacy@run","data":"","attempts":0}`, `App\Jobs\Legacy`, map[string]any{}},
		{`{"job":"\\App\\Jobs\\Legacy","data":null,"attempts":0}`, `App\Jobs\Legacy`, map[string]any{}},
		{`{"job":"Legacy@run","data":[7,"x"],"attempts":0}`, "Legacy", map[string]any{"0": json.Number("7"), "1": "x"}},
		{`{"job":"Legacy@run","data":1042,"attempts":"0"}`, "Legacy", map[string]any{"data": json.Number("1042")}},
		{`{"job":"Legacy@run","data":{"Id":1,"id":2,"ID":3},"attempts":0}`, "Legacy", map[string]any{"Id": json.Number("1"), "id": json.Number("2"), "ID": json.Number("3")}},
	} {
		m := Decode([]byte(tt.raw), nil)
		if m.Err != nil || m.Class != tt.class || !reflect.DeepEqual(m.Data, tt.data) {
			t.Errorf("%s: class %q, data %v, error %v; want %q, %v", tt.raw, m.Class, m.Data, m.Err, tt.class, tt.data)
		}
	}
}

func TestCarriedClass(t *testing.T) {
	inner := `O:8:"App\Mine":1:{s:2:"id";i:7;}`
	for _, tt := range []struct{ class, property string }{
		{`Illuminate\Mail\SendQueuedMailable`, "mailable"},
		{`Illuminate\Notifications\SendQueuedNotifications`, "notification"},
		{`Illuminate\Broadcasting\BroadcastEvent`, "event"},
	} {
		o := &php.Object{Class: tt.class}
		v, err := php.Unmarshal([]byte(inner))
		if err != nil {
			t.Fatal(err)
		}
		o.Items = []php.Item{{Key: php.String(tt.property), Value: v}}
		if got, want := carried(o), `App\Mine`; got != want {
			t.Errorf("%s carries %q, want %q", tt.class, got, want)
		}
	}
}

// The id stays the same over Laravel's own pop, which rewrites the payload.
func TestIDOfAPayloadWithoutOne(t *testing.T) {
	pushed := Decode([]byte(`{"job":"Legacy@run","data":{"b":1,"a":"x\/y"},"attempts":0}`), nil)
	popped := Decode([]byte(`{"attempts":1,"data":{"a":"x\/y","b":1},"job":"Legacy@run"}`), nil)
	other := Decode([]byte(`{"job":"Legacy@run","data":{"b":2,"a":"x\/y"},"attempts":0}`), nil)
	if pushed.ID != popped.ID || pushed.ID == other.ID || len(pushed.ID) != 36 {
		t.Fatalf("ids %s, %s, %s; want the first two equal", pushed.ID, popped.ID, other.ID)
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/payloads/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded payloads: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	keys := []AppKey{testKey(f, "k")}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := Decode(raw, keys)
		if m.ID == "" || string(m.Raw) != string(raw) {
			t.Fatalf("ID %q, Raw %q", m.ID, m.Raw)
		}
		if m.Err == nil && m.Data == nil {
			t.Fatal("neither data nor an error")
		}
		if errors.Is(m.Err, worker.ErrUnreadable) {
			return
		}
		// Whatever can be parked can be read again from failed_jobs.
		uuid, text, err := withUUID(m)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := parse([]byte(text)); err != nil || p.text("uuid") != uuid {
			t.Fatalf("payload %q with uuid %q, error %v", text, uuid, err)
		}
	})
}

// The sign goes behind the last member of the payload, whose bytes stay; a payload
// that has one, or is none, stays as it is.
func TestSignOfAPayload(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"job":"X","attempts":0}`:                                        `{"job":"X","attempts":0,"zabor_delivered":true}`,
		"{\"job\":\"X\",\"attempts\":3,\"a\":{\"zabor_delivered\":1} }\n": "{\"job\":\"X\",\"attempts\":3,\"a\":{\"zabor_delivered\":1} ,\"zabor_delivered\":true}\n",
		`{"zabor_delivered":false,"job":"X","attempts":0}`:                `{"zabor_delivered":false,"job":"X","attempts":0}`,
		`{"job":"X"}`: `{"job":"X"}`,
		"hello":       "hello",
	} {
		m := Decode([]byte(raw), nil)
		if got := string(withSign(m)); got != raw {
			t.Errorf("%q became %q without a call", raw, got)
		}
		m.MayHaveActed = true
		got := withSign(m)
		if string(got) != want {
			t.Errorf("%q\nbecame %q\nwant   %q", raw, got, want)
		}
		if m.Err != nil {
			continue
		}
		if after := Decode(got, nil); !after.DeliveredBefore || after.Rewritten != m.Rewritten || after.ID != m.ID {
			t.Errorf("%q: DeliveredBefore=%v, Rewritten=%v, ID %s; was %s", got, after.DeliveredBefore, after.Rewritten, after.ID, m.ID)
		}
	}
}

// A job that goes on to another queue begins there anew.
func TestJobAnew(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"job":"X","attempts":2,"zabor_delivered":true}`:                         `{"job":"X","attempts":0}`,
		`{ "zabor_delivered" : {"a":[1,2]} , "job":"X","attempts":"3"}`:           `{  "job":"X","attempts":"0"}`,
		`{"job":"X", "zabor_delivered":1,"attempts":0,"zabor_delivered":2 }`:      `{"job":"X","attempts":0 }`,
		`{"job":"X","data":{"zabor_delivered":true,"attempts":9},"attempts":1e1}`: `{"job":"X","data":{"zabor_delivered":true,"attempts":9},"attempts":0}`,
	} {
		if got, err := anew([]byte(raw)); err != nil || string(got) != want {
			t.Errorf("%s\nbecame %s, %v\nwant   %s", raw, got, err, want)
		}
	}
}

// A job that Horizon retries has another uuid, and says whose retry it is.
func TestRetryOf(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]string{
		`{"uuid":"b","retry_of":"a","job":"X","attempts":0}`: {"b", "a"},
		`{"uuid":"b","job":"X","attempts":0}`:                {"b", ""},
		`{"uuid":"b","retry_of":7,"job":"X","attempts":0}`:   {"b", ""},
	} {
		if m := Decode([]byte(raw), nil); m.Err != nil || m.ID != want[0] || m.RetryOf != want[1] {
			t.Errorf("%s: ID %q, RetryOf %q, %v", raw, m.ID, m.RetryOf, m.Err)
		}
	}
}
