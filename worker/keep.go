package worker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// kept is a message whose reserve is renewed until it is released. It costs one
// timer, and a goroutine only while a renewal is under way.
type kept struct {
	w *Worker
	q Queue
	m *Message

	mu       sync.Mutex
	timer    *time.Timer
	released bool
	cancel   context.CancelFunc // of the renewal under way; nil: none is
	ended    chan struct{}      // is closed when it has ended
}

// keep renews m's reserve at each third of it.
func (w *Worker) keep(q Queue, m *Message) *kept {
	k := &kept{w: w, q: q, m: m}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(k.gap(), k.renew)
	return k
}

func (k *kept) gap() time.Duration { return max(k.q.Reserve/3, 100*time.Millisecond) }

func (k *kept) renew() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	k.mu.Lock()
	if k.released {
		k.mu.Unlock()
		return
	}
	k.cancel, k.ended = cancel, ended
	k.mu.Unlock()
	err := k.q.Renew(ctx, k.m)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancel = nil
	switch {
	case k.released:
		return
	case errors.Is(err, ErrLost):
		k.w.Log.Warn("reserve lost while in hand; the fence stops a second call", "queue", k.q.Name(), "message", k.m.ID)
		return
	case err != nil:
		k.w.Log.Warn("cannot renew the reserve", "queue", k.q.Name(), "message", k.m.ID, "error", err)
	}
	k.timer.Reset(k.gap())
}

// release ends the renewals and waits for one under way. It may be called again.
func (k *kept) release() {
	k.mu.Lock()
	k.released = true
	k.timer.Stop()
	cancel, ended := k.cancel, k.ended
	k.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
}
