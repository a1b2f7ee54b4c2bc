package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"zabor"
	"zabor/dashboard"
	"zabor/step"
	"zabor/worker"
)

// mostSearched is how many messages of one place a search on the dashboard reads.
const mostSearched = 20_000

// mostHits is how many messages of one order a search shows.
const mostHits = 20

// find returns the messages of an order on the queues, in the failure transports and
// in quarantine. It takes none. What it has found before an error is returned with it.
func (o *office) find(ctx context.Context, order string) (all []dashboard.Waiting, more bool, err error) {
	f := failuresIn(o.file, o.store, o.queues)
	var failed error
	for _, q := range o.queues {
		n := 0
		for m, err := range q.Look(ctx) {
			if err != nil {
				failed = errors.Join(failed, err)
				break
			}
			if n++; n > mostSearched || len(all) >= mostHits {
				more = true
				break
			}
			s, key := keyOfMessage(f.steps, m.Message)
			if s == nil || key.Order != order {
				continue
			}
			one := dashboard.Waiting{Key: key, Queue: q.Name(), Place: string(m.Place), Until: m.Until, Provider: o.providerOf(s), Since: putAt(m.Message)}
			all = append(all, one)
		}
	}
	for _, t := range f.transports {
		n := 0
		for m, err := range t.entries(ctx, "") {
			if err != nil {
				failed = errors.Join(failed, err)
				break
			}
			if n++; n > mostSearched || len(all) >= mostHits {
				more = true
				break
			}
			if key, ok := f.key(m); ok && key.Order == order {
				all = append(all, dashboard.Waiting{Key: key, Queue: t.queue, Place: "failed", Since: m.at})
			} else if m.Err != nil && bytes.Contains(m.Raw, []byte(order)) {
				all = append(all, dashboard.Waiting{Queue: t.queue, Place: "quarantined", Since: m.at})
			}
		}
	}
	return all, more, failed
}

// providerOf returns the name of the provider of s; empty: it depends on the message.
func (o *office) providerOf(s *step.Step) string {
	name := string(o.file.Steps[s.Name()].Provider)
	if strings.Contains(name, "{{") {
		return ""
	}
	return name
}

// keyOfMessage returns the step of m and the key that it makes; nil: none makes one.
func keyOfMessage(steps []*step.Step, m *worker.Message) (*step.Step, zabor.Key) {
	if m.Err != nil {
		return nil, zabor.Key{}
	}
	i := slices.IndexFunc(steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	if i < 0 {
		return nil, zabor.Key{}
	}
	key, err := steps[i].Key(m.Message)
	if err != nil {
		return nil, zabor.Key{}
	}
	return steps[i], key
}
