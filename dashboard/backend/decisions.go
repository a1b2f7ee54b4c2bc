package backend

import (
	"context"
	"errors"
	"fmt"

	"zabor"
	"zabor/dashboard"
	"zabor/internal/console"
	"zabor/internal/decision"
	"zabor/internal/exit"
	"zabor/internal/failures"
)

// decider decides for one request: it keeps its list of the failed messages.
func (o *Backend) decider() *decision.Decider {
	k := &decision.Decider{File: o.File, Store: o.Store, Fence: o.Fence, At: func(zabor.Checkpoint, zabor.Key) {}}
	if len(o.Queues) == 0 {
		k.Kept = "no queues are configured: its message is not looked for"
	} else {
		k.Failures = failures.New(o.File, o.Store, o.Queues)
	}
	return k
}

func (o *Backend) look(ctx context.Context, d zabor.Decision) (dashboard.Prospect, error) {
	k := o.decider()
	m, err := k.Plan(ctx, d)
	prospect := dashboard.Prospect{Row: m.Row}
	if err == nil {
		err = m.Refused()
	}
	if err != nil {
		return prospect, plainly(m, err)
	}
	prospect.Lines, prospect.Warnings = k.Preview(ctx, m), m.Warnings()
	return prospect, nil
}

func (o *Backend) take(ctx context.Context, d zabor.Decision) (dashboard.Taken, error) {
	k := o.decider()
	m, err := k.Plan(ctx, d)
	if err != nil {
		return dashboard.Taken{Row: m.Row}, plainly(m, err)
	}
	row, messages, err := k.Take(ctx, m)
	if err != nil {
		return dashboard.Taken{Row: row}, plainly(m, err)
	}
	taken := dashboard.Taken{Row: row, Lines: []string{fmt.Sprintf("%s is %s now", console.Printable(row.Key.String()), row.State)}}
	for _, one := range messages {
		taken.Lines = append(taken.Lines, one.String())
	}
	if len(messages) == 0 && k.Failures != nil && m.Action != zabor.Hold {
		taken.Lines = append(taken.Lines, k.Elsewhere(ctx, m))
	}
	return taken, nil
}

// plainly returns err as a page says it: with the next thing to do, and with the errors callers
// branch on still in it.
func plainly(m decision.Planned, err error) error {
	if errors.Is(err, zabor.ErrStale) {
		return err
	}
	err = decision.Failure(m, err)
	if f, ok := errors.AsType[*exit.Error](err); ok && errors.Is(err, zabor.ErrRefused) && m.WantsProof() {
		return fmt.Errorf("%w; look there first, and say that you did", f.Err)
	}
	return err
}
