package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"zabor"
	"zabor/step"
)

// Bus says what becomes of messages that have no step. A pattern is a class's
// name, the beginning of one before a star at its end, or a star alone.
type Bus struct {
	// Forward moves a message unchanged to the queue named here: of those
	// patterns that match, the longest counts.
	Forward map[string]string
	// Refuse parks a message, with an alert. It counts before Forward's star.
	Refuse []string
}

// matches reports whether class is the one that pattern names, or begins as it
// does before its star.
func matches(pattern, class string) bool {
	if before, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(class, before)
	}
	return class == pattern
}

// target is the queue to which messages of class are forwarded.
func (b Bus) target(class string) (queue string, found bool) {
	best := ""
	for pattern := range b.Forward {
		if matches(pattern, class) && len(pattern) > len(best) {
			best = pattern
		}
	}
	if best == "*" && b.refuses(class) {
		return "", false
	}
	return b.Forward[best], best != ""
}

func (b Bus) refuses(class string) bool {
	return slices.ContainsFunc(b.Refuse, func(pattern string) bool { return matches(pattern, class) })
}

// Fate is what becomes of a message that has no step.
type Fate int

// The fates.
const (
	Parked     Fate = iota // it goes to the failure transport, for a person
	Refused                // likewise, since its class must not be on a bus
	Forwarded              // it is moved unchanged to another queue
	KeptAsItIs             // it cannot be decoded, and its bytes are kept in zabor's own table
)

// Fate says what becomes of m, which has no step: to which queue it is forwarded,
// and why it is anything else. A job that zabor could not run itself, such as one
// of a chain, is forwarded all the same; one that is no message of its queue never.
func (b Bus) Fate(m *Message) (fate Fate, target, why string) {
	target, known := b.target(m.Class)
	switch {
	case errors.Is(m.Err, ErrUnreadable):
		return KeptAsItIs, "", m.Err.Error()
	case m.Class != "" && known:
		return Forwarded, target, ""
	case m.Class != "" && b.refuses(m.Class):
		return Refused, "", "messages of this class must not be on a bus (bus.refuse); nothing was called"
	case m.Err != nil:
		return Parked, "", m.Err.Error()
	}
	return Parked, "", fmt.Sprintf("no step is configured for %s; nothing was called", m.Class)
}

// withoutStep answers a message that has no step.
func (w *Worker) withoutStep(ctx context.Context, q Queue, m *Message) {
	switch fate, target, why := w.Bus.Fate(m); fate {
	case KeptAsItIs:
		w.keepBytes(ctx, q, m, why)
	case Forwarded:
		w.forward(ctx, q, m, target)
	case Refused:
		w.park(ctx, q, m, zabor.Key{}, zabor.Row{}, nil, "refused", why)
	default:
		w.park(ctx, q, m, zabor.Key{}, zabor.Row{}, nil, "parked", why)
	}
}

// stepOf is the step of m; nil: it has none.
func (w *Worker) stepOf(m *Message) *step.Step {
	i := slices.IndexFunc(w.Steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	if i < 0 {
		return nil
	}
	return w.Steps[i]
}

func (w *Worker) forward(ctx context.Context, q Queue, m *Message, queue string) {
	err := w.answer(ctx, q, m, "forward", 0, func(ctx context.Context) error { return q.Forward(ctx, m, queue) })
	if err == nil {
		w.Log.Info("forwarded", "queue", q.Name(), "message", m.ID, "class", m.Class, "to", queue)
	}
}

// toldAlready is the code of an alert that the fence has given.
const toldAlready = ""

// Told hears each alert of the fence, from whoever delivers them, so that the
// parking of the message of a row that was just held is no second alert. One that
// another process gave is not known here: two are better than none, should that
// process have died before it could tell anybody.
func (w *Worker) Told(a zabor.Alert) {
	if a.Code == "held" || a.Code == "malformed" {
		w.told.add(a.Key)
	}
}

// told are keys whose rows wait for a person, who was told and whose message is
// not parked yet.
type told struct {
	mu   sync.Mutex
	keys map[zabor.Key]bool
}

// mostTold bounds what is remembered: rows may be held whose message never comes.
const mostTold = 10_000

func (t *told) add(k zabor.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys == nil || len(t.keys) >= mostTold {
		t.keys = map[zabor.Key]bool{}
	}
	t.keys[k] = true
}

// taken reports whether k was there, and removes it.
func (t *told) taken(k zabor.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.keys[k]
	delete(t.keys, k)
	return was
}

// alertParked tells that m waits for a person, and where it is now.
func (w *Worker) alertParked(q Queue, m *Message, key zabor.Key, row zabor.Row, code, where, why string) {
	if w.Fence.Alert == nil {
		return
	}
	next := "zabor failed list"
	if row.State != "" {
		next = key.ShowCommand()
	}
	w.Fence.Alert(zabor.Alert{
		Severity: zabor.Warning, Code: code, Key: key, State: row.State, Amount: row.Amount, Provider: row.Provider,
		Text: fmt.Sprintf("message %s of %s on queue %s is in %s: %s", m.ID, cmp.Or(m.Class, "an unknown class"), q.Name(), where, why),
		Next: next,
	})
}
