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

// Mark is where a row stands among those that changed last: what [Store.Recent]
// goes on from.
type Mark struct {
	Since time.Time // when it entered its state; zero: nothing was listed yet
	Key   zabor.Key // the zero Key: all of that moment were looked at
}

// MarkOf is the mark of row.
func MarkOf(row zabor.Row) Mark { return Mark{Since: row.StateSince, Key: row.Key} }

// Search is which rows [Store.Recent] and [Store.Oldest] are asked for. The zero
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

// Recent lists outlines of rows, see [Store.Outline], those that entered their
// state last first.
//
// Where on is not zero the look has ended, by its bound, before there were Limit
// rows: the older ones were not looked at, and a Search behind on goes on with them.
func (s *Store) Recent(ctx context.Context, search Search) (rows []zabor.Row, on Mark, err error) {
	search.States = statesOf(search)
	end, err := s.lookEnd(ctx, search, newestFirst)
	if err != nil {
		return nil, Mark{}, err
	}
	query, args := s.dialect.sought(selectOutline, search, newestFirst, end)
	rows, err = s.outlines(ctx, query, args...)
	return rows, search.on(rows, end), err
}

// Oldest lists whole rows, those that entered their state first first; on is as
// [Store.Recent] has it.
func (s *Store) Oldest(ctx context.Context, search Search) (rows []zabor.Row, on Mark, err error) {
	search.States = statesOf(search)
	end, err := s.lookEnd(ctx, search, oldestFirst)
	if err != nil {
		return nil, Mark{}, err
	}
	query, args := s.dialect.sought(selectRow, search, oldestFirst, end)
	if rows, err = s.rows(ctx, query, args...); err != nil {
		return nil, Mark{}, fmt.Errorf("list rows by their time: %w", err)
	}
	return rows, search.on(rows, end), nil
}

func statesOf(s Search) []zabor.State {
	states := s.States
	if len(states) == 0 {
		states = zabor.States()
	}
	return slices.Compact(slices.Sorted(slices.Values(states)))
}

func (s Search) limit() int { return cmp.Or(s.Limit, 100) }

// narrow reports whether s wants less than all rows of its states, so that an index
// of states has others between those that are wanted.
func (s Search) narrow() bool { return s.Scope != "" || s.Step != "" }

// on is the mark of where a look ended at end that has found these rows.
func (s Search) on(rows []zabor.Row, end time.Time) Mark {
	if end.IsZero() || len(rows) >= s.limit() {
		return Mark{}
	}
	return Mark{Since: end}
}

// sorting is an order of rows by when they entered their state. An index of states
// has it with its own columns, and with what InnoDB has at the end of every index:
// in any other order MariaDB would sort all rows of a state. Other databases sort
// those of one moment.
type sorting struct{ direction, behind string }

var (
	newestFirst = sorting{" DESC", "<"}
	oldestFirst = sorting{"", ">"}
)

func (o sorting) by(columns ...string) string {
	return " ORDER BY " + strings.Join(columns, o.direction+", ") + o.direction + " LIMIT ?"
}

// after is the condition for what is behind m. The range stands first: an index
// follows it.
func (o sorting) after(m Mark) (condition string, args []any) {
	since, key := m.Since.UnixMicro(), keyArgs(m.Key)
	switch {
	case m.Since.IsZero():
		return "", nil
	case m.Key == zabor.Key{}:
		return " AND state_since " + o.behind + " ?", []any{since}
	}
	return strings.ReplaceAll(" AND state_since <= ? AND (state_since < ? OR step < ? OR (step = ? AND (scope < ? OR (scope = ? AND order_id < ?))))", "<", o.behind),
		[]any{since, since, key[2], key[2], key[0], key[0], key[1]}
}

// lookEnd is the moment at which a look ends by its bound; zero: it goes through.
func (s *Store) lookEnd(ctx context.Context, search Search, order sorting) (end time.Time, err error) {
	if !search.narrow() {
		return time.Time{}, nil
	}
	query, args := lookEnd(search, order)
	err = s.repeat(ctx, func(ctx context.Context) error {
		end = time.Time{}
		return s.query(ctx, func(rows *sql.Rows) error {
			var since int64
			err := rows.Scan(&since)
			if at := moment(since); end.IsZero() || order == newestFirst && at.After(end) || order == oldestFirst && at.Before(end) {
				end = at
			}
			return err
		}, s.dialect.sql(query), args...)
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("look for rows: %w", err)
	}
	return end, nil
}

// lookEnd selects, of each state that has more rows than are looked at, the moment of
// the last one that is. It reads entries of an index alone.
func lookEnd(search Search, order sorting) (query string, args []any) {
	var parts []string
	for i, state := range search.States {
		after, afterArgs := order.after(search.After)
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT state_since FROM zabor_fences{recent} WHERE state = ?%s%s OFFSET ?) s%d", after, order.by("state_since"), i))
		args = append(append(append(args, string(state)), afterArgs...), int64(1), int64(cmp.Or(search.Look, 20_000)-1))
	}
	return strings.Join(parts, " UNION ALL "), args
}

