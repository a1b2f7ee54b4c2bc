package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
)

// statements are the texts of what runs often.
type statements struct {
	insert, load, control, note string
	swap, outcome               string // of all columns; of those that a call's outcome changes

	// What MySQL's batches are made of, by the statement of one row: what
	// stands before the rows, the first row, what stands behind, and each other
	// row with what divides it from the one before.
	many map[string][4]string
}

func newStatements(d *dialect) statements {
	asked, outcome := strings.Split(askedColumns, ", "), strings.Split(outcomeColumns, ", ")
	insertHead := d.sql("INSERT INTO zabor_fences (" + allColumns + ") VALUES ")
	// The time-outs of a claim are part of the statement, so that an insert of
	// several rows needs no other text than more values.
	insertRow := d.sql("(" + strings.Repeat("?, ", 3+len(asked)+len(outcome)) + "{now}, ? * {now} + ?, ? * {now} + ?, {now})")
	// state_since stands before state: MySQL assigns from left to right, and
	// reads what it has just assigned.
	const (
		update = "UPDATE zabor_fences SET state_since = CASE WHEN state = ? THEN state_since ELSE {now} END, "
		times  = "send_until = {greatest}(send_until, ? * {now} + ?), replay_until = CASE WHEN ? = 1 THEN ? * {now} + ? ELSE replay_until END, "
		where  = " = ? WHERE scope = ? AND order_id = ? AND step = ? AND epoch = ? AND attempt_id = ?"
	)
	text := statements{
		insert:  insertHead + insertRow,
		swap:    d.sql(update + times + strings.Join(slices.Concat(asked, outcome), " = ?, ") + where),
		outcome: d.sql(update + strings.Join(outcome, " = ?, ") + where),
		load:    d.sql(selectRow + " WHERE scope = ? AND order_id = ? AND step = ?{lock}"),
		control: d.sql(selectRow + " WHERE provider = ? AND account = ? AND state = 'settled' AND basis = ?" +
			" ORDER BY state_since DESC LIMIT ?"),
		note: d.sql("INSERT INTO zabor_notes (id, scope, order_id, step, epoch, at, kind, actor, note) VALUES (?, ?, ?, ?, ?, {now}, ?, ?, ?)"),
	}
	text.many = map[string][4]string{
		text.insert:  {insertHead, insertRow, "", ", " + insertRow},
		text.outcome: outcomeMany(d, outcome),
	}
	return text
}

// outcomeMany is outcome for many rows, whose values stand in a table of their
// own (v). Its arguments are in the order of outcome's. The rows are looked up by
// their primary key, in v's order.
func outcomeMany(d *dialect, set []string) [4]string {
	names := []string{"new_state"}
	for _, column := range set {
		names = append(names, "v_"+column)
	}
	names = append(names, "k_scope", "k_order_id", "k_step", "prev_epoch", "prev_id")
	first, more := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		// The first row says what the columns are: without it, binary values
		// would be compared as text.
		first[i], more[i] = "? AS "+name, "?"
		if binaryColumns[strings.TrimPrefix(name, "v_")] || strings.HasPrefix(name, "k_") || name == "prev_id" {
			first[i] = "CAST(? AS BINARY) AS " + name
		}
	}
	assign := []string{"f.state_since = CASE WHEN f.state = v.new_state THEN f.state_since ELSE {now} END"}
	for _, column := range set {
		assign = append(assign, "f."+column+" = v.v_"+column)
	}
	return [4]string{
		"UPDATE (",
		"SELECT " + strings.Join(first, ", "),
		d.sql(") v STRAIGHT_JOIN zabor_fences f ON f.scope = v.k_scope AND f.order_id = v.k_order_id AND f.step = v.k_step" +
			" AND f.epoch = v.prev_epoch AND f.attempt_id = v.prev_id SET " + strings.Join(assign, ", ")),
		" UNION ALL SELECT " + strings.Join(more, ", "),
	}
}

// binaryColumns are those of outcomeColumns that hold bytes.
var binaryColumns = map[string]bool{
	"attempt_id": true, "request": true, "prepared": true, "reference": true, "other_reference": true,
	"answer_body": true, "parked": true, "hook_data": true,
}

const selectRow = "SELECT " + allColumns + ", looked_at, {now} AS read_at FROM zabor_fences"

