// Package prove kills a real worker at every point of a charge, under each
// strategy that people use to keep it from happening twice, and counts what a
// provider was made to charge.
//
// A [Cell] is one such death. It is run with real processes, real signals and a
// queue in Redis, and with the reserve shortened, so that the queue hands the
// message to the next worker within seconds. Three of the strategies are small
// workers of this package, see [Worker]; the fourth is "zabor worker" itself.
package prove

import (
	"slices"
	"time"

	"zabor/worker"
)

// Strategy is what a worker does to keep a charge from happening twice.
type Strategy string

// The strategies. The first three are what people do without a fence.
const (
	AutoAck    Strategy = "auto-ack"    // ack first, then call
	AckAfter   Strategy = "ack-after"   // call, save the reference, then ack
	UniqueLock Strategy = "unique-lock" // as AckAfter, under a lock on the order with a lifetime
	Fence      Strategy = "fence"       // zabor worker
)

// Strategies lists all of them, the fence last.
func Strategies() []Strategy { return []Strategy{AutoAck, AckAfter, UniqueLock, Fence} }

// Moment is a point of a charge at which a worker dies.
type Moment string

// The moments, in the order of a charge by a worker that acks last. What each of
// them is for AutoAck, which acks first, says [Moment.Under]. Recaptured is one of
// Fence alone: the others capture nothing.
const (
	BeforeCapture Moment = "before-capture" // the message was received and nothing was done
	BeforeSend    Moment = "before-send"    // lock or capture is there, nothing was sent
	Recaptured    Moment = "recaptured"     // BeforeSend of a second worker, after the first one died there
	Sent          Moment = "sent"           // the provider has the request and has done nothing
	Charged       Moment = "charged"        // the provider has charged and not answered
	Answered      Moment = "answered"       // the answer was read, nothing was saved
	Saved         Moment = "saved"          // the reference is saved, the message is not acked
	InAck         Moment = "in-ack"         // Redis has acked, and its reply has not come to whoever asked for it
)

// Moments lists all of them.
func Moments() []Moment {
	return []Moment{BeforeCapture, BeforeSend, Recaptured, Sent, Charged, Answered, Saved, InAck}
}

// Label is the moment as the table names it.
func (m Moment) Label() string {
	switch m {
	case BeforeCapture:
		return "before the lock or capture"
	case BeforeSend:
		return "after it and before the send"
	case Recaptured:
		return "captured again, before the send"
	case Sent:
		return "sent and not answered"
	case Charged:
		return "charged and not answered"
	case Answered:
		return "answered and not saved"
	case Saved:
		return "saved and not acked"
	case InAck:
		return "in the ack"
	}
	return string(m)
}

// Under says what m is for a worker of strategy s.
func (m Moment) Under(s Strategy) string {
	switch {
	case m == BeforeCapture && s == AutoAck:
		return "the message is received, and not yet acked"
	case m == BeforeCapture && s == AckAfter:
		return "the message is received"
	case m == BeforeCapture && s == UniqueLock:
		return "the message is received, the lock is not taken"
	case m == BeforeCapture:
		return "the message is received, the row is not there"
	case m == BeforeSend && s == AutoAck:
		return "the message is acked, nothing was sent"
	case m == BeforeSend && s == AckAfter:
		return "nothing was sent; there is neither lock nor row"
	case m == BeforeSend && s == UniqueLock:
		return "the lock is taken, nothing was sent"
	case m == BeforeSend:
		return "the row is committed, nothing was sent"
	case m == Recaptured && s != Fence:
		return "it captures nothing, and so nothing again"
	case m == Recaptured:
		return "a worker was killed right after it had committed the row; the provider knew of nothing, the row was released, and this worker has committed it anew; nothing was sent"
	case m == Sent:
		return "the provider has read the request. Killed: it finds the connection closed and does nothing. Else it charges and answers"
	case m == Charged:
		return "the provider has charged, no byte of the answer was sent"
	case m == Answered:
		return "the worker has read the answer, nothing was saved"
	case m == Saved && s == AutoAck:
		return "the reference is saved; the message was acked long ago"
	case m == Saved:
		return "the reference is saved, the message is not acked"
	case m == InAck && s == AutoAck:
		return "its ack comes first: Redis has carried it out, the worker does not know, and nothing was sent"
	}
	return "Redis has carried the ack out, the worker does not know"
}

