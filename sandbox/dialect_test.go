package sandbox

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// send posts a body to a path under a key in the given header.
func send(t *testing.T, url, header, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody, req.Close = nil, true
	req.Header.Set("Content-Type", "application/json")
	if !strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set(header, key)
	return do(req)
}

// expect demands a status and texts in the body.
func expect(t *testing.T, what string, status int, body string, want int, texts ...string) {
	t.Helper()
	if status != want {
		t.Errorf("%s: %d %s, want %d", what, status, body, want)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%s: %s, want %s in it", what, body, text)
		}
	}
}

// An intent moves nothing until it is confirmed, and then once.
func TestIntents(t *testing.T) {
	s, base := start(t, Options{})
	const key = "Idempotency-Key"
	status, text := send(t, base+"/intents", key, "p", body)
	expect(t, "make", status, text, 201, `"id":"pay_1"`, `"status":"prepared"`)
	status, text = send(t, base+"/intents", key, "p", body)
	expect(t, "make again", status, text, 201, `"id":"pay_1"`)
	if got := s.Stats(); got.Charges != 0 || got.Replays != 1 {
		t.Errorf("stats %+v", got)
	}
	status, text = send(t, base+"/intents/pay_2/confirm", key, "c", "")
	expect(t, "confirm what is not there", status, text, 404)
	status, text = send(t, base+"/intents/pay_1/confirm", key, "c", "")
	expect(t, "confirm", status, text, 201, `"status":"paid"`)
	status, text = send(t, base+"/intents/pay_1/confirm", key, "c", "")
	expect(t, "confirm again", status, text, 201, `"status":"paid"`)
	status, text = send(t, base+"/intents/pay_1/confirm", key, "other", "")
	expect(t, "confirm under another key", status, text, 400, unexpectedState)
	status, text = get(t, base+"/intents/pay_1")
	expect(t, "get", status, text, 200, `"status":"paid"`)
	send(t, base+"/intents", key, "p2", body)
	status, text = send(t, base+"/intents/pay_2/confirm", key, "c", "")
	expect(t, "another under the key", status, text, 422, keyMismatch)
	got := s.Stats()
	if got.Charges != 1 || got.Orders["1001"] != 1 || got.Mismatches != 1 {
		t.Errorf("stats %+v", got)
	}
	for _, name := range []string{"1001", "c"} {
		if c := s.Charges(name); len(c) != 1 || c[0].ID != "pay_1" || c[0].Key != "c" {
			t.Errorf("charges of %s: %+v", name, c)
		}
	}
}

// A provider without idempotency makes a new intent each time, and still confirms
// each once.
func TestIntentsWithoutKeys(t *testing.T) {
	s, base := start(t, Options{IgnoreKeys: true})
	const key = "Idempotency-Key"
	for _, id := range []string{"pay_1", "pay_2"} {
		status, text := send(t, base+"/intents", key, "p", body)
		expect(t, "make", status, text, 201, id)
	}
	for i, want := range []int{201, 400} {
		status, text := send(t, base+"/intents/pay_2/confirm", key, "c", "")
		expect(t, "confirm", status, text, want)
		if got := s.Stats().Charges; got != 1 {
			t.Errorf("%d charges after %d confirmations", got, i+1)
		}
	}
}

func TestFaultsOfAConfirmation(t *testing.T) {
	s, base := start(t, Options{})
	send(t, base+"/intents", "Idempotency-Key", "p", body)
	if err := s.Plan(Fault{Kind: Close, Order: "1001"}, Fault{Kind: ActStatus, Status: 502}); err != nil {
		t.Fatal(err)
	}
	if status, text := send(t, base+"/intents/pay_1/confirm", "Idempotency-Key", "c", ""); status != 0 {
		t.Errorf("%d %s", status, text)
	}
	if s.Stats().Charges != 0 {
		t.Error("a fault that does nothing has charged")
	}
	status, text := send(t, base+"/intents/pay_1/confirm", "Idempotency-Key", "c", "")
	expect(t, "acts", status, text, 502)
	if s.Stats().Charges != 1 {
		t.Error("a fault that acts has not charged")
	}
}

