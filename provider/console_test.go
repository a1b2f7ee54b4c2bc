package provider

import (
	"fmt"
	"strings"
	"testing"

	"zabor"
)

// What a person types into a provider's search is what that search knows, and what
// the request that was sent had where it looks.
func TestSearchTerms(t *testing.T) {
	asJSON := func(body string) []byte {
		return mustFreeze(t, Request{Method: "POST", Path: "/x", ContentType: "application/json", Body: []byte(body)})
	}
	form := mustFreeze(t, Request{Method: "POST", Path: "/v1/payment_intents", ContentType: "application/x-www-form-urlencoded", Body: []byte("amount=1&metadata%5Bzabor_key%5D=thekey")})
	row := func(request []byte) zabor.Row {
		return zabor.Row{Key: zabor.Key{Order: "1001", Step: "charge"}, State: zabor.Held, Cause: zabor.ByExpiry, ProviderKey: "thekey", Open: zabor.Open{Request: request}}
	}
	two := row(asJSON(`{}`))
	two.Prepared = "pi_9"
	settled := row(nil)
	settled.Reference = "pi_1"
	imported := row(asJSON(`{"reference":"thekey"}`))
	imported.Cause = zabor.ByImport
	for _, tt := range []struct {
		name, provider string
		row            zabor.Row
		want           string // clues, ? behind those that are not sure
	}{
		{"carried in a form", "stripe", row(form), "metadata=metadata:zabor_key=thekey"},
		{"not carried", "stripe", row(asJSON(`{"amount":1}`)), ""},
		{"the first request may have carried it", "stripe", two, "the id of the intent=pi_9|metadata=metadata:zabor_key=thekey?"},
		{"not kept", "stripe", row(nil), "metadata=metadata:zabor_key=thekey?"},
		{"settled", "stripe", settled, "its id=pi_1|metadata=metadata:zabor_key=thekey?"},
		{"the request says what the field holds", "adyen", row(asJSON(`{"reference":"SHOP-1001"}`)), "merchant reference=SHOP-1001"},
		{"never the key of a header", "adyen", row(nil), "merchant reference=1001?"},
		{"nothing but amount and time", "square", row(asJSON(`{"reference_id":"thekey"}`)), ""},
		{"nothing but amount and time", "yookassa", row(asJSON(`{"amount":{}}`)), ""},
		{"the key in a field", "checkout", row(asJSON(`{"reference":"thekey"}`)), "reference=thekey"},
		{"another's call had no key of ours", "checkout", imported, ""},
		{"another's call may have had the order", "adyen", imported, "merchant reference=1001?"},
		{"one field, either way", "tbank", two, "PaymentId=pi_9|OrderId=1001?|OrderId=thekey?"},
		{"custom, carried", "", row(asJSON(`{"note":"order 1001","id":"thekey"}`)), "the provider key=thekey|the order=1001"},
		{"custom, a part of another word", "", func() zabor.Row { r := row(asJSON(`{"version":"v1"}`)); r.Order = "1"; return r }(), ""},
		{"custom, in a header", "", row(asJSON(`{"merchantOrder":"1001"}`)), "the order=1001"},
		{"custom, not kept", "", row(nil), "the provider key=thekey?|the order=1001?"},
	} {
		var c Console
		if tt.provider != "" {
			b, ok := BuiltinNamed(tt.provider)
			if !ok {
				t.Fatalf("no %s", tt.provider)
			}
			c = b.Console
		}
		var got []string
		for _, clue := range c.Search(tt.row) {
			text := fmt.Sprintf("%s=%s", clue.By, clue.Text)
			if clue.Unsure {
				text += "?"
			}
			got = append(got, text)
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s, %s: %q, want %q", tt.provider, tt.name, got, tt.want)
		}
	}
}

func mustFreeze(t *testing.T, r Request) []byte {
	t.Helper()
	data, err := Freeze(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
