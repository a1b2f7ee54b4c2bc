// Package tracing shows each delivery of a message, and what the fence does about
// it, as spans of OpenTelemetry: message, capture, call, settle, ack.
//
// A fence has a trace of its own, whose id follows from its key: deliveries in any
// process at any time, the resolver's look-ups and replays are in it without
// anything being stored, also where the row was lost. A message that carries the
// trace of the request that sent it is shown there, under that request; the
// fence's trace then has a span for the delivery, and each is linked to the other.
package tracing

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"zabor"
	"zabor/card"
)

// Options are what a tracer is made of. What they leave out is taken from
// OpenTelemetry's own environment variables, the sampler among it.
type Options struct {
	Endpoint string            // of OTLP over HTTP, http(s)://HOST:PORT; empty: OTEL_EXPORTER_OTLP_ENDPOINT, else localhost
	Headers  map[string]string // sent with the spans, such as a token; nil: OTEL_EXPORTER_OTLP_HEADERS
	Version  string            // of this program
	// Secret makes the ids of traces, so that nobody finds out from one which
	// order it is about. At least 16 bytes.
	Secret []byte
	// Tell lists providers whose requests carry the trace, in the header
	// traceparent; Carry puts header fields into the next request under a context.
	Tell  []string
	Carry func(context.Context, http.Header) context.Context
}

// Tracer makes spans and sends them in the background. Where they cannot be sent
// they are dropped: nothing waits for them. It may be used concurrently.
type Tracer struct {
	o        Options
	provider *sdktrace.TracerProvider // nil: it is the caller's
	tracer   trace.Tracer
	tell     map[string]bool
}

// New makes a tracer. Nothing is sent yet: an endpoint that is away is no error.
func New(ctx context.Context, o Options) (*Tracer, error) {
	var options []otlptracehttp.Option
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("the endpoint must be http://HOST:PORT or https://HOST:PORT")
		}
		if strings.Trim(u.Path, "/") == "" {
			u.Path = "/v1/traces"
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	}
	if len(o.Headers) > 0 {
		options = append(options, otlptracehttp.WithHeaders(o.Headers))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, err
	}
	self, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "zabor"), attribute.String("service.version", o.Version)), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{o: o, tell: map[string]bool{}}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(self), sdktrace.WithIDGenerator(ids{}))
	t.tracer = t.provider.Tracer("zabor")
	for _, name := range o.Tell {
		t.tell[name] = true
	}
	return t, nil
}

// Over is a tracer on a provider of the caller's own, which says where spans go and
// what ids their traces have; Close leaves it open. Nothing is told to providers.
func Over(p trace.TracerProvider) *Tracer {
	return &Tracer{tracer: p.Tracer("zabor")}
}

// CloseTime bounds how long the last spans are tried to be sent.
const CloseTime = 2 * time.Second

// Close sends what waits. Spans that end afterwards are dropped.
func (t *Tracer) Close() error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), CloseTime)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// ids makes random ids, and of a fence's own trace the one that its key says.
type ids struct{}

type fenceTrace struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(fenceTrace{}).(trace.TraceID)
	if !ok {
		rand.Read(id[:]) // never fails
	}
	return id, ids{}.NewSpanID(ctx, id)
}

func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		rand.Read(id[:])
	}
	return id
}

// traceID is that of k's own trace.
func (t *Tracer) traceID(k zabor.Key) (id trace.TraceID) {
	h := hmac.New(sha256.New, t.o.Secret)
	h.Write([]byte("zabor trace"))
	for _, part := range []string{k.Scope, k.Order, k.Step} {
		_ = binary.Write(h, binary.BigEndian, uint32(len(part)))
		h.Write([]byte(part))
	}
	copy(id[:], h.Sum(nil))
	return id
}

// ofFence is ctx in which the next span is the root of k's own trace.
func (t *Tracer) ofFence(ctx context.Context, k zabor.Key) context.Context {
	if k.Order != "" {
		ctx = context.WithValue(ctx, fenceTrace{}, t.traceID(k))
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// start begins a span about k: within that of ctx, or in k's own trace.
func (t *Tracer) start(ctx context.Context, name string, k zabor.Key, kind trace.SpanKind) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = t.ofFence(ctx, k)
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(about(k)...))
}

func about(k zabor.Key) []attribute.KeyValue {
	if k.Order == "" {
		return nil
	}
	return []attribute.KeyValue{text("zabor.scope", zabor.EncodeText(k.Scope)), text("zabor.order", zabor.EncodeText(k.Order)), text("zabor.step", zabor.EncodeText(k.Step))}
}

// text is an attribute that every receiver takes and that gives nothing away.
func text(name, value string) attribute.KeyValue {
	return attribute.String(name, card.Mask(strings.ToValidUTF8(value, "\ufffd")))
}

// fail marks span as failed, for err.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, card.Mask(strings.ToValidUTF8(err.Error(), "\ufffd")))
	}
}

// Delivery is one delivery of a message, or one request to the proxy.
type Delivery struct {
	Queue, Message     string // empty: it is a request
	Key                zabor.Key
	Traceparent, State string // what it carries of the trace that it belongs to, as W3C writes it; empty: nothing
}

// Begin shows d until end is called, with what became of it.
func (t *Tracer) Begin(ctx context.Context, d Delivery) (_ context.Context, end func(row zabor.Row, err error)) {
	name, kind := "message", trace.SpanKindConsumer
	if d.Queue == "" {
		name, kind = "request", trace.SpanKindServer
	}
	carrier := propagation.MapCarrier{"traceparent": d.Traceparent, "tracestate": d.State}
	sent := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier))
	var delivery trace.Span // in the fence's trace; nil: all of it is there
	if sent.IsValid() {
		if d.Key.Order != "" {
			_, delivery = t.tracer.Start(t.ofFence(ctx, d.Key), "delivery", trace.WithAttributes(about(d.Key)...))
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, sent)
	}
	ctx, span := t.start(ctx, name, d.Key, kind)
	if d.Queue != "" {
		span.SetAttributes(text("messaging.destination.name", d.Queue), text("messaging.message.id", d.Message))
	}
	if delivery != nil {
		span.AddLink(trace.Link{SpanContext: delivery.SpanContext()})
		delivery.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return ctx, func(row zabor.Row, err error) {
		span.SetAttributes(outcome(row)...)
		fail(span, err)
		span.End()
		if delivery != nil {
			delivery.SetAttributes(outcome(row)...)
			fail(delivery, err)
			delivery.End()
		}
	}
}

// Answer shows how the queue is told, until end is called.
func (t *Tracer) Answer(ctx context.Context, what string) (end func(error)) {
	_, span := t.tracer.Start(ctx, what)
	return func(err error) {
		fail(span, err)
		span.End()
	}
}

// outcome is what a row says of itself.
func outcome(row zabor.Row) []attribute.KeyValue {
	if row.State == "" {
		return nil
	}
	all := []attribute.KeyValue{
		attribute.String("zabor.state", string(row.State)), text("zabor.provider", row.Provider),
		attribute.Int("zabor.attempts", row.Tries), attribute.Int("zabor.generation", row.Generation),
	}
	if row.Reference != "" {
		all = append(all, text("zabor.reference", row.Reference))
	}
	return all
}
