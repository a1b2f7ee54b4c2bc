package messenger

import (
	"os"
	"testing"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The trace of the application, where each kind of it stands in an envelope.
func TestTrace(t *testing.T) {
	t.Parallel()
	// Symfony 5.4's own PhpSerializer, with the stamp of OpenTelemetry's
	// instrumentation.
	php, err := os.ReadFile("testdata/trace/symfony54_php.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, raw, parent, state string }{
		{"PHP serializer", string(php), parent, "vendor=1"},
		{"JSON serializer", `{"body":"{\"orderId\":1}","headers":{"type":"App\\Message\\ChargeOrder","X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\SerializerStamp":"[{\"context\":{\"otel_context\":{\"traceparent\":\"` + parent + `\"}}}]"}}`, parent, ""},
		{"an application's stamp", `{"body":"{\"orderId\":1}","headers":{"type":"App\\Message\\ChargeOrder","X-Message-Stamp-App\\TraceContextStamp":"[{\"traceparent\":\"` + parent + `\",\"tracestate\":\"a=b\"}]"}}`, parent, "a=b"},
		{"headers", `{"body":"{\"orderId\":1}","headers":{"type":"App\\Message\\ChargeOrder","traceparent":"` + parent + `"}}`, parent, ""},
		{"another context", `{"body":"{\"orderId\":1}","headers":{"type":"App\\Message\\ChargeOrder","X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\SerializerStamp":"[{\"context\":{\"groups\":[\"a\"]}}]"}}`, "", ""},
		{"nonsense", `{"body":"{\"orderId\":1}","headers":{"type":"App\\Message\\ChargeOrder","X-Message-Stamp-App\\TraceStamp":"{]"}}`, "", ""},
	} {
		m := Decode([]byte(tt.raw))
		if m.Err != nil || m.Class != `App\Message\ChargeOrder` || m.Traceparent != tt.parent || m.Tracestate != tt.state {
			t.Errorf("%s: %q %q of %s, %v; want %q %q", tt.name, m.Traceparent, m.Tracestate, m.Class, m.Err, tt.parent, tt.state)
		}
	}
}
