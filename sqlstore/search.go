package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"zabor"
)

// Mark is where a row stands among those that changed last: what [Reports.Recent]
// goes on from.
type Mark struct {
	Since time.Time // when it entered its state; zero: nothing was listed yet
	Key   zabor.Key // the zero Key: all of that moment were looked at
}

// MarkOf is the mark of row in [Reports.Recent].
func MarkOf(row zabor.Row) Mark { return Mark{Since: row.CapturedAt, Key: row.Key} }

// OldestMark is the mark of row in [Reports.Oldest].
func OldestMark(row zabor.Row) Mark { return Mark{Since: row.StateSince, Key: row.Key} }

// Search is which rows [Reports.Recent] and [Reports.Oldest] are asked for. The zero
// Search is for the first of all rows.
type Search struct {
	Scope  string        // of this installation alone, see [zabor.Key.In]; empty: of all
	States []zabor.State // empty: any that this version knows
	Step   string        // with all its parts, see [Filter]; empty: any
	After  Mark          // behind this one; the zero Mark: from the front
	Limit  int           // 0: 100
	// Look bounds how many rows of each state are looked at for those of Scope and
	// Step, which no index leads with; 0: 20000. All that entered their state in one
	// moment are looked at together.
	Look int
}

// Recent lists outlines of rows, see [Reports.Outline], the newest first by their first
// capture.
//
// If on is not zero the look has ended, by its bound, before there were Limit rows. A
// Search behind on goes on with the older ones.
func (r Reports) Recent(ctx context.Context, search Search) (rows []zabor.Row, on Mark, err error) {
	end, err := r.s.lookEnd(ctx, search)
	if err != nil {
		return nil, Mark{}, err
	}
	query, args := newest(search, end)
	rows, err = r.s.outlines(ctx, query, args...)
	if end.IsZero() || len(rows) >= search.limit() {
		return rows, Mark{}, err
	}
	return rows, Mark{Since: end}, err
}

// Oldest lists whole open rows, those that entered their state first first. Closed
// states have none.
func (r Reports) Oldest(ctx context.Context, search Search) (rows []zabor.Row, on Mark, err error) {
	query, args := oldest(search)
	if rows, err = r.s.rows(ctx, r.s.dialect.sql(query), args...); err != nil {
		return nil, Mark{}, fmt.Errorf("list rows by their time: %w", err)
	}
	return rows, Mark{}, nil
}

func (s Search) limit() int { return cmp.Or(s.Limit, 100) }

// narrow reports whether s wants less than all rows, so that the index of captures has
// others between those that are wanted.
func (s Search) narrow() bool { return s.Scope != "" || s.Step != "" || len(s.States) > 0 }

// conditions are those of s but for the time.
func (s Search) conditions() (where string, args []any) {
	where = "1 = 1"
	if len(s.States) > 0 {
		where, args = ofStates(s.States)
	}
	if s.Step != "" {
		where += " AND " + ofStep
		args = append(args, stepArgs(s.Step)...)
	}
	return within(s.Scope, where, args)
}

// behindMark is the condition for rows behind m by a column of time; sign is < for the
// newest first, > for the oldest first.
func behindMark(m Mark, column, sign string) (condition string, args []any) {
	since, key := m.Since.UnixMicro(), keyArgs(m.Key)
	switch {
	case m.Since.IsZero():
		return "", nil
	case m.Key == zabor.Key{}:
		return " AND " + column + " " + sign + " ?", []any{since}
	}
	return strings.NewReplacer("{c}", column, "<", sign).Replace(" AND {c} <= ? AND ({c} < ? OR order_id < ? OR (order_id = ? AND (scope < ? OR (scope = ? AND step < ?))))"),
		[]any{since, since, key[0], key[0], key[1], key[1], key[2]}
}

// newest selects the newest rows of s that were captured at end or later.
func newest(s Search, end time.Time) (query string, args []any) {
	where, args := s.conditions()
	after, afterArgs := behindMark(s.After, "captured_at", "<")
	where, args = where+after, append(args, afterArgs...)
	if !end.IsZero() {
		where += " AND captured_at >= ?"
		args = append(args, end.UnixMicro())
	}
	from := "{recent}"
	if len(s.States) > 0 && !slices.ContainsFunc(s.States, zabor.State.Closed) {
		from, where = "", "due_at IS NOT NULL AND "+where // open rows are few
	}
	return selectOutline + from + " WHERE " + where + " ORDER BY captured_at DESC, order_id DESC, scope DESC, step DESC LIMIT ?", append(args, int64(s.limit()))
}

// oldest selects the oldest open rows of s.
func oldest(s Search) (query string, args []any) {
	where, args := s.conditions()
	after, afterArgs := behindMark(s.After, "state_since", ">")
	return selectRow + " WHERE due_at IS NOT NULL AND " + where + after +
		" ORDER BY state_since, order_id, scope, step LIMIT ?", append(append(args, afterArgs...), int64(s.limit()))
}

