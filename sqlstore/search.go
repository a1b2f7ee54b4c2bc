package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zabor"
)

// Mark is where a row stands among those that changed last: what [Store.Recent]
// goes on from.
type Mark struct {
	Since time.Time // when it entered its state; zero: from the newest on
	Key   zabor.Key
}

// MarkOf is the mark of row.
func MarkOf(row zabor.Row) Mark { return Mark{Since: row.StateSince, Key: row.Key} }

// Recent lists outlines of rows, see [Store.Outline], those that entered their
// state last first: of the installation of that scope, see [zabor.Key.In]; in the
// given states, none for all that this version knows; of step with all its parts,
// empty for any; of those behind after; at most limit, 0 for 100.
//
// It follows an index in each state. Where few rows are of step or of the
// installation, it may go through the index's entries of all others.
func (s *Store) Recent(ctx context.Context, scope string, states []zabor.State, step string, after Mark, limit int) ([]zabor.Row, error) {
	query, args := recent(scope, states, step, after, int64(cmp.Or(limit, 100)))
	return s.outlines(ctx, query, args...)
}

// newestFirst is walked backwards in the index of states: its own columns, and what
// InnoDB has at the end of every index. In any other order MariaDB would sort all
// rows of a state; other databases sort those of one moment.
const newestFirst = " ORDER BY state_since DESC, step DESC, scope DESC, order_id DESC LIMIT ?"

func recent(scope string, states []zabor.State, step string, after Mark, limit int64) (query string, args []any) {
	if len(states) == 0 {
		states = zabor.States()
	}
	var parts []string
	for i, state := range slices.Compact(slices.Sorted(slices.Values(states))) {
		where := " WHERE state = ?"
		args = append(args, string(state))
		if !after.Since.IsZero() {
			// The range first: an index follows it.
			where += " AND state_since <= ? AND (state_since < ? OR step < ? OR (step = ? AND (scope < ? OR (scope = ? AND order_id < ?))))"
			since, key := after.Since.UnixMicro(), keyArgs(after.Key)
			args = append(args, since, since, key[2], key[2], key[0], key[0], key[1])
		}
		if step != "" {
			where += " AND " + ofStep
			args = append(args, stepArgs(step)...)
		}
		where, args = within(scope, where, args)
		parts = append(parts, fmt.Sprintf("SELECT * FROM (%s) s%d", selectOutline+"{recent}"+where+newestFirst, i))
		args = append(args, limit)
	}
	return strings.Join(parts, " UNION ALL ") + newestFirst, append(args, limit)
}

// within narrows a condition to the rows of an installation, see [zabor.Key.In].
func within(scope, where string, args []any) (string, []any) {
	if scope == "" {
		return where, args
	}
	return where + " AND " + inScope, append(args, scopeArgs(scope)...)
}

// Oldest lists whole rows in a state, those that entered it first first: of the
// installation of that scope, see [zabor.Key.In], behind after; limit 0 is 100.
func (s *Store) Oldest(ctx context.Context, scope string, state zabor.State, after Mark, limit int) ([]zabor.Row, error) {
	query, args := s.dialect.oldest(scope, state, after, int64(cmp.Or(limit, 100)))
	found, err := s.rows(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list rows in state %s: %w", state, err)
	}
	return found, nil
}

func (d *dialect) oldest(scope string, state zabor.State, after Mark, limit int64) (query string, args []any) {
	where, args := " WHERE state = ?", []any{string(state)}
	if !after.Since.IsZero() {
		where += " AND state_since >= ? AND (state_since > ? OR step > ? OR (step = ? AND (scope > ? OR (scope = ? AND order_id > ?))))"
		since, key := after.Since.UnixMicro(), keyArgs(after.Key)
		args = append(args, since, since, key[2], key[2], key[0], key[0], key[1])
	}
	where, args = within(scope, where, args)
	return d.sql(selectRow + "{recent}" + where + " ORDER BY state_since, step, scope, order_id LIMIT ?"), append(args, limit)
}

// OfOrders lists outlines of the rows of all orders whose id begins with prefix,
// of the installation of that scope, see [zabor.Key.In], in byte order; limit 0 is
// 100. prefix is not empty.
func (s *Store) OfOrders(ctx context.Context, scope, prefix string, limit int) ([]zabor.Row, error) {
	query, args := ofOrders(scope, prefix, int64(cmp.Or(limit, 100)))
	return s.outlines(ctx, query, args...)
}

func ofOrders(scope, prefix string, limit int64) (query string, args []any) {
	where, args := " WHERE order_id >= ?", []any{[]byte(prefix)}
	if end := behind(prefix); end != nil {
		where += " AND order_id < ?"
		args = append(args, end)
	}
	where, args = within(scope, where, args)
	return selectOutline + "{order}" + where + " ORDER BY order_id, scope, step LIMIT ?", append(args, limit)
}

// behind is the first text that is behind all that begin with prefix; nil: none is.
func behind(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}

// OfReference lists outlines of the rows that have the provider's reference, as
// the first or the other one, of the installation of that scope, see
// [zabor.Key.In]; limit 0 is 100. reference is not empty.
func (s *Store) OfReference(ctx context.Context, scope, reference string, limit int) ([]zabor.Row, error) {
	query, args := ofReference(scope, reference, int64(cmp.Or(limit, 100)))
	return s.outlines(ctx, query, args...)
}

func ofReference(scope, reference string, limit int64) (query string, args []any) {
	// The comparison with the empty text is what the index is made of.
	first, args := within(scope, selectOutline+"{references} WHERE reference = ? AND reference > {none}", []any{[]byte(reference)})
	other, otherArgs := within(scope, selectOutline+"{others} WHERE other_reference = ? AND other_reference > {none}", []any{[]byte(reference)})
	return "SELECT * FROM (" + first + " LIMIT ?) a UNION ALL SELECT * FROM (" + other + " LIMIT ?) b", append(append(append(args, limit), otherArgs...), limit)
}
