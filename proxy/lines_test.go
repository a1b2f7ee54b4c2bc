package proxy_test

import (
	"strings"
	"testing"

	"zabor/provider"
	"zabor/proxy"
)

// A call that no line of a built-in profile covers is refused with the sentence of what
// is missing, and nothing is sent or captured. The configuration's unfenced lets it pass
// without a key; no header does.
func TestCallsWithoutALine(t *testing.T) {
	t.Parallel()
	d := open(t, settings{
		profile: func(p *provider.Profile) {
			base := p.BaseURL
			known, _ := provider.BuiltinNamed("stripe")
			*p, _ = known.Profile("", "sk_test_1")
			p.BaseURL = base + "/stripe"
		},
		options: proxy.Options{Unfenced: []string{"POST /acquirer/v1/customers"}},
	})
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for _, tt := range []struct {
		path, body, why string
		fields          []string
	}{
		{"/v1/invoices/in_1/pay", "", "the answer is an invoice", nil},
		{"/v1/transfers/tr_1/reversals", "amount=1", "what a reversal's answers prove is not known", nil},
		{"/v1/payment_intents", "amount=1999&currency=eur&confirm=yes", "the profile knows it only otherwise", nil},
		{"/v1/payment_intents/pi_1/capture", "final_capture=false", "the profile knows it only otherwise", nil},
		{"/v1/setup_intents", "confirm=true", "the profile has no line about it", nil},
		{"/v1/setup_intents", "confirm=true", "the profile has no line about it", []string{"X-Unfenced", "1", "X-Shop-Line", "charge", "Prefer", "unfenced"}},
		{"/v1/payment%5Fintents", "confirm=true", "its path can be read as another one", nil},
		{"/v1/payment_intents/", "confirm=true", "its path can be read as another one", nil},
		{"/v1/payment_intents?confirm=true", "amount=1999", "it has a query", nil},
		{"/v1/customers", "name=x", "the profile has no line about it", nil}, // with a key it is a call of the fence's
	} {
		a := d.do("POST", "/acquirer"+tt.path, tt.body, append(append(fenced("1001", "charge"), form...), tt.fields...)...)
		if a.status != 400 || !strings.Contains(a.body, tt.why) {
			t.Errorf("%s %s: %s, want 400 and %s", tt.path, tt.body, a, tt.why)
		}
	}
	if a := d.do("POST", "/acquirer/v1/customers", "name=x", form...); a.status != 404 { // the sandbox's own
		t.Errorf("unfenced: %s", a)
	}
	if a := d.do("POST", "/acquirer/v1/setup_intents", "confirm=true", append(form, "X-Unfenced", "1")...); a.status != 400 {
		t.Errorf("neither a key nor unfenced: %s", a)
	}
	if a := d.do("GET", "/fences/1001/charge", ""); a.status != 404 {
		t.Errorf("a row was written: %s", a)
	}
}