// sql is query with the dialect's words put in.
func (d *dialect) sql(query string) string {
	query = strings.NewReplacer("{now}", d.now, "{greatest}", d.greatest, "{lock}", d.lock, "{none}", d.none, "{div}", d.div, "{recent}", d.recent, "{references}", d.references, "{others}", d.others, "{order}", d.order, "{open}", d.open).Replace(query)
	if !d.numbered {
		return query
	}
	var b strings.Builder
	n := 0
	for _, c := range []byte(query) {
		if c != '?' {
			b.WriteByte(c)
			continue
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// fromNow binds «? * now + ?»: the end of a time that starts now, or 0.
func fromNow(lease time.Duration) []any {
	if lease <= 0 {
		return []any{int64(0), int64(0)}
	}
	return []any{int64(1), micros(lease)}
}

// errVanished: the key was there when it was inserted, and not when it was
// looked at. It is not free for that: the insert alone decides.
var errVanished = errors.New("the key is taken, but its row cannot be found: it was deleted meanwhile, or another server answered; nothing may be sent")

// Insert commits row unless its key is there, see [zabor.Store]: one plain
// statement, and a look only after a duplicate. Cancelling ctx does not stop an
// insert that has begun; its deadline does. Where an error is no ErrReadOnly,
// ErrNotMigrated or fault of the row itself, the row may be in the table.
func (s *Store) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	if err := validate(row); err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	outcome, err := s.outcomeArgs(row)
	if err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	args := slices.Concat(keyArgs(row.Key), askedArgs(row), outcome, fromNow(w.Lease), fromNow(w.ReplayFor))
	ctx, cancel := finish(ctx)
	defer cancel()
	found := row
	found.CapturedAt, found.SendUntil, found.StateSince, found.ReadAt, found.ReplayUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if w.Hook == nil && w.Note == nil {
		shared, done := s.share(&batched{key: row.Key, query: s.text.insert, args: args})
		if shared {
			return found, nil
		}
		defer done()
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		n, err := s.commit(ctx, s.text.insert, args, row.Key, w)
		if err == nil {
			return exactlyOne(n)
		}
		if isHook(err) || s.dialect.judge(err) != duplicate {
			return err // a hook's own duplicate says nothing about the fence
		}
		// Ours, when the answer to an earlier try was lost; else another's.
		there, err := s.lockedRow(ctx, row.Key)
		if errors.Is(err, zabor.ErrNoRow) {
			return errVanished
		}
		if err == nil {
			found = there
		}
		return err
	})
	if err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w", row.Key, err)
	}
	return found, nil
}

// exactlyOne guards against triggers and rules that take a write away.
func exactlyOne(n int64) error {
	if n != 1 {
		return fmt.Errorf("the insert wrote %d rows, not 1: is there a trigger or a rule on zabor_fences?", n)
	}
	return nil
}

// Swap commits next in place of prev, see [zabor.Store]. Cancelling ctx does not
// stop a swap that has begun; its deadline does.
func (s *Store) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	if err := validate(next); err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	if next.Claim.Epoch != prev.Claim.Epoch+1 {
		return fmt.Errorf("write %s: epoch %d cannot follow %d; nothing was written", next.Key, next.Claim.Epoch, prev.Claim.Epoch)
	}
	outcome, err := s.outcomeArgs(next)
	if err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	query, args := s.text.outcome, []any{string(next.State)}
	if w.Lease > 0 || w.ReplayFor != 0 || !asksTheSame(prev, next) {
		set := int64(0)
		if w.ReplayFor != 0 {
			set = 1
		}
		query, args = s.text.swap, slices.Concat(args, fromNow(w.Lease), []any{set}, fromNow(w.ReplayFor), askedArgs(next))
	}
	args = slices.Concat(args, outcome, keyArgs(next.Key), []any{prev.Claim.Epoch, prev.Claim.ID[:]})
	ctx, cancel := finish(ctx)
	defer cancel()
	if w.Hook == nil && w.Note == nil {
		shared, done := s.share(&batched{key: next.Key, query: query, args: args})
		if shared {
			return nil
		}
		defer done()
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		n, err := s.commit(ctx, query, args, next.Key, w)
		if err != nil {
			return err
		}
		if n == 1 {
			return nil
		}
		// Nothing hit: stale, unless it is this very write, of an earlier try
		// whose answer was lost.
		there, err := s.lockedRow(ctx, next.Key)
		if err != nil && !errors.Is(err, zabor.ErrNoRow) {
			return err
		}
		if err == nil && there.Claim == next.Claim {
			return nil
		}
		return zabor.ErrStale
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", next.Key, err)
	}
	return nil
}

