package zabor

import (
	"fmt"
	"testing"
	"time"
)

// crossing is the pauses of a fence with their clock, and the calls that pass them.
type crossing struct {
	pauses
	t   *testing.T
	now time.Time
}

func newCrossing(t *testing.T) *crossing { return &crossing{t: t, now: time.Unix(1_000_000, 0)} }

const callTime = 10 * time.Second

var (
	chargeKey = Key{Order: "1", Step: "charge"}
	refundKey = Key{Order: "1", Step: "refund:R-7"}
	noAnswer  = Outcome{Reason: "502"}
	refused   = Outcome{Verdict: Unsent, Reason: "connection refused"}
	well      = Outcome{Verdict: Done, Reference: "pay_1"}
)

// waits demands that a call for k at provider p waits so long. It returns its pass.
func (c *crossing) waits(k Key, want time.Duration) pass {
	c.t.Helper()
	return c.waitsAt("p", "a", k, want)
}

func (c *crossing) waitsAt(provider, account string, k Key, want time.Duration) pass {
	c.t.Helper()
	got, left, why := c.enter(circuitsOf(provider, account, k), c.now, callTime)
	if left != want || want > 0 && why == "" && c.at[circuit{provider, account, ""}].why != "" {
		c.t.Fatalf("%s waits %v (%s), want %v", k, left, why, want)
	}
	return got
}

// calls is a call for k that passes and ends with o.
func (c *crossing) calls(k Key, o Outcome) (begun, alone bool) {
	c.t.Helper()
	return c.ended(c.waits(k, 0), k, o, c.now)
}

func (c *crossing) begins(k Key, o Outcome, want bool) {
	c.t.Helper()
	if begun, _ := c.calls(k, o); begun != want {
		c.t.Fatalf("%v for %s: a pause begins %v, want %v", o.Verdict, k, begun, want)
	}
}

func (c *crossing) pass(d time.Duration) { c.now = c.now.Add(d) }

func TestPauses(t *testing.T) {
	c := newCrossing(t)
	underWay := c.waits(chargeKey, 0)
	c.begins(chargeKey, refused, true)
	c.waits(chargeKey, firstPause)
	c.waits(refundKey, firstPause)
	c.waitsAt("q", "a", chargeKey, 0)
	c.waitsAt("p", "b", chargeKey, 0) // another account of the provider
	// Calls that were under way do not lengthen it.
	if begun, _ := c.ended(underWay, chargeKey, refused, c.now); begun {
		t.Error("a second pause begins")
	}
	c.waits(chargeKey, firstPause)

	// One is let through when it is over; the others wait once more. When it is
	// refused too, the next pause is longer, however soon its answer came.
	c.pass(firstPause)
	probe := c.waits(chargeKey, 0)
	c.waits(refundKey, firstPause)
	c.pass(100 * time.Millisecond)
	c.ended(probe, chargeKey, refused, c.now)
	c.waits(chargeKey, 2*firstPause)
	for range 20 {
		c.pass(longestPause)
		c.calls(chargeKey, refused)
	}
	c.waits(chargeKey, longestPause)
	if left, why := c.paused("p", c.now); left != longestPause || why != refused.Reason {
		t.Errorf("paused for %s: %s", left, why)
	}
	c.pass(longestPause)
	c.begins(chargeKey, well, false)
	c.waits(refundKey, 0)
	if left, _ := c.paused("p", c.now); left != 0 {
		t.Errorf("paused for %s after it", left)
	}
}

// What this machine could not send pauses nothing, and gives a probe back.
func TestPausesOfThisMachinesFaults(t *testing.T) {
	c := newCrossing(t)
	local := Outcome{Verdict: Unsent, Local: true, Reason: "too many open files"}
	for range 20 {
		c.begins(chargeKey, local, false)
	}
	c.begins(chargeKey, refused, true)
	c.waits(chargeKey, firstPause)
	c.pass(firstPause)
	c.begins(chargeKey, local, false) // the probe
	c.begins(refundKey, well, false)  // the next probe
	c.waits(chargeKey, 0)
}

