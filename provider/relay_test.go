package provider

import (
	"net/http"
	"strings"
	"testing"

	"zabor"
)

// What may not be kept is replaced wherever it stands; every other byte stays.
func TestRedact(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{`{"a":1, "secret" : "x" ,"b":[{"secret":{"deep":[1,2]}}, 2.50]}`, `{"a":1, "secret" : "[redacted]" ,"b":[{"secret":"[redacted]"}, 2.50]}`},
		{`{"secret":null}`, `{"secret":"[redacted]"}`},
		{`{"a":"secret","b":["secret"],"secrets":"s"}`, `{"a":"secret","b":["secret"],"secrets":"s"}`},
		{`{"\u0073ecret":1,"secret":2}`, `{"\u0073ecret":"[redacted]","secret":"[redacted]"}`},
		{`"secret"`, `"secret"`}, {` [ 1 ] `, ` [ 1 ] `},
		{`not json`, ``}, {`{"secret":1`, ``}, {``, ``},
	} {
		if got := redact([]byte(tt.body), []string{"secret"}); string(got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.body, got, tt.want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":[{"secret":1}],"secret":{"secret":2}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		out := redact(body, []string{"secret"})
		if out == nil {
			return
		}
		document, err := decodeJSON(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		var look func(v any)
		look = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, one := range v {
					look(one)
				}
			case map[string]any:
				for name, one := range v {
					if name == "secret" && one != "[redacted]" {
						t.Fatalf("%q became %q", body, out)
					}
					look(one)
				}
			}
		}
		look(document)
	})
}

