package zabor

import (
	"context"
	"errors"
	"fmt"
)

// Action is what a person decides about a row.
type Action string

// The actions.
const (
	Settle  Action = "settle"  // it went through, here is its reference
	Decline Action = "decline" // it did not, and shall not
	Release Action = "release" // it did not; it may be called again
	Hold    Action = "hold"    // nothing may be called until somebody has decided
)

// Decision is one person's word about one row.
type Decision struct {
	Key Key
	// Seen is the claim of the row that the person has looked at. The decision
	// is refused when the row has changed since.
	Seen      Claim
	Action    Action
	Reference string // with Settle, and only there
	By        string // who decides; not empty
	Reason    string // why; not empty

	// CheckedProvider: the person has looked at the provider that nothing was
	// done. Release of a row in doubt, held out of doubt or declined by a person
	// demands it.
	CheckedProvider bool
}

// Made reports whether row is already as d would have it, so that nothing is left
// of d but what becomes of the message.
func (d Decision) Made(row Row) bool {
	switch d.Action {
	case Settle:
		return row.State == Settled && row.Reference == d.Reference
	case Decline:
		return row.State == Declined && row.Basis != ByForm
	case Release:
		return row.State == Released
	case Hold:
		return row.State == Held
	}
	return false
}

// Check says why d may not be made about row as it is: [ErrRefused], with the reason.
// Nil: it may, as far as row goes; [Fence.Decide] looks again.
func (d Decision) Check(row Row) error {
	_, err := decide(row, d)
	return err
}

// ErrRefused says that the decision may not be made about the row as it is.
// Nothing was changed.
var ErrRefused = errors.New("refused")

// Decide writes a decision and who made it, in one transaction with the hook of
// the state that the row enters. It is [ErrNoRow] where there is no row, except
// for Decline, which forbids the call then; [ErrStale] when the row has changed
// since it was looked at; [ErrRefused] when the row does not allow it.
//
// A release gives the row one more attempt, under the same provider key and for the
// same request, which is made again; that of a row which the provider declined is the
// wanted new attempt, of any request, and the only thing that raises the generation.
func (f *Fence) Decide(ctx context.Context, d Decision) (Row, error) {
	if d.By == "" || d.Reason == "" {
		return Row{}, fmt.Errorf("%w: a decision needs who made it and why", ErrRefused)
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
	next, err := decide(row, d)
	if err != nil {
		return row, fmt.Errorf("%s: %w", d.Key, err)
	}
	was := string(row.State)
	if next.Reference != row.Reference && row.Reference != "" { // it was that of a payment which was declined in the end
		was += " with reference " + row.Reference
	}
	note := &Note{Epoch: next.Claim.Epoch, Kind: string(d.Action), By: d.By, Text: fmt.Sprintf("was %s: %s", was, d.Reason)}
	written, err := f.swap(ctx, row, next, Write{Note: note})
	if err != nil {
		return row, err
	}
	if written.OtherReference != row.OtherReference {
		f.alertSaved(row, written)
	}
	return written, nil
}

// decide is the table of what a person may do to a row.
func decide(row Row, d Decision) (Row, error) {
	refuse := func(format string, args ...any) (Row, error) { return row, refusal(format, args...) }
	if row.State == Captured && !row.leaseEnded() {
		return refuse("a call is under way until %s", row.SendUntil.Format("15:04:05Z"))
	}
	switch d.Action {
	case Settle:
		if d.Made(row) {
			return refuse("it is settled with this reference already")
		}
		next := adopt(row, Outcome{Verdict: Done, Reference: d.Reference, Reason: d.Reason})
		next.Basis = ByPerson
		return next, nil

	case Decline:
		switch {
		case row.State == Settled:
			return refuse("it is settled with %s: a refund is another step", row.Reference)
		case d.Made(row):
			return refuse("it is declined already")
		}
		// What the provider had answered, such as that it is being processed, is
		// no answer to this.
		next := follow(row, Declined, ByPerson).withoutAnswer()
		next.Reason = d.Reason
		if row.State == Declined && row.Basis == ByForm {
			next.Free = next.Captures // the provider's own no: nothing was done
		}
		return closed(next), nil

	case Release:
		next := follow(row, Released, ByPerson)
		next.Reason = d.Reason
		next.Allowance = max(row.Allowance, row.Attempts()) + 1
		switch row.State {
		case Settled, Pending:
			return refuse("the provider has done it: %s", row.Reference)
		case Released:
			return refuse("it is free already; its message is called when it is delivered")
		case Declined:
			if row.Basis == ByPerson && row.Attempts() > 0 { // no answer of the provider's
				if err := provenNotDone(row, d); err != nil {
					return row, err
				}
				if row.KeepsKey() {
					next.MovedOn = 0 // its message went on as declined, and goes on once more
					return next, nil
				}
			}
			// A stored no answers for the old key: the new attempt has another,
			// and takes the request as it comes.
			next.Generation++
			next.Message, next.Fingerprint, next.Fields, next.Prepared, next.PrepareKey, next.Reference = "", "", "", "", "", ""
			return next, nil
		}
		if row.Reference != "" {
			return refuse("the provider has given the reference %s for it: settle or decline it", row.Reference)
		}
		if row.Attempts() == 0 {
			return next, nil
		}
		if err := provenNotDone(row, d); err != nil {
			return row, err
		}
		return next, nil

	case Hold:
		if row.State.Closed() || row.State == Held {
			return refuse("it is %s", row.State)
		}
		next := follow(row, Held, ByPerson)
		next.Reason = d.Reason
		return next, nil
	}
	return refuse("no such decision: %q", d.Action)
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// provenNotDone is why row, which may have been called, is not to be called again
// by d; nil: the person has looked, and late enough.
func provenNotDone(row Row, d Decision) error {
	if !d.CheckedProvider {
		return refusal("a call may have been made: look order %s up at %s, by the key %s and by number, amount and time, and say that you did", row.Order, row.Provider, row.ProviderKey)
	}
	if late := row.SendUntil.Add(row.AbsentAfter); row.ReadAt.Before(late) {
		return refusal("too early: a request may still be on its way until %s", late.Format("2006-01-02 15:04:05Z"))
	}
	return nil
}

// forbid declines a key that has no row: nothing is ever called for it, whatever
// its message asks for.
func (f *Fence) forbid(ctx context.Context, d Decision) (Row, error) {
	if err := d.Key.Validate(); err != nil {
		return Row{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	row := Row{Key: d.Key, State: Declined, Basis: ByPerson, Claim: Claim{}.next(), Generation: 1, Reason: d.Reason}
	row.ProviderKey = providerKey(f.Secret, row.Key, 1, requestMain)
	note := &Note{Epoch: 1, Kind: string(Decline), By: d.By, Text: "had no row: " + d.Reason}
	there, err := f.Store.Insert(ctx, row, Write{Note: note})
	if err == nil && there.Claim != row.Claim {
		return there, fmt.Errorf("%s: %w: it is %s now", d.Key, ErrStale, there.State)
	}
	return there, err
}
