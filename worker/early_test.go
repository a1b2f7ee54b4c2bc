package worker

import (
	"testing"
	"time"

	"zabor/step"
)

// A message is given up by its own age, and after three looks at least.
func TestEarly(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	message := func(sent time.Time) *Message { return &Message{Message: step.Message{}, ID: "m", Sent: sent} }
	for _, tt := range []struct {
		name string
		sent time.Time
		at   []time.Duration // of each look, after the first
		over bool            // at the last one
	}{
		{"new", now, []time.Duration{0, time.Minute, 299 * time.Second}, false},
		{"old enough by now", now, []time.Duration{0, time.Minute, 5 * time.Minute}, true},
		{"no time is known", time.Time{}, []time.Duration{0, time.Minute, 5 * time.Minute}, true},
		{"no time is known, and it is young", time.Time{}, []time.Duration{0, time.Minute, 299 * time.Second}, false},
		{"old when it comes", now.Add(-time.Hour), []time.Duration{0, time.Second}, false},
		{"old when it comes, third look", now.Add(-time.Hour), []time.Duration{0, time.Second, 2 * time.Second}, true},
		{"from the future", now.Add(time.Hour), []time.Duration{0, time.Minute, 5 * time.Minute}, true},
		{"from the future, and young", now.Add(time.Hour), []time.Duration{0, time.Minute, 299 * time.Second}, false},
	} {
		var e early
		m, over := message(tt.sent), false
		for _, after := range tt.at {
			if over {
				t.Errorf("%s: given up before its last look", tt.name)
			}
			over = e.look(m, now.Add(after))
		}
		if over != tt.over {
			t.Errorf("%s: given up: %v, want %v", tt.name, over, tt.over)
		}
		if over && len(e.all) != 0 {
			t.Errorf("%s: it is remembered", tt.name)
		}
	}
	for first, want := range map[time.Duration][]float64{
		time.Second:      {1, 2, 4, 8, 16, 30, 30},
		10 * time.Second: {10, 20, 30, 30},
		time.Minute:      {60, 60},
	} {
		var e early
		m := message(now)
		for i, seconds := range want {
			e.look(m, now)
			if got := e.gap(m, first).Seconds(); got != seconds {
				t.Errorf("first %s, look %d: waits %g s, want %g s", first, i+1, got, seconds)
			}
		}
		if e.forget(m); len(e.all) != 0 {
			t.Error("it is remembered")
		}
	}
}
