package takeover

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"zabor"
	"zabor/internal/connect"
	"zabor/worker"
)

// How often other consumers are looked for while a worker runs, and how long one
// that was told of is not told of again.
const (
	watchEvery = 2 * time.Second
	toldFor    = time.Minute
)

// WatchOthers alerts of new consumers on s while zabor takes from it, until ctx
// ends.
func WatchOthers(ctx context.Context, log *slog.Logger, alert func(zabor.Alert), s connect.Queue) {
	w := watch{seen: map[string]time.Time{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first, broken := true, false; ; {
		others, err := s.Others(ctx)
		if err != nil && !broken && ctx.Err() == nil {
			log.Warn("cannot look for other consumers; trying again", "queue", s.Name(), "error", err)
		}
		broken = err != nil
		if !broken {
			if first { // the start has told of messages in hand then
				w.ignore(others, time.Now())
			}
			first = false
			if news := w.news(others, time.Now()); len(news) > 0 {
				alert(foreign(s, news))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// foreign returns the alert about other consumers than zabor's.
func foreign(s connect.Queue, others []worker.Other) zabor.Alert {
	text := fmt.Sprintf("queue %s: %s, and is not zabor's", s.Name(), others[0].What)
	if more := len(others) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more such sights)", more)
	}
	return zabor.Alert{
		Severity: zabor.Critical,
		Code:     "foreign-consumer",
		Text:     text + ". What it has and does not finish cannot be told from what was never begun: such a charge may be made twice",
		Next:     others[0].Stop + "; then look at what it had: zabor fence list --state doubt,held",
	}
}

// watch remembers the other consumers seen.
type watch struct {
	seen    map[string]time.Time // by name, when last
	due     []worker.Other
	alerted time.Time
}

// ignore remembers the messages of others, without an alert.
func (w *watch) ignore(others []worker.Other, now time.Time) {
	for _, o := range others {
		if !o.Named {
			w.seen[o.Name] = now
		}
	}
}

// news returns the consumers to alert of now: those new since the last alert, at
// most once in toldFor.
func (w *watch) news(others []worker.Other, now time.Time) []worker.Other {
	for _, o := range others {
		if _, known := w.seen[o.Name]; !known {
			w.due = append(w.due, o)
		}
		w.seen[o.Name] = now
	}
	maps.DeleteFunc(w.seen, func(_ string, seen time.Time) bool { return now.Sub(seen) > toldFor })
	if len(w.due) == 0 || now.Sub(w.alerted) < toldFor {
		return nil
	}
	news := w.due
	w.alerted, w.due = now, nil
	return news
}
