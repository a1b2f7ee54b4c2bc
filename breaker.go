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
// and not the queue. A step whose requests are refused for their form is stopped
// alone. It knows only this process's calls. The zero breaker lets everything pass.
type breaker struct {
	mu     sync.Mutex
	paused map[road]*pause
	forms  map[road]int // refusals of the form in a row
}

// road is what is paused: a provider with an empty step, or one step of it.
type road struct{ provider, step string }

// roadOf is the road of a call, without the part of its step.
func roadOf(provider string, k Key) road {
	step, _, _ := strings.Cut(k.Step, ":")
	return road{provider, step}
}

type pause struct {
	until    time.Time
	length   time.Duration // 0: there is none, only unproven calls are counted
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
// may take, since it may have an answer soon.
func (b *breaker) wait(r road, now time.Time, call time.Duration) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	paused := []*pause{b.paused[road{r.provider, ""}], b.paused[r]}
	for _, p := range paused {
		if p != nil && p.length > 0 && p.until.After(now) {
			left := p.until.Sub(now)
			if p.trying {
				left = min(left, p.length)
			}
			return left, p.why
		}
	}
	for _, p := range paused {
		if p != nil && p.length > 0 {
			p.until, p.trying = now.Add(call), true
		}
	}
	return 0, ""
}

// ended notes how a call on r ended. It reports whether a pause begins by it where
// there was none.
func (b *breaker) ended(r road, o Outcome, now time.Time) (begun bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole := road{r.provider, ""}
	switch {
	case o.Pause, o.Verdict == Unsent, o.Verdict == TurnedAway, o.Verdict == Misdirected:
		b.at(whole).unproven = 0
		return b.pause(whole, o, now)
	case o.Verdict == Unproven:
		p := b.at(whole)
		if p.unproven++; p.unproven < mostUnproven {
			*p = pause{unproven: p.unproven} // it takes what is sent
			return false
		}
		return b.pause(whole, o, now)
	}
	delete(b.paused, whole) // it answers
	if o.Verdict != Malformed {
		delete(b.paused, r)
		delete(b.forms, r)
		return false
	}
	if b.forms == nil {
		b.forms = map[road]int{}
	}
	if b.forms[r]++; b.forms[r] < wrongForms {
		return false
	}
	return b.pause(r, o, now)
}

// pause begins or lengthens the pause of r. The caller holds mu.
func (b *breaker) pause(r road, o Outcome, now time.Time) (begun bool) {
	p := b.at(r)
	begun = p.length == 0
	switch {
	case o.Pause, o.Verdict == Misdirected, o.Verdict == Malformed:
		p.length = wrongPause
	case now.Before(p.until) && p.length > 0 && !p.trying: // one of several that were under way
		return begun
	default:
		p.length = min(max(2*p.length, firstPause), longestPause)
	}
	p.length = max(p.length, min(o.RetryAfter, longestPause))
	p.until, p.trying = now.Add(p.length), false
	p.why = o.Reason
	return begun
}
