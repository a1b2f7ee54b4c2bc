package zabor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Finding is what a look-up at the provider says about a row.
type Finding struct {
	// Absent: the provider does not know the call. It proves nothing by itself.
	Absent bool
	// Outcome is the call that was found, if Absent is false. Unproven: the look-up
	// did not decide.
	Outcome Outcome
	// Several: more than one hit moved money.
	Several bool
}

// Lookup asks the provider about a row without moving money. It asks as the call was
// made: with the same account and header fields. An error says nothing about the row;
// a [LaterError] also says when the provider may be asked again.
type Lookup func(ctx context.Context, row Row) (Finding, error)

// Resolver decides rows that are in doubt or pending, and runs hooks that are due,
// from the table alone. Many may run on one table: each leases other rows
// ([Store].Watch). If one dies while it asks, its rows wait for [LookupTime]. Set its
// fields before first use. One goroutine runs a Resolver.
type Resolver struct {
	Fence  *Fence
	Lookup Lookup // nil: nothing is looked up
	// Replay sends the frozen request of a row again, under its key, as a Call
	// does. Rows say until when. Nil: nothing is ever sent again.
	Replay Call

	Scope     string   // the installation whose rows are resolved, see [Key.In]; empty: all rows
	Providers []string // only rows of these; nil: of all
	Others    bool     // instead: rows of all other providers

	Every time.Duration // pause between two rounds; zero: a second

	// Now is the clock by which rows are watched; nil: time.Now. It must not jump.
	Now func() time.Time

	id    [16]byte
	last  map[Key]sight          // of rows that this resolver watches
	later map[Endpoint]time.Time // no look-up before
}

// sight is when a resolver has last seen a row.
type sight struct {
	send [16]byte
	at   time.Time // monotonic
}

// LookupTime is the lease of rows that a resolver asks about. A look-up that takes
// longer may be made twice.
const LookupTime = 10 * time.Second

// The gaps between two look-ups. A doubtful row is asked about as often as its doubt
// is old, a pending row as its verdict is late, within these bounds.
const (
	shortestGap       = 250 * time.Millisecond
	longestGap        = time.Minute
	longestPendingGap = time.Hour
	watchLimit        = 10 // rows of one lease
)