func TestKeep(t *testing.T) {
	header := http.Header{"Content-Type": {"application/json"}, "Set-Cookie": {"a=b"}, "Request-Id": {"r"}}
	for _, tt := range []struct {
		name    string
		keep    Keep
		body    string
		want    string
		notKept bool
	}{
		{"as it is", Keep{}, `{"a":1}`, `{"a":1}`, false},
		{"too long", Keep{Body: 3}, `{"a":1}`, ``, true},
		{"none", Keep{Body: -1}, `{"a":1}`, ``, true},
		{"empty", Keep{}, ``, ``, false},
		{"redacted", Keep{Redact: []string{"a"}}, `{"a":1}`, `{"a":"[redacted]"}`, false},
		{"not to be redacted", Keep{Redact: []string{"a"}}, `<a>1</a>`, ``, true},
		{"a number", Keep{}, `{"a":"4242 4242 4242 4242"}`, ``, true},
		{"a number of no network", Keep{}, `{"card_number":1234567890123}`, ``, true},
		{"a code", Keep{}, `{"card":[{"cvc":"735"}]}`, ``, true},
		{"a code as a number", Keep{}, `{"cvv":735}`, ``, true},
		{"a code that is not in JSON", Keep{}, `<cvc>735</cvc>`, ``, true},
		{"what may be told of them", Keep{}, `{"card":{"number":"424242******4242","cvc":"pass"},"pan":"4242"}`, `{"card":{"number":"424242******4242","cvc":"pass"},"pan":"4242"}`, false},
	} {
		document, _ := decodeAnswer([]byte(tt.body))
		got := tt.keep.orDefault().of(answer{200, header, []byte(tt.body)}, document)
		names := ""
		for _, field := range got.Header {
			names += field.Name + " "
		}
		if string(got.Body) != tt.want || strings.Contains(names, NotKept) != tt.notKept || strings.Contains(names, "Cookie") || !strings.HasPrefix(names, "Content-Type Request-Id") {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestWithoutField(t *testing.T) {
	for _, tt := range []struct{ body, want, key string }{
		{`{"key":"k"}`, `{}`, "k"}, {`{"a":1,"key":"k"}`, `{"a":1}`, "k"}, {` { "key" : "k" , "a" : [1, 2] } `, `{"a" : [1, 2]}`, "k"},
		{`{"a":{"key":1}}`, `{"a":{"key":1}}`, ""}, {`{"key":"1","key":"2"}`, "error", ""},
		{`[]`, "error", ""}, {`{"key":1}`, "error", ""}, {`{`, "error", ""},
	} {
		got, key, err := withoutField([]byte(tt.body), "key")
		if err != nil {
			got = []byte("error")
		}
		if string(got) != tt.want || key != tt.key && err == nil {
			t.Errorf("%s: %s, %q, %v", tt.body, got, key, err)
		}
	}
}

// The money that a request names is where the provider's answers have theirs.
func TestMoneyOfARequest(t *testing.T) {
	stripe, ok := BuiltinNamed("stripe")
	if !ok {
		t.Fatal("no stripe")
	}
	profile, err := stripe.Profile("", "sk_test_x")
	if err != nil {
		t.Fatal(err)
	}
	p, err := New("stripe", profile, Options{})
	if err != nil {
		t.Fatal(err)
	}
	eur := zabor.Money{Minor: 1999, Currency: "EUR"}
	for _, tt := range []struct {
		kind, body string
		want       zabor.Money
	}{
		{formType, "amount=1999&currency=eur", eur},
		{formType + "; charset=utf-8", "currency=EUR&amount=1999&metadata[amount]=5", eur},
		{"application/json", `{"amount":1999,"currency":"eur"}`, eur},
		{"application/json", `{"amount":"1999","currency":"eur"}`, eur},
		{formType, "amount=1999", zabor.Money{}}, {formType, "amount=x&currency=eur", zabor.Money{}}, {formType, "amount=1&amount=2&currency=eur", zabor.Money{}},
		{formType, "amount[x]=1&amount=2&currency=eur&amount[x]=3", zabor.Money{}},
		{"application/json", `{"amount":19.99,"currency":"eur"}`, zabor.Money{}}, {"application/json", `{`, zabor.Money{}}, {"text/plain", "amount=1999&currency=eur", zabor.Money{}},
		{"", "", zabor.Money{}}, {formType, "amount=1999&currency=xxx", zabor.Money{}},
	} {
		if got := p.Money(Request{Method: "POST", Path: "/v1/payment_intents", ContentType: tt.kind, Body: []byte(tt.body)}.Open()); got != tt.want {
			t.Errorf("%s %s: %v, want %v", tt.kind, tt.body, got, tt.want)
		}
	}
}

// Silence is no proof about a request that did not carry what the look-up asks
// for.
func TestSilenceAboutWhatWasNotCarried(t *testing.T) {
	frozen := func(body string) []byte {
		data, err := Freeze(Request{Method: "POST", Path: "/payments", ContentType: "application/json", Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, tt := range []struct {
		name, path string
		key        Key
		body       string
		want       bool
	}{
		{"by the key, which travels", "/p?k={{provider_key}}", Key{Header: "Idempotency-Key"}, `{}`, true},
		{"by the key, which does not", "/p?k={{provider_key}}", Key{}, `{}`, false},
		{"by the key, which is in the request", "/p?k={{provider_key}}", Key{}, `{"ref":"the-key"}`, true},
		{"by the order, which is in the request", "/p?o={{order}}", Key{}, `{"ref":"a \"1\""}`, true},
		{"by the order, which is not", "/p?o={{order}}", Key{Header: "Idempotency-Key"}, `{"ref":"ORD-2"}`, false},
	} {
		l := line{Line: Line{Key: tt.key, Lookup: &Lookup{}}, find: &finder{byKey: names(tt.path, "provider_key"), byOrder: names(tt.path, "order")}}
		row := zabor.Row{Key: zabor.Key{Order: `a "1"`, Step: "charge"}, ProviderKey: "the-key", Open: zabor.Open{Request: frozen(tt.body)}}
		sent, err := Thaw(row.Open.Request)
		if err != nil {
			t.Fatal(err)
		}
		opened := sent.Open()
		if got := l.findable(&opened, row) == nil; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
