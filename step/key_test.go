package step

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"zabor"
	"zabor/provider"
)

// newStep compiles a step for an acquirer that takes JSON, after change.
func newStep(t testing.TB, change func(*Spec)) *Step {
	t.Helper()
	spec := Spec{
		Name: "charge", Classes: []string{`App\Jobs\Charge`}, Installation: "shop", Order: "orderId",
		Amount: "cents", Currency: "EUR",
		Provider: "acquirer", Providers: map[string]Provider{"acquirer": {Account: "main", Timeout: 10e9, AbsentAfter: 120e9, ReplayFor: 3e9}},
		Request:  provider.RequestSpec{Path: "/pay", JSON: map[string]any{"amount": "{{minor}}", "currency": "{{currency}}", "key": "{{provider_key}}"}},
		Attempts: 3, HoldAfter: 60e9, PendingFor: 3600e9,
	}
	if change != nil {
		change(&spec)
	}
	s, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Which ids are one order and which are two, by type (magento/magento2#390: 101 and
// "101" are one).
func TestOrderIDs(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, test := range []struct {
		name      string
		value     any
		rewritten bool // by an earlier pop
		want      string
		says      string // empty: taken
	}{
		{name: "a number", value: int64(7), want: "7"},
		{name: "its text", value: "7", want: "7"},
		{name: "a number of JSON", value: json.Number("7"), want: "7"},
		{name: "the same, popped before", value: json.Number("7"), rewritten: true, want: "7"},
		{name: "zeros before", value: "007", want: "007"},
		{name: "a blank behind", value: "x ", want: "x "},
		{name: "upper case", value: "A1", want: "A1"},
		{name: "lower case", value: "a1", want: "a1"},
		{name: "composed", value: "\u00e9", want: "\u00e9"},
		{name: "decomposed", value: "e\u0301", want: "e\u0301"},
		{name: "the text 0", value: "0", want: "0"},
		{name: "the text false", value: "false", want: "false"},
		{name: "18 digits from PHP's serialization", value: int64(900719925474099312), want: "900719925474099312"},
		{name: "the same, popped before", value: int64(900719925474099312), rewritten: true, want: "900719925474099312"},
		{name: "a text of 18 digits, popped before", value: "900719925474099312", rewritten: true, want: "900719925474099312"},
		{name: "15 digits of JSON, first delivery", value: json.Number("123456789012345"), want: "123456789012345"},
		{name: "14 digits of JSON, popped before", value: json.Number("12345678901234"), rewritten: true, want: "12345678901234"},
		{name: "below zero", value: int64(-7), want: "-7"},
		{name: "255 bytes", value: long, want: long},

		{name: "the number 0", value: int64(0), says: "it is the number 0"},
		{name: "the number 0 of JSON", value: json.Number("0"), says: "it is the number 0"},
		{name: "minus 0", value: json.Number("-0"), says: "it is the number 0"},
		{name: "an empty text", value: "", says: "it is empty"},
		{name: "null", value: nil, says: "it is null"},
		{name: "false", value: false, says: "it is a boolean"},
		{name: "true", value: true, says: "it is a boolean"},
		{name: "a float", value: 7.5, says: "it is the float 7.5"},
		{name: "a whole float", value: 7.0, says: "it is the float 7"},
		{name: "a fraction of JSON", value: json.Number("7.5"), says: "7.5 is not a whole one"},
		{name: "an exponent", value: json.Number("1e15"), says: "1e15 is not a whole one"},
		{name: "what cjson leaves of 16 digits", value: json.Number("1.2345678901234e+14"), rewritten: true, says: "not a whole one"},
		{name: "15 digits of JSON, popped before", value: json.Number("123456789012345"), rewritten: true, says: "of 15 digits may have been rounded"},
		{name: "an enum", value: Enum{Class: `App\Currency`, Case: "Euro"}, says: "the case Euro of enum App\\Currency"},
		{name: "a list", value: []any{int64(7)}, says: "it is a list"},
		{name: "an object", value: map[string]any{"id": int64(7), "uuid": "x"}, says: "an object with id, uuid"},
		{name: "256 bytes", value: long + "x", says: "256 bytes, at most 255"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStep(t, nil)
			k, err := s.Key(Message{Class: `App\Jobs\Charge`, Data: map[string]any{"orderId": test.value}, Rewritten: test.rewritten})
			if test.says == "" {
				if want := (zabor.Key{Scope: "shop", Order: test.want, Step: "charge"}); err != nil || k != want {
					t.Fatalf("key %+v, %v; want %+v", k, err, want)
				}
				return
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("key %+v, error %v; want one that says %q", k, err, test.says)
			}
		})
	}
}

func TestKeyParts(t *testing.T) {
	data := map[string]any{
		"order":  map[string]any{"id": int64(1042), "class": `App\Models\Order`},
		"items":  []any{map[string]any{"sku": "a"}},
		"refund": "R-7", "merchantId": int64(5), "none": nil, "blank": "",
	}
	for _, test := range []struct {
		name   string
		change func(*Spec)
		want   zabor.Key
		says   string
	}{
		{"a model's id", func(s *Spec) { s.Order = "order.id" }, zabor.Key{Scope: "shop", Order: "1042", Step: "charge"}, ""},
		{"an entry of a list", func(s *Spec) { s.Order = "items.0.sku" }, zabor.Key{Scope: "shop", Order: "a", Step: "charge"}, ""},
		{"a part", func(s *Spec) { s.Order, s.Part, s.Name = "order.id", "refund", "refund" }, zabor.Key{Scope: "shop", Order: "1042", Step: "refund:R-7"}, ""},
		{"a part that is missing", func(s *Spec) { s.Order, s.Part = "order.id", "refundId" }, zabor.Key{}, "part: there is no refundId"},
		{"a part that is empty", func(s *Spec) { s.Order, s.Part = "order.id", "blank" }, zabor.Key{}, "part blank: it is empty"},
		{"a scope", func(s *Spec) { s.Order, s.Scope = "order.id", "merchantId" }, zabor.Key{Scope: "shop/5", Order: "1042", Step: "charge"}, ""},
		{"a scope and no installation", func(s *Spec) { s.Order, s.Scope, s.Installation = "order.id", "merchantId", "" }, zabor.Key{Scope: "/5", Order: "1042", Step: "charge"}, ""},
		{"no scope at all", func(s *Spec) { s.Order, s.Installation = "order.id", "" }, zabor.Key{Order: "1042", Step: "charge"}, ""},
		{"a scope that is missing", func(s *Spec) { s.Order, s.Scope = "order.id", "tenant" }, zabor.Key{}, "scope: there is no tenant; there is blank, items, merchantId, none, order, refund"},
		{"a scope that is null", func(s *Spec) { s.Order, s.Scope = "order.id", "none" }, zabor.Key{}, "scope none: it is null"},
		{"a scope that is empty", func(s *Spec) { s.Order, s.Scope = "order.id", "blank" }, zabor.Key{}, "scope blank: it is empty"},
		{"a scope too long when joined", func(s *Spec) {
			s.Order, s.Scope, s.Installation = "order.id", "merchantId", strings.Repeat("s", 63)
		}, zabor.Key{}, "scope too long: 65 bytes, at most 64"},
		{"an order that is missing", func(s *Spec) { s.Order = "order.uuid" }, zabor.Key{}, "order: there is no order.uuid; there is order.class, order.id;"},
		{"an order behind a text", func(s *Spec) { s.Order = "refund.id" }, zabor.Key{}, "there is no refund.id"},
		{"an index that is no index", func(s *Spec) { s.Order = "items.00.sku" }, zabor.Key{}, "there is no items.00.sku"},
		{"the class's default", func(s *Spec) {
			s.Order, s.Scope, s.Defaults = "order.id", "tenant", map[string]any{"tenant": "eu", "merchantId": int64(9)}
		}, zabor.Key{Scope: "shop/eu", Order: "1042", Step: "charge"}, ""},
		{"a property before its default", func(s *Spec) {
			s.Order, s.Scope, s.Defaults = "order.id", "merchantId", map[string]any{"merchantId": int64(9)}
		}, zabor.Key{Scope: "shop/5", Order: "1042", Step: "charge"}, ""},
		{"null before its default", func(s *Spec) {
			s.Order, s.Scope, s.Defaults = "order.id", "none", map[string]any{"none": "eu"}
		}, zabor.Key{}, "it is null"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k, err := newStep(t, test.change).Key(Message{Data: data})
			if test.says == "" {
				if err != nil || k != test.want {
					t.Fatalf("key %+v, %v; want %+v", k, err, test.want)
				}
				return
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("key %+v, error %v; want one that says %q", k, err, test.says)
			}
		})
	}
}

