package zabor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// again decides what a delivery does that meets a row: nothing, except where
// the row is surely free and attempts are left.
func (f *Fence) again(ctx context.Context, row Row, e Effect) (Row, bool, error) {
	for {
		next, w, err := f.meet(row, e)
		if err != nil {
			return row, false, f.told(row, err)
		}
		if next.Claim == row.Claim { // nothing to write
			return row, false, f.told(row, stateError(row))
		}
		next, err = f.swap(ctx, row, next, w)
		switch {
		case err == nil && next.State == Captured:
			return next, true, nil
		case err == nil:
			f.alertSaved(row, next)
			return next, false, f.told(next, stateError(next))
		case !errors.Is(err, ErrStale):
			return row, false, unwritten(row.Key, err)
		}
		// Somebody else was faster: look again. A row that vanished is an
		// error here; the next delivery finds none and says so.
		row, err = f.Store.Load(ctx, row.Key)
		if err != nil {
			return Row{}, false, unwritten(e.Key, err)
		}
	}
}

// meet is the table of what a delivery of e does to the row it meets: the row
// that follows, and what is written with it. The same claim means that nothing
// changes.
func (f *Fence) meet(row Row, e Effect) (next Row, w Write, err error) {
	e = e.knownTo(row)
	if row.State == Released && row.Attempts() == 0 {
		// No call of this row can have done anything: it takes the request as
		// it is now.
		return f.recapture(row, e)
	}
	if row.Message != "" && row.Message != e.Message {
		return row, w, otherRequest(row, e)
	}
	if importedOtherwise(row, e) {
		return row, w, otherRequest(row, e)
	}
	switch row.State {
	case Captured:
		if row.leaseEnded() {
			return expired(row), w, nil
		}
	case Declined:
		if row.Fingerprint != "" && row.Fingerprint != e.Fingerprint {
			return row, w, otherRequest(row, e)
		}
	case Released:
		if row.Fingerprint != "" && row.Fingerprint != e.Fingerprint {
			next = row
			next.Claim = row.Claim.next()
			next.State = Held
			next.Reason = "released, and then wanted with another request under the same provider key" + differing(row, e)
			return next, w, nil
		}
		if row.Spent() {
			return row, w, keyError(row, ErrSpent)
		}
		return f.recapture(row, e)
	}
	return row, w, nil
}

// expired is row once its lease has ended with nothing saved.
func expired(row Row) Row {
	next := inDoubt(row)
	next.Claim = row.Claim.next()
	next.Basis = ByExpiry
	next.Reason = fmt.Sprintf("captured at %s and never settled", row.CapturedAt.UTC().Format("2006-01-02T15:04:05Z"))
	return next
}

// recapture is row captured once more. The generation and the provider key stay:
// the same key is what stops a request that is still on its way.
func (f *Fence) recapture(row Row, e Effect) (Row, Write, error) {
	next := fixDeadlines(row, e)
	w := Write{Lease: next.Lease}
	if row.sealedRequest() && row.Attempts() > 0 {
		// It may be on its way, and what is made anew may be other bytes.
		return row, w, &Error{Key: row.Key, Row: row, Err: ErrReleased, Reason: "the request that was kept cannot be read, and no other may go under its key: " + row.Sealed.Why + "; nothing was sent"}
	}
	w.ReplayFor = replayAgain(row, e)
	if row.Fingerprint != e.Fingerprint || row.Request == nil || e.Unkept {
		from := row
		if row.Prepared != "" && row.Fingerprint != e.Fingerprint {
			// What was prepared is the other request's: confirmed, it would move
			// that one's money. A provider may answer its key without comparing.
			from.Prepared, from.PrepareKey = "", providerKey(f.Secret, row.Key, row.Generation, requestPrepare+strconv.Itoa(row.Captures))
		}
		var err error
		if next, err = f.take(from, e); err != nil {
			return row, w, &Error{Key: row.Key, Row: row, Err: err, Reason: "nothing was sent"}
		}
	}
	next.Claim = row.Claim.next()
	next.Place = f.place(e.Provider)
	next.State = Captured
	next.Basis = ByCall
	next.Reason = ""
	next.Captures++
	return next, w, nil
}

// replayAgain is [Write].ReplayFor of another capture of row: the time counts from the
// first capture of a key at its provider, and is never longer from now on than this
// one's provider allows.
func replayAgain(row Row, e Effect) time.Duration {
	first := row.Fingerprint == "" || row.Captures == 0 || row.Provider != e.Provider
	switch limit := e.replayFor(); {
	case limit == 0:
		return -1
	case first, row.ReplayUntil.Sub(row.ReadAt) > limit:
		return limit
	}
	return 0
}

func otherRequest(row Row, e Effect) error {
	return &Error{Key: row.Key, Row: row, Err: ErrOtherRequest,
		Reason: fmt.Sprintf("the row is %s for another request%s; nothing was sent", row.State, differing(row, e))}
}

