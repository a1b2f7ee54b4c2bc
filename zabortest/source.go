// Package zabortest holds the suites that every implementation of zabor's
// interfaces must pass. Only tests import it.
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

// SourceUnderTest is a source on an empty queue, and the application's side of
// that queue.
type SourceUnderTest struct {
	Source worker.Source

	// Reserve is how long the source keeps a delivered message; short, as the
	// suite waits for its end. The queue may round it up by Rounding.
	Reserve, Rounding time.Duration

	// Push puts one message with the property orderId on the queue, as the
	// application does.
	Push func(t *testing.T, orderID string)
	// PushRaw puts bytes on the queue that are no message.
	PushRaw func(t *testing.T, raw []byte)
	// Unreadable are the bytes that PushRaw is given.
	Unreadable []byte

	// Failed counts the messages in the failure transport.
	Failed func(t *testing.T) int
	// BreakFailed makes writes to the failure transport fail until the
	// returned function is called.
	BreakFailed func(t *testing.T) (mend func())

	// Other is the name of another queue of the same connection, and Forwarded
	// the bytes of the messages that it holds, the oldest first.
	Other     string
	Forwarded func(t *testing.T) []string

	// Disconnect kills the source's connections at the server.
	Disconnect func(t *testing.T)

	// Mortal opens another source on the same queue whose connections are made
	// by dial; nil: there is none.
	Mortal func(t *testing.T, dial Dial) worker.Source
	// OneScript: parking and retrying are one script each.
	OneScript bool
	// TwoSlots: on a cluster, the queue's keys and Other are in different slots.
	// What goes from one to the other is in both for a moment.
	TwoSlots bool
	// Retry puts the only message of the failure transport back on the queue.
	Retry func(ctx context.Context, s worker.Source) error
}

// Dial makes a connection to a server.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// patience is how long the suite waits for what must come.
const patience = 30 * time.Second

// Source checks that open's source keeps the contract of [worker.Source]. Each
// subtest opens one of its own.
func Source(t *testing.T, open func(t *testing.T) SourceUnderTest) {
	for _, tt := range []struct {
		name string
		test func(t *testing.T, s sourceTest)
	}{
		{"each message once", testEachOnce},
		{"empty", testEmpty},
		{"never empty while a message moves", testMoves},
		{"later", testLater},
		{"put back", testPutBack},
		{"the sign of a call", testSign},
		{"reserve ends", testReserveEnds},
		{"lost messages are left alone", testLost},
		{"renew", testRenew},
		{"park", testPark},
		{"park while the failure transport is broken", testParkBroken},
		{"forward", testForward},
		{"then", testThen},
		{"unreadable", testUnreadable},
		{"cancel", testCancel},
		{"connections killed", testDisconnect},
		{"several at once", testSeveral},
		{"answers at the same time", testAnswers},
		{"a lost reply", testLostReply},
		{"look", testLook},
		{"look at many", testLookAtMany},
		{"death at each command", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.test == nil {
				testDeath(t, open)
				return
			}
			tt.test(t, sourceTest{t: t, SourceUnderTest: open(t)})
		})
	}
}

type sourceTest struct {
	SourceUnderTest
	t *testing.T
}

// next is the next message, which must come.
func (s sourceTest) next() *worker.Message {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	m, err := worker.Next(ctx, s.Source)
	if err != nil {
		s.t.Fatalf("Receive: %v", err)
	}
	return m
}

// none checks that no message comes for a while.
func (s sourceTest) none(while time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), while)
	defer cancel()
	if m, err := worker.Next(ctx, s.Source); !errors.Is(err, context.DeadlineExceeded) {
		s.t.Fatalf("Receive = %v, %v; want nothing until the deadline", m, err)
	}
}

func (s sourceTest) ok(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s sourceTest) lost(what string, err error) {
	s.t.Helper()
	if !errors.Is(err, worker.ErrLost) {
		s.t.Errorf("%s = %v, want ErrLost", what, err)
	}
}

func (s sourceTest) order(m *worker.Message, want string) {
	s.t.Helper()
	if m.Err != nil {
		s.t.Fatalf("message %s: %v", m.ID, m.Err)
	}
	if got := fmt.Sprint(m.Data["orderId"]); got != want {
		s.t.Fatalf("orderId=%s, want %s", got, want)
	}
}