// commit runs the statement of a row's write and what goes with it, all or
// nothing, and returns how many rows the statement hit. Without a hit nothing
// else is written. A row alone is one statement that commits itself.
func (s *Store) commit(ctx context.Context, query string, args []any, k zabor.Key, w zabor.Write) (int64, error) {
	if w.Hook == nil && w.Note == nil {
		return s.exec(ctx, query, args...)
	}
	st, err := s.statement(ctx, query)
	if err != nil {
		return 0, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	result, err := tx.StmtContext(ctx, st).ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil || n != 1 {
		return n, err
	}
	if w.Hook != nil {
		if err := s.runHook(ctx, tx, *w.Hook); err != nil {
			return 0, err
		}
	}
	if w.Note != nil {
		if _, err := tx.ExecContext(ctx, s.text.note, noteArgs(k, *w.Note)...); err != nil {
			return 0, err
		}
	}
	return n, tx.Commit()
}

// runHook runs the application's statement. Whatever fails before the commit is
// sent, also the connection, has rolled back the whole transaction.
func (s *Store) runHook(ctx context.Context, tx *sql.Tx, h zabor.Hook) error {
	if h.Aliases != nil {
		if err := checkAliases(ctx, tx, h); err != nil {
			return &zabor.HookError{Hook: h.Name, Err: err}
		}
	}
	result, err := tx.ExecContext(ctx, h.SQL, h.Args...)
	if err != nil {
		return &zabor.HookError{Hook: h.Name, Err: err}
	}
	n, err := result.RowsAffected()
	if err != nil {
		return &zabor.HookError{Hook: h.Name, Err: err}
	}
	if h.Rows >= 0 && n != int64(h.Rows) {
		return &zabor.HookError{Hook: h.Name, Err: fmt.Errorf("it hit %d rows, not %d", n, h.Rows)}
	}
	if s.dialect.mistaken == nil {
		return nil
	}
	if err := s.dialect.mistaken(ctx, tx); err != nil {
		return &zabor.HookError{Hook: h.Name, Err: err}
	}
	return nil
}

// checkAliases is an error when h hits a row with its aliases. What it did is
// undone.
func checkAliases(ctx context.Context, tx *sql.Tx, h zabor.Hook) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT zabor_alias"); err != nil {
		return err
	}
	n := int64(0)
	if result, err := tx.ExecContext(ctx, h.SQL, h.Aliases...); err == nil {
		n, _ = result.RowsAffected()
	}
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT zabor_alias"); err != nil {
		return err
	}
	if n > 0 {
		return errors.New("it takes a part of the key for the number that it looks like, and would hit another order: send the id as the table has it")
	}
	return nil
}

// Load reads one row, see [zabor.Store]. On PostgreSQL it does not wait for an
// insert of the key that is under way: only an insert does.
func (s *Store) Load(ctx context.Context, k zabor.Key) (zabor.Row, error) {
	var row zabor.Row
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		row, err = s.lockedRow(ctx, k)
		return err
	})
	if err != nil {
		return zabor.Row{}, fmt.Errorf("read %s: %w", k, err)
	}
	return row, nil
}

// lockedRow reads one row with a lock, in a new transaction.
func (s *Store) lockedRow(ctx context.Context, k zabor.Key) (zabor.Row, error) {
	st, err := s.statement(ctx, s.text.load)
	if err != nil {
		return zabor.Row{}, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return zabor.Row{}, err
	}
	defer tx.Rollback()
	row, err := s.scanRow(tx.StmtContext(ctx, st).QueryRowContext(ctx, keyArgs(k)...))
	if errors.Is(err, sql.ErrNoRows) {
		return zabor.Row{}, zabor.ErrNoRow
	}
	if err != nil {
		return zabor.Row{}, err
	}
	return row, tx.Commit()
}

// rows runs a SELECT of whole rows.
func (s *Store) rows(ctx context.Context, query string, args ...any) ([]zabor.Row, error) {
	var found []zabor.Row
	err := s.repeat(ctx, func(ctx context.Context) error {
		found = nil
		return s.query(ctx, func(rows *sql.Rows) error {
			row, err := s.scanRow(rows)
			found = append(found, row)
			return err
		}, query, args...)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Control lists rows that the provider itself has settled, see [zabor.Store].
func (s *Store) Control(ctx context.Context, like zabor.Row, limit int) ([]zabor.Row, error) {
	var all []zabor.Row
	for _, basis := range []zabor.Basis{zabor.ByCall, zabor.ByReplay, zabor.ByLookup} {
		found, err := s.rows(ctx, s.text.control, []byte(like.Provider), accountColumn(like), string(basis), int64(limit))
		if err != nil {
			return nil, fmt.Errorf("read settled rows of %s: %w", like.Provider, err)
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b zabor.Row) int { return b.StateSince.Compare(a.StateSince) })
	return all[:min(limit, len(all))], nil
}

// Due lists rows whose hook must still run, see [zabor.Store].
func (s *Store) Due(ctx context.Context, after zabor.Key, limit int) ([]zabor.Row, error) {
	return s.List(ctx, Filter{Due: true, After: after, Limit: limit})
}

// Open lists rows by state, see [zabor.Store]. It reads without locks.
func (s *Store) Open(ctx context.Context, states []zabor.State, after zabor.Key, limit int) ([]zabor.Row, error) {
	if len(states) == 0 {
		return nil, nil
	}
	return s.List(ctx, Filter{States: states, After: after, Limit: limit})
}
