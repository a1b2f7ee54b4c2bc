package provider

import (
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"zabor"
)

// accounts are credentials of a form that each provider takes.
func (b Builtin) forTest(t testing.TB) Profile {
	t.Helper()
	account := ""
	if b.Account != "" {
		account = "acc-1"
	}
	p, err := b.Profile(account, "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every file is a profile that can be used, or says why not; every setting in it
// says why it is so.
func TestBuiltins(t *testing.T) {
	all := Builtins()
	if len(all) != 14 {
		t.Errorf("%d providers are known", len(all))
	}
	for _, b := range all {
		if b.Title == "" || b.Covers == "" || len(b.Why) == 0 {
			t.Errorf("%s: title, covers and why are not all there", b.Name)
		}
		if b.Uncallable != "" {
			if _, err := b.Profile("a", "s3cret"); err == nil || !strings.Contains(err.Error(), b.Uncallable) {
				t.Errorf("%s: %v", b.Name, err)
			}
			continue
		}
		pr := mustNew(t, b.forTest(t), Options{})
		if pr.ReplayFor() > 0 && pr.ReplayFor() > b.Base.Key.Life-2*pr.Timeout() {
			t.Errorf("%s: replayed for %s of a key's life of %s", b.Name, pr.ReplayFor(), b.Base.Key.Life)
		}
		if got := strings.Join(slices.Collect(maps.Values(b.forTest(t).Headers)), " "); !strings.Contains(got, "s3cret") && (b.Auth == AuthBearer || b.Auth == AuthHeader) {
			t.Errorf("%s: the secret is in none of the headers", b.Name)
		}
		data, err := os.ReadFile(filepath.Join("profiles", b.Name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var raw struct{ Profile map[string]any }
		if err := yaml.Unmarshal(data, &raw); err != nil {
			t.Fatal(err)
		}
		for _, name := range append(slices.Sorted(maps.Keys(raw.Profile)), "auth", "lookup", "list") {
			if b.Why[name] == "" {
				t.Errorf("%s: nothing says why %s is so", b.Name, name)
			}
		}
		for _, page := range []string{b.Console.URL, b.Console.Test} {
			if found, err := url.Parse(b.Console.Find("a b&c", "acc-1", page == b.Console.Test)); err != nil || page != "" && (found.Scheme != "https" || strings.ContainsAny(found.String(), "{} ")) {
				t.Errorf("%s: the console is at %s, %v", b.Name, found, err)
			}
		}
		if b.Console.URL != "" && (b.Why["console"] == "" || b.Console.How == "" || len(b.Console.Terms) == 0) {
			t.Errorf("%s: nothing says why the console is so, or what it finds anything by", b.Name)
		}
		for _, term := range b.Console.Terms {
			if name, _ := term.of(zabor.Row{}); term.By == "" || name == "" || strings.Count(term.Type, "{") != 1 {
				t.Errorf("%s: the search term %+v is not one of the row's", b.Name, term)
			}
			if _, err := parsePointer(term.In); term.In != "" && err != nil {
				t.Errorf("%s: the search term %+v: %v", b.Name, term, err)
			}
		}
		for name := range b.Why {
			if _, ok := raw.Profile[name]; !ok && name != "auth" && name != "lookup" && name != "list" && name != "console" {
				t.Errorf("%s: why %s, and there is none", b.Name, name)
			}
		}
	}
}

func TestBuiltinProfile(t *testing.T) {
	for _, tt := range []struct {
		name, account, secret string
		header, value, base   string
		test                  bool
		err                   string
	}{
		{"stripe", "", "sk_live_1", "Authorization", "Bearer sk_live_1", "https://api.stripe.com", false, ""},
		{"stripe", "", "sk_test_1", "Authorization", "Bearer sk_test_1", "https://api.stripe.com", true, ""},
		{"stripe", "", "", "", "", "", false, "secret: missing"},
		{"stripe", "", "sk_live_1\n", "", "", "", false, "newline"},
		{"yookassa", "100500", "live_x", "Authorization", "Basic MTAwNTAwOmxpdmVfeA==", "https://api.yookassa.ru/v3", false, ""},
		{"yookassa", "", "live_x", "", "", "", false, "account: missing; write the shop id"},
		{"yookassa", "a:b", "live_x", "", "", "", false, "colon"},
		{"adyen", "1797a841-Shop", "AQE1", "X-API-Key", "AQE1", "https://1797a841-Shop-checkout-live.adyenpayments.com/checkout/v72", false, ""},
		{"adyen", "test", "AQE1", "X-API-Key", "AQE1", "https://checkout-test.adyen.com/v72", true, ""},
		{"adyen", "evil.example/", "AQE1", "", "", "", false, "host's name"},
		{"checkout", "", "sk_sbox_1", "Authorization", "Bearer sk_sbox_1", "https://api.sandbox.checkout.com", true, ""},
		{"razorpay", "rzp_test_1", "x", "Authorization", "Basic cnpwX3Rlc3RfMTp4", "https://api.razorpay.com", true, ""},
		{"square", "sandbox", "EAAA", "Authorization", "Bearer EAAA", "https://connect.squareupsandbox.com", true, ""},
		{"paypal", "sandbox:A1", "x", "", "", "https://api-m.sandbox.paypal.com", true, ""},
		{"paypal", "A1", "x", "", "", "https://api-m.paypal.com", false, ""},
		{"worldpay", "try:u", "p", "Authorization", "Basic dTpw", "https://try.access.worldpay.com", true, ""},
		{"tbank", "1DEMO", "p", "", "", "https://securepay.tinkoff.ru/v2", true, ""},
		{"braintree", "", "x", "", "", "", false, "profile: Braintree is known and cannot be called"},
	} {
		b, ok := BuiltinNamed(tt.name)
		if !ok {
			t.Fatalf("no %s", tt.name)
		}
		p, err := b.Profile(tt.account, tt.secret)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || tt.secret != "" && strings.Contains(err.Error(), tt.secret) {
				t.Errorf("%s: error %v, want %s", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil || p.Headers[tt.header] != tt.value || p.BaseURL != tt.base || b.IsTest(tt.account, tt.secret) != tt.test {
			t.Errorf("%s: %q at %s, %v, want %q at %s", tt.name, p.Headers[tt.header], p.BaseURL, err, tt.value, tt.base)
		}
	}
	if _, ok := BuiltinNamed("nobody"); ok {
		t.Error("there is a profile nobody")
	}
}

// capture is PayPal's answer with an order and its capture in these states.
func capture(order, capture string) string {
	return `{"id":"o1","status":"` + order + `","purchase_units":[{"payments":{"captures":[{"id":"c1","status":"` + capture + `","amount":{"value":"19.99","currency_code":"EUR"}}]}}]}`
}

// What the providers' answers prove, in their own words.
func TestBuiltinAnswers(t *testing.T) {
	header := func(kv ...string) map[string][]string {
		h := map[string][]string{}
		for i := 0; i < len(kv); i += 2 {
			h[kv[i]] = []string{kv[i+1]}
		}
		return h
	}
	for _, tt := range []struct {
		provider, name string
		status         int
		body           string
		header         map[string][]string
		want           zabor.Verdict
		ref            string
	}{
		{"stripe", "succeeded", 200, `{"id":"pi_1","status":"succeeded","amount":1999,"currency":"eur"}`, nil, zabor.Done, "pi_1"},
		{"stripe", "held on the card", 200, `{"id":"pi_1","status":"requires_capture","amount":1999,"currency":"eur"}`, nil, zabor.Done, "pi_1"},
		{"stripe", "3-D Secure", 200, `{"id":"pi_1","status":"requires_action","amount":1999,"currency":"eur"}`, nil, zabor.Begun, "pi_1"},
		{"stripe", "not confirmed", 200, `{"id":"pi_1","status":"requires_confirmation","amount":1999,"currency":"eur"}`, nil, zabor.Unproven, ""},
		{"stripe", "declined", 402, `{"error":{"type":"card_error","code":"card_declined","payment_intent":{"id":"pi_1","status":"requires_payment_method"}}}`, nil, zabor.Refused, ""},
		{"stripe", "declined, looked at", 200, `{"id":"pi_1","status":"requires_payment_method","last_payment_error":{"type":"card_error"},"amount":1999,"currency":"eur"}`, nil, zabor.Refused, ""},
		{"stripe", "another 402", 402, `{"error":{"type":"api_error"}}`, nil, zabor.Unproven, ""},
		{"stripe", "a parameter", 400, `{"error":{"type":"invalid_request_error","code":"parameter_missing","param":"amount"}}`, nil, zabor.Malformed, ""},
		{"stripe", "another 400", 400, `{"error":{"type":"invalid_request_error","code":"something_new"}}`, nil, zabor.Unproven, ""},
		{"stripe", "the key was used for another", 400, `{"error":{"type":"idempotency_error","code":"parameter_missing"}}`, nil, zabor.Unproven, ""},
		{"stripe", "already confirmed", 400, `{"error":{"type":"invalid_request_error","code":"payment_intent_unexpected_state"}}`, nil, zabor.Unproven, ""},
		{"stripe", "first is running", 409, `{"error":{"type":"idempotency_error","code":"idempotency_key_in_use"}}`, nil, zabor.Unproven, ""},
		{"stripe", "a bad key to the account", 401, `{"error":{"type":"invalid_request_error"}}`, nil, zabor.TurnedAway, ""},
		{"stripe", "too many", 429, `{"error":{"type":"invalid_request_error","code":"rate_limit"}}`, nil, zabor.TurnedAway, ""},
		{"stripe", "500", 500, `{"error":{"type":"api_error"}}`, nil, zabor.Unproven, ""},
		{"stripe", "replayed, and ours", 200, `{"id":"pi_1","status":"succeeded","amount":1999,"currency":"eur","metadata":{"zabor_key":"abcdefghijklmnopqrstuvwxyz"}}`, header("Idempotent-Replayed", "true"), zabor.Done, "pi_1"},
		{"stripe", "replayed, and another's", 200, `{"id":"pi_1","status":"succeeded","amount":1999,"currency":"eur","metadata":{"zabor_key":"other"}}`, header("Idempotent-Replayed", "true"), zabor.Unproven, ""},
		{"stripe", "replayed, whose is not known", 200, `{"id":"pi_1","status":"succeeded","amount":1999,"currency":"eur","metadata":{}}`, header("Idempotent-Replayed", "true"), zabor.Unproven, ""},

		{"yookassa", "succeeded", 200, `{"id":"2d0c","status":"succeeded","paid":true,"amount":{"value":"19.99","currency":"EUR"}}`, nil, zabor.Done, "2d0c"},
		{"yookassa", "another amount", 200, `{"id":"2d0c","status":"succeeded","amount":{"value":"199.90","currency":"EUR"}}`, nil, zabor.Unproven, ""},
		{"yookassa", "canceled", 200, `{"id":"2d0c","status":"canceled","amount":{"value":"19.99","currency":"EUR"},"cancellation_details":{"reason":"insufficient_funds"}}`, nil, zabor.Refused, ""},
		{"yookassa", "pending", 200, `{"id":"2d0c","status":"pending","amount":{"value":"19.99","currency":"EUR"}}`, nil, zabor.Begun, "2d0c"},
		{"yookassa", "still working", 202, `{"type":"processing","retry_after":1800}`, nil, zabor.Unproven, ""},
		{"yookassa", "form", 400, `{"type":"error","code":"invalid_request","parameter":"amount.value"}`, nil, zabor.Malformed, ""},
		{"yookassa", "the key was used for another", 400, `{"type":"error","code":"invalid_request","parameter":"Idempotence-Key","description":"Idempotence key duplicated"}`, nil, zabor.Unproven, ""},
		{"yookassa", "500", 500, `{"type":"error","code":"internal_server_error"}`, nil, zabor.Unproven, ""},

		{"mollie", "paid", 201, `{"id":"tr_1","status":"paid","amount":{"value":"19.99","currency":"EUR"}}`, nil, zabor.Done, "tr_1"},
		{"mollie", "pending", 201, `{"id":"tr_1","status":"pending","amount":{"value":"19.99","currency":"EUR"}}`, nil, zabor.Begun, "tr_1"},
		{"mollie", "failed", 201, `{"id":"tr_1","status":"failed","amount":{"value":"19.99","currency":"EUR"}}`, nil, zabor.Refused, ""},
		{"mollie", "form", 422, `{"status":422,"title":"Unprocessable Entity","field":"amount"}`, nil, zabor.Malformed, ""},
		{"mollie", "another request under the key", 400, `{"status":400,"title":"Bad Request"}`, nil, zabor.Unproven, ""},

		{"adyen", "authorised", 200, `{"pspReference":"P1","resultCode":"Authorised","amount":{"value":1999,"currency":"EUR"}}`, nil, zabor.Done, "P1"},
		{"adyen", "authorised, no amount", 200, `{"pspReference":"P1","resultCode":"Authorised"}`, nil, zabor.Done, "P1"},
		{"adyen", "partially", 200, `{"pspReference":"P1","resultCode":"PartiallyAuthorised"}`, nil, zabor.Unproven, ""},
		{"adyen", "refused", 200, `{"pspReference":"P1","resultCode":"Refused"}`, nil, zabor.Refused, ""},
		{"adyen", "transient", 503, `{"errorCode":"703"}`, header("Transient-Error", "true"), zabor.TurnedAway, ""},
		{"adyen", "503", 503, `{"errorCode":"703"}`, header("Transient-Error", "false"), zabor.Unproven, ""},
		{"adyen", "in progress or done", 422, `{"errorCode":"704","errorType":"validation"}`, nil, zabor.Unproven, ""},
		{"adyen", "form", 422, `{"errorCode":"130","errorType":"validation"}`, nil, zabor.Malformed, ""},

		{"square", "completed", 200, `{"payment":{"id":"p1","status":"COMPLETED","amount_money":{"amount":1999,"currency":"EUR"}}}`, nil, zabor.Done, "p1"},
		{"square", "declined", 400, `{"errors":[{"category":"PAYMENT_METHOD_ERROR","code":"CARD_DECLINED"}]}`, nil, zabor.Refused, ""},
		{"square", "the key was used for another", 400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`, nil, zabor.Unproven, ""},
		{"square", "form", 400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"MISSING_REQUIRED_PARAMETER"}]}`, nil, zabor.Malformed, ""},

		{"checkout", "authorized", 201, `{"id":"pay_1","status":"Authorized","approved":true,"amount":1999,"currency":"EUR"}`, nil, zabor.Done, "pay_1"},
		{"checkout", "declined", 201, `{"id":"pay_1","status":"Declined","approved":false,"amount":1999,"currency":"EUR"}`, nil, zabor.Refused, ""},
		{"checkout", "first is running, old", 429, ``, nil, zabor.Unproven, ""},
		{"checkout", "first is running", 409, ``, nil, zabor.Unproven, ""},

		{"razorpay", "processed", 200, `{"id":"pout_1","status":"processed","amount":1999,"currency":"EUR"}`, nil, zabor.Done, "pout_1"},
		{"razorpay", "failed is not final", 200, `{"id":"pout_1","status":"failed","amount":1999,"currency":"EUR"}`, nil, zabor.Begun, "pout_1"},
		{"razorpay", "400", 400, `{"error":{"code":"BAD_REQUEST_ERROR"}}`, nil, zabor.Unproven, ""},

		{"gocardless", "submitted", 201, `{"payments":{"id":"PM1","status":"pending_submission","amount":1999,"currency":"EUR"}}`, nil, zabor.Begun, "PM1"},
		{"gocardless", "made before", 409, `{"error":{"type":"invalid_state","errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM9"}}]}}`, nil, zabor.Begun, "PM9"},
		{"gocardless", "another 409", 409, `{"error":{"type":"invalid_state"}}`, nil, zabor.Unproven, ""},
		{"gocardless", "form", 422, `{"error":{"type":"validation_failed"}}`, nil, zabor.Malformed, ""},

		{"paystack", "success", 200, `{"status":true,"data":{"id":7,"status":"success","reference":"abcdefghijklmnopqrstuvwxyz","amount":1999,"currency":"EUR"}}`, nil, zabor.Done, "7"},
		{"paystack", "another's", 200, `{"status":true,"data":{"id":7,"status":"success","reference":"other","amount":1999,"currency":"EUR"}}`, nil, zabor.Unproven, ""},
		{"paystack", "duplicate", 400, `{"status":false,"message":"Duplicate Transaction Reference","code":"duplicate_reference","type":"validation_error"}`, nil, zabor.Unproven, ""},
		{"paystack", "failed", 200, `{"status":true,"data":{"id":7,"status":"failed","amount":1999,"currency":"EUR"}}`, nil, zabor.Refused, ""},

		{"paypal", "captured", 201, capture("COMPLETED", "COMPLETED"), nil, zabor.Done, "c1"},
		{"paypal", "the order is complete, its capture is not", 201, capture("COMPLETED", "PENDING"), nil, zabor.Begun, "c1"},
		{"paypal", "the capture was declined", 201, capture("COMPLETED", "DECLINED"), nil, zabor.Refused, ""},
		{"paypal", "captured, whatever the order says", 200, capture("APPROVED", "COMPLETED"), nil, zabor.Done, "c1"},
		{"paypal", "another amount", 201, strings.Replace(capture("COMPLETED", "COMPLETED"), "19.99", "5.00", 1), nil, zabor.Unproven, ""},
		{"paypal", "minimal", 201, `{"id":"o1","status":"COMPLETED"}`, nil, zabor.Unproven, ""},
		{"paypal", "not captured", 200, `{"id":"o1","status":"APPROVED","purchase_units":[{}]}`, nil, zabor.Unproven, ""},
		{"paypal", "declined", 422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"INSTRUMENT_DECLINED"}]}`, nil, zabor.Refused, ""},
		{"paypal", "captured before", 422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"ORDER_ALREADY_CAPTURED"}]}`, nil, zabor.Unproven, ""},
		{"paypal", "an invoice that is known", 422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"DUPLICATE_INVOICE_ID"}]}`, nil, zabor.Unproven, ""},
		{"paypal", "another 422", 422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"SOMETHING_NEW"}]}`, nil, zabor.Unproven, ""},
		{"paypal", "first is running", 409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, nil, zabor.Unproven, ""},
		{"paypal", "form", 400, `{"name":"INVALID_REQUEST","details":[{"issue":"MISSING_REQUIRED_PARAMETER"}]}`, nil, zabor.Malformed, ""},

		{"tbank", "confirmed", 200, `{"Success":true,"ErrorCode":"0","Status":"CONFIRMED","PaymentId":77,"Amount":1999}`, nil, zabor.Done, "77"},
		{"tbank", "held on the card", 200, `{"Success":true,"ErrorCode":"0","Status":"AUTHORIZED","PaymentId":"77","Amount":1999}`, nil, zabor.Done, "77"},
		{"tbank", "another amount", 200, `{"Success":true,"ErrorCode":"0","Status":"CONFIRMED","PaymentId":"77","Amount":5}`, nil, zabor.Unproven, ""},
		{"tbank", "3-D Secure", 200, `{"Success":true,"ErrorCode":"0","Status":"3DS_CHECKING","PaymentId":"77","Amount":1999}`, nil, zabor.Begun, "77"},
		{"tbank", "rejected", 200, `{"Success":false,"ErrorCode":"1051","Status":"REJECTED","PaymentId":"77","Amount":1999}`, nil, zabor.Refused, ""},
		{"tbank", "not, and not why", 200, `{"Success":false,"ErrorCode":"9999","Message":"x"}`, nil, zabor.Unproven, ""},
		{"tbank", "not, and yet confirmed", 200, `{"Success":false,"ErrorCode":"9","Status":"CONFIRMED","PaymentId":"77","Amount":1999}`, nil, zabor.Unproven, ""},
		{"tbank", "nothing begun", 200, `{"Success":true,"ErrorCode":"0","Status":"NEW","PaymentId":"77","Amount":1999}`, nil, zabor.Unproven, ""},
		{"tbank", "taken back", 200, `{"Success":true,"ErrorCode":"0","Status":"REVERSED","PaymentId":"77","Amount":1999}`, nil, zabor.Unproven, ""},

		{"worldpay", "authorized", 201, `{"outcome":"authorized","paymentId":"pay1","transactionReference":"abcdefghijklmnopqrstuvwxyz"}`, nil, zabor.Done, "pay1"},
		{"worldpay", "refused", 201, `{"outcome":"refused","paymentId":"pay1"}`, nil, zabor.Refused, ""},
		{"worldpay", "3-D Secure", 201, `{"outcome":"3dsChallenged","transactionReference":"x"}`, nil, zabor.Unproven, ""},
		{"worldpay", "no reference", 201, `{"outcome":"authorized"}`, nil, zabor.Unproven, ""},
		{"worldpay", "form", 400, `{"errorName":"bodyDoesNotMatchSchema"}`, nil, zabor.Malformed, ""},

		{"cloudpayments", "completed", 200, `{"Success":true,"Model":{"TransactionId":7,"Status":"Completed","Amount":19.99,"Currency":"EUR"}}`, nil, zabor.Done, "7"},
		{"cloudpayments", "declined", 200, `{"Success":false,"Model":{"TransactionId":7,"Status":"Declined","ReasonCode":5051,"Amount":19.99,"Currency":"EUR"}}`, nil, zabor.Refused, ""},
		{"cloudpayments", "3-D Secure", 200, `{"Success":false,"Model":{"TransactionId":7,"PaReq":"x","AcsUrl":"https://acs"}}`, nil, zabor.Unproven, ""},
		{"cloudpayments", "a message alone", 200, `{"Success":false,"Message":"Amount is required"}`, nil, zabor.Unproven, ""},
	} {
		b, _ := BuiltinNamed(tt.provider)
		got := mustNew(t, b.forTest(t), Options{}).judge(answer{status: tt.status, body: []byte(tt.body), header: tt.header}, testRow(t), false)
		if got.Verdict != tt.want || got.Reference != tt.ref {
			t.Errorf("%s, %s: %s %q (%s), want %s %q", tt.provider, tt.name, got.Verdict, got.Reference, got.Reason, tt.want, tt.ref)
		}
	}
}

