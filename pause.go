package zabor

import (
	"sync"
	"time"
)

// The lengths of a pause: doubled with each failed probe, from the first to the
// longest.
const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// wrongPause follows an answer that says that the address or the form is
	// wrong. Each such call holds a row or parks a message.
	wrongPause = 5 * time.Minute
	// maxUnproven is how many calls in a row may prove nothing before a pause.
	maxUnproven = 5
	// maxMalformed is how many requests of one step may be refused for their form,
	// in a row, before the step pauses: then the template is wrong, not one
	// customer's data.
	maxMalformed = 3
)

// circuit is what a pause stops: an endpoint's account, or one step of it.
type circuit struct{ provider, account, step string }

// circuitsOf are the circuits of a call: the account's and the step's, without the
// part of the step.
func circuitsOf(provider, account string, k Key) [2]circuit {
	return [2]circuit{{provider, account, ""}, {provider, account, k.StepName()}}
}

// pauses stops calls that surely do nothing, so that an outage spends no tries and
// a wrong address holds one row and not the queue. There is one pause per provider
// and account, and one per step whose requests are wrong. It knows the calls of its
// own process only. The zero pauses lets every call pass.
type pauses struct {
	mu      sync.Mutex
	at      map[circuit]*pause
	refused map[Key]int // successes of the account when the key was last unauthorized
}

// pause is the state of one circuit.
type pause struct {
	length    time.Duration // 0: calls pass
	until     time.Time
	asked     time.Time // the provider itself asks to be left alone until then; zero: it does not
	why       string
	began     int  // number of the pause; a call that was under way when it began does not end it
	probing   bool // one call is under way that may end it
	unproven  int  // calls in a row
	malformed int  // calls in a row
	successes int  // calls that ended with a verdict about money
}

// pass is the permission for one call. The zero pass is good for nothing.
type pass struct {
	circuits [2]circuit
	began    [2]int
	probe    [2]bool
}

// of is the pause of c, made where there is none. The caller holds mu.
func (p *pauses) of(c circuit) *pause {
	if p.at == nil {
		p.at = map[circuit]*pause{}
	}
	if p.at[c] == nil {
		p.at[c] = &pause{}
	}
	return p.at[c]
}

// enter lets one call pass, or says for how long none may and why. When a pause is
// over it lets one probe through; the others wait once more, for as long as the
// probe may take at most. Each pass ends with [pauses.ended] or [pauses.giveBack].
func (p *pauses) enter(circuits [2]circuit, now time.Time, timeout time.Duration) (pass, time.Duration, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range circuits {
		s := p.of(c)
		if s.length == 0 || !s.until.After(now) {
			continue
		}
		left := s.until.Sub(now)
		if s.probing {
			left = min(left, s.length) // the probe may have its answer sooner
		}
		return pass{}, left, s.why
	}
	t := pass{circuits: circuits}
	for i, c := range circuits {
		s := p.of(c)
		if t.began[i] = s.began; s.length > 0 {
			s.probing, s.until, t.probe[i] = true, now.Add(timeout), true
		}
	}
	return t, 0, ""
}

// giveBack ends a pass whose holder has called nothing. The next one may probe.
func (p *pauses) giveBack(t pass, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range t.circuits {
		if s := p.of(c); t.probe[i] && s.probing && s.began == t.began[i] {
			s.probing, s.until = false, now
		}
	}
}

// paused is the longest pause of the accounts of provider, and why; 0: calls pass.
func (p *pauses) paused(provider string, now time.Time) (left time.Duration, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, s := range p.at {
		if d := s.until.Sub(now); c.provider == provider && c.step == "" && s.length > 0 && d > left {
			left, why = d, s.why
		}
	}
	return left, why
}

// asked reports whether the provider itself wants to be left alone now.
func (p *pauses) asked(provider, account string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.at[circuit{provider, account, ""}]
	return s != nil && s.asked.After(now)
}

// ended notes how the call for k that passed with t has ended. begun reports
// whether a pause begins by it. alone reports that the endpoint refuses k's
// credentials again, while other orders have succeeded since the last time: that is
// the order's own fault, and pauses nothing.
func (p *pauses) ended(t pass, k Key, o Outcome, now time.Time) (begun, alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	account, step := p.of(t.circuits[0]), p.of(t.circuits[1])
	if o.Unauthorized {
		alone = p.unauthorized(k, account.successes)
	} else {
		delete(p.refused, k)
	}
	switch {
	case o.Verdict == Unsent && o.Local:
		for i, s := range []*pause{account, step} {
			if t.probe[i] && s.probing && s.began == t.began[i] {
				s.probing, s.until = false, now
			}
		}
	case alone:
		if account.probing {
			account.probing, account.until = false, now
		}
	case o.Verdict == Misdirected && !o.Pause:
		begun = step.begin(t.began[1], wrongPause, o, now)
		account.end(t.began[0])
	case o.Verdict == Malformed:
		account.end(t.began[0])
		if step.malformed++; step.malformed >= maxMalformed || t.probe[1] {
			begun = step.begin(t.began[1], wrongPause, o, now)
		}
	case o.Pause:
		begun = account.begin(t.began[0], wrongPause, o, now)
	case o.Verdict == Unsent || o.Verdict == TurnedAway:
		begun = account.begin(t.began[0], firstPause, o, now)
	case o.Verdict == Unproven:
		account.unproven++
		if account.unproven >= maxUnproven || t.probe[0] || o.RetryAfter > 0 {
			begun = account.begin(t.began[0], firstPause, o, now)
		}
	default:
		account.successes++
		account.end(t.began[0])
		step.end(t.began[1])
	}
	return begun, alone
}

// unauthorized notes that k was refused and reports whether others have succeeded
// since it was refused before. The caller holds mu.
func (p *pauses) unauthorized(k Key, successes int) (alone bool) {
	const most = 10_000 // keys remembered; beyond it all are forgotten, which only pauses more
	before, again := p.refused[k]
	if p.refused == nil || len(p.refused) >= most && !again {
		p.refused = map[Key]int{}
	}
	p.refused[k] = successes
	return again && successes > before
}

// end ends the pause, unless it began while the call was under way.
func (s *pause) end(began int) {
	s.unproven, s.malformed = 0, 0
	if s.began == began {
		s.length, s.probing, s.asked = 0, false, time.Time{}
	}
}

// begin begins the pause, or lengthens it, and reports whether it begins. A call that was
// under way when the pause began changes nothing, but a provider's wish is heeded.
func (s *pause) begin(began int, length time.Duration, o Outcome, now time.Time) (begun bool) {
	underWay := s.began != began
	if underWay && o.RetryAfter == 0 {
		return false
	}
	if until := now.Add(o.RetryAfter); o.RetryAfter > 0 && until.After(s.asked) {
		s.asked = until
	}
	begun = s.length == 0
	if begun || !underWay {
		s.began++
		s.length = min(max(2*s.length, length), longestPause)
		s.until, s.probing, s.why = now.Add(s.length), false, o.Reason
	}
	if s.asked.After(s.until) {
		s.until = s.asked
	}
	return begun
}
