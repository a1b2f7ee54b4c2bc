package step

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zabor"
	"zabor/provider"
)

// effect is the effect of m, which must be one.
func effect(t testing.TB, s *Step, m Message) zabor.Effect {
	t.Helper()
	e, err := s.Effect(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func fingerprinted(t testing.TB) *Step {
	return newStep(t, func(s *Spec) {
		s.Currency = "currency"
		s.Provider = "{{.provider}}"
		s.Providers = map[string]Provider{"a": {Account: "main", Timeout: 1}, "b": {Account: "main", Timeout: 1}}
		s.Defaults = map[string]any{"provider": "a"}
		s.Request = provider.RequestSpec{Path: "/pay/{{.customer}}", JSON: map[string]any{
			"a": "{{minor}}", "c": "{{currency}}", "key": "{{provider_key}}", "lines": "{{.lines}}", "note": `{{default "none" .note}}`,
		}}
	})
}

func wire() map[string]any {
	return map[string]any{
		"orderId": int64(7), "cents": json.Number("1999"), "currency": "EUR", "customer": json.Number("12"),
		"lines": []any{map[string]any{"sku": "a", "n": json.Number("2"), "tax": json.Number("0.33")}, []any{}},
	}
}

func TestTheSameMessageHasTheSameFingerprints(t *testing.T) {
	s := fingerprinted(t)
	want := effect(t, s, Message{Data: wire()})
	for name, change := range map[string]func(map[string]any){
		"again":                            func(map[string]any) {},
		"Laravel's queue options":          func(d map[string]any) { d["queue"], d["delay"], d["chained"] = "high", int64(3), []any{} },
		"a property more that is null":     func(d map[string]any) { d["note"] = nil },
		"the default said":                 func(d map[string]any) { d["provider"] = "a" },
		"the order as text":                func(d map[string]any) { d["orderId"] = "7" },
		"the order as a number of JSON":    func(d map[string]any) { d["orderId"] = json.Number("7") },
		"numbers from PHP's serialization": func(d map[string]any) { d["cents"], d["customer"] = int64(1999), int64(12) },
		"minor units as text":              func(d map[string]any) { d["cents"] = "1999" },
		"cjson's empty object":             func(d map[string]any) { d["lines"].([]any)[1] = map[string]any{} },
	} {
		data := wire()
		change(data)
		got := effect(t, s, Message{Data: data, DeliveredBefore: true, Rewritten: true})
		if got.Fingerprint.Message != want.Fingerprint.Message {
			t.Errorf("%s: another fingerprint of the message", name)
		}
		if name != "cjson's empty object" && got.Fingerprint.Request != want.Fingerprint.Request {
			t.Errorf("%s: another fingerprint of the request", name)
		}
	}
}

func TestAnotherRequestHasAnotherFingerprint(t *testing.T) {
	s := fingerprinted(t)
	want := effect(t, s, Message{Data: wire()})
	for name, change := range map[string]func(map[string]any){
		"amount":          func(d map[string]any) { d["cents"] = json.Number("2000") },
		"currency":        func(d map[string]any) { d["currency"] = "USD" },
		"payee":           func(d map[string]any) { d["customer"] = json.Number("13") },
		"provider":        func(d map[string]any) { d["provider"] = "b" },
		"deep in a list":  func(d map[string]any) { d["lines"].([]any)[0].(map[string]any)["n"] = json.Number("3") },
		"one more line":   func(d map[string]any) { d["lines"] = append(d["lines"].([]any), "x") },
		"a property more": func(d map[string]any) { d["note"] = "n" },
		"null to text":    func(d map[string]any) { d["lines"].([]any)[1] = "null" },
	} {
		data := wire()
		change(data)
		got := effect(t, s, Message{Data: data})
		if got.Fingerprint.Message == want.Fingerprint.Message {
			t.Errorf("%s: the same fingerprint of the message", name)
		}
		if got.Fingerprint.Request == want.Fingerprint.Request {
			t.Errorf("%s: the same fingerprint of the request", name)
		}
	}
	other := newStep(t, nil)
	other.spec.Providers = map[string]Provider{"acquirer": {Account: "other", Timeout: 1}}
	a := effect(t, newStep(t, nil), Message{Data: wire()})
	b := effect(t, other, Message{Data: wire()})
	if a.Fingerprint.Request == b.Fingerprint.Request || a.Fingerprint.Message != b.Fingerprint.Message {
		t.Error("another account is another request of the same message")
	}
}

// A deploy that changes what the request is made of must not make another
// request of a message that is delivered again after it.
func TestADeployKeepsTheFingerprintOfAMessage(t *testing.T) {
	data := map[string]any{"orderId": int64(7), "cents": int64(1999), "customer": "c", "status": Enum{Class: "Status", Case: "New"}}
	want := effect(t, newStep(t, nil), Message{Data: data})
	for name, change := range map[string]func(*Spec){
		"a property more in the request": func(s *Spec) { s.Request.JSON = map[string]any{"customer": "{{.customer}}"} },
		"none in the request":            func(s *Spec) { s.Request = provider.RequestSpec{Path: "/pay"} },
		"another path":                   func(s *Spec) { s.Request.Path = "/v2/pay" },
		"two steps": func(s *Spec) {
			s.Prepare, s.Request.Path = &provider.RequestSpec{Path: "/new"}, "/pay/{{prepared}}"
		},
		"a default": func(s *Spec) { s.Defaults = map[string]any{"locale": "en"} },
		"an enum's value": func(s *Spec) {
			s.Enums = map[string]map[string]string{"Status": {"New": "n"}}
			s.Request.JSON = map[string]any{"status": "{{.status}}"}
		},
		"another provider": func(s *Spec) { s.Provider, s.Providers = "other", map[string]Provider{"other": {Timeout: 1}} },
		"hooks": func(s *Spec) {
			s.Hooks = map[zabor.State]Hook{zabor.Settled: {SQL: "DELETE FROM carts WHERE customer = :customer"}}
		},
		"the amount in cents, as text": func(s *Spec) { s.Amount, s.Currency = "cents", "USD" },
	} {
		got := effect(t, newStep(t, change), Message{Data: data})
		if got.Fingerprint.Message != want.Fingerprint.Message {
			t.Errorf("%s: another fingerprint of the message", name)
		}
		if name != "hooks" && name != "a default" && got.Fingerprint.Request == want.Fingerprint.Request {
			t.Errorf("%s: the same fingerprint of the request", name)
		}
	}
	data["customer"] = "d" // named by no template
	if got := effect(t, newStep(t, nil), Message{Data: data}); got.Fingerprint.Message == want.Fingerprint.Message || got.Fingerprint.Request != want.Fingerprint.Request {
		t.Error("another customer in the message is the same message, or another request although nobody sends it")
	}
}

// What is volatile is sent, and tells no request from another
// (Adyen/adyen-commercetools#1305).
func TestVolatile(t *testing.T) {
	changed := func(volatile []string, change func(map[string]any)) (message, request bool) {
		t.Helper()
		s := newStep(t, func(s *Spec) {
			s.Prepare = &provider.RequestSpec{Path: "/new", Form: map[string]string{"nonce": "{{.at}}", "ip": "{{.client.ip}}"}}
			s.Request = provider.RequestSpec{Path: "/pay/{{prepared}}?trace={{.trace}}", JSON: map[string]any{
				"nonce": "{{.at}}", "who": map[string]any{"ip": "{{.client.ip}}", "name": "{{.client.name}}"},
			}}
			s.Volatile = volatile
		})
		data := func() map[string]any {
			return map[string]any{
				"orderId": "7", "cents": int64(1), "at": "noon", "trace": "t", "unused": "u", "client": map[string]any{"ip": "::1", "name": "n"},
			}
		}
		was := effect(t, s, Message{Data: data()})
		now := data()
		change(now)
		is := effect(t, s, Message{Data: now})
		frozen, err := is.Render(zabor.ProviderKeys{Request: "k"}, "p")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := provider.Thaw(frozen); err != nil || !strings.Contains(string(r.Body), fmt.Sprintf(`"nonce":%q`, now["at"])) {
			t.Errorf("%q: the body is %s, %v, without the nonce", volatile, r.Body, err)
		}
		return was.Fingerprint.Message != is.Fingerprint.Message, was.Fingerprint.Request != is.Fingerprint.Request
	}
	at := func(d map[string]any) { d["at"] = "night" }
	trace := func(d map[string]any) { d["trace"] = "u" }
	unused := func(d map[string]any) { d["unused"] = "v" }
	name := func(d map[string]any) { d["client"].(map[string]any)["name"] = "m" }
	ip := func(d map[string]any) { d["client"].(map[string]any)["ip"] = "::2" }
	for _, test := range []struct {
		name             string
		volatile         []string
		change           func(map[string]any)
		message, request bool
	}{
		{"nothing is", nil, at, true, true},
		{"a field of both bodies", []string{"nonce"}, at, false, false},
		{"another field", []string{"nonce"}, name, true, true},
		{"a field of the query", []string{"trace"}, trace, false, false},
		{"a property that nobody sends", nil, unused, true, false},
		{"which is volatile", []string{".unused"}, unused, false, false},
		{"a property alone does not take its field along", []string{".at"}, at, false, true},
		{"a whole field with what is in it", []string{"who", "ip"}, name, false, false},
		{"a property within a property", []string{".client.ip"}, name, true, true},
		{"which itself is volatile", []string{".client.ip", "ip", "who"}, ip, false, false},
		{"a property that a fixed field is made of too", []string{"ip"}, ip, true, true},
	} {
		message, request := changed(test.volatile, test.change)
		if message != test.message || request != test.request {
			t.Errorf("%s: another message %v, another request %v, want %v, %v", test.name, message, request, test.message, test.request)
		}
	}
}

// A property that chooses the provider, or that Load looks for, always counts.
func TestVolatileFieldsDoNotTakeAlongWhatElseIsMadeOfThem(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Provider, s.Providers = "{{.who}}", map[string]Provider{"a": {Timeout: 1}, "b": {Timeout: 1}}
		s.Request.JSON = map[string]any{"note": "{{.who}} {{.table}}"}
		s.Load, s.Dialect = "SELECT 1 AS one WHERE :table = :table", SQLite
		s.Volatile = []string{"note"}
	})
	s.selects = nil // there is no database here
	data := map[string]any{"orderId": "7", "cents": int64(1), "who": "a", "table": "t"}
	was := effect(t, s, Message{Data: data}).Fingerprint.Message
	for name, value := range map[string]string{"who": "b", "table": "u"} {
		changed := maps.Clone(data)
		changed[name] = value
		if effect(t, s, Message{Data: changed}).Fingerprint.Message == was {
			t.Errorf("another %s is the same message", name)
		}
	}
}

