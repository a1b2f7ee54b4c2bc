package zabor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Effect is what one delivery of a message asks for.
type Effect struct {
	Key      Key
	Provider string // its name in the configuration
	Account  string // may be empty
	Amount   Money  // zero: not known

	// Message and Fingerprint tell one request from another under the same
	// key: the part that comes from the message alone, and the whole. At most
	// 255 bytes each, not empty.
	Message     string
	Fingerprint string

	// Earlier is what both were for the same request in a version before, and is
	// asked for a row of another fingerprint only; nil: the same.
	Earlier func() string

	// Fields names what Fingerprint is made of and a digest of each, as a JSON
	// object of texts of at most 4,000 bytes: so that a refusal can say what
	// differs. Empty: it cannot.
	Fields string

	// Freeze renders the request with its provider keys and, in a two-step
	// call, the id that Prepare's request was given. What it returns is what
	// Call sends, and what a replay would send again. It must not have effects
	// and may be called more than once.
	Freeze func(keys ProviderKeys, prepared string) ([]byte, error)
	// Prepare renders the harmless first request of a two-step call; nil: the
	// call has one step.
	Prepare func(ProviderKeys) ([]byte, error)

	// Unkept: the request holds what may be kept nowhere, such as a card number.
	// It is sent and not stored, and so never sent again: a doubtful call is only
	// looked up.
	Unkept bool

	Timeout  time.Duration // of the whole call; above zero
	Attempts int           // calls that may have done something before the message is parked; at least 1

	AbsentAfter time.Duration // see Row; 0: no look-up
	HoldAfter   time.Duration
	PendingFor  time.Duration
	ReplayFor   time.Duration // from the first capture of a generation: how long the same request may be sent again under its key; 0: never

	// HookData is what hooks bind from the message, kept while one may run.
	HookData []byte

	// ReservedUntil is the moment after which the queue may have given the
	// message to somebody else; zero: never. A row that was inserted for a
	// first delivery and whose call did nothing is doubt when that moment has
	// passed: another may have called, and its row may be lost.
	ReservedUntil time.Time

	// MissingRow is the state in which a row is inserted: Captured, and the
	// call follows; Doubt or Held for a message that was delivered before, and
	// nothing is called.
	MissingRow State

	// capture is the row that a transaction of the caller's may have committed,
	// and the only one that may be captured; nil: Do inserts it.
	capture *Capture
}

// knownTo is e as the version would have it that wrote row, where that is one
// before and the request is the same.
func (e Effect) knownTo(row Row) Effect {
	if e.Earlier != nil && row.Message != "" && row.Message != e.Message && row.Message == e.Earlier() {
		e.Message, e.Fingerprint, e.Fields = row.Message, row.Fingerprint, row.Fields
	}
	return e
}

// ProviderKeys are the idempotency keys of one generation of a row.
type ProviderKeys struct{ Request, Prepare string }

// render is the request that e asks for under the keys of row: the one that comes
// next in a two-step call.
func (e Effect) render(row Row) ([]byte, error) {
	keys := ProviderKeys{Request: row.ProviderKey, Prepare: row.PrepareKey}
	if e.Prepare != nil && row.Prepared == "" {
		return e.Prepare(keys)
	}
	return e.Freeze(keys, row.Prepared)
}

// replayFor is ReplayFor; 0 where there will be nothing to send again.
func (e Effect) replayFor() time.Duration {
	if e.Unkept {
		return 0
	}
	return e.ReplayFor
}

// Margin is what a lease is longer than the call's time-out, and what a
// reserve must be longer than the lease: a second, or a tenth if that is more.
func Margin(d time.Duration) time.Duration { return max(time.Second, d/10) }

// Lease is how long a claim lasts whose call may take timeout.
func Lease(timeout time.Duration) time.Duration { return timeout + Margin(timeout) }

// callTimeout is the call's time-out in a lease: what Lease was made of, or a
// little less.
func callTimeout(lease time.Duration) time.Duration {
	return min(lease-time.Second, lease*10/11)
}