func TestStripe(t *testing.T) {
	s, base := start(t, Options{LookupLag: time.Minute})
	now := time.Now()
	s.now = func() time.Time { return now }
	const key, form = "Idempotency-Key", "amount=1999&currency=eur&metadata[order]=1001&metadata[zabor_key]=abc"
	intents := base + "/stripe/v1/payment_intents"
	status, text := send(t, intents, key, "p", form)
	expect(t, "make", status, text, 200, `"id":"pi_1"`, `"status":"requires_confirmation"`, `"currency":"eur"`, `"zabor_key":"abc"`)
	status, text = send(t, intents, key, "p", form+"&amount=2000")
	expect(t, "make again with the first value", status, text, 200, `"id":"pi_1"`)
	status, text = send(t, intents, key, "p", "amount=5&currency=eur")
	expect(t, "another under the key", status, text, 400, "idempotency_error")
	status, text = send(t, intents, key, "x", "amount=x&currency=eur")
	expect(t, "form", status, text, 400, "invalid_request_error", "parameter_invalid_integer")
	if err := s.Plan(Fault{Kind: Declined}); err != nil {
		t.Fatal(err)
	}
	status, text = send(t, intents+"/pi_1/confirm", key, "c", "off_session=true")
	expect(t, "decline", status, text, 402, "card_error", `"status":"requires_payment_method"`)
	status, text = get(t, intents+"/pi_1")
	expect(t, "look", status, text, 200, "last_payment_error", `"card_error"`)
	status, text = send(t, intents, key, "q", form+"&confirm=true")
	expect(t, "at once", status, text, 200, `"id":"pi_2"`, `"status":"succeeded"`)
	search := intents + "/search?query=metadata%5B'zabor_key'%5D:'abc'&limit=100"
	status, text = get(t, search)
	expect(t, "search too soon", status, text, 200, `"data":[]`)
	now = now.Add(time.Hour)
	status, text = get(t, search)
	expect(t, "search", status, text, 200, "pi_1", "pi_2")
	status, text = get(t, intents+"/search?query=customer:'x'")
	expect(t, "another search", status, text, 400)
	status, _ = get(t, base+"/stripe/v1/payment_intents/pay_1")
	expect(t, "another provider's id", status, "", 404)
}

func TestYooKassa(t *testing.T) {
	s, base := start(t, Options{})
	const key, asked = "Idempotence-Key", `{"amount":{"value":"19.99","currency":"RUB"},"metadata":{"order":"1001"}}`
	status, text := send(t, base+"/yookassa/payments", key, "k", asked)
	expect(t, "make", status, text, 200, `"status":"succeeded"`, `"paid":true`, `"value":"19.99"`)
	id := s.Charges("1001")[0].ID
	status, text = get(t, base+"/yookassa/payments/"+id)
	expect(t, "look", status, text, 200, id)
	status, text = send(t, base+"/yookassa/payments", key, "k", strings.Replace(asked, "19.99", "5.00", 1))
	expect(t, "another under the key", status, text, 400, `"parameter":"Idempotence-Key"`)
	status, text = send(t, base+"/yookassa/payments", key, "x", `{"amount":{"value":"19.999","currency":"RUB"}}`)
	expect(t, "form", status, text, 400, `"code":"invalid_request"`)
	if err := s.Plan(Fault{Kind: Declined}, Fault{Kind: Status, Status: 500}); err != nil {
		t.Fatal(err)
	}
	status, text = send(t, base+"/yookassa/payments", key, "d", asked)
	expect(t, "decline", status, text, 200, `"status":"canceled"`, "cancellation_details")
	status, text = send(t, base+"/yookassa/payments", key, "e", asked)
	expect(t, "500", status, text, 500, "internal_server_error")
	if got := s.Stats(); got.Charges != 1 || got.Declined != 1 {
		t.Errorf("stats %+v", got)
	}
}