// Any answer that proves something ends a pause, and what was under way when it began
// ends it in no way.
func TestPausesOfCallsUnderWay(t *testing.T) {
	for _, o := range []Outcome{well, {Verdict: Begun}, {Verdict: Refused}, {Verdict: Malformed}, {Verdict: Prepared}, {Verdict: Misdirected}} {
		for name, begins := range map[string]Outcome{"refused": refused, "redirect": {Pause: true}, "turned away": {Verdict: TurnedAway}, "asked": {RetryAfter: time.Minute}} {
			t.Run(fmt.Sprint(name, " ", o.Verdict), func(t *testing.T) {
				c := newCrossing(t)
				underWay := c.waits(refundKey, 0)
				c.begins(chargeKey, begins, true)
				_, want, _ := c.enter(circuitsOf("p", "a", chargeKey), c.now, callTime)
				c.ended(underWay, refundKey, o, c.now)
				if c.waits(chargeKey, want); want == 0 {
					t.Error("no pause")
				}
				c.pass(want)
				c.ended(c.waits(chargeKey, 0), chargeKey, o, c.now)
				c.waitsAt("p", "a", Key{Order: "1", Step: "capture"}, 0)
			})
		}
	}
}

// A pause is told exactly when one begins, also by a call from before an earlier pause.
func TestAPauseThatIsToldBegins(t *testing.T) {
	for _, o := range []Outcome{refused, {Verdict: TurnedAway}, {Pause: true}, {RetryAfter: time.Second}} {
		c := newCrossing(t)
		slow := c.waits(refundKey, 0)
		c.begins(chargeKey, refused, true)
		c.pass(firstPause)
		c.begins(chargeKey, well, false) // the earlier pause is over
		c.waits(chargeKey, 0)
		begun, _ := c.ended(slow, refundKey, o, c.now)
		_, left, _ := c.enter(circuitsOf("p", "a", chargeKey), c.now, callTime)
		if begun != (left > 0) {
			t.Errorf("%v, pause %v: told %v, and calls wait %s", o.Verdict, o.Pause, begun, left)
		}
	}
}

// The one call after a pause is given back by a delivery that calls nothing: a queue of
// doubtful messages does not keep a sound provider paused (fault 17).
func TestAProbeIsGivenBack(t *testing.T) {
	for name, o := range map[string]Outcome{"account": refused, "step": {Verdict: Misdirected, Reason: "404"}} {
		t.Run(name, func(t *testing.T) {
			c := newCrossing(t)
			c.begins(chargeKey, o, true)
			_, left, _ := c.enter(circuitsOf("p", "a", chargeKey), c.now, callTime)
			c.pass(left)
			for range 50 {
				c.giveBack(c.waits(chargeKey, 0), c.now)
			}
			probe := c.waits(chargeKey, 0)
			c.waits(chargeKey, min(callTime, left)) // it is not given to two
			// What is not the probe gives nothing back.
			c.giveBack(pass{circuits: probe.circuits, began: probe.began}, c.now)
			c.waits(chargeKey, min(callTime, left))
			c.ended(probe, chargeKey, well, c.now)
			c.waits(chargeKey, 0)
		})
	}
	// A call that was let through before any pause gives no probe back either.
	c := newCrossing(t)
	early := c.waits(chargeKey, 0)
	c.begins(chargeKey, refused, true)
	c.pass(firstPause)
	c.waits(chargeKey, 0) // the probe
	c.giveBack(early, c.now)
	c.waits(chargeKey, firstPause)
}

// A probe whose holder has died delays the next one by the time of its call.
func TestAProbeThatDies(t *testing.T) {
	c := newCrossing(t)
	c.begins(chargeKey, refused, true)
	c.pass(firstPause)
	c.waits(chargeKey, 0)
	c.pass(callTime)
	c.begins(chargeKey, well, false)
	c.waits(chargeKey, 0)
}

