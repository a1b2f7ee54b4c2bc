package zabor

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// nothing about the row; a [LaterError] that the provider is not to be asked again
// before its time.
type Lookup func(ctx context.Context, row Row) (Finding, error)

// Resolver decides rows that are in doubt or pending, and runs hooks that are due,
// from the table alone. Many may run on one table: each asks the provider about
// other rows ([Store].Look), and one that dies while it asks delays a row by
// [LookTime] at most. Its fields are set before first use; one
// Resolver is run by one goroutine.
type Resolver struct {
	Fence  *Fence
	Lookup Lookup
	// Replay sends the frozen request of a row again, under its key, as a
	// Call does; rows say until when. Nil: nothing is ever sent again.
	Replay Call

	// Scope is the installation whose rows are resolved, see [Key.In]; empty: all rows.
	// Those of another one are for its own resolver, which has its credentials.
	Scope string
	// Of reports whether the rows of a provider are resolved here; nil: those of
	// all. A round waits for each provider that it asks: one that hangs delays the
	// rows of the others, unless each has a resolver of its own.
	Of func(provider string) bool

	// Every is the pause between two rounds. Zero: a second.
	Every time.Duration

	// Now is the clock by which rows are watched; nil: time.Now. It must not jump.
	Now func() time.Time

	watched map[Key]*watch
	control map[lookedUp]bool    // look-ups that have found a known row
	quiet   map[string]time.Time // by provider: when it may be looked up again
}

// lookedUp is a kind of look-up, and where it looks for what.
type lookedUp struct {
	provider, account string
	of                string // the place of the rows that are looked for
	at                string // where they are looked for
	by                asking
}

// asking is by what of a row a look-up asks: another request, that may fail alone.
type asking uint8

const (
	byCarried   asking = iota // what the request carried
	byPrepared                // the id of the first request of two
	byReference               // the reference of what is pending
)

// askingFor is how row is asked about, where the provider can be asked so.
func askingFor(row Row) asking {
	switch {
	case row.State == Pending:
		return byReference
	case row.Prepared != "":
		return byPrepared
	}
	return byCarried
}

// as is r, a settled row, to be asked about as by says; false: it cannot be.
func (r Row) as(by asking) (Row, bool) {
	switch by {
	case byReference:
		r.State = Pending
	case byPrepared:
		return r, r.Prepared != ""
	default:
		r.Prepared = ""
	}
	return r, true
}

// watch is how long this process has seen a row without a new send.
type watch struct {
	captured time.Time // with sends: which were watched
	sends    int       // captures and replays
	since    time.Time // monotonic
	next     time.Time // of the next try of a hook
	pause    time.Duration
	alerted  bool // that a free row waits for a message which does not come
	seen     bool // in this round
}

func (r *Resolver) clock() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// Run resolves until ctx ends. Errors of the store or of a look-up are passed to
// report (nil: to the fence's Log) and tried again.
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

// Round looks once at every open row and decides what can be decided. The error
// joins those of single rows; the others were looked at all the same.
func (r *Resolver) Round(ctx context.Context) error {
	if r.watched == nil {
		r.watched = map[Key]*watch{}
		r.control = map[lookedUp]bool{}
		r.quiet = map[string]time.Time{}
	}
	err := errors.Join(
		r.pages(ctx, r.open, func(after Key, limit int) ([]Row, error) {
			return r.Fence.Store.Open(ctx, []State{Captured, Doubt, Pending, Released}, after, limit)
		}),
		r.pages(ctx, r.due, func(after Key, limit int) ([]Row, error) {
			return r.Fence.Store.Due(ctx, after, limit)
		}))
	for k, w := range r.watched {
		if !w.seen {
			delete(r.watched, k)
		}
		w.seen = false
	}
	return err
}

// mine reports whether row is resolved here.
func (r *Resolver) mine(row Row) bool {
	return row.In(r.Scope) && (r.Of == nil || r.Of(row.Provider))
}

