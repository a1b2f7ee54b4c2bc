package main

import (
	"fmt"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/sqlstore"
)

// giveUp takes the markers of the named queues away, as a drain does that leaves
// nothing, and lists what is left on them that PHP's workers would charge for a second
// time. It takes no message. The markers go first and whatever is left: without one a
// start only asks more.
func (p *program) giveUp(file *config.Config, store *sqlstore.Store, names []string) error {
	choice := workerCommand{Queue: names}
	if err := choice.choose(file); err != nil {
		return err
	}
	list, closeAll, err := p.queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, s := range list {
		if err := disown(p.ctx, file, store, s); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.stdout, "queue %s is not zabor's any more: its next start there looks at all of it anew\n", s.Name()); err != nil {
			return err
		}
	}
	known, err := p.leftQueued(file, store, list)
	if err != nil {
		return err
	}
	left, parked, err := p.leftOver(file, store, list, "the queues are given up; what has failed was not looked at: type it again when that is mended", zabor.Captured, zabor.Doubt, zabor.Pending, zabor.Held, zabor.Released)
	if err != nil || known+left+parked == 0 {
		return err
	}
	return exit.Bad(fmt.Errorf("given up, and PHP's workers may charge a second time for what is named above: %d messages on the queues and %d that have failed, whose keys zabor knows, and %d rows that are open", known, parked, left),
		"leave PHP's workers stopped, or their handler without its call, until \"zabor worker --drain\" ends with 0, or each of these is decided and this command ends with 0")
}

// leftQueued lists the messages on the queues whose keys have a row, or none although a
// worker has had them: those PHP may have died with in the call, and those that a worker
// of zabor's has, or died with. A message that was put back before anybody began is
// neither.
func (p *program) leftQueued(file *config.Config, store *sqlstore.Store, list []connect.Queue) (n int, err error) {
	f := failures.New(file, store, list)
	for _, q := range list {
		for m, err := range q.Look(p.ctx) {
			if err != nil {
				return n, exit.Unreachable(fmt.Errorf("queue %s: %w", q.Name(), err), "the queues are given up; what is left on them was not looked at: type it again when Redis is there")
			}
			key, ok := f.Key(m.Message)
			if !ok {
				continue
			}
			row, err := store.Reports().Row(p.ctx, key)
			if err != nil {
				return n, exit.Store(err)
			}
			var state string
			switch {
			case row != nil:
				state = "is " + string(row.State)
			case m.DeliveredBefore:
				state = "has no row, and another worker has had it"
			case m.Holder != "":
				state = fmt.Sprintf("has no row, and %s has it, or had it", console.Printable(m.Holder))
			default:
				continue
			}
			if n++; n <= mostLeft {
				fmt.Fprintf(p.stderr, "zabor: %s %s, and its message is %s on queue %s\n", console.Printable(key.String()), state, m.Place, q.Name())
			}
		}
	}
	if n > mostLeft {
		fmt.Fprintf(p.stderr, "zabor: and %d more messages\n", n-mostLeft)
	}
	return n, nil
}
