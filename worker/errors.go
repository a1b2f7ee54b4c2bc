package worker

import "errors"

// ErrLost: the message's reserve had ended; it belongs to another delivery now.
var ErrLost = errors.New("the message's reserve has ended: it is no longer this worker's")
