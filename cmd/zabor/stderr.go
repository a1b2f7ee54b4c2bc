package main

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a write to standard error is waited for while it works.
	patience = 250 * time.Millisecond
	// mostUnread is how many bytes wait for a reader. What comes then is lost.
	mostUnread = 1 << 20
)

// errorOutput writes to standard error. A pipe without a reader, or one whose reader has
// died, delays a write once and then no more: lanes and a stop do not wait for a log.
// It may be used concurrently.
type errorOutput struct {
	to *os.File

	mu      sync.Mutex
	waiting bytes.Buffer
	lost    int           // lines
	writing chan struct{} // is closed when nothing is under way; nil: nothing is
	stuck   bool
}

// newErrorOutput writes to f, or to a copy of it: Go ends a process whose standard error
// has lost its reader, and not for the copy.
func newErrorOutput(f *os.File) *errorOutput {
	if fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3); err == nil {
		f = os.NewFile(uintptr(fd), f.Name())
	}
	return &errorOutput{to: f}
}

// Fd is that of the file.
func (o *errorOutput) Fd() uintptr { return o.to.Fd() }

// Write takes p and waits until it is written, but not for a reader that is away.
func (o *errorOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	if o.waiting.Len()+len(p) > mostUnread {
		o.lost++
		o.mu.Unlock()
		return len(p), nil
	}
	o.waiting.Write(p)
	if o.writing == nil {
		o.writing = make(chan struct{})
		go o.write()
	}
	written, stuck := o.writing, o.stuck
	o.mu.Unlock()
	if !stuck {
		o.wait(written, patience)
	}
	return len(p), nil
}

// wait waits for written, and notes that there is no reader if it does not come.
func (o *errorOutput) wait(written chan struct{}, d time.Duration) {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
		o.mu.Lock()
		o.stuck = o.writing == written
		o.mu.Unlock()
	}
}

// write writes what waits.
func (o *errorOutput) write() {
	for {
		o.mu.Lock()
		if o.waiting.Len() == 0 && o.lost == 0 {
			close(o.writing)
			o.writing, o.stuck = nil, false
			o.mu.Unlock()
			return
		}
		text := bytes.Clone(o.waiting.Bytes())
		if o.lost > 0 {
			text = fmt.Appendf(text, "zabor: %d lines of the log are lost here: standard error was not read\n", o.lost)
		}
		o.waiting.Reset()
		o.lost = 0
		o.mu.Unlock()
		_, _ = o.to.Write(text) // there is nowhere to tell
	}
}

// close waits for what is under way, for a second at most.
func (o *errorOutput) close() {
	o.mu.Lock()
	written := o.writing
	o.mu.Unlock()
	if written != nil {
		o.wait(written, time.Second)
	}
}