func (s sourceTest) depth(want worker.Depth) {
	s.t.Helper()
	got, err := s.Source.Depth(s.t.Context())
	if err != nil {
		s.t.Fatalf("Depth: %v", err)
	}
	if got != want {
		s.t.Fatalf("Depth = %+v, want %+v", got, want)
	}
}

func testEachOnce(t *testing.T, s sourceTest) {
	const n = 200
	for i := range n {
		s.Push(t, fmt.Sprint(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	seen, ids := map[string]int{}, map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				m, err := worker.Next(ctx, s.Source)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Receive: %v", err)
					}
					return
				}
				if err := s.Source.Ack(ctx, m); err != nil {
					t.Errorf("Ack: %v", err)
				}
				mu.Lock()
				seen[fmt.Sprint(m.Data["orderId"])]++
				ids[m.ID] = true
				done := len(seen) == n
				mu.Unlock()
				if m.Err != nil || m.DeliveredBefore || m.Class == "" || len(m.Raw) == 0 {
					t.Errorf("message %+v: want no error, a class, bytes and a first delivery", m)
				}
				if done {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != n || len(ids) != n {
		t.Fatalf("%d orders, %d ids, want %d of each", len(seen), len(ids), n)
	}
	for order, times := range seen {
		if times != 1 {
			t.Errorf("order %s came %d times", order, times)
		}
	}
	s.depth(worker.Depth{})
}

func testEmpty(t *testing.T, s sourceTest) {
	if s.Source.Name() == "" {
		t.Error("no name")
	}
	s.depth(worker.Depth{})
	s.none(50 * time.Millisecond)
	s.Push(t, "1")
	s.depth(worker.Depth{Ready: 1})
	m := s.next()
	s.depth(worker.Depth{Reserved: 1})
	s.ok("Later", s.Source.Later(t.Context(), m, time.Hour))
	s.depth(worker.Depth{Delayed: 1})
}

// A message that goes round from ready to reserved to delayed is somewhere
// whenever the queue is counted.
func testMoves(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const while = 3 * time.Second // a queue that counts in seconds moves once in each
	moved := make(chan error)
	go func() {
		for end := time.Now().Add(while); time.Now().Before(end); {
			m, err := worker.Next(ctx, s.Source)
			if err == nil {
				err = s.Source.Later(ctx, m, time.Millisecond)
			}
			if err != nil {
				moved <- err
				return
			}
		}
		moved <- nil
	}()
	for counted := 0; ; counted++ {
		select {
		case err := <-moved:
			s.ok(fmt.Sprintf("a message moved, and counted %d times", counted), err)
			return
		default:
		}
		if d, err := s.Source.Depth(ctx); err != nil || d.Empty() {
			t.Fatalf("Depth = %+v, %v while there is a message", d, err)
		}
	}
}

func testLater(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	m := s.next()
	const delay = 1300 * time.Millisecond
	start := time.Now()
	s.ok("Later", s.Source.Later(t.Context(), m, delay))
	s.lost("Ack after Later", s.Source.Ack(t.Context(), m))
	again := s.next()
	if waited := time.Since(start); waited < delay {
		t.Errorf("came after %v, want not before %v", waited, delay)
	}
	s.order(again, "1")
	if string(again.Raw) != string(m.Raw) {
		t.Errorf("came with\n%q, was\n%q", again.Raw, m.Raw)
	}
	if again.DeliveredBefore || again.Rewritten {
		t.Errorf("DeliveredBefore=%v, Rewritten=%v; Later costs no attempt", again.DeliveredBefore, again.Rewritten)
	}
	if again.ID != m.ID {
		t.Errorf("ID=%s, was %s", again.ID, m.ID)
	}
	s.ok("Ack", s.Source.Ack(t.Context(), again))
	s.depth(worker.Depth{})
}

func testPutBack(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	s.Push(t, "2")
	m := s.next()
	s.order(m, "1")
	s.ok("PutBack", s.Source.PutBack(t.Context(), m))
	s.lost("PutBack twice", s.Source.PutBack(t.Context(), m))
	s.depth(worker.Depth{Ready: 2})
	again := s.next()
	s.order(again, "1")
	if string(again.Raw) != string(m.Raw) || again.DeliveredBefore {
		t.Errorf("Raw %q, DeliveredBefore %v; want %q and false", again.Raw, again.DeliveredBefore, m.Raw)
	}
	s.order(s.next(), "2")
}

// What comes back after a call that may have acted was delivered before, however
// it came back. The sign does not grow, and a message without one gets none.
func testSign(t *testing.T, s sourceTest) {
	ways := map[string]func(m *worker.Message) error{
		"later":    func(m *worker.Message) error { return s.Source.Later(t.Context(), m, 0) },
		"put back": func(m *worker.Message) error { return s.Source.PutBack(t.Context(), m) },
	}
	for first, begin := range ways {
		for then, again := range ways {
			name := first + ", " + then
			s.Push(t, name)
			m := s.next()
			s.order(m, name)
			m.MayHaveActed = true
			s.ok(name, begin(m))
			lying := 0
			for seen, err := range s.Source.Look(t.Context()) {
				s.ok(name+": Look", err)
				if lying++; !seen.DeliveredBefore {
					t.Errorf("%s: DeliveredBefore=false where it lies, in %s", name, seen.Place)
				}
			}
			if lying != 1 {
				t.Errorf("%s: %d messages lie there, want 1", name, lying)
			}
			second := s.next()
			s.order(second, name)
			if !second.DeliveredBefore || second.Rewritten || second.ID != m.ID {
				t.Errorf("%s: DeliveredBefore=%v, Rewritten=%v, ID %s; want true, false, %s", name, second.DeliveredBefore, second.Rewritten, second.ID, m.ID)
			}
			bytes := string(second.Raw)
			for i, acted := range []bool{true, false, true} { // the last call may surely have done nothing
				second.MayHaveActed = acted
				s.ok(name, again(second))
				if second = s.next(); !second.DeliveredBefore || string(second.Raw) != bytes {
					t.Errorf("%s, %d times more: DeliveredBefore=%v, Raw\n%q, was\n%q", name, i+1, second.DeliveredBefore, second.Raw, bytes)
				}
			}
			raw, before := string(m.Raw), len(s.Forwarded(t))
			second.Then = s.Other // where it begins anew
			s.ok("Ack", s.Source.Ack(t.Context(), second))
			if got := s.Forwarded(t); len(got) != before+1 || got[before] != raw {
				t.Errorf("%s: went on as\n%q, want\n%q", name, got[before:], raw)
			}
		}
	}
	s.depth(worker.Depth{})
}

func testReserveEnds(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	start := time.Now()
	m := s.next()
	got := time.Now()
	again := s.next()
	if waited := time.Since(start); waited < s.Reserve {
		t.Errorf("delivered again after %v, before the reserve of %v had ended", waited, s.Reserve)
	}
	if waited, most := time.Since(got), s.Reserve+s.Rounding+5*time.Second; waited > most {
		t.Errorf("delivered again after %v, want at most %v", waited, most)
	}
	s.order(again, "1")
	if !again.DeliveredBefore {
		t.Error("DeliveredBefore=false on the second delivery")
	}
	if again.ID != m.ID {
		t.Errorf("ID=%s, was %s", again.ID, m.ID)
	}
	s.ok("Ack", s.Source.Ack(t.Context(), again))
	s.depth(worker.Depth{})
}

// Whoever lost a message changes nothing for whoever has it now.
func testLost(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	old := s.next()
	held := s.next() // the reserve of old has ended
	ctx := t.Context()
	s.lost("Ack", s.Source.Ack(ctx, old))
	s.lost("Later", s.Source.Later(ctx, old, 0))
	s.lost("PutBack", s.Source.PutBack(ctx, old))
	s.lost("Renew", s.Source.Renew(ctx, old))
	s.lost("Park", s.Source.Park(ctx, old, "late"))
	s.lost("Forward", s.Source.Forward(ctx, old, s.Other))
	if got := s.Forwarded(t); len(got) != 0 {
		t.Errorf("the other queue holds %q", got)
	}
	s.depth(worker.Depth{Reserved: 1})
	s.ok("Ack of the holder", s.Source.Ack(ctx, held))
	s.lost("Ack twice", s.Source.Ack(ctx, held))
	s.depth(worker.Depth{})
}

func testRenew(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	m := s.next()
	end := time.Now().Add(2*s.Reserve + s.Rounding)
	for time.Now().Before(end) {
		s.none(s.Reserve / 4)
		s.ok("Renew", s.Source.Renew(t.Context(), m))
	}
	s.ok("Ack", s.Source.Ack(t.Context(), m))
	s.depth(worker.Depth{})
}

func testPark(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	s.Push(t, "2")
	m := s.next()
	s.ok("Park", s.Source.Park(t.Context(), m, "card refused: «нет» \x00 \xff\nsecond line"))
	if got := s.Failed(t); got != 1 {
		t.Fatalf("%d messages in the failure transport, want 1", got)
	}
	s.depth(worker.Depth{Ready: 1})
	s.lost("Ack after Park", s.Source.Ack(t.Context(), m))
	s.order(s.next(), "2")
}

func testParkBroken(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	m := s.next()
	mend := s.BreakFailed(t)
	if err := s.Source.Park(t.Context(), m, "refused"); err == nil || errors.Is(err, worker.ErrLost) {
		t.Fatalf("Park = %v, want the failure transport's error", err)
	}
	s.depth(worker.Depth{Reserved: 1})
	mend()
	s.ok("Park", s.Source.Park(t.Context(), m, "refused"))
	if got := s.Failed(t); got != 1 {
		t.Fatalf("%d messages in the failure transport, want 1", got)
	}
	s.depth(worker.Depth{})
}

func testForward(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	s.Push(t, "2")
	s.Push(t, "3")
	ctx := t.Context()
	first, second := s.next(), s.next()
	s.ok("Forward", s.Source.Forward(ctx, first, s.Other))
	s.ok("Forward", s.Source.Forward(ctx, second, s.Other))
	s.lost("Forward twice", s.Source.Forward(ctx, first, s.Other))
	s.lost("Ack after Forward", s.Source.Ack(ctx, first))
	want := []string{string(first.Raw), string(second.Raw)}
	if got := s.Forwarded(t); !slices.Equal(got, want) {
		t.Fatalf("the other queue holds\n%q, want\n%q", got, want)
	}
	third := s.next()
	s.order(third, "3")
	if err := s.Source.Forward(ctx, third, ""); err == nil || errors.Is(err, worker.ErrLost) {
		t.Errorf("Forward to no queue = %v, want an error", err)
	}
	s.ok("Ack", s.Source.Ack(ctx, third))
	s.depth(worker.Depth{})
}

// A message that goes on with its ack does so once, whoever else had it, and
// begins anew there.
func testThen(t *testing.T, s sourceTest) {
	s.Push(t, "1")
	old := s.next()
	held := s.next() // the reserve of old has ended
	old.Then, held.Then = s.Other, s.Other
	s.lost("Ack", s.Source.Ack(t.Context(), old))
	if got := s.Forwarded(t); len(got) != 0 {
		t.Fatalf("the other queue holds %q after the Ack of a lost message", got)
	}
	s.depth(worker.Depth{Reserved: 1})
	s.ok("Ack of the holder", s.Source.Ack(t.Context(), held))
	s.lost("Ack twice", s.Source.Ack(t.Context(), held))
	if got := s.Forwarded(t); !slices.Equal(got, []string{string(old.Raw)}) {
		t.Errorf("the other queue holds\n%q, want\n%q", got, old.Raw)
	}
	s.depth(worker.Depth{})
}

func testUnreadable(t *testing.T, s sourceTest) {
	s.PushRaw(t, s.Unreadable)
	s.Push(t, "1")
	m := s.next()
	if !errors.Is(m.Err, worker.ErrUnreadable) {
		t.Fatalf("Err = %v, want ErrUnreadable", m.Err)
	}
	if string(m.Raw) != string(s.Unreadable) || m.ID == "" {
		t.Fatalf("ID %q, Raw %q, want %q", m.ID, m.Raw, s.Unreadable)
	}
	s.ok("Renew", s.Source.Renew(t.Context(), m))
	if err := s.Source.Forward(t.Context(), m, s.Other); !errors.Is(err, worker.ErrUnreadable) || len(s.Forwarded(t)) != 0 {
		t.Errorf("Forward = %v, the other queue holds %q; want ErrUnreadable and nothing", err, s.Forwarded(t))
	}
	other := s.next() // it does not block the queue
	s.order(other, "1")
	s.ok("Ack", s.Source.Ack(t.Context(), other))
	again := s.next() // nor is it forgotten
	if string(again.Raw) != string(s.Unreadable) || again.ID != m.ID {
		t.Fatalf("ID %q, Raw %q the second time", again.ID, again.Raw)
	}
	s.ok("Ack", s.Source.Ack(t.Context(), again))
	s.lost("Ack twice", s.Source.Ack(t.Context(), again))
	if got := s.Failed(t); got != 0 {
		t.Fatalf("%d messages in the failure transport, want 0", got)
	}
}

// A Receive that is cancelled, at whatever moment, loses no message.
func testCancel(t *testing.T, s sourceTest) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := worker.Next(ctx, s.Source); !errors.Is(err, context.Canceled) {
		t.Fatalf("Receive = %v, %v with a context that has ended", m, err)
	}
	start := time.Now()
	s.none(100 * time.Millisecond)
	if took := time.Since(start); took > 800*time.Millisecond {
		t.Errorf("an idle Receive returned %v after it was called for 100ms", took)
	}
	const n = 40
	received := 0
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m, err := worker.Next(ctx, s.Source)
			if err == nil {
				received++
				err = s.Source.Ack(t.Context(), m)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Receive and Ack: %v", err)
			}
		}()
		s.Push(t, fmt.Sprint(i))
		cancel()
		<-done
	}
	for received < n {
		m := s.next()
		if m.DeliveredBefore {
			t.Errorf("order %v was reserved by a Receive that did not return it", m.Data["orderId"])
		}
		s.ok("Ack", s.Source.Ack(t.Context(), m))
		received++
	}
	s.depth(worker.Depth{})
}

