package zabor

import (
	"context"
	"testing"
	"time"
)

// When a resolver looks at a row first, by what a write has left.
func TestDueIn(t *testing.T) {
	for name, tt := range map[string]struct {
		row  Row
		want time.Duration
	}{
		"a hook is due":        {Row{State: Settled, HookDue: "settled"}, time.Second},
		"and the row pending":  {Row{State: Pending, HookDue: "pending"}, time.Second},
		"captured":             {Row{State: Captured, Open: Open{Lease: time.Minute}}, watchCaptured},
		"captured for shortly": {Row{State: Captured, Open: Open{Lease: time.Second}}, time.Second},
		"doubt":                {Row{State: Doubt}, shortestGap},
		"pending":              {Row{State: Pending}, shortestGap},
		"released":             {Row{State: Released, Open: Open{HoldAfter: time.Hour}}, time.Hour},
		"released, no limit":   {Row{State: Released}, Never},
		"settled":              {Row{State: Settled}, Never},
		"declined":             {Row{State: Declined}, Never},
		"declined for a form":  {Row{State: Declined, Cause: ByForm}, Never},
		"held":                 {Row{State: Held}, Never},
		"later version":        {Row{State: "later-version"}, Never},
	} {
		if got := dueIn(tt.row); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// The gap between two looks grows with the doubt, and for pending rows to an hour: a
// payment that is pending for three weeks is asked about some hundred times, and not
// tens of thousands of times (fault 20).
func TestGap(t *testing.T) {
	open := func(state State, watched, silent time.Duration) Row {
		return Row{State: state, Open: Open{Watched: watched, Silent: silent}}
	}
	var r Resolver
	for _, tt := range []struct {
		row  Row
		want time.Duration
	}{
		{open(Doubt, 0, 0), shortestGap},
		{open(Doubt, time.Hour, 10*time.Second), 10 * time.Second},
		{open(Doubt, time.Hour, time.Hour), longestGap},
		{open(Pending, 0, 0), time.Second},
		{open(Pending, 10*time.Minute, 0), 10 * time.Minute},
		{open(Pending, 30*24*time.Hour, 0), longestPendingGap},
		{open(Released, 0, 0), Never},
		{open(Held, 0, 0), Never},
		{open(Settled, 0, 0), Never},
		{Row{State: Settled, HookDue: "settled"}, time.Second},
		{Row{State: Settled, HookDue: "settled", Open: Open{Watched: time.Hour}}, longestGap},
		{Row{State: Captured, ReadAt: testNow, Open: Open{SendUntil: testNow.Add(time.Minute)}}, time.Minute},
		{Row{State: Captured, ReadAt: testNow, Open: Open{SendUntil: testNow.Add(-time.Minute)}}, time.Second},
		{Row{State: Captured, ReadAt: testNow, Open: Open{SendUntil: testNow.Add(24 * time.Hour)}}, longestGap},
	} {
		if got := r.gap(tt.row); got != tt.want {
			t.Errorf("%s, watched %s, silent %s: %s, want %s", tt.row.State, tt.row.Open.Watched, tt.row.Open.Silent, got, tt.want)
		}
	}
	count := func(row Row, until time.Duration) (looks int) {
		for row.Open.Watched < until {
			gap := r.gap(row)
			row.Open.Watched += gap
			row.Open.Silent += gap
			looks++
		}
		return looks
	}
	if n := count(open(Pending, 0, 0), 21*24*time.Hour); n > 600 {
		t.Errorf("a payment pending for three weeks is asked about %d times, want at most 600", n)
	}
	if n := count(open(Doubt, 0, 0), time.Hour); n > 80 {
		t.Errorf("a doubt of an hour is asked about %d times, want at most 80", n)
	}
}

// Time counts as watched between two looks of one resolver, if no request was sent and
// no other resolver watched in between.
func TestWatched(t *testing.T) {
	now := testNow
	r := &Resolver{Now: func() time.Time { return now }, id: [16]byte{1}, last: map[Key]sight{}}
	row := func(watcher, send byte) Row {
		row := Row{Key: Key{Order: "1", Step: "charge"}, State: Doubt}
		row.Open.Watcher, row.Open.Send = [16]byte{watcher}, [16]byte{send}
		return row
	}
	for i, tt := range []struct {
		pass    time.Duration
		watcher byte
		send    byte
		want    time.Duration
	}{
		{time.Minute, 0, 7, 0},           // the first look
		{time.Minute, 1, 7, time.Minute}, // the second
		{time.Hour, 1, 7, time.Hour},
		{time.Minute, 2, 7, 0}, // another one had it in between
		{time.Minute, 1, 7, time.Minute},
		{time.Minute, 1, 8, 0}, // a request was sent
		{time.Minute, 0, 8, 0}, // its state has changed
		{time.Minute, 1, 8, time.Minute},
		{-time.Hour, 1, 8, 0}, // a clock that jumps takes nothing away
	} {
		now = now.Add(tt.pass)
		if got := r.watched(row(tt.watcher, tt.send)); got != tt.want {
			t.Errorf("look %d: %s, want %s", i+1, got, tt.want)
		}
	}
	// A new process knows of no look before.
	fresh := &Resolver{Now: r.Now, id: [16]byte{3}, last: map[Key]sight{}}
	if got := fresh.watched(row(1, 8)); got != 0 {
		t.Errorf("a new process has watched %s", got)
	}
}

// The frozen request is sent again only under all conditions at once.
func TestCanReplay(t *testing.T) {
	base := func() (*Resolver, Row) {
		row := there(Doubt, 1, func(r *Row) {
			r.Open.ReplayUntil, r.Open.Silent = testNow.Add(time.Hour), time.Minute
		})
		return &Resolver{Fence: testFence(), Replay: func(context.Context, Row) Outcome { return Outcome{} }, Now: func() time.Time { return testNow }}, row
	}
	if r, row := base(); !r.canReplay(row) {
		t.Fatal("it may not be sent again")
	}
	for name, change := range map[string]func(*Resolver, *Row){
		"no replay":                         func(r *Resolver, _ *Row) { r.Replay = nil },
		"not in doubt":                      func(_ *Resolver, row *Row) { row.State = Pending },
		"a row that was missing":            func(_ *Resolver, row *Row) { row.Cause = ByMissingRow },
		"no request":                        func(_ *Resolver, row *Row) { row.Open.Request = nil },
		"never":                             func(_ *Resolver, row *Row) { row.Open.ReplayUntil = time.Time{} },
		"a claim may send, by the database": func(_ *Resolver, row *Row) { row.Open.SendUntil = testNow.Add(time.Second) },
		"a claim may send, by the watch":    func(_ *Resolver, row *Row) { row.Open.Silent = row.Open.Lease },
		"another address":                   func(r *Resolver, _ *Row) { r.Fence.Address = func(string) string { return "elsewhere" } },
		"too late by the database":          func(_ *Resolver, row *Row) { row.Open.ReplayUntil = testNow.Add(time.Second) },
		"too late by the process": func(r *Resolver, _ *Row) {
			r.Now = func() time.Time { return testNow.Add(time.Hour) }
		},
	} {
		r, row := base()
		change(r, &row)
		if r.canReplay(row) {
			t.Errorf("%s: it may be sent again", name)
		}
	}
}

// A settled row vouches for the same kind of look-up only.
func TestSample(t *testing.T) {
	settled := Row{State: Settled, Reference: "pay_1", Prepared: "pi_1"}
	one := Row{State: Settled, Reference: "pay_1"}
	for _, tt := range []struct {
		like     Row
		sample   Row
		ok       bool
		state    State
		prepared string
	}{
		{Row{State: Pending, Reference: "x"}, settled, true, Pending, "pi_1"},
		{Row{State: Doubt, Prepared: "pi_2"}, settled, true, Settled, "pi_1"},
		{Row{State: Doubt, Prepared: "pi_2"}, one, false, "", ""},
		{Row{State: Doubt}, settled, true, Settled, ""},
		{Row{State: Doubt}, one, true, Settled, ""},
	} {
		got, ok := sample(tt.like, tt.sample)
		if ok != tt.ok || ok && (got.State != tt.state || got.Prepared != tt.prepared) {
			t.Errorf("for %+v: %s %q, %v; want %s %q, %v", tt.like, got.State, got.Prepared, ok, tt.state, tt.prepared, tt.ok)
		}
	}
}
