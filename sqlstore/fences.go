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
type statements struct{ insert, swap, load, control, note string }

func newStatements(d *dialect) statements {
	set := strings.Split(setColumns, ", ")
	return statements{
		// The time-outs of a claim are part of the statement, so that an
		// insert of several rows needs no other text than more values.
		insert: d.sql("INSERT INTO zabor_fences (" + keyColumns + ", " + setColumns + ", " + timeColumns + ") VALUES (" +
			strings.Repeat("?, ", 3+len(set)) + "{now}, ? * {now} + ?, {now})"),
		// state_since stands before state: MySQL assigns from left to right,
		// and reads what it has just assigned.
		swap: d.sql("UPDATE zabor_fences SET state_since = CASE WHEN state = ? THEN state_since ELSE {now} END, " +
			"send_until = {greatest}(send_until, ? * {now} + ?), " + strings.Join(set, " = ?, ") + " = ?" +
			" WHERE scope = ? AND order_id = ? AND step = ? AND epoch = ? AND attempt_id = ?"),
		load: d.sql(selectRow + " WHERE scope = ? AND order_id = ? AND step = ?{lock}"),
		control: d.sql(selectRow + " WHERE provider = ? AND account = ? AND state = 'settled' AND basis = 'call'" +
			" ORDER BY state_since DESC LIMIT ?"),
		note: d.sql("INSERT INTO zabor_notes (id, scope, order_id, step, epoch, at, note) VALUES (?, ?, ?, ?, ?, {now}, ?)"),
	}
}

const selectRow = "SELECT " + keyColumns + ", " + setColumns + ", " + timeColumns + ", {now} AS read_at FROM zabor_fences"

// sql is query with the dialect's words put in.
func (d *dialect) sql(query string) string {
	query = strings.NewReplacer("{now}", d.now, "{greatest}", d.greatest, "{lock}", d.lock).Replace(query)
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

// leaseArgs binds «? * now + ?»: the end of a lease that starts now, or 0.
func leaseArgs(lease time.Duration) []any {
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
func (s *Store) Insert(ctx context.Context, row zabor.Row, lease time.Duration) (zabor.Row, error) {
	if err := validate(row); err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	set, err := setArgs(row)
	if err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	args := slices.Concat(keyArgs(row.Key), set, leaseArgs(lease))
	ctx, cancel := finish(ctx)
	defer cancel()
	found := row
	found.CapturedAt, found.SendUntil, found.StateSince, found.ReadAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	err = s.repeat(ctx, func(ctx context.Context) error {
		n, err := s.exec(ctx, s.text.insert, args...)
		if err == nil {
			return exactlyOne(n)
		}
		if s.dialect.judge(err) != duplicate {
			return err
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

// Swap commits next in place of the row that prev wrote, see [zabor.Store].
// Cancelling ctx does not stop a swap that has begun; its deadline does.
func (s *Store) Swap(ctx context.Context, prev zabor.Claim, next zabor.Row, lease time.Duration) error {
	if err := validate(next); err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	if next.Claim.Epoch != prev.Epoch+1 {
		return fmt.Errorf("write %s: epoch %d cannot follow %d; nothing was written", next.Key, next.Claim.Epoch, prev.Epoch)
	}
	set, err := setArgs(next)
	if err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	args := slices.Concat([]any{string(next.State)}, leaseArgs(lease), set, keyArgs(next.Key), []any{prev.Epoch, prev.ID[:]})
	ctx, cancel := finish(ctx)
	defer cancel()
	err = s.repeat(ctx, func(ctx context.Context) error {
		n, err := s.exec(ctx, s.text.swap, args...)
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
	row, err := scanRow(tx.StmtContext(ctx, st).QueryRowContext(ctx, keyArgs(k)...))
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
			row, err := scanRow(rows)
			found = append(found, row)
			return err
		}, query, args...)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Control lists rows settled by a call, see [zabor.Store].
func (s *Store) Control(ctx context.Context, provider, account string, limit int) ([]zabor.Row, error) {
	found, err := s.rows(ctx, s.text.control, []byte(provider), []byte(account), int64(limit))
	if err != nil {
		return nil, fmt.Errorf("read settled rows of %s: %w", provider, err)
	}
	return found, nil
}

// Open lists rows by state, see [zabor.Store]. It reads without locks.
func (s *Store) Open(ctx context.Context, states []zabor.State, after zabor.Key, limit int) ([]zabor.Row, error) {
	if len(states) == 0 {
		return nil, nil
	}
	return s.List(ctx, Filter{States: states, After: after, Limit: limit})
}
