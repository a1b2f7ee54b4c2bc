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

// statements are the texts of a row's writes and reads.
type statements struct {
	insert, insertReference            string
	finish, update                     string // a row that nothing is left to do for; any other
	lock, load, owner, note            string
	laterSamples, earlierSamples       string
	watched, markParked, markForwarded string
}

func newStatements(d *dialect) statements {
	// state_since stands before state: MySQL assigns from left to right, and reads
	// what it has just assigned.
	const head = "UPDATE zabor_fences SET state_since = CASE WHEN state = ? THEN state_since ELSE {now} END, "
	set := func(lists ...string) string {
		return strings.ReplaceAll(strings.Join(lists, ", "), ", ", " = ?, ") + " = ?"
	}
	claim := " WHERE " + ofKey + " AND epoch = ? AND attempt_id = ?"
	// The names of columns are those of one table alone.
	samples := strings.NewReplacer("order_id, scope, step", "f.order_id, f.scope, f.step", " provider,", " f.provider,", " account,", " f.account,", " address,", " f.address,", " reference,", " f.reference,",
		"FROM zabor_fences", "FROM zabor_references r JOIN zabor_fences f ON f.order_id = r.order_id AND f.scope = r.scope AND f.step = r.step AND f.reference = r.reference").Replace(selectRow) +
		" WHERE r.provider = ? AND r.account = ? AND r.address = ? AND f.state = 'settled' AND f.cause IN ('call', 'lookup') AND (f.step = ? OR (f.step >= ? AND f.step < ?))"
	all := strings.Join([]string{keyColumns, askedColumns, stateColumns, markColumns, answerColumns, openColumns}, ", ")
	return statements{
		insert: d.sql("INSERT INTO zabor_fences (" + all + ", send_until, replay_until, due_at, silent, captured_at, state_since, watcher, watch_until, watched) VALUES (" +
			strings.Repeat("?, ", 1+strings.Count(all, ",")) + "? * {now} + ?, ? * {now} + ?, " + dueAt + ", ?, {now}, {now}, {none}, 0, 0)"),
		finish: d.sql(head + set(stateColumns, answerColumns) + ", request = NULL, hook_data = NULL, due_at = NULL" + claim),
		update: d.sql(head + set(askedColumns, stateColumns, answerColumns, openColumns) +
			", parked = CASE WHEN ? = 1 THEN ? ELSE parked END, forwarded = CASE WHEN ? = 1 THEN ? ELSE forwarded END, send_until = {greatest}(send_until, ? * {now} + ?), replay_until = CASE WHEN ? = 1 THEN ? * {now} + ? ELSE replay_until END, due_at = " + dueAt +
			", watched = CASE WHEN ? = 1 THEN 0 ELSE watched END, silent = ?, watcher = CASE WHEN ? = 1 THEN {none} ELSE watcher END, watch_until = CASE WHEN ? = 1 THEN 0 ELSE watch_until END" + claim),
		insertReference: d.sql(d.insertNew + " INTO zabor_references (reference, installation, provider, account, address, " + keyColumns + ", noted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, {now})" + d.elseNothing),
		lock:            d.sql("SELECT epoch FROM zabor_fences WHERE " + ofKey + "{lock}"),
		load:            d.sql(selectRow + " WHERE " + ofKey),
		owner:           d.sql("SELECT " + keyColumns + " FROM zabor_references WHERE reference = ? AND installation = ? AND provider = ? AND account = ?"),
		laterSamples:    d.sql(samples + " AND noted_at >= ? ORDER BY noted_at LIMIT ?"),
		earlierSamples:  d.sql(samples + " AND noted_at < ? ORDER BY noted_at DESC LIMIT ?"),
		watched: d.sql("UPDATE zabor_fences SET watched = ?, silent = ?, due_at = " + dueAt + ", watch_until = " + dueAt +
			" WHERE " + ofKey + " AND due_at IS NOT NULL AND watcher = ? AND send_id = ?"),
		markParked:    d.sql("UPDATE zabor_fences SET parked = ? WHERE " + ofKey),
		markForwarded: d.sql("UPDATE zabor_fences SET forwarded = 1 WHERE " + ofKey + " AND generation = ?"),
		note:          d.sql("INSERT INTO zabor_notes (id, " + keyColumns + ", epoch, at, kind, actor, note) VALUES (?, ?, ?, ?, ?, {now}, ?, ?, ?)"),
	}
}