// Validate names the first field that breaks a bound.
func (e Effect) Validate() error {
	if err := e.Key.Validate(); err != nil {
		return err
	}
	switch {
	case e.Provider == "":
		return errors.New("no provider")
	case e.Message == "" || e.Fingerprint == "":
		return errors.New("no fingerprint of the request")
	case len(e.Message) > 255 || len(e.Fingerprint) > 255:
		return errors.New("fingerprint longer than 255 bytes")
	case e.Freeze == nil:
		return errors.New("no request")
	case e.Timeout <= 0:
		return fmt.Errorf("timeout %s: must be above zero", e.Timeout)
	case e.Attempts < 1:
		return fmt.Errorf("attempts %d: at least 1", e.Attempts)
	case len(e.Fields) > 4000:
		return fmt.Errorf("fields of the fingerprint: %d bytes, at most 4000", len(e.Fields))
	case e.MissingRow != Captured && e.MissingRow != Doubt && e.MissingRow != Held:
		return fmt.Errorf("missing row as %q: captured, doubt or held", e.MissingRow)
	}
	return nil
}

// Call sends row.Request once and says what the answer proves: under PrepareKey
// where the row is two-step and has no Prepared id yet, else under ProviderKey. ctx is not
// cancelled by a stop of the process; its deadline is the last moment at which
// the request may be sent or its answer awaited. It is counted from before the
// capture, so a Call must compare it with both the monotonic and the wall clock
// right before the first byte.
type Call func(ctx context.Context, row Row) Outcome

// Moment is a point in the life of a call at which a process can die.
type Moment string

// The moments of [Fence.Do], in order. The worker adds those of the ack.
const (
	Capturing Moment = "capturing" // before the capture is sent to the database
	Sending   Moment = "sending"   // the capture is committed, nothing was sent
	Answered  Moment = "answered"  // the answer was read, nothing was saved
	Saved     Moment = "saved"     // the outcome is committed
)

// SaveTimeout is how long a fence tries to save an outcome unless told otherwise.
const SaveTimeout = 30 * time.Second

// Fence makes side effects at most once per key. Its fields are set before
// first use and not changed afterwards; it may be used concurrently.
type Fence struct {
	Store  Store
	Secret []byte      // the installation's, at least [MinSecret] bytes; provider keys are derived from it
	Alert  func(Alert) // nil: none wanted

	// Place says where calls to the provider of that name go now, and with whose
	// credentials: a text of at most 64 printable ASCII characters, the same for the
	// same address and account and no other, or empty where the provider is not known.
	// It is kept with each capture: of a row that was called at another place nothing
	// is sent again, and nothing is believed that is found here, or not, before the
	// look-up has found what that place has settled. A row whose place is not known is
	// never believed to be absent, but held. Nil: there is only one place, ever.
	Place func(provider string) string

	// Hook is the statement that runs in the transaction of a write by which
	// row enters its state, bound to row as it will be; nil: there is none.
	// An error counts as the hook's own. The field may be nil.
	Hook func(row Row) (*Hook, error)

	// Refuse returns why nothing may be captured for k at present; nil: it may. It
	// is asked before each call and must return at once. The field may be nil.
	Refuse func(k Key) error

	// Journal keeps successes while the database is away. Nil: they are kept in
	// memory for SaveTimeout, and are then only in an alert.
	Journal *Journal

	// SaveTimeout bounds the saving of an outcome, over all its tries, once
	// the provider may have acted. Zero: [SaveTimeout].
	SaveTimeout time.Duration

	// At is told each moment that a key passes, from the goroutine that is
	// passing it. Nil: nobody is told.
	At func(Moment, Key)

	// Called is told how each call of Do ended and how long it took, its second
	// request included; nil: nobody is. It must return at once.
	Called func(row Row, o Outcome, took time.Duration)

	// Log is told how each call ended, and every alert; nil: nothing is logged.
	Log *slog.Logger

	// Now is the clock that pauses of a provider are counted by; nil: time.Now.
	// The deadline of a call is always counted by the machine's own.
	Now func() time.Time

	breaker breaker
}

func (f *Fence) clock() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

