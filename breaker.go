package zabor

import (
	"strings"
	"sync"
	"time"
)

// The pauses of a breaker: doubled with each call that did nothing, from the
// first to the longest.
const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// longestAsked is how long a provider is left alone at most because it asks for it.
	longestAsked = 24 * time.Hour
	// wrongPause follows an answer that says that the address or the form is
	// wrong: each such call holds a row, so a next one is not tried soon.
	wrongPause = 5 * time.Minute
	// mostUnproven is how many calls in a row may end without an answer that
	// proves anything before a pause begins: each of them is an attempt of its
	// row, and an outage is no reason to spend those of every row.
	mostUnproven = 5
	// wrongForms is how many refusals of a request's form in a row, of one step,
	// say that the step's template is wrong and not the customer's data.
	wrongForms = 3
)

// breaker stops the sending to a provider that surely does nothing with what is
// sent, or that has not answered for a while: so that an outage carries messages
// round instead of spending an attempt of each, and a wrong address holds one row
// and not the queue. A step whose requests are refused for their form, or go to a
// wrong path, is stopped alone. It knows only this process's calls. The zero breaker lets everything pass.
type breaker struct {
	mu     sync.Mutex
	turn   int64 // rises with each pause
	paused map[road]*pause
	forms  map[road]int    // refusals of the form in a row
	sound  map[string]bool // providers that have answered well since the last wrong address
}

// road is what is paused: a provider with an empty step, or one step of it.
type road struct{ provider, step string }

// roadOf is the road of a call, without the part of its step.
func roadOf(provider string, k Key) road {
	step, _, _ := strings.Cut(k.Step, ":")
	return road{provider, step}
}

type pause struct {
	turn     int64 // of the breaker when it began: who was let through before says nothing about it
	until    time.Time
	length   time.Duration // 0: there is none, only unproven calls are counted
	asked    time.Time     // until when the provider itself wants to be left alone; zero: it does not say
	why      string
	trying   bool // it is over, and a call is under way that tries
	unproven int  // calls in a row
}

// at is the pause of r, made where there is none. The caller holds mu.
func (b *breaker) at(r road) *pause {
	if b.paused == nil {
		b.paused = map[road]*pause{}
	}
	p := b.paused[r]
	if p == nil {
		p = &pause{}
		b.paused[r] = p
	}
	return p
}

// Paused is how long nothing will be sent to provider by this process, whatever the
// step, and why; 0: it is called.
func (f *Fence) Paused(provider string) (time.Duration, string) {
	f.breaker.mu.Lock()
	defer f.breaker.mu.Unlock()
	p := f.breaker.paused[road{provider, ""}]
	if p == nil || p.length == 0 {
		return 0, ""
	}
	return max(0, p.until.Sub(f.clock())), p.why
}

// wait is how long nothing may be sent on r, and why. When a pause is over, one
// caller is let through to try; the others wait once more, no longer than its call
// may take, since it may have an answer soon. Who is let through takes turn to ended.
func (b *breaker) wait(r road, now time.Time, call time.Duration) (left time.Duration, why string, turn int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	paused := []*pause{b.paused[road{r.provider, ""}], b.paused[r]}
	for _, p := range paused {
		if p != nil && p.length > 0 && p.until.After(now) {
			left := p.until.Sub(now)
			if p.trying {
				left = min(left, p.length)
			}
			return left, p.why, 0
		}
	}
	for _, p := range paused {
		if p != nil && p.length > 0 {
			p.until, p.trying = now.Add(call), true
		}
	}
	return 0, "", b.turn
}

// asked reports whether the provider itself wants to be left alone now.
func (b *breaker) asked(provider string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.paused[road{provider, ""}]
	return p != nil && p.asked.After(now)
}

// ended notes how a call on r ended that was let through at the given turn. It
// reports whether a pause begins by it where there was none. What was under way when
// a pause began does not end it, however well it ends.
func (b *breaker) ended(r road, o Outcome, turn int64, now time.Time) (begun bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole := road{r.provider, ""}
	switch {
	case o.Verdict == Misdirected && !o.Pause:
		if b.underWay(r, turn) {
			return false
		}
		// Where another call has ended well since the last such answer, the address is
		// right, and the path of this step is wrong. Else nobody knows.
		begun = b.pause(r, o, turn, now)
		if !b.sound[r.provider] {
			begun = b.pause(whole, o, turn, now) || begun
		}
		delete(b.sound, r.provider)
		return begun
	case o.Pause, o.Verdict == Unsent, o.Verdict == TurnedAway:
		b.at(whole).unproven = 0
		return b.pause(whole, o, turn, now)
	case o.Verdict == Unproven:
		p := b.at(whole)
		if !b.underWay(whole, turn) {
			p.unproven++
		}
		switch {
		case o.RetryAfter > 0, p.unproven >= mostUnproven:
			return b.pause(whole, o, turn, now)
		case !b.underWay(whole, turn):
			*p = pause{unproven: p.unproven} // it takes what is sent
		}
		return false
	}
	if b.sound == nil {
		b.sound = map[string]bool{}
	}
	b.sound[r.provider] = true
	b.end(whole, turn)
	if o.Verdict != Malformed {
		b.end(r, turn)
		delete(b.forms, r)
		return false
	}
	if b.forms == nil {
		b.forms = map[road]int{}
	}
	if b.forms[r]++; b.forms[r] < wrongForms {
		return false
	}
	return b.pause(r, o, turn, now)
}

// underWay reports whether who was let through at turn was under way already when the
// pause of r began. The caller holds mu.
func (b *breaker) underWay(r road, turn int64) bool {
	p := b.paused[r]
	return p != nil && p.length > 0 && turn < p.turn
}

// end ends the pause of r by a call that was let through at turn. The caller holds mu.
func (b *breaker) end(r road, turn int64) {
	if !b.underWay(r, turn) {
		delete(b.paused, r)
	}
}

// pause begins or lengthens the pause of r. The caller holds mu.
func (b *breaker) pause(r road, o Outcome, turn int64, now time.Time) (begun bool) {
	p := b.at(r)
	if asked := min(o.RetryAfter, longestAsked); asked > 0 && now.Add(asked).After(p.asked) {
		p.asked = now.Add(asked)
	}
	begun = p.length == 0
	wrong := o.Pause || o.Verdict == Misdirected || o.Verdict == Malformed
	switch underWay := b.underWay(r, turn); {
	case wrong:
		p.length = wrongPause
		p.until = now.Add(p.length)
	case !underWay:
		p.length = min(max(2*p.length, firstPause), longestPause)
		p.until = now.Add(p.length)
	}
	if p.asked.After(p.until) {
		p.until = p.asked
	}
	if !b.underWay(r, turn) {
		b.turn++
		p.turn, p.trying = b.turn, false
		p.why = o.Reason
	}
	return begun
}
