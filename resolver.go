package zabor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Finding is what a look-up at the provider says about a row.
type Finding struct {
	// Absent: the provider does not know the call. It proves nothing by itself.
	Absent bool
	// Outcome is what was found where Absent is false. Unproven: the look-up
	// did not decide.
	Outcome Outcome
	// Several: more than one hit moved money.
	Several bool
}

// Lookup asks the provider about a row without moving money. An error says
// nothing about the row.
type Lookup func(ctx context.Context, row Row) (Finding, error)

// Resolver decides rows that are in doubt or pending, from the table alone. Many
// may run on one table. Its fields are set before first use; one Resolver is run
// by one goroutine.
type Resolver struct {
	Store  Store
	Lookup Lookup
	Alert  func(Alert)

	// Every is the pause between two rounds. Zero: a second.
	Every time.Duration

	now     func() time.Time // nil: time.Now
	watched map[Key]*watch
	control map[[2]string]bool // provider and account whose look-up has found a known row
}

// watch is how long this process has seen a row without a new send.
type watch struct {
	captured time.Time // with captures: which sends were watched
	captures int
	since    time.Time // monotonic
	next     time.Time // of the next look-up
	pause    time.Duration
	seen     bool // in this round
}

// Run resolves until ctx ends. Errors of the store or of a look-up are passed to
// report (nil: dropped) and tried again.
func (r *Resolver) Run(ctx context.Context, report func(error)) {
	every := r.Every
	if every == 0 {
		every = time.Second
	}
	for {
		if err := r.Round(ctx); err != nil && ctx.Err() == nil && report != nil {
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// Round looks once at every open row and decides what can be decided. The error
// joins those of single rows; the others were looked at all the same.
func (r *Resolver) Round(ctx context.Context) error {
	if r.now == nil {
		r.now = time.Now
	}
	if r.watched == nil {
		r.watched = map[Key]*watch{}
		r.control = map[[2]string]bool{}
	}
	var errs []error
	var after Key
	const page = 100
	for {
		rows, err := r.Store.Open(ctx, []State{Captured, Doubt, Pending}, after, page)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list open rows: %w", err))...)
		}
		for _, row := range rows {
			if err := r.look(ctx, row); err != nil && !errors.Is(err, ErrStale) {
				errs = append(errs, fmt.Errorf("resolve %s: %w", row.Key, err))
			}
			after = row.Key
		}
		if len(rows) < page || ctx.Err() != nil {
			break
		}
	}
	for k, w := range r.watched {
		if !w.seen {
			delete(r.watched, k)
		}
		w.seen = false
	}
	return errors.Join(errs...)
}

// look decides one row, if it can be decided now. It is ErrStale when somebody
// else was faster.
func (r *Resolver) look(ctx context.Context, row Row) error {
	w := r.watch(row)
	if row.State == Captured {
		if row.leaseEnded() || r.now().Sub(w.since) > row.Lease {
			return r.Store.Swap(ctx, row.Claim, expired(row), 0)
		}
		return nil
	}
	if r.Lookup != nil && row.AbsentAfter > 0 && !r.now().Before(w.next) {
		w.pause = min(max(2*w.pause, 250*time.Millisecond), time.Minute)
		done, err := r.lookUp(ctx, row, w)
		w.next = r.now().Add(w.pause)
		if done || err != nil {
			return err
		}
	}
	return r.expire(ctx, row)
}

func (r *Resolver) watch(row Row) *watch {
	w := r.watched[row.Key]
	if w == nil || w.captures != row.Captures || !w.captured.Equal(row.CapturedAt) {
		w = &watch{captures: row.Captures, captured: row.CapturedAt, since: r.now()}
		r.watched[row.Key] = w
	}
	w.seen = true
	return w
}

// lookUp asks the provider and writes what its answer proves. Absence is proof
// only where this process itself has watched the row for the whole lease and
// AbsentAfter before it asked: its own clock cannot jump as a database's does,
// and the lease bounds every send of the claim.
func (r *Resolver) lookUp(ctx context.Context, row Row, w *watch) (done bool, err error) {
	lateEnough := r.now().Sub(w.since) >= row.Lease+row.AbsentAfter
	found, err := r.Lookup(ctx, row)
	if err != nil {
		return false, err
	}
	switch {
	case found.Several:
		return true, r.write(ctx, row, func(next *Row) {
			next.State, next.Basis = Held, ByLookup
			next.Reason = "the look-up found more than one call that moved money: " + found.Outcome.Reason
		})
	case found.Absent:
		if row.State != Doubt || !lateEnough {
			return false, nil
		}
		ok, err := r.controlled(ctx, row)
		if err != nil || !ok {
			return false, err
		}
		return true, r.write(ctx, row, func(next *Row) {
			next.State, next.Basis = Released, ByAbsence
			next.Reason = "the provider does not know the call"
		})
	}
	switch o := found.Outcome; o.Verdict {
	case Done, Begun:
		_, err := saveReference(ctx, r.Store, func(before, after Row) { alertSaved(r.Alert, before, after) }, row, o)
		return true, err
	case Refused:
		return true, r.write(ctx, row, func(next *Row) {
			next.State, next.Basis = Declined, ByLookup
			next.Reason, next.Answer, next.Request = o.Reason, o.Answer, nil
		})
	}
	return false, nil
}

// controlled reports whether the same look-up has found a row that is known to
// be settled: a look-up with a wrong credential finds nothing either.
func (r *Resolver) controlled(ctx context.Context, row Row) (bool, error) {
	who := [2]string{row.Provider, row.Account}
	if r.control[who] {
		return true, nil
	}
	known, err := r.Store.Control(ctx, row.Provider, row.Account, 3)
	if err != nil {
		return false, err
	}
	for _, k := range known {
		found, err := r.Lookup(ctx, k)
		if err != nil {
			return false, err
		}
		if found.Outcome.Reference != "" && found.Outcome.Reference == k.Reference {
			r.control[who] = true
			return true, nil
		}
	}
	return false, nil
}

// expire holds a row whose time is up.
func (r *Resolver) expire(ctx context.Context, row Row) error {
	since, limit, what := row.SendUntil.Add(row.AbsentAfter), row.HoldAfter, "in doubt, and nothing decided it"
	if row.State == Pending {
		since, limit, what = row.StateSince, row.PendingFor, "pending, and the provider gave no verdict"
	}
	if limit == 0 || row.ReadAt.Sub(since) <= limit {
		return nil
	}
	why := ""
	switch {
	case row.State == Pending:
	case row.AbsentAfter == 0:
		why = ": this provider has no look-up configured"
	case !r.control[[2]string{row.Provider, row.Account}]:
		why = ": the look-up has found no row that is known to be settled, so its silence proves nothing"
	}
	return r.write(ctx, row, func(next *Row) {
		next.State, next.Basis = Held, ByExpiry
		next.Reason = fmt.Sprintf("%s for %s%s", what, limit, why)
		if row.Reason != "" {
			next.Reason += " (" + row.Reason + ")"
		}
	})
}

func (r *Resolver) write(ctx context.Context, row Row, change func(next *Row)) error {
	next := row
	next.Claim = row.Claim.next()
	change(&next)
	if err := r.Store.Swap(ctx, row.Claim, next, 0); err != nil {
		return err
	}
	alertSaved(r.Alert, row, next)
	return nil
}
