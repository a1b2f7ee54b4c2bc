package zabor

import (
	"context"
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
		row.Message = e.Message
		row.ProviderKey = providerKey(f.Secret, row.Key, 1, requestMain)
	}
	row.Basis, row.Reason = ByImport, reason
	return row, nil
}