// pages does what is to be done with every row that list lists and that is resolved
// here, and joins the errors.
func (r *Resolver) pages(ctx context.Context, do func(context.Context, []Row) error, list func(after Key, limit int) ([]Row, error)) error {
	const page = 100
	var errs []error
	var after Key
	for ctx.Err() == nil {
		rows, err := list(after, page)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list open rows: %w", err))...)
		}
		last := len(rows) < page
		if !last {
			after = rows[len(rows)-1].Key
		}
		errs = append(errs, do(ctx, slices.DeleteFunc(rows, func(row Row) bool { return !r.mine(row) })))
		if last {
			break
		}
	}
	return errors.Join(errs...)
}

// failed is the error of row, if it is one: a row that somebody else wrote
// meanwhile is none.
func failed(row Row, err error) error {
	if err == nil || errors.Is(err, ErrStale) {
		return nil
	}
	return fmt.Errorf("resolve %s: %w", row.Key, err)
}

// open decides what of rows can be decided now, and asks the provider about those
// whose turn it is.
func (r *Resolver) open(ctx context.Context, rows []Row) error {
	read := r.clock()
	var errs []error
	var asked []Row
	for _, row := range rows {
		ask, err := r.look(ctx, row)
		if errs = append(errs, failed(row, err)); ask {
			asked = append(asked, row)
		}
	}
	slices.SortStableFunc(asked, func(a, b Row) int { return a.LookedAt.Compare(b.LookedAt) })
	for some := range slices.Chunk(asked, MaxLooks) {
		errs = append(errs, r.askAll(ctx, some, read))
	}
	return errors.Join(errs...)
}

// look decides what can be decided about row without the provider, and whether to
// ask it. It is ErrStale when somebody else was faster.
func (r *Resolver) look(ctx context.Context, row Row) (ask bool, err error) {
	w := r.watch(row)
	switch {
	case row.State == Released:
		r.remind(row, w)
		return false, nil
	case row.State == Captured && !r.sendEnded(row, w):
		return false, nil
	case row.State == Captured:
		return false, r.write(ctx, row, expired(row))
	case row.State == Doubt && row.TwoStep() && row.Prepared == "" && row.Basis != ByMissingRow:
		if !r.sendEnded(row, w) {
			return false, nil
		}
		next := follow(row, Released, ByPrepare)
		next.Reason = "the first request of two gave no id that was saved; the one that moves money was never sent"
		return false, r.write(ctx, row, next)
	case r.canAsk(row) && row.lookDue():
		return true, nil
	}
	return false, r.expire(ctx, row)
}

// sendEnded reports whether no claim of row may send any more, by the database's
// clock or by this process's.
func (r *Resolver) sendEnded(row Row, w *watch) bool {
	return row.leaseEnded() || r.clock().Sub(w.since) > row.Lease
}

// due runs the hooks that are due for rows, each less and less often.
func (r *Resolver) due(ctx context.Context, rows []Row) error {
	var errs []error
	for _, row := range rows {
		w := r.watch(row)
		if r.clock().Before(w.next) {
			continue
		}
		w.pause = min(max(2*w.pause, time.Second), time.Minute)
		w.next = r.clock().Add(w.pause)
		errs = append(errs, failed(row, r.Fence.RunHook(ctx, row)))
	}
	return errors.Join(errs...)
}

// remind tells, once for each free row and process, that nobody came to capture
// it again: its message may be lost.
func (r *Resolver) remind(row Row, w *watch) {
	if w.alerted || row.HoldAfter == 0 || row.Parked != "" || row.ReadAt.Sub(row.StateSince) <= row.HoldAfter {
		return
	}
	w.alerted = true
	r.Fence.alert(row, Warning, "free-and-forgotten", fmt.Sprintf("nothing was charged, and for %s no message came to try again: was it lost from the queue?", row.HoldAfter))
}

// follow is the row that follows row in the given state.
func follow(row Row, state State, basis Basis) Row {
	next := row
	next.Claim = row.Claim.next()
	next.State, next.Basis = state, basis
	return next
}

