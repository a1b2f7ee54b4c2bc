package messenger

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"zabor/step"
	"zabor/worker"
)

type object = map[string]any

var (
	hidden = object{"count": int64(3), "open": "yes", "secret": "s3cret"}
	refs   = object{"a": object{"text": "shared"}, "b": object{"text": "shared"}, "c": []any{int64(5), int64(5)}}
	hi     = step.Message{Class: `App\Message\Text`, Data: object{"text": "hi"}}
	x      = step.Message{Class: `App\Message\Text`, Data: object{"text": "x"}}
	xAgain = step.Message{Class: `App\Message\Text`, Data: object{"text": "x"}, DeliveredBefore: true}
)

// wanted are the messages in what Symfony left, by scenario; nil is one that cannot
// be read. A scenario without an entry has the message hi.
var wanted = map[string]*step.Message{
	"interop_json_stamps":             {Class: hi.Class, Data: hi.Data, DeliveredBefore: true},
	"interop_redelivery_legacy":       {Class: hi.Class, Data: hi.Data, DeliveredBefore: true},
	"interop_redelivery_min":          {Class: hi.Class, Data: hi.Data, DeliveredBefore: true},
	"interop_redelivery_string_count": {Class: hi.Class, Data: hi.Data, DeliveredBefore: true},
	"interop_refs_message_first":      {Class: `App\Message\Refs`, Data: refs},
	"interop_refs_original":           {Class: `App\Message\Refs`, Data: refs},
	// What PHP reads too where a stamp was added and the numbers were left.
	"interop_refs_stamp_added_not_renumbered": {Class: `App\Message\Refs`, Data: object{"a": object{"text": "shared"}, "b": object{"delay": int64(7)}, "c": []any{int64(5), "shared"}}},
	"interop_refs_stamp_added_renumbered":     {Class: `App\Message\Refs`, Data: refs},
	"interop_refs_stamps_twice":               {Class: `App\Message\Refs`, Data: refs},
	"json_datetime":                           {Class: `App\Message\Dated`, Data: object{"at": "2024-02-29T13:37:42+01:00", "utc": nil}},
	"json_plain": {Class: `App\Message\Plain`, Data: object{"id": json.Number("7"), "name": "alice", "rate": json.Number("0.1"), "on": true, "none": nil,
		"list": object{"0": json.Number("1"), "k": "v"}}},
	"json_stamps":          &xAgain,
	"json_unicode":         {Class: `App\Message\Text`, Data: object{"text": "zażółć 🐘"}},
	"not_json":             nil,
	"other_field":          nil,
	"php_binary":           {Class: `App\Message\Text`, Data: object{"text": "\x00\xff\xfe\x80bin"}},
	"php_custom_serialize": {Class: `App\Message\Custom`, Data: object{"a": int64(1)}},
	"php_datetime": {Class: `App\Message\Dated`, Data: object{
		"at":  object{"date": "2024-02-29 13:37:42.123456", "timezone": "Europe/Paris", "timezone_type": int64(3)},
		"utc": object{"date": "2024-01-01 00:00:00.000000", "timezone": "+02:00", "timezone_type": int64(1)}}},
	"php_empty": {Class: `App\Message\Text`, Data: object{"text": ""}},
	"php_enum": {Class: `App\Message\Enumed`, Data: object{
		"level": step.Enum{Class: `App\Message\Level`, Case: "High"}, "suit": step.Enum{Class: `App\Message\Suit`, Case: "Hearts"}}},
	"php_latin1": {Class: `App\Message\Text`, Data: object{"text": "caf\xe9"}},
	"php_nested": {Class: `App\Message\Nested`, Data: object{"inner": hidden, "many": []any{hidden, object{"text": "x"}},
		"self": object{"inner": hidden, "many": []any{}, "self": nil}}},
	"php_plain": {Class: `App\Message\Plain`, Data: object{"id": int64(7), "name": "alice", "rate": 0.1, "on": true, "none": nil,
		"list": object{"0": int64(1), "k": "v"}}},
	"php_private":    {Class: `App\Message\Hidden`, Data: hidden},
	"php_quotes":     {Class: `App\Message\Text`, Data: object{"text": "it's \"q\" \\ back\\\\slash \x00nul \r\n\t } end"}},
	"php_refs":       {Class: `App\Message\Refs`, Data: refs},
	"php_refs_retry": {Class: `App\Message\Refs`, Data: refs, DeliveredBefore: true},
	"php_sleep":      {Class: `App\Message\Sleepy`, Data: object{"id": int64(1)}},
	"php_stamps":     &xAgain,
	"php_unicode":    {Class: `App\Message\Text`, Data: object{"text": "zażółć gęślą 🐘 \u2028"}},
}

