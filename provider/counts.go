package provider

import (
	"net/http"
	"slices"
	"strings"
)

// Counts reports whether a header field of a request makes it another request. With a
// table, only the fields for another account do: the line knows the rest by method, path
// and body. Without one, every field does, except those that change by themselves: of
// tracing and telemetry, ids of requests, dates, and signatures over dates.
func (p *Provider) Counts(name string) bool {
	if p.whom != nil {
		return slices.ContainsFunc(p.whom, func(whom string) bool { return strings.EqualFold(whom, name) })
	}
	name = http.CanonicalHeaderKey(name)
	return !slices.Contains(changing[:], name) &&
		!slices.ContainsFunc(changingPrefixes[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// changing are the header fields that differ in two attempts of the same request, or
// after a deployment.
var changing = [...]string{
	// tracing
	"Traceparent", "Tracestate", "Baggage", "B3", "Sentry-Trace", "Uber-Trace-Id", "X-Cloud-Trace-Context", "Newrelic", "X-Newrelic-Id",
	"X-Newrelic-Transaction", "X-Newrelic-Synthetics", "Elastic-Apm-Traceparent", "X-Trace-Id", "Trace-Id", "X-Span-Id", "Span-Id", "X-Ot-Span-Context",
	"Sw8", "Sw8-Correlation", "Sw8-X", "Grpc-Trace-Bin", "X-Dynatrace", "X-Dynatrace-Application", "Request-Context", "Correlation-Context",
	// ids of requests
	"Request-Id", "X-Request-Id", "Correlation-Id", "X-Correlation-Id", "X-Client-Request-Id", "X-Ms-Request-Id", "X-Ms-Client-Request-Id",
	"X-Ms-Correlation-Request-Id", "X-Amz-Request-Id", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "X-Message-Id",
	// dates, and signatures over them
	"Date", "X-Date", "X-Amz-Date", "X-Timestamp", "Timestamp", "X-Request-Time", "X-Request-Timestamp", "X-Request-Start", "X-Queue-Start",
	"X-Nonce", "Nonce", "Signature", "Signature-Input", "X-Signature", "X-Hub-Signature-256", "X-Amz-Security-Token", "X-Amz-Content-Sha256",
	// telemetry, and how a library names itself
	"User-Agent", "X-User-Agent", "Ym-User-Agent", "X-Stripe-Client-User-Agent", "X-Stripe-Client-Telemetry", "Paypal-Client-Metadata-Id",
	"Adyen-Library-Name", "Adyen-Library-Version", "Gocardless-Client-Library", "Gocardless-Client-Version", "X-Mollie-Client-Info",
	"X-Retry-Count", "X-Attempt", "X-Client-Version", "X-Sdk-Version",
}

var changingPrefixes = [...]string{"X-B3-", "X-Datadog-", "X-Amzn-", "X-Instana-", "Uberctx-", "Ot-Tracer-", "X-Stainless-", "X-Fern-"}