func TestNewNamesEachWrongField(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"no name", func(s *Spec) { s.Name = "" }, "step: the name is empty"},
		{"a colon", func(s *Spec) { s.Name = "a:b" }, `step: "a:b" has a colon`},
		{"a long name", func(s *Spec) { s.Name = strings.Repeat("s", 129) }, "step: the name is 129 bytes long: at most 128"},
		{"no room for a part", func(s *Spec) { s.Name, s.Part = strings.Repeat("s", 127), "p" }, "step: the name is 127 bytes long: at most 126"},
		{"no order", func(s *Spec) { s.Order = "" }, "order: it is empty"},
		{"a template as order", func(s *Spec) { s.Order = "{{.id}}" }, `order: "{{.id}}" is not the path`},
		{"dots", func(s *Spec) { s.Scope = "a..b" }, `scope: "a..b" is not the path`},
		{"an amount alone", func(s *Spec) { s.Currency = "" }, "currency: it is empty: an amount needs a currency"},
		{"a currency alone", func(s *Spec) { s.Amount = "" }, "amount: it is empty: a currency needs an amount"},
		{"no currency", func(s *Spec) { s.Currency = "EUX" }, `currency: "EUX" is not a currency`},
		{"a bad template", func(s *Spec) { s.Request.Path = "/pay/{{.id" }, "request: path"},
		{"form and json", func(s *Spec) { s.Request.Form = map[string]string{"a": "b"} }, "request: form and json exclude each other"},
		{"no provider", func(s *Spec) { s.Provider = "" }, "provider: it is empty"},
		{"a write", func(s *Spec) { s.Load, s.Dialect = "DELETE FROM orders", MySQL }, "load: DELETE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := newStep(t, nil).spec
			test.change(&spec)
			_, err := New(spec)
			var field *FieldError
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.As(err, &field) {
				t.Fatalf("error %v, want a FieldError with %q", err, test.want)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	s := newStep(t, nil)
	for class, want := range map[string]bool{
		`App\Jobs\Charge`: true, `\App\Jobs\Charge`: true,
		`App\Jobs\charge`: false, `App\Jobs\ChargeMore`: false, "": false,
	} {
		if got := s.Matches(class); got != want {
			t.Errorf("Matches(%q)=%v, want %v", class, got, want)
		}
	}
}
