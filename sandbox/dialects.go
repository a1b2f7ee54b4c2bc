package sandbox

import (
	"net/http"
	"strings"
	"time"

	"zabor"
	"zabor/provider"
)

// What a payment is called: by the sandbox itself, and by the providers.
var ownNames = [statuses]string{paid: "paid", processing: "processing", refused: "refused", prepared: "prepared", softly: "refused for now"}

// ownDialect is the sandbox's own.
func ownDialect(payments, keyHeader string) dialect {
	return dialect{
		prefix: "pay_", keyHeader: keyHeader, mark: true,
		asks: asks{orders: []string{"order", "order_id", "merchant_reference", "reference", "metadata.order"}, atOnce: "confirm"},
		routes: []route{
			{does: pays, path: "POST " + payments},
			{does: gets, path: "GET " + payments + "/{id}"},
			{does: finds, path: "GET " + payments, name: query("merchant_reference"), list: under("data"), pages: &pages{
				limit: "limit", most: 1000, since: "since", next: "after", oldestFirst: true,
				page: func(p page) any { return object{"data": p.entries, "next": p.next} },
			}},
			{does: intends, path: "POST /intents"},
			{does: confirms, path: "POST /intents/{id}/confirm"},
			{does: gets, path: "GET /intents/{id}"},
		},
		answers: [statuses]int{paid: 201, processing: 202, refused: 402, prepared: 201, softly: 402},
		refuses: map[string]int{keyMismatch: 422},
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
		failure: ownFailure,
	}
}

func ownFailure(f failed) any { return object{"error": object{"code": f.code, "message": f.text}} }

// object is a JSON object.
type object = map[string]any

// query finds by a parameter of the address.
func query(name string) func(*http.Request, map[string]any) string {
	return func(r *http.Request, _ map[string]any) string { return r.URL.Query().Get(name) }
}

// under is a list as a property of an object.
func under(name string) func([]any) any {
	return func(found []any) any { return object{name: found} }
}

func major(r result) string {
	return provider.Major(zabor.Money{Minor: r.Amount, Currency: r.Currency})
}

func made(r result) string { return r.At.Format(time.RFC3339) }

// orKnown is the first of codes that is known under what f is about; empty: none.
func orKnown(f failed, codes map[string]string) string { return codes[f.code] }