// Do makes the side effect named by e.Key at most once, over every process that
// shares the fence table: it commits a row for the key, calls once, and saves
// what came of it.
//
// A nil error means that the returned row is Settled, Pending or Declined, now
// or earlier, and that the message may be acked. [ErrBusy], [ErrInDoubt],
// [ErrReleased] and [ErrPaused]: not acked, it comes back later. [ErrHeld],
// [ErrSpent], [ErrOtherRequest] and [ErrMalformed]: acked only after it is
// parked. After any other error
// nothing was sent and Do may be tried again.
func (f *Fence) Do(ctx context.Context, e Effect, call Call) (Row, error) {
	start := time.Now() // before the capture: no clock skew can stretch the claim
	if f.Refuse != nil {
		if err := f.Refuse(e.Key); err != nil {
			return f.refused(ctx, e, err)
		}
	}
	wait, why, turn := f.breaker.wait(roadOf(e.Provider, e.Key), f.clock(), e.Timeout)
	if wait > 0 {
		return f.whilePaused(ctx, e, wait, why)
	}
	row, mine, err := f.capture(ctx, e)
	if err != nil || !mine {
		return row, err
	}
	fresh := row.Claim.Epoch == 1 // nobody had written to it before
	callCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), start.Add(e.Timeout))
	defer cancel()
	f.at(Sending, e.Key)
	begun := time.Now()
	outcome := e.send(callCtx, row, call)
	if outcome.Verdict == Prepared {
		if row, err = f.prepared(ctx, row, e, outcome.Reference); err != nil {
			return row, err
		}
		outcome = e.send(callCtx, row, call)
	}
	f.at(Answered, e.Key)
	f.called(row, outcome, time.Since(begun))
	f.ended(row, outcome, turn)
	next := after(row, outcome, false)
	if next.State == Released && fresh && passed(e.ReservedUntil) {
		next = follow(row, Doubt, ByMissingRow)
		next.Reason = "by the time the call had ended without doing anything, the queue may have given the message to another worker: " + outcome.Reason
	}
	return f.saveNext(ctx, row, next, outcome)
}

// called tells whoever wants to know how a call of row ended.
func (f *Fence) called(row Row, o Outcome, took time.Duration) {
	if f.Called != nil {
		f.Called(row, o, took)
	}
	if f.Log != nil {
		f.Log.Info("called", "key", row.Key.String(), "provider", row.Provider, "verdict", o.Verdict.String(), "reference", o.Reference, "reason", o.Reason, "took", took)
	}
}

// ended tells the breaker how a call of row ended that it let through at the given
// turn, and a person when nothing is sent any more by it.
func (f *Fence) ended(row Row, o Outcome, turn int64) {
	if row.HoldAfter > 0 {
		o.RetryAfter = min(o.RetryAfter, row.HoldAfter)
	}
	if !f.breaker.ended(roadOf(row.Provider, row.Key), o, turn, f.clock()) {
		return
	}
	text := row.Provider + " does nothing with what it is sent"
	switch {
	case o.Verdict == Misdirected && !o.Pause:
		text = row.Provider + " has nothing where this step's requests go"
	case o.Verdict == Malformed:
		text = fmt.Sprintf("%s has refused the form of %d requests in a row of this step", row.Provider, wrongForms)
	case o.Pause:
		text = "what answers in the place of " + row.Provider + " leads elsewhere"
	case o.Verdict == Unproven && o.RetryAfter > 0:
		text = row.Provider + " asks to be left alone"
	case o.Verdict == Unproven:
		text = fmt.Sprintf("%s has answered none of %d calls in a row with anything that proves what it did", row.Provider, mostUnproven)
	}
	f.alert(row, Warning, "provider-paused", text+", and is left alone for a while: "+o.Reason)
}

// send calls with the request of row, which is made once more where the row may
// not hold it.
func (e Effect) send(ctx context.Context, row Row, call Call) Outcome {
	if e.Unkept {
		var err error
		if row.Request, err = e.render(row); err != nil {
			return Outcome{Verdict: Unsent, Reason: fmt.Sprintf("nothing was sent: the request could not be made: %v", err)}
		}
	}
	return call(ctx, row)
}

// capture commits the row of e, or finds the one that is there. Only where mine
// is true may the caller call; else the row, or the error, says why not.
func (f *Fence) capture(ctx context.Context, e Effect) (row Row, mine bool, err error) {
	if e.capture != nil {
		return f.captureCommitted(ctx, e)
	}
	fresh, err := f.fresh(e)
	if err != nil {
		return Row{}, false, &Error{Key: e.Key, Err: err, Reason: "nothing was sent"}
	}
	f.at(Capturing, e.Key)
	row, err = f.insert(ctx, fresh, e.replayFor())
	if err != nil {
		return Row{}, false, unwritten(e.Key, err)
	}
	if row.Claim != fresh.Claim {
		return f.again(ctx, row, e)
	}
	if row.State == Captured {
		return row, true, nil
	}
	f.alertHeld(row) // a missing row of a shared queue is inserted as held
	return row, false, stateError(row)
}

