package zabor

import (
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
)

// breaker stops the sending to a provider that surely does nothing with what is
// sent, or that has not answered for a while: so that an outage carries messages
// round instead of spending an attempt of each, and a wrong address holds one row
// and not the queue. It knows only this process's calls. The zero breaker lets
// everything pass.
type breaker struct {
	mu     sync.Mutex
	paused map[string]*pause // by provider
}

type pause struct {
	until    time.Time
	length   time.Duration // 0: there is none, only unproven calls are counted
	why      string
	unproven int // calls in a row
}

// wait is how long nothing may be sent to provider, and why. When a pause is
// over, one caller is let through to try; the others wait on until it has an
// answer, or for as long as its call may take.
func (b *breaker) wait(provider string, now time.Time, call time.Duration) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.paused[provider]
	if p == nil || p.length == 0 {
		return 0, ""
	}
	if left := p.until.Sub(now); left > 0 {
		return left, p.why
	}
	p.until = now.Add(call)
	return 0, ""
}

// ended notes how a call ended. It reports whether a pause begins by it where
// there was none.
func (b *breaker) ended(provider string, o Outcome, now time.Time) (begun bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.paused[provider]
	if p == nil {
		p = &pause{}
	}
	switch o.Verdict {
	case Unsent, TurnedAway, Misdirected:
		p.unproven = 0
	case Unproven:
		if p.unproven++; p.unproven < mostUnproven {
			*p = pause{unproven: p.unproven} // it takes what is sent
		}
	default: // it answers
		delete(b.paused, provider)
		return false
	}
	if b.paused == nil {
		b.paused = map[string]*pause{}
	}
	b.paused[provider] = p
	if o.Verdict == Unproven && p.unproven < mostUnproven {
		return false
	}
	begun = p.length == 0
	switch {
	case o.Verdict == Misdirected:
		p.length = wrongPause
	case now.Before(p.until) && p.length > 0: // one of several that were under way
		return begun
	default:
		p.length = min(max(2*p.length, firstPause), longestPause)
	}
	p.length = max(p.length, min(o.RetryAfter, longestPause))
	p.until = now.Add(p.length)
	p.why = o.Reason
	return begun
}