// replay sends the frozen request again under its key, where the provider's
// profile allowed it for a time that is not over: the provider answers with what
// it did the first time, or does it now, once. The row is returned as it is now;
// the same claim means that nothing was sent.
func (r *Resolver) replay(ctx context.Context, row Row) (Row, error) {
	if !r.canReplay(row) {
		return row, nil
	}
	timeout := callTimeout(row.Lease)
	wait, _, turn := r.Fence.breaker.wait(roadOf(row.Provider, row.Key), r.Fence.clock(), timeout)
	if wait > 0 {
		return row, nil
	}
	start := time.Now()
	next := follow(row, Doubt, row.Basis)
	next.Replays++
	if err := r.Fence.Store.Swap(ctx, row, next, Write{Lease: row.Lease}); err != nil {
		return row, err
	}
	callCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), start.Add(timeout))
	defer cancel()
	o := r.Replay(callCtx, next)
	r.Fence.ended(next, o, turn)
	result := after(next, o, true)
	if result.Basis == ByCall {
		result.Basis = ByReplay
	}
	saved, _ := r.Fence.saveNext(ctx, next, result, o) // what the state says to a delivery is no error here
	return saved, nil
}

// canReplay reports whether the frozen request may be sent again in time: by the
// database's clock, and by this machine's too, lest one of them was set back. When
// the call of a missing row was made nobody knows; and another place does not know
// the key.
func (r *Resolver) canReplay(row Row) bool {
	if r.Replay == nil || row.State != Doubt || row.Basis == ByMissingRow || row.Request == nil || row.ReplayUntil.IsZero() {
		return false
	}
	if !r.Fence.here(row) {
		return false
	}
	return !row.ReadAt.Add(row.Lease).After(row.ReplayUntil) && !r.clock().Add(row.Lease).After(row.ReplayUntil)
}