func TestVolatileRefuses(t *testing.T) {
	for name, says := range map[string]string{
		"nonse":      `no body and no query has the field "nonse"`,
		".cents":     ".cents: the key or the money is made of it",
		".orderId":   ".orderId: the key or the money is made of it",
		".orderId.x": ".orderId.x: the key or the money is made of it",
		".":          "it is empty",
		".a b":       "is not the path of a property",
	} {
		spec := newStep(t, nil).spec
		spec.Volatile = []string{name}
		if _, err := New(spec); err == nil || !strings.Contains(err.Error(), "volatile: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want %q", name, err, says)
		}
	}
}

// The fields name what differs, in what is sent and in the message.
func TestFields(t *testing.T) {
	step := func(change func(*Spec)) *Step {
		return newStep(t, func(s *Spec) {
			s.Prepare = &provider.RequestSpec{Path: "/new", Form: map[string]string{"amount": "{{minor}}", "note": "{{.note}}"}}
			s.Request = provider.RequestSpec{Path: "/pay/{{prepared}}?a={{.a}}", JSON: map[string]any{"b": "{{.b}}", "key": "{{provider_key}}"}}
			if change != nil {
				change(s)
			}
		})
	}
	data := func() map[string]any {
		return map[string]any{"orderId": "7", "cents": int64(1), "a": "a", "b": []any{"b"}, "note": "n", "other": "o"}
	}
	names := func(e zabor.Effect) map[string]string {
		t.Helper()
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(e.Fingerprint.Fields), &got); err != nil {
			t.Fatalf("%s: %v", e.Fingerprint.Fields, err)
		}
		return got
	}
	was := names(effect(t, step(nil), Message{Data: data()}))
	want := []string{
		"account", "amount", "body.b", "body.key", "currency", "message.a", "message.b", "message.cents", "message.note",
		"message.other", "method", "path", "prepare.body.amount", "prepare.body.note", "prepare.method", "prepare.path", "prepare.type", "provider", "query.a", "type",
	}
	if got := slices.Sorted(maps.Keys(was)); !slices.Equal(got, want) {
		t.Fatalf("fields %q\nwant %q", got, want)
	}
	for name, test := range map[string]struct {
		spec   func(*Spec)
		data   func(map[string]any)
		differ string
	}{
		"nothing":        {differ: ""},
		"a in the query": {data: func(d map[string]any) { d["a"] = "c" }, differ: "message.a query.a"},
		"b in the body":  {data: func(d map[string]any) { d["b"] = []any{"c"} }, differ: "body.b message.b"},
		"the note":       {data: func(d map[string]any) { d["note"] = "c" }, differ: "message.note prepare.body.note"},
		"the amount":     {data: func(d map[string]any) { d["cents"] = int64(2) }, differ: "amount message.cents prepare.body.amount"},
		"an unsent one":  {data: func(d map[string]any) { d["other"] = "c" }, differ: "message.other"},
		"the path":       {spec: func(s *Spec) { s.Request.Path = "/p/{{prepared}}?a={{.a}}" }, differ: "path"},
		"the account":    {spec: func(s *Spec) { s.Providers = map[string]Provider{"acquirer": {Account: "x", Timeout: 1}} }, differ: "account"},
	} {
		d := data()
		if test.data != nil {
			test.data(d)
		}
		is := names(effect(t, step(test.spec), Message{Data: d}))
		var differ []string
		for field := range is {
			if was[field] != is[field] {
				differ = append(differ, field)
			}
		}
		slices.Sort(differ)
		if got := strings.Join(differ, " "); got != test.differ || len(is) != len(was) {
			t.Errorf("%s: %q differ, want %q", name, got, test.differ)
		}
	}
	// However much there is, it fits.
	many := data()
	for i := range 500 {
		many[fmt.Sprintf("property <%d>", i)] = i
	}
	wide := effect(t, step(nil), Message{Data: many})
	got := names(wide)
	if got["others"] == "" || len(wide.Fingerprint.Fields) < 3500 {
		t.Errorf("%d bytes, others %q", len(wide.Fingerprint.Fields), got["others"])
	}
	many["property <499>"] = "changed"
	if changed := names(effect(t, step(nil), Message{Data: many})); changed["others"] == got["others"] {
		t.Error("a field that has no room is no part of the others")
	}
}

