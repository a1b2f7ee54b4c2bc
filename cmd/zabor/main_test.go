package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zabor/internal/servers"
)

// The test binary is the program where its first argument is none of go test's, so
// that the tests start, stop and kill real processes of it: see [binary] and [raced].
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		if name := os.Getenv(mutantVariable); name != "" {
			mainMutant(name)
		}
		main()
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		parallel.Value.Set("16") // these tests wait for leases, not for a processor
	}
	// A process that the race detector watches would sleep for a second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=50 "+os.Getenv("GORACE"))
	folder, err := os.MkdirTemp("", "zabor-test-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plain.path = filepath.Join(folder, "zabor")
	code := servers.Run(m)
	os.RemoveAll(folder)
	os.Exit(code)
}

// plain is this test binary without the race detector, from when a test first needs
// it.
var plain struct {
	sync.Once
	path string
	err  error
}

// binary is what tests start: this test binary, but without the race detector,
// by which each of the thousands of processes would take four times the processor.
// With ZABOR_SOAK=1 it watches them all.
func binary(t testing.TB) string {
	t.Helper()
	if soaking() || !racing() {
		return raced(t)
	}
	plain.Do(func() {
		build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags", "-s -w", "-o", plain.path, ".")
		if out, err := build.CombinedOutput(); err != nil {
			plain.err = fmt.Errorf("%s: %w\n%s", build, err, out)
		}
	})
	if plain.err != nil {
		t.Fatal(plain.err)
	}
	return plain.path
}

// raced is this test binary as it was built: for tests of what a process does at
// the same time.
func raced(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// racing reports whether the race detector watches this process.
func racing() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// limit is how long anything may take that a test waits for.
const limit = time.Minute

// process is one run of the program.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	log lockedBuffer

	done chan struct{} // closed when it has ended
	code int           // its exit code then; -1: by a signal
}

// start starts the program. It is killed at the end of the test, and what it
// logged is shown if the test has failed.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn is start with more variables in the environment.
func startIn(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, command(binary(t), env, args...))
}

// command is a process of the program at path.
func command(path string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "ZABOR_") }), env...)
	return cmd
}

// startCommand starts cmd as start does.
func startCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	return startPiped(t, cmd, nil)
}

// startPiped is startCommand for a process whose log goes to w; nil: to p.log.
func startPiped(t testing.TB, cmd *exec.Cmd, w *os.File) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if w != nil {
		p.cmd.Stderr = w
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if log := p.log.String(); strings.Contains(log, "DATA RACE") {
			t.Errorf("a data race in %s", strings.Join(cmd.Args, " "))
		}
		if t.Failed() {
			t.Logf("%s, exit code %d:\n%s", strings.Join(cmd.Args, " "), p.code, p.log.String())
		}
	})
	return p
}

// signal sends sig; a process that has ended already is none.
func (p *process) signal(sig syscall.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
}

// kill ends the process by SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// exit waits until the process ends and checks its exit code.
func (p *process) exit(want int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(2 * limit):
		p.t.Fatalf("%s: still running after %s", p.cmd.Args[1:], 2*limit)
	}
	if p.code != want {
		p.t.Fatalf("%s: exit code %d, want %d", p.cmd.Args[1:], p.code, want)
	}
}

// stopped waits until the process has stopped itself at its moment.
func (p *process) stopped() {
	p.t.Helper()
	answer := make(chan error, 1)
	go func() {
		var info unix.Siginfo
		err := error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		}
		const stopped = 5 // CLD_STOPPED
		if err == nil && info.Code != stopped {
			err = errors.New("it ended")
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		if err != nil {
			p.t.Fatalf("%s: not stopped: %v", p.cmd.Args[1:], err)
		}
	case <-time.After(limit):
		p.t.Fatalf("%s: not stopped after %s", p.cmd.Args[1:], limit)
	}
}

// logged waits until the process has logged text.
func (p *process) logged(text string) {
	p.t.Helper()
	eventually(p.t, "the log says "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

func contextWithLimit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(30 * time.Millisecond) // many tests ask at once
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not after %s: %s", limit, what)
		}
	}
}

// lockedBuffer takes a process' output while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
