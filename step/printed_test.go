package step

import (
	"strings"
	"testing"

	"zabor"
	"zabor/provider"
)

// Fingerprints stay in rows for good: another one for the same request would turn
// every repeat of an order that was paid before a deployment into «another
// request». So these values are never changed; who must change what a fingerprint
// is made of teaches Printed.Earlier the old way.
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
			name: "json", want: "5805ef4fc0b1e5578d89c47a0fdc9927fb0e6e3767c2201826b85d3961f614f4",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{"amount":1999,"currency":"EUR","order":"1001"}`)},
		},
		{
			name: "json, spaced and nested", want: "8a825d80fbd0eee409db888b053455873ba8e578d0014601dab4338c48c86f86",
			r: provider.Request{Method: "POST", Path: "/v1/payments?expand=a&expand=b", ContentType: "application/json; charset=utf-8", Body: []byte("{ \"order\" : {\"b\":[1, 2.50,1e3],\"a\":null},\n\"live\":true }\n")},
		},
		{
			name: "json, not ASCII", want: "06aec9d44e55a1dbe5dfa2b8a95d84515e561befed19737d807a4dc868f673f7",
			r: provider.Request{Method: "PUT", Path: "/payments/%C3%A4", ContentType: asJSON, Body: []byte(`{"name":"Müller \u00fc 支付 😀","ключ":"з"}`)},
		},
		{
			name: "json, big numbers", want: "eed193fb9a735a37e71b876fdc3b6cc37cd14ac1297f83ac8e60227f297fb162",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{"amount":123456789012345678901234567890,"rate":0.1000000000000000055511151231257827,"e":-1E+400}`)},
		},
		{
			name: "json, a list", want: "99c8181b36fef05a94962781e32a3e0ed18678f1ef202748014166e1505d8d16",
			r: provider.Request{Method: "PATCH", Path: "/batch", ContentType: asJSON, Body: []byte(`[{"amount":1},{"amount":2}]`)},
		},
		{
			name: "json, volatile", volatile: []string{"at", "x-shop-trace"}, want: "ec37d7db29c9e69683e2d2a905daef1255b371bacd9dcde1531c4250fbcd88da",
			r: provider.Request{
				Method: "POST", Path: "/payments?at=1", ContentType: asJSON, Body: []byte(`{"amount":1999,"at":"2026-01-01"}`),
				Header: []zabor.HeaderField{{Name: "X-Shop-Trace", Value: "7"}},
			},
		},
		{
			name: "json, a card", unkept: true, want: "e517891a8295087fb496380dd7a6815d5b9fa452190c9784bd5f4e0f7c2d8ad9",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{"amount":1999,"card":{"number":"4242424242424242","cvc":"123"}}`)},
		},
		{
			name: "json, as a form", want: "14e331e7390a62aa99dfc97d931a8ef31d33279ab5d0a0968c17e5e139fbd9d5",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: asForm, Body: []byte(`{"amount":1999}`)},
		},
		{
			name: "form", want: "38b56ac07d632eba5d03623790d604fe9c782cb4b818bd42ef7a5fdd01cca545",
			r: provider.Request{Method: "POST", Path: "/v1/payment_intents", ContentType: asForm, Body: []byte("amount=1999&currency=eur&metadata[order]=10%2001&item=a&item=b&empty=")},
		},
		{
			name: "form, not ASCII", want: "3ff28d52a5e862b2de4b0b92223bb82b1adce80cbb2d8fb7b06fc6f6ecf5364c",
			r: provider.Request{Method: "POST", Path: "/v1/payment_intents", ContentType: asForm + ";charset=UTF-8", Body: []byte("name=M%C3%BCller+%F0%9F%98%80&raw=ä")},
		},
		{
			name: "multipart", unkept: true, want: "282c797ddc190c31753c3ad74b384fd05b63c7c31db35b84c6af930a51e245c4",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: "multipart/form-data; boundary=b0", Body: []byte(multipart)},
		},
		{
			name: "text", unkept: true, want: "de2130be1e16f492bb6c1afe76153c5829600d948544d83836dc4f0227b6d0f7",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: "text/plain", Body: []byte("amount=1999")},
		},
		{
			name: "bytes", unkept: true, want: "524e3d993fa3a64b3ab83afca801a19cd18aa58b7ea99bc9245e6262af136db0",
			r: provider.Request{Method: "POST", Path: "/payments", ContentType: "application/octet-stream", Body: []byte("\x00\xff\xfe")},
		},
		{name: "empty", r: provider.Request{Method: "DELETE", Path: "/payments/pay_1"}, want: "24b2377aa12a7bf9dd2e2a041524fe97537bb43953a924bf23cafbfacf93175d"},
		{
			name: "header fields", want: "d4d997b1eb5ee2c7e2e3e0aee528ba94a12ff6486be76c3652e1e2316d2c2c8f",
			r: provider.Request{
				Method: "POST", Path: "/payments", ContentType: asJSON, Body: []byte(`{}`),
				Header: []zabor.HeaderField{{Name: "Accept", Value: "a"}, {Name: "Accept", Value: "b"}, {Name: "Adyen-Library-Version", Value: "1"}, {Name: "Stripe-Account", Value: "acct_ä"}},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Print("acquirer", "acct", tt.r.Open(), tt.volatile)
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
