package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"zabor"
	"zabor/sandbox"
)

// unread starts a worker whose log goes to a small pipe, and gives its reading end.
func (s *shop) unread() (*process, *os.File) {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { r.Close() })
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		s.t.Fatal(err)
	}
	cmd := command(binary(s.t), nil, "worker", "-c", s.file, "--queue", "payments")
	p := startPiped(s.t, cmd, w)
	w.Close()
	return p, r
}

// A log that nobody reads stops neither the lanes nor a stop; what is read later says
// what is missing.
func TestALogThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{lanes: 2})
	const orders = 100
	for i := range orders {
		s.order(fmt.Sprint(i))
	}
	p, _ := s.unread()
	s.charges(orders)
	p.signal(syscall.SIGTERM)
	p.exit(0)
	for i := range orders {
		s.chargedOnce(fmt.Sprint(i))
	}
	s.empty()
}

// A log whose reader has died ends no worker.
func TestALogWhoseReaderDied(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	p, r := s.unread()
	s.order("0")
	s.charges(1)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		s.order(fmt.Sprint(i + 1))
	}
	s.charges(11)
	p.signal(syscall.SIGTERM)
	p.exit(0)
	s.empty()
}

// What is lost is counted where it is missing, and the rest is there in order.
func TestLostLinesAreCounted(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := newErrorOutput(w)
	line := strings.Repeat("x", 999) + "\n"
	const lines = 2000 // more than the pipe and what waits for it
	for i := range lines {
		fmt.Fprintf(o, "%04d %s", i, line)
	}
	w.Close()
	next, lost, text := 0, 0, bufio.NewScanner(r)
	for next+lost < lines && text.Scan() {
		var i int
		if n, _ := fmt.Sscanf(text.Text(), "zabor: %d lines of the log are lost here", &i); n == 1 {
			lost += i
			continue
		}
		if fmt.Sscanf(text.Text(), "%04d ", &i); i != next {
			t.Fatalf("line %d is %.20q", next, text.Text())
		}
		next++
	}
	if lost == 0 || next < mostUnread/len(line)-1 {
		t.Errorf("%d lines were read, and %d are lost", next, lost)
	}
	o.close()
}

// SIGHUP, of a terminal that is closed or a reload that is tried, is as SIGTERM: the
// call under way is finished and saved.
func TestAHangUpFinishesTheCall(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases[0].open(t), options{})
	s.order("0")
	p := s.worker("--queue", "payments")
	s.charges(1)
	s.onCharge(func(c sandbox.Charge) {
		if c.Order == "1" {
			p.signal(syscall.SIGHUP)
			p.logged("stopping: what is under way is finished")
		}
	})
	s.order("1")
	p.exit(0)
	s.chargedOnce("1")
	if s.state("1") != zabor.Settled {
		t.Errorf("the row is %s", s.state("1"))
	}
	s.empty()
}
