package tracing

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"zabor"
)

// Call is a zabor.Call that is shown, by a name such as "call" or "replay".
func (t *Tracer) Call(name string, call zabor.Call) zabor.Call {
	return func(ctx context.Context, row zabor.Row) zabor.Outcome {
		ctx, span := t.start(ctx, name, row.Key, trace.SpanKindClient)
		defer span.End()
		if t.tell[row.Provider] {
			h := http.Header{}
			propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
			ctx = t.o.Carry(ctx, h)
		}
		o := call(ctx, row)
		span.SetAttributes(outcome(row)...)
		span.SetAttributes(attribute.String("zabor.verdict", o.Verdict.String()))
		if o.Reference != "" {
			span.SetAttributes(text("zabor.reference", o.Reference))
		}
		if o.Verdict != zabor.Done && o.Verdict != zabor.Begun && o.Verdict != zabor.Prepared {
			fail(span, errors.New(o.Reason))
		}
		return o
	}
}

// Lookup is a zabor.Lookup that is shown.
func (t *Tracer) Lookup(look zabor.Lookup) zabor.Lookup {
	return func(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
		ctx, span := t.start(ctx, "look-up", row.Key, trace.SpanKindClient)
		defer span.End()
		found, err := look(ctx, row)
		span.SetAttributes(outcome(row)...)
		span.SetAttributes(attribute.Bool("zabor.absent", found.Absent))
		fail(span, err)
		return found, err
	}
}

// Store is s whose writes are shown.
func (t *Tracer) Store(s zabor.Store) zabor.Store { return &store{s, t} }

type store struct {
	zabor.Store
	t *Tracer
}

func (s *store) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	ctx, span := s.t.start(ctx, "capture", row.Key, trace.SpanKindInternal)
	defer span.End()
	there, err := s.Store.Insert(ctx, row, w)
	span.SetAttributes(outcome(there)...)
	span.SetAttributes(attribute.Bool("zabor.captured", err == nil && there.Claim == row.Claim && there.State == zabor.Captured))
	fail(span, err)
	return there, err
}

// entering is what a write by which a row enters a state is called.
var entering = map[zabor.State]string{
	zabor.Captured: "capture", zabor.Settled: "settle", zabor.Pending: "pend", zabor.Declined: "decline",
	zabor.Released: "release", zabor.Doubt: "doubt", zabor.Held: "hold",
}

func (s *store) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	name := entering[next.State]
	if prev.State == next.State || name == "" {
		name = "save"
	}
	ctx, span := s.t.start(ctx, name, next.Key, trace.SpanKindInternal)
	defer span.End()
	err := s.Store.Swap(ctx, prev, next, w)
	span.SetAttributes(outcome(next)...)
	if errors.Is(err, zabor.ErrStale) {
		span.SetAttributes(attribute.Bool("zabor.stale", true))
		return err
	}
	fail(span, err)
	return err
}
