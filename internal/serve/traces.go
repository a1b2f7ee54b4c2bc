package serve

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"go.opentelemetry.io/otel"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/provider"
	"zabor/proxy"
	"zabor/tracing"
	"zabor/worker"
)

// wantsTraces reports whether spans are made: traces: is in the file, or the
// environment names a receiver, and no variable forbids it.
func wantsTraces(file *config.Config) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return file.Traces != nil || os.Getenv("OTEL_TRACES_EXPORTER") == "otlp" ||
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// trace wires traces into c, where they are wanted.
func (p *Process) trace(ctx context.Context, c *core, secret []byte) error {
	if !wantsTraces(c.file) {
		return nil
	}
	o := tracing.Options{Version: p.Version, Secret: secret, Carry: provider.Carrying, Headers: map[string]string{}}
	if t := c.file.Traces; t != nil {
		o.Endpoint, o.Tell = string(t.Endpoint), t.Providers
		for name, value := range t.Headers {
			o.Headers[name] = string(value)
		}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.Log.Warn("spans are lost", "error", err) }))
	t, err := tracing.New(ctx, o)
	if err != nil {
		return exit.Usage(fmt.Errorf("%s: traces: %w", c.file.Path, err), "mend traces:, or the variable of OpenTelemetry that it names")
	}
	c.tracer = t
	c.fence.Store = t.Store(c.fence.Store)
	c.resolver.Lookup, c.resolver.Replay = t.Lookup(c.resolver.Lookup), t.Call("replay", c.resolver.Replay)
	return nil
}

// traceWorker lets w's messages be followed.
func (c *core) traceWorker(w *worker.Worker) {
	t := c.tracer
	if t == nil {
		return
	}
	w.Call = t.Call("call", w.Call)
	w.Trace = func(ctx context.Context, queue string, m *worker.Message, key zabor.Key) (context.Context, func(zabor.Row, error)) {
		return t.Begin(ctx, tracing.Delivery{Queue: queue, Message: m.ID, Key: key, Traceparent: m.Traceparent, State: m.Tracestate})
	}
	w.Answering = t.Answer
}

// traceProxy adds proxied calls to traces, below the caller's request if
// it carries a trace.
func (c *core) traceProxy(o *proxy.Options) {
	t := c.tracer
	if t == nil {
		return
	}
	o.Calling = func(call zabor.Call) zabor.Call { return t.Call("call", call) }
	o.Trace = func(ctx context.Context, r *http.Request, key zabor.Key) (context.Context, func(zabor.Row, error)) {
		return t.Begin(ctx, tracing.Delivery{Key: key, Traceparent: r.Header.Get("Traceparent"), State: r.Header.Get("Tracestate")})
	}
}