// dueAt is a moment from now, the end of all time, or NULL, as due binds it.
const dueAt = "? * {now} + ?"

// sql is query with the dialect's words put in.
func (d *dialect) sql(query string) string {
	query = strings.NewReplacer("{now}", d.now, "{greatest}", d.greatest, "{lock}", d.lock, "{none}", d.none, "{div}", d.div).Replace(query)
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

// change is one row's write: statements of one transaction. The first one decides.
type change struct {
	key        zabor.Key
	statements []statement
	references []reference
}

// statement is one statement of a change.
type statement struct {
	query string
	args  []any
	need  need
}

// need says how many rows a statement must hit.
type need uint8

const (
	anyRows need = iota
	oneRow       // else the claim is stale
	newRef       // none: the reference is there already, and its owner decides
)

// reference is one reference that a change adds.
type reference struct {
	value string
	of    zabor.Row
}

func (c *change) add(n need, query string, args ...any) {
	c.statements = append(c.statements, statement{query, args, n})
}

// insertion is the write of row where there is none.
func (s *Store) insertion(row zabor.Row, w zabor.Write) (change, error) {
	c := change{key: row.Key}
	answer, err := s.answerArgs(row)
	if err != nil {
		return c, err
	}
	c.add(oneRow, s.text.insert, slices.Concat(keyArgs(row.Key), askedArgs(row), stateArgs(row), markArgs(row), answer, s.openArgs(row),
		fromNow(w.Lease), fromNow(w.ReplayFor), due(row, w.DueIn), []any{micros(row.Open.Silent)})...)
	s.addReferences(&c, zabor.Row{}, row)
	return c, nil
}

// succession is the write of next in place of prev.
func (s *Store) succession(prev, next zabor.Row, w zabor.Write) (change, error) {
	c := change{key: next.Key}
	answer, err := s.answerArgs(next)
	if err != nil {
		return c, err
	}
	state, claim := []any{string(next.State)}, append(keyArgs(next.Key), prev.Claim.Epoch, prev.Claim.ID[:])
	sameMarks := prev.Parked == next.Parked && prev.Forwarded == next.Forwarded
	if !next.Unfinished() && asksTheSame(prev, next) && sameMarks {
		c.add(oneRow, s.text.finish, slices.Concat(state, stateArgs(next), answer, claim)...)
	} else {
		moved, sent, silent := next.State != prev.State, next.Open.Send != prev.Open.Send, next.Open.Silent
		if sent {
			silent = 0
		}
		left := number(moved || sent)
		c.add(oneRow, s.text.update, slices.Concat(state, askedArgs(next), stateArgs(next), answer, s.openArgs(next),
			[]any{number(prev.Parked != next.Parked), []byte(next.Parked), number(prev.Forwarded != next.Forwarded), number(next.Forwarded)}, fromNow(w.Lease), []any{number(w.ReplayFor != 0)}, fromNow(w.ReplayFor), due(next, w.DueIn), []any{number(moved), micros(silent), left, left}, claim)...)
	}
	s.addReferences(&c, prev, next)
	return c, nil
}

// addReferences notes whose a new reference is. That of a held row is in dispute.
func (s *Store) addReferences(c *change, prev, next zabor.Row) {
	for _, r := range []struct{ was, is string }{{prev.Reference, next.Reference}, {prev.OtherReference, next.OtherReference}} {
		if r.is == "" || r.is == r.was && prev.State != zabor.Held || next.State == zabor.Held {
			continue
		}
		c.references = append(c.references, reference{r.is, next})
		c.add(newRef, s.text.insertReference, slices.Concat([]any{[]byte(r.is), []byte(installation(next.Scope)), []byte(next.Provider), []byte(next.Account), next.Endpoint.Address}, keyArgs(next.Key))...)
	}
}

// fromNow binds «? * now + ?»: the end of a time that starts now, or 0.
func fromNow(d time.Duration) []any {
	if d <= 0 {
		return []any{int64(0), int64(0)}
	}
	return []any{int64(1), micros(d)}
}

// due binds dueAt: that far from now, the end of all time (far enough from the greatest
// number to be moved), or NULL for a finished row.
func due(row zabor.Row, in time.Duration) []any {
	switch {
	case !row.Unfinished():
		return []any{int64(0), nil}
	case in == zabor.Never:
		return []any{int64(0), int64(1 << 62)}
	}
	return []any{int64(1), micros(in)}
}

// errVanished: the key was there when it was inserted, and not when it was read. It is
// not free for that: the insert alone decides.
var errVanished = errors.New("the key is taken, but its row cannot be found: it was deleted meanwhile, or another server answered; nothing may be sent")

// errMissed: a statement did not hit its row.
var errMissed = errors.New("a statement did not hit its row")

// Insert commits row unless its key is there, see [zabor.Store]. Cancelling ctx does
// not stop an insert that has begun; its deadline does.
func (s *Store) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	if err := validate(row); err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	if row.Claim.Epoch != 1 {
		return zabor.Row{}, fmt.Errorf("insert %s: epoch %d, not 1; nothing was written", row.Key, row.Claim.Epoch)
	}
	c, err := s.insertion(row, w)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return zabor.Row{}, fmt.Errorf("insert %s: %w; nothing was written", row.Key, err)
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	found := asWritten(row)
	shared, done := s.share(c, w)
	if shared {
		return found, nil
	}
	defer done()
	err = s.repeat(ctx, func(ctx context.Context) error {
		err := s.commit(ctx, c, w)
		switch {
		case errors.Is(err, errMissed):
			return errors.New("the insert wrote no row: is there a trigger or a rule on zabor_fences?")
		case err == nil, isHook(err), s.dialect.judge(err) != duplicate:
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

// asWritten is row as it is returned without having been read.
func asWritten(row zabor.Row) zabor.Row {
	row.CapturedAt, row.StateSince, row.ReadAt, row.Open.SendUntil, row.Open.ReplayUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return row
}

// Swap commits next in place of prev, see [zabor.Store]. Cancelling ctx does not stop a
// swap that has begun; its deadline does.
func (s *Store) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	err := validate(next)
	if err == nil && next.Claim.Epoch != prev.Claim.Epoch+1 {
		err = fmt.Errorf("epoch %d cannot follow %d", next.Claim.Epoch, prev.Claim.Epoch)
	}
	var c change
	if err == nil {
		c, err = s.succession(prev, next, w)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", next.Key, err)
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	shared, done := s.share(c, w)
	if shared {
		return nil
	}
	defer done()
	err = s.repeat(ctx, func(ctx context.Context) error {
		err := s.commit(ctx, c, w)
		if !errors.Is(err, errMissed) {
			return err
		}
		// Nothing hit: stale, unless it is this very write, of an earlier try whose
		// answer was lost.
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

// commit runs c and what goes with it, all or nothing. errMissed: the first statement
// hit no row.
func (s *Store) commit(ctx context.Context, c change, w zabor.Write) error {
	if s.dialect.pipelined && w.Hook == nil && w.Note == nil {
		err := s.dialect.batch(ctx, s, []*batched{{change: c}})
		if !errors.Is(err, errMissed) && !errors.Is(err, errNoBatch) {
			return err
		}
		// One statement after the other tells which one missed.
	}
	if err := s.prepare(ctx, c); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := s.runAll(ctx, tx, c); err != nil {
		return err
	}
	if w.Hook != nil {
		if err := s.runHook(ctx, tx, *w.Hook); err != nil {
			return err
		}
	}
	if w.Note != nil {
		if _, err := tx.ExecContext(ctx, s.text.note, noteArgs(c.key, *w.Note)...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// prepare prepares the statements of c: a transaction that has its connection must not
// wait for another.
func (s *Store) prepare(ctx context.Context, c change) error {
	for _, one := range c.statements {
		if _, err := s.statement(ctx, one.query); err != nil {
			return err
		}
	}
	return nil
}

// runAll runs the statements of c in tx.
func (s *Store) runAll(ctx context.Context, tx *sql.Tx, c change) error {
	refs := c.references
	for _, one := range c.statements {
		st, err := s.statement(ctx, one.query) // prepared before tx began
		if err != nil {
			return err
		}
		result, err := tx.StmtContext(ctx, st).ExecContext(ctx, one.args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		switch {
		case err != nil:
			return err
		case one.need == oneRow && n != 1:
			return errMissed
		case one.need != newRef:
			continue
		case n == 0:
			if err := s.checkOwner(ctx, tx, refs[0]); err != nil {
				return err
			}
		}
		refs = refs[1:]
	}
	return nil
}

// checkOwner is a [zabor.ReferenceError] if another order has the reference.
func (s *Store) checkOwner(ctx context.Context, tx *sql.Tx, r reference) error {
	var order, scope, step []byte
	err := tx.QueryRowContext(ctx, s.text.owner, []byte(r.value), []byte(installation(r.of.Scope)), []byte(r.of.Provider), []byte(r.of.Account)).Scan(&order, &scope, &step)
	if err != nil {
		return err
	}
	if string(scope) == r.of.Scope && string(order) == r.of.Order {
		return nil
	}
	return &zabor.ReferenceError{Reference: r.value, Owner: scannedKey(order, scope, step)}
}

// runHook runs the application's statement. Any failure before the commit is sent,
// also of the connection, has rolled back the whole transaction.
func (s *Store) runHook(ctx context.Context, tx *sql.Tx, h zabor.Hook) error {
	fail := func(err error) error { return &zabor.HookError{Hook: h.Name, Err: err} }
	if h.Aliases != nil {
		if err := checkAliases(ctx, tx, h); err != nil {
			return fail(err)
		}
	}
	result, err := tx.ExecContext(ctx, h.SQL, h.Args...)
	if err != nil {
		return fail(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fail(err)
	}
	if h.Rows >= 0 && n != int64(h.Rows) {
		return fail(fmt.Errorf("it hit %d rows, not %d", n, h.Rows))
	}
	if s.dialect.mistaken != nil {
		if err := s.dialect.mistaken(ctx, tx); err != nil {
			return fail(err)
		}
	}
	return nil
}

// checkAliases is an error if h hits a row with its aliases. Its effect is undone.
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

// Load reads one row, see [zabor.Store]. On PostgreSQL it does not wait for an insert
// of the key that is under way: only an insert does.
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
	lock, err := s.statement(ctx, s.text.lock)
	if err != nil {
		return zabor.Row{}, err
	}
	load, err := s.statement(ctx, s.text.load)
	if err != nil {
		return zabor.Row{}, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return zabor.Row{}, err
	}
	defer tx.Rollback()
	var epoch int64
	err = tx.StmtContext(ctx, lock).QueryRowContext(ctx, keyArgs(k)...).Scan(&epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return zabor.Row{}, zabor.ErrNoRow
	}
	if err != nil {
		return zabor.Row{}, err
	}
	row, err := s.scanRow(tx.StmtContext(ctx, load).QueryRowContext(ctx, keyArgs(k)...))
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
