package worker

import (
	"context"

	"zabor"
	"zabor/step"
)

// ack tells the queue that m is done: m goes on to the queue that its step names,
// or its chain does, or neither.
//
// That m has gone on is noted in the row after the queue has answered, so that a
// second message for the key does not follow it. Who dies between the two leaves
// no note: a second message goes on too then, and none is ever left behind.
func (w *Worker) ack(ctx context.Context, q Queue, m *Message, s *step.Step, row zabor.Row) {
	m.Then = then(m, s, row)
	m.Settled = row.State == zabor.Settled && s.Then() == ""
	err := w.answer(WithAck(ctx, row.Key), q, m, "ack", 0, func(ctx context.Context) error { return q.Ack(ctx, m) })
	w.at(Acked, row.Key)
	if err != nil || m.Then == "" {
		return
	}
	w.Log.Info("gone on", "queue", q.Name(), "message", m.ID, "key", row.Key, "order", row.Order, "step", row.Step, "to", m.Then)
	w.note(ctx, row.Key, func(ctx context.Context) error { return w.Fence.Forwarded(ctx, row.Key, row.Generation) })
}

// acksOf is how a context holds the keys whose messages are acked.
type acksOf struct{}

// WithAck is ctx for the ack of the message of k.
func WithAck(ctx context.Context, k zabor.Key) context.Context {
	return context.WithValue(ctx, acksOf{}, []zabor.Key{k})
}

// AcksOf lists the keys whose messages are acked in ctx.
func AcksOf(ctx context.Context) []zabor.Key {
	keys, _ := ctx.Value(acksOf{}).([]zabor.Key)
	return keys
}

// JoinAcks is ctx for one pipeline with the acks of several contexts.
func JoinAcks(ctx context.Context, acks ...context.Context) context.Context {
	var keys []zabor.Key
	for _, one := range acks {
		keys = append(keys, AcksOf(one)...)
	}
	return context.WithValue(ctx, acksOf{}, keys)
}

// then is the queue on which m goes on after its row; empty: none. A job with a
// chain takes it along, and a chain ends with a no.
func then(m *Message, s *step.Step, row zabor.Row) string {
	if row.Forwarded || m.Chained && row.State == zabor.Declined {
		return ""
	}
	return s.Then()
}
