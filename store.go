package zabor

import (
	"context"
	"errors"
	"time"
)

// Store keeps the rows. It decides nothing: it inserts, compares and swaps, and
// reads. All methods may be called concurrently, from many processes on one
// table. Row.SendUntil, CapturedAt and StateSince are set by the store, in the
// database's clock.
type Store interface {
	// Insert commits row, whose claim is of epoch 1, unless its key is there
	// already, and returns what the table holds for the key then. The row that
	// it returns has row's claim exactly when it was this call that inserted
	// it, also where the answer to the commit was lost on the way. A lease
	// above zero sets SendUntil that far from the database's now.
	//
	// After an error the row may or may not have been inserted; a later
	// Insert of the same row finds out.
	Insert(ctx context.Context, row Row, lease time.Duration) (Row, error)

	// Swap commits next in place of the row that claim prev wrote last.
	// next.Claim.Epoch is prev.Epoch+1. It is [ErrStale] when the row has
	// moved on, or is gone, and nothing was written then. A Swap whose own
	// commit went unconfirmed is found out by repeating it. A lease above
	// zero moves SendUntil, and only forward; StateSince changes with the
	// state.
	Swap(ctx context.Context, prev Claim, next Row, lease time.Duration) error

	// Load reads the row of k after every write that was under way has ended
	// (a locking read). It is [ErrNoRow] when there is none.
	Load(ctx context.Context, k Key) (Row, error)

	// Open lists up to limit rows in one of the given states whose key is
	// after the given one, in key order; the zero Key starts at the front.
	Open(ctx context.Context, states []State, after Key, limit int) ([]Row, error)

	// Control lists up to limit rows that were settled by the given provider
	// and account through a call of their own, newest first: rows that a
	// look-up with a good credential must find.
	Control(ctx context.Context, provider, account string, limit int) ([]Row, error)

	// Note appends one line to what is known of k, beside the row: evidence
	// that changes no state. Epoch is that of the claim it belongs to.
	Note(ctx context.Context, k Key, epoch int64, text string) error
}

// What a Store answers beside its own errors.
var (
	ErrNoRow = errors.New("no such row")
	ErrStale = errors.New("the row has changed since it was read")
)