// Both requests of a two-step call: what is sent, and what counts.
func TestPrepare(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Prepare = &provider.RequestSpec{Path: "/intents", Form: map[string]string{"amount": "{{minor}}", "ref": "{{provider_key}}"}}
		s.Request = provider.RequestSpec{Path: "/intents/{{prepared}}/confirm", Form: map[string]string{"key": "{{provider_key}}"}}
	})
	m := Message{Data: map[string]any{"orderId": "7", "cents": int64(1999)}}
	e := effect(t, s, m)
	keys := zabor.ProviderKeys{Request: "the-request's", Prepare: "the-first's"}
	for _, test := range []struct {
		freeze     func() ([]byte, error)
		path, body string
	}{
		{func() ([]byte, error) { return e.Prepare(keys) }, "/intents", "amount=1999&ref=the-request%27s"},
		{func() ([]byte, error) { return e.Render(keys, "pi/1") }, "/intents/pi%2F1/confirm", "key=the-request%27s"},
	} {
		frozen, err := test.freeze()
		if err != nil {
			t.Fatal(err)
		}
		r, err := provider.Thaw(frozen)
		if err != nil || r.Path != test.path || string(r.Body) != test.body {
			t.Errorf("%s with %s, %v; want %s with %s", r.Path, r.Body, err, test.path, test.body)
		}
	}
	if _, err := e.Render(keys, ""); err == nil || !strings.Contains(err.Error(), "prepared is missing") {
		t.Errorf("without an id: error %v", err)
	}
	if e := effect(t, newStep(t, nil), m); e.Prepare != nil {
		t.Error("a step of one request prepares something")
	}
	dearer := effect(t, newStep(t, func(spec *Spec) {
		*spec = s.spec
		spec.Prepare = &provider.RequestSpec{Path: "/intents", Form: map[string]string{"amount": "{{minor}}", "fee": "1"}}
	}), m)
	if dearer.Fingerprint.Request == e.Fingerprint.Request {
		t.Error("what is prepared is no part of the request")
	}
	for name, test := range map[string]struct {
		prepare *provider.RequestSpec
		request string
		says    string
	}{
		"nothing to confirm":      {nil, "/x/{{prepared}}", "prepare: it is missing"},
		"nothing is confirmed":    {&provider.RequestSpec{Path: "/new"}, "/x", "prepare: the request after it does not confirm the id"},
		"confirmed before it is":  {&provider.RequestSpec{Path: "/new/{{prepared}}"}, "/x/{{prepared}}", "prepare: {{prepared}} is the id that this request gets"},
		"a template that is none": {&provider.RequestSpec{Path: "/new/{{"}, "/x/{{prepared}}", "prepare: path"},
	} {
		spec := s.spec
		spec.Prepare, spec.Request = test.prepare, provider.RequestSpec{Path: test.request}
		if _, err := New(spec); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v, want %q", name, err, test.says)
		}
	}
}

