package zabor

import (
	"crypto/rand"
	"slices"
	"time"
)

// State is where a row stands. The zero State is not one.
type State string

// The states. A state that this version does not know is treated as Held.
const (
	Captured State = "captured" // committed; a call may be under way
	Pending  State = "pending"  // the provider gave a reference but no verdict yet
	Settled  State = "settled"  // done; the reference is saved
	Declined State = "declined" // a definite no: no money moved
	Released State = "released" // nothing was sent or done: may be captured again
	Doubt    State = "doubt"    // a send may have acted, and no definite answer is known
	Held     State = "held"     // a person must decide
)

var states = [...]State{Captured, Pending, Settled, Declined, Released, Doubt, Held}

// States lists every state that this version knows, in the order of a row's life.
func States() []State { return slices.Clone(states[:]) }

// ParseState returns the state named s and whether there is one.
func ParseState(s string) (State, bool) {
	for _, known := range states {
		if string(known) == s {
			return known, true
		}
	}
	return Held, false
}

// Closed reports whether nothing is left to find out: Settled or Declined.
func (s State) Closed() bool { return s == Settled || s == Declined }

// Cause is the kind of evidence behind a row's state. Row.Reason has the details.
type Cause string

// The causes. Each of them decides something; see the comments.
const (
	ByCall       Cause = "call"     // a capture, or the provider's answer to a send
	ByForm       Cause = "form"     // the provider refuses the request's form: its message is parked
	ByLookup     Cause = "lookup"   // a look-up found the call; together with ByCall it makes a sample
	ByAbsence    Cause = "absence"  // a look-up found nothing, late enough
	ByExpiry     Cause = "expiry"   // a time ran out: the lease, hold_after, pending_for
	ByMissingRow Cause = "missing"  // the message was delivered before and had no row: never replayed
	ByPerson     Cause = "person"   // a person's decision: a release allows one more call
	ByImport     Cause = "import"   // taken over from before zabor: a payment list may settle it
	ByConflict   Cause = "conflict" // two payments for one order, or one for two: only a person decides
)

// Claim is the right to make the next write of a row. It has the number of the
// row's last write and the random id of its writer. A write names the claim that
// it follows, so of two writers only one succeeds. A writer whose commit was not
// confirmed recognises its own write by the id.
type Claim struct {
	Epoch int64    // rises by one with each write; 1 is the insert
	ID    [16]byte // random
}

// next is the claim of the write that follows c.
func (c Claim) next() Claim {
	n := Claim{Epoch: c.Epoch + 1}
	rand.Read(n.ID[:])
	return n
}

// Money is an amount in minor units (cents; yen; thousandths of a dinar). The
// zero Money says that the amount is not known.
type Money struct {
	Minor    int64
	Currency string // three upper-case letters of ISO 4217; empty: not known
}

// Answer is the provider's answer, kept for repeats of the same request.
type Answer struct {
	Status int
	Header []HeaderField // only those that a caller needs; never secrets
	Body   []byte
	Erased bool   // keep_answers is over: Header and Body are gone, Status stays
	Sealed []byte // ciphertext that the store has no key for; nil: Header and Body are readable
	Why    string // with Sealed: which key is missing
}

// Readable reports whether a has its Header and Body.
func (a *Answer) Readable() bool { return a != nil && !a.Erased && a.Sealed == nil }

// HeaderField is one header of an [Answer], as it was received.
type HeaderField struct{ Name, Value string }

// Endpoint is the provider's address and account that a row is called at.
type Endpoint struct {
	Provider string // name in the configuration
	Account  string // the provider's account, where its profile has one
	Address  string // digest of address and credentials, see [Fence.Address]; empty: not known
}

// Fingerprint tells one request from another under the same key.
type Fingerprint struct {
	Message string // of the fields that the message itself has; empty: any message matches
	Request string // of the whole request; empty: any request matches
	Fields  string // JSON object: each field's name and digest; empty: differences cannot be named
}

