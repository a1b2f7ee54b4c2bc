package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

// Who owns a queue. Zabor alone does, unless the configuration says that it is
// shared: a message that a PHP worker has had may have been charged by it, under
// no key that zabor could look up. So other consumers stop a start, and a queue is
// taken over only when what others have had is in the table: a marker in
// zabor_meta says so from then on.

// checkOthers refuses to take messages beside others than zabor.
func (p *program) checkOthers(ctx context.Context, s connect.Queue) error {
	others, err := s.Others(ctx)
	if err != nil {
		return exit.Unreachable(err, "nothing was taken; is Redis up, and is its address right?")
	}
	if s.Shared {
		p.log.Warn("the queue is shared: a charge that zabor has begun and could not finish may be given to a PHP worker, which knows no fence", "queue", s.Name(), "others", len(others))
		return nil
	}
	for _, o := range others {
		if o.Named {
			return exit.Usage(fmt.Errorf("queue %s: %s, and is not zabor's: a charge that it began would be made again", s.Name(), o.What),
				fmt.Sprintf("nothing was started; %s. Where PHP workers are to take from it too, write queues.%s.shared: true", o.Stop, s.Name()))
		}
		p.log.Warn(o.What+"; if it still lives, it will take more", "queue", s.Name(), "fix", o.Stop)
	}
	return nil
}

// How often other consumers are looked for while a worker runs, and how long one
// that was told of is not told of again.
const (
	watchEvery = 2 * time.Second
	toldFor    = time.Minute
)

