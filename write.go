package zabor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// insert commits a fresh row with the hook of its capture. If that hook fails, the row
// is committed as released, with the reason, and nothing is sent.
//
// A write can run one hook. A row inserted as held gets its hook later, from the
// resolver (HookDue).
func (f *Fence) insert(ctx context.Context, row Row, replayFor time.Duration) (Row, error) {
	w := Write{Lease: row.Open.Lease, ReplayFor: replayFor}
	if row.State != Captured {
		w.ReplayFor = 0 // when the call was made is not known
		w.Note = &Note{Epoch: row.Claim.Epoch, Kind: string(row.State), Text: "had no row: " + row.Reason}
	}
	if row.State == Held && f.hookDue(row) {
		row.HookDue = string(Held)
	}
	w.DueIn = dueIn(row)
	hook, err := f.captureHook(row)
	if err == nil {
		w.Hook, row.Open.HookDone = hook, hook != nil
		var there Row
		there, err = f.Store.Insert(ctx, row, w)
		if !isHook(err) {
			return there, err
		}
	}
	row = hookFailed(row, err)
	w.Hook, w.DueIn = nil, dueIn(row)
	return f.Store.Insert(ctx, row, w)
}

// swap commits next in place of row, with the hook of the state that it enters. If
// that hook fails, next is committed without it and the hook is due: no evidence of
// the outside world is lost for it, and next keeps its reason, which its hook may bind.
// swap returns the row as it was committed.
func (f *Fence) swap(ctx context.Context, row, next Row, w Write) (Row, error) {
	if w.Note == nil {
		w.Note = transition(row, next)
	}
	w.DueIn = dueIn(next)
	if next.State == Captured {
		return f.swapCapture(ctx, row, next, w)
	}
	if next.State == row.State && (row.Cause != ByForm || next.Cause == ByForm) {
		return next, f.Store.Swap(ctx, row, next, w)
	}
	next.HookDue = "" // that of a state that the row has left
	var err error
	if f.Hook != nil && next.Cause != ByForm {
		w.Hook, err = f.Hook(next)
	}
	if err == nil {
		done := hooked(next)
		if err = f.Store.Swap(ctx, row, done, w); !isHook(err) {
			return done, err
		}
	}
	due := closing(next)
	due.Claim = row.Claim.next() // another write than the one with the hook
	due.HookDue = string(next.State)
	note := Note{Epoch: due.Claim.Epoch, Kind: evidence}
	if w.Note != nil {
		note = *w.Note
		note.Text += "; "
	}
	note.Text += fmt.Sprintf("the hook %s failed: %v", due.HookDue, err)
	w.Hook, w.DueIn, w.Note = nil, dueIn(due), &note
	if err := f.Store.Swap(ctx, row, due, w); err != nil {
		return due, err
	}
	f.alert(due, Warning, "hook-due", fmt.Sprintf("the row is %s, and the shop was not told: %v", next.State, err))
	return due, nil
}

// swapCapture commits a capture of a row that was free. The hook of the capture runs
// with it unless it has run for this attempt: a decline ends one.
func (f *Fence) swapCapture(ctx context.Context, row, next Row, w Write) (Row, error) {
	if next.Open.HookDone {
		return next, f.Store.Swap(ctx, row, next, w)
	}
	hook, err := f.captureHook(next)
	if err == nil {
		w.Hook, next.Open.HookDone = hook, hook != nil
		if err = f.Store.Swap(ctx, row, next, w); !isHook(err) {
			return next, err
		}
	}
	next = hookFailed(next, err)
	return next, f.Store.Swap(ctx, row, next, Write{DueIn: dueIn(next)})
}

func (f *Fence) captureHook(row Row) (*Hook, error) {
	if f.Hook == nil {
		return nil, nil
	}
	row.State = Captured // also if a missing row is inserted as doubt
	return f.Hook(row)
}

// hookFailed is a row whose capture's hook failed with err. If nothing else was to be
// called, it was not sent.
func hookFailed(row Row, err error) Row {
	row.Open.HookDone = false
	reason := fmt.Sprintf("%v; nothing was sent", err)
	if row.State != Captured {
		row.Reason += "; " + reason
		return row
	}
	row.State, row.Reason = Released, reason
	row.Unproven--
	row.Open.Send = [16]byte{}
	return row
}