func (r *Resolver) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// Run resolves until ctx ends. Errors of the store or of a look-up go to report (nil:
// to the fence's Log) and are tried again.
func (r *Resolver) Run(ctx context.Context, report func(error)) {
	every := r.Every
	if every == 0 {
		every = time.Second
	}
	if report == nil {
		report = func(err error) {
			if r.Fence.Log != nil {
				r.Fence.Log.Warn("cannot resolve", "error", err)
			}
		}
	}
	for {
		if err := r.Round(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// Round looks once at each row that is due, and decides what can be decided. The
// error joins those of single rows; the others were looked at all the same.
func (r *Resolver) Round(ctx context.Context) error {
	if r.last == nil {
		rand.Read(r.id[:])
		r.last, r.later = map[Key]sight{}, map[Endpoint]time.Time{}
	}
	maps.DeleteFunc(r.last, func(_ Key, s sight) bool { return r.now().Sub(s.at) > 2*longestPendingGap })
	var errs []error
	done := map[Key]bool{}
	for ctx.Err() == nil {
		rows, err := r.Fence.Store.Watch(ctx, Watch{By: r.id, Scope: r.Scope, Providers: r.Providers, Others: r.Others, For: LookupTime, Limit: watchLimit})
		if err != nil {
			errs = append(errs, fmt.Errorf("list open rows: %w", err))
		}
		errs = append(errs, r.lookAt(ctx, rows))
		for _, row := range rows {
			if done[row.Key] {
				return errors.Join(errs...) // the rest of this round is rows that are due again
			}
			done[row.Key] = true
		}
		if len(rows) < watchLimit {
			break
		}
	}
	return errors.Join(errs...)
}

// lookAt looks at rows that are leased, and ends their leases.
func (r *Resolver) lookAt(ctx context.Context, rows []Row) error {
	begun := r.now()
	var errs []error
	var seen []Seen
	for _, row := range rows {
		if ctx.Err() != nil || r.now().Sub(begun) > LookupTime/2 {
			break // the leases of the rest end by themselves, and any resolver looks at them
		}
		add := r.watched(row)
		row.Open.Watched += add
		row.Open.Silent += add
		left, err := r.look(ctx, row)
		errs = append(errs, failed(row, err))
		seen = append(seen, Seen{Row: row, DueIn: r.gap(left)})
	}
	if len(seen) == 0 {
		return errors.Join(errs...)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), SaveTimeout)
	defer cancel()
	return errors.Join(append(errs, r.Fence.Store.Watched(ctx, r.id, seen))...)
}

// watched is how long this resolver has watched row without a gap since it saw it
// last: zero if another resolver had the row, or a request was sent, since then.
func (r *Resolver) watched(row Row) time.Duration {
	now, before := r.now(), r.last[row.Key]
	r.last[row.Key] = sight{row.Open.Send, now}
	if before.at.IsZero() || row.Open.Watcher != r.id || before.send != row.Open.Send {
		return 0
	}
	return max(0, now.Sub(before.at))
}

// gap is how long row waits for its next look.
func (r *Resolver) gap(row Row) time.Duration {
	switch {
	case row.HookDue != "":
		return min(max(row.Open.Watched, time.Second), longestGap)
	case row.State == Captured: // until the lease ends; a clock that was set back may say that it is far
		return min(max(row.Open.SendUntil.Sub(row.ReadAt), time.Second), longestGap)
	case row.State == Pending:
		return min(max(row.Open.Watched, time.Second), longestPendingGap)
	case row.State == Doubt:
		return min(max(row.Open.Silent, shortestGap), longestGap)
	}
	return Never
}

// failed is the error of row, if it is one: a row that another writer wrote meanwhile
// is none.
func failed(row Row, err error) error {
	if err == nil || errors.Is(err, ErrStale) || errors.Is(err, ErrNoRow) {
		return nil
	}
	return fmt.Errorf("resolve %s: %w", row.Key, err)
}

// look decides what can be decided about row now. It returns the row as it is then, as
// far as known.
func (r *Resolver) look(ctx context.Context, row Row) (Row, error) {
	switch {
	case row.HookDue != "":
		err := r.Fence.RunHook(ctx, row)
		if err == nil || row.State != Pending {
			return row, err
		}
		left, askErr := r.ask(ctx, row) // it waits for its verdict all the same
		return left, errors.Join(err, askErr)
	case row.State == Released:
		r.remind(row)
		return row, nil
	case row.State == Captured && !r.sendEnded(row):
		return row, nil
	case row.State == Captured:
		return r.write(ctx, row, expired(row))
	case row.State == Doubt && row.TwoStep() && row.Prepared == "" && row.Cause != ByMissingRow:
		if !r.sendEnded(row) {
			return row, nil
		}
		return r.write(ctx, row, nothingDone(row, "the first request of two gave no id that was saved; the request that moves money was never sent", false))
	case row.State != Doubt && row.State != Pending:
		return row, nil
	}
	return r.ask(ctx, row)
}

// ask asks the provider about a row in doubt or pending, sends its request again where
// that may decide, and holds it when its time is up.
func (r *Resolver) ask(ctx context.Context, row Row) (Row, error) {
	next, why, err := r.lookUp(ctx, row)
	if errors.Is(err, ErrStale) || next.Claim != row.Claim {
		return next, err
	}
	if err != nil {
		why = "the last look-up failed: " + err.Error()
	}
	if next.State == Doubt && r.sendEnded(row) {
		sent, replayErr := r.replay(ctx, row)
		if sent.Claim != row.Claim {
			return sent, errors.Join(err, replayErr)
		}
		err = errors.Join(err, replayErr)
	}
	next, expireErr := r.expire(ctx, row, why)
	return next, errors.Join(err, expireErr)
}

// sendEnded reports whether no claim of row may send any more, by the database's clock
// or by the watch of resolvers. A replay waits for both.
func (r *Resolver) sendEnded(row Row) bool {
	return row.leaseEnded() || row.Open.Silent > row.Open.Lease
}

// remind tells, once for each released row, that no message has come to capture it
// again: it may be lost.
func (r *Resolver) remind(row Row) {
	if row.Parked != "" {
		return
	}
	r.Fence.alert(row, Warning, "free-and-forgotten", fmt.Sprintf("nothing was charged, and for %s no message came to try again: was it lost from the queue?", row.Open.HoldAfter))
}

// replay sends the frozen request again under its key, if the provider's profile allowed
// it for a time that is not over: the provider answers with what it did the first time,
// or does it now, once. It returns the row as it is now; the same claim means that
// nothing was sent.
func (r *Resolver) replay(ctx context.Context, row Row) (Row, error) {
	f := r.Fence
	if !r.canReplay(row) {
		return row, nil
	}
	timeout := callTimeout(row.Open.Lease)
	pass, wait, _ := f.pauses.enter(circuitsOf(row.Provider, row.Account, row.Key), f.now(), timeout)
	if wait > 0 {
		return row, nil
	}
	start := time.Now()
	sent := row.follow(Doubt, row.Cause, row.Reason)
	sent.Unproven++
	sent.Open.Replays++
	sent.Open.Send, sent.Open.Silent = sent.Claim.ID, 0
	if err := f.Store.Swap(ctx, row, sent, Write{Lease: row.Open.Lease, DueIn: row.Open.Lease}); err != nil {
		f.pauses.giveBack(pass, f.now())
		return row, err
	}
	callCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), start.Add(timeout))
	defer cancel()
	outcome := f.ended(pass, sent, r.Replay(callCtx, sent))
	saved, _ := f.save(ctx, sent, outcome, Effect{}) // what the state says to a delivery is no error here
	return saved, nil
}

