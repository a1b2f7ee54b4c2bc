package zabor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps the rows. It decides nothing: it inserts, compares and swaps, and
// reads. All methods may be called concurrently, from many processes on one
// table. Row.SendUntil, CapturedAt and StateSince are set by the store, in the
// database's clock; LookedAt and Asking by Look alone.
type Store interface {
	// Insert commits row, whose claim is of epoch 1, unless its key is there
	// already, and returns what the table holds for the key then. The row that
	// it returns has row's claim exactly when it was this call that inserted
	// it, also where the answer to the commit was lost on the way.
	//
	// After a [HookError] nothing was written. After any other error the row
	// may or may not have been inserted; a later Insert of the same row finds
	// out.
	Insert(ctx context.Context, row Row, w Write) (Row, error)

	// Swap commits next in place of prev, the row as prev.Claim wrote it: what
	// is equal in both need not be written. next.Claim.Epoch is
	// prev.Claim.Epoch+1. It is [ErrStale] when the row has moved on, or is
	// gone, and a [HookError] when the hook failed; nothing was written then. A
	// Swap whose own commit went unconfirmed is found out by repeating it.
	// StateSince changes with the state.
	Swap(ctx context.Context, prev, next Row, w Write) error

	// Load reads the row of k after every write that was under way has ended
	// (a locking read). It is [ErrNoRow] when there is none.
	Load(ctx context.Context, k Key) (Row, error)

	// Open lists up to limit rows in one of the given states whose key is
	// after the given one, in key order; the zero Key starts at the front.
	Open(ctx context.Context, states []State, after Key, limit int) ([]Row, error)

	// Due lists up to limit rows whose HookDue is set and whose key is after
	// the given one, in key order.
	Due(ctx context.Context, after Key, limit int) ([]Row, error)

	// Control lists up to limit rows that the provider has settled itself at the
	// account and place of like, through a call, a replay or a look-up, newest first:
	// rows that a look-up with a good credential must find.
	Control(ctx context.Context, like Row, limit int) ([]Row, error)

	// Look sets LookedAt to at (zero: never), and Asking, in those of rows, at most
	// [MaxLooks], whose Claim and these two are still as they were read, and returns these as
	// they are now: of many who want the same rows each gets others. Rows that
	// somebody else is writing at this moment are left out, where the database
	// can skip them, and waited for elsewhere. It makes no claim and moves nothing
	// else. After an error all, some or none were set.
	Look(ctx context.Context, rows []Row, at time.Time, asking bool) ([]Row, error)

	// Note appends n to what is known of k, beside the row: evidence that
	// changes no state.
	Note(ctx context.Context, k Key, n Note) error
}

// MaxLooks is how many rows one [Store].Look may be given.
const MaxLooks = 10

// Write is what goes with a row into the same transaction. The zero Write is a
// row alone.
type Write struct {
	// Lease above zero sets SendUntil that far from the database's now, and
	// only forward.
	Lease time.Duration
	// ReplayFor above zero sets ReplayUntil that far from the database's now; below
	// zero it is set to never.
	ReplayFor time.Duration
	// Hook is a statement of the application's; nil: none.
	Hook *Hook
	// Note is appended with the row; nil: none.
	Note *Note
}

// Note is one line of what is known of a key beside its row. Notes are only ever
// appended.
type Note struct {
	Epoch int64     // of the write that it belongs to
	Kind  string    // "evidence", an [Action], or the [State] that a machine brought it to; at most 32 bytes
	By    string    // who decided; empty: this program
	Text  string    // at most 4,000 bytes; longer ones are cut
	At    time.Time // the database's; set by the store
}

// Hook is one INSERT, UPDATE or DELETE of the application's own, which runs in
// the transaction of a row's write.
type Hook struct {
	Name string // the state that it belongs to, such as "settled"
	SQL  string // with the placeholders of the fence's database
	Args []any
	Rows int // it must hit exactly so many rows; below zero: any number

	// Aliases are Args with other texts in them that a database takes for the
	// same numbers, where Args has a text that only looks like a number; nil: it
	// has none. A hook that hits a row with them fails: it would hit the row of
	// another order.
	Aliases []any
}

// HookError says that a hook failed, and that nothing of its transaction was
// written.
type HookError struct {
	Hook string // its name
	Err  error
}

func (e *HookError) Error() string {
	return fmt.Sprintf("hook %s: %v; its transaction was rolled back", e.Hook, e.Err)
}
func (e *HookError) Unwrap() error { return e.Err }

// What a Store answers beside its own errors.
var (
	ErrNoRow = errors.New("no such row")
	ErrStale = errors.New("the row has changed since it was read")
)
