package provider

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// errTooLate is the refusal of the first byte: its time had passed.
var errTooLate = errors.New("too late to send")

// errSealed is the refusal of a byte after the call was given up.
var errSealed = errors.New("the call has been given up")

// wire is the connection of one call, above TLS. It lets the first byte out only
// in time, and it knows whether any byte may have left.
type wire struct {
	net.Conn
	tcp *net.TCPConn
	ctx context.Context // the call's; its deadline is the last moment for the first byte

	beforeWrite func() // of the first byte, once it was let through; nil: nothing

	mu     sync.Mutex
	begun  bool // a Write was let through
	sealed bool // no Write is let through any more
	ended  bool // interrupt was called
	out    int  // bytes that left, or that a running Write may be sending
}

func (w *wire) Write(p []byte) (int, error) {
	first, err := w.begin(len(p))
	if err != nil {
		return 0, err
	}
	if first && w.beforeWrite != nil {
		w.beforeWrite()
	}
	n, err := w.Conn.Write(p)
	w.mu.Lock()
	w.out -= len(p) - n
	w.mu.Unlock()
	return n, err
}

// begin lets size bytes out, or says why not; first reports that none was let out before. The clock is read here, after
// dialing and TLS, so that a process which slept finds out before it sends.
func (w *wire) begin(size int) (first bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sealed {
		return false, errSealed
	}
	now := time.Now()
	if deadline, ok := w.ctx.Deadline(); ok && late(now, now.Round(0), deadline) {
		w.sealed = true
		return false, errTooLate
	}
	first = !w.begun
	w.begun = true
	w.out += size
	return first, nil
}

// late compares the monotonic clock of now, which nobody can set, and wall, which
// also counts the time that the machine was suspended. The later of the two is
// believed.
func late(now, wall, deadline time.Time) bool {
	return now.After(deadline) || wall.After(deadline.Round(0))
}

// seal lets nothing more out, and reports whether nothing ever left.
func (w *wire) seal() (unsent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealed = true
	return w.out == 0
}

// interrupt ends whatever reads or writes, now and from now on.
func (w *wire) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.SetDeadline(time.Unix(1, 0))
}

// cut says that the request cannot be written to its end. Whoever has taken a part
// of it may have answered and closed: such an answer is on its way already.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case w.out == 0:
		_ = w.SetReadDeadline(time.Unix(1, 0))
	default:
		_ = w.SetReadDeadline(time.Now().Add(time.Second))
	}
}

// end closes the connection. Unless the answer was read whole, the kernel throws away
// bytes that it has not sent yet, rather than sending them later. It does so from the
// start, see send: a process that is killed closes without this function.
func (w *wire) end(whole bool) {
	if whole {
		w.tcp.SetLinger(-1)
		w.Conn.Close()
		return
	}
	w.tcp.Close()
}