func TestEnums(t *testing.T) {
	currency := func(name string) Enum { return Enum{Class: `App\Enum\Currency`, Case: name} }
	const unmapped = `the case Dollar of enum App\Enum\Currency, whose value is not in the message (write enums: {'App\Enum\Currency': {Dollar: …}} with what it is worth)`
	for _, test := range []struct {
		name   string
		change func(*Spec)
		data   map[string]any
		says   string // empty: taken
	}{
		{name: "a currency", data: map[string]any{"currency": currency("Euro")}},
		{name: "an unmapped currency", data: map[string]any{"currency": currency("Dollar")}, says: "currency currency: it is " + unmapped},
		{name: "an order", data: map[string]any{"orderId": currency("Euro")}},
		{name: "an unmapped order", data: map[string]any{"orderId": currency("Dollar")}, says: "order orderId: it is " + unmapped},
		{name: "in a list in the request", data: map[string]any{"list": []any{currency("Euro")}}},
		{name: "an unmapped one there", data: map[string]any{"list": []any{currency("Dollar")}}, says: "list is " + unmapped},
		{name: "an unmapped one that nobody uses", data: map[string]any{"unused": currency("Dollar")}},
		{name: "a mapped hook's", data: map[string]any{"told": currency("Euro")}},
		{name: "an unmapped hook's", data: map[string]any{"told": currency("Dollar")}, says: "a hook's parameter told: it is " + unmapped},
	} {
		s := newStep(t, func(s *Spec) {
			s.Currency = "currency"
			s.Enums = map[string]map[string]string{`App\Enum\Currency`: {"Euro": "EUR"}}
			s.Request.JSON = map[string]any{"list": "{{.list}}"}
			s.Hooks = map[zabor.State]Hook{zabor.Settled: {SQL: "DELETE FROM t WHERE a = :told"}}
		})
		data := map[string]any{"orderId": "7", "cents": int64(1), "currency": "EUR", "list": []any{}, "told": "x"}
		maps.Copy(data, test.data)
		e, err := s.Effect(t.Context(), Message{Data: data})
		switch {
		case test.says != "":
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: error %v\nwant %q", test.name, err, test.says)
			}
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		case e.Amount.Currency != "EUR":
			t.Errorf("%s: amount %v", test.name, e.Amount)
		}
		if test.name == "an order" && e.Key.Order != "EUR" {
			t.Errorf("%s: key %v", test.name, e.Key)
		}
	}
}