// With its connections killed again and again, every message still arrives.
func testDisconnect(t *testing.T, s sourceTest) {
	const rounds, each = 20, 3
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	done := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				m, err := worker.Next(ctx, s.Source)
				if err != nil {
					continue // killed
				}
				// As the worker does: an Ack whose answer was lost is sent again.
				for err := s.Source.Ack(ctx, m); err != nil && !errors.Is(err, worker.ErrLost) && ctx.Err() == nil; {
					err = s.Source.Ack(ctx, m)
				}
				mu.Lock()
				done[fmt.Sprint(m.Data["orderId"])] = true
				if len(done) == rounds*each {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	kill := time.NewTicker(20 * time.Millisecond)
	defer kill.Stop()
	for i := range rounds {
		<-kill.C
		s.Disconnect(t)
		for j := range each {
			s.Push(t, fmt.Sprint(i*each+j))
		}
	}
	wg.Wait()
	depth, err := s.Source.Depth(t.Context())
	s.ok("Depth", err)
	if len(done) < rounds*each && depth.Empty() {
		t.Errorf("%d of %d messages arrived and the queue is empty: the others are lost", len(done), rounds*each)
	} else if len(done) < rounds*each {
		t.Errorf("%d of %d messages arrived, the queue holds %+v", len(done), rounds*each, depth)
	}
}

// receive takes messages until it has n, at most that many at once.
func (s sourceTest) receive(n int) (ms []*worker.Message) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for len(ms) < n {
		next, err := s.Source.Receive(ctx, n-len(ms))
		s.ok("Receive", err)
		if ms = append(ms, next...); len(ms) > n {
			s.t.Fatalf("%d messages, want at most %d", len(ms), n)
		}
		if len(next) == 0 {
			s.ok("Wait", s.Source.Wait(ctx))
		}
	}
	return ms
}

