package zabor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// onExisting decides what a delivery does that meets a row. It captures again if the
// row is free and tries are left.
func (f *Fence) onExisting(ctx context.Context, row Row, e Effect) (Row, bool, error) {
	for {
		next, w, err := f.meet(row, e)
		if err == nil && next.Claim == row.Claim { // nothing to write
			err = stateError(row)
		} else if err == nil {
			next, err = f.swap(ctx, row, next, w)
			switch {
			case err == nil && next.State == Captured:
				return next, true, nil
			case err == nil:
				f.alertSaved(row, next)
				return next, false, stateError(next)
			case !errors.Is(err, ErrStale):
				return row, false, unwritten(row.Key, err)
			}
			// Another writer was faster: look again. A row that vanished is an error
			// here; the next delivery finds none and says so.
			if row, err = f.Store.Load(ctx, e.Key); err != nil {
				return Row{}, false, unwritten(e.Key, err)
			}
			continue
		}
		f.alertOther(row, err)
		return row, false, err
	}
}

// meet is the table of what a delivery of e does to the row it meets: the row that
// follows, and what is written with it. The same claim means that nothing changes.
func (f *Fence) meet(row Row, e Effect) (next Row, w Write, err error) {
	free := row.State == Released && !row.MayHaveActed() // it takes any request
	if !free && otherMessage(row, e) {
		return row, w, otherRequest(row, e)
	}
	same := free || row.Fingerprint.Request == "" || row.Fingerprint.Request == e.Fingerprint.Request
	switch {
	case row.State == Captured && row.leaseEnded():
		return expired(row), w, nil
	case row.State == Declined && !same:
		return row, w, otherRequest(row, e)
	case row.State == Released && !same:
		reason := "released, and then wanted with another request under the same provider key" + differing(row, e)
		return row.follow(Held, row.Cause, reason), w, nil
	case row.State == Released && e.spent(row):
		return row, w, rowError(row, ErrSpent)
	case row.State == Released:
		return f.recapture(row, e)
	}
	return row, w, nil
}

// spent reports whether the tries of a released row are used up for e's message. A
// person's release and a parked message that comes again allow one more.
func (e Effect) spent(row Row) bool {
	return row.Tries >= e.MaxAttempts && row.Cause != ByPerson && !e.parked(row)
}

// otherMessage reports whether e's message asks for another request than row is for.
func otherMessage(row Row, e Effect) bool {
	return row.Fingerprint.Message != "" && row.Fingerprint.Message != e.Fingerprint.Message || importedOtherwise(row, e)
}

// importedOtherwise reports whether row was imported without its message, for another
// amount than e's.
func importedOtherwise(row Row, e Effect) bool {
	return row.Fingerprint.Message == "" && row.Cause == ByImport && !sameMoney(row.Amount, e.Amount)
}

// expired is row once its lease has ended and nothing was saved.
func expired(row Row) Row {
	return row.follow(Doubt, ByExpiry, fmt.Sprintf("captured at %s and never settled", row.CapturedAt.UTC().Format("2006-01-02T15:04:05Z")))
}

// recapture is row captured once more, under the same generation and provider key.
// The same key is what stops a request that is still on its way. A request that was
// kept and is still wanted goes again byte for byte.
func (f *Fence) recapture(row Row, e Effect) (Row, Write, error) {
	w := Write{Lease: Lease(e.Timeout), ReplayFor: replayAgain(row, e)}
	if row.sealedRequest() && row.MayHaveActed() {
		return row, w, &Error{Key: row.Key, Row: row, Err: ErrReleased, Reason: "the request that was kept cannot be read, and no other may go under its key: " + row.Open.Sealed.Why + "; nothing was sent"}
	}
	same, from := row.Fingerprint.Request == e.Fingerprint.Request, row
	if e.Prepare != nil && !same {
		// The prepared id, and the one that the old key stands for, are for the other
		// request: confirmed, they would move that one's money.
		from.Prepared, from.Open.PrepareKey = "", providerKey(f.Secret, row.Key, row.Generation, requestPrepare+strconv.FormatInt(row.Claim.Epoch, 10))
	}
	next, err := f.take(from, e)
	if err != nil {
		return row, w, &Error{Key: row.Key, Row: row, Err: err, Reason: "nothing was sent"}
	}
	if same && row.Open.Request != nil && !e.Sensitive {
		next.Open.Request = row.Open.Request
	}
	next = next.follow(Captured, ByCall, "")
	next.Tries = min(row.Tries, e.MaxAttempts-1) + 1 // a try that was allowed beyond them is not spent by a call that does nothing
	next.Unproven++
	next.Open.Send, next.Open.Replays, next.Open.Lingers, next.Open.Silent = next.Claim.ID, 0, false, 0
	if e.parked(row) {
		next.Parked = "" // one entry of the failure transport, one more call
	}
	return next, w, nil
}

// replayAgain is [Write].ReplayFor of another capture of row. The time counts from the
// first capture of a key at its provider, and is never longer from now on than this
// provider allows.
func replayAgain(row Row, e Effect) time.Duration {
	first := row.Fingerprint.Request == "" || !row.MayHaveActed() || row.Provider != e.Provider
	switch limit := e.replayFor(); {
	case limit == 0:
		return -1
	case first, row.Open.ReplayUntil.Sub(row.ReadAt) > limit:
		return limit
	}
	return 0
}

func otherRequest(row Row, e Effect) error {
	return &Error{Key: row.Key, Row: row, Err: ErrOtherRequest,
		Reason: fmt.Sprintf("the row is %s for another request%s; nothing was sent", row.State, differing(row, e))}
}