// sought selects, of the rows up to end, those of a search. Where an index has the whole
// keys it is asked for these first, so that no row is read for being passed over.
func (d *dialect) sought(what string, search Search, order sorting, end time.Time) (query string, args []any) {
	limit := int64(search.limit())
	inner := what
	if d.keysInside {
		inner = "SELECT state_since AS at, step AS st, scope AS sc, order_id AS o FROM zabor_fences"
	}
	var parts []string
	for i, state := range search.States {
		where, whereArgs := order.after(search.After)
		where, args = " WHERE state = ?"+where, append(append(args, string(state)), whereArgs...)
		if !end.IsZero() {
			where += " AND " + strings.ReplaceAll("? <= state_since", "<", order.behind)
			args = append(args, end.UnixMicro())
		}
		if search.Step != "" {
			where += " AND " + ofStep
			args = append(args, stepArgs(search.Step)...)
		}
		where, args = within(search.Scope, where, args)
		parts = append(parts, fmt.Sprintf("SELECT * FROM (%s{recent}%s%s) s%d", inner, where, order.by("state_since", "step", "scope", "order_id"), i))
		args = append(args, limit)
	}
	all := strings.Join(parts, " UNION ALL ")
	if d.keysInside {
		all = what + ", (" + all + order.by("at", "st", "sc", "o") + ") k WHERE scope = sc AND order_id = o AND step = st"
		args = append(args, limit)
	}
	return d.sql(all + order.by("state_since", "step", "scope", "order_id")), append(args, limit)
}

// within narrows a condition to the rows of an installation, see [zabor.Key.In].
func within(scope, where string, args []any) (string, []any) {
	if scope == "" {
		return where, args
	}
	return where + " AND " + inScope, append(args, scopeArgs(scope)...)
}

// LookedAt is how many rows [Store.OfOrders] and [Store.OfReference] look at for
// those of an installation.
const LookedAt = 2000

// OfOrders lists outlines of the rows of all orders whose id begins with prefix,
// of the installation of that scope, see [zabor.Key.In], in byte order; limit 0 is
// 100. prefix is not empty. more: there are rows behind them that were not looked at,
// whether of this installation or of others.
func (s *Store) OfOrders(ctx context.Context, scope, prefix string, limit int) (rows []zabor.Row, more bool, err error) {
	limit = cmp.Or(limit, 100)
	var end []byte
	if scope != "" {
		if end, more, err = s.orderEnd(ctx, prefix); err != nil {
			return nil, false, fmt.Errorf("look for orders: %w", err)
		}
	}
	query, args := ofOrders(scope, prefix, end, int64(limit))
	rows, err = s.outlines(ctx, query, args...)
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
	return "SELECT order_id FROM zabor_fences{order}" + where + " ORDER BY order_id LIMIT ? OFFSET ?", append(slices.Clone(args), int64(1), n)
}

// ofOrders selects the rows of orders before end; nil: of all.
func ofOrders(scope, prefix string, end []byte, limit int64) (query string, args []any) {
	where, args := ofPrefix(prefix)
	if end != nil {
		where += " AND order_id < ?"
		args = append(args, end)
	}
	where, args = within(scope, where, args)
	return selectOutline + "{order}" + where + " ORDER BY order_id, scope, step LIMIT ?", append(args, limit)
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

// OfReference lists outlines of the rows that have the provider's reference, as
// the first or the other one, of the installation of that scope, see
// [zabor.Key.In], among the first [LookedAt] of each kind; limit 0 is 100. reference
// is not empty.
func (s *Store) OfReference(ctx context.Context, scope, reference string, limit int) ([]zabor.Row, error) {
	query, args := ofReference(scope, reference, int64(cmp.Or(limit, 100)))
	return s.outlines(ctx, query, args...)
}

func ofReference(scope, reference string, limit int64) (query string, args []any) {
	var parts []string
	// The comparison with the empty text is what the index is made of.
	for i, from := range []string{"{references} WHERE reference = ? AND reference > {none}", "{others} WHERE other_reference = ? AND other_reference > {none}"} {
		args = append(args, []byte(reference), int64(LookedAt))
		var where string
		where, args = within(scope, "", args)
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT * FROM (%s%s LIMIT ?) a%d WHERE 1 = 1%s LIMIT ?) b%d", selectOutline, from, i, where, i))
		args = append(args, limit)
	}
	return strings.Join(parts, " UNION ALL "), args
}
