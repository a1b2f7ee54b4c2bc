package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zabor"
	"zabor/step"
)

// The moments of the ack, after those of [zabor.Fence].
const (
	// Acking: the queue has carried the ack out, and its reply has not come to the
	// worker. It is seen at the queue's connection alone; [AcksOf] tells whose acks a
	// command or a pipeline has.
	Acking zabor.Checkpoint = "acking"
	Acked  zabor.Checkpoint = "acked" // the queue has answered
)

// Queue is a source and what the worker must know of it.
type Queue struct {
	Source
	// Reserve is how long the queue keeps a delivered message from the next
	// worker. The worker renews at a third of it while a message is in hand.
	Reserve time.Duration
	// MissingRow is what becomes of a message that was delivered before and
	// has no row: Doubt, Held, or Captured where the fence table loses no rows.
	MissingRow zabor.State

	parking *parking // of a Worker that runs
}

// Worker runs the messages of its queues through the fence. Its fields are set
// before Run and not changed afterwards.
type Worker struct {
	Fence  *zabor.Fence
	Queues []Queue
	Lanes  int // calls at the same time; at least 1

	Steps []*step.Step // the first that matches a message's class is its step
	Bus   Bus          // for messages that have none
	// Call sends the frozen request of a row once.
	Call zabor.Call
	// Unreadable keeps the bytes of a message that cannot be decoded. After a
	// nil error they are safe and the message is acked.
	Unreadable func(ctx context.Context, queue string, raw []byte, reason string) error

	// KeysChanged reports whether the key schema of a step was ever replaced. A
	// message that was delivered before and has no row is held then. Holds returns why
	// a message of the step is held if it has no row; empty: it is not. ids are its ID
	// and its RetryOf. Both are asked for each message and ask no server; nil: no.
	KeysChanged func(step string) bool
	Holds       func(step string, ids ...string) string

	// Backoff is how long a message waits before it is delivered again, by the
	// number of its row's captures; the last one stays. At least one.
	Backoff []time.Duration

	// Trace follows a message from its delivery to the queue's answer: what is done
	// with it is done in the context that it returns, and end is told of the row at
	// the end. key is the message's, zero where it has none. Answering follows one
	// answer to the queue. Either may be nil.
	Trace     func(ctx context.Context, queue string, m *Message, key zabor.Key) (_ context.Context, end func(zabor.Row, error))
	Answering func(ctx context.Context, what string) (end func(error))

	// Taken is told of each message that is received, by its queue; nil: nobody is.
	Taken func(queue string)

	Log *slog.Logger
	// At is told of Acked; nil: nobody is.
	At func(zabor.Checkpoint, zabor.Key)

	rest     atomic.Int64 // until when nothing is received, in unix nanoseconds: the fence could not be written
	early    early        // messages whose row was not there yet
	unhooked tries        // hooks that failed, by message
	unparked tries        // deliveries whose message could not be parked
	unscoped unscoped     // steps whose messages name a tenant, and whose keys have no scope
	told     told
}

// Run takes messages until ctx ends, and then finishes what it has in hand: what
// was sent is answered and saved, what was not started is put back. It returns
// when nothing is in hand any more.
func (w *Worker) Run(ctx context.Context) {
	taken := make(chan delivery) // is taken at once, as each has a lane
	var lanes, receivers sync.WaitGroup
	for range w.Lanes {
		lanes.Go(func() {
			for d := range taken {
				w.handle(ctx, d.queue, d.message)
				d.free()
			}
		})
	}
	free := newLanes(w.Lanes)
	var parkings []*parking
	for _, q := range w.Queues {
		q.parking = &parking{}
		parkings = append(parkings, q.parking)
		receivers.Go(func() { w.receive(ctx, q, free, taken) })
	}
	receivers.Wait()
	close(taken)
	lanes.Wait()
	for _, p := range parkings {
		p.stop()
	}
}

// delivery is a message on its way to the lane that was taken for it.
type delivery struct {
	queue   Queue
	message *Message
	free    func() // gives the lane up
}

