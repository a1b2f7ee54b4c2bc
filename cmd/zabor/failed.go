package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
)

type failedCommand struct {
	List   failedList   `cmd:"" help:"List what the failure transports of the configured queues hold, the newest first."`
	Retry  failedRetry  `cmd:"" help:"Put messages back on their queues, and only then take them out of the failure transport. Nothing is called: a worker takes them, and meets the fence."`
	Forget failedForget `cmd:"" help:"Delete messages from the failure transport. Nothing is called, and no row of the fence changes."`
}

type failedList struct {
	Queue []string `placeholder:"NAME" help:"Only of these queues."`
	Limit int      `default:"1000" help:"At most this many of each queue and failure transport, the newest; how many more there are is said on standard error. 0: all."`
	JSON  bool     `name:"json" help:"One JSON array."`
}

// failedJSON is the documented shape of a failed message.
type failedJSON struct {
	ID        string       `json:"id"`
	Queue     string       `json:"queue"`
	Transport string       `json:"transport"` // failed_jobs, messenger or unreadable
	Class     string       `json:"class"`
	Key       *console.Key `json:"key"` // null: no step makes one of it
	FailedAt  *string      `json:"failed_at"`
	Reason    string       `json:"reason"` // its first line
}

func (c *failedList) Run(p *program) error {
	if c.Limit < 0 {
		return exit.Usage(fmt.Errorf("failed list: --limit %d", c.Limit), "at least 1, or 0 for all")
	}
	f, closeAll, err := p.openFailures(c.Queue)
	if err != nil {
		return err
	}
	defer closeAll()
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	separator := "["
	row := func(queue string, m failures.Failed) error {
		reason, _, _ := strings.Cut(m.Reason, "\n")
		k, known := f.Key(m.Message)
		if !c.JSON {
			key := ""
			if known {
				key = console.Printable(k.String())
			}
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", console.Printable(m.FailedID), queue, m.Kind, console.Printable(m.Class), key, console.Time(m.At), console.Printable(reason))
			return err
		}
		one := failedJSON{ID: m.FailedID, Queue: queue, Transport: m.Kind, Class: m.Class, FailedAt: console.JSONTime(m.At), Reason: reason}
		if known {
			key := console.NewKey(k)
			one.Key = &key
		}
		text, err := json.Marshal(one)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%s%s", separator, text)
		separator = ",\n"
		return err
	}
	if !c.JSON {
		fmt.Fprintln(w, "ID\tQUEUE\tIN\tCLASS\tKEY\tFAILED\tREASON")
	}
	var broken []error // the other transports are listed all the same
	var more []string
	for _, t := range f.All {
		n, kind := 0, ""
		for m, err := range t.Entries(p.ctx, "") {
			if err != nil {
				broken = append(broken, fmt.Errorf("queue %s: %w", t.Queue, err))
				break
			}
			n, kind = n+1, m.Kind
			if c.Limit > 0 && n > c.Limit {
				continue // only counted
			}
			if err := row(t.Queue, m); err != nil {
				return err
			}
		}
		if c.Limit > 0 && n > c.Limit {
			more = append(more, fmt.Sprintf("zabor: queue %s: %d more in %s, older than those listed\n", t.Queue, n-c.Limit, kind))
		}
	}
	if c.JSON {
		if separator == "[" {
			fmt.Fprint(p.stdout, "[")
		}
		fmt.Fprintln(p.stdout, "]")
	} else if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(p.stderr, strings.Join(more, ""))
	if len(broken) > 0 {
		return exit.Unreachable(errors.Join(broken...), "the list is not complete; nothing was changed")
	}
	return nil
}
