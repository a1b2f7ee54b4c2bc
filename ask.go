package zabor

import (
	"context"
	"errors"
	"time"
)

// LookTime is how long a resolver may ask about rows before another may: what the
// death of one delays a look-up by. One that takes longer may be made twice.
const LookTime = 10 * time.Second

// Between two look-ups of a row lies a pause as long as its doubt has lasted, within
// these bounds.
const (
	shortestGap = 250 * time.Millisecond
	longestGap  = time.Minute
)

// canAsk reports whether the provider can be asked anything about row.
func (r *Resolver) canAsk(row Row) bool { return r.canLookUp(row) || r.canReplay(row) }

// canLookUp reports whether row can be looked up, and its provider has not asked to
// be left alone.
func (r *Resolver) canLookUp(row Row) bool {
	return r.Lookup != nil && row.AbsentAfter > 0 && !r.clock().Before(r.quiet[row.Provider]) &&
		!r.Fence.breaker.asked(row.Provider, r.Fence.clock())
}

// lookDue reports whether it is time to ask about r, by the database's clock when
// it was read. A new state and a new send begin anew. What a clock that jumped has
// left behind keeps nothing waiting longer than the longest pause.
func (r Row) lookDue() bool {
	begun := r.StateSince
	if sent := r.SendUntil.Add(-r.Lease); sent.After(begun) {
		begun = sent
	}
	asked := r.LookedAt.Add(-LookTime) // by whoever is asking
	switch {
	case r.Asking: // unless he has changed the state and is done, or has died
		return r.StateSince.After(asked) || !r.LookedAt.After(r.ReadAt) || asked.After(r.ReadAt)
	case r.LookedAt.After(r.ReadAt): // the clock was set back
		return r.LookedAt.Sub(r.ReadAt) > longestGap
	case begun.After(r.ReadAt): // the clock was set back
		return r.ReadAt.Sub(r.LookedAt) >= longestGap
	case r.LookedAt.Before(begun):
		return true
	}
	return r.ReadAt.Sub(r.LookedAt) >= min(max(r.LookedAt.Sub(begun), shortestGap), longestGap)
}

// askAll asks about those of rows, read at the given time of r's clock, that
// nobody else is asking about.
func (r *Resolver) askAll(ctx context.Context, rows []Row, read time.Time) error {
	clock := func() time.Time { return rows[0].ReadAt.Add(r.clock().Sub(read)) } // the database's, about
	begun := r.clock()
	mine, err := r.Fence.Store.Look(ctx, rows, clock().Add(LookTime), true)
	if err != nil {
		return err
	}
	var errs []error
	var open []Row // whose look-up decided nothing
	for i, row := range mine {
		if ctx.Err() != nil || r.clock().Sub(begun) > LookTime/2 {
			// Whoever comes next asks: also this process, when it is not stopping.
			errs = append(errs, r.giveBack(ctx, mine[i:], time.Time{}))
			break
		}
		done, left, err := r.ask(ctx, row)
		errs = append(errs, failed(row, err))
		if !done {
			open = append(open, left)
		}
	}
	return errors.Join(append(errs, r.giveBack(ctx, open, clock()))...)
}

// giveBack ends the asking about rows, which were looked at last at the given time.
func (r *Resolver) giveBack(ctx context.Context, rows []Row, at time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), SaveTimeout)
	defer cancel()
	_, err := r.Fence.Store.Look(ctx, rows, at, false)
	return err
}

// ask asks the provider about row, sends its request again where that may decide,
// and holds it when its time is up. done: it is decided, by whomever; left is the
// row as it is where it is not.
func (r *Resolver) ask(ctx context.Context, row Row) (done bool, left Row, err error) {
	w := r.watch(row)
	done, err = r.lookUp(ctx, row, w)
	if err == nil && !done && r.clock().Sub(w.since) > row.Lease { // no jump of the database's clock ends a send
		left, err = r.replay(ctx, row)
		if left.Claim != row.Claim {
			return left.State != Doubt, left, err
		}
	}
	if done || errors.Is(err, ErrStale) {
		return true, row, err
	}
	// A look-up that fails decides nothing, and does not stop the clock.
	return false, row, errors.Join(err, r.expire(ctx, row))
}
