package dashboard

import (
	"context"
	"fmt"
	"time"

	"zabor"
)

// Waiting is a message of an order that lies somewhere.
type Waiting struct {
	Key      zabor.Key // zero: the message cannot be decoded, and has the order's id in its text
	Queue    string
	Place    string    // ready, reserved, delayed, failed or quarantined
	Since    time.Time // put there; zero: not known
	Until    time.Time // its delay or its reserve ends; zero: none
	Provider string    // called for it; empty: not known
	Why      string    // it waits; empty: nothing special
}

// Sentence says where the message is, since when, and why.
func (m Waiting) Sentence() string {
	order := "A message that cannot be decoded and has this text in it"
	if m.Key.Order != "" {
		order = "Order " + m.Key.Order + " (" + m.Key.Step + ")"
	}
	var text string
	switch m.Place {
	case "reserved":
		text = order + " is with a worker of queue " + m.Queue
	case "failed":
		text = order + " is among the failed messages of queue " + m.Queue
	case "quarantined":
		text = order + " is in quarantine, from queue " + m.Queue
	default:
		text = order + " waits on queue " + m.Queue
	}
	if !m.Since.IsZero() {
		text += " for " + duration(time.Since(m.Since))
	}
	if m.Why != "" {
		text += " because " + m.Why
	} else if m.Place == "delayed" {
		text += " because its delay is not over"
	}
	return text + "."
}

// duration is d in its largest unit.
func duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours())/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
}

// findFor is how long a page searches the queues.
const findFor = 2 * time.Second

// findWaiting searches the queues for the order of body's search.
func (d *Dashboard) findWaiting(ctx context.Context, body *fencesPage) {
	if d.o.Find == nil {
		return
	}
	pauses := d.pauses(ctx)
	ctx, cancel := context.WithTimeout(ctx, findFor)
	defer cancel()
	found, more, err := d.o.Find(ctx, body.Query)
	body.Waiting, body.Partly = found, more
	if err != nil {
		body.Unsearched = err.Error()
	}
	for i, m := range found {
		for _, p := range pauses {
			if p.Provider == m.Provider && m.Provider != "" && m.Why == "" && (m.Place == "ready" || m.Place == "delayed") {
				body.Waiting[i].Why = m.Provider + " is paused"
			}
		}
	}
}
