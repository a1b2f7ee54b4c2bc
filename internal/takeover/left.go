package takeover

import (
	"context"
	"fmt"
	"io"
	"strings"

	"zabor"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/sqlstore"
)

// LeftQueued prints queued messages with a possible call: their key has a
// row, or a worker has had them. A message put back before its call is neither.
func LeftQueued(ctx context.Context, to io.Writer, f *failures.Transports, list []connect.Queue) (n int, err error) {
	for _, q := range list {
		for m, err := range q.Look(ctx) {
			if err != nil {
				return n, exit.Unreachable(fmt.Errorf("queue %s: %w", q.Name(), err), "the queues are given up; what is left on them was not looked at: type it again when Redis is there")
			}
			key, ok := f.Key(m.Message)
			if !ok {
				continue
			}
			row, err := f.Store.Reports().Row(ctx, key)
			if err != nil {
				return n, exit.Store(err)
			}
			var state string
			switch {
			case row != nil:
				state = "is " + string(row.State)
			case m.DeliveredBefore:
				state = "has no row, and another worker has had it"
			case m.Holder != "":
				state = fmt.Sprintf("has no row, and %s has it, or had it", console.Printable(m.Holder))
			default:
				continue
			}
			if n++; n <= mostLeft {
				fmt.Fprintf(to, "zabor: %s %s, and its message is %s on queue %s\n", console.Printable(key.String()), state, m.Place, q.Name())
			}
		}
	}
	if n > mostLeft {
		fmt.Fprintf(to, "zabor: and %d more messages\n", n-mostLeft)
	}
	return n, nil
}

// mostLeft is how many messages are printed.
const mostLeft = 100

// LeftOver prints the work left for a person: rows in these states, and the failed
// messages of other keys. PHP's own retry would make each of these calls.
// hint is printed if a failure transport cannot be read.
func LeftOver(ctx context.Context, to io.Writer, f *failures.Transports, hint string, states ...zabor.State) (left, parked int, err error) {
	filter := sqlstore.Filter{Within: f.File.Scope, States: states, Limit: 500}
	for {
		rows, err := f.Store.Reports().List(ctx, filter)
		if err != nil {
			return left, 0, exit.Store(err)
		}
		for _, row := range rows {
			filter.After = row.Key
			left++
			fmt.Fprintf(to, "zabor: %s is %s: %s\n", console.Printable(row.Key.String()), row.State, console.Printable(row.Reason))
		}
		if len(rows) < filter.Limit {
			break
		}
	}
	parked, err = leftFailed(ctx, to, f, hint)
	return left, parked, err
}

// leftFailed prints the failed messages with a possible charge: messages of steps, and
// undecoded ones. A row in state held or released is left out: it was printed. hint is as for
// LeftOver.
func leftFailed(ctx context.Context, to io.Writer, f *failures.Transports, hint string) (n int, err error) {
	for _, t := range f.All {
		for m, err := range t.Entries(ctx, "") {
			if t.MoveOn != nil && f.Open[t.Queue].FailedIn.NoTable(err) {
				break
			}
			if err != nil {
				return n, exit.Unreachable(fmt.Errorf("queue %s: what failed on it cannot be read: %w", t.Queue, err), hint)
			}
			state, charges, err := f.State(ctx, m)
			if err != nil {
				return n, err
			}
			if !charges {
				continue
			}
			if n++; n <= mostLeft {
				reason, _, _ := strings.Cut(m.Reason, "\n")
				fmt.Fprintf(to, "zabor: %s, and its message has failed: %s: %s\n", state, f.Describe(t.Queue, m), console.Printable(reason))
			}
		}
	}
	if n > mostLeft {
		fmt.Fprintf(to, "zabor: and %d more failed messages\n", n-mostLeft)
	}
	return n, nil
}
