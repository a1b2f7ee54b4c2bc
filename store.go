package zabor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps the rows. It decides nothing: it inserts, compares, swaps and reads.
// All methods may be called concurrently, from many processes on one table. The
// store sets CapturedAt, StateSince, SendUntil and ReplayUntil in the database's
// clock.
type Store interface {
	// Insert commits row, whose claim is of epoch 1, unless its key is there. It
	// returns the row in the table then. The returned row has row's claim exactly
	// when this call inserted it, also where the answer to the commit was lost.
	//
	// After a [HookError], a [ReferenceError] or [ErrUnfit], of a row that the table does
	// not take or one there that cannot be read, nothing was written. After any other error the row may have been inserted; a later Insert of the same row
	// finds out.
	Insert(ctx context.Context, row Row, w Write) (Row, error)

	// Swap commits next in place of prev, the row as prev.Claim wrote it. Fields
	// that are equal in both need not be written; Parked and Forwarded are not, since a
	// [Store].Mark may have changed them meanwhile. A new generation begins with next's
	// Forwarded all the same. next.Claim.Epoch is
	// prev.Claim.Epoch+1. [ErrStale]: the row has moved on or is gone. After
	// ErrStale, a [HookError] or a [ReferenceError] nothing was written. A Swap
	// whose commit went unconfirmed is found out by repeating it.
	//
	// StateSince, Watched and Watcher begin anew with another state; Silent and Watcher
	// with another Open.Send, and Silent is next's otherwise. Open is erased if next is not
	// [Row.Unfinished].
	Swap(ctx context.Context, prev, next Row, w Write) error

	// Load reads the row of k after every write that was under way has ended (a
	// locking read). [ErrNoRow]: there is none.
	Load(ctx context.Context, k Key) (Row, error)

	// LoadDigest reads the unfinished row whose [Key.Digest] is the given one.
	// [ErrNoRow]: there is none. It may read every unfinished row.
	LoadDigest(ctx context.Context, digest string) (Row, error)

	// Watch leases open rows that are due, doubtful ones before pending ones, and
	// returns them. Open.Watcher is the resolver that had the lease before. A row
	// that another resolver has leased, or that is being written at this moment, is
	// left out. It takes no claim. Rows that cannot be read are leased as well: an
	// [ErrUnfit] names them beside the others. If the database's clock was set back, a row
	// seems due more than two hours from now: it is due, unless it is released.
	Watch(ctx context.Context, w Watch) ([]Row, error)

	// Watched ends a look at rows that Watch has returned to the resolver by. It
	// sets the watched times, and when each is due again and keeps the lease until
	// [LookupTime] after that. A row that was sent again, changed its state or has
	// another watcher since is left alone.
	Watched(ctx context.Context, by [16]byte, seen []Seen) error

	// Samples lists up to limit rows of like's step that the provider itself has settled
	// at the endpoint of like, through a call or a look-up: those that were settled after
	// like's latest send, oldest first; if there are none, older ones, newest first. A
	// look-up with a good credential must find each of them. Those that cannot be read are
	// left out, unless there are no others.
	Samples(ctx context.Context, like Row, limit int) ([]Row, error)

	// Mark sets a mark beside the row of k. It takes no claim. Without such a row
	// it does nothing.
	Mark(ctx context.Context, k Key, m Mark) error

	// Note appends n to the history of k. It changes no row.
	Note(ctx context.Context, k Key, n Note) error
}

// Write is what goes with a row into the same transaction. The zero Write is a
// row alone.
type Write struct {
	// Lease above zero sets SendUntil that far from the database's now, and
	// only forward.
	Lease time.Duration
	// ReplayFor above zero sets ReplayUntil that far from the database's now; below
	// zero it is set to never.
	ReplayFor time.Duration
	// DueIn is when a resolver looks at the row next, from the database's now;
	// [Never]: not at all.
	DueIn time.Duration
	Hook  *Hook // a statement of the application's; nil: none
	Note  *Note // appended with the row; nil: none
}

// Never as a [Write].DueIn or [Seen].DueIn: a resolver has nothing to do.
const Never time.Duration = 1<<63 - 1

// Watch says which rows a resolver takes on.
type Watch struct {
	By        [16]byte // the resolver; not zero
	Scope     string   // only rows of this installation, see [Key.In]; empty: all
	Providers []string // only rows of these; nil: of all
	Others    bool     // instead: only rows of all other providers
	For       time.Duration
	Limit     int // at least 1
}

// Seen is one row of a finished look.
type Seen struct {
	Row   Row           // as Watch returned it, with Open.Watched and Open.Silent as they are now
	DueIn time.Duration // from the database's now
}

// Mark is a note beside a row that says nothing about its call. Exactly one field
// is set.
type Mark struct {
	Parked    string // id of the message that is in the failure transport now
	Forwarded int    // the generation whose message went on to another queue; another generation is not marked
}

// Note is one line of the history of a key. Notes are only ever appended.
type Note struct {
	Epoch int64     // of the write that it belongs to
	Kind  string    // "evidence", [Imported], an [Action], or the [State] that a machine brought it to; at most 32 bytes
	By    string    // the person who decided; empty: this program
	Text  string    // at most 4,000 bytes; longer ones are cut
	At    time.Time // the database's; set by the store
}

// Hook is one INSERT, UPDATE or DELETE of the application's own. It runs in the
// transaction of a row's write.
type Hook struct {
	Name string // the state that it belongs to, such as "settled"
	SQL  string // with the placeholders of the fence's database
	Args []any
	Rows int // it must hit exactly so many rows; below zero: any number

	// Aliases are Args with other texts that a database takes for the same numbers;
	// nil: Args has no text that only looks like a number. A hook that hits a row
	// with them fails: it would hit the row of another order.
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

// ReferenceError says that another order of the same installation, provider and
// account has the row's new reference. Nothing was written. A row that enters Held
// is never refused so, and steps of one order may share a reference.
type ReferenceError struct {
	Reference string
	Owner     Key
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("the reference %s belongs to %s", e.Reference, e.Owner)
}

// What a Store answers beside its own errors.
var (
	ErrNoRow = errors.New("no such row")
	ErrStale = errors.New("the row has changed since it was read")
)
