package zabor

import (
	"fmt"
	"log/slog"
	"time"
)

// Severity says how soon a person must look.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"  // look today
	Critical Severity = "critical" // look now: money may have moved twice, or moved unseen
)

// Alert is an event that a person must know.
type Alert struct {
	Severity Severity
	Code     string // stable, such as "held" or "two-references"
	Key      Key
	State    State
	Amount   Money
	Provider string
	Text     string // what happened, and what was not done
	Next     string // the command to type next; may be empty
}

// Checkpoint is a point in the life of a call at which a process can die.
type Checkpoint string

// The checkpoints of [Fence.Do], in order. The worker adds those of the ack.
const (
	Capturing Checkpoint = "capturing" // before the capture is sent to the database
	Sending   Checkpoint = "sending"   // the capture is committed, nothing was sent
	Answered  Checkpoint = "answered"  // the answer was read, nothing was saved
	Saved     Checkpoint = "saved"     // the outcome is committed
)

// Observer is told what a fence does. Each field may be nil. The functions are
// called from many goroutines and must return at once.
type Observer struct {
	Alert  func(Alert)                                  // a person must know
	At     func(Checkpoint, Key)                        // a key passes a checkpoint, in the goroutine that passes it
	Called func(row Row, o Outcome, took time.Duration) // a call of Do has ended; took includes both requests of two
	Log    *slog.Logger                                 // each call's end, and each alert
}

func (o Observer) at(c Checkpoint, k Key) {
	if o.At != nil {
		o.At(c, k)
	}
}

func (o Observer) called(row Row, outcome Outcome, took time.Duration) {
	if o.Called != nil {
		o.Called(row, outcome, took)
	}
	if o.Log != nil {
		o.Log.Info("called", "key", row.Key.String(), "provider", row.Provider, "verdict", outcome.Verdict.String(), "reference", outcome.Reference, "reason", outcome.Reason, "took", took)
	}
}

func (o Observer) alert(row Row, s Severity, code, text string) {
	if o.Log != nil {
		o.Log.Warn(text, "alert", code, "severity", string(s), "key", row.Key.String(), "state", string(row.State), "provider", row.Provider)
	}
	if o.Alert != nil {
		a := Alert{Severity: s, Code: code, Key: row.Key, State: row.State, Amount: row.Amount, Provider: row.Provider, Text: text}
		if row.Order != "" {
			a.Next = row.ShowCommand()
		}
		o.Alert(a)
	}
}

// alertPaused says that a pause begins by o, the end of a call for row.
func (o Observer) alertPaused(row Row, outcome Outcome) {
	text := row.Provider + " does nothing with what it is sent"
	switch {
	case outcome.Verdict == Misdirected && !outcome.Pause:
		text = row.Provider + " has nothing where this step's requests go"
	case outcome.Verdict == Malformed:
		text = fmt.Sprintf("%s has refused the form of %d requests of this step in a row", row.Provider, maxMalformed)
	case outcome.Pause:
		text = "another server answers in the place of " + row.Provider
	case outcome.Verdict == Unproven && outcome.RetryAfter > 0:
		text = row.Provider + " asks to be left alone"
	case outcome.Verdict == Unproven:
		text = fmt.Sprintf("%s has answered none of %d calls in a row with a proof of what it did", row.Provider, maxUnproven)
	}
	o.alert(row, Warning, "provider-paused", text+". Nothing is sent to it for a while: "+outcome.Reason)
}

// alertSaved says what a person must know of the write that led from before to row.
func (o Observer) alertSaved(before, row Row) {
	switch {
	case row.OtherReference != "" && before.OtherReference == "":
		o.alert(row, Critical, "two-references", row.Reason+": money may have moved twice")
	case row.Reference != "" && before.State == Declined,
		row.Reference != "" && before.Cause == ByPerson && before.State != row.State:
		o.alert(row, Critical, "late-success", fmt.Sprintf("the row was %s (%s), and then the provider's success %s arrived", before.State, before.Cause, row.Reference))
	case row.State == Held && row.Cause == ByConflict && before.State != Held:
		o.alert(row, Critical, "conflict", row.Reason)
	case row.State == Held && before.State != Held:
		o.alert(row, Warning, "held", row.Reason)
	case row.State == Declined && row.Cause == ByForm && before.State != Declined:
		o.alert(row, Warning, "malformed", "the provider refuses the form of the request: "+row.Reason)
	}
}
