package zabor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Effect is the side effect that one delivery of a message asks for.
type Effect struct {
	Key         Key
	Provider    string      // its name in the configuration
	Account     string      // may be empty
	Amount      Money       // zero: not known
	Fingerprint Fingerprint // Message and Request are not empty and at most 255 bytes each, Fields at most 4,000

	// Messages are the ids by which a parked message is known when it comes again:
	// its own and that of the message that it is a retry of. Empty ones are ignored.
	Messages [2]string

	// Render makes the request with its provider keys and, in a two-step call, the
	// id that Prepare's request was given. Its bytes are what Call sends, and what a
	// replay would send again. It has no effects and may be called more than once.
	Render func(keys ProviderKeys, prepared string) ([]byte, error)
	// Prepare makes the harmless first request of a two-step call; nil: the call
	// has one step.
	Prepare func(ProviderKeys) ([]byte, error)

	// Sensitive: the request holds data that may be stored nowhere, such as a card
	// number. It is sent and not stored, and so never sent again. A doubtful call is
	// only looked up.
	Sensitive bool

	Timeout     time.Duration // of the whole call; above zero
	MaxAttempts int           // tries before the message is parked; at least 1
	AbsentAfter time.Duration // see [Open]; 0: no look-up
	HoldAfter   time.Duration
	PendingFor  time.Duration
	ReplayFor   time.Duration // from the first capture of a key: how long the same request may be sent again under it; 0: never

	// HookData holds the values that hooks bind from the message. It is kept while
	// a hook may run.
	HookData []byte

	// ReservedUntil is the moment after which the queue may have given the message
	// to another worker; zero: never. If the row was inserted for a first delivery,
	// its call did nothing and that moment has passed, the row is doubt: the other
	// worker may have called, and its row may be lost.
	ReservedUntil time.Time

	// MissingRow is the state in which a row is inserted. Captured: the call
	// follows. Doubt or Held: the message was delivered before, and nothing is
	// called.
	MissingRow State

	// transaction is a row that a transaction of the caller's may have committed.
	// Only that row may be captured; nil: Do inserts it.
	transaction *Capture
}

// ProviderKeys are the idempotency keys of one generation of a row.
type ProviderKeys struct{ Request, Prepare string }

// Validate names the first field that breaks a bound.
func (e Effect) Validate() error {
	if err := e.Key.Validate(); err != nil {
		return err
	}
	switch {
	case e.Provider == "":
		return errors.New("no provider")
	case e.Fingerprint.Message == "" || e.Fingerprint.Request == "":
		return errors.New("no fingerprint of the request")
	case len(e.Fingerprint.Message) > 255 || len(e.Fingerprint.Request) > 255:
		return errors.New("fingerprint longer than 255 bytes")
	case len(e.Fingerprint.Fields) > 4000:
		return fmt.Errorf("fields of the fingerprint: %d bytes, at most 4000", len(e.Fingerprint.Fields))
	case e.Render == nil:
		return errors.New("no request")
	case e.Timeout <= 0:
		return fmt.Errorf("timeout %s: must be above zero", e.Timeout)
	case e.MaxAttempts < 1:
		return fmt.Errorf("attempts %d: at least 1", e.MaxAttempts)
	case e.MissingRow != Captured && e.MissingRow != Doubt && e.MissingRow != Held:
		return fmt.Errorf("missing row as %q: captured, doubt or held", e.MissingRow)
	}
	return nil
}

// request is the request that comes next under the keys of row.
func (e Effect) request(row Row) ([]byte, error) {
	keys := ProviderKeys{Request: row.ProviderKey, Prepare: row.Open.PrepareKey}
	if e.Prepare != nil && row.Prepared == "" {
		return e.Prepare(keys)
	}
	return e.Render(keys, row.Prepared)
}

// render is row with its next request, which is not kept if it is sensitive.
func (e Effect) render(row Row) (_ Row, err error) {
	if row.Open.Request, err = e.request(row); err != nil {
		return Row{}, err
	}
	if e.Sensitive {
		row.Open.Request = nil
	}
	row.Open.Sealed.Request = nil
	return row, nil
}

// send calls with the request of row. A sensitive one is made once more.
func (e Effect) send(ctx context.Context, row Row, call Call) Outcome {
	if e.Sensitive {
		var err error
		if row.Open.Request, err = e.request(row); err != nil {
			return Outcome{Verdict: Unsent, Reason: fmt.Sprintf("nothing was sent: the request could not be made: %v", err)}
		}
	}
	return call(ctx, row)
}

// replayFor is ReplayFor; 0 if there will be nothing to send again.
func (e Effect) replayFor() time.Duration {
	if e.Sensitive {
		return 0
	}
	return e.ReplayFor
}

// parked reports whether e's message, or the one that it is a retry of, is the
// parked one of row.
func (e Effect) parked(row Row) bool {
	return row.Parked != "" && (row.Parked == e.Messages[0] || row.Parked == e.Messages[1])
}

// reserveEnded reports whether the queue may have given the message to another
// worker by now. It asks the monotonic and the wall clock: one of them stands still
// while a machine sleeps.
func (e Effect) reserveEnded() bool {
	if e.ReservedUntil.IsZero() {
		return false
	}
	now := time.Now()
	return now.After(e.ReservedUntil) || now.Round(0).After(e.ReservedUntil.Round(0))
}

// Margin is what a lease is longer than the call's time-out, and what a reserve
// must be longer than the lease: a second, or a tenth if that is more.
func Margin(d time.Duration) time.Duration { return max(time.Second, d/10) }

// Lease is how long a claim lasts whose call may take timeout.
func Lease(timeout time.Duration) time.Duration { return timeout + Margin(timeout) }

// callTimeout is the call's time-out in a lease: at most the one that Lease was
// made of.
func callTimeout(lease time.Duration) time.Duration {
	return min(lease-time.Second, lease*10/11)
}
