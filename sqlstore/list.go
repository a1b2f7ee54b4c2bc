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

// Filter says which rows [Reports.List] lists. The zero Filter lists them all, a
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
func (r Reports) List(ctx context.Context, f Filter) ([]zabor.Row, error) {
	query, args := r.s.dialect.list(f)
	found, err := r.s.rows(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list rows: %w", err)
	}
	return found, nil
}

// list is the SELECT of f. Open states are looked up among the open rows, which are few;
// others by the primary key.
func (d *dialect) list(f Filter) (query string, args []any) {
	where, args := d.where(f)
	return d.sql(selectRow + where + inOrder), append(args, int64(cmp.Or(f.Limit, 100)))
}

const inOrder = " ORDER BY " + keyColumns + " LIMIT ?"

// where is the condition of f.
func (d *dialect) where(f Filter) (text string, args []any) {
	var conditions []string
	add := func(condition string, values ...any) {
		conditions = append(conditions, condition)
		args = append(args, values...)
	}
	if f.After != (zabor.Key{}) {
		condition, values := d.after(f.After)
		add(condition, values...)
	}
	if len(f.States) > 0 {
		condition, values := ofStates(f.States)
		add(condition, values...)
	}
	if f.Due || len(f.States) > 0 && !slices.ContainsFunc(f.States, zabor.State.Closed) {
		add("due_at IS NOT NULL")
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

// ofStates is the condition for rows in one of the states.
func ofStates(states []zabor.State) (condition string, args []any) {
	for _, state := range states {
		args = append(args, string(state))
	}
	return "state IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(states)), ", ") + ")", args
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

// Row returns the row of key as it stands, without a lock. nil means that there is none.
func (r Reports) Row(ctx context.Context, key zabor.Key) (*zabor.Row, error) {
	rows, err := r.List(ctx, Filter{Scope: &key.Scope, Order: key.Order, Step: key.Step, Limit: 1})
	if err != nil || len(rows) == 0 || rows[0].Key != key {
		return nil, err
	}
	return &rows[0], nil
}

// Unclosed counts the rows that are not closed, by state, in the given scope and the
// scopes in it (the empty scope counts everywhere), and how many of them have been in it
// for at least each of the ages. It reads open rows only, however many are closed.
func (r Reports) Unclosed(ctx context.Context, scope string, ages ...time.Duration) ([]StateCount, error) {
	query, args := unclosed(scope, ages)
	query = r.s.dialect.sql(query)
	var counts []StateCount
	err := r.s.repeat(ctx, func(ctx context.Context) error {
		counts = nil
		return r.s.query(ctx, func(rows *sql.Rows) error {
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

// openRows reads unfinished rows alone. A row that is closed and unfinished has a hook
// due, or was refused for its form.
const openRows = " FROM zabor_fences WHERE due_at IS NOT NULL AND "

const notClosed = "state NOT IN ('settled', 'declined')"

func unclosed(scope string, ages []time.Duration) (query string, args []any) {
	for _, age := range ages {
		args = append(args, micros(age))
	}
	where, args := within(scope, notClosed, args)
	return "SELECT state, COUNT(*), MIN(state_since), {now}" + strings.Repeat(", COUNT(CASE WHEN state_since <= {now} - ? THEN 1 END)", len(ages)) +
		openRows + where + " GROUP BY state ORDER BY state", args
}

// Outline lists rows in key order, behind the given key, for a reader of all of them:
// without their answers and all that only an open row has but its deadlines.
func (r Reports) Outline(ctx context.Context, after zabor.Key, limit int) ([]zabor.Row, error) {
	query, args := selectOutline, []any(nil)
	if after != (zabor.Key{}) {
		condition, values := r.s.dialect.after(after)
		query, args = query+" WHERE "+condition, values
	}
	return r.s.outlines(ctx, query+inOrder, append(args, int64(limit))...)
}

// selectOutline selects an outline of a row, as outlines scans it.
const selectOutline = "SELECT " + keyColumns + ", state, cause, epoch, attempt_id, provider, account, address, provider_key, amount_minor, currency, " +
	"reference, other_reference, reason, parked, hook_due, tries, unproven, captured_at, state_since, due_at, absent_after, send_until, {now} AS read_at FROM zabor_fences"

// outlines reads the rows of a query that begins with selectOutline.
func (s *Store) outlines(ctx context.Context, query string, args ...any) ([]zabor.Row, error) {
	var found []zabor.Row
	err := s.repeat(ctx, func(ctx context.Context) error {
		found = nil
		return s.query(ctx, func(rows *sql.Rows) error {
			var r zabor.Row
			var scope, order, step, attempt, provider, account, reference, other, parked []byte
			var captured, since, absent, until, now int64
			var due sql.NullInt64
			err := rows.Scan(&order, &scope, &step, &r.State, &r.Cause, &r.Claim.Epoch, &attempt, &provider, &account, &r.Endpoint.Address, &r.ProviderKey, &r.Amount.Minor, &r.Amount.Currency,
				&reference, &other, &r.Reason, &parked, &r.HookDue, &r.Tries, &r.Unproven, &captured, &since, &due, &absent, &until, &now)
			r.Key = scannedKey(order, scope, step)
			copy(r.Claim.ID[:], attempt)
			r.Provider, r.Account, r.Reference, r.OtherReference, r.Parked = string(provider), string(account), string(reference), string(other), string(parked)
			r.CapturedAt, r.StateSince, r.ReadAt = moment(captured), moment(since), moment(now)
			if due.Valid {
				r.Open.AbsentAfter, r.Open.SendUntil = duration(absent), moment(until)
			}
			found = append(found, r)
			return err
		}, s.dialect.sql(query), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return found, nil
}

// Open counts the rows of step, with all its parts, that are not closed, in
// the given scope and the scopes in it; the empty scope counts everywhere.
func (r Reports) Open(ctx context.Context, scope, step string) (int64, error) {
	return r.s.count(ctx, scope, notClosed+" AND "+ofStep, stepArgs(step)...)
}

// Unresolved counts the rows whose call is under way or in doubt, in the
// given scope and the scopes in it; the empty scope counts everywhere.
func (r Reports) Unresolved(ctx context.Context, scope string) (int64, error) {
	return r.s.count(ctx, scope, "state IN (?, ?)", string(zabor.Captured), string(zabor.Doubt))
}

// Settled counts the settled rows of step as [Reports.Open] counts open ones.
// It may read all rows of the step: ask for it seldom.
func (r Reports) Settled(ctx context.Context, scope, step string) (int64, error) {
	return r.s.countIn(ctx, " FROM zabor_fences WHERE ", scope, "state = 'settled' AND "+ofStep, stepArgs(step)...)
}

// count counts unfinished rows.
func (s *Store) count(ctx context.Context, scope, where string, args ...any) (n int64, err error) {
	return s.countIn(ctx, openRows, scope, where, args...)
}

func (s *Store) countIn(ctx context.Context, from, scope, where string, args ...any) (n int64, err error) {
	where, args = within(scope, where, args)
	query := s.dialect.sql("SELECT COUNT(*)" + from + where)
	err = s.repeat(ctx, func(ctx context.Context) error {
		return s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&n) }, query, args...)
	})
	if err != nil {
		return 0, fmt.Errorf("count rows: %w", err)
	}
	return n, nil
}
