package zabor

import (
	"errors"
	"fmt"
	"time"
)

// What [Fence.Do] answers when the message may not simply be acked. Branch on
// them with errors.Is; the message's fate stands beside each.
var (
	// ErrBusy: another live claim holds the key. The message comes back later.
	ErrBusy = errors.New("another call for this key is under way")
	// ErrInDoubt: something may have been sent and nothing is proven yet. The
	// message comes back later.
	ErrInDoubt = errors.New("in doubt")
	// ErrReleased: the call surely did nothing. The message comes back later
	// and is then called again.
	ErrReleased = errors.New("nothing was done")
	// ErrPaused: the provider turns every call away; nothing was sent and no
	// row was written. The message comes back later.
	ErrPaused = errors.New("nothing is sent to the provider at present")
	// ErrMalformed: the provider says that the request itself is wrong. The
	// message is parked.
	ErrMalformed = errors.New("the provider refuses the form of the request")
	// ErrHookDue: the row is done, but its hook failed and must run before the
	// message is acked. The message comes back later.
	ErrHookDue = errors.New("done, and the shop's own rows do not say so yet")
	// ErrHeld: a person must decide. The message is parked.
	ErrHeld = errors.New("held for a person")
	// ErrSpent: the attempts are used up. The message is parked.
	ErrSpent = errors.New("attempts spent")
	// ErrUnfit: the request cannot be made, the fence table does not take a value, or
	// the row cannot be read. The message is parked; nothing was sent.
	ErrUnfit = errors.New("not fit for the fence")
	// ErrOtherRequest: the same key was asked for with another request. The
	// message is parked; nothing was sent.
	ErrOtherRequest = errors.New("the same key with another request")
)

// Error is an error of the fence about one key: what happened, and what was not
// done. It wraps one of the sentinels above or the error of the store.
type Error struct {
	Key    Key
	Row    Row    // as far as known; zero when the table could not be read
	Reason string // why, for people; may be empty
	Err    error

	// Journaled: the call was a success, which is in the journal on this host's
	// disk and not in the table yet. Whoever wants the answer may have it.
	Journaled bool

	// Wait is how long the message had better wait; 0: not known.
	Wait time.Duration
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("%s: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Key, e.Err, e.Reason)
}

func (e *Error) Unwrap() error { return e.Err }

// LaterError is that of a look-up which the provider turned away, and how long it asks
// to be left alone.
type LaterError struct {
	After time.Duration // above zero
	Err   error
}

func (e *LaterError) Error() string { return fmt.Sprintf("%v; not before %s from now", e.Err, e.After) }
func (e *LaterError) Unwrap() error { return e.Err }

// Park reports whether err means that the message belongs in the failure
// transport: retrying it by itself cannot help.
func Park(err error) bool {
	for _, reason := range []error{ErrHeld, ErrSpent, ErrOtherRequest, ErrMalformed, ErrUnfit} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

func rowError(row Row, err error) error {
	return &Error{Key: row.Key, Row: row, Reason: row.Reason, Err: err}
}
