package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/sqlstore"
	"zabor/worker"
)

// Who owns a queue. Zabor alone does, unless the configuration says that it is
// shared: a message that a PHP worker has had may have been charged by it, under
// no key that zabor could look up. So other consumers stop a start, and a queue is
// taken over only when what others have had is in the table: a marker in
// zabor_meta says so from then on.

// checkOthers refuses to take messages beside others than zabor.
func (p *program) checkOthers(ctx context.Context, s queue) error {
	others, err := s.Others(ctx)
	if err != nil {
		return unreachable(err, "nothing was taken; is Redis up, and is its address right?")
	}
	if s.shared {
		p.log.Warn("the queue is shared: a charge that zabor has begun and could not finish may be given to a PHP worker, which knows no fence", "queue", s.Name(), "others", len(others))
		return nil
	}
	for _, o := range others {
		if o.Named {
			return usage(fmt.Errorf("queue %s: %s, and is not zabor's: a charge that it began would be made again", s.Name(), o.What),
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
func (p *program) watchOthers(ctx context.Context, s queue) {
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

func foreign(s queue, others []worker.Other) zabor.Alert {
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

// A marker names the queue as the configuration does, and holds each place that the
// queue was taken over at, a line each: under another prefix it is another queue.

func marker(file *config.Config, s queue) string { return "queue:" + file.Scope + "/" + s.Name() }

// place is where s is, without its server: that may be reached by many names.
func (s queue) place() []byte {
	kind := "laravel"
	if s.Config != nil {
		kind = "symfony"
	}
	return fmt.Appendf(nil, "%s %d %s", kind, s.db, strconv.Quote(s.key))
}

// owned reports whether s was taken over, and gives its marker's value.
func owned(ctx context.Context, file *config.Config, store *sqlstore.Store, s queue) (places []byte, is bool, err error) {
	places, _, err = store.Meta(ctx, marker(file, s))
	if err != nil {
		return nil, false, storeFailure(err)
	}
	return places, slices.ContainsFunc(bytes.Split(places, []byte("\n")), func(place []byte) bool { return bytes.Equal(place, s.place()) }), nil
}

// own writes that s was taken over.
func own(ctx context.Context, file *config.Config, store *sqlstore.Store, s queue) error {
	places, is, err := owned(ctx, file, store, s)
	if err != nil || is {
		return err
	}
	value := s.place()
	if len(places) > 0 {
		value = slices.Concat(places, []byte("\n"), value)
	}
	if err := store.SetMeta(ctx, marker(file, s), value); err != nil {
		return storeFailure(err)
	}
	return nil
}

// takeOver owns the queues that were not yet. One with messages that others have
// had is refused: without rows, they would be called for as if nobody had.
func (p *program) takeOver(ctx context.Context, i *importer, list []queue) error {
	for _, s := range list {
		_, is, err := owned(ctx, i.file, i.store, s)
		if err != nil {
			return err
		}
		if is {
			continue
		}
		found, err := i.queue(ctx, s)
		if err != nil {
			return err
		}
		if n := found.Held + found.WithoutKey; n > 0 {
			// Unless another process was faster, and has messages in hand by now.
			if _, is, err := owned(ctx, i.file, i.store, s); err != nil || is {
				if err != nil {
					return err
				}
				continue
			}
			return usage(fmt.Errorf("queue %s: zabor has never taken from it, and it holds %d messages that another worker has had and that have no row (%s): each may have been charged, and would be charged again",
				s.Name(), n, found.hadText()), "nothing was started; hold them with \""+importCommandLine(i.file, s)+"\" (add --dry-run to see first), then start again")
		}
		if err := own(ctx, i.file, i.store, s); err != nil {
			return err
		}
		p.log.Info("the queue is zabor's from now on", "queue", s.Name(), "messages", found.Messages)
	}
	return nil
}

// importCommandLine is the import of s as a person types it.
func importCommandLine(file *config.Config, s queue) string {
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
