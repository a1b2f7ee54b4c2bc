package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"zabor"
)

// Filter says which rows [Store.List] lists. The zero Filter lists them all, a
// page at a time.
type Filter struct {
	States []zabor.State // empty: any
	Within string        // only of this installation, see [zabor.Key.In]; empty: of all
	Scope  *string       // nil: any
	Order  string        // empty: any
	Step   string        // with all its parts: "refund" also lists "refund:R-7". Empty: any
	Due    bool          // only rows whose hook must still run
	After  zabor.Key     // the last key of the page before; zero: from the front
	Limit  int           // 0: 100
}

// List lists rows in key order, which is byte order.
func (s *Store) List(ctx context.Context, f Filter) ([]zabor.Row, error) {
	query, args := s.dialect.list(f)
	found, err := s.rows(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list rows: %w", err)
	}
	return found, nil
}

// list is the SELECT of f. Each state is looked up by itself, because only so
// the index gives a state's rows in key order; all in one statement, so that a
// row that changes its state meanwhile is neither missed nor listed twice.
func (d *dialect) list(f Filter) (query string, args []any) {
	limit := int64(cmp.Or(f.Limit, 100))
	var parts []string
	for i, state := range slices.Compact(slices.Sorted(slices.Values(f.States))) {
		where, whereArgs := d.where(f, state)
		parts = append(parts, fmt.Sprintf("SELECT * FROM (%s) s%d", selectRow+where+inOrder, i))
		args = append(append(args, whereArgs...), limit)
	}
	if len(parts) > 0 {
		return d.sql(strings.Join(parts, " UNION ALL ") + inOrder), append(args, limit)
	}
	where, args := d.where(f, "")
	return d.sql(selectRow + where + inOrder), append(args, limit)
}

const inOrder = " ORDER BY " + keyColumns + " LIMIT ?"