// Several messages come in their order, no more than are wanted, and those that are
// there are not waited for.
func testSeveral(t *testing.T, s sourceTest) {
	if ms, err := s.Source.Receive(t.Context(), 5); len(ms) != 0 || err != nil {
		t.Errorf("Receive of an empty queue = %v, %v", ms, err)
	}
	for i := range 7 {
		s.Push(t, fmt.Sprint(i))
		if i == 4 {
			s.PushRaw(t, s.Unreadable)
		}
	}
	first := s.receive(3)
	rest, err := s.Source.Receive(t.Context(), 50)
	s.ok("Receive", err)
	if len(rest) != 5 {
		t.Fatalf("%d messages, want the 5 that are left", len(rest))
	}
	var orders []string
	for _, m := range append(first, rest...) {
		order := "unreadable"
		if m.Err == nil {
			order = fmt.Sprint(m.Data["orderId"])
		}
		orders = append(orders, order)
		if left := time.Until(m.ReservedUntil); left > s.Reserve || m.DeliveredBefore {
			t.Errorf("order %s: reserved for %v, DeliveredBefore=%v; want at most %v, and false", order, left, m.DeliveredBefore, s.Reserve)
		}
	}
	if want := []string{"0", "1", "2", "3", "4", "unreadable", "5", "6"}; !slices.Equal(orders, want) {
		t.Errorf("orders %v, want %v", orders, want)
	}
	for _, m := range slices.Backward(rest[:2]) {
		s.ok("PutBack", s.Source.PutBack(t.Context(), m))
	}
	again := s.receive(2)
	s.order(again[0], "3")
	s.order(again[1], "4")
}