// receive takes as many messages of q as lanes are free, and then waits for
// more. A lane is taken before its message, and none while it waits.
func (w *Worker) receive(ctx context.Context, q Queue, l *lanes, taken chan<- delivery) {
	pause := time.Duration(0)
	for {
		sleep(ctx, time.Until(time.Unix(0, w.rest.Load())))
		n, err := l.take(ctx)
		if err != nil {
			return
		}
		ms, err := q.Receive(ctx, n)
		l.release(n - len(ms))
		if ctx.Err() != nil {
			for _, m := range slices.Backward(ms) { // each at the head, so the order stays
				w.putBack(ctx, q, m)
			}
			return
		}
		for _, m := range ms {
			if w.Taken != nil {
				w.Taken(q.Name())
			}
			taken <- delivery{q, m, func() { l.release(1) }}
		}
		if err == nil && len(ms) == 0 {
			err = q.Wait(ctx)
		}
		if err == nil || ctx.Err() != nil {
			pause = 0
			continue
		}
		pause = min(max(2*pause, 100*time.Millisecond), 5*time.Second)
		w.Log.Error("cannot receive; trying again", "queue", q.Name(), "in", pause, "error", err)
		sleep(ctx, pause)
	}
}

// handle is the worker's whole sentence: run the message's step through the
// fence, and answer the queue last.
func (w *Worker) handle(ctx context.Context, q Queue, m *Message) {
	if ctx.Err() != nil {
		w.putBack(ctx, q, m)
		return
	}
	s := w.stepOf(m)
	if s == nil {
		w.withoutStep(ctx, q, m)
		return
	}
	kept := w.keep(q, m)
	defer kept.release()
	ctx, traced := w.trace(ctx, q, m, s)
	key, row, err := w.run(ctx, q, m, s)
	defer func() { traced(row, err) }()
	kept.release()
	m.MayHaveActed = mayHaveActed(row)
	switch verdict, why := w.judge(m, row, err); verdict {
	case ack:
		w.Log.Info("done", "queue", q.Name(), "message", m.ID, "key", key, "order", key.Order, "step", key.Step, "state", row.State, "reference", row.Reference)
		w.ack(ctx, q, m, s, row)
	case park:
		code := "parked"
		if w.told.taken(key) || errors.Is(err, zabor.ErrOtherRequest) {
			code = toldAlready
		}
		w.park(ctx, q, m, key, row, err, code, why)
	case keepBytes:
		w.keepBytes(ctx, q, m, why)
	case later:
		if ctx.Err() != nil && row.State == "" {
			w.putBack(ctx, q, m) // stopped before anything was begun
			return
		}
		delay := w.delay(m, row, err)
		w.Log.Info("later", "queue", q.Name(), "message", m.ID, "key", key, "order", key.Order, "step", key.Step, "delay", delay, "reason", why)
		_ = w.answer(ctx, q, m, "put back for later", 0, func(ctx context.Context) error { return q.Later(ctx, m, delay) })
	}
}

func (w *Worker) putBack(ctx context.Context, q Queue, m *Message) {
	_ = w.answer(ctx, q, m, "put back", 0, func(ctx context.Context) error { return q.PutBack(ctx, m) })
}

// run runs s, m's step. The row is zero where there is none.
func (w *Worker) run(ctx context.Context, q Queue, m *Message, s *step.Step) (zabor.Key, zabor.Row, error) {
	if m.Err != nil {
		return zabor.Key{}, zabor.Row{}, m.Err
	}
	effect, err := s.Effect(ctx, m.Message)
	if err == nil {
		w.unscoped.look(w, s, m)
		if effect.MissingRow == zabor.Doubt {
			effect.MissingRow = q.MissingRow
		}
		effect.ReservedUntil, effect.Messages = m.ReservedUntil, [2]string{m.ID, m.RetryOf}
		if err := w.oldKeys(ctx, s, m, &effect); err != nil {
			return effect.Key, zabor.Row{}, err
		}
		row, err := w.Fence.Do(ctx, effect, w.Call)
		return effect.Key, row, err
	}
	err = fmt.Errorf("message %s of %s: %w; nothing was called", m.ID, m.Class, err)
	if effect.Key.Order == "" {
		return zabor.Key{}, zabor.Row{}, err
	}
	// The request cannot be made, but the row may say that it was made before.
	row, known := w.Fence.AnswerExisting(ctx, effect)
	if errors.Is(known, zabor.ErrNoRow) || errors.Is(known, zabor.ErrReleased) {
		return effect.Key, row, err
	}
	return effect.Key, row, known
}

