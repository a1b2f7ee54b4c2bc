package zabor

import (
	"testing"
	"time"
)

// crossing is a breaker with its clock, and who passes it.
type crossing struct {
	breaker
	t   *testing.T
	now time.Time
}

func newCrossing(t *testing.T) *crossing { return &crossing{t: t, now: time.Unix(1_000_000, 0)} }

// waits demands that whoever comes on r waits so long, and gives the turn of who need
// not.
func (c *crossing) waits(r road, want time.Duration) int64 {
	c.t.Helper()
	got, _, turn := c.wait(r, c.now, 10*time.Second)
	if got != want {
		c.t.Fatalf("%v waits %v, want %v", r, got, want)
	}
	return turn
}

// calls is a call on r that is let through and ends with o.
func (c *crossing) calls(r road, o Outcome) (begun bool) {
	c.t.Helper()
	return c.ended(r, o, c.waits(r, 0), c.now)
}

var (
	charge, refund = road{"p", "charge"}, road{"p", "refund"}
	refused        = Outcome{Verdict: Unsent, Reason: "connection refused"}
)

func TestBreaker(t *testing.T) {
	c := newCrossing(t)
	underWay := c.waits(charge, 0)
	if !c.calls(charge, refused) {
		t.Error("the first refused call begins no pause")
	}
	c.waits(charge, firstPause)
	c.waits(road{"q", "charge"}, 0)
	// Calls that were under way do not lengthen it.
	if c.ended(charge, refused, underWay, c.now) {
		t.Error("the second refused call begins a pause")
	}
	c.waits(charge, firstPause)

	// One is let through when it is over; the others wait once more. When it is
	// refused too, the next pause is longer, however soon its answer came.
	c.now = c.now.Add(firstPause)
	turn := c.waits(charge, 0)
	c.waits(charge, firstPause)
	c.now = c.now.Add(100 * time.Millisecond)
	c.ended(charge, refused, turn, c.now)
	c.waits(charge, 2*firstPause)

	// As long as the provider asks, whatever its kind.
	for _, asks := range []Outcome{{Verdict: TurnedAway, RetryAfter: time.Hour}, {RetryAfter: time.Hour}} {
		c.now = c.now.Add(time.Hour)
		if c.asked("p", c.now) {
			t.Error("it asks for nothing now")
		}
		c.calls(charge, asks)
		c.waits(charge, time.Hour)
		if !c.asked("p", c.now) {
			t.Error("it asks to be left alone, and nobody knows")
		}
	}
	c.now = c.now.Add(time.Hour)
	c.calls(charge, Outcome{Verdict: TurnedAway, RetryAfter: 1<<63 - 1})
	c.waits(charge, longestAsked)

	c.now = c.now.Add(longestAsked)
	c.calls(charge, Outcome{Verdict: Refused})
	c.waits(charge, 0)
}

// What was under way when a pause began ends it in no way; what began after it does.
func TestBreakerOfCallsUnderWay(t *testing.T) {
	for _, o := range []Outcome{{Verdict: Done}, {Verdict: Refused}, {Verdict: Malformed}, {}, {Verdict: Prepared}} {
		for name, begins := range map[string]Outcome{"wrong": {Verdict: Misdirected}, "refused": refused, "redirect": {Pause: true}} {
			c := newCrossing(t)
			underWay := c.waits(refund, 0)
			c.calls(charge, begins)
			want, _, _ := c.wait(refund, c.now, 0)
			c.ended(refund, o, underWay, c.now)
			if c.waits(refund, want); want == 0 {
				t.Errorf("%s: no pause", name)
			}
			c.now = c.now.Add(want)
			c.calls(refund, o)
			c.waits(refund, 0)
		}
	}
}

// A step whose path is wrong stays paused while another step's calls do well, and
// does not stop these: of many lanes one call of it is made.
func TestBreakerOfAWrongPath(t *testing.T) {
	c := newCrossing(t)
	wrong := Outcome{Verdict: Misdirected}
	c.calls(charge, wrong)
	c.waits(charge, wrongPause)
	c.waits(refund, wrongPause) // it may be the whole address
	c.now = c.now.Add(wrongPause)
	c.calls(refund, Outcome{Verdict: Done})
	held := 0
	for range 100 {
		if left, _, turn := c.wait(charge, c.now, 10*time.Second); left == 0 {
			held++
			c.ended(charge, wrong, turn, c.now)
		}
		c.calls(refund, Outcome{Verdict: Done})
		c.now = c.now.Add(time.Second)
	}
	if held != 1 {
		t.Errorf("%d calls to a wrong path in 100 seconds, want 1", held)
	}
	// Once nothing else has done well since, nobody knows again what is wrong.
	c.now = c.now.Add(wrongPause)
	c.calls(charge, wrong)
	c.waits(refund, 0)
	c.now = c.now.Add(wrongPause)
	c.calls(charge, wrong)
	c.waits(refund, wrongPause)
}

// Calls that end without any proof pause a provider once there are several of
// them in a row, and only an answer ends that.
func TestBreakerOfUnprovenCalls(t *testing.T) {
	c := newCrossing(t)
	unproven := Outcome{Reason: "502"}
	several := func(n int) {
		t.Helper()
		for range n {
			if c.calls(charge, unproven) {
				t.Fatal("paused too early")
			}
		}
	}
	several(mostUnproven - 1)
	c.calls(charge, Outcome{Verdict: Done}) // counted anew
	several(mostUnproven - 1)
	underWay := c.waits(charge, 0)
	if !c.calls(charge, unproven) {
		t.Error("not paused")
	}
	c.waits(charge, firstPause)
	c.ended(charge, unproven, underWay, c.now)
	c.waits(charge, firstPause)
	for _, want := range []time.Duration{2 * firstPause, 4 * firstPause} {
		c.now = c.now.Add(longestPause)
		c.calls(charge, unproven)
		c.waits(charge, want)
	}
	c.now = c.now.Add(longestPause)
	c.calls(charge, Outcome{Verdict: Refused})
	c.calls(charge, unproven)
	c.waits(charge, 0)
}

// A redirect pauses the provider although it proves nothing about the call.
func TestBreakerRedirect(t *testing.T) {
	c := newCrossing(t)
	if !c.calls(charge, Outcome{Pause: true}) {
		t.Error("a redirect begins no pause")
	}
	c.waits(refund, wrongPause)
}

// Three refusals of the form in a row stop the step and no other.
func TestBreakerForms(t *testing.T) {
	c := newCrossing(t)
	wrong := Outcome{Verdict: Malformed}
	for _, o := range []Outcome{wrong, wrong, {Verdict: Refused}, wrong, wrong, {}} {
		if c.calls(charge, o) {
			t.Errorf("paused after %v", o.Verdict)
		}
	}
	c.calls(refund, wrong)
	if !c.calls(charge, wrong) {
		t.Error("not paused after three in a row")
	}
	c.waits(charge, wrongPause)
	c.waits(refund, 0)
	c.now = c.now.Add(wrongPause)
	c.calls(charge, Outcome{Verdict: Done})
	c.waits(charge, 0)
	if got := roadOf("p", Key{Order: "1", Step: "refund:R-7"}); got != refund {
		t.Errorf("road %v, want %v", got, refund)
	}
}
