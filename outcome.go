package zabor

import "time"

// Verdict is what one call, or one hit of a look-up, proves. The zero Verdict
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
	// TurnedAway: the answer says that nothing was done, and that the same request
	// may be sent later (401, 403, 407, 421, 425, 429 and what the profile calls
	// transient).
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
	// Unauthorized, with TurnedAway: the credentials were refused (401, 403). If other
	// orders of the endpoint succeed meanwhile, such a try is counted.
	Unauthorized bool
	// RetryAfter is how long the provider asks to be left alone; 0: it does not.
	RetryAfter time.Duration
	// Lingers, with Unproven: the provider failed inside, and may carry the request out
	// later by itself. Neither absence nor a replay proves anything then.
	Lingers bool
	// Local, with Unsent: this machine or the fence's database is the cause, and not the
	// provider. It pauses nothing.
	Local bool
	// Pause: send nothing more to the provider for a while, although the verdict
	// alone does not say so. Another server answers in its place (a redirect).
	Pause bool
}

// after is the row that follows when the latest send of row has ended with o. It
// is the one table of what an answer leads to.
func after(row Row, o Outcome) Row {
	replay := row.Open.Replays > 0 // the send before it is in doubt, and this answer may say nothing of it
	switch o.Verdict {
	case Done, Begun:
		return adopt(row, o, ByCall)
	case Refused, Malformed:
		if replay && !o.StoredRefusal {
			break
		}
		next := row.follow(Declined, ByCall, o.Reason)
		if o.Verdict == Malformed {
			next.Cause = ByForm
		}
		next.Unproven, next.Answer = max(0, row.Unproven-1), o.Answer
		if o.StoredRefusal {
			next.Unproven = 0
		}
		return next
	case Unsent, TurnedAway:
		return nothingDone(row, o.Reason, !o.Unauthorized)
	case Misdirected:
		return row.follow(Held, ByCall, o.Reason)
	default:
		if row.TwoStep() && row.Prepared == "" {
			// The request that moves money was never sent: an orphan at the
			// provider at worst.
			return nothingDone(row, o.Reason, false)
		}
	}
	next := row.follow(Doubt, ByCall, o.Reason)
	next.Open.Lingers = next.Open.Lingers || o.Lingers
	return next
}

// nothingDone is the row that follows when the latest send of row surely did
// nothing: free if no other send may have acted. A free try is not counted.
func nothingDone(row Row, reason string, free bool) Row {
	next := row.follow(Released, ByCall, reason)
	next.Unproven = max(0, row.Unproven-1)
	switch {
	case row.Open.Replays > 0:
		next.State = Doubt // the send before the replay is still in doubt
	case free:
		next.Tries = max(0, row.Tries-1)
	}
	return next
}

// adopt is the row that follows when a reference arrives, in whatever state the
// row is by now. The reference is write-once; a different one is kept beside it.
func adopt(row Row, o Outcome, cause Cause) Row {
	next := row.follow(row.State, cause, o.Reason)
	switch {
	case row.Reference == "":
		next.Reference, next.Answer = o.Reference, o.Answer
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
	return next
}

// adopted reports whether row already says all that adopt would write, so that
// the same reference again changes nothing.
func adopted(row Row, o Outcome) bool {
	known := row.Reference == o.Reference || row.OtherReference == o.Reference
	return known && (row.State == Settled || row.State == Pending && o.Verdict == Begun || row.State == Held && row.Cause == ByConflict)
}

// decidable reports whether the outcome of the send with the given id still decides
// about row: no later send was made, and no person has spoken since.
func decidable(row Row, send [16]byte) bool {
	if row.Open.Send != send {
		return false
	}
	switch row.State {
	case Captured:
		return true
	case Doubt:
		return row.Cause != ByMissingRow // the call of another worker may be meant
	case Held:
		return row.Cause != ByPerson && row.Cause != ByImport && row.Cause != ByMissingRow && row.Cause != ByConflict && row.Reference == ""
	}
	return false
}
