package zabor

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	var b breaker
	now := time.Unix(1_000_000, 0)
	waits := func(want time.Duration) {
		t.Helper()
		if got, _ := b.wait("p", now, 10*time.Second); got != want {
			t.Fatalf("wait %v, want %v", got, want)
		}
	}
	refused := Outcome{Verdict: Unsent, Reason: "connection refused"}

	waits(0)
	if !b.ended("p", refused, now) {
		t.Error("the first refused call begins no pause")
	}
	waits(firstPause)
	if other, _ := b.wait("q", now, time.Second); other != 0 {
		t.Errorf("another provider waits %v", other)
	}
	// Calls that were under way do not lengthen it.
	if b.ended("p", refused, now) {
		t.Error("the second refused call begins a pause")
	}
	waits(firstPause)

	// One is let through when it is over; the others wait for its answer.
	now = now.Add(firstPause)
	waits(0)
	waits(10 * time.Second)
	now = now.Add(10 * time.Second)
	b.ended("p", refused, now)
	waits(2 * firstPause)

	now = now.Add(2 * firstPause)
	b.ended("p", Outcome{Verdict: TurnedAway, RetryAfter: time.Minute}, now)
	waits(time.Minute)
	now = now.Add(time.Minute)
	b.ended("p", Outcome{Verdict: TurnedAway, RetryAfter: 1<<63 - 1}, now)
	waits(longestPause)

	b.ended("p", Outcome{Verdict: Refused}, now)
	waits(0)
	b.ended("p", Outcome{Verdict: Misdirected}, now)
	waits(wrongPause)
	b.ended("p", Outcome{}, now)
	waits(0)
}

// Calls that end without any proof pause a provider once there are several of
// them in a row, and only an answer ends that.
func TestBreakerOfUnprovenCalls(t *testing.T) {
	var b breaker
	now := time.Unix(1_000_000, 0)
	ended := func(o Outcome, begun bool, want time.Duration) {
		t.Helper()
		if got := b.ended("p", o, now); got != begun {
			t.Fatalf("a pause begins: %v, want %v", got, begun)
		}
		for range 2 {
			if got, _ := b.wait("p", now, 10*time.Second); got != want {
				t.Fatalf("wait %v, want %v", got, want)
			}
		}
	}
	unproven := Outcome{Reason: "502"}
	for range mostUnproven - 1 {
		ended(unproven, false, 0)
	}
	ended(Outcome{Verdict: Done}, false, 0) // counted anew
	for range mostUnproven - 1 {
		ended(unproven, false, 0)
	}
	ended(unproven, true, firstPause)
	ended(unproven, false, firstPause) // one that was under way
	for _, want := range []time.Duration{2 * firstPause, 4 * firstPause} {
		now = now.Add(longestPause)
		ended(unproven, false, want)
	}
	now = now.Add(longestPause)
	ended(Outcome{Verdict: Refused}, false, 0)
	ended(unproven, false, 0)
}
