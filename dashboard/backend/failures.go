package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"zabor/card"
	"zabor/dashboard"
	"zabor/internal/console"
	"zabor/internal/failures"
	"zabor/internal/takeover"
	"zabor/worker"
)

// failed returns m as a page shows it.
func (o *Backend) failed(f *failures.Transports, queue string, m failures.Failed) dashboard.FailedMessage {
	one := dashboard.FailedMessage{FailedID: dashboard.FailedID{Queue: queue, Transport: m.Kind, ID: m.FailedID}, Mark: m.Mark, At: m.At, Reason: card.Mask(m.Reason)}
	if m.Err != nil {
		one.Err, one.Raw = m.Err.Error(), m.Raw
		return one
	}
	one.Class, one.Data = m.Class, m.Data
	if one.Data == nil {
		one.Data = map[string]any{}
	}
	if k, ok := f.Key(m.Message); ok {
		one.Key = &k
	}
	return one
}

func (o *Backend) failedList(ctx context.Context, limit int) ([]dashboard.FailedList, error) {
	f := failures.New(o.File, o.Store, o.Queues)
	var lists []dashboard.FailedList
	for _, t := range f.All {
		lists = append(lists, o.failedPart(ctx, f, t, "", limit))
	}
	return lists, nil
}

// mostGivenUp is how many messages of a failure transport the picture of the last hours
// counts: reading one decodes it.
const mostGivenUp = 2000

// failedTimes returns when the failed messages were put there, as far back as from.
func (o *Backend) failedTimes(ctx context.Context, from time.Time) ([]time.Time, error) {
	var times []time.Time
	for _, t := range failures.New(o.File, o.Store, o.Queues).All {
		n := 0
		for m, err := range t.Entries(ctx, "") {
			if err != nil {
				return nil, err
			}
			if n++; m.At.Before(from) || n > mostGivenUp {
				break
			}
			times = append(times, m.At)
		}
	}
	return times, nil
}

func (o *Backend) failedOlder(ctx context.Context, queue, transport, mark string, limit int) (dashboard.FailedList, error) {
	f, t, err := o.transport(dashboard.FailedID{Queue: queue, Transport: transport})
	if err != nil {
		return dashboard.FailedList{}, err
	}
	return o.failedPart(ctx, f, t, mark, limit), nil
}

// failedPart returns at most limit messages of t behind a mark.
func (o *Backend) failedPart(ctx context.Context, f *failures.Transports, t *failures.Transport, mark string, limit int) dashboard.FailedList {
	list := dashboard.FailedList{Queue: t.Queue, Transport: t.Kind()}
	for m, err := range t.Entries(ctx, mark) {
		if err != nil {
			list.Err = err.Error()
			break
		}
		if list.Messages = append(list.Messages, o.failed(f, t.Queue, m)); len(list.Messages) == limit {
			break
		}
	}
	return list
}

func (o *Backend) failedCount(ctx context.Context, most int) ([]dashboard.FailedCount, error) {
	var counts []dashboard.FailedCount
	for _, t := range failures.New(o.File, o.Store, o.Queues).All {
		count := dashboard.FailedCount{Queue: t.Queue, Transport: t.Kind()}
		for _, err := range t.Entries(ctx, "") {
			if err != nil {
				count.Err = err.Error()
				break
			}
			if count.N == int64(most) {
				count.More = true
				break
			}
			count.N++
		}
		counts = append(counts, count)
	}
	return counts, nil
}

// transport returns the failure transport of at.
func (o *Backend) transport(at dashboard.FailedID) (*failures.Transports, *failures.Transport, error) {
	f := failures.New(o.File, o.Store, o.Queues)
	i := slices.IndexFunc(f.All, func(t *failures.Transport) bool { return t.Queue == at.Queue && t.Kind() == at.Transport })
	if i < 0 {
		return nil, nil, fmt.Errorf("queue %s has no failure transport %s", console.Printable(at.Queue), console.Printable(at.Transport))
	}
	return f, f.All[i], nil
}

func (o *Backend) failedOne(ctx context.Context, at dashboard.FailedID) (dashboard.FailedMessage, error) {
	f, t, err := o.transport(at)
	if err != nil {
		return dashboard.FailedMessage{}, err
	}
	m, err := t.Entry(ctx, at.ID)
	if err != nil {
		return dashboard.FailedMessage{}, err
	}
	return o.failed(f, t.Queue, m), nil
}

func (o *Backend) retry(ctx context.Context, at dashboard.FailedID) error {
	f, t, err := o.transport(at)
	if err != nil {
		return err
	}
	m, err := t.Entry(ctx, at.ID)
	if err != nil {
		return err
	}
	missing, err := takeover.NotImported(ctx, f, failures.Entry{In: t, Failed: m})
	switch {
	case err != nil:
		return err
	case missing:
		return errors.New("another worker may have charged it, and it has no row: put back, it would look like a new one; zabor import holds it first")
	}
	err = t.Retry(ctx, at.ID)
	if errors.Is(err, worker.ErrBoth) {
		return fmt.Errorf("it is on its queue again, and in the failure transport too: the worker meets the fence for it; forget it here then (%w)", err)
	}
	return err
}

func (o *Backend) forget(ctx context.Context, at dashboard.FailedID) error {
	_, t, err := o.transport(at)
	if err != nil {
		return err
	}
	return t.Forget(ctx, at.ID)
}
