package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/peek"
	"zabor/internal/preflight"
	"zabor/worker"
)

type peekCommand struct {
	Queue   string `arg:"" optional:"" help:"Only this queue of the configuration."`
	Message string `placeholder:"FILE" help:"Not the queues: the message whose bytes are in FILE, as it lies on the queue. Redis is not asked."`
	Limit   int    `default:"20" help:"So many messages of each place of a queue at most: ready, reserved, delayed and failed."`
	JSON    bool   `name:"json" help:"One JSON object."`
}

// Help returns the text of zabor peek --help beside the flags.
func (*peekCommand) Help() string {
	return "What zabor would do with each message, now: its key, the request as it would be sent, and the verdict. No message is taken, nothing is called, and nothing is written, on Redis or in a database. " +
		"It works before \"zabor migrate\" too: then there are no rows yet, and the keys that travel to the provider are not known."
}

func (c *peekCommand) Run(p *program) error {
	if c.Limit < 1 || c.Limit > 100_000 {
		return exit.Usage(fmt.Errorf("--limit %d: 1 to 100000", c.Limit), "")
	}
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if c.Queue != "" {
		choice := workerCommand{Queue: []string{c.Queue}}
		if err := choice.choose(file); err != nil {
			return err
		}
	} else if len(file.Queues) == 0 {
		return exit.Usage(fmt.Errorf("%s: no queues are configured", file.Path), "write them under queues:")
	}
	databases := connect.NewDatabases(file, store)
	defer databases.Close()
	k, err := peek.New(p.ctx, file, databases, store, p.Secrets(file))
	if err != nil {
		return err
	}
	list, closeAll, err := p.Queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	out := &peekOutput{json: c.JSON, to: p.stdout, Queues: []peekedQueue{}, Messages: []peek.Message{}}
	if c.Message != "" {
		err = c.file(p.ctx, k, list, out)
	} else {
		err = c.queues(p, k, list, out)
	}
	if err != nil {
		return err
	}
	if !k.Migrated {
		p.Log.Warn("zabor's tables are not there yet: no message has a row, and what travels as the idempotency key is made by \"zabor migrate\"")
	}
	return out.end()
}

// file looks at one message in a file.
func (c *peekCommand) file(ctx context.Context, k *peek.Peeker, list []connect.Queue, out *peekOutput) error {
	if len(list) != 1 {
		return exit.Usage(fmt.Errorf("--message %s: whose message is it? there are the queues %v", c.Message, slices.Sorted(maps.Keys(k.File.Queues))), "name one: zabor peek QUEUE --message FILE")
	}
	raw, err := os.ReadFile(c.Message)
	if err != nil {
		return exit.Usage(fmt.Errorf("--message: %w", err), "")
	}
	raw = bytes.TrimRight(raw, "\r\n") // added by an editor
	one, err := k.Plan(ctx, list[0], list[0].Decode(raw), "file")
	if err != nil {
		return err
	}
	return out.message(one)
}

func (c *peekCommand) queues(p *program, k *peek.Peeker, list []connect.Queue, out *peekOutput) error {
	for _, q := range list {
		depth, err := q.Depth(p.ctx)
		if err != nil {
			return exit.Unreachable(fmt.Errorf("queue %s: %w", q.Name(), err), "is Redis up, and is its address right?")
		}
		if depth.Empty() {
			if err := preflight.Require(p.Log, q.Name(), preflight.Empty(p.ctx, q)); err != nil {
				return err
			}
			if others := preflight.OtherQueues(p.ctx, k.File, q); len(others) > 0 {
				p.Log.Warn("the queue is empty, and others have messages: is it one of these that is meant?", "queue", q.Name(), "others", strings.Join(others, ", "))
			}
		}
		at := peekedQueue{Queue: q.Name(), Ready: depth.Ready, Reserved: depth.Reserved, Delayed: depth.Delayed, More: []worker.Place{}}
		if err := out.queue(at); err != nil {
			return err
		}
		var more []worker.Place
		for _, place := range []worker.Place{worker.Ready, worker.Reserved, worker.Delayed} {
			n := 0
			for seen, err := range q.Look(p.ctx, place) {
				if err != nil {
					return exit.Unreachable(err, "is Redis up, and is its address right?")
				}
				if n++; n > c.Limit {
					more = append(more, place)
					break
				}
				one, err := k.Plan(p.ctx, q, seen.Message, place)
				if err != nil {
					return err
				}
				one.Holder = seen.Holder
				if !seen.Until.IsZero() {
					until := seen.Until.UTC()
					one.Until = &until
				}
				if err := out.message(one); err != nil {
					return err
				}
			}
		}
		n := 0
		for m, err := range failures.Own(q.Queue, k.Store).Entries(p.ctx, "") {
			if err != nil {
				p.Log.Warn("what failed cannot be read", "queue", q.Name(), "error", err)
				break
			}
			if n++; n > c.Limit {
				more = append(more, peek.Failed)
				break
			}
			one, err := k.Plan(p.ctx, q, m.Message, peek.Failed)
			if err != nil {
				return err
			}
			one.ID = m.FailedID // the id of "zabor failed"
			if err := out.message(one); err != nil {
				return err
			}
		}
		if err := out.more(q.Name(), more); err != nil {
			return err
		}
	}
	return nil
}
