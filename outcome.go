package zabor

import "time"

// Verdict is what one call, or one look-up's hit, proves. The zero Verdict
// proves nothing.
type Verdict uint8

// The verdicts.
const (
	// Unproven: something may have been done. A call that ends so leaves Doubt.
	Unproven Verdict = iota
	// Done: the provider did it, finally, and gave a reference.
	Done
	// Begun: the provider gave a reference but no verdict yet.
	Begun
	// Refused: a definite no that the provider's profile lists; no money moved.
	Refused
	// Unsent: not one byte of the request left this machine.
	Unsent
	// TurnedAway: the provider answered, and the answer says that it did
	// nothing and that the same request may be sent later (401, 403, 407, 421,
	// 425, 429 and what the profile calls transient).
	TurnedAway
	// Misdirected: the request went to a wrong address or in a wrong form
	// (404, 405, 307 …). No machine may try it again.
	Misdirected
	// Malformed: a definite no about the request's form (400, validation); no
	// money moved. The message is parked instead of acked.
	Malformed
	// Prepared: the harmless first request of a two-step call gave an id, in
	// Reference; no money moved.
	Prepared
)

var verdictNames = [...]string{"unproven", "done", "begun", "refused", "unsent", "turned away", "misdirected", "malformed", "prepared"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return verdictNames[Unproven]
}

// Outcome is how a call ended. The zero Outcome says that nothing is known.
type Outcome struct {
	Verdict   Verdict
	Reference string  // set with Done, Begun and Prepared, and only then
	Answer    *Answer // to be given again on a repeat; nil: none may be kept
	Reason    string  // one line for people, without secrets
	// StoredRefusal reports that the provider stores a refusal of this kind
	// under the key, so that it also speaks for earlier sends.
	StoredRefusal bool
	// RetryAfter is how long the provider asks to be left alone; 0: it does not.
	RetryAfter time.Duration
	// Lingers, of what is Unproven: the provider failed inside, and may still carry the
	// request out by itself. Neither silence nor the same request proves anything later.
	Lingers bool
	// Pause: nothing more should be sent to the provider for a while, although the
	// verdict alone does not say so: what answers is not the provider (a redirect).
	Pause bool
}

// after is the row that follows when the call of row's claim has ended with o:
// the one table of what an answer leads to. earlier reports that another send
// of the row is open, of which this answer says nothing.
func after(row Row, o Outcome, earlier bool) Row {
	next := row
	next.Claim = row.Claim.next()
	next.Basis = ByCall
	next.Reason = o.Reason
	switch o.Verdict {
	case Done, Begun:
		return adopt(row, o)
	case Refused, Malformed:
		if earlier && !o.StoredRefusal {
			return inDoubt(next)
		}
		next.State = Declined
		if o.Verdict == Malformed {
			next.Basis = ByForm
		}
		next.Answer = o.Answer
	case Unsent, TurnedAway:
		if earlier {
			return inDoubt(next)
		}
		next.State = Released
		next.Basis = ByUnsent
		if o.Verdict == TurnedAway {
			next.Basis = ByTurnedAway
		}
		next.Free++
	case Misdirected:
		next.State = Held
	default:
		if row.TwoStep() && row.Prepared == "" && !earlier {
			// The request that moves money was never sent: an orphan at the
			// provider at worst.
			next.State, next.Basis = Released, ByPrepare
			break
		}
		return inDoubt(next)
	}
	return closed(next)
}

// closed is next without the frozen request, if nothing is left to find out.
func closed(next Row) Row {
	if next.State.Closed() {
		return next.withoutRequest()
	}
	return next
}

func inDoubt(next Row) Row {
	next.State = Doubt
	return next
}

// adopt is the row that follows when a reference arrives, in whatever state the
// row is by now. A success is a fact: it is saved whoever holds the claim. The
// reference is write-once; a different one is kept beside it.
func adopt(row Row, o Outcome) Row {
	next := row
	next.Claim = row.Claim.next()
	next.Basis = ByCall
	next.Reason = o.Reason
	switch {
	case row.Reference == "":
		next.Reference = o.Reference
		next.Answer = o.Answer
	case row.Reference == o.Reference:
		if o.Answer != nil {
			next.Answer = o.Answer
		}
	default:
		if row.OtherReference == "" {
			next.OtherReference = o.Reference
		}
		next.Reason = "two references: " + row.Reference + " and " + o.Reference
	}
	switch {
	case row.State == Settled:
	case o.Verdict == Done:
		next.State = Settled
	default:
		next.State = Pending
	}
	return closed(next)
}

// adopted reports whether row already says all that adopt would write, so that
// the same reference again changes nothing.
func adopted(row Row, o Outcome) bool {
	known := row.Reference == o.Reference || row.OtherReference == o.Reference
	return known && (row.State == Settled || row.State == Pending && o.Verdict == Begun)
}