// A step whose path is wrong stays paused while another step's calls do well, and does
// not stop these: of many lanes one call of it is made.
func TestPausesOfAWrongPath(t *testing.T) {
	c := newCrossing(t)
	wrong := Outcome{Verdict: Misdirected, Reason: "404"}
	c.begins(chargeKey, wrong, true)
	c.waits(chargeKey, wrongPause)
	c.waits(refundKey, 0)
	c.waitsAt("p", "b", chargeKey, 0)
	c.pass(wrongPause)
	held := 0
	for range 100 {
		if p, left, _ := c.enter(circuitsOf("p", "a", chargeKey), c.now, callTime); left == 0 {
			held++
			c.ended(p, chargeKey, wrong, c.now)
		}
		c.begins(refundKey, well, false)
		c.pass(time.Second)
	}
	if held != 1 {
		t.Errorf("%d calls to a wrong path in 100 seconds, want 1", held)
	}
	c.pass(wrongPause)
	c.begins(chargeKey, well, false)
	c.waits(chargeKey, 0)
}

// Calls that end without any proof pause an account once there are several of them in a
// row.
func TestPausesOfUnprovenCalls(t *testing.T) {
	c := newCrossing(t)
	several := func(n int) {
		t.Helper()
		for range n {
			c.begins(chargeKey, noAnswer, false)
		}
	}
	several(maxUnproven - 1)
	c.begins(chargeKey, well, false) // counted anew
	several(maxUnproven - 1)
	underWay := c.waits(chargeKey, 0)
	c.begins(chargeKey, noAnswer, true)
	c.waits(chargeKey, firstPause)
	c.ended(underWay, chargeKey, noAnswer, c.now)
	c.waits(chargeKey, firstPause)
	for _, want := range []time.Duration{2 * firstPause, 4 * firstPause} {
		c.pass(longestPause)
		c.calls(chargeKey, noAnswer)
		c.waits(chargeKey, want)
	}
	c.pass(longestPause)
	c.begins(chargeKey, Outcome{Verdict: Refused}, false)
	several(maxUnproven - 1)
	c.waits(chargeKey, 0)
}

// A redirect pauses the account although it proves nothing about the call, and also if
// its status says that the address is wrong.
func TestPausesOfARedirect(t *testing.T) {
	for _, v := range []Verdict{Unproven, Misdirected} {
		c := newCrossing(t)
		c.begins(chargeKey, Outcome{Verdict: v, Pause: true, Reason: "302"}, true)
		c.waits(refundKey, wrongPause)
	}
}

// Three refusals of the form in a row stop the step and no other.
func TestPausesOfForms(t *testing.T) {
	c := newCrossing(t)
	wrong := Outcome{Verdict: Malformed, Reason: "400"}
	for _, o := range []Outcome{wrong, wrong, {Verdict: Refused}, wrong, wrong, noAnswer} {
		c.begins(chargeKey, o, false)
	}
	c.begins(refundKey, wrong, false)
	c.begins(chargeKey, wrong, true)
	c.waits(chargeKey, wrongPause)
	c.waits(refundKey, 0)
	// The probe's refusal is enough for another pause.
	c.pass(wrongPause)
	c.calls(chargeKey, wrong)
	c.waits(chargeKey, wrongPause)
	c.pass(wrongPause)
	c.begins(chargeKey, well, false)
	c.begins(chargeKey, wrong, false)
	c.waits(chargeKey, 0)
	if got := circuitsOf("p", "a", refundKey); got != [2]circuit{{"p", "a", ""}, {"p", "a", "refund"}} {
		t.Errorf("circuits %v, want those of the account and of its step without the part", got)
	}
}