// lookEnd is the moment at which a look ends by its bound; zero: it goes through.
func (s *Store) lookEnd(ctx context.Context, search Search) (end time.Time, err error) {
	if !search.narrow() {
		return time.Time{}, nil
	}
	query, args := lookEnd(search)
	err = s.repeat(ctx, func(ctx context.Context) error {
		end = time.Time{}
		return s.query(ctx, func(rows *sql.Rows) error {
			var at int64
			err := rows.Scan(&at)
			end = moment(at)
			return err
		}, s.dialect.sql(query), args...)
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("look for rows: %w", err)
	}
	return end, nil
}

// lookEnd selects the moment of the last row that is looked at.
func lookEnd(search Search) (query string, args []any) {
	after, args := behindMark(search.After, "captured_at", "<")
	return "SELECT captured_at FROM zabor_fences{recent} WHERE 1 = 1" + after + " ORDER BY captured_at DESC LIMIT 1 OFFSET ?", append(args, int64(cmp.Or(search.Look, 20_000)-1))
}

// within narrows a condition to the rows of an installation, see [zabor.Key.In].
func within(scope, where string, args []any) (string, []any) {
	if scope == "" {
		return where, args
	}
	return where + " AND " + inScope, append(args, scopeArgs(scope)...)
}

// LookedAt is how many rows [Reports.OfOrders] and [Reports.OfReference] look at for
// those of an installation.
const LookedAt = 2000

// OfOrders lists outlines of the rows of all orders whose id begins with prefix,
// of the installation of that scope, see [zabor.Key.In], in byte order; limit 0 is
// 100. prefix is not empty. more: there are rows behind them that were not looked at,
// whether of this installation or of others.
func (r Reports) OfOrders(ctx context.Context, scope, prefix string, limit int) (rows []zabor.Row, more bool, err error) {
	limit = cmp.Or(limit, 100)
	var end []byte
	if scope != "" {
		if end, more, err = r.s.orderEnd(ctx, prefix); err != nil {
			return nil, false, fmt.Errorf("look for orders: %w", err)
		}
	}
	query, args := ofOrders(scope, prefix, end, int64(limit))
	rows, err = r.s.outlines(ctx, query, args...)
	return rows, more || len(rows) == limit, err
}

// orderEnd is the first order that is not looked at; nil: all are. An order is looked at
// whole or not at all, and the first always is. more: there is something behind.
func (s *Store) orderEnd(ctx context.Context, prefix string) (end []byte, more bool, err error) {
	where, args := ofPrefix(prefix)
	end, err = s.orderAt(ctx, where, args, LookedAt)
	if err != nil || end == nil {
		return nil, false, err
	}
	first, err := s.orderAt(ctx, where, args, 0)
	if err != nil || !bytes.Equal(first, end) {
		return end, true, err
	}
	end = append(end, 0) // no order is between the two
	next, err := s.orderAt(ctx, where+" AND order_id >= ?", append(args, end), 0)
	return end, next != nil, err
}

// orderAt is the order of the entry behind n others; nil: there are no more.
func (s *Store) orderAt(ctx context.Context, where string, args []any, n int64) (order []byte, err error) {
	query, args := orderAt(where, args, n)
	err = s.repeat(ctx, func(ctx context.Context) error {
		order = nil
		return s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&order) }, s.dialect.sql(query), args...)
	})
	return order, err
}

func orderAt(where string, args []any, n int64) (string, []any) {
	return "SELECT order_id FROM zabor_fences" + where + " ORDER BY order_id LIMIT ? OFFSET ?", append(slices.Clone(args), int64(1), n)
}

// ofOrders selects the rows of orders before end; nil: of all.
func ofOrders(scope, prefix string, end []byte, limit int64) (query string, args []any) {
	where, args := ofPrefix(prefix)
	if end != nil {
		where += " AND order_id < ?"
		args = append(args, end)
	}
	where, args = within(scope, where, args)
	return selectOutline + where + " ORDER BY order_id, scope, step LIMIT ?", append(args, limit)
}

func ofPrefix(prefix string) (where string, args []any) {
	where, args = " WHERE order_id >= ?", []any{[]byte(prefix)}
	if end := behind(prefix); end != nil {
		where += " AND order_id < ?"
		args = append(args, end)
	}
	return where, args
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

// OfReference lists outlines of the rows that have the provider's reference, as the first
// or the other one, of the installation of that scope, see [zabor.Key.In]; limit 0 is
// 100. reference is not empty. Steps of one order may share a reference.
func (r Reports) OfReference(ctx context.Context, scope, reference string, limit int) ([]zabor.Row, error) {
	ref := []byte(reference)
	orders := map[zabor.Key]bool{}
	for query, args := range map[string][]any{ownersOf: {ref}, disputed: {ref, ref}} {
		err := r.s.repeat(ctx, func(ctx context.Context) error {
			return r.s.query(ctx, func(rows *sql.Rows) error {
				var order, scope []byte
				err := rows.Scan(&order, &scope)
				orders[scannedKey(order, scope, nil)] = true
				return err
			}, r.s.dialect.sql(query), args...)
		})
		if err != nil {
			return nil, fmt.Errorf("look for a reference: %w", err)
		}
	}
	if len(orders) == 0 {
		return nil, nil
	}
	one, args := "(order_id = ? AND scope = ?)", []any(nil)
	for k := range orders {
		args = append(args, []byte(k.Order), []byte(k.Scope))
	}
	where, args := within(scope, "("+one+strings.Repeat(" OR "+one, len(orders)-1)+") AND (reference = ? OR other_reference = ?)", append(args, ref, ref))
	return r.s.outlines(ctx, selectOutline+" WHERE "+where+inOrder, append(args, int64(cmp.Or(limit, 100)))...)
}

// The orders of a reference: those that it belongs to, and rows that are held in dispute
// about it. A hundred are enough for a page.
const (
	ownersOf = "SELECT order_id, scope FROM zabor_references WHERE reference = ? LIMIT 100"
	disputed = "SELECT order_id, scope FROM zabor_fences WHERE due_at IS NOT NULL AND (reference = ? OR other_reference = ?) LIMIT 100"
)