// stopAt is the moment as the workers know it; empty: the provider sees it first.
func (m Moment) stopAt() string {
	switch m {
	case BeforeCapture:
		return "capturing"
	case BeforeSend, Recaptured:
		return "sending"
	case Answered:
		return "answered"
	case Saved:
		return "saved"
	case InAck:
		return string(worker.Acking)
	}
	return ""
}

// Queue is the framework whose messages are on the queue.
type Queue string

// The queues.
const (
	Laravel Queue = "laravel" // a list
	Symfony Queue = "symfony" // a stream
)

// Queues lists both.
func Queues() []Queue { return []Queue{Laravel, Symfony} }

// Death is how a worker dies.
type Death string

// The ways to die.
const (
	Kill  Death = "sigkill" // at once
	Stall Death = "sigstop" // SIGSTOP, until after the reserve and until another worker has finished; then SIGCONT
	Term  Death = "sigterm" // as a deployment stops it: it may finish what it has in hand
)

// Deaths lists all of them.
func Deaths() []Death { return []Death{Kill, Stall, Term} }

// Label is the death as the table names it.
func (d Death) Label() string {
	switch d {
	case Kill:
		return "SIGKILL"
	case Stall:
		return "SIGSTOP past the reserve, then SIGCONT"
	case Term:
		return "SIGTERM"
	}
	return string(d)
}

// Cell is one death of one worker.
type Cell struct {
	Strategy Strategy `json:"strategy"`
	Moment   Moment   `json:"moment"`
	Queue    Queue    `json:"queue"`
	Death    Death    `json:"death"`
}

// name is the cell's in scopes, keys and files.
func (c Cell) name() string {
	return string(c.Strategy) + "." + string(c.Moment) + "." + string(c.Queue) + "." + string(c.Death)
}

// Filter chooses cells; an empty list is all of its kind.
type Filter struct {
	Strategies []Strategy
	Moments    []Moment
	Queues     []Queue
	Deaths     []Death
}

// Cells lists those that f chooses, the slow ones first, so that none of them is
// left for the end.
func (f Filter) Cells() []Cell {
	var cells []Cell
	for _, s := range chosen(f.Strategies, Strategies()) {
		for _, m := range chosen(f.Moments, Moments()) {
			for _, q := range chosen(f.Queues, Queues()) {
				if m == Recaptured && s != Fence {
					continue
				}
				for _, d := range chosen(f.Deaths, Deaths()) {
					cells = append(cells, Cell{s, m, q, d})
				}
			}
		}
	}
	weight := func(c Cell) int {
		switch {
		case c.Moment == Recaptured:
			return 4
		case c.Death == Term:
			return 0
		case c.Strategy == Fence:
			return 3
		case c.Strategy == UniqueLock:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(cells, func(a, b Cell) int { return weight(b) - weight(a) })
	return cells
}

func chosen[T comparable](want, all []T) []T {
	if len(want) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(one T) bool { return !slices.Contains(want, one) })
}

// Result is what became of a cell's one order.
type Result struct {
	Cell
	Charges           int64 `json:"charges"`            // of the order
	ProviderSuccesses int64 `json:"provider_successes"` // the same
	UniqueRows        int   `json:"unique_rows"`        // 1: a row holds the reference of a charge of the order
	DoubleCharged     int   `json:"double_charged"`     // 1: charged more than once
	Lost              int   `json:"lost"`               // 1: never charged

	// Error says why the cell was not finished, or what was left over; empty:
	// the queue is empty and nothing waits for anybody.
	Error    string  `json:"error,omitempty"`
	Seconds  float64 `json:"seconds"`
	Timeline []Event `json:"timeline"`
}

// Good reports whether the order was charged exactly once and a row says so.
func (r Result) Good() bool { return r.Charges == 1 && r.UniqueRows == 1 && r.Error == "" }

// Times are those of a proof: a production's, shortened.
type Times struct {
	Timeout     time.Duration // of a call through the fence
	Reserve     time.Duration // after which the queue hands the message to the next worker
	LockLife    time.Duration // of UniqueLock; longer than the reserve, which is kinder to it
	AbsentAfter time.Duration // after which a look-up that finds nothing proves that there is nothing
}

// times are as short as the configuration allows.
func times() Times {
	return Times{Timeout: time.Second, Reserve: 4 * time.Second, LockLife: 6 * time.Second, AbsentAfter: time.Second}
}
