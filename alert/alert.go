// Package alert delivers alerts to people: to chats, by mail, to a webhook.
//
// What happens often is told once: the first alert of a cause at a provider at
// once, those that follow in a summary after each interval, with their number. An
// outage in which a thousand orders are held is a handful of messages.
package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"zabor"
)

// Bounds of what waits to be delivered.
const (
	waiting = 64 // messages to one address; what comes then is counted and logged
	listed  = 10 // alerts that a summary names one by one
)

// pace is how fast things go; tests have a faster one.
type pace struct {
	every   time.Duration   // between two messages about one cause
	timeout time.Duration   // of one delivery
	backoff []time.Duration // waits before a delivery is tried again; then it is given up
}

var usual = pace{
	every:   5 * time.Minute,
	timeout: 15 * time.Second,
	backoff: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute},
}

// Sender delivers alerts to its addresses. Its methods may be called
// concurrently.
type Sender struct {
	log     *slog.Logger
	pace    pace
	targets []*target
	closing chan struct{} // closed when nothing waits for a better moment any more
	running sync.WaitGroup

	mu     sync.Mutex
	bursts map[cause]*burst
	closed bool
}

// cause is what alerts have in common that are told together.
type cause struct{ code, provider string }

// burst is what has happened for one cause since the last message about it.
type burst struct {
	alerts []zabor.Alert // the first of them, at most [listed]
	count  int
	timer  *time.Timer
}

// New makes a sender to addresses, in the form of shoutrrr (SERVICE://…) or as
// Slack, Discord and Teams give their webhooks. Nothing is sent yet. An error
// names the address by its number and says what to write; it holds no secret.
func New(addresses []string, log *slog.Logger) (*Sender, error) {
	return newSender(addresses, log, usual)
}

func newSender(addresses []string, log *slog.Logger, p pace) (*Sender, error) {
	s := &Sender{log: log, pace: p, closing: make(chan struct{}), bursts: map[cause]*burst{}}
	var errs []error
	for i, address := range addresses {
		t, err := newTarget(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("alerts[%d]: %w", i, err))
			continue
		}
		t.name = fmt.Sprintf("alerts[%d] (%s)", i, t.kind)
		s.targets = append(s.targets, t)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, t := range s.targets {
		s.running.Go(func() { s.run(t) })
	}
	return s, nil
}

// Send takes a to be delivered, and returns at once. What cannot be delivered is
// in the log.
func (s *Sender) Send(a zabor.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.log.Warn("an alert came after the end and is in the log only", "code", a.Code, "key", a.Key)
		return
	}
	c := cause{a.Code, a.Provider}
	if b, known := s.bursts[c]; known {
		b.add(a)
		return
	}
	s.bursts[c] = &burst{timer: time.AfterFunc(s.pace.every, func() { s.summarise(c) })}
	s.queue(message(a))
}

func (b *burst) add(a zabor.Alert) {
	b.count++
	if len(b.alerts) < listed {
		b.alerts = append(b.alerts, a)
	}
}

// summarise tells what has come for c since the last message. When nothing has,
// the next alert is a first one again.
func (s *Sender) summarise(c cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bursts[c]
	switch {
	case s.closed:
	case b.count == 0:
		delete(s.bursts, c)
	default:
		s.queue(b.summary(s.pace.every))
		b.alerts, b.count = nil, 0
		b.timer.Reset(s.pace.every)
	}
}

// queue puts text before each address. The caller holds s.mu.
func (s *Sender) queue(text string) {
	for _, t := range s.targets {
		select {
		case t.queue <- text:
		default:
			lost := t.lost.Add(1)
			s.log.Error("too many alerts wait: this one is not delivered", "to", t.name, "lost", lost, "text", text)
		}
	}
}

// run delivers what is queued for t, in its order.
func (s *Sender) run(t *target) {
	for text := range t.queue {
		lost := t.lost.Load()
		if lost > t.told {
			text += fmt.Sprintf("\n%d earlier messages could not be delivered here: see zabor's log", lost-t.told)
		}
		if s.deliver(t, text) {
			t.told = lost
		}
	}
}

// deliver tries until text is delivered or the tries are used up. At the end of
// the program there is one try more, and no wait.
func (s *Sender) deliver(t *target, text string) bool {
	for try := 0; ; try++ {
		err := t.send(text, s.pace.timeout)
		if err == nil {
			return true
		}
		last := try >= len(s.pace.backoff)
		select {
		case <-s.closing:
			last = true
		default:
		}
		if last {
			lost := t.lost.Add(1)
			s.log.Error("an alert was not delivered", "to", t.name, "tries", try+1, "lost", lost, "error", err, "text", text)
			return false
		}
		s.log.Warn("cannot deliver an alert; trying again", "to", t.name, "in", s.pace.backoff[try], "error", err)
		select {
		case <-s.closing:
		case <-time.After(s.pace.backoff[try]):
		}
	}
}

// Lost is how many messages were given up since s was made, over all addresses. It
// only rises: a delivery that follows takes nothing back.
func (s *Sender) Lost() int64 {
	n := int64(0)
	for _, t := range s.targets {
		n += t.lost.Load()
	}
	return n
}

// Close delivers what waits, summaries too, as far as it can until ctx ends, and
// ends the sender. The error says how many messages were not delivered since it
// was made.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for _, b := range s.bursts {
		b.timer.Stop()
		if b.count > 0 {
			s.queue(b.summary(s.pace.every))
		}
	}
	for _, t := range s.targets {
		close(t.queue)
	}
	close(s.closing)
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("alerts were still being delivered at the end: %w", ctx.Err())
	}
	var errs []error
	for _, t := range s.targets {
		if lost := t.lost.Load(); lost > 0 {
			errs = append(errs, fmt.Errorf("%s: %d messages were not delivered; they are in the log", t.name, lost))
		}
	}
	return errors.Join(errs...)
}

// Result is what became of a test at one address.
type Result struct {
	Address string // its number and service, without secrets
	Err     error  // nil: the service has taken the message
}

// Test sends a test to each address, once, and waits for the answers.
func (s *Sender) Test() []Result {
	results := make([]Result, len(s.targets))
	var wg sync.WaitGroup
	for i, t := range s.targets {
		wg.Go(func() { results[i] = Result{t.name, t.send(testText, s.pace.timeout)} })
	}
	wg.Wait()
	return results
}

const testText = "zabor: this is a test. Alerts arrive here."
