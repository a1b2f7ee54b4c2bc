// Package worker takes messages from queues, runs their steps through the fence
// and acks last.
package worker

import (
	"context"
	"iter"
	"time"

	"zabor/step"
)

// Message is one delivery of a queue's message.
type Message struct {
	step.Message
	ID      string    // the queue's own id of the message, stable over redeliveries: uuid or stream entry id
	RetryOf string    // the ID of the parked message that this one retries; empty: its own, or it retries none
	Sent    time.Time // when it was queued, or when its delay ended; zero: the queue does not say
	Raw     []byte    // the bytes as they were before the delivery; of one that is kept unreadable with the sign, see MayHaveActed
	Err     error     // why it cannot be decoded; nil: it can. Raw is set all the same
	Receipt any       // the source's own

	// ReservedUntil is the moment up to which the queue gives the message to
	// nobody else, unless it is renewed. It is counted from before the message
	// was asked for, by this process's clock.
	ReservedUntil time.Time

	// MayHaveActed is set before Later, PutBack and Park: a call for the message
	// may have acted. The source then stores a sign with the message, and every
	// later delivery of it is DeliveredBefore.
	MayHaveActed bool

	// Chained: Ack sends the next message of a chain after one that has
	// settled. While its row is pending it is not acked.
	Chained bool
	// Settled is set before Ack: the message's row is settled.
	Settled bool
	// Then is set before Ack: the queue on which the message goes on; empty: it
	// does not. A chain goes on with its message.
	Then string
}

// Source is a queue that delivers each message at least once. Its methods may
// be called concurrently. A message that Receive has returned belongs to the
// caller until one of Ack, Later, PutBack, Park and Forward has returned nil, or until
// its reserve ends.
type Source interface {
	// Name is the queue's name in the configuration.
	Name() string

	// Receive takes the next messages, at most n; n is at least 1. There may be
	// none, and it does not wait for one. ctx is looked at before the queue is asked,
	// and not while it is asked: a message that the queue gives is returned.
	//
	// After an error, the queue may have given messages and its reply was lost. The
	// next Receive returns these messages, and not as delivered before. If the
	// process ends meanwhile, they come again as DeliveredBefore.
	Receive(ctx context.Context, n int) ([]*Message, error)

	// Wait returns when there may be messages again, after a second at the latest,
	// or with ctx's error. Another error is the server's.
	Wait(ctx context.Context) error

	// Ack removes m from the queue. Where m.Then names another queue it moves m
	// there as Forward does, made ready to be handled anew; else it sends the
	// next message of m's chain if m is Chained and Settled. The queue may
	// deliver m again until Ack has returned nil. ErrLost: the reserve had ended
	// and m is no longer this caller's; it was, or will be, delivered again.
	Ack(ctx context.Context, m *Message) error

	// Later puts m back with the bytes it had before the delivery, to be
	// delivered again after delay; it costs m no attempt. If m.MayHaveActed, the
	// sign is stored too, at most once per message. ErrLost as in Ack, and
	// nothing was queued then.
	Later(ctx context.Context, m *Message, delay time.Duration) error

	// PutBack puts m back at the head as if it had never been delivered, for
	// a worker that stops. A sign is stored as by Later. ErrLost as in Ack.
	PutBack(ctx context.Context, m *Message) error

	// Renew makes the reserve of m start anew. ErrLost as in Ack.
	Renew(ctx context.Context, m *Message) error

	// Park writes m into the queue's failure transport with the reason, and
	// only then acks it. A sign is stored as by Later. After an error it may be in both, never in neither.
	Park(ctx context.Context, m *Message, reason string) error

	// Forward moves m unchanged, with the bytes it had before the delivery, to
	// the end of another queue of the same connection: for Laravel a queue's
	// name, for Symfony a stream's. ErrLost as in Ack, and nothing was queued
	// then, unless the two queues are on different nodes of a cluster: there,
	// and after any other error, m may be in both, never in neither. One that
	// cannot be decoded is refused and stays.
	Forward(ctx context.Context, m *Message, queue string) error

	// Depth counts what the queue holds.
	Depth(ctx context.Context) (Depth, error)

	// Look gives every message of the queue that lies at one of the places and
	// takes none; without a place, at any. It has a page of them in memory at a
	// time, and ends with the first error. What arrives or moves meanwhile may
	// be missed, or be given twice.
	Look(ctx context.Context, places ...Place) iter.Seq2[Seen, error]

	// Others lists consumers that are not zabor's, as far as the queue shows
	// them; a hundred or so at most.
	Others(ctx context.Context) ([]Other, error)
}

// Depth is how many messages a queue holds, by where they are.
type Depth struct{ Ready, Reserved, Delayed int64 }

// Empty reports whether the queue holds nothing at all.
func (d Depth) Empty() bool { return d == Depth{} }

// Next waits for the next message of s until ctx ends, and then returns ctx's error.
// A message that the queue has given is returned, even if ctx has ended.
func Next(ctx context.Context, s Source) (*Message, error) {
	for {
		ms, err := s.Receive(ctx, 1)
		if err != nil {
			return nil, err
		}
		if len(ms) > 0 {
			return ms[0], nil
		}
		if err := s.Wait(ctx); err != nil {
			return nil, err
		}
	}
}
