package zabor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// journalPatience is how long a success is still tried to be saved once the journal
// has it.
const journalPatience = time.Second

// journalAfter is how long the first write of a success may take before the journal
// has it too.
const journalAfter = time.Second

// save commits what came of the latest send of row. Nothing cancels it.
func (f *Fence) save(ctx context.Context, row Row, o Outcome, e Effect) (Row, error) {
	s := &saving{f: f, sent: row, outcome: o, cause: ByCall, row: row}
	s.overslept = firstCapture(row) && e.reserveEnded()
	s.next = s.after(row)
	return f.saveUntil(ctx, s)
}

// firstCapture reports whether row is as its insert and, in a two-step call, the id of
// its first request have left it.
func firstCapture(row Row) bool {
	return row.Claim.Epoch == 1 || row.Claim.Epoch == 2 && row.Prepared != ""
}

// saveUntil repeats s until it is committed, in the journal, or out of time.
func (f *Fence) saveUntil(ctx context.Context, s *saving) (Row, error) {
	limit := f.SaveTimeout
	if limit == 0 {
		limit = SaveTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	k := &keeping{f: f, row: s.sent, outcome: s.outcome}
	beside := time.AfterFunc(journalAfter, func() { _, _ = k.keep() }) // the loop tells what is wrong
	defer beside.Stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		saved, err := s.try(ctx)
		if err == nil {
			k.end(true)
			f.at(Saved, saved.Key)
			return saved, stateError(saved)
		}
		if kept, journalErr := k.keep(); journalErr != nil {
			err = errors.Join(err, fmt.Errorf("and the journal: %w", journalErr))
		} else if kept {
			time.AfterFunc(journalPatience, cancel) // it is safe, and its caller waits
		}
		select {
		case <-ctx.Done():
			return s.sent, f.unsaved(s, err, k.end(false))
		case <-time.After(pause):
		}
	}
}

// keeping is one success on its way into the journal, beside the writes of its row. It
// may be used concurrently.
type keeping struct {
	f       *Fence
	row     Row
	outcome Outcome

	mu    sync.Mutex
	path  string // the journal's file; empty: it is not there
	told  bool   // that it is kept nowhere
	ended bool
}

// keep puts the success into the journal unless it is there, and reports whether it is.
// Without a journal, and without a reference, it does nothing.
func (k *keeping) keep() (kept bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path != "" || k.ended || k.outcome.Reference == "" || k.f.Journal == nil {
		return k.path != "", nil
	}
	if k.path, err = k.f.Journal.keep(k.row, k.outcome); err == nil {
		return true, nil
	}
	k.path = ""
	if !k.told {
		k.told = true
		k.f.alert(k.row, Critical, "kept-nowhere", fmt.Sprintf("the provider did it, reference %s, and it is in the memory of this process alone: the database does not answer, and the journal cannot be written (%v). Do not end this process before both are mended", k.outcome.Reference, err))
	}
	return false, err
}

// end ends the keeping, and returns the journal's file; empty: there is none. What was
// saved is taken out of the journal.
func (k *keeping) end(saved bool) (path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	if saved && k.path != "" {
		os.Remove(k.path)
		k.path = ""
	}
	return k.path
}

// saving is one outcome on its way into the table. A try that went unconfirmed is
// repeated with the same claim, so that the store recognises it.
type saving struct {
	f         *Fence
	sent      Row // as it was when the request was sent
	outcome   Outcome
	cause     Cause
	overslept bool // the reserve of a first delivery had ended by the end of the call
	row       Row  // as it is in the table, as far as known
	next      Row  // follows row
}

// after is the row that follows row by the outcome. A worker that slept past its
// reserve releases nothing: the queue may have given the message to another one, which
// may have called, and whose row may be lost.
func (s *saving) after(row Row) Row {
	next := after(row, s.outcome)
	if next.State == Released && s.overslept {
		return row.follow(Doubt, ByMissingRow, "when the call had ended without doing anything, the queue may have given the message to another worker: "+s.outcome.Reason)
	}
	return next
}

// try commits s.next, or what must be committed in its place now that the row has
// moved on. A reference is saved in every state, and where the row has vanished. Any
// other outcome decides while no later send was made and no person has spoken;
// afterwards it is a note. That a send lingers is also noted in a later doubt of
// its key.
func (s *saving) try(ctx context.Context) (Row, error) {
	for {
		written, err := s.commit(ctx)
		if err == nil || !errors.Is(err, ErrStale) {
			return written, err
		}
		there, err := s.f.Store.Load(ctx, s.sent.Key)
		if errors.Is(err, ErrNoRow) {
			there, err = s.insert(ctx)
		}
		if err != nil {
			return Row{}, err
		}
		if there.Claim.ID == s.next.Claim.ID {
			return there, nil // written by an earlier try
		}
		s.row = there
		switch {
		case s.outcome.Reference != "" && adopted(s.row, s.outcome):
			return s.row, nil
		case s.outcome.Reference != "":
			s.next = adopt(s.row, s.outcome, s.cause)
		case decidable(s.row, s.sent.Open.Send) && (s.outcome.Verdict != Unproven || s.row.State == Captured):
			s.next = s.after(s.row)
		case s.outcome.Lingers && s.row.State == Doubt && s.row.ProviderKey == s.sent.ProviderKey && !s.row.Open.Lingers:
			s.next = s.row.follow(Doubt, s.row.Cause, s.outcome.Reason)
			s.next.Open.Lingers = true
		default:
			text := fmt.Sprintf("a late answer of epoch %d changed nothing: %s: %s", s.sent.Claim.Epoch, s.outcome.Verdict, s.outcome.Reason)
			return s.row, s.f.Store.Note(ctx, s.row.Key, Note{Epoch: s.sent.Claim.Epoch, Kind: evidence, Text: text})
		}
	}
}

