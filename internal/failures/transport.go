// Package failures reads and moves failed messages: in the frameworks' own
// failure transports, and in zabor's table of undecoded messages.
package failures

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"zabor/laravel"
	"zabor/messenger"
	"zabor/sqlstore"
	"zabor/worker"
)

// transport holds failed messages of one queue.
type transport interface {
	// Entries gives its messages, the newest first, and ends with the first error. A
	// mark leaves out its message and all newer ones; the message need not be there
	// any more. An empty mark means all.
	Entries(ctx context.Context, mark string) iter.Seq2[Failed, error]
	// Entry returns the message of this id, or ErrNoEntry.
	Entry(ctx context.Context, id string) (Failed, error)
	// Retry puts the message back on its queue, and then deletes it here. After an
	// error the message is in one of the two, after worker.ErrBoth in both.
	Retry(ctx context.Context, id string) error
	// Forget deletes the message; ErrNoEntry: there is no such message.
	Forget(ctx context.Context, id string) error
}

// ErrNoEntry says that a failure transport has no message of this id.
var ErrNoEntry = errors.New("there is no such failed message")

// Errors of a transport for callers to tell apart.
var (
	ErrBoth       = worker.ErrBoth       // the message is on its queue, and here too
	ErrUnreadable = worker.ErrUnreadable // the message cannot be decoded
	ErrInHand     = messenger.ErrInHand  // a worker of the failure transport has the message
)

// Failed is a message in a failure transport.
type Failed struct {
	FailedID string    // in the failure transport
	Mark     string    // its position, see [Transport.Entries]
	Kind     string    // failed_jobs, messenger or unreadable
	At       time.Time // when it failed
	Reason   string
	*worker.Message
}

// laravelFailures are a Laravel queue's rows of failed_jobs.
type laravelFailures struct{ *laravel.Source }

func (f laravelFailures) Entries(ctx context.Context, mark string) iter.Seq2[Failed, error] {
	return converted(f.Source.FailedBefore(ctx, mark), f.message)
}

func (f laravelFailures) message(j laravel.FailedJob) Failed {
	return Failed{FailedID: j.UUID, Mark: j.Mark(), Kind: InLaravel, At: j.At, Reason: j.Reason, Message: f.Decode(j.Payload)}
}

func (f laravelFailures) Entry(ctx context.Context, id string) (Failed, error) {
	j, err := f.Source.FailedJob(ctx, id)
	if err != nil {
		return Failed{}, absent(err, laravel.ErrNoFailedJob)
	}
	return f.message(j), nil
}

func (f laravelFailures) Retry(ctx context.Context, id string) error {
	return absent(f.Source.Retry(ctx, id), laravel.ErrNoFailedJob)
}

func (f laravelFailures) Forget(ctx context.Context, id string) error {
	return absent(f.Source.Forget(ctx, id), laravel.ErrNoFailedJob)
}

// symfonyFailures are a Symfony transport's messages in its failure transport.
type symfonyFailures struct{ *messenger.Source }

func (f symfonyFailures) Entries(ctx context.Context, mark string) iter.Seq2[Failed, error] {
	return converted(f.Source.FailedBefore(ctx, mark), f.message)
}

func (f symfonyFailures) message(m messenger.FailedMessage) Failed {
	return Failed{FailedID: m.ID, Mark: m.ID, Kind: InSymfony, At: m.At, Reason: m.Reason, Message: m.Message}
}

func (f symfonyFailures) Entry(ctx context.Context, id string) (Failed, error) {
	m, err := f.Source.FailedMessage(ctx, id)
	if err != nil {
		return Failed{}, absent(err, messenger.ErrNotKept)
	}
	return f.message(m), nil
}

func (f symfonyFailures) Retry(ctx context.Context, id string) error {
	return absent(f.Source.Retry(ctx, id), messenger.ErrNotKept)
}

func (f symfonyFailures) Forget(ctx context.Context, id string) error {
	return absent(f.Source.Forget(ctx, id), messenger.ErrNotKept)
}

// absent returns [ErrNoEntry] in place of none, and else err.
func absent(err, none error) error {
	if errors.Is(err, none) {
		return ErrNoEntry
	}
	return err
}

// converted converts the values of a sequence, up to its first error.
func converted[A, B any](all iter.Seq2[A, error], convert func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for one, err := range all {
			if err != nil {
				var none B
				yield(none, err)
				return
			}
			if !yield(convert(one), nil) {
				return
			}
		}
	}
}

// Transport is one failure transport of a queue.
type Transport struct {
	Queue string
	transport
	// MoveOn puts a message on another queue of the same connection and then
	// deletes it, as Retry does. Nil: messages here cannot go on.
	MoveOn func(ctx context.Context, id, queue string) error
}

// The kinds of failure transports.
const (
	InLaravel  = "failed_jobs"
	InSymfony  = "messenger"
	Unreadable = "unreadable"
)

// Kind returns the kind of t.
func (t *Transport) Kind() string {
	switch t.transport.(type) {
	case laravelFailures:
		return InLaravel
	case symfonyFailures:
		return InSymfony
	}
	return Unreadable
}

// Own returns the framework's own failure transport of q.
func Own(q worker.Queue, store *sqlstore.Store) *Transport { return transports(q, store)[0] }

// transports returns the failure transports of q: the framework's own, and the
// undecoded messages.
func transports(q worker.Queue, store *sqlstore.Store) []*Transport {
	raw := &unreadables{store: store, queue: q.Name()}
	own, bytes := &Transport{Queue: q.Name()}, &Transport{Queue: q.Name(), transport: raw}
	switch source := q.Source.(type) {
	case *laravel.Source:
		raw.decode = source.Decode
		raw.push = func(ctx context.Context, raw []byte) error { _, err := source.Push(ctx, raw); return err }
		own.transport = laravelFailures{source}
		own.MoveOn = func(ctx context.Context, id, queue string) error {
			return absent(source.MoveOn(ctx, id, queue), laravel.ErrNoFailedJob)
		}
	case *messenger.Source:
		raw.push, raw.decode = source.Push, source.Decode
		own.transport = symfonyFailures{source}
		own.MoveOn = func(ctx context.Context, id, queue string) error {
			return absent(source.MoveOn(ctx, id, queue), messenger.ErrNotKept)
		}
	default:
		panic(fmt.Sprintf("a queue of type %T", source)) // queues makes no other
	}
	return []*Transport{own, bytes}
}
