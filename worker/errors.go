package worker

import "errors"

var (
	// ErrLost: the message's reserve had ended; it belongs to another
	// delivery now.
	ErrLost = errors.New("the message's reserve has ended: it is no longer this worker's")

	// ErrUnreadable: the bytes of a message are no message of its queue's
	// format. They are kept in zabor's own table: PHP's failure transports
	// lose or refuse them.
	ErrUnreadable = errors.New("the message cannot be decoded")

	// ErrWrongSecret: a message is encrypted or signed, and none of the configured
	// secrets of the application fits.
	ErrWrongSecret = errors.New("no configured secret of the application fits")

	// ErrBoth: a message was put back on its queue, and may be in its failure
	// transport still.
	ErrBoth = errors.New("it is on its queue again, and may still be in the failure transport")
)
