package step

import (
	"encoding/json"
	"fmt"
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
		"an unused property":               func(d map[string]any) { d["attempts"], d["uuid"] = int64(3), "x" },
		"the default said":                 func(d map[string]any) { d["provider"] = "a" },
		"the order as text":                func(d map[string]any) { d["orderId"] = "7" },
		"numbers from PHP's serialization": func(d map[string]any) { d["cents"], d["customer"] = int64(1999), int64(12) },
		"minor units as text":              func(d map[string]any) { d["cents"] = "1999" },
		"cjson's empty object":             func(d map[string]any) { d["lines"].([]any)[1] = map[string]any{} },
	} {
		data := wire()
		change(data)
		got := effect(t, s, Message{Data: data, DeliveredBefore: true, Rewritten: true})
		if got.Message != want.Message {
			t.Errorf("%s: another fingerprint of the message", name)
		}
		if name != "cjson's empty object" && got.Fingerprint != want.Fingerprint {
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
		if got.Message == want.Message {
			t.Errorf("%s: the same fingerprint of the message", name)
		}
		if got.Fingerprint == want.Fingerprint {
			t.Errorf("%s: the same fingerprint of the request", name)
		}
	}
	other := newStep(t, nil)
	other.spec.Providers = map[string]Provider{"acquirer": {Account: "other", Timeout: 1}}
	a := effect(t, newStep(t, nil), Message{Data: wire()})
	b := effect(t, other, Message{Data: wire()})
	if a.Fingerprint == b.Fingerprint || a.Message != b.Message {
		t.Error("another account is another request of the same message")
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
		got, err := s.fingerprint(zabor.Effect{Key: key, Amount: test.amount}, provider.Vars{Order: "7"}, test.row)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[got] = name
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
		if first.Fingerprint == "" {
			t.Error("an unused number is refused")
		}
		e, err := s.Effect(t.Context(), Message{Data: data, Rewritten: true})
		if err == nil || !strings.Contains(err.Error(), "customer may have been rounded") {
			t.Errorf("%s: error %v", number, err)
		}
		if e.Message == "" {
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
	freeze := e.Freeze
	e.Freeze = nil
	e.Message, e.Fingerprint = "", ""
	want := zabor.Effect{
		Key: zabor.Key{Scope: "shop", Order: "7", Step: "charge"}, Provider: "acquirer", Account: "main",
		Amount: zabor.Money{Minor: 1999, Currency: "EUR"}, Timeout: 10e9, Attempts: 3,
		AbsentAfter: 120e9, HoldAfter: 60e9, PendingFor: 3600e9, MissingRow: zabor.Captured,
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