// Of many answers at the same time each is that of its own message: one whose
// message is lost, or that is refused, is an error to its caller alone.
func testAnswers(t *testing.T, s sourceTest) {
	const n = 60
	for i := range n {
		s.Push(t, fmt.Sprint(i))
	}
	ms := s.receive(n)
	ctx := t.Context()
	type answer struct {
		name string
		lost bool
		do   func(m *worker.Message) error
	}
	answers := []answer{
		{"ack", false, func(m *worker.Message) error { return s.Source.Ack(ctx, m) }},
		{"ack of one that is gone", true, func(m *worker.Message) error { return s.Source.Ack(ctx, m) }},
		{"later", false, func(m *worker.Message) error { return s.Source.Later(ctx, m, time.Hour) }},
		{"renew", false, func(m *worker.Message) error { return s.Source.Renew(ctx, m) }},
		{"renew of one that is gone", true, func(m *worker.Message) error { return s.Source.Renew(ctx, m) }},
		{"ack, cancelled", false, func(m *worker.Message) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			if err := s.Source.Ack(ctx, m); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("with a context that has ended: %w", err)
			}
			return nil
		}},
	}
	for i, m := range ms {
		if answers[i%len(answers)].lost {
			s.ok("Ack", s.Source.Ack(ctx, m))
		}
	}
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i, m := range ms {
		wg.Go(func() {
			<-begin
			a := answers[i%len(answers)]
			if err := a.do(m); errors.Is(err, worker.ErrLost) != a.lost || err != nil && !a.lost {
				t.Errorf("%s: %v", a.name, err)
			}
		})
	}
	close(begin)
	wg.Wait()
	// The answers whose context had ended were not sent.
	s.depth(worker.Depth{Delayed: n / int64(len(answers)), Reserved: 2 * n / int64(len(answers))})
}