func TestDecodeWhatSymfonyWrote(t *testing.T) {
	for version, list := range recordings(t) {
		poison := 0
		for _, r := range list {
			want, listed := wanted[r.Name]
			switch {
			case strings.HasPrefix(r.Name, "redis_serializer_") && r.Member != nil:
				want = &step.Message{Class: hi.Class, Data: object{"text": "later"}}
			case strings.HasPrefix(r.Name, "redis_serializer_"):
				want = &x
			case r.Name == "poison_head":
				if poison++; poison == 2 {
					want = &step.Message{Class: hi.Class, Data: object{"text": "good"}}
				}
			case !listed:
				want = &hi
			}
			m := Decode(r.Member)
			if r.Member == nil {
				m = new(Source).message("1-0", r.fields(), "c", 1)
			}
			t.Run(version+"/"+r.Name, func(t *testing.T) {
				if want == nil {
					if !errors.Is(m.Err, worker.ErrUnreadable) || len(m.Raw) == 0 {
						t.Fatalf("Err = %v, %d raw bytes; want ErrUnreadable and the bytes", m.Err, len(m.Raw))
					}
					return
				}
				if m.Err != nil {
					t.Fatal(m.Err)
				}
				if !reflect.DeepEqual(m.Message, *want) {
					t.Errorf("got  %#v\nwant %#v", m.Message, *want)
				}
			})
		}
	}
}

// What was sent by PHP's serializer is written back byte by byte, with every
// wrapper of phpredis.
func TestEncodeWhatSymfonyWrote(t *testing.T) {
	serializers := map[string]Serializer{"redis_serializer_none": SerializerNone, "redis_serializer_igbinary": SerializerIgbinary, "redis_serializer_json": SerializerJSON}
	bodies := 0
	for version, list := range recordings(t) {
		for _, r := range list {
			sent := strings.HasPrefix(r.Name, "php_") || strings.HasPrefix(r.Name, "json_") || strings.HasPrefix(r.Name, "redis_serializer_")
			if !sent || r.Member != nil {
				continue
			}
			serializer, other := serializers[r.Name]
			if !other {
				serializer = SerializerPHP
			}
			raw, e, err := readEntry(r.fields())
			if err != nil {
				t.Errorf("%s/%s: %v", version, r.Name, err)
				continue
			}
			got := serializer.wrap(e.json())
			if serializer == SerializerJSON {
				got = []byte(phpQuote(string(e.json()))) // PHP escapes more than is needed
			}
			if !bytes.Equal(got, raw) {
				t.Errorf("%s/%s: written as\n%q, was\n%q", version, r.Name, got, raw)
			}
			if strings.HasPrefix(r.Name, "json_") {
				continue
			}
			d, err := readDocument(e.body)
			if err != nil {
				t.Errorf("%s/%s: %v", version, r.Name, err)
				continue
			}
			if body, err := d.body(); err != nil || body != e.body {
				t.Errorf("%s/%s: body written as\n%q, %v, was\n%q", version, r.Name, body, err, e.body)
			}
			bodies++
		}
	}
	if bodies < 3*15 {
		t.Errorf("only %d bodies were compared", bodies)
	}
}

