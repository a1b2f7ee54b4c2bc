package zabor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// insert commits a fresh row with the hook of its capture. A hook that fails is
// an answer too: the row is committed as released, with the reason, and nothing
// is sent.
//
// One write has one hook: that of a row which is inserted as held is due.
func (f *Fence) insert(ctx context.Context, row Row, replayFor time.Duration) (Row, error) {
	w := Write{Lease: row.Lease, ReplayFor: replayFor}
	if row.State != Captured {
		w.Note = &Note{Epoch: row.Claim.Epoch, Kind: string(row.State), Text: "had no row: " + row.Reason}
	}
	if row.State == Held && f.Hook != nil {
		if hook, err := f.Hook(row); hook != nil || err != nil {
			row.HookDue = string(Held)
		}
	}
	hook, err := f.captureHook(row)
	if err == nil {
		w.Hook, row.Hooked = hook, hook != nil
		var there Row
		there, err = f.Store.Insert(ctx, row, w)
		if !isHook(err) {
			return there, err
		}
	}
	w.Hook = nil
	return f.Store.Insert(ctx, unhooked(row, err), w)
}

// swap commits next in place of row, with the hook of the state that it enters.
// Where that hook fails, next is committed without it, and the hook is due: what
// is known of the outside world is never lost for it. It returns the row as it
// was committed.
func (f *Fence) swap(ctx context.Context, row, next Row, w Write) (Row, error) {
	if w.Note == nil {
		w.Note = passage(row, next)
	}
	if next.State == Captured {
		return f.swapCapture(ctx, row, next, w)
	}
	if next.State == row.State && (row.Basis != ByForm || next.Basis == ByForm) {
		return next, f.Store.Swap(ctx, row, next, w)
	}
	next.HookDue = "" // that of a state that the row has left
	var err error
	if f.Hook != nil && next.Basis != ByForm {
		w.Hook, err = f.Hook(next)
	}
	if err == nil {
		told := hooked(next)
		if err = f.Store.Swap(ctx, row, told, w); !isHook(err) {
			return told, err
		}
	}
	w.Hook = nil
	due := next
	due.HookDue = string(next.State)
	due.Reason = fmt.Sprintf("the hook %s failed: %v", next.State, err)
	if err := f.Store.Swap(ctx, row, due, w); err != nil {
		return due, err
	}
	f.alert(due, Warning, "hook-due", fmt.Sprintf("the row is %s, and the shop was not told: %v", next.State, err))
	return due, nil
}

// passage is the note of a change that the row itself forgets with the next one;
// nil: there is none, or it is the plain one that a call's own answer makes, which
// the row keeps for good and which costs no second statement.
func passage(row, next Row) *Note {
	if row.State == next.State || row.State == Captured && (next.State.Closed() || next.State == Pending) {
		return nil
	}
	text := fmt.Sprintf("was %s: %s", row.State, next.Reason)
	if next.State == Captured {
		text = fmt.Sprintf("was %s: attempt %d", row.State, next.Attempts())
	}
	return &Note{Epoch: next.Claim.Epoch, Kind: string(next.State), Text: text}
}

// hooked is next once all its hooks have run: a closed row needs nothing of the
// message any more. A no about the request's form has none, and a person may
// still make a decline of it.
func hooked(next Row) Row {
	next.HookDue = ""
	if next.State.Closed() && next.Basis != ByForm {
		next.HookData = nil
		if next.Sealed != nil {
			rest := *next.Sealed
			rest.HookData = nil
			next.Sealed = &rest
		}
	}
	return next
}

// swapCapture commits a capture of a row that was free. The hook of the capture
// runs with it unless it has run already.
func (f *Fence) swapCapture(ctx context.Context, row, next Row, w Write) (Row, error) {
	if next.Hooked {
		return next, f.Store.Swap(ctx, row, next, w)
	}
	hook, err := f.captureHook(next)
	if err == nil {
		w.Hook, next.Hooked = hook, hook != nil
		err = f.Store.Swap(ctx, row, next, w)
		if !isHook(err) {
			return next, err
		}
	}
	next = unhooked(next, err)
	return next, f.Store.Swap(ctx, row, next, Write{})
}

func (f *Fence) captureHook(row Row) (*Hook, error) {
	if f.Hook == nil {
		return nil, nil
	}
	row.State = Captured // also where a missing row is inserted as doubt
	return f.Hook(row)
}

// unhooked is a row whose capture's hook failed with err.
func unhooked(row Row, err error) Row {
	row.Hooked = false
	reason := fmt.Sprintf("%v; nothing was sent", err)
	if row.State == Captured {
		row.State, row.Basis = Released, ByHook
	} else {
		reason = row.Reason + "; " + reason
	}
	row.Reason = reason
	return row
}

func isHook(err error) bool {
	_, ok := errors.AsType[*HookError](err)
	return ok
}

// RunHook runs the hook that is due for row, alone. With an error it stays due;
// [ErrStale]: somebody else has changed the row since.
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
	return f.Store.Swap(ctx, row, next, Write{Hook: hook})
}