// What the provider is not told counts too: the money, and every column that
// was loaded.
func TestFingerprintCoversMoneyAndLoadedRow(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Request = provider.RequestSpec{Path: "/pay", Form: map[string]string{"order": "{{order}}"}}
	})
	key := zabor.Key{Order: "7", Step: "charge"}
	seen := map[string]string{}
	for name, test := range map[string]struct {
		amount zabor.Money
		row    map[string]any
	}{
		"as it is":       {zabor.Money{Minor: 1999, Currency: "EUR"}, map[string]any{"state": "new"}},
		"another amount": {zabor.Money{Minor: 2000, Currency: "EUR"}, map[string]any{"state": "new"}},
		"in dollars":     {zabor.Money{Minor: 1999, Currency: "USD"}, map[string]any{"state": "new"}},
		"another row":    {zabor.Money{Minor: 1999, Currency: "EUR"}, map[string]any{"state": "paid"}},
		"another column": {zabor.Money{Minor: 1999, Currency: "EUR"}, map[string]any{"status": "new"}},
		"no row":         {zabor.Money{Minor: 1999, Currency: "EUR"}, nil},
	} {
		parts, _, err := s.requestParts(zabor.Effect{Key: key, Amount: test.amount}, provider.Vars{Order: "7"}, test.row)
		if err != nil {
			t.Fatal(err)
		}
		got := sum("test", parts)
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[got] = name
	}
}