func (r *Resolver) watch(row Row) *watch {
	w := r.watched[row.Key]
	if sends := row.Captures + row.Replays; w == nil || w.sends != sends || !w.captured.Equal(row.CapturedAt) {
		w = &watch{sends: sends, captured: row.CapturedAt, since: r.clock()}
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
	if !r.canLookUp(row) {
		return false, nil
	}
	lateEnough := r.clock().Sub(w.since) >= row.Lease+row.AbsentAfter
	found, err := r.find(ctx, row)
	if err != nil {
		return false, err
	}
	if found.Several || !found.Absent && found.Outcome.Verdict != Unproven {
		if ok, err := r.believed(ctx, row); err != nil || !ok {
			return false, err
		}
	}
	switch {
	case found.Several:
		next := follow(row, Held, ByLookup)
		next.Reason = "the look-up found more than one call that moved money: " + found.Outcome.Reason
		r.Fence.alert(next, Critical, "several-found", next.Reason)
		return true, r.write(ctx, row, next)
	case found.Absent:
		if row.State != Doubt || !lateEnough {
			return false, nil
		}
		if r.Fence.nowhere(row) {
			// Nothing that comes later says more: a person is told now.
			next := follow(row, Held, ByLookup)
			next.Reason = "the provider does not know the call here, and the version that made it did not keep where it was made: nothing is proven"
			return true, r.write(ctx, row, next)
		}
		ok, err := r.controlled(ctx, row)
		if err != nil || !ok {
			return false, err
		}
		next := follow(row, Released, ByAbsence)
		next.Reason = "the provider does not know the call"
		return true, r.write(ctx, row, next)
	}
	switch o := found.Outcome; o.Verdict {
	case Done, Begun:
		_, err := r.Fence.saveReference(ctx, row, o, ByLookup)
		return row.State != Pending || o.Verdict == Done, err
	case Refused:
		if row.State == Doubt && !lateEnough {
			return false, nil // a request may still be on its way, and succeed
		}
		next := follow(row, Declined, ByLookup).withoutAnswer()
		next.Reason, next.Answer = o.Reason, o.Answer
		return true, r.write(ctx, row, closed(next))
	}
	return false, nil
}

// find looks row up, and notes when the provider wants to be left alone.
func (r *Resolver) find(ctx context.Context, row Row) (Finding, error) {
	found, err := r.Lookup(ctx, row)
	if later, ok := errors.AsType[*LaterError](err); ok {
		r.quiet[row.Provider] = r.clock().Add(min(later.After, longestAsked))
	}
	return found, err
}

// believed reports whether what a look-up has found is about row. Where row was called
// elsewhere, or with other credentials, what is found here by its id or order may be
// somebody else's, unless what that place has settled is found here too.
func (r *Resolver) believed(ctx context.Context, row Row) (bool, error) {
	if r.Fence.here(row) || r.Fence.nowhere(row) {
		return true, nil
	}
	return r.controlled(ctx, row)
}

// lookedUpAs is the look-up that row needs.
func (r *Resolver) lookedUpAs(row Row) lookedUp {
	return lookedUp{row.Provider, row.Account, row.Place, r.Fence.place(row.Provider), askingFor(row)}
}

// controlled reports whether the same look-up has found a row that is known to
// be settled at the place of row: a look-up with a wrong credential finds nothing
// either, and one by an id says nothing about one by what a request carried.
func (r *Resolver) controlled(ctx context.Context, row Row) (bool, error) {
	const newest, tries = 20, 3
	how := r.lookedUpAs(row)
	if r.control[how] {
		return true, nil
	}
	known, err := r.Fence.Store.Control(ctx, row, newest)
	if err != nil {
		return false, err
	}
	asked := 0
	for _, k := range known {
		k, ok := k.as(how.by)
		if !ok {
			continue
		}
		if asked++; asked > tries {
			break
		}
		found, err := r.find(ctx, k)
		if err != nil {
			return false, err
		}
		if found.Outcome.Reference != "" && found.Outcome.Reference == k.Reference {
			r.control[how] = true
			return true, nil
		}
	}
	return false, nil
}

// expire holds a row whose time is up.
func (r *Resolver) expire(ctx context.Context, row Row) error {
	since, limit, what := row.SendUntil.Add(row.AbsentAfter), row.HoldAfter, "in doubt, and nothing decided it"
	switch {
	case row.State == Pending:
		since, limit, what = row.StateSince, row.PendingFor, "pending, and the provider gave no verdict"
	case row.Replays > 0 && !row.leaseEnded():
		return nil // it is being sent again, or was just now
	case row.Replays > 0:
		// Each replay moves SendUntil: a person is told all the same, while the
		// provider may know the key for days.
		since = row.StateSince.Add(row.Lease + row.AbsentAfter)
	}
	if limit == 0 || row.ReadAt.Sub(since) <= limit {
		return nil
	}
	why := ""
	switch {
	case row.State == Pending:
	case row.AbsentAfter == 0:
		why = ": this provider has no look-up configured"
	case r.Fence.nowhere(row):
		why = ": the version that made the call did not keep where, so that nothing was sent again"
	case !r.control[r.lookedUpAs(row)]:
		why = ": the look-up has found no row that is known to be settled, so its silence proves nothing"
	}
	if !r.Fence.here(row) && !r.Fence.nowhere(row) {
		why += "; the provider's address, account or secret is another one than at the call, so nothing was sent again"
	}
	if row.sealedRequest() {
		why += "; nothing was sent again, because the request that was kept cannot be read: " + row.Sealed.Why
	}
	next := follow(row, Held, ByExpiry)
	next.Reason = fmt.Sprintf("%s for %s%s", what, limit, why)
	if row.Reason != "" {
		next.Reason += " (" + row.Reason + ")"
	}
	return r.write(ctx, row, next)
}

func (r *Resolver) write(ctx context.Context, row, next Row) error {
	written, err := r.Fence.swap(ctx, row, next, Write{})
	if err == nil {
		r.Fence.alertSaved(row, written)
	}
	return err
}
