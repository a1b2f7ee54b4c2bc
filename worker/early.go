package worker

import (
	"sync"
	"time"
)

// How long a message waits for the row that its step loads. It counts from when the
// message was sent, or from this worker's first look if the queue does not say when.
const (
	rowWait  = 5 * time.Minute
	rowLooks = 3 // at least, whatever the clocks say
	rowGap   = 30 * time.Second
)

// early are messages that came before their row. A worker that restarts looks anew.
type early struct {
	mu  sync.Mutex
	all map[string]looked
}

// looked is how often a message has been looked at, and when for the first time.
type looked struct {
	n     int
	first time.Time
}

// look counts a look at m that found no row. over is true if m has waited long enough.
func (e *early) look(m *Message, now time.Time) (over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[string]looked{}
	}
	seen := e.all[m.ID]
	if seen.n++; seen.n == 1 {
		seen.first = now
	}
	e.all[m.ID] = seen
	since := seen.first
	if !m.Sent.IsZero() && m.Sent.Before(since) {
		since = m.Sent
	}
	if over = seen.n >= rowLooks && now.Sub(since) >= rowWait; over {
		delete(e.all, m.ID)
	}
	return over
}

// gap is how long m waits for the next look: the first backoff, doubled with each look up
// to half a minute.
func (e *early) gap(m *Message, first time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	gap := first
	for range e.all[m.ID].n - 1 {
		gap = min(2*gap, max(first, rowGap))
	}
	return gap
}

func (e *early) forget(m *Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, m.ID)
}