// The key is compared by itself, byte for byte: a number of JSON that is too long
// for cjson is still the text with the same digits.
func TestTheKeyIsNoPartOfTheFingerprint(t *testing.T) {
	s := newStep(t, func(s *Spec) { s.Order, s.Scope, s.Part = "order.id", "tenant", "no" })
	model := func(id any, relations []any) map[string]any {
		return map[string]any{"class": "Order", "id": id, "connection": "mysql", "relations": relations}
	}
	want := effect(t, s, Message{Data: map[string]any{
		"order": model("9223372036854775807", nil), "tenant": "7", "no": "123456789012345", "cents": int64(1),
	}})
	got := effect(t, s, Message{Data: map[string]any{
		"order": model(json.Number("9223372036854775807"), []any{"lines"}), "tenant": int64(7), "no": json.Number("123456789012345"), "cents": int64(1),
	}})
	if got.Key != want.Key || got.Fingerprint.Message != want.Fingerprint.Message || got.Fingerprint.Request != want.Fingerprint.Request {
		t.Errorf("one message is two: %s and %s, %s and %s", got.Key, want.Key, got.Fingerprint.Fields, want.Fingerprint.Fields)
	}
}

// The canonical form of the cases in which a message comes back otherwise than
// it was sent, and of those that must not be confused.
func TestCanonicalValues(t *testing.T) {
	sum := func(v any) string { d := newDigest("test"); d.value(v); return d.sum() }
	for _, same := range [][]any{
		{json.Number("0.3333333333333333"), json.Number("0.33333333333333")}, // cjson's 14 digits
		{json.Number("123456789012345"), json.Number("1.2345678901234e+14")},
		{json.Number("9007199254740993"), json.Number("9.007199254741e+15")},
		{json.Number("9223372036854775807"), json.Number("9.2233720368548e+18")},
		{json.Number("1.0e+25"), json.Number("1e+25")},
		{json.Number("20.0"), json.Number("20"), int64(20), "20", 20.0},
		{json.Number("-0"), json.Number("0"), int64(0)},
		{[]any{}, map[string]any{}},
		{[]any{[]any{[]any{}}}, []any{[]any{map[string]any{}}}},
		{map[string]any{"a": int64(1), "b": "x"}, map[string]any{"b": "x", "a": json.Number("1")}},
		{ // one model, in Laravel 8 and 12, with and without what was loaded beside it
			map[string]any{"class": "Order", "id": int64(7), "connection": "mysql", "relations": []any{}},
			map[string]any{"class": "Order", "id": "7", "connection": "mysql", "relations": []any{"lines"}, "collectionClass": nil},
		},
	} {
		for _, v := range same[1:] {
			if sum(v) != sum(same[0]) {
				t.Errorf("%#v and %#v are two", same[0], v)
			}
		}
	}
	different := []any{
		nil, "null", "", false, true, "false", int64(0), int64(1), "01", "1.0", json.Number("1.5"), 1.25,
		[]any{}, []any{nil}, []any{int64(1)}, []any{"1", "2"}, []any{"12"}, []any{[]any{"1"}, "2"}, []any{[]any{"1", "2"}},
		map[string]any{"class": "Order", "id": int64(7), "connection": "mysql", "relations": []any{}},
		map[string]any{"class": "Order", "id": int64(7), "connection": "tenant", "relations": []any{}},
		map[string]any{"class": "Order", "id": int64(8), "connection": "mysql", "relations": []any{}},
		map[string]any{"class": "User", "id": int64(7), "connection": "mysql", "relations": []any{}},
		map[string]any{"class": "Order", "id": int64(7), "connection": "mysql"},
		map[string]any{"class": "Order", "id": int64(7), "connection": "mysql", "relations": []any{}, "amount": int64(1)},
		map[string]any{"a": nil}, map[string]any{"a": "b"}, map[string]any{"a": "b", "c": "d"},
		Enum{Class: "A", Case: "B"}, Enum{Class: "A", Case: "C"}, "A", "\x00",
	}
	for i, a := range different {
		for _, b := range different[:i] {
			if sum(a) == sum(b) {
				t.Errorf("%#v and %#v are one", a, b)
			}
		}
	}
}

