package step

import (
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/bojanz/currency"
	"pgregory.net/rapid"

	"zabor"
	"zabor/provider"
)

func TestMoney(t *testing.T) {
	for _, test := range []struct {
		name     string
		value    any
		major    bool
		currency any // of the message; nil: EUR
		want     int64
		says     string
	}{
		{name: "minor", value: int64(1999), want: 1999},
		{name: "minor of JSON", value: json.Number("1999"), want: 1999},
		{name: "minor as text", value: "1999", want: 1999},
		{name: "a million", value: int64(1000000), want: 1000000},
		{name: "nothing", value: int64(0), want: 0},
		{name: "the largest", value: int64(math.MaxInt64), want: math.MaxInt64},
		{name: "a float for minor", value: 1999.0, says: "the float 1999 where minor units belong"},
		{name: "a decimal for minor", value: "19.99", says: `"19.99" is not a whole number of minor units`},
		{name: "a fraction of JSON for minor", value: json.Number("19.99"), says: `"19.99" is not a whole number`},
		{name: "an exponent for minor", value: json.Number("1e3"), says: `"1e3" is not a whole number`},
		{name: "below zero", value: int64(-1), says: "-1 is below zero"},
		{name: "too large", value: "9223372036854775808", says: "too large"},
		{name: "null", value: nil, says: "it is null"},
		{name: "an enum", value: Enum{Class: "C", Case: "X"}, says: "the case X"},

		{name: "a decimal", value: "19.99", major: true, want: 1999},
		{name: "a decimal of JSON", value: json.Number("19.99"), major: true, want: 1999},
		{name: "a float", value: 19.99, major: true, want: 1999},
		{name: "a float that is a little less", value: 0.29, major: true, want: 29},
		{name: "a whole float", value: 20.0, major: true, want: 2000},
		{name: "a sum of floats", value: 0.30000000000000004, major: true, says: "more decimals than EUR has"},
		{name: "a whole number", value: int64(20), major: true, want: 2000},
		{name: "zeros behind", value: "19.9900", major: true, want: 1999},
		{name: "one decimal", value: "19.9", major: true, want: 1990},
		{name: "an exponent", value: json.Number("1e3"), major: true, want: 100000},
		{name: "an exponent below one", value: json.Number("1999e-2"), major: true, want: 1999},
		{name: "an absurd exponent", value: json.Number("1e400"), major: true, says: "no amount of money"},
		{name: "yen", value: "1999", major: true, currency: "JPY", want: 1999},
		{name: "half a yen", value: "19.5", major: true, currency: "JPY", says: "more decimals than JPY has: 0"},
		{name: "dinars", value: "19.995", major: true, currency: "KWD", want: 19995},
		{name: "dinars in lower case", value: "1", major: true, currency: "kwd", want: 1000},
		{name: "a comma", value: "19,99", major: true, says: `"19,99" is not a decimal`},
		{name: "a sign", value: "-19.99", major: true, says: "is not a decimal"},
		{name: "a blank", value: " 19.99", major: true, says: "is not a decimal"},
		{name: "an infinite float", value: math.Inf(1), major: true, says: "is not a decimal"},
		{name: "no currency", value: "1", currency: "", says: "not a currency of ISO 4217"},
		{name: "no known currency", value: "1", currency: "EUX", says: "not a currency of ISO 4217"},
		{name: "a number as currency", value: "1", currency: int64(978), says: "it is a number where three letters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStep(t, func(s *Spec) { s.Major, s.Currency = test.major, "currency" })
			data := map[string]any{"orderId": int64(7), "cents": test.value, "currency": "EUR"}
			if test.currency != nil {
				data["currency"] = test.currency
			}
			e, err := s.Effect(t.Context(), Message{Data: data})
			if test.says != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.says) {
					t.Fatalf("amount %+v, error %v; want one that says %q", e.Amount, err, test.says)
				}
				return
			}
			if err != nil || e.Amount.Minor != test.want {
				t.Fatalf("amount %+v, %v; want %d", e.Amount, err, test.want)
			}
		})
	}
}

