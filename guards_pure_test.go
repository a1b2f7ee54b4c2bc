package zabor

import (
	"context"
	"testing"
	"time"
)

// The frozen request is not sent again if one clock alone says that the provider has
// forgotten its key.
func TestNoReplayTooLateByOneClock(t *testing.T) {
	for name, tt := range map[string]struct {
		database, process time.Duration
		want              bool
	}{
		"by none":         {0, 0, true},
		"by the database": {time.Hour, 0, false},
		"by the process":  {0, time.Hour, false},
	} {
		row := there(Doubt, 1, func(r *Row) {
			r.ReadAt = testNow.Add(tt.database)
			r.Open.ReplayUntil, r.Open.Silent = testNow.Add(time.Hour), time.Minute
		})
		r := &Resolver{Fence: testFence(), Replay: func(context.Context, Row) Outcome { return Outcome{} }, Now: func() time.Time { return testNow.Add(tt.process) }}
		if got := r.canReplay(row); got != tt.want {
			t.Errorf("too late %s: %v, want %v", name, got, tt.want)
		}
	}
}
