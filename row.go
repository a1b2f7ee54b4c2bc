package zabor

import (
	"crypto/rand"
	"slices"
	"time"
)

// State is where a row stands. The zero State is not one.
type State string

// The states. What leads from one to another is in [after], [adopt] and
// [Resolver]; a state that this version does not know is treated as Held.
const (
	Captured State = "captured" // committed, a call may be under way
	Pending  State = "pending"  // the provider gave a reference but no verdict yet
	Settled  State = "settled"  // done, the reference is saved
	Declined State = "declined" // a definite no: no money moved
	Released State = "released" // surely nothing was sent or done: may be captured again
	Doubt    State = "doubt"    // something may have been sent and no definite answer is known
	Held     State = "held"     // in doubt, and no machine may decide
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

// Basis says what the state of a row rests on.
type Basis string

// What a state can rest on.
const (
	ByCall       Basis = "call"       // the capture, or the provider's answer to the call
	ByUnsent     Basis = "unsent"     // proof that no byte was sent
	ByTurnedAway Basis = "turnedaway" // an answer that says that nothing was done (401, 429 …)
	ByForm       Basis = "form"       // an answer that the request itself is wrong (400, validation)
	ByPrepare    Basis = "prepare"    // the harmless first request failed; the second was never sent
	ByHook       Basis = "hook"       // the hook of the capture failed; nothing was sent
	ByReplay     Basis = "replay"     // the answer to the same request, sent again under the same key
	ByLookup     Basis = "lookup"     // a look-up at the provider
	ByAbsence    Basis = "absence"    // a look-up that found nothing, late enough to prove it
	ByExpiry     Basis = "expiry"     // a time that ran out: the lease, hold_after, pending_for
	ByMissingRow Basis = "missingrow" // somebody else had the message, and may have called under a row that is lost
	ByPerson     Basis = "person"     // a person's decision
	ByImport     Basis = "import"     // taken over from before zabor

	// ByContradiction: what is known from before zabor cannot be one payment.
	ByContradiction Basis = "contradiction"

	// ByTransaction: written in a transaction of the caller's; nothing was sent yet.
	ByTransaction Basis = "transaction"
)

// Claim is the right to make the next write of a row: the number of the row's
// last write and the random id of whoever made it. A write must name the claim
// that it follows, so of two writers only one succeeds, and a writer whose
// commit was not confirmed can recognise its own write.
type Claim struct {
	Epoch int64    // rises by one with each write; 1 is the insert
	ID    [16]byte // random
}

// newClaim is the claim of the write that follows c.
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

// Answer is what a provider said, kept to be given again on a repeat.
type Answer struct {
	Status int
	Header []HeaderField // only those that a caller needs; never secrets
	Body   []byte
}

// HeaderField is one header of an [Answer], as it was received.
type HeaderField struct{ Name, Value string }

// Row is the fence's record of one side effect. Times are in the database's
// clock, UTC, to the microsecond at best, and zero when not known.
type Row struct {
	Key
	State State
	Basis Basis
	Claim Claim

	// Who is asked to do what.
	Provider    string // name in the configuration
	Account     string // the provider's account, where its profile has one
	Place       string // of the latest call: see [Fence.Place]; empty: not known
	Generation  int    // from 1; rises only after a stored definite no and a wanted new attempt
	ProviderKey string // idempotency key of the request that moves the money
	PrepareKey  string // that of the request before it, in a two-step call
	Amount      Money
	Message     string // fingerprint of what comes from the message itself; empty: any message will do
	Fingerprint string // fingerprint of the whole request; empty: any request will do
	Fields      string // what Fingerprint is made of, as in [Effect]
	Request     []byte // the frozen request; nil once the row is closed, or where it may not be kept

	// What came of it.
	Prepared       string // id from the first request of a two-step call
	Reference      string // the provider's id of what it did; write-once
	OtherReference string // a second, different one: money may have moved twice
	Answer         *Answer
	AnswerEnded    int    // status of an answer that was kept and was erased when its time was over; 0: none
	Reason         string // for people: why the row is in its state
	HookDue        string // name of a hook that failed and must still run; empty: none
	HookData       []byte // what hooks bind from the message; nil once none can run any more
	Hooked         bool   // the hook of the capture has run

	// Counts that only rise.
	Captures  int
	Replays   int // sends of the same request under the same key, by the resolver
	Free      int // captures whose own call proved that it did nothing
	Allowance int // attempts after which a released row is parked

	// Deadlines, fixed at capture.
	Lease       time.Duration // of the latest claim
	AbsentAfter time.Duration // after the lease; 0: no look-up can prove absence
	HoldAfter   time.Duration
	PendingFor  time.Duration

	CapturedAt time.Time // first capture
	SendUntil  time.Time // end of the latest claim's lease: no later may any claim have sent
	// ReplayUntil is the last moment at which the same request may be sent
	// again under the same key; zero: never.
	ReplayUntil time.Time
	StateSince  time.Time
	LookedAt    time.Time // the last look-up's end; zero: there was none
	Asking      bool      // somebody is asking the provider, and will have ended by LookedAt unless he died
	ReadAt      time.Time // the database's clock when this row was read; zero: it was written, not read
	Parked      string    // id of the message that was last parked for this row
	MovedOn     int       // generation whose message went on to another queue; 0: none

	// Sealed is what the store could not decrypt; nil: nothing.
	Sealed *Sealed
}

// Sealed is what of a row cannot be decrypted here, as it stands in the table.
// The row's own fields of these names are nil then, so that nothing takes it for
// what it hides; a store writes it back unchanged where they still are.
type Sealed struct {
	Why      string // for people: which key is missing
	Request  []byte
	HookData []byte
	Answer   []byte
	Status   int // of Answer
}

// sealedRequest reports whether there is a frozen request that cannot be read.
func (r Row) sealedRequest() bool { return r.Sealed != nil && r.Sealed.Request != nil }

// withoutRequest is r without its frozen request, readable or not.
func (r Row) withoutRequest() Row {
	r.Request = nil
	if r.sealedRequest() {
		rest := *r.Sealed
		rest.Request = nil
		r.Sealed = &rest
	}
	return r
}

// withoutAnswer is r without the provider's answer, readable or not, and without
// the status of one that was erased.
func (r Row) withoutAnswer() Row {
	r.Answer, r.AnswerEnded = nil, 0
	if r.Sealed != nil {
		rest := *r.Sealed
		rest.Answer, rest.Status = nil, 0
		r.Sealed = &rest
	}
	return r
}

// Attempts is how many calls may have done something.
func (r Row) Attempts() int { return r.Captures - r.Free }

// KeepsKey reports whether r is declined by a person alone: the provider has neither
// said no nor given a reference. Its release keeps the provider key and the request,
// which stops one that turns up after all.
func (r Row) KeepsKey() bool {
	return r.State == Declined && r.Basis == ByPerson && r.Attempts() > 0 && r.Reference == ""
}

// Spent reports whether the attempts allowed are used up.
func (r Row) Spent() bool { return r.Attempts() >= r.Allowance }

// GoneOn reports whether a message of the row's generation has gone on to another
// queue, with the ack or with a person's decision.
func (r Row) GoneOn() bool { return r.MovedOn > 0 && r.MovedOn == r.Generation }

// SettledAt is when the row was closed; zero while it is open.
func (r Row) SettledAt() time.Time {
	if !r.State.Closed() {
		return time.Time{}
	}
	return r.StateSince
}

// TwoStep reports whether the row's call has a harmless first request, whose id
// the second one confirms.
func (r Row) TwoStep() bool { return r.PrepareKey != "" }

// leaseEnded reports whether, by the database's clock at the time of reading,
// no claim may send any more.
func (r Row) leaseEnded() bool {
	return !r.ReadAt.IsZero() && r.ReadAt.After(r.SendUntil)
}