// canReplay reports whether the frozen request may be sent again in time, by the
// database's clock and by this machine's, lest one of them was set back. The time of
// the call of a missing row is not known, and another address does not know the key.
func (r *Resolver) canReplay(row Row) bool {
	until := row.Open.ReplayUntil
	if r.Replay == nil || row.State != Doubt || row.Cause == ByMissingRow || row.Open.Request == nil || row.Open.Lingers || until.IsZero() {
		return false
	}
	if !row.leaseEnded() || row.Open.Silent <= row.Open.Lease || !r.Fence.sameEndpoint(row) {
		return false
	}
	return !row.ReadAt.Add(row.Open.Lease).After(until) && !r.now().Add(row.Open.Lease).After(until)
}

// lookUp asks the provider and writes what its answer proves. The same claim means that
// it has decided nothing; why says what was missing.
//
// Absence is proof only if resolvers had watched the row for the whole lease and
// AbsentAfter when the look-up began, on their own clocks and without a gap, and the
// same look-up finds a row that the provider itself has settled.
func (r *Resolver) lookUp(ctx context.Context, row Row) (_ Row, why string, err error) {
	switch {
	case r.Lookup == nil || row.Open.AbsentAfter == 0:
		return row, "this provider has no look-up configured", nil
	case r.now().Before(r.later[row.Endpoint]), r.Fence.pauses.asked(row.Provider, row.Account, r.Fence.now()):
		return row, "the provider asks to be left alone", nil
	}
	lateEnough := row.Open.Silent >= row.Open.Lease+row.Open.AbsentAfter
	found, err := r.find(ctx, row)
	if err != nil {
		return row, "", err
	}
	o := found.Outcome
	decides := found.Several || found.Absent || o.Verdict == Done || o.Verdict == Begun || o.Verdict == Refused
	switch {
	case !decides:
		return row, "the look-up did not decide: " + o.Reason, nil
	case row.State == Pending && (found.Absent || o.Verdict == Begun && o.Reference == row.Reference):
		return row, "the provider gave no verdict", nil
	case found.Absent && row.Open.Lingers:
		return row, "the provider failed inside, and may carry the call out later by itself: that it is not found proves nothing", nil
	case (found.Absent || o.Verdict == Refused && row.State == Doubt) && !lateEnough:
		return row, "it is too early: a request may still be on its way", nil
	}
	if found.Absent || !r.Fence.sameEndpoint(row) {
		ok, err := r.controlled(ctx, row)
		if err != nil {
			return row, "", err
		}
		if !ok {
			return row, "the look-up has found no row that is known to be settled there, so its answer proves nothing", nil
		}
	}
	switch {
	case found.Several:
		next, err := r.write(ctx, row, row.follow(Held, ByConflict, "the look-up found more than one call that moved money: "+o.Reason))
		return next, "", err
	case found.Absent:
		next, err := r.write(ctx, row, row.follow(Released, ByAbsence, "the provider does not know the call"))
		return next, "", err
	case o.Verdict == Refused:
		next := row.follow(Declined, ByLookup, o.Reason)
		next.Unproven, next.Answer = 0, o.Answer
		if row.State == Pending { // it was asked for by its reference: other sends may have made another object
			next.Unproven = max(0, row.Unproven-1-row.Open.Replays)
		}
		next, err := r.write(ctx, row, next)
		return next, "", err
	}
	s := &saving{f: r.Fence, sent: row, outcome: o, cause: ByLookup, row: row, next: adopt(row, o, ByLookup)}
	next, err := s.try(ctx)
	return next, "", err
}