// What cjson makes of any number is the same to the fingerprint, however often
// it is popped.
func TestNumbersKeepTheirFingerprintThroughCJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(
			rapid.Map(rapid.Int64(), func(i int64) json.Number { return json.Number(scalarText(i)) }),
			rapid.Map(rapid.Float64Range(-1e30, 1e30), func(f float64) json.Number { b, _ := json.Marshal(f); return json.Number(b) }),
		).Draw(t, "n")
		popped := cjson(t, n)
		if got, want := scalarText(popped), scalarText(n); got != want {
			t.Fatalf("%s is popped as %s: %s, then %s", n, popped, want, got)
		}
		if again := cjson(t, popped); scalarText(again) != scalarText(popped) {
			t.Fatalf("%s is popped again as %s", popped, again)
		}
	})
}

// cjson is n as Redis's cjson writes it: C's %.14g of the double.
func cjson(t *rapid.T, n json.Number) json.Number {
	f, err := strconv.ParseFloat(n.String(), 64)
	if err != nil {
		t.Fatal(err)
	}
	return json.Number(fmt.Sprintf("%.14g", f))
}

// A rounded number in anything that the request is made of is refused: the
// provider would be asked about another customer.
func TestARoundedNumberIsNotSent(t *testing.T) {
	s := fingerprinted(t)
	for _, number := range []json.Number{"1.2345678901234e+14", "123456789012345", "0.33333333333333", "12.345678901234"} {
		data := wire()
		data["customer"] = number
		first := effect(t, s, Message{Data: map[string]any{
			"orderId": "7", "cents": json.Number("1999"), "currency": "EUR", "customer": "c", "lines": []any{}, "unused": number,
		}, Rewritten: true})
		if first.Fingerprint.Request == "" {
			t.Error("an unused number is refused")
		}
		e, err := s.Effect(t.Context(), Message{Data: data, Rewritten: true})
		if err == nil || !strings.Contains(err.Error(), "customer may have been rounded") {
			t.Errorf("%s: error %v", number, err)
		}
		if e.Fingerprint.Message == "" {
			t.Errorf("%s: no fingerprint of the message; a repeat cannot be answered", number)
		}
	}
	for _, number := range []json.Number{"12345678901234", "19.99", "0.0001", "-7"} {
		data := wire()
		data["customer"] = number
		effect(t, s, Message{Data: data, Rewritten: true})
	}
}

