// Package takeover takes queues over from PHP's workers, and gives them back.
//
// Zabor alone takes from a queue unless the configuration shares it. A
// message in the hands of a PHP worker may have been charged, under a key zabor does
// not know. So other consumers stop a start, and a queue is taken over only after the
// table has a row for each such message. A [Marker] says so from then on.
package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/sqlstore"
	"zabor/step"
)

// TakeOver claims each queue of list, and the classes of new steps. It refuses
// a queue with messages of other workers without a row: they would be called
// again. steps are the steps of the worker.
func TakeOver(ctx context.Context, file *config.Config, store *sqlstore.Store, steps []*step.Step, o Options, list []connect.Queue) error {
	i := &Importer{file: file, store: store, steps: steps, readOnly: true, log: o.Log, say: o.Say, seenSteps: map[string]bool{}}
	for _, s := range list {
		m, err := ReadMarker(ctx, i.file.Scope, i.store, s)
		if err != nil {
			return err
		}
		classes := m.New(i.steps)
		if m.Owned() && len(classes) == 0 {
			continue
		}
		i.passOver = func(class string) bool { return !slices.Contains(classes, strings.TrimPrefix(class, `\`)) }
		found, err := i.Queue(ctx, s)
		if err != nil {
			return err
		}
		unkeyed := found.WithoutKey
		if m.imported() { // they were told of then
			unkeyed = 0
		}
		if n := found.Held + unkeyed; n > 0 {
			// Unless another process was faster, and has messages in hand by now.
			if m, err := ReadMarker(ctx, i.file.Scope, i.store, s); err != nil || m.Owned() && len(m.New(i.steps)) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			what := "zabor has never taken from it"
			if m.Owned() {
				what = "messages of " + strings.Join(classes, ", ") + " had no step so far"
			}
			return exit.Usage(fmt.Errorf("queue %s: %s, and it holds %d messages that another worker has had and that have no row (%s): each may have been charged, and would be charged again",
				s.Name(), what, n, found.hadText()), "nothing was started; hold them with \""+ImportCommand(i.file.Path, s)+"\" (add --dry-run to see first), then start again")
		}
		if n := found.WithoutKey; n > 0 {
			i.log.Warn("messages that another worker has had have no key, and no row holds them: they are parked, and nothing is called; import again before one is retried that has a key by then", "queue", s.Name(), "messages", n)
		}
		if err := claim(ctx, i.file.Scope, i.store, s, classes); err != nil {
			return err
		}
		i.log.Info("the queue is zabor's from now on", "queue", s.Name(), "messages", found.Messages)
	}
	return nil
}