// A provider is left alone for as long as it asks, whatever the kind of its answer, and
// look-ups leave it alone too.
func TestPausesAsLongAsAsked(t *testing.T) {
	for _, o := range []Outcome{{Verdict: TurnedAway, RetryAfter: time.Hour}, {RetryAfter: time.Hour}, {Pause: true, RetryAfter: time.Hour}} {
		c := newCrossing(t)
		c.begins(chargeKey, o, true)
		c.waits(refundKey, time.Hour)
		if !c.asked("p", "a", c.now) || c.asked("p", "b", c.now) {
			t.Errorf("asked: %v, at another account %v", c.asked("p", "a", c.now), c.asked("p", "b", c.now))
		}
		c.pass(time.Hour)
		if c.asked("p", "a", c.now) {
			t.Error("it asks for nothing any more")
		}
		c.begins(chargeKey, well, false)
		c.waits(chargeKey, 0)
	}
	// A call that was under way and is asked to wait is heeded.
	c := newCrossing(t)
	underWay := c.waits(refundKey, 0)
	c.begins(chargeKey, refused, true)
	c.ended(underWay, refundKey, Outcome{Verdict: TurnedAway, RetryAfter: time.Hour}, c.now)
	c.waits(chargeKey, time.Hour)
	// A pause without a wish does not stop look-ups.
	c = newCrossing(t)
	c.begins(chargeKey, refused, true)
	if c.asked("p", "a", c.now) {
		t.Error("a refused connection counts as the provider's wish")
	}
}

// The credentials of one order are refused for good while others succeed: that is the
// order's own fault. Its tries count, and it pauses nothing (fault 19).
func TestOneOrderThatIsRefusedForEver(t *testing.T) {
	unauthorized := Outcome{Verdict: TurnedAway, Unauthorized: true, Reason: "403"}
	closed, other := Key{Order: "closed", Step: "charge"}, Key{Order: "other", Step: "charge"}
	c := newCrossing(t)
	begun, alone := c.calls(closed, unauthorized)
	if !begun || alone {
		t.Fatalf("the first time: begun %v, alone %v; want a pause, it may be the account", begun, alone)
	}
	// Nobody else has succeeded since: it still may be.
	c.pass(firstPause)
	if _, alone := c.calls(closed, unauthorized); alone {
		t.Error("alone, and no other order has succeeded")
	}
	c.pass(2 * firstPause)
	c.begins(other, well, false)
	for range 3 {
		if begun, alone := c.calls(closed, unauthorized); begun || !alone {
			t.Errorf("begun %v, alone %v; want the order alone", begun, alone)
		}
		c.waits(other, 0)
		c.begins(other, well, false)
	}
	// Another order's 401 is counted for itself.
	if _, alone := c.calls(other, unauthorized); alone {
		t.Error("the first refusal of another order is its own fault at once")
	}
	// An answer of another kind in between forgets it.
	c = newCrossing(t)
	c.calls(closed, unauthorized)
	c.pass(firstPause)
	c.calls(closed, well)
	c.begins(other, well, false)
	if _, alone := c.calls(closed, unauthorized); alone {
		t.Error("what has succeeded since is refused for ever")
	}
}

// A probe that fails by its order's own fault lets the next one try at once.
func TestAProbeThatIsAloneAtFault(t *testing.T) {
	unauthorized := Outcome{Verdict: TurnedAway, Unauthorized: true, Reason: "403"}
	closed, other := Key{Order: "closed", Step: "charge"}, Key{Order: "other", Step: "charge"}
	c := newCrossing(t)
	underWay := c.waits(other, 0)
	c.calls(closed, unauthorized)
	c.ended(underWay, other, well, c.now) // another succeeds, and was under way before
	c.pass(firstPause)
	if _, alone := c.calls(closed, unauthorized); !alone {
		t.Fatal("another has succeeded since")
	}
	c.begins(other, well, false)
	c.waits(other, 0)
}