// oldKeys holds a message that may have been called for under a key of an earlier
// schema, unless there is a row.
func (w *Worker) oldKeys(ctx context.Context, s *step.Step, m *Message, e *zabor.Effect) error {
	if m.DeliveredBefore && w.KeysChanged != nil && w.KeysChanged(s.Name()) {
		e.MissingRow = zabor.Held
	}
	if w.Holds == nil {
		return nil
	}
	why := w.Holds(s.Name(), m.ID, m.RetryOf)
	if why == "" || w.Fence.Refuse != nil && w.Fence.Refuse(e.Key) != nil {
		return nil //nolint:nilerr // a refusal is Do's to tell
	}
	_, _, err := w.Fence.Import(ctx, *e, why)
	return err
}

// mayHaveActed reports whether a call for row may have acted. A zero row had none.
func mayHaveActed(row zabor.Row) bool {
	return row.State != "" && (row.State != zabor.Released || row.MayHaveActed())
}

type verdict int

const (
	later verdict = iota // the zero verdict loses nothing
	ack
	park
	keepBytes
)

// judge says what becomes of a message whose run ended with err.
func (w *Worker) judge(m *Message, row zabor.Row, err error) (verdict, string) {
	switch {
	case err == nil && m.Chained && row.State == zabor.Pending:
		return later, "its chain goes on when the payment has settled"
	case err == nil:
		w.unhooked.forget(m.ID)
		w.early.forget(m)
		return ack, ""
	case errors.Is(err, ErrUnreadable):
		return keepBytes, err.Error()
	case zabor.Park(err), errors.Is(err, step.ErrRefused), m.Err != nil:
		return park, err.Error()
	case errors.Is(err, step.ErrNoRow):
		// The message may have overtaken the commit of the order it speaks of.
		if w.early.look(m, time.Now()) {
			return park, err.Error()
		}
	case errors.Is(err, zabor.ErrPaused):
	case errors.Is(err, zabor.ErrHookDue):
		if w.unhooked.count(m.ID) > len(w.Backoff) {
			w.unhooked.forget(m.ID)
			return park, "paid, and the shop was not told: " + err.Error()
		}
	case row.State == "" || errors.Is(err, zabor.ErrStale):
		// The fence or the application's database could not be reached:
		// taking more messages would only carry them round.
		w.rest.Store(time.Now().Add(time.Second).UnixNano())
	}
	return later, err.Error()
}

// delay is how long a message waits whose run ended with err: to the end of the
// lease of whoever holds its row, at most the next backoff. One that came before its row
// waits longer with each look.
func (w *Worker) delay(m *Message, row zabor.Row, err error) time.Duration {
	if errors.Is(err, step.ErrNoRow) {
		return w.early.gap(m, w.Backoff[0])
	}
	next := w.Backoff[min(max(captures(row), 1), len(w.Backoff))-1]
	if e, ok := errors.AsType[*zabor.Error](err); ok && e.Wait > 0 {
		return max(e.Wait, next)
	}
	if errors.Is(err, zabor.ErrBusy) || errors.Is(err, zabor.ErrInDoubt) {
		if left := row.Open.SendUntil.Sub(row.ReadAt); !row.ReadAt.IsZero() && left > 0 {
			return min(left+10*time.Millisecond, next)
		}
	}
	return next
}

// captures is about how often row was captured: each capture and its end are two writes.
func captures(row zabor.Row) int { return int(row.Claim.Epoch+1) / 2 }

// park writes m into the failure transport, tells a person and notes it in m's
// row, unless cause is another request than the row is for. Code is that of the alert.
func (w *Worker) park(ctx context.Context, q Queue, m *Message, key zabor.Key, row zabor.Row, cause error, code, why string) {
	w.beside(ctx, q, m, "park", func(ctx context.Context) error { return q.Park(ctx, m, why) }, func() {
		w.parked(ctx, q, m, key, row, cause, code, why)
	})
}

