package worker

import (
	"slices"
	"time"
)

// Place is where in its queue a message lies.
type Place string

// The places.
const (
	Ready    Place = "ready"    // the next worker that asks gets it
	Reserved Place = "reserved" // a worker has it, or had it and never said what became of it
	Delayed  Place = "delayed"  // it becomes ready at its time
)

// Among reports whether p is one of places, of which none means all.
func (p Place) Among(places []Place) bool { return len(places) == 0 || slices.Contains(places, p) }

// NextPage returns how many messages a look reads at once after a page of n that had
// so many bytes. The first page has one: messages may be large, and their size shows
// only when they are read.
func NextPage(n int64, bytes int) int64 {
	const (
		most   = 100
		enough = 1 << 20
	)
	switch {
	case bytes > 4*enough:
		return max(n/4, 1)
	case bytes < enough:
		return min(2*n, most)
	}
	return n
}

// Seen is a message that was looked at where it lies. Nothing was taken: it has
// no Receipt, and Raw is what lies there, which is not what it was before a
// delivery where it is reserved. DeliveredBefore says that somebody may have run it
// already, or runs it now, unless that is a worker of zabor's that has it for the
// first time.
type Seen struct {
	*Message
	Place Place
	// Holder is the consumer that a reserved message was given to; empty: the
	// queue does not know.
	Holder string
	// Until is when a reserve ends or a delay is over; zero for ready ones.
	Until time.Time
}

// Other is a consumer that takes messages from a queue and is not zabor's.
type Other struct {
	Name string // stable while it lives
	What string // who it is and how it shows itself, without a full stop
	Stop string // what keeps it off the queue
	// Named: it announces itself as a consumer of the queue, and lives. Else it
	// is only known by a message that it has taken, and may have died since.
	Named bool
}
