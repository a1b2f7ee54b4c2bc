package prove

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one worker.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  *logLines

	counted atomic.Bool // as killed, by [Soak]
}

// start starts the program. line is told each line of what it writes.
func (p *Place) start(input []byte, env []string, line func([]byte), args ...string) (*process, error) {
	c := &process{cmd: exec.Command(p.Program, args...), done: make(chan struct{}), log: &logLines{line: line}}
	c.cmd.Env = append(append([]string{}, p.Env...), env...)
	c.cmd.Dir = p.Dir
	c.cmd.Stdin = io.Reader(bytes.NewReader(input))
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // its state says how it ended
		close(c.done)
	}()
	return c, nil
}

// signal sends sig; a process that has ended already is none.
func (c *process) signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// stopAt is the moment at which it stops itself; empty: it does not.
func (c *process) stopAt() string {
	if i := slices.Index(c.cmd.Args, "--stop-at"); i > 0 {
		return c.cmd.Args[i+1]
	}
	return ""
}

// wait waits until it has ended.
func (c *process) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// code is its exit code, -1 where a signal has ended it. It has ended.
func (c *process) code() int { return c.cmd.ProcessState.ExitCode() }

// frozen is closed when the process is stopped by a signal, or has ended.
func (c *process) frozen() <-chan struct{} {
	frozen := make(chan struct{})
	go func() {
		defer close(frozen)
		var info unix.Siginfo
		err := error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PID, c.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		}
	}()
	return frozen
}

// kill ends it, whatever it does.
func (c *process) kill() {
	_ = c.signal(syscall.SIGKILL)
	<-c.done
}

// logLines cuts what a process writes into lines, and keeps the last one that
// says something.
type logLines struct {
	line func([]byte)

	mu   sync.Mutex
	rest []byte
	last string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		if text := told(line); text != "" && !strings.HasPrefix(text, "hint: ") {
			l.last = text
		}
		if l.line != nil {
			l.line(line)
		}
	}
}

// tail is the last line that says something.
func (l *logLines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
