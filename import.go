package zabor

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Import holds what e asks for, unless there is a row: somebody who knew no fence
// had its message, and may have made the call. It calls nothing, runs no hook, and
// alerts nobody: whoever imports has a report. The reason says who had it.
//
// An e whose request cannot be made any more has no Render, and its row takes
// whatever request a person releases it for; only its Key and Message are needed
// then. inserted is false where there was a row, which is returned as it is. After
// an error there may be a row, and Import may be called again.
func (f *Fence) Import(ctx context.Context, e Effect, reason string) (row Row, inserted bool, err error) {
	fresh, err := f.imported(e, reason)
	if err != nil {
		return Row{}, false, fmt.Errorf("import %s: %w; nothing was written", e.Key, err)
	}
	row, err = f.Store.Insert(ctx, fresh, Write{Lease: fresh.Open.Lease, DueIn: Never, Note: importNote(fresh)})
	if err != nil {
		return Row{}, false, fmt.Errorf("import %s: %w", e.Key, err)
	}
	return row, row.Claim == fresh.Claim, nil
}

// Imported is the kind of a note that an import wrote the row, and what it knew.
const Imported = "imported"

// importNote is the note of an import's write of row.
func importNote(row Row) *Note {
	text := "as " + string(row.State)
	if row.Reference != "" {
		text += ", reference " + row.Reference
	}
	return &Note{Epoch: row.Claim.Epoch, Kind: Imported, Text: text + ": " + row.Reason}
}

// imported is the row that Import writes.
func (f *Fence) imported(e Effect, reason string) (Row, error) {
	row := Row{Key: e.Key}
	if e.Render != nil {
		e.MissingRow = Held
		var err error
		if row, err = f.fresh(e); err != nil {
			return Row{}, err
		}
	} else {
		if err := e.Key.Validate(); err != nil {
			return Row{}, err
		}
		row.State, row.Claim, row.Generation, row.Tries, row.Unproven = Held, Claim{}.next(), 1, 1, 1
		row.Fingerprint.Message, row.Amount = e.Fingerprint.Message, e.Amount
		row.Endpoint = Endpoint{Provider: e.Provider, Account: e.Account}
		row.ProviderKey = providerKey(f.Secret, row.Key, 1, requestMain)
	}
	row.Cause, row.Reason = ByImport, reason
	return row, nil
}

// Payment is what is known of a payment that was made before zabor had its queue.
type Payment struct {
	Key       Key
	Provider  string   // its name in the configuration; empty: not known
	Amount    Money    // zero: not known
	Reference string   // the provider's, or the shop's own; empty: not known
	Aliases   []string // other ids of the same payment; no row keeps them
	Reason    string   // where it is known from, and why it is held where it is

	// Contradicted: what is known cannot be one payment, such as two references for
	// one key, or one for two.
	Contradicted bool
}

// Agrees reports whether row says what p says, as far as both say anything.
func (p Payment) Agrees(row Row) bool {
	return !p.Contradicted && row.State == Settled && (row.Reference == p.Reference || slices.Contains(p.Aliases, row.Reference)) && sameMoney(row.Amount, p.Amount)
}

func sameMoney(a, b Money) bool { return a.Currency == "" || b.Currency == "" || a == b }

// Plan is the row that [Fence.ImportPayment] leaves where there is row; nil: none.
// written is false where it leaves row as it is, or only marks that p contradicts it.
func (p Payment) Plan(row *Row) (next Row, written bool) {
	switch {
	case row == nil:
		return p.row(), true
	case row.State != Held || row.Cause != ByImport:
		return *row, false
	}
	next = *row
	next.Claim = row.Claim.next()
	switch {
	case p.Contradicted:
		next.Cause, next.Reason = ByConflict, p.Reason
	case p.Reference == "":
		return *row, false
	case !sameMoney(row.Amount, p.Amount):
		next.Cause, next.Reason = ByConflict, fmt.Sprintf("the payment %s is of another amount: %s", p.Reference, p.Reason)
	default:
		next.State, next.Reference, next.Reason = Settled, p.Reference, p.Reason
		if next.Amount.Currency == "" {
			next.Amount = p.Amount
		}
		return hooked(next), true
	}
	return next, false
}

// row is the row of p where there is none, but for its provider key. It is one of
// somebody else's call: any message for its key is answered by it.
func (p Payment) row() Row {
	row := Row{
		Key: p.Key, State: Settled, Cause: ByImport, Claim: Claim{}.next(), Generation: 1, Tries: 1, Unproven: 1,
		Endpoint: Endpoint{Provider: p.Provider}, Amount: p.Amount, Reference: p.Reference, Reason: p.Reason,
	}
	switch {
	case p.Contradicted:
		row.State, row.Cause, row.Reference = Held, ByConflict, ""
	case p.Reference == "":
		row.State = Held
	}
	return row
}

// ImportPayment writes a row for p, so that no message makes it again: settled, or
// held where p has no reference or is contradicted. It calls nothing, runs no hook and
// alerts nobody.
//
// A row that an import has held and nobody has decided since is settled by p. Where p
// is contradicted or of another amount it stays held instead, and no later payment
// settles it: a person decides. Every other row is left as it is.
//
// The row returned is the one in the table then. written is false where there was one
// that was not settled by p; [Payment.Agrees] says whether it says the same. After an
// error it may be written, and ImportPayment may be called again.
func (f *Fence) ImportPayment(ctx context.Context, p Payment) (row Row, written bool, err error) {
	fail := func(err error) (Row, bool, error) { return Row{}, false, fmt.Errorf("import %s: %w", p.Key, err) }
	if err := p.Key.Validate(); err != nil {
		return fail(fmt.Errorf("%w; nothing was written", err))
	}
	fresh := p.row()
	fresh.ProviderKey = providerKey(f.Secret, p.Key, 1, requestMain)
	row, err = f.insertOrHold(ctx, fresh, Write{DueIn: Never, Note: importNote(fresh)})
	if err != nil {
		return fail(err)
	}
	if row.Claim == fresh.Claim {
		return row, true, nil
	}
	for {
		next, settles := p.Plan(&row)
		if next.Claim == row.Claim {
			return row, false, nil
		}
		err = f.Store.Swap(ctx, row, next, Write{Note: importNote(next), DueIn: Never})
		if shared, ok := errors.AsType[*ReferenceError](err); ok {
			next, settles = conflicting(next, shared), false
			next.Open = row.Open // a person may settle it yet, and its hook binds of it
			err = f.Store.Swap(ctx, row, next, Write{Note: importNote(next), DueIn: Never})
		}
		switch {
		case err == nil:
			return next, settles, nil
		case !errors.Is(err, ErrStale):
			return fail(err)
		}
		if row, err = f.Store.Load(ctx, p.Key); err != nil {
			return fail(err)
		}
	}
}