// where is the condition of f for one state, or for any.
func (d *dialect) where(f Filter, state zabor.State) (text string, args []any) {
	var conditions []string
	add := func(condition string, values ...any) {
		conditions = append(conditions, condition)
		args = append(args, values...)
	}
	if state != "" {
		add("state = ?", string(state))
	}
	if f.After != (zabor.Key{}) {
		condition, values := d.after(f.After, state)
		add(condition, values...)
	}
	if f.Due {
		add("hook_due > ''")
	}
	if f.Scope != nil {
		add("scope = ?", []byte(*f.Scope))
	} else if f.Within != "" {
		add(inScope, scopeArgs(f.Within)...)
	}
	if f.Order != "" {
		add("order_id = ?", []byte(f.Order))
	}
	if f.Step != "" {
		add(ofStep, stepArgs(f.Step)...)
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// A step with all its parts: «:» is followed by «;» in byte order.
const ofStep = "(step = ? OR (step >= ? AND step < ?))"

func stepArgs(step string) []any {
	return []any{[]byte(step), []byte(step + ":"), []byte(step + ";")}
}

// A scope with all scopes in it: «/» is followed by «0» in byte order.
const inScope = "(scope = ? OR (scope >= ? AND scope < ?))"

func scopeArgs(scope string) []any {
	return []any{[]byte(scope), []byte(scope + "/"), []byte(scope + "0")}
}

// StateCount is how many rows are in a state, and since when the oldest of them.
type StateCount struct {
	State  zabor.State
	Rows   int64
	Oldest time.Time // when it entered the state
	Older  []int64   // of them, that have been in it for at least each of the ages asked for
	ReadAt time.Time // the database's clock
}

// CountUnclosed counts the rows that are not closed, by state, in the given scope
// and the scopes in it; the empty scope counts everywhere; and how many of them are
// in it for how long. It reads open rows only, however many are closed.
func (s *Store) CountUnclosed(ctx context.Context, scope string, ages ...time.Duration) ([]StateCount, error) {
	query, args := unclosed(scope, ages)
	query = s.dialect.sql(query)
	var counts []StateCount
	err := s.repeat(ctx, func(ctx context.Context) error {
		counts = nil
		return s.query(ctx, func(rows *sql.Rows) error {
			var c StateCount
			var oldest, now int64
			into := []any{&c.State, &c.Rows, &oldest, &now}
			c.Older = make([]int64, len(ages))
			for i := range ages {
				into = append(into, &c.Older[i])
			}
			err := rows.Scan(into...)
			c.Oldest, c.ReadAt = moment(oldest), moment(now)
			counts = append(counts, c)
			return err
		}, query, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("count open rows by state: %w", err)
	}
	return counts, nil
}

// unclosed counts in each range of states by itself: only so does every database
// read no entry of a closed row.
func unclosed(scope string, ages []time.Duration) (query string, args []any) {
	older := strings.Repeat(", COUNT(CASE WHEN state_since <= {now} - ? THEN 1 END)", len(ages))
	var parts []string
	for _, states := range openRanges {
		for _, age := range ages {
			args = append(args, micros(age))
		}
		// Without a scope the index of states has all that is asked for.
		from, where := "{recent}", " WHERE "+states
		if scope != "" {
			from = ""
			where, args = within(scope, where, args)
		}
		parts = append(parts, "SELECT state, COUNT(*), MIN(state_since), {now}"+older+" FROM zabor_fences"+from+where+" GROUP BY state")
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY 1", args
}

// Outline lists rows in key order, behind the given key, with what tells them
// apart and what became of them: without their requests, answers, fingerprints and
// what hooks bind. It is for whoever reads all of them.
func (s *Store) Outline(ctx context.Context, after zabor.Key, limit int) ([]zabor.Row, error) {
	query, args := selectOutline, []any(nil)
	if after != (zabor.Key{}) {
		condition, values := s.dialect.after(after, "")
		query, args = query+" WHERE "+condition, values
	}
	return s.outlines(ctx, query+inOrder, append(args, int64(limit))...)
}

// selectOutline selects what an outline of a row has.
const selectOutline = "SELECT " + outlineColumns + ", {now} AS read_at FROM zabor_fences"

const outlineColumns = keyColumns + ", state, basis, epoch, attempt_id, provider, account, provider_key, amount_minor, currency, reference, other_reference, " +
	"reason, parked, hook_due, captures, free, absent_after, captured_at, send_until, state_since"

// outlines reads what a query that begins with selectOutline selects.
func (s *Store) outlines(ctx context.Context, query string, args ...any) ([]zabor.Row, error) {
	var found []zabor.Row
	err := s.repeat(ctx, func(ctx context.Context) error {
		found = nil
		return s.query(ctx, func(rows *sql.Rows) error {
			var r zabor.Row
			var scope, order, step, attempt, provider, account, reference, other, parked []byte
			var absent, captured, until, since, now int64
			err := rows.Scan(&scope, &order, &step, &r.State, &r.Basis, &r.Claim.Epoch, &attempt, &provider, &account, &r.ProviderKey, &r.Amount.Minor, &r.Amount.Currency,
				&reference, &other, &r.Reason, &parked, &r.HookDue, &r.Captures, &r.Free, &absent, &captured, &until, &since, &now)
			r.Key = zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}
			copy(r.Claim.ID[:], attempt)
			r.Provider, r.Reference, r.OtherReference, r.Parked = string(provider), string(reference), string(other), string(parked)
			r.Account, r.Place = readAccount(account)
			r.AbsentAfter = duration(absent)
			r.CapturedAt, r.SendUntil, r.StateSince, r.ReadAt = moment(captured), moment(until), moment(since), moment(now)
			found = append(found, r)
			return err
		}, s.dialect.sql(query), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return found, nil
}

// The states that are not closed in ranges, which an index can follow; states that
// this version does not know are among them.
const (
	belowDeclined = "state < 'declined'"
	inBetween     = "(state > 'declined' AND state < 'settled')"
	aboveSettled  = "state > 'settled'"
	notClosed     = "(" + belowDeclined + " OR " + inBetween + " OR " + aboveSettled + ")"
)

var openRanges = [...]string{belowDeclined, inBetween, aboveSettled}

// CountOpen counts the rows of step, with all its parts, that are not closed, in
// the given scope and the scopes in it; the empty scope counts everywhere.
func (s *Store) CountOpen(ctx context.Context, scope, step string) (int64, error) {
	return s.count(ctx, scope, notClosed+" AND "+ofStep, stepArgs(step)...)
}

// CountUnresolved counts the rows whose call is under way or in doubt, in the
// given scope and the scopes in it; the empty scope counts everywhere.
func (s *Store) CountUnresolved(ctx context.Context, scope string) (int64, error) {
	return s.count(ctx, scope, "state IN (?, ?)", string(zabor.Captured), string(zabor.Doubt))
}

// CountSettled counts the settled rows of step as [Store.CountOpen] counts open ones.
// It may read all rows of the step: ask for it seldom.
func (s *Store) CountSettled(ctx context.Context, scope, step string) (int64, error) {
	return s.count(ctx, scope, "state = 'settled' AND "+ofStep, stepArgs(step)...)
}

func (s *Store) count(ctx context.Context, scope, where string, args ...any) (n int64, err error) {
	where, args = within(scope, where, args)
	query := s.dialect.sql("SELECT COUNT(*) FROM zabor_fences WHERE " + where)
	err = s.repeat(ctx, func(ctx context.Context) error {
		return s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&n) }, query, args...)
	})
	if err != nil {
		return 0, fmt.Errorf("count rows: %w", err)
	}
	return n, nil
}
