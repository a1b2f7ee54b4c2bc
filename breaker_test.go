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
		if got, _ := b.wait(road{"p", "charge"}, now, 10*time.Second); got != want {
			t.Fatalf("wait %v, want %v", got, want)
		}
	}
	refused := Outcome{Verdict: Unsent, Reason: "connection refused"}

	waits(0)
	if !b.ended(road{"p", "charge"}, refused, now) {
		t.Error("the first refused call begins no pause")
	}
	waits(firstPause)
	if other, _ := b.wait(road{"q", "charge"}, now, time.Second); other != 0 {
		t.Errorf("another provider waits %v", other)
	}
	// Calls that were under way do not lengthen it.
	if b.ended(road{"p", "charge"}, refused, now) {
		t.Error("the second refused call begins a pause")
	}
	waits(firstPause)

	// One is let through when it is over; the others wait once more. When it is
	// refused too, the next pause is longer, however soon its answer came.
	now = now.Add(firstPause)
	waits(0)
	waits(firstPause)
	now = now.Add(100 * time.Millisecond)
	b.ended(road{"p", "charge"}, refused, now)
	waits(2 * firstPause)

	now = now.Add(2 * firstPause)
	b.ended(road{"p", "charge"}, Outcome{Verdict: TurnedAway, RetryAfter: time.Minute}, now)
	waits(time.Minute)
	now = now.Add(time.Minute)
	b.ended(road{"p", "charge"}, Outcome{Verdict: TurnedAway, RetryAfter: 1<<63 - 1}, now)
	waits(longestPause)

	b.ended(road{"p", "charge"}, Outcome{Verdict: Refused}, now)
	waits(0)
	b.ended(road{"p", "charge"}, Outcome{Verdict: Misdirected}, now)
	waits(wrongPause)
	b.ended(road{"p", "charge"}, Outcome{}, now)
	waits(0)
}

// Calls that end without any proof pause a provider once there are several of
// them in a row, and only an answer ends that.
func TestBreakerOfUnprovenCalls(t *testing.T) {
	var b breaker
	now := time.Unix(1_000_000, 0)
	ended := func(o Outcome, begun bool, want time.Duration) {
		t.Helper()
		if got := b.ended(road{"p", "charge"}, o, now); got != begun {
			t.Fatalf("a pause begins: %v, want %v", got, begun)
		}
		for range 2 {
			if got, _ := b.wait(road{"p", "charge"}, now, 10*time.Second); got != want {
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

// A redirect pauses the provider although it proves nothing about the call.
func TestBreakerRedirect(t *testing.T) {
	var b breaker
	now := time.Unix(1_000_000, 0)
	if !b.ended(road{"p", "charge"}, Outcome{Pause: true}, now) {
		t.Error("a redirect begins no pause")
	}
	if got, _ := b.wait(road{"p", "refund"}, now, time.Second); got != wrongPause {
		t.Errorf("another step waits %v", got)
	}
}

// Three refusals of the form in a row stop the step and no other.
func TestBreakerForms(t *testing.T) {
	var b breaker
	now := time.Unix(1_000_000, 0)
	charge, refund := road{"p", "charge"}, road{"p", "refund"}
	wrong := Outcome{Verdict: Malformed}
	for _, o := range []Outcome{wrong, wrong, {Verdict: Refused}, wrong, wrong, {}} {
		if b.ended(charge, o, now) {
			t.Errorf("paused after %v", o.Verdict)
		}
	}
	b.ended(refund, wrong, now)
	if !b.ended(charge, wrong, now) {
		t.Error("not paused after three in a row")
	}
	if got, _ := b.wait(charge, now, time.Second); got != wrongPause {
		t.Errorf("the step waits %v", got)
	}
	if got, _ := b.wait(refund, now, time.Second); got != 0 {
		t.Errorf("another step waits %v", got)
	}
	now = now.Add(wrongPause)
	if got, _ := b.wait(charge, now, time.Second); got != 0 {
		t.Errorf("the step waits %v after its pause", got)
	}
	b.ended(charge, Outcome{Verdict: Done}, now)
	if got, _ := b.wait(charge, now, time.Second); got != 0 {
		t.Errorf("the step waits %v although its form is right now", got)
	}
	if got, want := roadOf("p", Key{Order: "1", Step: "refund:R-7"}), refund; got != want {
		t.Errorf("road %v, want %v", got, want)
	}
}