func TestAMissingAmountIsRefusedBeforeTheCapture(t *testing.T) {
	for _, missing := range []string{"cents", "currency", "customer"} {
		s := newStep(t, func(s *Spec) {
			s.Currency = "currency"
			s.Request.JSON = map[string]any{"a": "{{major}}", "c": "{{.customer}}"}
		})
		data := map[string]any{"orderId": "7", "cents": int64(1), "currency": "EUR", "customer": "c"}
		delete(data, missing)
		e, err := s.Effect(t.Context(), Message{Data: data})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: error %v", missing, err)
		}
		if e.Render != nil || e.Fingerprint.Message == "" {
			t.Errorf("without %s: effect %+v; want a fingerprint of the message, and no request", missing, e)
		}
	}
}

// Whatever the application says, in whatever way it may say it, the provider
// reads the same money: as minor units and as a decimal, in a form and in JSON.
func TestEveryAmountReachesTheProviderAsItIs(t *testing.T) {
	codes := currency.GetCurrencyCodes()
	rapid.Check(t, func(t *rapid.T) {
		want := zabor.Money{
			Minor: rapid.OneOf(
				rapid.SampledFrom([]int64{0, 1, 1999, 1000000, 100000000, 19990, math.MaxInt64}),
				rapid.Int64Range(0, math.MaxInt64),
				rapid.Int64Range(0, 10_000_000),
			).Draw(t, "minor"),
			Currency: rapid.SampledFrom(codes).Draw(t, "currency"),
		}
		major := provider.Major(want)
		ways := []struct {
			value any
			major bool
		}{
			{want.Minor, false},
			{json.Number(provider.Major(zabor.Money{Minor: want.Minor, Currency: "JPY"})), false},
			{provider.Major(zabor.Money{Minor: want.Minor, Currency: "JPY"}), false},
			{major, true},
			{json.Number(major), true},
		}
		if want.Minor < 1e14 { // a float holds it
			var f float64
			if err := json.Unmarshal([]byte(major), &f); err != nil {
				t.Fatal(err)
			}
			ways = append(ways, struct {
				value any
				major bool
			}{f, true})
		}
		way := rapid.SampledFrom(ways).Draw(t, "way")
		json_ := rapid.Bool().Draw(t, "json")
		s := moneyStep(t, way.major, json_)
		e, err := s.Effect(t.Context(), Message{Data: map[string]any{"orderId": "A-1", "amount": way.value, "currency": want.Currency}})
		if err != nil {
			t.Fatalf("%#v %s: %v", way.value, want.Currency, err)
		}
		if e.Amount != want {
			t.Fatalf("%#v became %+v, want %+v", way.value, e.Amount, want)
		}
		frozen, err := e.Render(zabor.ProviderKeys{Request: "k"}, "")
		if err != nil {
			t.Fatal(err)
		}
		r, err := provider.Thaw(frozen)
		if err != nil {
			t.Fatal(err)
		}
		minorText, majorText, code := sentMoney(t, r, json_)
		sent, err := provider.ParseMajor(majorText, strings.ToUpper(code))
		if err != nil || sent != want {
			t.Fatalf("%#v was sent as the decimal %q %s: %+v, %v; want %+v", way.value, majorText, code, sent, err, want)
		}
		if got, err := minorAmount(minorText, strings.ToUpper(code)); err != nil || got != want {
			t.Fatalf("%#v was sent as minor units %q: %+v, %v; want %+v", way.value, minorText, got, err, want)
		}
	})
}

func moneyStep(t *rapid.T, major, json_ bool) *Step {
	fields := map[string]string{"minor": "{{minor}}", "major": "{{major}}", "currency": "{{lower currency}}"}
	request := provider.RequestSpec{Path: "/pay", Form: fields}
	if json_ {
		request = provider.RequestSpec{Path: "/pay", JSON: map[string]any{"minor": "{{minor}}", "major": "{{major}}", "currency": "{{lower currency}}"}}
	}
	s, err := New(Spec{
		Name: "charge", Order: "orderId", Amount: "amount", Major: major, Currency: "currency",
		Provider: "acquirer", Providers: map[string]Provider{"acquirer": {Timeout: 1}}, Request: request, Attempts: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sentMoney reads a request as a provider does.
func sentMoney(t *rapid.T, r provider.Request, json_ bool) (minor any, major, currency string) {
	if !json_ {
		form, err := url.ParseQuery(string(r.Body))
		if err != nil {
			t.Fatal(err)
		}
		return form.Get("minor"), form.Get("major"), form.Get("currency")
	}
	var body struct {
		Minor           json.Number
		Major, Currency string
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(r.Body), `"minor":"`) {
		t.Fatalf("minor units are a text: %s", r.Body)
	}
	return body.Minor, body.Major, body.Currency
}
