package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Bounds of what one queue parks at the same time.
const (
	parkers       = 4                 // writes under way
	mostParked    = 64                // messages that wait for one of them
	mostParkBytes = 16 << 20          // of these
	parkTimeout   = AnswerTimeout / 2 // of one write and its repeat
)

// parking moves messages of one queue to where a person finds them, beside the
// lanes. So a failure transport that is away, or a message that it does not take,
// delays no other message.
//
// A message that cannot be parked goes back on its queue for a later delivery. So
// does one that comes while too many wait. The reserve of one that waits is renewed.
type parking struct {
	mu      sync.Mutex
	writing int
	waiting []parkJob
	bytes   int // of waiting
	writers sync.WaitGroup
}

// parkJob is a message on its way to a failure transport.
type parkJob struct {
	message *Message
	kept    *kept  // set while it waits
	park    func() // parks the message, or puts it back for later
	putBack func() // for a worker that stops
}

// enter begins j, or lets it wait. It reports whether there was room.
func (p *parking) enter(w *Worker, q Queue, j parkJob) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing < parkers {
		p.writing++
		p.writers.Go(func() { p.write(j) })
		return true
	}
	if len(p.waiting) >= mostParked || p.bytes+len(j.message.Raw) > mostParkBytes {
		return false
	}
	j.kept = w.keep(q, j.message)
	p.waiting = append(p.waiting, j)
	p.bytes += len(j.message.Raw)
	return true
}

// write parks j and then what waits.
func (p *parking) write(j parkJob) {
	for {
		j.park()
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.writing--
			p.mu.Unlock()
			return
		}
		j, p.waiting = p.waiting[0], p.waiting[1:]
		p.bytes -= len(j.message.Raw)
		p.mu.Unlock()
		j.kept.release()
	}
}

// stop puts back what waits, and waits for the writes under way. Nothing enters any
// more.
func (p *parking) stop() {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting, p.bytes = nil, 0
	p.mu.Unlock()
	for _, j := range slices.Backward(waiting) { // each at the head, so the order stays
		j.kept.release()
		j.putBack()
	}
	p.writers.Wait()
}

// beside writes m to where a person finds it, and then tells what follows. It
// returns before that is done. What names the write in the log.
func (w *Worker) beside(ctx context.Context, q Queue, m *Message, what string, write func(context.Context) error, then func()) {
	back := func(ctx context.Context, why string) {
		delay := w.Backoff[min(w.unparked.count(m.ID), len(w.Backoff))-1]
		w.Log.Error("cannot "+what+": the message is put back for later", "queue", q.Name(), "message", m.ID, "class", m.Class, "bytes", len(m.Raw), "delay", delay, "reason", why)
		_ = w.answer(ctx, q, m, "put back for later", 0, func(ctx context.Context) error { return q.Later(ctx, m, delay) })
	}
	j := parkJob{message: m, putBack: func() { w.putBack(ctx, q, m) }}
	j.park = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AnswerTimeout)
		defer cancel()
		short, done := context.WithTimeout(ctx, parkTimeout)
		err := w.answer(short, q, m, what, 2, write)
		done()
		switch {
		case err == nil:
			w.unparked.forget(m.ID)
			then()
		case !errors.Is(err, ErrLost):
			back(ctx, err.Error())
		}
	}
	if !q.parking.enter(w, q, j) {
		back(ctx, "too many messages wait to be parked")
	}
}
