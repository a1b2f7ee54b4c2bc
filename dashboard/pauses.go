package dashboard

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// pause is a provider that is sent nothing for a while.
type pause struct {
	Provider string
	Until    time.Time // the latest of all processes
	Why      string    // technical
	Plain    string    // the same in words; empty: Why is all
	Waits    string    // a sentence on the messages that wait; empty: not known, or none
}

// pauses returns the providers that a live process has paused. It is empty if the
// processes cannot be read: the page itself says so.
func (d *Dashboard) pauses(ctx context.Context) []pause {
	processes, _, err := d.numbers.processes.get(ctx, d.processes)
	if err != nil {
		return nil
	}
	var all []pause
	for _, line := range d.providerLines(processes) {
		if len(line.Paused) == 0 {
			continue
		}
		one := pause{Provider: line.Name}
		for _, p := range line.Paused {
			if p.Until.After(one.Until) {
				one.Until, one.Why = p.Until, strings.TrimSuffix(p.Why, ".")
			}
		}
		one.Plain = pauseWords(one.Why)
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil
	}
	waits := d.waits(ctx)
	for i := range all {
		all[i].Waits = waits
	}
	return all
}

// waits says how many messages wait on the queues.
func (d *Dashboard) waits(ctx context.Context) string {
	if len(d.o.Queues) == 0 {
		return ""
	}
	lines, _, _ := d.numbers.queues.get(ctx, func(ctx context.Context) ([]queueLine, error) { return d.queueLines(ctx), nil })
	n, unread := int64(0), ""
	for _, line := range lines {
		n += line.Ready + line.Delayed
		if line.Err != "" {
			unread = " at least: a queue does not answer"
		}
	}
	if n == 0 && unread == "" {
		return "No message waits on the queues."
	}
	verb := "wait"
	if n == 1 {
		verb = "waits"
	}
	return fmt.Sprintf("%s %s on the queues%s.", plural(n, "message", "messages"), verb, unread)
}

// pauseWords says in plain words why a provider is paused; empty: why is plain enough,
// or not known.
func pauseWords(why string) string {
	for _, one := range [...]struct{ has, words string }{
		{"404", "It answered 404: there is nothing at the address of this charge."},
		{"401", "It refused the secret key."},
		{"403", "It refused the secret key."},
		{"429", "It asked to be left alone."},
		{"deadline exceeded", "It did not answer in time."},
		{"connection refused", "It cannot be reached."},
		{"no such host", "Its address is not known."},
	} {
		if strings.Contains(why, one.has) {
			return one.words
		}
	}
	return ""
}
