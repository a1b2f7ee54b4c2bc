package messenger

import (
	"encoding/json"
	"strings"
)

// Where tracing puts its context in an envelope. OpenTelemetry's instrumentation of
// Symfony (open-telemetry/opentelemetry-auto-symfony) hides it in the context of a
// SerializerStamp, under otel_context; applications and bundles have stamps of
// their own with the properties traceparent and tracestate; a serializer of the
// application's may write headers of these names.

// mayTrace reports whether stamps of that class are looked into.
func mayTrace(class string) bool {
	return strings.HasSuffix(class, `\SerializerStamp`) || strings.Contains(strings.ToLower(class), "trace")
}

// traceIn is the context in stamps of one class, as plain values; empty: none.
func traceIn(stamps any) (parent, state string) {
	list, _ := stamps.([]any)
	for _, one := range list {
		properties, _ := one.(map[string]any)
		if inner, ok := properties["context"].(map[string]any); ok {
			if otel, ok := inner["otel_context"].(map[string]any); ok {
				properties = otel
			}
		}
		if parent, _ = properties["traceparent"].(string); parent != "" {
			state, _ = properties["tracestate"].(string)
			return parent, state
		}
	}
	return "", ""
}

// trace is the context in the headers of an envelope of the JSON serializer.
func (e *envelope) trace() (parent, state string) {
	if parent = e.header("traceparent"); parent != "" {
		return parent, e.header("tracestate")
	}
	for _, h := range e.headers {
		class, ok := strings.CutPrefix(h.name, stampPrefix)
		if !ok || !mayTrace(class) {
			continue
		}
		var stamps any
		if json.Unmarshal([]byte(h.value), &stamps) != nil {
			continue
		}
		if parent, state = traceIn(stamps); parent != "" {
			return parent, state
		}
	}
	return "", ""
}