// builtins are the dialects of the built-in profiles that can be called.
var builtins = []dialect{
	{
		name: "stripe", prefix: "pi_", auth: provider.AuthBearer, keyHeader: "Idempotency-Key", mark: true,
		asks: asks{amount: "amount", currency: "currency", orders: []string{"metadata.order"}, carried: "metadata.zabor_key", atOnce: "confirm"},
		routes: []route{
			{does: intends, path: "POST /v1/payment_intents"},
			{does: confirms, path: "POST /v1/payment_intents/{id}/confirm"},
			{does: gets, path: "GET /v1/payment_intents/{id}"},
			{does: finds, path: "GET /v1/payment_intents/search", name: stripeQuery, list: under("data")},
			{does: finds, path: "GET /v1/payment_intents", pages: &pages{limit: "limit", most: 100, since: "created[gte]", next: "starting_after", page: func(p page) any {
				return object{"object": "list", "url": "/v1/payment_intents", "data": p.entries, "has_more": p.next != ""}
			}}},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 402, prepared: 200, softly: 402},
		object:  stripeIntent,
		declined: func(r result) any {
			return object{"error": object{"type": "card_error", "code": "card_declined", "payment_intent": stripeIntent(r)}}
		},
		failure: func(f failed) any {
			kind := map[string]string{keyMismatch: "idempotency_error", inFlight: "idempotency_error", faultCode: "api_error"}[f.code]
			if kind == "" {
				kind = "invalid_request_error"
			}
			return object{"error": object{"type": kind, "message": f.text, "code": orKnown(f, map[string]string{
				invalidRequest: "parameter_invalid_integer", unexpectedState: "payment_intent_unexpected_state", notFound: "resource_missing",
				inFlight: "idempotency_key_in_use", unauthorized: "api_key_expired",
			})}}
		},
	},
	{
		name: "yookassa", prefix: "2d0c7f0e-000f-5000-8000-", auth: provider.AuthBasic, keyHeader: "Idempotence-Key", again: present,
		asks: asks{amount: "amount.value", major: true, currency: "amount.currency", orders: []string{"metadata.order"}},
		routes: []route{
			{does: pays, path: "POST /payments"},
			{does: gets, path: "GET /payments/{id}"},
			{does: finds, path: "GET /payments", pages: &pages{limit: "limit", most: 100, since: "created_at.gte", next: "cursor", page: func(p page) any {
				o := object{"type": "list", "items": p.entries}
				if p.next != "" {
					o["next_cursor"] = p.next
				}
				return o
			}}},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, softly: 200},
		refuses: map[string]int{inFlight: 202},
		object: func(r result) any {
			o := object{
				"id": r.ID, "paid": r.status == paid, "metadata": object{"order": r.Order}, "created_at": made(r),
				"status": [statuses]string{paid: "succeeded", processing: "pending", refused: "canceled", softly: "canceled"}[r.status],
				"amount": object{"value": major(r), "currency": r.Currency},
			}
			if r.status == refused {
				o["cancellation_details"] = object{"party": "payment_network", "reason": "insufficient_funds"}
			}
			return o
		},
		failure: func(f failed) any {
			switch f.code {
			case inFlight:
				return object{"type": "processing", "description": f.text, "retry_after": 1800}
			case keyMismatch:
				return object{"type": "error", "id": "0", "code": "invalid_request", "parameter": "Idempotence-Key", "description": f.text}
			case faultCode:
				return object{"type": "error", "id": "0", "code": "internal_server_error", "description": f.text}
			}
			return object{"type": "error", "id": "0", "code": f.code, "description": f.text}
		},
	},
	{
		name: "mollie", prefix: "tr_", auth: provider.AuthBearer, keyHeader: "Idempotency-Key", again: success, mark: true,
		asks: asks{amount: "amount.value", major: true, currency: "amount.currency", orders: []string{"metadata.order"}, carried: "metadata.zabor_key"},
		routes: []route{
			{does: pays, path: "POST /payments"},
			{does: gets, path: "GET /payments/{id}"},
			{does: finds, path: "GET /payments", pages: &pages{limit: "limit", most: 250, next: "from", at: from, page: func(p page) any {
				var next any
				if p.link != "" {
					next = object{"href": p.link, "type": "application/hal+json"}
				}
				return object{"count": len(p.entries), "_embedded": object{"payments": p.entries}, "_links": object{"next": next}}
			}}},
		},
		answers: [statuses]int{paid: 201, processing: 201, refused: 201, softly: 201},
		refuses: map[string]int{invalidRequest: 422},
		object: func(r result) any {
			return object{
				"resource": "payment", "id": r.ID, "createdAt": made(r), "metadata": object{"order": r.Order, "zabor_key": r.carried},
				"status": [statuses]string{paid: "paid", processing: "open", refused: "failed", softly: "failed"}[r.status],
				"amount": object{"value": major(r), "currency": r.Currency},
			}
		},
		failure: func(f failed) any { return object{"title": f.code, "detail": f.text} },
	},
	{
		name: "adyen", prefix: "ADYEN", auth: provider.AuthHeader, keyHeader: "idempotency-key",
		asks:    asks{amount: "amount.value", currency: "amount.currency", orders: []string{"reference"}},
		routes:  []route{{does: pays, path: "POST /payments"}},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, softly: 200},
		refuses: map[string]int{invalidRequest: 422, keyMismatch: 422, inFlight: 422},
		object: func(r result) any {
			return object{
				"pspReference": r.ID, "merchantReference": r.Order,
				"resultCode": [statuses]string{paid: "Authorised", processing: "Received", refused: "Refused", softly: "Refused"}[r.status],
				"amount":     object{"value": r.Amount, "currency": r.Currency},
			}
		},
		failure: func(f failed) any {
			o := object{"errorType": "validation", "errorCode": "130", "message": f.text}
			switch f.code {
			case inFlight, keyMismatch:
				o["errorCode"] = "704"
			case faultCode:
				o["errorType"], o["errorCode"] = "internal", "905"
			}
			return o
		},
	},
	{
		name: "square", prefix: "sq0pay", auth: provider.AuthBearer, keyField: "idempotency_key",
		asks: asks{amount: "amount_money.amount", currency: "amount_money.currency", orders: []string{"note"}, carried: "reference_id"},
		routes: []route{
			{does: pays, path: "POST /v2/payments"},
			{does: gets, path: "GET /v2/payments/{id}"},
			{does: finds, path: "GET /v2/payments", pages: &pages{limit: "limit", most: 100, since: "begin_time", next: "cursor", order: "sort_order", page: func(p page) any {
				o := object{"payments": plainly(p.entries, "payment")}
				if p.next != "" {
					o["cursor"] = p.next
				}
				return o
			}}},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 400, softly: 400},
		object: func(r result) any {
			return object{"payment": object{
				"id": r.ID, "created_at": made(r), "reference_id": r.carried, "note": r.Order,
				"status":       [statuses]string{paid: "COMPLETED", processing: "PENDING", refused: "FAILED", softly: "FAILED"}[r.status],
				"amount_money": object{"amount": r.Amount, "currency": r.Currency},
			}}
		},
		declined: func(result) any { return squareErrors("PAYMENT_METHOD_ERROR", "CARD_DECLINED") },
		failure: func(f failed) any {
			switch f.code {
			case keyMismatch:
				return squareErrors("INVALID_REQUEST_ERROR", "IDEMPOTENCY_KEY_REUSED")
			case inFlight:
				return squareErrors("API_ERROR", "CONFLICT")
			case faultCode:
				return squareErrors("API_ERROR", "INTERNAL_SERVER_ERROR")
			}
			return squareErrors("INVALID_REQUEST_ERROR", "INVALID_VALUE")
		},
	},
	{
		name: "checkout", prefix: "pay_c", auth: provider.AuthBearer, keyHeader: "Cko-Idempotency-Key", again: success,
		asks: asks{amount: "amount", currency: "currency", orders: []string{"metadata.order"}, carried: "reference"},
		routes: []route{
			{does: pays, path: "POST /payments"},
			{does: gets, path: "GET /payments/{id}"},
			{does: finds, path: "GET /payments", name: query("reference"), list: under("data")},
		},
		answers: [statuses]int{paid: 201, processing: 202, refused: 201, softly: 201},
		refuses: map[string]int{invalidRequest: 422},
		object: func(r result) any {
			return object{
				"id": r.ID, "amount": r.Amount, "currency": r.Currency, "reference": r.carried, "approved": r.status == paid, "retry": object{"enabled": r.status == softly},
				"status": [statuses]string{paid: "Authorized", processing: "Pending", refused: "Declined", softly: "Declined"}[r.status],
			}
		},
		failure: func(f failed) any {
			return object{"error_type": orKnown(f, map[string]string{invalidRequest: "request_invalid", keyMismatch: "processing_error"}), "error_codes": []string{f.code}}
		},
	},
	{
		name: "razorpay", prefix: "pout_", auth: provider.AuthBasic, keyHeader: "X-Payout-Idempotency", again: present,
		asks:    asks{amount: "amount", currency: "currency", orders: []string{"reference_id"}},
		routes:  []route{{does: pays, path: "POST /v1/payouts"}, {does: gets, path: "GET /v1/payouts/{id}"}},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, softly: 200},
		object: func(r result) any {
			return object{
				"id": r.ID, "entity": "payout", "amount": r.Amount, "currency": r.Currency, "reference_id": r.Order,
				"status": [statuses]string{paid: "processed", processing: "processing", refused: "rejected", softly: "rejected"}[r.status],
			}
		},
		failure: func(f failed) any { return object{"error": object{"code": "BAD_REQUEST_ERROR", "description": f.text}} },
	},
	{
		name: "gocardless", prefix: "PM", auth: provider.AuthBearer, keyHeader: "Idempotency-Key", again: conflict,
		asks: asks{amount: "payments.amount", currency: "payments.currency", orders: []string{"payments.metadata.order"}, carried: "payments.metadata.zabor_key"},
		routes: []route{
			{does: pays, path: "POST /payments"},
			{does: gets, path: "GET /payments/{id}"},
			{does: finds, path: "GET /payments", pages: &pages{limit: "limit", most: 500, since: "created_at[gte]", next: "after", page: func(p page) any {
				var after any
				if p.next != "" {
					after = p.next
				}
				return object{"payments": plainly(p.entries, "payments"), "meta": object{"cursors": object{"before": nil, "after": after}}}
			}}},
		},
		answers: [statuses]int{paid: 201, processing: 201, refused: 201, softly: 201},
		refuses: map[string]int{invalidRequest: 422, keyMismatch: 409, keyTaken: 409},
		object: func(r result) any {
			return gocardlessPayment(r, [statuses]string{paid: "confirmed", processing: "submitted", refused: "failed", softly: "failed"}[r.status])
		},
		made: func(r result) any { // the bank is asked days later
			return gocardlessPayment(r, [statuses]string{paid: "pending_submission", processing: "pending_submission", refused: "failed", softly: "failed"}[r.status])
		},
		failure: func(f failed) any {
			switch f.code {
			case keyTaken:
				return object{"error": object{"type": "invalid_state", "code": 409, "errors": []any{
					object{"reason": "idempotent_creation_conflict", "links": object{"conflicting_resource_id": f.known.ID}},
				}}}
			case invalidRequest:
				return object{"error": object{"type": "validation_failed", "code": 422, "message": f.text}}
			}
			return object{"error": object{"type": "invalid_state", "message": f.text}}
		},
	},
	{
		name: "paystack", prefix: "30", auth: provider.AuthBearer, keyField: "reference", again: taken,
		asks: asks{amount: "amount", currency: "currency", orders: []string{"metadata.order"}, carried: "reference"},
		routes: []route{
			{does: pays, path: "POST /transaction/charge_authorization"},
			{does: finds, path: "GET /transaction", pages: &pages{limit: "perPage", most: 100, since: "from", next: "page", at: nth, page: func(p page) any {
				return object{"status": true, "message": "Transactions retrieved", "data": plainly(p.entries, "data")}
			}}},
			{does: finds, path: "GET /transaction/verify/{reference}", name: func(r *http.Request, _ map[string]any) string { return r.PathValue("reference") }},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, softly: 200},
		object: func(r result) any {
			return object{"status": true, "message": "Charge attempted", "data": object{
				"id": number(r.ID), "reference": r.carried, "amount": r.Amount, "currency": r.Currency, "created_at": made(r), "metadata": object{"order": r.Order},
				"status": [statuses]string{paid: "success", processing: "pending", refused: "failed", softly: "failed"}[r.status],
			}}
		},
		failure: func(f failed) any {
			switch f.code {
			case keyTaken, keyMismatch, inFlight:
				return object{"status": false, "message": "Duplicate Transaction Reference", "code": "duplicate_reference", "type": "validation_error"}
			case invalidRequest:
				return object{"status": false, "message": f.text, "type": "validation_error"}
			}
			return object{"status": false, "message": f.text}
		},
	},
	{
		name: "sber", prefix: "70906e55-7114-41d6-8332-", auth: provider.AuthFields, again: never,
		asks: asks{amount: "amount", orders: []string{"jsonParams"}, carried: "orderNumber", id: "mdOrder"},
		routes: []route{
			{does: intends, path: "POST /register.do"},
			{does: confirms, path: "POST /paymentOrderBinding.do"},
			{does: gets, path: "POST /getOrderStatusExtended.do", id: "orderId"},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, prepared: 200, softly: 200},
		refuses: map[string]int{invalidRequest: 200, unexpectedState: 200, notFound: 200, unauthorized: 200},
		object: func(r result) any {
			return object{
				"errorCode": "0", "orderNumber": r.carried, "amount": r.Amount, "currency": "643",
				"orderStatus": [statuses]int{paid: 2, processing: 5, refused: 6, prepared: 0, softly: 6}[r.status],
			}
		},
		made: func(r result) any {
			if r.status == prepared {
				return object{"orderId": r.ID, "formUrl": "https://pay.example/" + r.ID}
			}
			return object{"errorCode": 0, "info": "processed"}
		},
		declined: func(result) any { return object{"errorCode": 0, "info": "processed"} },
		failure: func(f failed) any {
			return object{"errorCode": orKnown(f, map[string]string{invalidRequest: "4", unexpectedState: "2", notFound: "6", unauthorized: "5", faultCode: "7"}), "errorMessage": f.text}
		},
	},
	{
		name: "mercadopago", prefix: "13", auth: provider.AuthBearer, keyHeader: "X-Idempotency-Key", again: present,
		asks: asks{amount: "transaction_amount", major: true, home: "BRL", orders: []string{"metadata.order"}, carried: "external_reference"},
		routes: []route{
			{does: pays, path: "POST /v1/payments"},
			{does: finds, path: "GET /v1/payments/search", name: query("external_reference"), list: under("results")},
			{does: gets, path: "GET /v1/payments/{id}"},
		},
		answers: [statuses]int{paid: 201, processing: 201, refused: 201, softly: 201},
		object: func(r result) any {
			return object{
				"id": number(r.ID), "external_reference": r.carried, "transaction_amount": number(major(r)), "currency_id": r.Currency, "date_created": made(r),
				"status":   [statuses]string{paid: "approved", processing: "in_process", refused: "rejected", softly: "rejected"}[r.status],
				"metadata": object{"order": r.Order},
			}
		},
		failure: func(f failed) any {
			return object{"status": "400", "error": orKnown(f, map[string]string{invalidRequest: "bad_request"}), "message": f.text}
		},
	},
	{
		name: "cloudpayments", prefix: "50", auth: provider.AuthBasic, again: never,
		asks: asks{amount: "Amount", major: true, currency: "Currency", orders: []string{"AccountId"}, carried: "InvoiceId"},
		routes: []route{
			{does: pays, path: "POST /payments/tokens/charge"},
			{does: finds, path: "POST /payments/find", name: func(_ *http.Request, fields map[string]any) string { return at(fields, "InvoiceId") }},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, softly: 200},
		refuses: map[string]int{invalidRequest: 200, notFound: 200},
		object: func(r result) any {
			return object{"Success": r.status == paid, "Model": object{
				"TransactionId": number(r.ID), "InvoiceId": r.carried, "Amount": number(major(r)), "Currency": r.Currency,
				"Status": [statuses]string{paid: "Completed", processing: "AwaitingAuthentication", refused: "Declined", softly: "Declined"}[r.status],
			}}
		},
		failure: func(f failed) any { return object{"Success": false, "Message": f.text} },
	},
	{
		name: "tbank", prefix: "70", auth: provider.AuthSigned, again: never,
		asks: asks{amount: "Amount", orders: []string{"DATA.order"}, carried: "OrderId", id: "PaymentId"},
		routes: []route{
			{does: intends, path: "POST /Init"},
			{does: confirms, path: "POST /Charge"},
			{does: gets, path: "POST /GetState"},
		},
		answers: [statuses]int{paid: 200, processing: 200, refused: 200, prepared: 200, softly: 200},
		refuses: map[string]int{invalidRequest: 200, unexpectedState: 200, notFound: 200, unauthorized: 200},
		object: func(r result) any {
			return tbankPayment(r, r.status == paid || r.status == prepared || r.status == processing)
		},
		failure: func(f failed) any {
			if f.known.ID != "" {
				return tbankPayment(f.known, false)
			}
			return object{"Success": false, "ErrorCode": "9999", "Message": f.text}
		},
	},
	{
		name: "paypal", prefix: "5O", moved: "3C", auth: provider.AuthGrant, keyHeader: "PayPal-Request-Id", again: present,
		asks: asks{
			amount: "purchase_units.0.amount.value", major: true, currency: "purchase_units.0.amount.currency_code",
			orders: []string{"purchase_units.0.reference_id"}, carried: "purchase_units.0.custom_id",
		},
		routes: []route{
			{does: grants, path: "POST /v1/oauth2/token"},
			{does: intends, path: "POST /v2/checkout/orders"},
			{does: confirms, path: "POST /v2/checkout/orders/{id}/capture"},
			{does: gets, path: "GET /v2/checkout/orders/{id}"},
			{does: gets, path: "GET /v2/payments/captures/{id}", shows: paypalCapture},
		},
		answers:  [statuses]int{paid: 201, processing: 201, refused: 422, prepared: 201, softly: 422},
		refuses:  map[string]int{keyMismatch: 422, unexpectedState: 422},
		object:   paypalOrder,
		declined: func(result) any { return paypalIssue("UNPROCESSABLE_ENTITY", "INSTRUMENT_DECLINED") },
		failure: func(f failed) any {
			switch f.code {
			case inFlight:
				return paypalIssue("RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS")
			case unexpectedState:
				return paypalIssue("UNPROCESSABLE_ENTITY", "ORDER_ALREADY_CAPTURED")
			case invalidRequest:
				return paypalIssue("INVALID_REQUEST", "INVALID_PARAMETER_SYNTAX")
			}
			return paypalIssue(strings.ToUpper(f.code), "")
		},
	},
	{
		name: "worldpay", prefix: "payWP", auth: provider.AuthBasic, again: never,
		asks: asks{amount: "instruction.value.amount", currency: "instruction.value.currency", orders: []string{"customer.order"}, carried: "transactionReference"},
		routes: []route{
			{does: pays, path: "POST /api/payments"},
			{does: finds, path: "GET /paymentQueries/payments", name: query("transactionReference"), list: func(found []any) any {
				return object{"_embedded": object{"payments": found}}
			}},
		},
		answers: [statuses]int{paid: 201, processing: 201, refused: 201, softly: 201},
		object: func(r result) any {
			return object{
				"paymentId": r.ID, "transactionReference": r.carried, "timestamp": made(r), "value": object{"amount": r.Amount, "currency": r.Currency},
				"lastEvent": [statuses]string{paid: "authorizationSucceeded", processing: "authorizationRequested", refused: "authorizationRefused", softly: "authorizationRefused"}[r.status],
			}
		},
		made: func(r result) any {
			return object{
				"paymentId": r.ID, "transactionReference": r.carried,
				"outcome": [statuses]string{paid: "authorized", processing: "3dsChallenged", refused: "refused", softly: "refused"}[r.status],
			}
		},
		failure: func(f failed) any {
			return object{"errorName": orKnown(f, map[string]string{invalidRequest: "bodyDoesNotMatchSchema", faultCode: "internalError"}), "message": f.text}
		},
	},
}

