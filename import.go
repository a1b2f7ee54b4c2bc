package zabor

import (
	"context"
	"errors"
	"fmt"
)

// Import holds what e asks for, unless there is a row: somebody who knew no fence
// had its message, and may have made the call. It calls nothing, runs no hook, and
// alerts nobody: whoever imports has a report. The reason says who had it.
//
// An e whose request cannot be made any more has no Freeze, and its row takes
// whatever request a person releases it for; only its Key and Message are needed
// then. inserted is false where there was a row, which is returned as it is. After
// an error there may be a row, and Import may be called again.
func (f *Fence) Import(ctx context.Context, e Effect, reason string) (row Row, inserted bool, err error) {
	fresh, err := f.imported(e, reason)
	if err != nil {
		return Row{}, false, fmt.Errorf("import %s: %w; nothing was written", e.Key, err)
	}
	row, err = f.Store.Insert(ctx, fresh, Write{Lease: fresh.Lease})
	if err != nil {
		return Row{}, false, fmt.Errorf("import %s: %w", e.Key, err)
	}
	return row, row.Claim == fresh.Claim, nil
}

// imported is the row that Import writes.
func (f *Fence) imported(e Effect, reason string) (Row, error) {
	row := Row{Key: e.Key}
	if e.Freeze != nil {
		e.MissingRow = Held
		var err error
		if row, err = f.fresh(e); err != nil {
			return Row{}, err
		}
	} else {
		if err := e.Key.Validate(); err != nil {
			return Row{}, err
		}
		row.State, row.Claim, row.Generation, row.Captures, row.Allowance = Held, Claim{}.next(), 1, 1, 1
		row.Message, row.Provider, row.Account, row.Amount = e.Message, e.Provider, e.Account, e.Amount
		row.ProviderKey = providerKey(f.Secret, row.Key, 1, requestMain)
	}
	row.Basis, row.Reason = ByImport, reason
	return row, nil
}

// Payment is a payment that was made before zabor had its queue.
type Payment struct {
	Key       Key
	Provider  string // its name in the configuration; empty: not known
	Amount    Money  // zero: not known
	Reference string // the provider's, or the shop's own; not empty
	Reason    string // where it is known from
}

// Agrees reports whether row says what p says, as far as both say anything.
func (p Payment) Agrees(row Row) bool {
	return row.State == Settled && row.Reference == p.Reference && sameMoney(row.Amount, p.Amount)
}

// Settles reports whether row is one that [Fence.ImportPayment] settles by p.
func (p Payment) Settles(row Row) bool {
	return row.State == Held && row.Basis == ByImport && sameMoney(row.Amount, p.Amount)
}

func sameMoney(a, b Money) bool { return a.Currency == "" || b.Currency == "" || a == b }

// ImportPayment writes a settled row for p, so that no message makes it again. It
// calls nothing, runs no hook and alerts nobody. A row that [Fence.Import] has held
// and nobody has decided since is settled by p, unless it is about another amount;
// every other row is left as it is.
//
// The row returned is the one in the table then. written is false where there was
// one that was left alone; [Payment.Agrees] says whether it says the same. After an
// error it may be written, and ImportPayment may be called again.
func (f *Fence) ImportPayment(ctx context.Context, p Payment) (row Row, written bool, err error) {
	fresh, err := f.paid(p)
	if err != nil {
		return Row{}, false, fmt.Errorf("import %s: %w; nothing was written", p.Key, err)
	}
	row, err = f.Store.Insert(ctx, fresh, Write{})
	for err == nil && row.Claim != fresh.Claim && p.Settles(row) {
		next := row
		next.Claim, next.State, next.Reference, next.Reason = row.Claim.next(), Settled, p.Reference, p.Reason
		if next.Amount.Currency == "" {
			next.Amount = p.Amount
		}
		next, note := closed(next), &Note{Epoch: row.Claim.Epoch + 1, Kind: evidence, Text: "was held: " + row.Reason}
		err = f.Store.Swap(ctx, row, next, Write{Note: note})
		if err == nil {
			return next, true, nil
		}
		if errors.Is(err, ErrStale) {
			row, err = f.Store.Load(ctx, p.Key)
		}
	}
	if err != nil {
		return Row{}, false, fmt.Errorf("import %s: %w", p.Key, err)
	}
	return row, row.Claim == fresh.Claim, nil
}

// paid is the row that ImportPayment writes: settled by somebody else, so that any
// message for its key is answered by it.
func (f *Fence) paid(p Payment) (Row, error) {
	if err := p.Key.Validate(); err != nil {
		return Row{}, err
	}
	if p.Reference == "" {
		return Row{}, errors.New("a payment without a reference")
	}
	return Row{
		Key: p.Key, State: Settled, Basis: ByImport, Claim: Claim{}.next(), Generation: 1, Captures: 1, Allowance: 1,
		Provider: p.Provider, Amount: p.Amount, Reference: p.Reference, Reason: p.Reason,
		ProviderKey: providerKey(f.Secret, p.Key, 1, requestMain),
	}, nil
}