// Minor units that are not those of ISO 4217 are written, read, and demanded in
// what is sent.
func TestExponents(t *testing.T) {
	x := Exponents{"ISK": 2, "MGA": 0, "KWD": 2}
	for _, tt := range []struct {
		m    zabor.Money
		want int64
		ok   bool
	}{
		{zabor.Money{Minor: 1999, Currency: "EUR"}, 1999, true}, {zabor.Money{Minor: 1999, Currency: "ISK"}, 199900, true},
		{zabor.Money{Minor: 1900, Currency: "MGA"}, 19, true}, {zabor.Money{Minor: 1999, Currency: "MGA"}, 0, false},
		{zabor.Money{Minor: 1230, Currency: "KWD"}, 123, true}, {zabor.Money{Minor: 1 << 62, Currency: "ISK"}, 0, false},
	} {
		got, err := x.minor(tt.m)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%v: %d, %v, want %d", tt.m, got, err, tt.want)
		}
	}
	if got, err := x.parse("199900", "ISK"); got != 1999 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := x.parse("199901", "ISK"); err == nil {
		t.Errorf("half a króna was read as %d", got)
	}

	profile := testProfile("http://127.0.0.1:1")
	profile.Exponents = x
	pr := mustNew(t, profile, Options{})
	row := testRow(t)
	row.Amount.Currency = "ISK" // the request says 1999
	if got := pr.Call(t.Context(), row); got.Verdict != zabor.Malformed || !strings.Contains(got.Reason, "199900") {
		t.Errorf("%+v", got)
	}
	template, err := NewTemplate(RequestSpec{Path: "/x", JSON: map[string]any{"amount": "{{minor}}"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := template.Render(Vars{Money: row.Amount, Exponents: x})
	if err != nil || string(r.Body) != `{"amount":199900}` || pr.sameUnits(r, row) != nil {
		t.Errorf("%s, %v", r.Body, err)
	}
	if _, err := template.Render(Vars{Money: zabor.Money{Minor: 1999, Currency: "MGA"}, Exponents: x}); err == nil || !strings.Contains(err.Error(), "fraction") {
		t.Errorf("error %v", err)
	}
}

func TestKeyPlaces(t *testing.T) {
	for _, tt := range []struct{ body, want, err string }{
		{`{"a":1}`, `{"key":"k","a":1}`, ""}, {` {}`, `{"key":"k"}`, ""}, {`{"key":"k"}`, `{"key":"k"}`, ""},
		{`{"key":"other"}`, "", "another one"}, {`[1]`, "", "JSON object"}, {``, "", "JSON object"},
	} {
		got, err := withField([]byte(tt.body), "key", "k")
		if string(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %s, %v", tt.body, got, err)
		}
	}
	profile := testProfile("http://127.0.0.1:1")
	profile.Key = Key{Header: "Idempotency-Key", UUID: true}
	req, err := mustNew(t, profile, Options{}).keyed(t.Context(), Request{Method: "POST", Path: "/x"}, "abcdefghijklmnopqrstuvwxyz")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := zabor.UUIDFromProviderKey("abcdefghijklmnopqrstuvwxyz")
	if got := req.Header.Get("Idempotency-Key"); got != want || len(got) != 36 {
		t.Errorf("%q, want %q", got, want)
	}
	_, err = mustNew(t, profile, Options{}).send(t.Context(), Request{Method: "POST", Path: "/x"}, "not base32!")
	if _, unsent := errors.AsType[unsentError](err); !unsent {
		t.Errorf("error %v", err)
	}
}

// Silence of a look-up that could not have found the request proves nothing.
func TestAbsenceOfWhatCannotBeFound(t *testing.T) {
	b, _ := BuiltinNamed("stripe")
	pr := mustNew(t, b.forTest(t), Options{})
	for _, tt := range []struct {
		path, body string
		want       bool
	}{
		{"/v1/payment_intents", "metadata%5Bzabor_key%5D=abcdefghijklmnopqrstuvwxyz", true},
		{"/v1/payment_intents", "amount=1", false},
		{"/v1/refunds", "metadata%5Bzabor_key%5D=abcdefghijklmnopqrstuvwxyz", false},
	} {
		row := testRow(t)
		var err error
		if row.Open.Request, err = Freeze(Request{Method: "POST", Path: tt.path, ContentType: "application/x-www-form-urlencoded", Body: []byte(tt.body)}); err != nil {
			t.Fatal(err)
		}
		if got := pr.absent(row); got.Absent != tt.want {
			t.Errorf("%s %s: %+v", tt.path, tt.body, got)
		}
	}
}
