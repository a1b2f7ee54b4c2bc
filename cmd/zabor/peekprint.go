package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"zabor/internal/console"
	"zabor/internal/peek"
	"zabor/worker"
)

// peekedQueue counts the messages of a queue.
type peekedQueue struct {
	Queue    string         `json:"queue"`
	Ready    int64          `json:"ready"`
	Reserved int64          `json:"reserved"`
	Delayed  int64          `json:"delayed"`
	More     []worker.Place `json:"more"` // places with more messages than are shown
}

// peekOutput prints messages as they come, or all of them as one JSON object.
type peekOutput struct {
	json     bool
	to       io.Writer
	Queues   []peekedQueue  `json:"queues"`
	Messages []peek.Message `json:"messages"`
}

func (o *peekOutput) queue(q peekedQueue) error {
	o.Queues = append(o.Queues, q)
	if o.json {
		return nil
	}
	_, err := fmt.Fprintf(o.to, "queue %s: %d ready, %d reserved, %d delayed\n", q.Queue, q.Ready, q.Reserved, q.Delayed)
	return err
}

func (o *peekOutput) message(m peek.Message) error {
	if o.json {
		o.Messages = append(o.Messages, m)
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s  %s  %s", m.Place, console.Printable(m.ID), console.Printable(m.Class))
	if m.Until != nil {
		fmt.Fprintf(&b, "  until %s", m.Until.Format(time.RFC3339))
	}
	if m.Holder != "" {
		fmt.Fprintf(&b, "  with %s", console.Printable(m.Holder))
	}
	b.WriteString("\n")
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "    %-9s%s\n", name, text)
		}
	}
	if m.Key != nil {
		line("key", m.Key.Plain().String())
	}
	line("amount", m.Amount)
	line("row", string(m.State))
	text := string(m.Verdict)
	if m.Target != "" {
		text += " to " + m.Target
	}
	if m.Reason != "" {
		text += ": " + console.Printable(m.Reason)
	}
	line("verdict", text)
	line("warning", m.Warning)
	if r := m.Request; r != nil {
		line("request", r.Method+" "+console.Printable(r.URL))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			fmt.Fprintf(&b, "    %-9s%s: %s\n", "", name, console.Printable(r.Header[name]))
		}
		if r.Body != "" {
			fmt.Fprintf(&b, "    %-9s%s\n", "", console.Printable(cut(r.Body)))
		}
	}
	_, err := io.WriteString(o.to, b.String())
	return err
}

// cut is as much of a body as a terminal is given.
func cut(body string) string {
	const most = 2000
	if len(body) <= most {
		return body
	}
	return fmt.Sprintf("%s … and %d bytes more (--json has them)", strings.ToValidUTF8(body[:most], ""), len(body)-most)
}

func (o *peekOutput) more(queue string, places []worker.Place) error {
	if len(places) == 0 {
		return nil
	}
	o.Queues[len(o.Queues)-1].More = places
	if o.json {
		return nil
	}
	_, err := fmt.Fprintf(o.to, "\nqueue %s has more that is %v: --limit shows more\n", queue, places)
	return err
}

func (o *peekOutput) end() error {
	if !o.json {
		return nil
	}
	e := json.NewEncoder(o.to)
	e.SetEscapeHTML(false)
	return e.Encode(o)
}
