package zabor

import (
	"context"
	"fmt"
	"time"
)

// Fence makes side effects at most once per key. Set its fields before first use
// and do not change them afterwards. It may be used concurrently.
type Fence struct {
	Store    Store
	Secret   []byte // the installation's, at least [MinSecret] bytes; provider keys are derived from it
	Observer        // nothing is told by default

	// Address returns a digest of the address and credentials that the provider of
	// that name is called with now: at most 64 printable ASCII characters, equal for
	// the same address and account only; empty: the provider is not known. Nil: each
	// provider has one address, always. It is kept with each capture. A row of
	// another address is never sent again. A look-up decides about it only after it
	// has found a row that was settled at the old address.
	Address func(provider string) string

	// Hook returns the statement that runs in the transaction of a write by which
	// row enters its state, bound to row as it will be; nil: there is none. An error
	// counts as the hook's own. The field may be nil.
	Hook func(row Row) (*Hook, error)

	// Refuse returns why nothing may be captured for k at present; nil: it may. It
	// is asked before each call and must return at once. The field may be nil.
	Refuse func(k Key) error

	// Journal keeps successes while the database is away. Nil: they are kept in
	// memory for SaveTimeout, and are then only in an alert.
	Journal *Journal

	// SaveTimeout bounds the saving of an outcome, over all its tries. Zero:
	// [SaveTimeout].
	SaveTimeout time.Duration

	// Now is the clock of pauses; nil: time.Now. A call's deadline is always
	// counted by the machine's own clocks.
	Now func() time.Time

	pauses pauses
}

// SaveTimeout is how long a fence tries to save an outcome unless told otherwise.
const SaveTimeout = 30 * time.Second

// Call sends row.Open.Request once and says what the answer proves. The request
// goes under PrepareKey if the row is two-step and has no Prepared id yet, else
// under ProviderKey. A stop of the process does not cancel ctx. Its deadline is the
// last moment for the send and for the answer, counted from before the capture. A
// Call must compare it with the monotonic and the wall clock right before the first
// byte.
type Call func(ctx context.Context, row Row) Outcome

// Do makes the side effect named by e.Key at most once, over every process that
// shares the fence table. It commits a row for the key, calls once, and saves the
// outcome.
//
// Nil: the returned row is Settled, Pending or Declined, now or earlier, and the
// message may be acked. [ErrBusy], [ErrInDoubt], [ErrReleased], [ErrPaused] and
// [ErrHookDue]: do not ack; the message comes back later. [ErrHeld], [ErrSpent],
// [ErrOtherRequest], [ErrMalformed] and [ErrUnfit]: ack only after the message is
// parked. After any other error nothing was sent and Do may be tried again.
func (f *Fence) Do(ctx context.Context, e Effect, call Call) (Row, error) {
	start := time.Now() // before the capture: no clock skew can stretch the claim
	pass, err := f.enter(ctx, e)
	if err != nil {
		return f.answerPaused(ctx, e, err)
	}
	row, mine, err := f.capture(ctx, e)
	if err != nil || !mine {
		f.pauses.giveBack(pass, f.now())
		return row, err
	}
	callCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), start.Add(e.Timeout))
	defer cancel()
	row, outcome, err := f.call(callCtx, row, e, call)
	if err != nil {
		f.pauses.giveBack(pass, f.now())
		return row, err
	}
	return f.save(ctx, row, f.ended(pass, row, outcome), e)
}

// enter asks for the permission to call. An error says why and for how long there is
// none.
func (f *Fence) enter(ctx context.Context, e Effect) (pass, error) {
	if f.Refuse != nil {
		if err := f.Refuse(e.Key); err != nil {
			return pass{}, &Error{Key: e.Key, Err: ErrPaused, Reason: err.Error()}
		}
	}
	p, wait, why := f.pauses.enter(circuitsOf(e.Provider, e.Account, e.Key), f.now(), e.Timeout)
	if wait > 0 {
		return pass{}, &Error{Key: e.Key, Err: ErrPaused, Wait: wait, Reason: fmt.Sprintf("%s, for another %s: %s", e.Provider, wait.Round(time.Second), why)}
	}
	return p, nil
}

// capture commits the row of e, or finds the one that is there. Only if mine is true
// may the caller call. Otherwise the row or the error says why not.
func (f *Fence) capture(ctx context.Context, e Effect) (row Row, mine bool, err error) {
	if e.transaction != nil {
		return f.captureCommitted(ctx, e)
	}
	fresh, err := f.fresh(e)
	if err != nil {
		return Row{}, false, &Error{Key: e.Key, Err: err, Reason: "nothing was sent"}
	}
	f.at(Capturing, e.Key)
	row, err = f.insert(ctx, fresh, e.replayFor())
	switch {
	case err != nil:
		return Row{}, false, unwritten(e.Key, err)
	case row.Claim != fresh.Claim:
		return f.onExisting(ctx, row, e)
	case row.State == Captured:
		return row, true, nil
	}
	f.alertSaved(Row{}, row) // a missing row of a shared queue is inserted as held
	return row, false, stateError(row)
}

