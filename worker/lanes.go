package worker

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// turn is how long a queue may wait for a message on a lane that others
	// want.
	turn = 100 * time.Millisecond
	// aside is how long it leaves the lanes to the others then.
	aside = 500 * time.Millisecond
)

// lanes bounds the calls at the same time. A lane is taken before a message is
// received, so that no message is held that is not worked on: a worker that dies
// leaves in doubt only what it had begun.
type lanes struct {
	taken  chan struct{} // one element for each lane in use
	wanted atomic.Int64  // how many wait for one
}

func newLanes(n int) *lanes { return &lanes{taken: make(chan struct{}, n)} }

// take waits for a lane; it is ctx's error when ctx ends first. Whoever holds one
// and only waits for a message gives it up soon.
func (l *lanes) take(ctx context.Context) error {
	l.wanted.Add(1)
	defer l.wanted.Add(-1)
	select {
	case l.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lanes) release() { <-l.taken }

// waiting is a context for the wait of a lane's holder for a message. It ends at
// the end of a turn in which somebody else wants a lane.
func (l *lanes) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(turn)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if l.wanted.Load() > 0 {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}