// commit swaps s.next in, and tells what a person must know of it.
func (s *saving) commit(ctx context.Context) (Row, error) {
	f, w := s.f, Write{}
	third := s.row.OtherReference != "" && s.outcome.Reference != s.row.Reference && s.outcome.Reference != s.row.OtherReference && s.outcome.Reference != ""
	if third { // the row has no room for it
		w.Note = &Note{Epoch: s.next.Claim.Epoch, Kind: evidence, Text: "yet another reference: " + s.outcome.Reference}
	}
	written, err := f.swap(ctx, s.row, s.next, w)
	if shared, ok := errors.AsType[*ReferenceError](err); ok {
		s.next = conflicting(s.next, shared)
		written, err = f.swap(ctx, s.row, s.next, w)
	}
	if err != nil {
		return written, err
	}
	f.alertSaved(s.row, written)
	if third {
		f.alert(written, Critical, "two-references", fmt.Sprintf("yet another reference, %s, beside %s and %s: money may have moved three times", s.outcome.Reference, s.row.Reference, s.row.OtherReference))
	}
	return written, nil
}

// insert writes a row where it has vanished, with its hook due. Without a reference the
// row is doubt: the call of another worker may have vanished with it.
func (s *saving) insert(ctx context.Context) (Row, error) {
	f, next := s.f, s.next
	if s.outcome.Reference == "" {
		id := next.Claim
		next = s.sent.follow(Doubt, ByMissingRow, "the row had vanished when the answer came, and the row of another call may have: "+s.outcome.Reason)
		next.Claim = id
		next.Open.Lingers = next.Open.Lingers || s.outcome.Lingers
	}
	next = next.vanished(f.hookDue(next))
	there, err := f.insertOrHold(ctx, next, Write{Lease: s.sent.Open.Lease, DueIn: dueIn(next)})
	if err == nil && there.Claim == next.Claim {
		text := "the row had vanished when the answer came; it was written again"
		if there.HookDue != "" {
			text += ", and the resolver runs its hook " + there.HookDue + "; rows that its hook captured had written may have vanished too"
		}
		f.alert(there, Critical, "row-vanished", text)
		f.alertSaved(Row{}, there)
	}
	return there, err
}

// insertOrHold inserts row, or holds it with its reference if another order has that.
func (f *Fence) insertOrHold(ctx context.Context, row Row, w Write) (Row, error) {
	there, err := f.Store.Insert(ctx, row, w)
	if shared, ok := errors.AsType[*ReferenceError](err); ok {
		if w.Note != nil {
			note := *w.Note
			note.Text += fmt.Sprintf("; held: %s has that reference", shared.Owner)
			w.Note = &note
		}
		return f.Store.Insert(ctx, conflicting(row, shared), w)
	}
	return there, err
}

// vanished is next as the first write of its key. Its hook is due: it does not run
// with an insert, which must succeed whatever the application's tables say.
func (r Row) vanished(hookDue bool) Row {
	r.Claim.Epoch = 1
	if hookDue {
		r.HookDue = string(r.State)
		return r
	}
	return hooked(r)
}

// conflicting is next, whose new reference another order has: held, and not settled.
// The reference stays with it.
func conflicting(next Row, shared *ReferenceError) Row {
	reason := fmt.Sprintf("the reference %s is that of %s: one payment may stand for two orders", shared.Reference, shared.Owner)
	if next.Reason != "" {
		reason += "; " + next.Reason
	}
	next.State, next.Cause, next.Reason, next.HookDue = Held, ByConflict, reason, ""
	return next
}

// unsaved is the error of an outcome that could not be committed in time. The row
// stays captured, and becomes doubt when its lease ends.
func (f *Fence) unsaved(s *saving, err error, journaled string) error {
	row, o := s.sent, s.outcome
	reason := fmt.Sprintf("the call ended as %s and could not be saved: %v", o.Verdict, err)
	switch {
	case journaled != "":
		reason += "; the success is in the journal"
	case o.Reference != "":
		f.alert(row, Critical, "unsaved", fmt.Sprintf("the provider did it, reference %s, and the database could not save it: %v", o.Reference, err))
	}
	return &Error{Key: row.Key, Row: row, Reason: reason, Err: ErrInDoubt, Journaled: journaled != ""}
}

// evidence is the kind of a note that no person decided.
const evidence = "evidence"
