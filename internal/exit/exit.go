// Package exit holds the errors of commands, with exit code and hint.
package exit

import "errors"

// The exit codes of the command, as the documentation promises them.
const (
	Good       = 0
	BadAnswer  = 1 // done, and the answer is bad
	WrongUsage = 2 // usage or configuration
	NotReached = 3 // a server cannot be reached, and no data was changed
	OwnFault   = 4 // a fault of zabor itself
)

// Error ends a command with an exit code.
type Error struct {
	Code int
	Err  error  // never nil
	Hint string // the next command to type, or the place to mend; may be empty
}

// Error returns the text of the error without its hint.
func (f *Error) Error() string { return f.Err.Error() }

// Unwrap returns the error without its code and hint.
func (f *Error) Unwrap() error { return f.Err }

// Usage returns an [Error] about the command line or the configuration.
func Usage(err error, hint string) error { return &Error{WrongUsage, err, hint} }

// Unreachable returns an [Error] about a server out of reach. No data was
// changed.
func Unreachable(err error, hint string) error { return &Error{NotReached, err, hint} }

// Bad returns an [Error] of a finished command with a bad answer.
func Bad(err error, hint string) error { return &Error{BadAnswer, err, hint} }

// IsUnreachable reports whether err is one of [Unreachable].
func IsUnreachable(err error) bool {
	f, ok := errors.AsType[*Error](err)
	return ok && f.Code == NotReached
}