// A reply that is lost is no delivery: the same source gets the messages again, as
// first deliveries and no more at once than it wants now. If its process has died,
// they come to another as delivered before.
func testLostReply(t *testing.T, s sourceTest) {
	if s.Mortal == nil {
		t.Skip("this queue's connections cannot be cut here")
	}
	for _, then := range []int{8, 5, 2} {
		lossy := &mortal{}
		q := s.Mortal(t, lossy.dial)
		if ms, err := q.Receive(t.Context(), 1); len(ms) != 0 || err != nil { // so that all that it prepares is prepared
			t.Fatalf("Receive of an empty queue = %v, %v", ms, err)
		}
		const n = 5
		for i := range n {
			s.Push(t, fmt.Sprint(i))
		}
		var ms []*worker.Message
		for cut := 0; len(ms) == 0; cut++ { // at each command, until all are answered
			lossy.die(cut, true)
			var err error
			if ms, err = q.Receive(t.Context(), n); (err != nil) != lossy.isDead() || cut > 20 {
				t.Fatalf("command %d: %d messages, %v; cut: %v", cut, len(ms), err, lossy.isDead())
			}
			lossy.revive()
			if err != nil {
				var again []*worker.Message
				again, err = q.Receive(t.Context(), then)
				s.ok("Receive after a lost reply", err)
				if len(again) > then {
					t.Fatalf("command %d: %d messages, want at most %d", cut, len(again), then)
				}
				for len(again) < n {
					more, err := q.Receive(t.Context(), n-len(again))
					s.ok("Receive of the others", err)
					if again = append(again, more...); len(more) == 0 {
						s.ok("Wait", q.Wait(t.Context()))
					}
				}
				for i, m := range again {
					s.order(m, fmt.Sprint(i))
					if m.DeliveredBefore {
						t.Errorf("command %d, then %d: order %d is delivered before, and no worker has had it", cut, then, i)
					}
					if left := time.Until(m.ReservedUntil); left > s.Reserve || left < s.Reserve/4 {
						t.Errorf("command %d: order %d is reserved for %v", cut, i, left)
					}
				}
				for _, m := range slices.Backward(again) {
					s.ok("PutBack", q.PutBack(t.Context(), m))
				}
			}
		}
		for _, m := range ms {
			s.ok("Ack", q.Ack(t.Context(), m))
		}
		s.depth(worker.Depth{})
	}

	lossy := &mortal{}
	q := s.Mortal(t, lossy.dial)
	if ms, err := q.Receive(t.Context(), 1); len(ms) != 0 || err != nil {
		t.Fatalf("Receive of an empty queue = %v, %v", ms, err)
	}
	s.Push(t, "1")
	for cut := 0; !lossy.isDead(); cut++ {
		lossy.die(cut, true)
		if ms, err := q.Receive(t.Context(), 1); err == nil {
			for _, m := range ms {
				s.ok("PutBack", q.PutBack(t.Context(), m))
			}
			t.Fatalf("command %d was not cut", cut)
		}
	}
	d, err := s.Source.Depth(t.Context())
	s.ok("Depth", err)
	m := s.next()
	s.order(m, "1")
	if m.DeliveredBefore != (d.Reserved == 1) {
		t.Errorf("DeliveredBefore=%v, and the queue held %+v when the process had died", m.DeliveredBefore, d)
	}
	s.ok("Ack", s.Source.Ack(t.Context(), m))
}

