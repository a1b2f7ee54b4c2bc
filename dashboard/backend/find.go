package backend

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"zabor/dashboard"
	"zabor/internal/connect"
	"zabor/internal/failures"
	"zabor/step"
)

// mostSearched is how many messages of one place a search on the dashboard reads.
const mostSearched = 20_000

// mostHits is how many messages of one order a search shows.
const mostHits = 20

// find returns the messages of an order on the queues, in the failure transports and
// in quarantine. It takes none. What it has found before an error is returned with it.
func (o *Backend) find(ctx context.Context, order string) (all []dashboard.Waiting, more bool, err error) {
	f := failures.New(o.File, o.Store, o.Queues)
	var failed error
	for _, q := range o.Queues {
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
			s := f.StepOf(m.Message)
			key, ok := f.Key(m.Message)
			if !ok || key.Order != order {
				continue
			}
			one := dashboard.Waiting{Key: key, Queue: q.Name(), Place: string(m.Place), Until: m.Until, Provider: o.providerOf(s), Since: connect.PutAt(m.Message)}
			all = append(all, one)
		}
	}
	for _, t := range f.All {
		n := 0
		for m, err := range t.Entries(ctx, "") {
			if err != nil {
				failed = errors.Join(failed, err)
				break
			}
			if n++; n > mostSearched || len(all) >= mostHits {
				more = true
				break
			}
			if key, ok := f.Key(m.Message); ok && key.Order == order {
				all = append(all, dashboard.Waiting{Key: key, Queue: t.Queue, Place: "failed", Since: m.At})
			} else if m.Err != nil && bytes.Contains(m.Raw, []byte(order)) {
				all = append(all, dashboard.Waiting{Queue: t.Queue, Place: "quarantined", Since: m.At})
			}
		}
	}
	return all, more, failed
}

// providerOf returns the name of the provider of s; empty: it depends on the message.
func (o *Backend) providerOf(s *step.Step) string {
	name := string(o.File.Steps[s.Name()].Provider)
	if strings.Contains(name, "{{") {
		return ""
	}
	return name
}
