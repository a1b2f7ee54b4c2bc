package laravel

import (
	"fmt"
	"testing"
)

// The trace of the application, as each instrumentation of Laravel writes it.
func TestTrace(t *testing.T) {
	t.Parallel()
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, tt := range []struct{ fields, parent, state string }{
		{``, "", ""},
		{`"traceparent":"00-` + trace + `-` + span + `-01","tracestate":"a=b",`, "00-" + trace + "-" + span + "-01", "a=b"},
		{`"sentry_trace_parent_data":"` + trace + `-` + span + `-1","sentry_baggage_data":"sentry-environment=production",`, "00-" + trace + "-" + span + "-01", ""},
		{`"sentry_trace_parent_data":"` + trace + `-` + span + `-0",`, "00-" + trace + "-" + span + "-00", ""},
		{`"sentry_trace_parent_data":"` + trace + `-` + span + `",`, "00-" + trace + "-" + span + "-01", ""},
		{`"sentry_trace_parent_data":"nonsense",`, "", ""},
		{`"traceparent":7,`, "", ""},
	} {
		m := Decode(fmt.Appendf(nil, `{"uuid":"u","job":"App\\Handler@handle","attempts":0,%s"data":{"a":1}}`, tt.fields), nil)
		if m.Err != nil || m.Traceparent != tt.parent || m.Tracestate != tt.state {
			t.Errorf("%s: %q %q, %v; want %q %q", tt.fields, m.Traceparent, m.Tracestate, m.Err, tt.parent, tt.state)
		}
	}
}