// fresh is the row of e before it is in the table.
func (f *Fence) fresh(e Effect) (Row, error) {
	if err := e.Validate(); err != nil {
		return Row{}, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	row := Row{Key: e.Key, State: e.MissingRow, Cause: ByCall, Claim: Claim{}.next(), Generation: 1, Tries: 1, Unproven: 1}
	switch row.State {
	case Captured:
		row.Open.Send = row.Claim.ID
	case Doubt:
		row.Cause = ByMissingRow
		row.Reason = "the message was delivered before and had no row: a call may have been made"
	case Held:
		row.Cause = ByMissingRow
		row.Reason = "another worker had the message and there was no row: it may have called under another key, so no look-up can prove that it did not"
	}
	return f.take(row, e)
}

// take is row with the request of e, under the keys of row's generation.
func (f *Fence) take(row Row, e Effect) (Row, error) {
	row.ProviderKey = providerKey(f.Secret, row.Key, row.Generation, requestMain)
	switch {
	case e.Prepare == nil:
		row.Open.PrepareKey = ""
	case row.Open.PrepareKey == "":
		row.Open.PrepareKey = providerKey(f.Secret, row.Key, row.Generation, requestPrepare)
	}
	row.Endpoint = Endpoint{e.Provider, e.Account, f.address(e.Provider)}
	row.Amount, row.Fingerprint, row.Open.HookData = e.Amount, e.Fingerprint, e.HookData
	row.Open.Lease = Lease(e.Timeout)
	row.Open.AbsentAfter, row.Open.HoldAfter, row.Open.PendingFor = e.AbsentAfter, e.HoldAfter, e.PendingFor
	next, err := e.render(row)
	if err != nil {
		return Row{}, fmt.Errorf("%w: the request cannot be made: %w", ErrUnfit, err)
	}
	return next, nil
}

// call sends the request of row, or its two requests, and returns how that ended.
// With an error nothing that moves money was sent.
func (f *Fence) call(ctx context.Context, row Row, e Effect, call Call) (Row, Outcome, error) {
	f.at(Sending, e.Key)
	begun := time.Now()
	outcome := e.send(ctx, row, call)
	if outcome.Verdict == Prepared {
		next := row.follow(Captured, ByCall, row.Reason)
		next.Prepared = outcome.Reference
		next, err := e.render(next)
		if err != nil {
			return row, Outcome{Reason: fmt.Sprintf("prepared as %s, and then the request could not be made: %v", outcome.Reference, err)}, nil
		}
		if err := f.Store.Swap(ctx, row, next, Write{DueIn: next.Open.Lease}); err != nil {
			// The row becomes doubt without an id when its lease ends, and is then
			// released.
			return row, outcome, &Error{Key: row.Key, Row: row, Err: ErrInDoubt, Reason: fmt.Sprintf("prepared as %s, and the id could not be saved: %v; nothing was charged", outcome.Reference, err)}
		}
		row = next
		outcome = e.send(ctx, row, call)
	}
	f.at(Answered, e.Key)
	f.called(row, outcome, time.Since(begun))
	return row, outcome, nil
}

// ended tells the pauses how a call for row ended, and a person when one begins.
// It returns o, with Unauthorized only if the order itself is at fault.
func (f *Fence) ended(p pass, row Row, o Outcome) Outcome {
	if row.Open.HoldAfter > 0 {
		o.RetryAfter = min(o.RetryAfter, row.Open.HoldAfter)
	}
	begun, alone := f.pauses.ended(p, row.Key, o, f.now())
	if begun {
		f.alertPaused(row, o)
	}
	if o.Unauthorized = alone; alone {
		o.Reason += "; other orders succeed meanwhile"
	}
	return o
}

// Paused is how long this process sends nothing to any account of provider that is
// paused, whatever the step, and why; 0: it calls.
func (f *Fence) Paused(provider string) (time.Duration, string) {
	return f.pauses.paused(provider, f.now())
}

func (f *Fence) now() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

// address is the digest of where provider is called now; empty: not known.
func (f *Fence) address(provider string) string {
	if f.Address == nil {
		return ""
	}
	return f.Address(provider)
}

// sameEndpoint reports whether row's latest call went to where its provider is
// called now.
func (f *Fence) sameEndpoint(row Row) bool { return row.Endpoint.Address == f.address(row.Provider) }

func unwritten(k Key, err error) error {
	return &Error{Key: k, Err: err, Reason: "the fence could not be written; nothing was sent"}
}