// find looks row up within a lease, and notes when the provider wants to be left alone.
// Several look-ups for one decision may outlast the lease: the decision's write has the
// row's claim.
func (r *Resolver) find(ctx context.Context, row Row) (Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, LookupTime-time.Second)
	defer cancel()
	found, err := r.Lookup(ctx, row)
	if later, ok := errors.AsType[*LaterError](err); ok {
		wait := later.After
		if row.Open.HoldAfter > 0 {
			wait = min(wait, row.Open.HoldAfter)
		}
		r.later[row.Endpoint] = r.now().Add(wait)
	}
	return found, err
}

// sample is settled, to be looked up as like is; false: it has no id of that kind. Each
// kind is a separate request and can fail on its own: the reference of a pending row, the
// id of the first request of two, and what the request carried.
func sample(like, settled Row) (Row, bool) {
	switch {
	case like.State == Pending:
		settled.State = Pending
	case like.Prepared != "":
		return settled, settled.Prepared != ""
	default:
		settled.Prepared = ""
	}
	return settled, true
}

// controlled reports whether the look-up of row finds a row that the provider has
// settled at the endpoint of row: a wrong credential finds nothing, and neither does an
// index that has stopped. It is asked again for each decision. If rows were settled after
// row's latest send, one of them must be found; only without them is an older one asked.
func (r *Resolver) controlled(ctx context.Context, row Row) (bool, error) {
	const most, tries = 20, 3
	samples, err := r.Fence.Store.Samples(ctx, row, most)
	if err != nil {
		return false, err
	}
	asked := 0
	for _, settled := range samples {
		alike, ok := sample(row, settled)
		if !ok {
			continue
		}
		if asked++; asked > tries {
			break
		}
		found, err := r.find(ctx, alike)
		if err != nil {
			return false, err
		}
		if found.Outcome.Reference != "" && found.Outcome.Reference == settled.Reference {
			return true, nil
		}
	}
	return false, nil
}

// expire holds a row whose time is up by both clocks: the database's, and that of the
// resolvers that have watched it. Replays do not put it off.
func (r *Resolver) expire(ctx context.Context, row Row, why string) (Row, error) {
	since, after, limit, what := row.StateSince, row.Open.Lease+row.Open.AbsentAfter, row.Open.HoldAfter, "in doubt, and nothing decided it"
	if row.State == Pending {
		after, limit, what = 0, row.Open.PendingFor, "pending, and the provider gave no verdict"
	}
	if limit == 0 || row.ReadAt.Sub(since) <= after+limit || row.Open.Watched <= after+limit {
		return row, nil
	}
	reason := fmt.Sprintf("%s for %s: %s", what, limit, why)
	if !r.Fence.sameEndpoint(row) {
		reason += "; the provider's address, account or secret is not that of the call, so nothing was sent again"
	}
	if row.sealedRequest() {
		reason += "; nothing was sent again, because the request that was kept cannot be read: " + row.Open.Sealed.Why
	}
	if row.Reason != "" {
		reason += " (" + row.Reason + ")"
	}
	return r.write(ctx, row, row.follow(Held, ByExpiry, reason))
}

func (r *Resolver) write(ctx context.Context, row, next Row) (Row, error) {
	written, err := r.Fence.swap(ctx, row, next, Write{})
	if err != nil {
		return row, err
	}
	r.Fence.alertSaved(row, written)
	return written, nil
}