// hookDue reports whether row's state has a hook, which must run later.
func (f *Fence) hookDue(row Row) bool {
	if f.Hook == nil || row.Cause == ByForm {
		return false
	}
	hook, err := f.Hook(row)
	return hook != nil || err != nil
}

// hooked is next once all its hooks have run.
func hooked(next Row) Row {
	next.HookDue = ""
	if !next.Unfinished() {
		next.Open = Open{}
	}
	return closing(next)
}

// closing is next without the frozen request, if nothing is left to find out.
func closing(next Row) Row {
	if next.State.Closed() {
		next.Open.Request, next.Open.Sealed.Request = nil, nil
	}
	return next
}

// transition is the note of a change that the row itself forgets with the next one.
// Nil: the change is a call's own answer, which the row keeps for good.
func transition(row, next Row) *Note {
	if row.State == next.State || row.State == Captured && (next.State.Closed() || next.State == Pending) {
		return nil
	}
	text := next.Reason
	if next.State == Captured {
		text = fmt.Sprintf("try %d", next.Tries)
	}
	return &Note{Epoch: next.Claim.Epoch, Kind: string(next.State), Text: row.was() + ": " + text}
}

// was is r in a note of the write that replaces it. The reason of a closed or pending
// row is in no note yet: its call's own answer made none.
func (r Row) was() string {
	text := "was " + string(r.State)
	if !r.State.Closed() && r.State != Pending {
		return text
	}
	var known []string
	if r.Answer != nil {
		known = append(known, fmt.Sprintf("HTTP %d", r.Answer.Status))
	}
	if r.Reason != "" {
		known = append(known, r.Reason)
	}
	if r.Reference != "" {
		known = append(known, "reference "+r.Reference)
	}
	if len(known) == 0 {
		return text
	}
	return text + " (" + strings.Join(known, "; ") + ")"
}

// watchCaptured is how old a call is when a resolver begins to watch it.
const watchCaptured = 2 * time.Second

// dueIn is when a resolver looks at row next, from the write on.
func dueIn(row Row) time.Duration {
	switch {
	case row.HookDue != "":
		return time.Second
	case row.State == Captured:
		return min(row.Open.Lease, watchCaptured)
	case row.State == Doubt, row.State == Pending:
		return shortestGap
	case row.State == Released && row.Open.HoldAfter > 0:
		return row.Open.HoldAfter
	}
	return Never
}

func isHook(err error) bool {
	_, ok := errors.AsType[*HookError](err)
	return ok
}

// RunHook runs the hook that is due for row, alone. With an error it stays due;
// [ErrStale]: another writer has changed the row since.
func (f *Fence) RunHook(ctx context.Context, row Row) error {
	if f.Hook == nil {
		return fmt.Errorf("hook %s of %s is not in the configuration any more", row.HookDue, row.Key)
	}
	bound := row
	bound.State = State(row.HookDue)
	hook, err := f.Hook(bound)
	if err != nil {
		return err
	}
	next := hooked(row)
	next.Claim = row.Claim.next()
	return f.Store.Swap(ctx, row, next, Write{Hook: hook, DueIn: dueIn(next)})
}

// Parked notes that the message with the given id is in the failure transport now. A
// retry of that message may capture the row once more, whatever its tries.
func (f *Fence) Parked(ctx context.Context, k Key, message string) error {
	return f.mark(ctx, k, Mark{Parked: message}, "the parked message")
}

// Forwarded notes that a message of the given generation has gone on to another
// queue, so that another message for the same key does not go there too.
func (f *Fence) Forwarded(ctx context.Context, k Key, generation int) error {
	return f.mark(ctx, k, Mark{Forwarded: generation}, "that the message has gone on")
}

func (f *Fence) mark(ctx context.Context, k Key, m Mark, what string) error {
	if err := f.Store.Mark(ctx, k, m); err != nil {
		return &Error{Key: k, Err: err, Reason: what + " could not be noted"}
	}
	return nil
}
