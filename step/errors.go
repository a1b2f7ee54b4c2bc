package step

import "errors"

// What a caller of Key and Effect branches on. Every other error may go away by
// itself, such as that of a database that cannot be reached.
var (
	// ErrRefused: the message itself is wrong for its step (a property is
	// missing, an amount does not fit). Trying again cannot mend it.
	ErrRefused = errors.New("the message does not fit its step")
	// ErrNoRow: `load` found no row. It may not be committed yet.
	ErrNoRow = errors.New("load found no row")
)
