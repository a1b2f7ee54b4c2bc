package zabor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// journalPatience is for how long the saving of a success is still tried by whoever
// made the call, once the journal has it.
const journalPatience = time.Second

// save commits what came of the call of row's claim. Nothing cancels it. A
// reference is saved whoever holds the claim by now and even where the row has
// vanished; any other outcome only while the claim is still the row's last.
func (f *Fence) save(ctx context.Context, row Row, o Outcome) (Row, error) {
	return f.saveNext(ctx, row, after(row, o, false), o)
}

// saveNext commits next, which o leads to from row's claim.
func (f *Fence) saveNext(ctx context.Context, row, next Row, o Outcome) (Row, error) {
	limit := f.SaveTimeout
	if limit == 0 {
		limit = SaveTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	kept := "" // the journal's file
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		saved, err := f.trySave(ctx, row, next, o)
		if err == nil {
			if kept != "" {
				os.Remove(kept)
			}
			f.at(Saved, row.Key)
			return saved, stateError(saved)
		}
		if kept == "" && o.Reference != "" && f.Journal != nil {
			var journalErr error
			if kept, journalErr = f.Journal.keep(row, o); journalErr != nil {
				err = errors.Join(err, fmt.Errorf("and the journal: %w", journalErr))
			} else {
				// It is safe, and whoever waits for it may know soon.
				time.AfterFunc(journalPatience, cancel)
			}
		}
		select {
		case <-ctx.Done():
			return row, f.unsaved(row, o, err, kept)
		case <-time.After(pause):
		}
	}
}

// trySave commits next, or what must be committed in its place now that the
// row has moved on. It may be repeated after an error.
func (f *Fence) trySave(ctx context.Context, row, next Row, o Outcome) (Row, error) {
	written, err := f.swap(ctx, row, next, Write{})
	if err == nil {
		f.alertSaved(row, written)
		return written, nil
	}
	if !errors.Is(err, ErrStale) {
		return Row{}, err
	}
	current, err := f.Store.Load(ctx, row.Key)
	if errors.Is(err, ErrNoRow) {
		next.Claim = Claim{Epoch: 1, ID: next.Claim.ID}
		next = f.untold(next)
		current, err = f.Store.Insert(ctx, next, Write{Lease: row.Lease})
		if err == nil && current.Claim == next.Claim {
			text := "the row had vanished when the answer came; it was written again"
			if next.HookDue != "" {
				text += ", and its hook " + next.HookDue + " is run by the resolver; whatever its hook captured had written may have vanished too"
			}
			f.alert(next, Critical, "row-vanished", text)
			return current, nil
		}
	}
	if err != nil {
		return Row{}, err
	}
	if o.Reference == "" {
		text := fmt.Sprintf("a late answer of epoch %d changed nothing: %s: %s", row.Claim.Epoch, o.Verdict, o.Reason)
		return current, f.Store.Note(ctx, row.Key, Note{Epoch: row.Claim.Epoch, Kind: evidence, Text: text})
	}
	return f.saveReference(ctx, current, o, ByCall)
}

// untold is next with the hook of its state due: it is not to run with an insert,
// which must succeed whatever the application's tables say.
func (f *Fence) untold(next Row) Row {
	if f.Hook != nil && next.Basis != ByForm {
		if hook, err := f.Hook(next); hook != nil || err != nil {
			next.HookDue = string(next.State)
			return next
		}
	}
	return hooked(next)
}

// evidence is the kind of a note that nobody decided.
const evidence = "evidence"

// saveReference commits a reference into the row, whatever state it is in.
func (f *Fence) saveReference(ctx context.Context, row Row, o Outcome, basis Basis) (Row, error) {
	for {
		if adopted(row, o) {
			return row, nil
		}
		next := adopt(row, o)
		next.Basis = basis
		w := Write{}
		third := row.OtherReference != "" && o.Reference != row.Reference && o.Reference != row.OtherReference
		if third { // the row has no place for it
			w.Note = &Note{Epoch: next.Claim.Epoch, Kind: evidence, Text: "yet another reference: " + o.Reference}
		}
		written, err := f.swap(ctx, row, next, w)
		if err == nil {
			f.alertSaved(row, written)
			if third {
				f.alert(written, Critical, "two-references", fmt.Sprintf("yet another reference, %s, beside %s and %s: money may have moved three times", o.Reference, row.Reference, row.OtherReference))
			}
			return written, nil
		}
		if !errors.Is(err, ErrStale) {
			return Row{}, err
		}
		if row, err = f.Store.Load(ctx, row.Key); err != nil {
			return Row{}, err
		}
	}
}

// unsaved is the error of an outcome that could not be committed in time. The
// row stays captured, so that it becomes doubt when its lease ends.
func (f *Fence) unsaved(row Row, o Outcome, err error, kept string) error {
	reason := fmt.Sprintf("the call ended as %s and could not be saved: %v", o.Verdict, err)
	switch {
	case kept != "":
		reason += "; the success is in the journal"
	case o.Reference != "":
		f.alert(row, Critical, "unsaved", fmt.Sprintf("the provider did it, reference %s, and the database could not save it: %v", o.Reference, err))
	}
	return &Error{Key: row.Key, Row: row, Reason: reason, Err: ErrInDoubt, Journaled: kept != ""}
}

// alertSaved tells what a person must know of a saved outcome.
func (f *Fence) alertSaved(before, row Row) {
	switch {
	case row.OtherReference != "" && before.OtherReference == "":
		f.alert(row, Critical, "two-references", row.Reason+": money may have moved twice")
	case row.Reference != "" && before.State == Declined,
		row.Reference != "" && before.Basis == ByPerson && before.State != row.State:
		f.alert(row, Critical, "late-success", fmt.Sprintf("the row was %s by %s, and then the provider's success %s arrived", before.State, before.Basis, row.Reference))
	case row.State == Held && before.State != Held:
		f.alert(row, Warning, "held", row.Reason)
	case row.State == Declined && row.Basis == ByForm && before.State != Declined:
		f.alert(row, Warning, "malformed", "the provider refuses the form of the request: "+row.Reason)
	}
}

func (f *Fence) alertHeld(row Row) {
	if row.State == Held {
		f.alert(row, Warning, "held", row.Reason)
	}
}

// told alerts on a request that was refused for its key, and passes err on.
func (f *Fence) told(row Row, err error) error {
	if errors.Is(err, ErrOtherRequest) {
		f.alert(row, Warning, "other-request", err.Error())
	}
	return err
}

func (f *Fence) alert(row Row, s Severity, code, text string) {
	if f.Log != nil {
		f.Log.Warn(text, "alert", code, "severity", string(s), "key", row.Key.String(), "state", string(row.State), "provider", row.Provider)
	}
	if f.Alert == nil {
		return
	}
	f.Alert(Alert{
		Severity: s, Code: code, Key: row.Key, State: row.State, Amount: row.Amount, Provider: row.Provider,
		Text: text, Next: row.ShowCommand(),
	})
}
