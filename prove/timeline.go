package prove

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Event is something that happened in a cell.
type Event struct {
	At   float64 `json:"ms"` // milliseconds since the cell began
	Who  string  `json:"who"`
	Kind Kind    `json:"kind"`
	Text string  `json:"text"`
}

// Kind is what sort of event it is.
type Kind string

// The kinds.
const (
	Began    Kind = "began"    // a process
	Froze    Kind = "froze"    // SIGSTOP
	Thawed   Kind = "thawed"   // SIGCONT
	Told     Kind = "told"     // SIGTERM
	Died     Kind = "died"     // SIGKILL
	Ended    Kind = "ended"    // by itself
	Said     Kind = "said"     // a line of its log
	Asked    Kind = "asked"    // the provider has a request
	Moved    Kind = "moved"    // money
	LookedUp Kind = "lookedup" // at the provider
	Put      Kind = "put"      // a message
)

// Those that a timeline tells of.
const (
	before   = "worker 0" // dies before the cell's own death
	first    = "worker 1"
	second   = "worker 2"
	provides = "provider"
	queued   = "queue"
)

// timeline takes events from many goroutines.
type timeline struct {
	start time.Time
	veil  *veil

	mu     sync.Mutex
	events []Event
}

func (p *Place) newTimeline() *timeline { return &timeline{start: time.Now(), veil: p.veil} }

func (t *timeline) add(who string, kind Kind, format string, args ...any) {
	text := t.veil.over(fmt.Sprintf(format, args...))
	t.mu.Lock()
	defer t.mu.Unlock()
	at := float64(time.Since(t.start).Microseconds()) / 1000
	t.events = append(t.events, Event{at, who, kind, text})
}

// all are the events so far, in their order.
func (t *timeline) all() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Event(nil), t.events...)
}

// ofTheStart begin what every worker says before it takes a message, and what one
// that waits for the end says: nothing of it is about the order.
var ofTheStart = [...]string{
	"the queue is zabor's from now on", "cannot tell whether Redis evicts", "there is no failure transport", "draining: ",
}

// told is the text of one line that a worker logged; empty: it tells nothing of a
// charge.
func told(line []byte) string {
	if !bytes.HasPrefix(line, []byte("{")) {
		return strings.TrimPrefix(strings.TrimSpace(string(line)), "zabor: ")
	}
	var entry map[string]any
	if json.Unmarshal(line, &entry) != nil {
		return ""
	}
	text, _ := entry["msg"].(string)
	switch text {
	case "started", "provider", "queue":
		return ""
	}
	if slices.ContainsFunc(ofTheStart[:], func(known string) bool { return strings.HasPrefix(text, known) }) {
		return ""
	}
	for _, name := range []string{"state", "reference", "delay", "reason", "error"} {
		switch v := entry[name].(type) {
		case string:
			text += ", " + name + " " + v
		case float64:
			text += ", " + name + " " + time.Duration(v).String()
		}
	}
	return text
}
