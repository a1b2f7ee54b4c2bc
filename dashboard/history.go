package dashboard

import (
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// Event is one thing that happened to a row.
type Event struct {
	At    time.Time `json:"at"`
	What  string    `json:"what"`           // in words
	By    string    `json:"by,omitempty"`   // the person; empty: zabor
	Text  string    `json:"text,omitempty"` // details; may be technical
	Class string    `json:"-"`              // its colour on a page
}

// History returns the known events of row, oldest first. notes are all notes on the row.
func History(row zabor.Row, notes []zabor.Note) []Event {
	var events []Event
	add := func(at time.Time, class, what, by, text string) {
		if !at.IsZero() {
			events = append(events, Event{At: at, What: what, By: by, Text: text, Class: class})
		}
	}
	imported := slices.ContainsFunc(notes, func(n zabor.Note) bool { return n.Kind == zabor.Imported })
	switch {
	case imported: // its note says it
	case row.Cause == zabor.ByImport:
		add(row.CapturedAt, "plain", "Imported", "", row.Reason)
	case row.Tries > 0 || row.Unproven > 0:
		text := "the row was committed before anything was sent"
		if row.Provider != "" {
			text += ", for a call to " + row.Provider
		}
		add(row.CapturedAt, "plain", "Captured", "", text)
	default:
		add(row.CapturedAt, "plain", "Written", "", "the row was written; no call was made for it")
	}
	last := zabor.State("") // the latest state in the notes
	for _, n := range notes {
		what, class := noteWords(n)
		add(n.At, class, what, n.By, n.Text)
		if state := entered(n); state != "" {
			last = state
		} else if n.Kind == zabor.Imported {
			last = row.State // the note names it
		}
	}
	if last != row.State && row.State != zabor.Captured && row.Cause != zabor.ByImport {
		text := row.Reason
		if row.Reference != "" {
			text = strings.TrimPrefix(text+"; reference "+row.Reference, "; ")
		}
		add(row.StateSince, stateClass(row.State), title(string(row.State)), "", text)
	}
	if row.State == zabor.Captured && !row.Open.SendUntil.IsZero() {
		add(row.Open.SendUntil, "plain", "Lease ends", "", "this call cannot be sent later")
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events
}

// Imported reports whether row was imported and zabor has made no call for it. Then
// its time and its provider key say nothing of the call that may have charged.
func Imported(row zabor.Row, notes []zabor.Note) bool {
	imported := row.Cause == zabor.ByImport || row.Cause == zabor.ByConflict && row.Open.Lease == 0
	for _, n := range notes {
		switch n.Kind {
		case zabor.Imported:
			imported = true
		case string(zabor.Captured):
			imported = false
		}
	}
	return imported
}

// people returns the events of notes by people, newest first.
func people(notes []zabor.Note) []Event {
	var events []Event
	for _, n := range slices.Backward(notes) {
		if n.By != "" {
			what, class := noteWords(n)
			events = append(events, Event{At: n.At, What: what, By: n.By, Text: n.Text, Class: class})
		}
	}
	return events
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// entered returns the state that a row has after n. Empty: n tells of no state.
func entered(n zabor.Note) zabor.State {
	switch zabor.Action(n.Kind) {
	case zabor.Settle:
		return zabor.Settled
	case zabor.Decline:
		return zabor.Declined
	case zabor.Release:
		return zabor.Released
	case zabor.Hold:
		return zabor.Held
	}
	if state, known := zabor.ParseState(n.Kind); known {
		return state
	}
	return ""
}

func noteWords(n zabor.Note) (what, class string) {
	switch zabor.Action(n.Kind) {
	case zabor.Settle:
		return "Decided: charged", "good"
	case zabor.Decline:
		return "Decided: not charged, cancel", "plain"
	case zabor.Release:
		return "Decided: not charged, charge again", "plain"
	case zabor.Hold:
		return "Decided: hold it", "bad"
	}
	if state, known := zabor.ParseState(n.Kind); known {
		words := title(n.Kind)
		if state == zabor.Captured {
			words = "Captured again"
		}
		return words, stateClass(state)
	}
	switch n.Kind {
	case "evidence":
		return "A late answer", "warn"
	case zabor.Imported:
		return "Imported", "plain"
	case lookedUp:
		return "Looked up at the provider", "plain"
	case answerDealt:
		return "A success without a row was dealt with", "good"
	case messageRetried:
		return "Its message was put back on its queue", "plain"
	case messageForgotten:
		return "Its message was forgotten", "warn"
	case messageLeft:
		return "Its message could not be moved", "warn"
	case sqlstore.Refunded:
		return "The second reference was dealt with", "good"
	}
	return title(n.Kind), "plain"
}

func stateClass(s zabor.State) string {
	switch s {
	case zabor.Settled:
		return "good"
	case zabor.Doubt:
		return "warn"
	case zabor.Declined, zabor.Released, zabor.Captured, zabor.Pending:
		return "plain"
	}
	return "bad"
}

// step is a station of a row's life, for the picture above its page.
type step struct {
	Name string
	Done bool
	Now  bool
}

// life returns the stations of row. It shows only what has happened, and what a
// row in an open state can still become.
func life(row zabor.Row, imported bool) []step {
	first := step{Name: "captured", Done: true, Now: row.State == zabor.Captured}
	if imported {
		first.Name = "imported"
	}
	steps := []step{first}
	if row.State != zabor.Captured {
		steps = append(steps, step{Name: string(row.State), Done: true, Now: true})
	}
	switch row.State {
	case zabor.Settled, zabor.Declined, zabor.Released:
	default:
		steps = append(steps, step{Name: "decided"})
	}
	return steps
}

// why says in plain words why row is in its state. detail is the technical text;
// empty: there is none, or by is the person whose words why has.
func why(row zabor.Row) (words, detail string) {
	detail = row.Reason
	switch row.Cause {
	case zabor.ByPerson:
		return row.Reason, ""
	case zabor.ByImport:
		if row.State == zabor.Settled {
			return "Imported as paid.", detail
		}
		return "Imported. Another program had this job before zabor, and may have charged.", detail
	case zabor.ByConflict:
		return "One order may have two payments, or one payment two orders.", detail
	case zabor.ByMissingRow:
		return "The job was delivered before and left no record here. It may have been charged.", detail
	case zabor.ByAbsence:
		return "zabor asked the provider late enough: no payment was made.", detail
	case zabor.ByLookup:
		if row.State == zabor.Declined {
			return "zabor asked the provider: the payment was declined.", detail
		}
		return "zabor asked the provider and found the payment.", detail
	case zabor.ByForm:
		return "The provider refused the form of the request. Nothing was charged.", detail
	case zabor.ByExpiry:
		if row.State == zabor.Held {
			return expiredWords(row.Reason), detail
		}
		return "The call was begun and its result was never saved. It may have been charged.", detail
	}
	switch row.State {
	case zabor.Held:
		return "The provider had nothing at the address of this charge, or sent it elsewhere. Check the provider before you charge again.", detail
	case zabor.Doubt:
		return doubtWords(row.Reason), detail
	case zabor.Declined:
		return "The provider said no. Nothing was charged.", detail
	case zabor.Released:
		return "Nothing was charged by the last attempt.", detail
	case zabor.Pending:
		return "The provider has begun it, and has not said yet how it ends.", detail
	case zabor.Settled:
		return "The provider said yes.", detail
	}
	return "", detail
}

// doubtWords says in plain words why an answer proves nothing.
func doubtWords(reason string) string {
	for _, one := range [...]struct{ has, words string }{
		{"deadline exceeded", "The provider did not answer in time."},
		{"timeout", "The provider did not answer in time."},
		{"connection reset", "The connection broke before the whole answer came."},
		{"EOF", "The connection broke before the whole answer came."},
		{"broken pipe", "The connection broke before the whole answer came."},
		{"says nothing that the profile lists", "The provider answered with a status that zabor.yaml does not list."},
	} {
		if strings.Contains(reason, one.has) {
			return one.words + " It may have charged."
		}
	}
	return "No answer came that says whether it was charged."
}

// expiredWords says in plain words why zabor could not find out.
func expiredWords(reason string) string {
	words := "zabor asked the provider until its time was over, and no answer was a proof."
	if strings.Contains(reason, "no look-up configured") {
		words = "zabor cannot ask this provider what became of it."
	}
	if first := doubtWords(reason); first != doubtWords("") {
		words = first + " " + words
	}
	return words
}

// lastAnswer is the provider's latest answer in words; empty: none is known. It is
// never a person's text.
func lastAnswer(row zabor.Row) string {
	switch row.Cause {
	case zabor.ByCall, zabor.ByForm, zabor.ByLookup:
		if row.State != zabor.Captured {
			return row.Reason
		}
	}
	return ""
}