// Row is the fence's record of one side effect. Times are in the database's
// clock, UTC, to the microsecond at best; the zero time means not known.
type Row struct {
	Key
	State  State
	Cause  Cause
	Reason string // for people: why the row is in its state
	Claim  Claim

	Endpoint
	Generation  int    // from 1; rises only after the provider's own no and a wanted new attempt
	ProviderKey string // idempotency key of the request that moves the money
	Amount      Money
	Fingerprint Fingerprint

	Prepared       string // id from the first request of a two-step call
	Reference      string // the provider's id of what it did; write-once
	OtherReference string // a second, different one: money may have moved twice
	Answer         *Answer
	HookDue        string // state whose hook failed and must still run; empty: none
	Parked         string // id of the message that is in the failure transport for this row; empty: none
	Forwarded      bool   // a message of this generation went on to another queue

	Tries    int // captures, less those whose own call proved that it did nothing
	Unproven int // sends under this provider key that may have acted; see [Row.MayHaveActed]

	CapturedAt time.Time // first capture
	StateSince time.Time
	ReadAt     time.Time // the database's clock when this row was read; zero: it was written, not read

	Open Open // zero unless the row is Unfinished
}

// Open is what a row needs only while it is unfinished. The store erases it with the
// write that finishes the row.
type Open struct {
	Request    []byte // the frozen request; nil: it may not be kept
	PrepareKey string // idempotency key of the first request of two; empty: there is one request
	HookData   []byte // values that hooks bind from the message; nil: none
	HookDone   bool   // the hook of the capture has run, and the row was not declined since
	Sealed     Sealed // what the store could not decrypt

	Send    [16]byte // id of the latest send: that of the claim of its capture or replay
	Replays int      // sends of the same request under the same key, by the resolver
	Lingers bool     // the provider may carry a send out later by itself: absence proves nothing, and nothing is replayed

	// Deadlines, fixed at capture.
	Lease       time.Duration // of the latest claim
	AbsentAfter time.Duration // after the lease; 0: no look-up can prove absence
	HoldAfter   time.Duration
	PendingFor  time.Duration
	SendUntil   time.Time // end of the latest claim's lease: no claim may send later
	ReplayUntil time.Time // last moment for a replay under the same key; zero: never

	// The watch of a resolver, in its own monotonic time.
	Watcher [16]byte      // the resolver that watches the row; zero: none
	Watched time.Duration // since the row entered its state; gaps between two watchers do not count
	Silent  time.Duration // the same since the latest send
}

// Sealed holds ciphertext that the store has no key for. The store writes it back
// unchanged.
type Sealed struct {
	Why      string // for people: which key is missing; empty: nothing is sealed
	Request  []byte
	HookData []byte
}

// sealedRequest reports whether the frozen request is there and cannot be read.
func (r Row) sealedRequest() bool { return r.Open.Sealed.Request != nil }

// MayHaveActed reports whether a send under the row's provider key may have moved
// money. A send counts from its capture. Only its own answer takes it away: a
// proof that it did nothing. Absence and a person's word do not.
func (r Row) MayHaveActed() bool { return r.Unproven > 0 }

// Unfinished reports whether anything is left to do for the row: it is open, a hook
// is due, or a person may still decide about a refusal of its form. Only such a row
// has an [Open].
func (r Row) Unfinished() bool {
	return !r.State.Closed() || r.HookDue != "" || r.Cause == ByForm
}

// TwoStep reports whether the call has a harmless first request, whose id the
// second one confirms.
func (r Row) TwoStep() bool { return r.Open.PrepareKey != "" }

// ClosedAt is when the row was closed; zero while it is open.
func (r Row) ClosedAt() time.Time {
	if !r.State.Closed() {
		return time.Time{}
	}
	return r.StateSince
}

// leaseEnded reports whether no claim may send any more, by the database's clock
// at the time of reading.
func (r Row) leaseEnded() bool {
	return !r.ReadAt.IsZero() && r.ReadAt.After(r.Open.SendUntil)
}

// follow is the row that follows r in the given state.
func (r Row) follow(state State, cause Cause, reason string) Row {
	r.Claim = r.Claim.next()
	r.State, r.Cause, r.Reason = state, cause, reason
	return r
}
