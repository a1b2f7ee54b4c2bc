package card

import (
	"strings"
	"testing"
)

func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{
		// The networks' published test numbers.
		"4242424242424242":                  "424242******4242",
		"4222222222222":                     "422222***2222",
		"5555555555554444":                  "555555******4444",
		"2223003122003222":                  "222300******3222",
		"378282246310005":                   "378282*****0005",
		"6011111111111117":                  "601111******1117",
		"30569309025904":                    "305693****5904",
		"3566002020360505":                  "356600******0505",
		"6200000000000005":                  "620000******0005",
		"2200000000000004":                  "220000******0004",
		"6205500000000000004":               "620550*********0004",
		"4111 1111 1111 1111":               "4111 11** **** 1111",
		"4111-1111-1111-1111":               "4111-11**-****-1111",
		"3782 822463 10005":                 "3782 82**** *0005",
		"card 4242424242424242.":            "card 424242******4242.",
		`{"n":"4242424242424242"}`:          `{"n":"424242******4242"}`,
		`{"n":4242424242424242}`:            `{"n":424242******4242}`,
		"card4242424242424242x":             "card424242******4242x",
		"4242424242424242 123":              "424242******4242 123",
		"4242424242424242,5555555555554444": "424242******4242,555555******4444",
		"1234 4242424242424242":             "1234 424242******4242",

		// No card numbers.
		"4242424242424241":       "", // Luhn
		"42424242424242424242":   "", // 20 digits
		"1764464128123456":       "", // microseconds
		"0.4242424242424242":     "",
		"7000000000000005":       "", // no network
		"2026-11-30 10:00:00":    "",
		"4242 42 42 4242424242":  "",
		"4242  4242  4242  4242": "",
		"pi_3NabcdEFGH":          "",
		"":                       "",
	} {
		if want == "" {
			want = text
		}
		if got := Mask(text); got != want {
			t.Errorf("%q is masked as %q, want %q", text, got, want)
		}
		if got := In(text); got != (want != text) {
			t.Errorf("%q: a card is in it: %v", text, got)
		}
	}
}

func TestFields(t *testing.T) {
	for name, want := range map[string]bool{
		"cvc": true, "CVV2": true, "card[cvc]": true, "card[number]": true, "source.card.number": true, "card_number": true, "cardNumber": true,
		"payment_method_data[card][cvc]": true, "security-code": true, "PAN": true, "CardCryptogramValue": true, "bankCard/number": true,
		"number": false, "order[number]": false, "invoice.number": false, "cvcCheck": false, "": false, "panel": false, "companyId": false, "[]": false, "card": false,
	} {
		if got := Field(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	for _, seed := range []string{"4242424242424242", "4111 1111-1111 1111 4242424242424242", "0.5 3782 822463 10005", "é4242424242424242é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		masked := Mask(text)
		if len(masked) != len(text) || In(masked) {
			t.Errorf("%q is masked as %q", text, masked)
		}
		if strings.Count(masked, "*")-strings.Count(text, "*") > 0 != In(text) {
			t.Errorf("%q: %q", text, masked)
		}
	})
}
