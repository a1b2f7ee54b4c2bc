package provider

import (
	"math"
	"strings"
	"testing"

	"zabor"
)

func TestMajor(t *testing.T) {
	for _, tt := range []struct {
		minor    int64
		currency string
		want     string
	}{
		{1999, "EUR", "19.99"}, {5, "EUR", "0.05"}, {0, "EUR", "0.00"}, {100, "USD", "1.00"}, {-5, "EUR", "-0.05"}, {-1999, "EUR", "-19.99"},
		{1999, "JPY", "1999"}, {0, "JPY", "0"}, {5, "KWD", "0.005"}, {12345, "KWD", "12.345"}, {1, "CLF", "0.0001"},
		{math.MaxInt64, "EUR", "92233720368547758.07"}, {math.MinInt64, "EUR", "-92233720368547758.08"},
		{1, "", ""}, {1, "eur", ""}, {1, "XXX", ""},
	} {
		if got := Major(zabor.Money{Minor: tt.minor, Currency: tt.currency}); got != tt.want {
			t.Errorf("%d %s: %q, want %q", tt.minor, tt.currency, got, tt.want)
		}
	}
}

// Where ISO 4217 and what a locale's data displays differ (CLDR shows these
// without decimals, or with others), ISO counts.
func TestDigitsAreISO(t *testing.T) {
	for code, want := range map[string]int{
		"HUF": 2, "COP": 2, "IDR": 2, "IRR": 2, "IQD": 3, "LBP": 2, "MGA": 2, "PKR": 2, "ALL": 2, "TZS": 2, "AFN": 2, "MMK": 2, "RSD": 2, "TWD": 2, "CZK": 2, "NOK": 2, "SEK": 2, "CRC": 2,
		"ISK": 0, "KRW": 0, "VND": 0, "CLP": 0, "PYG": 0, "UGX": 0, "XOF": 0, "BHD": 3, "TND": 3, "JOD": 3, "OMR": 3, "LYD": 3, "UYW": 4,
	} {
		if got, ok := Digits(code); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", code, got, ok, want)
		}
	}
}

func TestParseMajor(t *testing.T) {
	for _, tt := range []struct {
		text, currency string
		want           int64
		err            string
	}{
		{"19.99", "EUR", 1999, ""}, {"19.9", "EUR", 1990, ""}, {"19", "EUR", 1900, ""}, {"0.01", "EUR", 1, ""}, {"0", "EUR", 0, ""}, {"007.50", "EUR", 750, ""},
		{"19.9900", "EUR", 1999, ""}, {"1999.000", "JPY", 1999, ""}, {"0.005", "KWD", 5, ""}, {"92233720368547758.07", "EUR", math.MaxInt64, ""},
		{"92233720368547758.08", "EUR", 0, "too large: at most 92233720368547758.07"}, {strings.Repeat("9", 400), "JPY", 0, "too large"},
		{"19.999", "EUR", 0, "more decimals than EUR has: 2"}, {"0.5", "JPY", 0, "more decimals"},
		{"", "EUR", 0, "not a decimal"}, {"-1", "EUR", 0, "not a decimal"}, {"+1", "EUR", 0, "not a decimal"}, {" 1", "EUR", 0, "not a decimal"}, {"1 ", "EUR", 0, "not a decimal"},
		{".5", "EUR", 0, "not a decimal"}, {"5.", "EUR", 0, "not a decimal"}, {"1e3", "EUR", 0, "not a decimal"}, {"1,50", "EUR", 0, "not a decimal"}, {"1.2.3", "EUR", 0, "not a decimal"},
		{"١", "EUR", 0, "not a decimal"}, {"0x10", "EUR", 0, "not a decimal"}, {"NaN", "EUR", 0, "not a decimal"}, {"1_000", "EUR", 0, "not a decimal"},
		{"1", "eur", 0, "ISO 4217"}, {"1", "", 0, "ISO 4217"}, {"1", "DEM", 0, "ISO 4217"},
	} {
		got, err := ParseMajor(tt.text, tt.currency)
		if tt.err == "" && (err != nil || got != zabor.Money{Minor: tt.want, Currency: tt.currency}) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q %s: %+v, %v, want %d %s", tt.text, tt.currency, got, err, tt.want, tt.err)
		}
	}
}

func FuzzMajor(f *testing.F) {
	f.Add(int64(1999), uint8(0))
	f.Add(int64(math.MaxInt64), uint8(3))
	f.Fuzz(func(t *testing.T, minor int64, which uint8) {
		want := zabor.Money{Minor: minor, Currency: []string{"EUR", "JPY", "KWD", "CLF"}[which%4]}
		got, err := ParseMajor(Major(want), want.Currency)
		if minor < 0 {
			if err == nil {
				t.Errorf("%s was read as %+v", Major(want), got)
			}
		} else if err != nil || got != want {
			t.Errorf("%+v: %q: %+v, %v", want, Major(want), got, err)
		}
	})
}

func FuzzParseMajor(f *testing.F) {
	for _, s := range []string{"19.99", "19.9900", "-1", "1e3", "99999999999999999999", "0.001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMajor(text, "EUR")
		if err != nil {
			return
		}
		again, err := ParseMajor(Major(m), "EUR")
		if err != nil || again != m || m.Minor < 0 {
			t.Errorf("%q: %+v, then %+v, %v", text, m, again, err)
		}
	})
}