func TestUsedPaths(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Amount, s.Currency = "money.amount", "money.currency"
		s.Provider = "p-{{.merchant.id}}"
		s.Load, s.Dialect = "SELECT 1 AS one WHERE :order = :order.id AND :scope = :plan", MySQL
		s.Request = provider.RequestSpec{Path: "/{{.a.b}}/x?y={{lower .c}}", JSON: map[string]any{
			"d": []any{"{{.d}}", map[string]any{"e": `{{if eq .e "1"}}{{.f}}{{else}}{{default (upper .g) .h}}{{end}}`}},
			"i": "{{order}} {{scope}}",
		}}
	})
	want := []string{"a.b", "c", "d", "e", "f", "g", "h", "merchant.id", "money.amount", "money.currency", "order.id", "plan"}
	if !slices.Equal(s.used, want) {
		t.Errorf("used %q, want %q", s.used, want)
	}
}

func TestEffectIsWhole(t *testing.T) {
	s := newStep(t, nil)
	data := map[string]any{"orderId": int64(7), "cents": int64(1999)}
	e := effect(t, s, Message{Data: data})
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	freeze := e.Render
	e.Render = nil
	e.Fingerprint = zabor.Fingerprint{}
	want := zabor.Effect{
		Key: zabor.Key{Scope: "shop", Order: "7", Step: "charge"}, Provider: "acquirer", Account: "main",
		Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Timeout: 10e9, MaxAttempts: 3,
		AbsentAfter: 120e9, ReplayFor: 3e9, HoldAfter: 60e9, PendingFor: 3600e9, MissingRow: zabor.Captured,
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("effect %+v, want %+v", e, want)
	}
	for _, key := range []string{"one", "two", "one"} {
		frozen, err := freeze(zabor.ProviderKeys{Request: key, Prepare: "prepare"}, "")
		if err != nil {
			t.Fatal(err)
		}
		r, err := provider.Thaw(frozen)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(r.Body), `{"amount":1999,"currency":"EUR","key":"`+key+`"}`; got != want {
			t.Errorf("body %s, want %s", got, want)
		}
	}
	if got := effect(t, s, Message{Data: data, DeliveredBefore: true}).MissingRow; got != zabor.Doubt {
		t.Errorf("a message that was delivered before is %s without a row, want doubt", got)
	}
}

// The provider's own minor units are what its request says.
func TestExponents(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Currency = "HUF"
		s.Providers = map[string]Provider{"acquirer": {Timeout: 1, Units: provider.Units{0: {"HUF"}}}}
	})
	e := effect(t, s, Message{Data: map[string]any{"orderId": "7", "cents": int64(199900)}})
	frozen, err := e.Render(zabor.ProviderKeys{Request: "k"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := provider.Thaw(frozen); err != nil || !strings.Contains(string(r.Body), `"amount":1999,`) || e.Amount.Minor != 199900 {
		t.Errorf("body %s, %v, for %v", r.Body, err, e.Amount)
	}
}

func TestProviderNames(t *testing.T) {
	s := newStep(t, func(s *Spec) {
		s.Provider = "stripe-{{.merchantId}}"
		s.Providers = map[string]Provider{"stripe-7": {Timeout: 1}, "stripe-a b&c=d": {Timeout: 1}}
	})
	for _, test := range []struct {
		merchant   any
		want, says string
	}{
		{int64(7), "stripe-7", ""},
		{"7", "stripe-7", ""},
		{"a b&c=d", "stripe-a b&c=d", ""},
		{"8", "", `provider "stripe-8" is not configured; there is stripe-7`},
		{nil, "", "provider: .merchantId is missing"},
	} {
		data := map[string]any{"orderId": "A", "cents": int64(1), "merchantId": test.merchant}
		e, err := s.Effect(t.Context(), Message{Data: data})
		if test.says == "" {
			if err != nil || e.Provider != test.want {
				t.Errorf("%v: provider %q, %v; want %q", test.merchant, e.Provider, err, test.want)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: error %v, want %q", test.merchant, err, test.says)
		}
	}
}
