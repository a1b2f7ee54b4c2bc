package zabor

import (
	"context"
	"errors"
	"fmt"
)

// Action is a person's decision about a row.
type Action string

// The actions.
const (
	Settle  Action = "settle"  // it went through, here is its reference
	Decline Action = "decline" // it did not, and shall not
	Release Action = "release" // it did not; it may be called again
	Hold    Action = "hold"    // call nothing until a person has decided; needs no proof
)

// Decision is one person's word about one row.
type Decision struct {
	Key Key
	// Seen is the claim of the row that the person has looked at. The decision
	// is refused if the row has changed since.
	Seen      Claim
	Action    Action
	Reference string // with Settle, and only there
	By        string // the person; not empty
	Reason    string // not empty

	// CheckedProvider: the person has seen at the provider that nothing was done.
	// Release and Decline of a row that may have acted demand it.
	CheckedProvider bool
}

// ErrRefused says that the decision may not be made about the row as it is.
// Nothing was changed.
var ErrRefused = errors.New("refused")

// Made reports whether row is already as d would have it. Then only its message is
// left to deal with.
func (d Decision) Made(row Row) bool {
	switch d.Action {
	case Settle:
		return row.State == Settled && row.Reference == d.Reference
	case Decline:
		return row.State == Declined && row.Cause != ByForm
	case Release:
		return row.State == Released && row.Cause == ByPerson
	case Hold:
		return row.State == Held
	}
	return false
}

// Check returns why d may not be made about row as it is: [ErrRefused], with the
// reason; nil: it may. [Fence.Decide] checks again.
func (d Decision) Check(row Row) error {
	_, err := d.next(row)
	return err
}

// Decide writes a decision and its person, in one transaction with the hook of the
// state that the row enters. [ErrNoRow]: there is no row; a Decline forbids the call
// then. [ErrStale]: the row has changed since it was looked at. [ErrRefused]: the row
// does not allow it.
//
// A release allows one more call under the same provider key, for the same request.
// Only the release of a row that the provider itself has declined raises the
// generation: it allows any request, under a new key.
func (f *Fence) Decide(ctx context.Context, d Decision) (Row, error) {
	if d.By == "" || d.Reason == "" {
		return Row{}, fmt.Errorf("%w: a decision needs its person and a reason", ErrRefused)
	}
	if (d.Action == Settle) != (d.Reference != "") {
		return Row{}, fmt.Errorf("%w: settle, and only settle, takes a reference", ErrRefused)
	}
	row, err := f.Store.Load(ctx, d.Key)
	if errors.Is(err, ErrNoRow) && d.Action == Decline && d.Seen == (Claim{}) {
		return f.forbid(ctx, d)
	}
	if err != nil {
		return Row{}, err
	}
	if row.Claim != d.Seen {
		return row, fmt.Errorf("%s: %w: it is %s now", d.Key, ErrStale, row.State)
	}
	next, err := d.next(row)
	if err != nil {
		return row, fmt.Errorf("%s: %w", d.Key, err)
	}
	note := &Note{Epoch: next.Claim.Epoch, Kind: string(d.Action), By: d.By, Text: row.was() + ": " + d.Reason}
	written, err := f.swap(ctx, row, next, Write{Note: note})
	if shared, ok := errors.AsType[*ReferenceError](err); ok {
		return row, fmt.Errorf("%s: %w", d.Key, refusal("the reference %s is that of %s: look both orders up at the provider", shared.Reference, shared.Owner))
	}
	if err != nil {
		return row, err
	}
	if written.OtherReference != row.OtherReference {
		f.alertSaved(row, written)
	}
	return written, nil
}

// next is the table of what a person may do to a row: the row that follows.
func (d Decision) next(row Row) (Row, error) {
	refuse := func(format string, args ...any) (Row, error) { return row, refusal(format, args...) }
	if row.State == Captured && !row.leaseEnded() {
		return refuse("a call is under way until %s", row.Open.SendUntil.Format("15:04:05Z"))
	}
	switch d.Action {
	case Settle:
		if d.Made(row) {
			return refuse("it is settled with this reference already")
		}
		return adopt(row, Outcome{Verdict: Done, Reference: d.Reference, Reason: d.Reason}, ByPerson), nil

	case Decline:
		switch {
		case row.State == Settled:
			return refuse("it is settled with %s: a refund is another step", row.Reference)
		case d.Made(row):
			return refuse("it is declined already")
		}
		if err := d.proof(row); err != nil {
			return row, err
		}
		next := row.follow(Declined, ByPerson, d.Reason)
		next.Answer = nil // an earlier one, such as «being processed», answers something else
		return next, nil

	case Release:
		switch {
		case row.State == Settled || row.State == Pending:
			return refuse("the provider has done it: %s", row.Reference)
		case d.Made(row):
			return refuse("a person has released it already; its message is called when it is delivered")
		case row.State != Declined && row.Reference != "":
			return refuse("the provider has given the reference %s for it: settle or decline it", row.Reference)
		}
		if err := d.proof(row); err != nil {
			return row, err
		}
		next := row.follow(Released, ByPerson, d.Reason)
		if row.State == Declined {
			next = next.anew(row.Cause != ByPerson)
		}
		return next, nil

	case Hold:
		if row.State.Closed() || row.State == Held {
			return refuse("it is %s", row.State)
		}
		return row.follow(Held, ByPerson, d.Reason), nil
	}
	return refuse("no such decision: %q", d.Action)
}

// anew is r, a declined row, for a wanted new attempt. The provider's own no answers
// for the old key, so the attempt has a new one and takes any request. Where a send of
// which that no says nothing may have acted, or only a person declined, key and
// request stay: they stop a request that turns up after all.
func (r Row) anew(providersOwn bool) Row {
	r.Forwarded = false // its message goes on once more
	if !providersOwn || r.MayHaveActed() {
		return r
	}
	r.Generation++
	r.Fingerprint, r.Prepared, r.Reference, r.Open.PrepareKey = Fingerprint{}, "", "", ""
	return r
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// proof returns why row is not proven to have done nothing; nil: it is, or the person
// has looked, and late enough.
func (d Decision) proof(row Row) error {
	if !row.MayHaveActed() {
		return nil
	}
	if !d.CheckedProvider {
		return refusal("a call may have been made: look order %s up at %s, by the key %s and by number, amount and time, and say that you did", row.Order, row.Provider, row.ProviderKey)
	}
	if late := row.Open.SendUntil.Add(row.Open.AbsentAfter); row.ReadAt.Before(late) {
		return refusal("too early: a request may still be on its way until %s", late.Format("2006-01-02 15:04:05Z"))
	}
	return nil
}

// forbid declines a key that has no row: nothing is ever called for it.
func (f *Fence) forbid(ctx context.Context, d Decision) (Row, error) {
	if err := d.Key.Validate(); err != nil {
		return Row{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	row := Row{Key: d.Key, State: Declined, Cause: ByPerson, Claim: Claim{}.next(), Generation: 1, Reason: d.Reason}
	row.ProviderKey = providerKey(f.Secret, row.Key, 1, requestMain)
	note := &Note{Epoch: 1, Kind: string(Decline), By: d.By, Text: "had no row: " + d.Reason}
	there, err := f.Store.Insert(ctx, row, Write{Note: note, DueIn: Never})
	if err == nil && there.Claim != row.Claim {
		return there, fmt.Errorf("%s: %w: it is %s now", d.Key, ErrStale, there.State)
	}
	return there, err
}
