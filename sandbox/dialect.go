package sandbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"zabor"
	"zabor/provider"
)

// dialect is how one provider's payments look from outside.
type dialect struct {
	keyHeader string
	prefix    string           // of ids
	answers   [4]int           // HTTP statuses of what has a status
	mismatch  int              // HTTP status of a key that was used for something else
	object    func(result) any // a payment as it is looked up
	declined  func(result) any // as it is answered where it is refused; nil: as it is looked up
	failure   func(code, message string) any
}

func (d *dialect) id(n int32) string { return fmt.Sprintf("%s%d", d.prefix, n+1) }

// body is r as it is answered to whoever made it.
func (d *dialect) body(r result) []byte {
	if r.status == refused && d.declined != nil {
		return encode(d.declined(r))
	}
	return encode(d.object(r))
}

func (d *dialect) fail(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, encode(d.failure(code, message)))
}

func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // only types of this package
	}
	return out
}

// What a failure can be about, beside invalidRequest.
const (
	keyMismatch     = "idempotency_mismatch"
	unexpectedState = "unexpected_state"
	notFound        = "not_found"
)

// own is the sandbox's own.
var own = dialect{
	prefix:   "pay_",
	mismatch: 422,
	answers:  [...]int{paid: 201, processing: 202, refused: 402, prepared: 201},
	object: func(r result) any {
		return struct {
			ID       string `json:"id"`
			Status   string `json:"status"`
			Amount   int64  `json:"amount"`
			Currency string `json:"currency"`
			Order    string `json:"merchant_reference"`
			Key      string `json:"idempotency_key,omitempty"`
			Created  string `json:"created"`
		}{r.ID, r.status.String(), r.Amount, r.Currency, r.Order, r.Key, r.At.Format(time.RFC3339Nano)}
	},
	failure: func(code, message string) any {
		return map[string]any{"error": map[string]string{"code": code, "message": message}}
	},
}

// What the providers call a status.
var (
	ownNames      = [...]string{paid: "paid", processing: "processing", refused: "refused", prepared: "prepared"}
	stripeNames   = [...]string{paid: "succeeded", processing: "processing", refused: "requires_payment_method", prepared: "requires_confirmation"}
	yookassaNames = [...]string{paid: "succeeded", processing: "pending", refused: "canceled", prepared: "pending"}
)

// stripe is Stripe's API v1 as far as a payment intent needs it.
var stripe = dialect{
	keyHeader: "Idempotency-Key",
	prefix:    "pi_",
	mismatch:  400,
	answers:   [...]int{paid: 200, processing: 200, refused: 402, prepared: 200},
	object:    stripeIntent,
	declined: func(r result) any {
		return map[string]any{"error": map[string]any{"type": "card_error", "code": "card_declined", "payment_intent": stripeIntent(r)}}
	},
	failure: func(code, message string) any {
		kind, known := "invalid_request_error", map[string]string{
			invalidRequest: "parameter_invalid_integer", unexpectedState: "payment_intent_unexpected_state", notFound: "resource_missing",
		}[code]
		switch code {
		case keyMismatch:
			kind = "idempotency_error"
		case faultCode:
			kind, known = "api_error", ""
		}
		return map[string]any{"error": map[string]string{"type": kind, "code": known, "message": message}}
	},
}

func stripeIntent(r result) any {
	var failed any
	if r.status == refused {
		failed = map[string]string{"type": "card_error", "code": "card_declined"}
	}
	metadata := map[string]string{"order": r.Order}
	if r.carried != "" {
		metadata["zabor_key"] = r.carried
	}
	return map[string]any{
		"id": r.ID, "object": "payment_intent", "status": stripeNames[r.status], "amount": r.Amount,
		"currency": strings.ToLower(r.Currency), "last_payment_error": failed, "metadata": metadata, "created": r.At.Unix(),
	}
}

// yookassa is YooKassa's API v3 as far as a payment needs it.
var yookassa = dialect{
	keyHeader: "Idempotence-Key",
	mismatch:  400,
	prefix:    "2d0c7f0e-000f-5000-8000-",
	answers:   [...]int{paid: 200, processing: 200, refused: 200, prepared: 200},
	object: func(r result) any {
		o := map[string]any{
			"id": r.ID, "status": yookassaNames[r.status], "paid": r.status == paid, "metadata": map[string]string{"order": r.Order},
			"amount":     map[string]string{"value": provider.Major(zabor.Money{Minor: r.Amount, Currency: r.Currency}), "currency": r.Currency},
			"created_at": r.At.Format(time.RFC3339),
		}
		if r.status == refused {
			o["cancellation_details"] = map[string]string{"party": "payment_network", "reason": "insufficient_funds"}
		}
		return o
	},
	failure: func(code, message string) any {
		o := map[string]string{"type": "error", "id": "0", "code": "invalid_request", "description": message}
		switch code {
		case keyMismatch:
			o["parameter"] = "Idempotence-Key"
		case faultCode:
			o["code"] = "internal_server_error"
		}
		return o
	},
}