// Looking takes nothing and changes nothing.
func testLook(t *testing.T, s sourceTest) {
	s.Push(t, "reserved")
	held := s.next()
	s.Push(t, "delayed")
	s.ok("Later", s.Source.Later(t.Context(), s.next(), time.Hour))
	s.Push(t, "ready")
	s.PushRaw(t, s.Unreadable)
	s.ok("Renew", s.Source.Renew(t.Context(), held)) // on a busy machine its reserve may be over
	before, err := s.Source.Depth(t.Context())
	s.ok("Depth", err)

	for range 2 {
		s.ok("Renew", s.Source.Renew(t.Context(), held))
		want := map[string]worker.Place{"reserved": worker.Reserved, "delayed": worker.Delayed, "ready": worker.Ready, "": worker.Ready}
		for m, err := range s.Source.Look(t.Context()) {
			s.ok("Look", err)
			order := ""
			if m.Err == nil {
				order = fmt.Sprint(m.Data["orderId"])
			} else if !errors.Is(m.Err, worker.ErrUnreadable) || string(m.Raw) != string(s.Unreadable) {
				t.Errorf("seen with error %v: %q", m.Err, m.Raw)
			}
			if place, ok := want[order]; !ok || place != m.Place || m.Receipt != nil {
				t.Errorf("order %q seen as %s, want %s, once and without a receipt", order, m.Place, place)
			}
			delete(want, order)
			if m.DeliveredBefore || (m.Holder != "") != (m.Place == worker.Reserved) {
				t.Errorf("order %q, %s: DeliveredBefore=%t, holder %q; want false, and zabor only where it is reserved", order, m.Place, m.DeliveredBefore, m.Holder)
			}
			if m.Place != worker.Ready && time.Until(m.Until) > time.Hour+time.Minute || m.Place == worker.Delayed && time.Until(m.Until) < 50*time.Minute {
				t.Errorf("order %q: until %s", order, m.Until)
			}
		}
		if len(want) > 0 {
			t.Errorf("not seen: %v", want)
		}
	}
	after, err := s.Source.Depth(t.Context())
	s.ok("Depth", err)
	if after != before {
		t.Errorf("after the look the queue holds %+v, before %+v", after, before)
	}
	others, err := s.Source.Others(t.Context())
	if err != nil || len(others) > 0 {
		t.Errorf("Others = %v, %v; there is only zabor", others, err)
	}
	s.ok("Ack", s.Source.Ack(t.Context(), held))
}

// A queue of several pages is seen whole, and a look may end early.
func testLookAtMany(t *testing.T, s sourceTest) {
	const n = 250
	for i := range n {
		s.Push(t, fmt.Sprint(i))
	}
	seen := map[string]bool{}
	for m, err := range s.Source.Look(t.Context()) {
		s.ok("Look", err)
		seen[fmt.Sprint(m.Data["orderId"])] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d messages seen", len(seen), n)
	}
	for _, err := range s.Source.Look(t.Context()) {
		s.ok("Look, and no more than the first", err)
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var last error
	for _, last = range s.Source.Look(ctx) {
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("Look ended with %v, want a cancelled context's error", last)
	}
}