func TestUnreadable(t *testing.T) {
	good := phpBody("1")
	bare := string(stripSlashes([]byte(good)))
	headers := func(h string) string { return `,"headers":` + h + `}` }
	for name, raw := range map[string]string{
		"empty":               "",
		"no json":             "hello",
		"wrong length":        `s:5:"{}";`,
		"cut":                 entry(good)[:40],
		"null":                "null",
		"list":                `s:2:"[]";`,
		"body is a number":    `{"body":1,"headers":[]}`,
		"body is null":        `{"body":null,"headers":[]}`,
		"empty body":          `{"body":"","headers":[]}`,
		"body 0":              `{"body":"0","headers":{"type":"App\\Message\\Text"}}`,
		"not slashed":         `{"body":` + phpQuote(bare) + headers("[]"),
		"base64, not slashed": `{"body":"TzoxNjoiQXBwXE1lc3NhZ2VcVGV4dCI6MDp7fQ=="` + headers("[]"),
		"custom serializer":   `{"body":"{\"orderId\":1}"` + headers("[]"),
		"no envelope":         `{"body":"O:3:\\\"Foo\\\":0:{}"` + headers("[]"),
		"json body cut":       `{"body":"{\"orderId\":1"` + headers(`{"type":"App\\Message\\Text"}`),
		"json body null":      `{"body":"null"` + headers(`{"type":"App\\Message\\Text"}`),
		"json body list":      `{"body":"[1]"` + headers(`{"type":"App\\Message\\Text"}`),
		"two json bodies":     `{"body":"{} {}"` + headers(`{"type":"App\\Message\\Text"}`),
		"half a surrogate":    `{"body":"{\"orderId\":\"\\ud800x\"}"` + headers(`{"type":"App\\Message\\Text"}`),
		"half outside":        `{"body":"\ud83dx"` + headers(`{"type":"App\\Message\\Text"}`),
		"not utf-8":           "{\"body\":\"{\\\"orderId\\\":\\\"\xff\\\"}\"" + headers(`{"type":"App\\Message\\Text"}`),
		"headers are a list":  `{"body":"{}"` + headers(`["type"]`),
		"msgpack":             "\xa5hello",
	} {
		if m := Decode([]byte(raw)); !errors.Is(m.Err, worker.ErrUnreadable) || string(m.Raw) != raw {
			t.Errorf("%s: Err = %v, Raw = %q, want ErrUnreadable and the bytes", name, m.Err, m.Raw)
		}
	}
	if m := Decode([]byte(entry(good))); m.Err != nil {
		t.Errorf("the good one: %v", m.Err)
	}
}

// PHP can read these, zabor cannot: they are parked, not kept aside as bytes.
func TestReadableByPHPOnly(t *testing.T) {
	twice := "O:36:\"Symfony\\Component\\Messenger\\Envelope\":1:{s:45:\"\x00Symfony\\Component\\Messenger\\Envelope\x00message\";" +
		"O:1:\"B\":2:{s:4:\"\x00A\x00o\";i:1;s:4:\"\x00B\x00o\";i:2;}}"
	for name, raw := range map[string]string{
		"xml":                                  `{"body":"<a/>","headers":{"type":"App\\Message\\Text","Content-Type":"application/xml"}}`,
		"private property of class and parent": entry(string(addSlashes([]byte(twice)))),
	} {
		m := Decode([]byte(raw))
		if m.Err == nil || errors.Is(m.Err, worker.ErrUnreadable) || m.Class == "" {
			t.Errorf("%s: Class %q, Err = %v, want a class and an error that is not ErrUnreadable", name, m.Class, m.Err)
		}
	}
}

// A JSON number keeps its digits, and a header its JSON.
func TestNumbersStayAsWritten(t *testing.T) {
	m := Decode([]byte(`{"body":"{\"id\":12345678901234567890,\"sum\":19.90}","headers":{"type":"\\App\\Pay","n":1}}`))
	want := object{"id": json.Number("12345678901234567890"), "sum": json.Number("19.90")}
	if m.Err != nil || m.Class != `App\Pay` || !reflect.DeepEqual(m.Data, want) {
		t.Errorf("got %q %#v, %v; want App\\Pay %#v", m.Class, m.Data, m.Err, want)
	}
	headers, err := readHeaders([]byte(`{"b":"1","a":{"x":[1.50]},"b2":"\u00e9\/"}`))
	if got, want := string(writeHeaders(headers)), `{"b":"1","a":{"x":[1.50]},"b2":"\u00e9\/"}`; err != nil || got != want {
		t.Errorf("headers written as %s, %v, want %s", got, err, want)
	}
}

// An entry with fields of its own, as Symfony 8.2 reads it.
func TestRawFields(t *testing.T) {
	m := new(Source).message("1-0", map[string]string{"body": `{"orderId":"1"}`, "headers": `{"type":"App\\Pay"}`}, "c", 1)
	if m.Err != nil || m.Class != `App\Pay` || m.Data["orderId"] != "1" {
		t.Fatalf("got %q %v, %v", m.Class, m.Data, m.Err)
	}
	if again := Decode(m.Raw); again.Err != nil || again.Data["orderId"] != "1" {
		t.Errorf("Raw %s read again: %v, %v", m.Raw, again.Data, again.Err)
	}
	m = new(Source).message("1-0", map[string]string{"other": "\xff"}, "c", 1)
	if got, want := string(m.Raw), `{"other":{"base64":"/w=="}}`; !errors.Is(m.Err, worker.ErrUnreadable) || got != want {
		t.Errorf("Raw = %s, Err = %v, want %s and ErrUnreadable", got, m.Err, want)
	}
	for _, fields := range []map[string]string{
		{"body": "{}", "headers": `{"type":"A"} x`},
		{"body": "{}", "headers": `nope`},
		{"headers": `{"type":"A"}`},
	} {
		if m := new(Source).message("1-0", fields, "c", 1); !errors.Is(m.Err, worker.ErrUnreadable) {
			t.Errorf("%v: Err = %v, want ErrUnreadable", fields, m.Err)
		}
	}
}

