package decision

import (
	"context"
	"errors"
	"fmt"

	"zabor"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/worker"
)

// disposition is the way of a message out of a failure transport.
type disposition struct {
	failures.Entry
	to   string // target queue; empty: it is deleted
	then bool   // to is where its step lets it go on; else its own queue
	why  string
}

// asks reports whether m asks for the effect of row once d is taken. Another request under
// the same key is not answered by it.
func (k *Decider) asks(d zabor.Decision, row zabor.Row, m failures.Entry) bool {
	any := row.Fingerprint.Message == "" || d.Action == zabor.Release && (newKey(row) || !row.MayHaveActed())
	return any || m.OldKey || k.Failures.StepOf(m.Failed.Message).Fingerprint(m.Message.Message) == row.Fingerprint.Message
}

// dispositions returns the dispositions of the messages of row.
func (k *Decider) dispositions(d zabor.Decision, row zabor.Row, list []failures.Entry) []disposition {
	goneOn := row.Forwarded
	var fates []disposition
	for _, m := range list {
		s := k.Failures.StepOf(m.Failed.Message)
		f := disposition{Entry: m}
		switch {
		case d.Action == zabor.Release:
			f.to, f.why = m.In.Queue, "a worker calls once more for it there"
		case m.Chained && d.Action == zabor.Decline:
			f.why = "its chain ends"
		case s.Then() != "" && !goneOn:
			f.to, f.then, goneOn = s.Then(), true, true
		case m.Chained && s.Then() == "":
			f.to, f.why = m.In.Queue, "a worker acks it there without a call, and its chain goes on"
		}
		fates = append(fates, f)
		if d.Action == zabor.Release {
			break // one call, one message
		}
	}
	return fates
}

// String describes f.
func (f disposition) String() string {
	text := fmt.Sprintf("its message %s of queue %s ", console.Printable(f.FailedID), f.In.Queue)
	switch {
	case f.to == "":
		text += "is deleted from " + f.Kind
	case f.then:
		text += "goes on to " + f.to + ", and is then deleted from " + f.Kind
	default:
		text += "goes back to the end of its queue, and is then deleted from " + f.Kind
	}
	if f.why != "" {
		text += ": " + f.why
	}
	return text
}

// Elsewhere says where the message of m may be if it is in no failure transport.
func (k *Decider) Elsewhere(ctx context.Context, m Planned) string {
	then := "a worker acks it there without a call"
	if m.Action == zabor.Release {
		then = "a worker calls once more for it there"
	}
	for _, q := range k.Failures.Queues {
		for seen, err := range q.Look(ctx) {
			if err != nil {
				return fmt.Sprintf("no message of it is in a failure transport; whether one is still on queue %s cannot be seen: %v", q.Name(), err)
			}
			if key, ok := k.Failures.Key(seen.Message); ok && key == m.Key {
				return fmt.Sprintf("its message is still on queue %s (%s): %s", q.Name(), seen.Place, then)
			}
		}
	}
	switch {
	case m.Action == zabor.Release:
		return "no message of it is in a failure transport or on a queue: the application must send it again, or nothing is called"
	case m.Row.Forwarded:
		return "its message has gone on already"
	}
	return "no message of it is in a failure transport or on a queue: one that comes is acked without a call"
}

// Moved is the result of a move. Its JSON is documented.
type Moved struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Transport string `json:"transport"` // failed_jobs or messenger: where it was
	Did       string `json:"did"`       // deleted, put back, gone on, or gone meanwhile
	To        string `json:"to"`        // its queue now; may be empty
}

// String describes c.
func (c Moved) String() string {
	text := fmt.Sprintf("message %s of queue %s: %s", console.Printable(c.ID), c.Queue, c.Did)
	if c.To != "" {
		text += " to " + c.To
	}
	return text
}

// hookFailed returns the error of a decision with a failed hook.
func hookFailed(m Planned, err error) error {
	return exit.Bad(fmt.Errorf("%s is decided, and the shop was not told: %w; its message stays where it is", m.Key, err),
		"a running worker tries the hook again until it works; mend what it complains of, and type the same command again to move the message")
}

// move lets a message go where it belongs: it is put there first, and deleted second.
func (k *Decider) move(ctx context.Context, row zabor.Row, f disposition) (Moved, error) {
	c := Moved{ID: f.FailedID, Queue: f.In.Queue, Transport: f.Kind, Did: "deleted", To: f.to}
	var err error
	switch {
	case f.to == "":
		err = f.In.Forget(ctx, f.FailedID)
	case f.then:
		c.Did = "gone on"
		err = f.In.MoveOn(ctx, f.FailedID, f.to)
		k.At(Moving, row.Key)
		if err == nil || errors.Is(err, worker.ErrBoth) {
			err = errors.Join(err, k.Fence.Forwarded(ctx, row.Key, row.Generation))
		}
	default:
		c.Did = "put back"
		err = f.In.Retry(ctx, f.FailedID)
		k.At(Moving, row.Key)
	}
	if errors.Is(err, failures.ErrNoEntry) {
		return Moved{ID: f.FailedID, Queue: f.In.Queue, Transport: f.Kind, Did: "gone meanwhile"}, nil
	}
	return c, err
}
