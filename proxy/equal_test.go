package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"zabor/provider"
)

// changingFields are header fields that differ in two attempts of the same request: of
// tracing, telemetry and libraries, ids of requests, dates, and signatures over them.
var changingFields = strings.Fields(`
	Traceparent Tracestate Baggage B3 X-B3-TraceId X-B3-SpanId Sentry-Trace Uber-Trace-Id X-Cloud-Trace-Context
	Newrelic X-NewRelic-Id X-NewRelic-Transaction Elastic-Apm-Traceparent X-Datadog-Trace-Id X-Amzn-Trace-Id X-Trace-Id X-Instana-T sw8
	Request-Id X-Request-Id Correlation-Id X-Correlation-Id X-Client-Request-Id Request-Context Correlation-Context
	Date X-Date X-Timestamp X-Amz-Date X-Nonce Signature Signature-Input X-Signature
	PayPal-Client-Metadata-Id X-Stripe-Client-Telemetry X-Stripe-Client-User-Agent User-Agent
	Adyen-Library-Version GoCardless-Client-Version X-Mollie-Client-Info Amz-Sdk-Invocation-Id X-Stainless-Retry-Count X-Fern-SDK-Version
`)

// A repeat that differs only in fields that change by themselves gets the stored answer.
// Every other field of a provider without a table counts.
func TestChangingFieldsAreTheSameRequest(t *testing.T) {
	t.Parallel()
	if len(changingFields) < 33 {
		t.Fatalf("%d fields, want 33 or more", len(changingFields))
	}
	d := open(t, settings{})
	counts := []string{"Merchant", "Stripe-Account", "Stripe-Version", "X-Shop", "X-Transaction-Id", "X-Idempotency-Scope", "Prefer"}
	for i, field := range slices.Concat(changingFields, counts) {
		order, status, differs := fmt.Sprint(i), 201, ""
		if i >= len(changingFields) {
			status, differs = 422, "header."+field+")"
		}
		body := strings.Replace(charge, "1001", order, 1)
		d.do("POST", "/acquirer/payments", body, append(fenced(order, "charge"), field, "00-1")...).says(t, 201, "", "settled")
		if a := d.do("POST", "/acquirer/payments", body, append(fenced(order, "charge"), field, "00-2")...); a.status != status || !strings.Contains(a.body, differs) || status == 201 && a.header.Get("Zabor-Replayed") != "true" {
			t.Errorf("%s: %s, want %d %s", field, a, status, differs)
		}
		if a := d.do("POST", "/acquirer/payments", body, fenced(order, "charge")...); a.status != status {
			t.Errorf("%s left out: %s, want %d", field, a, status)
		}
	}
	d.posts(int64(len(changingFields) + len(counts)))
}

// At a built-in profile the fields for another account count, and no other one: neither
// the version of its API nor the caller's own key.
func TestFieldsOfABuiltin(t *testing.T) {
	t.Parallel()
	whom := map[string][]string{"stripe": {"Stripe-Account", "Stripe-Context"}, "paypal": {"PayPal-Auth-Assertion"}, "razorpay": {"X-Razorpay-Account"}}
	others := []string{"Stripe-Version", "Idempotency-Key", "PayPal-Request-Id", "PayPal-Partner-Attribution-Id", "Prefer", "X-Shop", "Accept-Language"}
	for _, known := range provider.Builtins() {
		if known.Uncallable != "" {
			continue
		}
		p := builtin(t, known)
		for _, field := range slices.Concat(changingFields, others, whom["stripe"], whom["paypal"], whom["razorpay"]) {
			if got, want := p.Counts(field), slices.Contains(whom[known.Name], field); got != want {
				t.Errorf("%s: %s counts: %v, want %v", known.Name, field, got, want)
			}
		}
	}

	d := open(t, settings{profile: func(p *provider.Profile) {
		base := p.BaseURL
		known, _ := provider.BuiltinNamed("stripe")
		*p, _ = known.Profile("", "sk_test_1")
		p.BaseURL = base + "/stripe"
	}})
	const body = "amount=1999&currency=eur&confirm=true&off_session=true&payment_method=pm_card_visa&metadata[order]=1001"
	form := append(fenced("1001", "charge"), "Content-Type", "application/x-www-form-urlencoded")
	first := d.do("POST", "/acquirer/v1/payment_intents", body, append(form, "Stripe-Version", "2024-01-01", "Stripe-Account", "acct_1", "Idempotency-Key", "a")...)
	first.says(t, 200, "", "settled")
	again := d.do("POST", "/acquirer/v1/payment_intents", body, append(form, "Stripe-Version", "2025-01-01", "Stripe-Account", "acct_1", "Idempotency-Key", "b", "X-Shop", "2")...)
	if again.says(t, 200, "", "settled"); again.body != first.body || again.header.Get("Zabor-Replayed") != "true" {
		t.Errorf("another version: %s", again)
	}
	for name, fields := range map[string][]string{"another account": {"Stripe-Account", "acct_2"}, "no account": nil} {
		if a := d.do("POST", "/acquirer/v1/payment_intents", body, append(form, fields...)...); a.status != 422 || !strings.Contains(a.body, "header.Stripe-Account)") {
			t.Errorf("%s: %s", name, a)
		}
	}
	d.posts(1)
}

func builtin(t *testing.T, known provider.Builtin) *provider.Provider {
	t.Helper()
	p, err := known.Profile("acct-1", "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	one, err := provider.New("acquirer", p, provider.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// A JSON body counts by its meaning: not by blanks, the order of its members, or how a
// letter is escaped. Another number, also the same one written otherwise, is another.
func TestABodyCountsByItsMeaning(t *testing.T) {
	t.Parallel()
	d := open(t, settings{})
	post := func(kind, body string) answer {
		return d.do("POST", "/acquirer/payments", body, append(fenced("1001", "charge"), "Content-Type", kind)...)
	}
	const first = `{"amount":1999,"currency":"EUR","order":"1001","to":{"name":"Müller","tags":[1,2],"none":null}}`
	post("application/json; charset=utf-8", first).says(t, 201, "", "settled")
	for _, tt := range []struct {
		name, kind, body string
		status           int
	}{
		{"blanks and order", "application/json; charset=utf-8", "{\"to\": {\"tags\": [ 1, 2 ], \"none\": null, \"name\": \"M\\u00fcller\"},\n \"order\":\"1001\", \"currency\": \"EUR\", \"amount\": 1999}", 201},
		{"case of the type", "Application/JSON;charset=UTF-8", first, 201},
		{"another name", "application/json; charset=utf-8", strings.Replace(first, "Müller", "Muller", 1), 422},
		{"a list turned round", "application/json; charset=utf-8", strings.Replace(first, "[1,2]", "[2,1]", 1), 422},
		{"a number as text", "application/json; charset=utf-8", strings.Replace(first, "[1,2]", `["1",2]`, 1), 422},
		{"a null left out", "application/json; charset=utf-8", strings.Replace(first, `,"none":null`, "", 1), 422},
		{"another type", "application/vnd.shop+json", first, 422},
	} {
		if a := post(tt.kind, tt.body); a.status != tt.status {
			t.Errorf("%s: %s, want %d", tt.name, a, tt.status)
		}
	}
	d.posts(1)
}