// watchOthers tells of consumers that come to a queue while zabor takes from it,
// until ctx ends.
func (p *program) watchOthers(ctx context.Context, s connect.Queue) {
	w := watch{seen: map[string]time.Time{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first, broken := true, false; ; {
		others, err := s.Others(ctx)
		if err != nil && !broken && ctx.Err() == nil {
			p.log.Warn("cannot look for other consumers; trying again", "queue", s.Name(), "error", err)
		}
		broken = err != nil
		if !broken {
			if first { // who had a message before this process took one was told at its start
				w.ignore(others, time.Now())
			}
			first = false
			if news := w.news(others, time.Now()); len(news) > 0 {
				p.alert(foreign(s, news))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

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

// watch knows which other consumers were seen.
type watch struct {
	seen   map[string]time.Time // by name, when last
	untold []worker.Other
	told   time.Time
}

// ignore makes no news of messages that others have.
func (w *watch) ignore(others []worker.Other, now time.Time) {
	for _, o := range others {
		if !o.Named {
			w.seen[o.Name] = now
		}
	}
}

// news are the consumers to be told of now: those that have come since the last
// news, at most once in toldFor.
func (w *watch) news(others []worker.Other, now time.Time) []worker.Other {
	for _, o := range others {
		if _, known := w.seen[o.Name]; !known {
			w.untold = append(w.untold, o)
		}
		w.seen[o.Name] = now
	}
	maps.DeleteFunc(w.seen, func(_ string, seen time.Time) bool { return now.Sub(seen) > toldFor })
	if len(w.untold) == 0 || now.Sub(w.told) < toldFor {
		return nil
	}
	news := w.untold
	w.told, w.untold = now, nil
	return news
}

// A marker names the queue as the configuration does, and holds lines, each with a
// place that the queue is or was at: under another prefix it is another queue. A place
// alone says that the queue was taken over there, a place and a class that messages of
// that class were, and a place and «imported» that an import has looked at all of it
// since. Only a drain that leaves nothing takes a place away.

func markerName(file *config.Config, s connect.Queue) string {
	return "queue:" + file.Scope + "/" + s.Name()
}

// marker is what the marker of a queue says.
type marker struct {
	place string // of the queue now
	lines []string
}

func readMarker(ctx context.Context, file *config.Config, store *sqlstore.Store, s connect.Queue) (marker, error) {
	value, _, err := store.Meta().Get(ctx, markerName(file, s))
	if err != nil {
		return marker{}, exit.Store(err)
	}
	return marker{s.Location(), strings.FieldsFunc(string(value), func(r rune) bool { return r == '\n' })}, nil
}

func (m marker) write(ctx context.Context, file *config.Config, store *sqlstore.Store, s connect.Queue) error {
	if err := store.Meta().Set(ctx, markerName(file, s), []byte(strings.Join(m.lines, "\n"))); err != nil {
		return exit.Store(err)
	}
	return nil
}

func (m marker) classLine(class string) string {
	return m.place + " class " + strconv.Quote(strings.TrimPrefix(class, `\`))
}
func (m marker) importLine() string { return m.place + " imported" }

// owned reports whether the queue was taken over.
func (m marker) owned() bool { return slices.Contains(m.lines, m.place) }

// takes reports whether the queue was taken over when messages of class had a step.
func (m marker) takes(class string) bool {
	return m.owned() && slices.Contains(m.lines, m.classLine(class))
}

// imported reports whether an import has looked at the queue since it was last taken
// over.
func (m marker) imported() bool { return slices.Contains(m.lines, m.importLine()) }

// new are the classes of steps that were not taken over yet.
func (m marker) new(steps []*step.Step) (classes []string) {
	for _, s := range steps {
		for _, class := range s.Classes() {
			if !m.takes(class) {
				classes = append(classes, class)
			}
		}
	}
	return classes
}

// imported writes that an import has looked at all of s.
func imported(ctx context.Context, file *config.Config, store *sqlstore.Store, s connect.Queue) error {
	m, err := readMarker(ctx, file, store, s)
	if err != nil || m.imported() {
		return err
	}
	m.lines = append(m.lines, m.importLine())
	return m.write(ctx, file, store, s)
}

// own writes that s was taken over, with messages of these classes.
func own(ctx context.Context, file *config.Config, store *sqlstore.Store, s connect.Queue, classes []string) error {
	m, err := readMarker(ctx, file, store, s)
	if err != nil {
		return err
	}
	if !m.owned() { // what it took before it was given away counts no more
		m = m.without()
		m.lines = append(m.lines, m.place)
	}
	m.lines = slices.DeleteFunc(m.lines, func(line string) bool { return line == m.importLine() })
	for _, class := range classes {
		if !m.takes(class) {
			m.lines = append(m.lines, m.classLine(class))
		}
	}
	return m.write(ctx, file, store, s)
}

// disown writes that s is not zabor's any more: a start looks at all of it anew. The
// table still knows which installation had it.
func disown(ctx context.Context, file *config.Config, store *sqlstore.Store, s connect.Queue) error {
	m, err := readMarker(ctx, file, store, s)
	if err != nil {
		return err
	}
	if err := s.Redis.Del(ctx, s.ScopeKey()).Err(); err != nil {
		return exit.Unreachable(fmt.Errorf("queue %s: %w", s.Name(), err), "nothing was changed; is Redis up?")
	}
	return m.without().write(ctx, file, store, s)
}

// without is m without what it says of its place.
func (m marker) without() marker {
	m.lines = slices.DeleteFunc(m.lines, func(line string) bool { return line == m.place || strings.HasPrefix(line, m.place+" ") })
	return m
}

// takeOver owns the queues that were not yet, and messages of classes that had no step
// before. Where others have had such messages it refuses: without rows, they would be
// called for as if nobody had.
func (p *program) takeOver(ctx context.Context, i *importer, list []connect.Queue) error {
	for _, s := range list {
		m, err := readMarker(ctx, i.file, i.store, s)
		if err != nil {
			return err
		}
		classes := m.new(i.steps)
		if m.owned() && len(classes) == 0 {
			continue
		}
		i.passOver = func(class string) bool { return !slices.Contains(classes, strings.TrimPrefix(class, `\`)) }
		found, err := i.queue(ctx, s)
		if err != nil {
			return err
		}
		unkeyed := found.WithoutKey
		if m.imported() { // they were told of then
			unkeyed = 0
		}
		if n := found.Held + unkeyed; n > 0 {
			// Unless another process was faster, and has messages in hand by now.
			if m, err := readMarker(ctx, i.file, i.store, s); err != nil || m.owned() && len(m.new(i.steps)) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			what := "zabor has never taken from it"
			if m.owned() {
				what = "messages of " + strings.Join(classes, ", ") + " had no step so far"
			}
			return exit.Usage(fmt.Errorf("queue %s: %s, and it holds %d messages that another worker has had and that have no row (%s): each may have been charged, and would be charged again",
				s.Name(), what, n, found.hadText()), "nothing was started; hold them with \""+importCommandLine(i.file, s)+"\" (add --dry-run to see first), then start again")
		}
		if n := found.WithoutKey; n > 0 {
			p.log.Warn("messages that another worker has had have no key, and no row holds them: they are parked, and nothing is called; import again before one is retried that has a key by then", "queue", s.Name(), "messages", n)
		}
		if err := own(ctx, i.file, i.store, s, classes); err != nil {
			return err
		}
		p.log.Info("the queue is zabor's from now on", "queue", s.Name(), "messages", found.Messages)
	}
	return nil
}

// importCommandLine is the import of s as a person types it.
func importCommandLine(file *config.Config, s connect.Queue) string {
	words := []string{"zabor", "import", "-c", file.Path, "--queue", s.Name()}
	for n, word := range words {
		if strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,", r)
		}) {
			words[n] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
