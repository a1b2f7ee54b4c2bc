package step

import (
	"strings"
	"testing"

	"zabor"
	"zabor/provider"
)

// Fingerprints stay in rows for good: another one for the same request would turn
// every repeat of an order that was paid before a deployment into «another
// request». So these values do not change.
func TestPrintedIsWhatRowsHave(t *testing.T) {
	t.Parallel()
	const (
		asJSON = "application/json"
		asForm = "application/x-www-form-urlencoded"
	)
	multipart := strings.ReplaceAll("--b0\nContent-Disposition: form-data; name=\"amount\"\n\n1999\n"+
		"--b0\nContent-Disposition: form-data; name=\"item\"\nContent-Type: text/plain\n\nä\n"+
		"--b0\nContent-Disposition: form-data; name=\"item\"; filename=\"a.txt\"\n\nfile\n--b0--\n", "\n", "\r\n")
	for _, tt := range []struct {
		name     string
		r        provider.Request
		volatile []string
		want     string
		unkept   bool
	}{
		{
			name: "json", want: "0b4c5a3c41d1ae0e5ccda2c7b123d6e3663c0e77f2a905f787efed2c549b9ba1",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{"amount":1999,"currency":"EUR","order":"1001"}`)},
		},
		{
			name: "json, spaced and nested", want: "7e21fa6f4b849e7ba0800b4087b9590335335dca1b0d7c2cfd83e03d50cd10a5",
			r: provider.Request{Method: "POST", Path: "/v1/payments?expand=a&expand=b", ContentType: "application/json; charset=utf-8", Body: []byte("{ \"order\" : {\"b\":[1, 2.50,1e3],\"a\":null},\n\"live\":true }\n")},
		},
		{
			name: "json, not ASCII", want: "562f6a34c04da4ab05920d9e39374001cdd83472af3df88c5e49c26eed5f9687",
			r: provider.Request{Method: "PUT", Path: "/payments/%C3%A4", ContentType: asJSON, Body: []byte(`{"name":"Müller \u00fc 支付 😀","ключ":"з"}`)},
		},
		{
			name: "json, big numbers", want: "aa8c81484b2423b34963e5efc8df65bae675c8d5f5976bb2c5526ca858acf4aa",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{"amount":123456789012345678901234567890,"rate":0.1000000000000000055511151231257827,"e":-1E+400}`)},
		},
		{
			name: "json, a list", want: "e0c596c86d397c31961e1a205de8842c9fcaa84671db32cdd35aa827b37aa530",
			r: provider.Request{Method: "PATCH", Path: "/batch", ContentType: asJSON, Body: []byte(`[{"amount":1},{"amount":2}]`)},
		},
		{
			name: "json, volatile", volatile: []string{"at", "x-shop-trace"}, want: "82aa5e862aa55fbae0ea1aee379df16ffac43f97699dcde2ffa23f34fe000e8d",
			r: provider.Request{
				Method: "POST", Path: "/payments?at=1", ContentType: asJSON, Body: []byte(`{"amount":1999,"at":"2026-01-01"}`),
				Header: []zabor.HeaderField{{Name: "X-Shop-Trace", Value: "7"}},
			},
		},
		{
			name: "json, a card", unkept: true, want: "a98b5c1ca2b6e4bbc10e1007814f790ca342c3db09feb85adf9dbca90f774808",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{"amount":1999,"card":{"number":"4242424242424242","cvc":"123"}}`)},
		},
		{
			name: "json, as a form", want: "43741dda3120189bac4cc92e615457bf698ad8683b0e1c56081bb112e4f9e401",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asForm, Body: []byte(`{"amount":1999}`)},
		},
		{
			name: "form", want: "c2081603093be5d710adc88552f7f79f5dd774c6bf754dc6e95ef55381f6a71d",
			r: provider.Request{Method: "POST", Path: "/v1/payment_intents", ContentType: asForm, Body: []byte("amount=1999&currency=eur&metadata[order]=10%2001&item=a&item=b&empty=")},
		},
		{
			name: "form, not ASCII", want: "bd91d3c586a0d3aca37af0e25f5321e54eb85264d93e2a3559f0f6d86921b7ea",
			r: provider.Request{Method: "POST", Path: "/v1/payment_intents", ContentType: asForm + ";charset=UTF-8", Body: []byte("name=M%C3%BCller+%F0%9F%98%80&raw=ä")},
		},
		{
			name: "multipart", unkept: true, want: "3acc314fecd6b9eb14dcdb50011d051b7cbe49a3423907b14e0a77bbfac29bc0",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: "multipart/form-data; boundary=b0", Body: []byte(multipart)},
		},
		{
			name: "text", unkept: true, want: "d134164a2b991b49f7e32be75e51a8ede203bc2d9f3abe7d150244f371561f29",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: "text/plain", Body: []byte("amount=1999")},
		},
		{
			name: "bytes", unkept: true, want: "982a8bb8309252b3c17eb232a759c4802a4cb6b476ddc82b04bc2affee8f9a78",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: "application/octet-stream", Body: []byte("\x00\xff\xfe")},
		},
		{name: "empty", r: provider.Request{Method: "DELETE", Path: "/payments/pay_1"}, want: "4af021cc49aab663d20cf32095cf0ee36e5dc5b6c8987bf2812eeccc57ad2f15"},
		{
			name: "header fields", want: "539e726072116eed996b95cf34a78c0cd17deef6a8433ac513eb1857b50ca2b4",
			r: provider.Request{
				Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{}`),
				Header: []zabor.HeaderField{{Name: "Accept", Value: "a"}, {Name: "Accept", Value: "b"}, {Name: "Adyen-Library-Version", Value: "1"}, {Name: "Stripe-Account", Value: "acct_ä"}},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Print("acquirer", "acct", tt.r.Open(), tt.volatile, func(field string) bool { return field != "Adyen-Library-Version" })
			if got.Fingerprint != tt.want || got.Unkept != tt.unkept {
				t.Errorf("got %q, unkept %v; want %q, unkept %v", got.Fingerprint, got.Unkept, tt.want, tt.unkept)
			}
		})
	}
}

// So do those of messages.
func TestAMessagesFingerprintsAreWhatRowsHave(t *testing.T) {
	t.Parallel()
	const message, request = "6a4beb77df671fac7159c5fd380c51de7331b12ed0a35d3f6afab5e47f334529", "1a51c0594f4b13d5eb98e7c0544fa60c63bf41d7c2e1ae0166f3ae39f172ead5"
	e := effect(t, fingerprinted(t), Message{Data: wire()})
	if e.Fingerprint.Message != message || e.Fingerprint.Request != request {
		t.Errorf("got %q and %q, want %q and %q", e.Fingerprint.Message, e.Fingerprint.Request, message, request)
	}
}