// importedOtherwise reports whether row was imported without its message, for another
// amount than e's. A person who released a row has asked for whatever comes.
func importedOtherwise(row Row, e Effect) bool {
	return row.Message == "" && row.Basis == ByImport && !sameMoney(row.Amount, e.Amount)
}

// differing says which fields of the request that e asks for are not as in row's.
func differing(row Row, e Effect) string {
	if importedOtherwise(row, e) {
		return " (another amount)"
	}
	var was, is map[string]string
	if json.Unmarshal([]byte(row.Fields), &was) != nil || json.Unmarshal([]byte(e.Fields), &is) != nil {
		return ""
	}
	var names []string
	for name, digest := range is {
		if was[name] != digest {
			names = append(names, name)
		}
	}
	for name := range was {
		if _, there := is[name]; !there {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return " (another " + strings.Join(names, ", ") + ")"
}

// stateError is what a delivery is told by the state of its row.
func stateError(row Row) error {
	if row.HookDue != "" {
		return keyError(row, ErrHookDue)
	}
	switch row.State {
	case Declined:
		if row.Basis == ByForm {
			return keyError(row, ErrMalformed)
		}
		return nil
	case Settled, Pending:
		return nil
	case Captured:
		return keyError(row, ErrBusy)
	case Doubt:
		return keyError(row, ErrInDoubt)
	case Released:
		return keyError(row, ErrReleased)
	}
	return keyError(row, ErrHeld)
}

// Repeat answers a delivery whose request cannot be made up any more, because
// what it is made of has changed since: from the row alone, without a call.
// message is the fingerprint of what comes from the message itself. The errors
// are those of [Fence.Do], and [ErrNoRow]; [ErrReleased] says that the row is
// free, but there is no request to call with.
func (f *Fence) Repeat(ctx context.Context, k Key, message string) (Row, error) {
	return f.repeat(ctx, Effect{Key: k, Message: message})
}

func (f *Fence) repeat(ctx context.Context, e Effect) (Row, error) {
	row, err := f.Store.Load(ctx, e.Key)
	switch {
	case errors.Is(err, ErrNoRow):
		return Row{}, &Error{Key: e.Key, Err: ErrNoRow}
	case err != nil:
		return Row{}, unwritten(e.Key, err)
	}
	return row, f.told(row, repeated(row, e.knownTo(row).Message))
}

// repeated is what [Fence.Repeat] answers with row.
func repeated(row Row, message string) error {
	switch {
	case row.State == Released && row.Attempts() == 0:
		return keyError(row, ErrReleased)
	case row.Message != "" && row.Message != message:
		return otherRequest(row, Effect{})
	case row.State == Released && row.Spent():
		return keyError(row, ErrSpent)
	}
	return stateError(row)
}

// whilePaused answers a delivery whose provider is not called at present: what is
// done already is answered from its row.
func (f *Fence) whilePaused(ctx context.Context, e Effect, wait time.Duration, why string) (Row, error) {
	row, err := f.repeat(ctx, e)
	if errors.Is(err, ErrNoRow) || errors.Is(err, ErrReleased) {
		return row, &Error{Key: e.Key, Row: row, Err: ErrPaused, Wait: wait, Reason: fmt.Sprintf("%s, for another %s: %s", e.Provider, wait.Round(time.Second), why)}
	}
	return row, err
}

// refused answers e from its row while nothing may be captured for its key.
func (f *Fence) refused(ctx context.Context, e Effect, why error) (Row, error) {
	row, err := f.repeat(ctx, e)
	if errors.Is(err, ErrNoRow) || errors.Is(err, ErrReleased) {
		return row, &Error{Key: e.Key, Row: row, Err: ErrPaused, Reason: why.Error()}
	}
	return row, err
}

// Parked notes that the message with the given id is in the failure transport
// now. A row that is free gets one more attempt by it: whoever retries the
// message asks for exactly one more call.
func (f *Fence) Parked(ctx context.Context, k Key, message string) error {
	return f.mark(ctx, k, "the parked message", func(row *Row) {
		row.Parked = message
		if row.State == Released {
			row.Allowance = max(row.Allowance, row.Attempts()) + 1
		}
	})
}

// MovedOn notes that a message of the given generation has gone on to another
// queue, so that another message for the same key does not go there too.
func (f *Fence) MovedOn(ctx context.Context, k Key, generation int) error {
	return f.mark(ctx, k, "that the message has gone on", func(row *Row) {
		row.MovedOn = max(row.MovedOn, generation)
	})
}

// mark changes in the row of k what says nothing about its call. A row that is
// not there is left alone.
func (f *Fence) mark(ctx context.Context, k Key, what string, change func(*Row)) error {
	for {
		row, err := f.Store.Load(ctx, k)
		if errors.Is(err, ErrNoRow) {
			return nil
		}
		if err == nil {
			next := row
			next.Claim = row.Claim.next()
			change(&next)
			err = f.Store.Swap(ctx, row, next, Write{})
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrStale):
			return &Error{Key: k, Err: err, Reason: what + " could not be noted"}
		}
	}
}