// parked tells and notes that m was parked.
func (w *Worker) parked(ctx context.Context, q Queue, m *Message, key zabor.Key, row zabor.Row, cause error, code, why string) {
	w.Log.Error("parked in the failure transport", "queue", q.Name(), "message", m.ID, "class", m.Class, "key", key, "order", key.Order, "step", key.Step, "reason", why)
	if code != toldAlready {
		w.alertParked(q, m, key, row, code, "the failure transport", why)
	}
	if key.Order == "" || errors.Is(cause, zabor.ErrOtherRequest) {
		return // the row is not about this message
	}
	w.note(ctx, key, func(ctx context.Context) error { return w.Fence.Parked(ctx, key, m.ID) })
}

// note writes into key's row what became of a message, and logs where it cannot.
func (w *Worker) note(ctx context.Context, key zabor.Key, write func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AnswerTimeout)
	defer cancel()
	if err := write(ctx); err != nil {
		w.Log.Error("cannot note in its row what became of a message", "key", key, "order", key.Order, "step", key.Step, "error", err)
	}
}

// keepBytes moves a message that cannot be decoded into zabor's own table, and
// only then off the queue.
func (w *Worker) keepBytes(ctx context.Context, q Queue, m *Message, why string) {
	w.beside(ctx, q, m, "keep unreadable bytes", func(ctx context.Context) error {
		return w.Unreadable(ctx, q.Name(), m.Raw, why)
	}, func() {
		w.Log.Error("unreadable message kept in zabor_unreadable", "queue", q.Name(), "message", m.ID, "bytes", len(m.Raw), "reason", why)
		w.alertParked(q, m, zabor.Key{}, zabor.Row{}, "parked", "zabor_unreadable", why)
		_ = w.answer(ctx, q, m, "ack", 0, func(ctx context.Context) error { return q.Ack(ctx, m) })
	})
}

// AnswerTimeout bounds one answer to the queue, over all its tries.
const AnswerTimeout = 10 * time.Second

// answer tells the queue what became of m, and logs where it cannot. A stop does not
// cancel it, but a deadline of ctx does. It tries at most tries times; 0: as often as
// the time allows. If the queue cannot be told, it delivers m again, and the fence
// answers then.
func (w *Worker) answer(ctx context.Context, q Queue, m *Message, what string, tries int, tell func(context.Context) error) (err error) {
	end := time.Now().Add(AnswerTimeout)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(end) {
		end = sooner
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	if w.Answering != nil {
		end := w.Answering(ctx, what)
		defer func() { end(err) }()
	}
	for pause := 20 * time.Millisecond; ; pause *= 2 {
		tries--
		if err = tell(ctx); err == nil {
			return nil
		}
		if errors.Is(err, ErrLost) {
			w.Log.Warn("cannot "+what+": the reserve had ended, the queue delivers the message again", "queue", q.Name(), "message", m.ID)
			return err
		}
		if tries == 0 {
			return err
		}
		w.Log.Warn("cannot "+what, "queue", q.Name(), "message", m.ID, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// trace begins to follow m, whose step is s.
func (w *Worker) trace(ctx context.Context, q Queue, m *Message, s *step.Step) (context.Context, func(zabor.Row, error)) {
	if w.Trace == nil {
		return ctx, func(zabor.Row, error) {}
	}
	var key zabor.Key
	if m.Err == nil {
		key, _ = s.Key(m.Message) // where it has none, running it says so
	}
	return w.Trace(ctx, q.Name(), m, key)
}

func (w *Worker) at(m zabor.Checkpoint, k zabor.Key) {
	if w.At != nil {
		w.At(m, k)
	}
}

// sleep waits for d, or until ctx ends; not at all where d is not above zero.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// tries counts by message id. A worker that restarts counts anew.
type tries struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tries) count(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[id]++
	return t.n[id]
}

func (t *tries) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.n, id)
}