// differing names the fields of e's request that are not as in row's.
func differing(row Row, e Effect) string {
	if importedOtherwise(row, e) {
		return " (another amount)"
	}
	var was, is map[string]string
	if json.Unmarshal([]byte(row.Fingerprint.Fields), &was) != nil || json.Unmarshal([]byte(e.Fingerprint.Fields), &is) != nil {
		return ""
	}
	_, before := was[ofMessages]
	_, now := is[ofMessages]
	names := map[string]bool{}
	for _, fields := range []map[string]string{was, is} {
		for name := range fields {
			_, in := was[name]
			_, out := is[name]
			names[name] = was[name] != is[name] && (before == now || in == out || !oneDoor(name))
		}
	}
	maps.DeleteFunc(names, func(_ string, differs bool) bool { return !differs })
	switch {
	case len(names) == 0 && before != now:
		return " (one is a message's, the other came to the proxy)"
	case len(names) == 0:
		return ""
	}
	return " (another " + strings.Join(slices.Sorted(maps.Keys(names)), ", ") + ")"
}

// ofMessages is a field of each message's request, and of no request to the proxy.
const ofMessages = "amount"

// oneDoor reports whether only messages, or only requests to the proxy, have such a
// field. Then the other's lack of it is no difference.
func oneDoor(field string) bool {
	name, _, _ := strings.Cut(field, ".")
	return slices.Contains([]string{ofMessages, "currency", "message", "load", "prepare", "header"}, name)
}

// stateError is what the state of a row tells a delivery.
func stateError(row Row) error {
	if row.HookDue != "" {
		return &Error{Key: row.Key, Row: row, Err: ErrHookDue, Reason: "the hook " + row.HookDue + " must still run, and is tried again; the row's history says why it failed"}
	}
	switch row.State {
	case Declined:
		if row.Cause == ByForm {
			return rowError(row, ErrMalformed)
		}
		return nil
	case Settled, Pending:
		return nil
	case Captured:
		return rowError(row, ErrBusy)
	case Doubt:
		return rowError(row, ErrInDoubt)
	case Released:
		return rowError(row, ErrReleased)
	}
	return rowError(row, ErrHeld)
}

// Plan says what [Fence.Do] would do with e now. It writes and calls nothing. row is
// the row in the table for e.Key; nil: there is none.
//
// If calls is true, next is the row as it would be captured, with the request that
// would be sent, also if that may be kept nowhere: mask it before it is shown.
// Otherwise next is the row that would answer, and the error is Do's: nil says that
// the message would be acked. Pauses are left out.
//
// If e's request cannot be made any more, e.Render is nil, and only Key, Provider and
// Fingerprint.Message are needed. Then the row alone answers: [ErrNoRow] without one,
// and [ErrReleased] if it is free or if its answer depends on the request.
func (f *Fence) Plan(row *Row, e Effect) (next Row, calls bool, err error) {
	switch {
	case row == nil && e.Render == nil:
		return Row{}, false, &Error{Key: e.Key, Err: ErrNoRow}
	case row == nil:
		if next, err = f.fresh(e); err != nil {
			return Row{}, false, &Error{Key: e.Key, Err: err, Reason: "nothing would be sent"}
		}
		calls = next.State == Captured
	case e.Render == nil:
		return *row, false, answerAlone(*row, e)
	default:
		if next, _, err = f.meet(*row, e); err != nil {
			return *row, false, err
		}
		calls = next.State == Captured && next.Claim != row.Claim
	}
	if e.Sensitive && (calls || row == nil) {
		next.Open.Request, err = e.request(next)
	}
	if err == nil && !calls {
		err = stateError(next)
	}
	return next, calls, err
}

// answerAlone is the answer of row to a delivery whose request is not known.
func answerAlone(row Row, e Effect) error {
	switch {
	case row.State == Released && !row.MayHaveActed():
		return rowError(row, ErrReleased)
	case otherMessage(row, e):
		return otherRequest(row, e)
	case row.State == Declined && row.Cause != ByForm && row.Fingerprint.Request != "":
		// Whether a new attempt is wanted can be told by the whole request only.
		return rowError(row, ErrReleased)
	}
	return stateError(row)
}

// AnswerExisting answers a delivery whose request cannot be made, because its sources
// have changed or cannot be read: from the row alone, without a call. e.Render is nil;
// see [Fence.Plan]. The errors are those of [Fence.Do], and [ErrNoRow].
func (f *Fence) AnswerExisting(ctx context.Context, e Effect) (Row, error) {
	row, err := f.Store.Load(ctx, e.Key)
	switch {
	case errors.Is(err, ErrNoRow):
		return Row{}, &Error{Key: e.Key, Err: ErrNoRow}
	case err != nil:
		return Row{}, unwritten(e.Key, err)
	}
	next, calls, err := f.Plan(&row, e)
	if calls || err != nil && next.Claim != row.Claim { // what Do would write is not written here
		err = rowError(row, ErrReleased)
	}
	f.alertOther(row, err)
	return row, err
}

// answerPaused answers a delivery while nothing may be called: from its row, or with
// paused where it would be called.
func (f *Fence) answerPaused(ctx context.Context, e Effect, paused error) (Row, error) {
	row, err := f.AnswerExisting(ctx, e)
	if errors.Is(err, ErrNoRow) || errors.Is(err, ErrReleased) {
		return row, paused
	}
	return row, err
}

// alertOther tells a person that another request was refused for row's key.
func (f *Fence) alertOther(row Row, err error) {
	if errors.Is(err, ErrOtherRequest) {
		f.alert(row, Warning, "other-request", err.Error())
	}
}
