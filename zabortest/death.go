package zabortest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"zabor/worker"
)

// mortal makes connections that all end at one command, as those of a process that
// is killed: before the command is sent, or after the server has run it and before
// its answer is read.
type mortal struct {
	mu    sync.Mutex
	armed bool
	left  int // commands until the end
	after bool
	dead  bool
}

var errDead = errors.New("the process is dead")

func (m *mortal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errDead
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	return &mortalConn{c, m}, err
}

// die lets the process die at the command that follows n others.
func (m *mortal) die(n int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed, m.left, m.after = true, n, after
}

// revive lets connections be made again: only the network was away.
func (m *mortal) revive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead, m.armed = false, false
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

type mortalConn struct {
	net.Conn
	m *mortal
}

// Write sends one command, or a pipeline of several.
func (c *mortalConn) Write(b []byte) (int, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	switch {
	case c.m.dead:
		c.Close()
		return 0, errDead
	case !c.m.armed || c.m.left > 0:
		c.m.left--
		return c.Conn.Write(b)
	}
	c.m.dead = true
	defer c.Close()
	if c.m.after {
		n, err := c.Conn.Write(b)
		if err != nil {
			return n, err
		}
		// The first byte of the answer says that the command was run.
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return 0, err
		}
		if _, err := c.Conn.Read(make([]byte, 1)); err != nil {
			return 0, fmt.Errorf("no answer: %w", err)
		}
	}
	return 0, errDead
}

// Death is the part of the suite that lets a process die, for queues on which the
// whole would be too much. The sources that open makes have a Mortal.
func Death(t *testing.T, open func(t *testing.T) SourceUnderTest) { testDeath(t, open) }

// testDeath lets the process that has a message die at each command of each answer
// to the queue. The message is never lost; answers that are one script make no copy
// either, and others one at most, which parking it again does not add to.
func testDeath(t *testing.T, open func(t *testing.T) SourceUnderTest) {
	for _, tt := range []struct {
		name        string
		do          func(ctx context.Context, s SourceUnderTest, q worker.Source, m *worker.Message) error
		least, most int
	}{
		{"ack", func(ctx context.Context, _ SourceUnderTest, q worker.Source, m *worker.Message) error {
			return q.Ack(ctx, m)
		}, 0, 1},
		{"later", func(ctx context.Context, _ SourceUnderTest, q worker.Source, m *worker.Message) error {
			return q.Later(ctx, m, time.Hour)
		}, 1, 1},
		{"put back", func(ctx context.Context, _ SourceUnderTest, q worker.Source, m *worker.Message) error {
			return q.PutBack(ctx, m)
		}, 1, 1},
		{"renew", func(ctx context.Context, _ SourceUnderTest, q worker.Source, m *worker.Message) error {
			return q.Renew(ctx, m)
		}, 1, 1},
		{"forward", func(ctx context.Context, s SourceUnderTest, q worker.Source, m *worker.Message) error {
			return q.Forward(ctx, m, s.Other)
		}, 1, 1},
		{"then", func(ctx context.Context, s SourceUnderTest, q worker.Source, m *worker.Message) error {
			m.Then = s.Other
			return q.Ack(ctx, m)
		}, 1, 1},
		{"park", func(ctx context.Context, _ SourceUnderTest, q worker.Source, m *worker.Message) error {
			return q.Park(ctx, m, "refused")
		}, 1, 2},
		{"retry", nil, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for n := 0; ; n++ {
				died := false
				for _, after := range []bool{false, true} {
					name := fmt.Sprintf("at command %d, answered=%v", n+1, after)
					s := sourceTest{t: t, SourceUnderTest: open(t)}
					if s.Mortal == nil {
						t.Skip("this queue's connections cannot be cut here")
					}
					m := &mortal{}
					q := s.Mortal(t, m.dial)
					s.Push(t, "1")
					message, err := worker.Next(t.Context(), q)
					s.ok(name+": Receive", err)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					t.Cleanup(cancel)
					if tt.do == nil {
						s.ok(name+": Park", q.Park(ctx, message, "refused"))
						m.die(n, after)
						err = s.Retry(ctx, q)
					} else {
						m.die(n, after)
						err = tt.do(ctx, s.SourceUnderTest, q, message)
					}
					if m.isDead() != (err != nil) {
						t.Fatalf("%s: dead=%v, error %v", name, m.isDead(), err)
					}
					died = died || m.isDead()
					d, err := s.Source.Depth(t.Context())
					s.ok(name+": Depth", err)
					copies := int(d.Ready+d.Reserved+d.Delayed) + len(s.Forwarded(t)) + s.Failed(t)
					most := tt.most
					switch {
					case s.OneScript:
						most = 1
					case s.TwoSlots && slices.Contains([]string{"later", "forward", "then"}, tt.name):
						most = 2
					}
					if copies < tt.least || copies > most {
						t.Errorf("%s: %d copies, want %d to %d; the queue holds %+v, the other %d, the failure transport %d",
							name, copies, tt.least, most, d, len(s.Forwarded(t)), s.Failed(t))
					}
					if tt.name == "park" && copies == 2 {
						again := s.next() // when its reserve has ended
						if again.ID != message.ID || !again.DeliveredBefore {
							t.Errorf("%s: delivered again as %s, DeliveredBefore=%v; was %s", name, again.ID, again.DeliveredBefore, message.ID)
						}
						s.ok(name+": Park again", s.Source.Park(t.Context(), again, "refused"))
						if got := s.Failed(t); got != 1 {
							t.Errorf("%s: parked again, %d messages in the failure transport, want 1", name, got)
						}
					}
				}
				if !died {
					if n == 0 {
						t.Error("no command was sent")
					}
					return
				}
			}
		})
	}
}