// fresh is the row of e before it is in the table.
func (f *Fence) fresh(e Effect) (Row, error) {
	if err := e.Validate(); err != nil {
		return Row{}, err
	}
	row := Row{
		Key:       e.Key,
		State:     e.MissingRow,
		Basis:     ByCall,
		Claim:     Claim{}.next(),
		Allowance: e.Attempts,
		Captures:  1,
	}
	switch row.State {
	case Doubt:
		row.Basis = ByMissingRow
		row.Reason = "the message had been delivered before and there was no row: a call may have been made"
	case Held:
		row.Basis = ByMissingRow
		row.Reason = "another worker had the message and there was no row: it may have made the call, and not under this row's key, so that no look-up can prove that it did not"
	}
	row.Generation = 1
	return f.take(row, e)
}

// take is row with the request that e asks for, under the keys of row's
// generation. A release keeps the generation, and so the keys.
func (f *Fence) take(row Row, e Effect) (Row, error) {
	row.ProviderKey = providerKey(f.Secret, row.Key, row.Generation, requestMain)
	switch {
	case e.Prepare == nil:
		row.PrepareKey = ""
	case row.PrepareKey == "":
		row.PrepareKey = providerKey(f.Secret, row.Key, row.Generation, requestPrepare)
	}
	var err error
	if row.Request, err = e.render(row); err != nil {
		return Row{}, err
	}
	if e.Unkept {
		row.Request = nil
	}
	row.Provider, row.Account, row.Amount = e.Provider, e.Account, e.Amount
	row.Place = f.place(e.Provider)
	row.Message, row.Fingerprint, row.Fields = e.Message, e.Fingerprint, e.Fields
	row.HookData = e.HookData
	return fixDeadlines(row, e), nil
}

// prepared saves the id of the harmless first request before the second one is
// sent, and puts the second one in its place.
func (f *Fence) prepared(ctx context.Context, row Row, e Effect, id string) (Row, error) {
	next := row
	next.Claim = row.Claim.next()
	next.Prepared = id
	var err error
	if next.Request, err = e.render(next); err != nil {
		return f.save(ctx, row, Outcome{Verdict: Unproven, Reason: fmt.Sprintf("prepared as %s, and then the request could not be made: %v", id, err)})
	}
	if e.Unkept {
		next.Request = nil
	}
	if err := f.Store.Swap(ctx, row, next, Write{}); err != nil {
		// Nothing that moves money was sent. The row becomes doubt without an
		// id when its lease ends, and is then free again.
		return row, &Error{Key: row.Key, Row: row, Err: ErrInDoubt, Reason: fmt.Sprintf("prepared as %s, which could not be saved: %v; nothing was charged", id, err)}
	}
	return next, nil
}

// fixDeadlines is row with the deadlines of the capture that e asks for.
func fixDeadlines(row Row, e Effect) Row {
	row.Lease = Lease(e.Timeout)
	row.AbsentAfter, row.HoldAfter, row.PendingFor = e.AbsentAfter, e.HoldAfter, e.PendingFor
	return row
}

// passed reports whether t is over, by the monotonic or by the wall clock: one of
// them stands still while a machine sleeps.
func passed(t time.Time) bool {
	if t.IsZero() {
		return false
	}
	now := time.Now()
	return now.After(t) || now.Round(0).After(t.Round(0))
}

// place is where provider is called now; empty: not known.
func (f *Fence) place(provider string) string {
	if f.Place == nil {
		return ""
	}
	return f.Place(provider)
}

// here reports whether row's latest call surely went to where its provider is called
// now.
func (f *Fence) here(row Row) bool {
	return row.Place == f.place(row.Provider) && !f.nowhere(row)
}

// nowhere reports whether it is not known where row's latest call went.
func (f *Fence) nowhere(row Row) bool { return f.Place != nil && row.Place == "" }

func (f *Fence) at(m Moment, k Key) {
	if f.At != nil {
		f.At(m, k)
	}
}

func unwritten(k Key, err error) error {
	return &Error{Key: k, Err: err, Reason: "the fence could not be written; nothing was sent"}
}
