package worker

import (
	"context"
	"time"
)

// lanes bounds the calls at the same time. A lane is taken before a message is
// received, so that no message is held that is not worked on: a worker that dies
// leaves in doubt only what it had begun.
type lanes struct {
	taken  chan struct{} // one element for each lane in use
	wanted chan struct{} // somebody waits for a lane while another only waits for a message
}

func newLanes(n int) *lanes {
	return &lanes{taken: make(chan struct{}, n), wanted: make(chan struct{}, 1)}
}

// take waits for a lane; it is ctx's error when ctx ends first. A queue that
// holds one and only waits for a message is asked to give it up.
func (l *lanes) take(ctx context.Context) error {
	for {
		select {
		case l.taken <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		select {
		case l.wanted <- struct{}{}:
		default:
		}
		select {
		case l.taken <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond): // the wish may have met a lane that was busy by then
		}
	}
}

func (l *lanes) release() { <-l.taken }

// waiting is a context for the wait of a lane's holder for a message. It ends
// when somebody else wants the lane.
func (l *lanes) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-l.wanted:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