// number is text as a JSON number.
func number(text string) any { return rawNumber(text) }

type rawNumber string

func (n rawNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

func stripeIntent(r result) any {
	var last any
	if r.status == refused || r.status == softly {
		last = object{"type": "card_error", "code": "card_declined"}
	}
	metadata := object{"order": r.Order}
	if r.carried != "" {
		metadata["zabor_key"] = r.carried
	}
	return object{
		"id": r.ID, "object": "payment_intent", "amount": r.Amount, "currency": strings.ToLower(r.Currency),
		"last_payment_error": last, "metadata": metadata, "created": r.At.Unix(),
		"status": [statuses]string{
			paid: "succeeded", processing: "processing", refused: "requires_payment_method", prepared: "requires_confirmation", softly: "requires_payment_method",
		}[r.status],
	}
}

// stripeQuery is the one query that a look-up makes.
func stripeQuery(r *http.Request, _ map[string]any) string {
	rest, ok := strings.CutPrefix(r.URL.Query().Get("query"), "metadata['zabor_key']:'")
	name, whole := strings.CutSuffix(rest, "'")
	if !ok || !whole {
		return ""
	}
	return name
}

// plainly takes each entry out of the object that it is in under the given name.
func plainly(entries []any, name string) []any {
	plain := []any{}
	for _, one := range entries {
		plain = append(plain, one.(object)[name])
	}
	return plain
}

func squareErrors(category, code string) any {
	return object{"errors": []any{object{"category": category, "code": code}}}
}

func gocardlessPayment(r result, status string) any {
	return object{"payments": object{
		"id": r.ID, "created_at": made(r), "status": status, "amount": r.Amount, "currency": r.Currency,
		"metadata": object{"order": r.Order, "zabor_key": r.carried}, "retry_if_possible": r.status == softly,
	}}
}

func tbankPayment(r result, good bool) any {
	o := object{
		"Success": good, "ErrorCode": "0", "TerminalKey": "terminal", "PaymentId": r.ID, "OrderId": r.carried, "Amount": r.Amount,
		"Status": [statuses]string{paid: "CONFIRMED", processing: "3DS_CHECKING", refused: "REJECTED", prepared: "NEW", softly: "REJECTED"}[r.status],
	}
	if !good {
		o["ErrorCode"] = "1051"
	}
	return o
}

func paypalIssue(name, issue string) any {
	return object{"name": name, "details": []any{object{"issue": issue}}}
}

func paypalCapture(r result) any {
	return object{
		"id": "3C" + r.ID, "amount": object{"value": major(r), "currency_code": r.Currency},
		"status": [statuses]string{paid: "COMPLETED", processing: "PENDING", refused: "DECLINED", softly: "DECLINED"}[r.status],
	}
}

// paypalOrder is an order with its capture, where there is one.
func paypalOrder(r result) any {
	unit := object{"reference_id": r.Order, "custom_id": r.carried, "amount": object{"value": major(r), "currency_code": r.Currency}}
	if r.status != prepared {
		unit["payments"] = object{"captures": []any{paypalCapture(r)}}
	}
	return object{
		"id": r.ID, "intent": "CAPTURE", "purchase_units": []any{unit},
		"status": [statuses]string{paid: "COMPLETED", processing: "COMPLETED", refused: "APPROVED", prepared: "CREATED", softly: "APPROVED"}[r.status],
	}
}
