package worker

import "context"

// lanes bounds the calls at the same time. A lane is taken before a message is
// received. So a worker that dies leaves in doubt only what it had begun.
type lanes struct {
	taken chan struct{} // one element for each lane in use
}

func newLanes(n int) *lanes { return &lanes{taken: make(chan struct{}, n)} }

// take waits for a lane, and takes all others that are free as well. It returns how
// many it has, or ctx's error if ctx ends first.
func (l *lanes) take(ctx context.Context) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case l.taken <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n = 1; ; n++ {
		select {
		case l.taken <- struct{}{}:
		default:
			return n, nil
		}
	}
}

func (l *lanes) release(n int) {
	for range n {
		<-l.taken
	}
}
