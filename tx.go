package zabor

import (
	"context"
	"errors"
)

// InsertTx inserts row in a transaction of the caller's, unless its key is there,
// and returns the row that the transaction sees for the key then. That row has the
// same claim exactly when it was inserted. A store makes it of a transaction on its
// own database. After an error the transaction must be rolled back.
type InsertTx func(ctx context.Context, row Row) (Row, error)

// Capture is a row that [Fence.CaptureTx] has put into a transaction of the
// caller's. One goroutine at a time may use it.
type Capture struct {
	// Row is the row as the transaction saw it: this capture's or, if Found, the
	// one that was there before.
	Row Row
	// Found: there was a row for the key before, in whatever state. Do answers
	// from it and never calls.
	Found bool

	fence  *Fence
	effect Effect
	seen   bool // Row was found committed
}

// CaptureTx writes the row of e in a transaction of the caller's, so that it is
// committed exactly when the caller's own rows are. Nothing is sent before
// [Capture.Do], which is called once the transaction has been committed:
//
//	capture, err := fence.CaptureTx(ctx, store.Tx(tx), effect)
//	...
//	err = tx.Commit()
//	...
//	row, err := capture.Do(ctx, call)
//
// The row is released until Do: no call can have been made. If the process dies
// before Do, the row stays released and is not in doubt. [Fence.Do] for the same
// effect makes the one call; after e.HoldAfter a [Resolver] reminds of it. Time-outs
// count from Do, so the transaction may take as long as it likes. Until it ends,
// others that want the key wait.
//
// [ErrOtherRequest] and [ErrSpent] are about the row that is there. e.MissingRow
// must be Captured: no call can have been made before. After any error the
// transaction must be rolled back; nothing was sent.
func (f *Fence) CaptureTx(ctx context.Context, insert InsertTx, e Effect) (*Capture, error) {
	row, err := f.fresh(e)
	if err == nil && e.MissingRow != Captured {
		err = errors.New("a message that was delivered before cannot be captured in a transaction: use Do")
	}
	if err != nil {
		return nil, &Error{Key: e.Key, Err: err, Reason: "nothing was written or sent"}
	}
	row.State, row.Tries, row.Unproven, row.Open.Send = Released, 0, 0, [16]byte{}
	row.Reason = "committed with a transaction of the caller's, and not called yet"
	there, err := insert(ctx, row)
	if err != nil {
		return nil, &Error{Key: e.Key, Err: err, Reason: "the row is not in the transaction, which must be rolled back; nothing was sent"}
	}
	c := &Capture{Row: there, Found: there.Claim != row.Claim, fence: f, effect: e}
	if c.Found {
		_, _, err := f.meet(there, e)
		if there.Fingerprint.Message != "" && there.Fingerprint.Message != e.Fingerprint.Message {
			err = otherRequest(there, e)
		}
		if err != nil {
			f.alertOther(there, err)
			return nil, err
		}
	}
	c.effect.transaction = c
	return c, nil
}

// Do calls for the captured row, see [Fence.Do], once it has seen in the table that
// the transaction was committed. [ErrNoRow]: it was rolled back or is not committed
// yet; nothing was sent, and nothing can be sent by this capture while that is so. Do
// may be called again after an error, as a delivery may.
func (c *Capture) Do(ctx context.Context, call Call) (Row, error) {
	return c.fence.Do(ctx, c.effect, call)
}

// captureCommitted captures the row of e that a transaction of the caller's has
// committed. Only that very row, by its claim, proves the commit. Another row that is
// found for the key answers alone.
func (f *Fence) captureCommitted(ctx context.Context, e Effect) (Row, bool, error) {
	f.at(Capturing, e.Key)
	row, err := f.Store.Load(ctx, e.Key)
	c := e.transaction
	switch {
	case errors.Is(err, ErrNoRow):
		return Row{}, false, &Error{Key: e.Key, Err: ErrNoRow, Reason: "the transaction that captured it is not committed; nothing was sent"}
	case err != nil:
		return Row{}, false, unwritten(e.Key, err)
	case c.Found || row.Claim != c.Row.Claim && !c.seen:
		row, err = f.AnswerExisting(ctx, e)
		return row, false, err
	}
	c.seen = true
	return f.onExisting(ctx, row, e)
}