func TestDeliveryCounter(t *testing.T) {
	fields := map[string]string{"message": entry(phpBody("1")), "zabor": "17-3"}
	if m := new(Source).message("99-0", fields, "c", 2); !m.DeliveredBefore || m.ID != "17-3" {
		t.Errorf("DeliveredBefore=%v, ID=%s, want true and the first entry's id", m.DeliveredBefore, m.ID)
	}
	fields["zabor"] = "17-3; DROP"
	if m := new(Source).message("99-0", fields, "c", 1); m.DeliveredBefore || m.ID != "99-0" {
		t.Errorf("DeliveredBefore=%v, ID=%s, want false and 99-0", m.DeliveredBefore, m.ID)
	}
}

// Whatever is on the stream: no panic, and what can be decoded can be parked, and
// is the same message then.
func FuzzDecode(f *testing.F) {
	for _, list := range recordings(f) {
		for _, r := range list {
			for _, value := range r.Fields {
				f.Add(value)
			}
			if r.Member != nil {
				f.Add(r.Member)
			}
		}
	}
	f.Add([]byte(`{"body":"{}","headers":{"type":"A","Body-Sign":"v2:00"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := Decode(raw)
		if m.Err != nil {
			return
		}
		text, err := unwrap(raw)
		ok(t, err)
		e, err := readEnvelope(text)
		ok(t, err)
		for _, s := range []Serializer{SerializerNone, SerializerPHP, SerializerIgbinary, SerializerJSON} {
			if text[0] != '{' {
				break // PHP's JSON may start with a blank, no other writes one
			}
			if back, err := unwrap(s.wrap(e.json())); err != nil || !bytes.Equal(back, e.json()) {
				t.Fatalf("wrapper %d: %q, %v", s, back, err)
			}
		}
		p, err := e.parked("async", "why", nil, parkedAt)
		if err != nil {
			if errors.Is(err, worker.ErrUnreadable) {
				return // a stamp header that is no list
			}
			t.Fatal(err)
		}
		again := Decode(p.json())
		if again.Err != nil || again.Class != m.Class || !sameData(again.Data, m.Data) {
			t.Fatalf("parked %q as %q: %v", text, p.json(), again.Err)
		}
	})
}

// sameData is reflect.DeepEqual with NAN equal to itself.
func sameData(a, b any) bool {
	fa, okA := a.(float64)
	fb, okB := b.(float64)
	if okA && okB {
		return fa == fb || fa != fa && fb != fb
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k := range a {
			if !sameData(a[k], b[k]) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameData(a[i], b[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// The sign goes behind whatever headers there are, whose bytes stay.
func TestSignOfAMessage(t *testing.T) {
	t.Parallel()
	for was, want := range map[string]string{
		`[]`:                             `{"Zabor-Delivered":"1"}`,
		` [ ] `:                          `{"Zabor-Delivered":"1"}`,
		`{}`:                             `{"Zabor-Delivered":"1"}`,
		`null`:                           `{"Zabor-Delivered":"1"}`,
		`{"h":"a\/b", "n":{"x":[1.0]} }`: `{"h":"a\/b", "n":{"x":[1.0]} ,"Zabor-Delivered":"1"}`,
		`{"Zabor-Delivered":"1"}`:        `{"Zabor-Delivered":"1"}`,
		`{"Zabor-Delivered":""}`:         `{"Zabor-Delivered":""}`,
	} {
		e, err := readEnvelope([]byte(`{"body":"x","headers":` + was + `}`))
		ok(t, err)
		d := e.delivered()
		if string(d.headersJSON) != want || !d.deliveredBefore() {
			t.Errorf("headers %s became %s, want %s", was, d.headersJSON, want)
		}
		again, err := readEnvelope(d.json())
		ok(t, err)
		if string(again.delivered().headersJSON) != want {
			t.Errorf("headers %s became %s the second time, want %s", was, again.delivered().headersJSON, want)
		}
	}
}
