package main

import (
	"fmt"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/takeover"
	"zabor/sqlstore"
)

// releaseQueues takes the markers of the named queues away, as a complete drain
// does, and lists the messages left on them with the risk of a second charge by PHP's
// workers. It takes no message. The markers go first in any case: without one a
// start only asks more.
func (p *program) releaseQueues(file *config.Config, store *sqlstore.Store, names []string) error {
	choice := workerCommand{Queue: names}
	if err := choice.choose(file); err != nil {
		return err
	}
	list, closeAll, err := p.Queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, s := range list {
		if err := takeover.Release(p.ctx, file.Scope, store, s); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.stdout, "queue %s is not zabor's any more: its next start there looks at all of it anew\n", s.Name()); err != nil {
			return err
		}
	}
	f := failures.New(file, store, list)
	known, err := takeover.LeftQueued(p.ctx, p.stderr, f, list)
	if err != nil {
		return err
	}
	left, parked, err := takeover.LeftOver(p.ctx, p.stderr, f, "the queues are given up; what has failed was not looked at: type it again when that is mended", zabor.Captured, zabor.Doubt, zabor.Pending, zabor.Held, zabor.Released)
	if err != nil || known+left+parked == 0 {
		return err
	}
	return exit.Bad(fmt.Errorf("given up, and PHP's workers may charge a second time for what is named above: %d messages on the queues, %d that have failed, and %d rows that are open", known, parked, left),
		"leave PHP's workers stopped, or their handler without its call, until \"zabor worker --drain\" ends with 0, or each of these is decided and this command ends with 0")
}
