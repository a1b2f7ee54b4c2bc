package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
)

// statements are the texts of a row's writes and reads.
type statements struct {
	insert, insertReference            forRows
	finish                             forRows // of a row that nothing is left to do for
	update                             string  // of any other
	lock, load, owner, note            string
	laterSamples, earlierSamples       string
	watched, markParked, markForwarded string
}

// forRows are the texts of one write for 1, 2, 4 … 128 rows; empty: the database has none
// for so many.
type forRows [8]string

// most is the text for as many rows as there is one for, up to n, and their number.
func (f forRows) most(n int) (text string, rows int) {
	size := min(bits.Len(uint(n)), len(f)) - 1
	for f[size] == "" {
		size--
	}
	return f[size], 1 << size
}

// manyRows are the texts that text makes, of which only the first is made unless the
// database is to write many rows at once.
func (d *dialect) manyRows(many bool, text func(n int) string) (f forRows) {
	for i := range f {
		if i == 0 || many {
			f[i] = d.sql(text(1 << i))
		}
	}
	return f
}

// finishColumns are what the last write of a row binds, and varies those of them in which
// rows may differ that are finished at once.
var (
	finishColumns = strings.Split(answerColumns+", "+stateColumns, ", ")
	varies        = map[string]bool{"answer_status": true, "answer_header": true, "answer_body": true, "reference": true, "attempt_id": true}
)

func newStatements(d *dialect) statements {
	const head = "UPDATE zabor_fences SET state_since = CASE WHEN state = ? THEN state_since ELSE {now} END, "
	const erase = "request = NULL, hook_data = NULL, due_at = NULL, "
	set := func(lists ...string) string {
		return strings.ReplaceAll(strings.Join(lists, ", "), ", ", " = ?, ") + " = ?"
	}
	const claimed = ofKey + " AND epoch = ? AND attempt_id = ?"
	all := strings.Join([]string{keyColumns, askedColumns, stateColumns, markColumns, answerColumns, openColumns}, ", ")
	// The names of columns are those of one table alone.
	samples := strings.NewReplacer("order_id, scope, step", "f.order_id, f.scope, f.step", " provider,", " f.provider,", " account,", " f.account,", " address,", " f.address,", " reference,", " f.reference,",
		"FROM zabor_fences", "FROM zabor_references r JOIN zabor_fences f ON f.order_id = r.order_id AND f.scope = r.scope AND f.step = r.step AND f.reference = r.reference").Replace(selectRow) +
		" WHERE r.provider = ? AND r.account = ? AND r.address = ? AND f.state = 'settled' AND f.cause IN ('call', 'lookup') AND (f.step = ? OR (f.step >= ? AND f.step < ?))"
	return statements{
		insert: d.manyRows(d.manyValues, func(n int) string {
			row := "(" + strings.Repeat("?, ", 1+strings.Count(all, ",")) + "? * {now} + ?, ? * {now} + ?, " + dueAt + ", ?, {now}, {now}, {none}, 0, 0)"
			return "INSERT INTO zabor_fences (" + all + ", send_until, replay_until, due_at, silent, captured_at, state_since, watcher, watch_until, watched) VALUES " +
				row + strings.Repeat(", "+row, n-1)
		}),
		insertReference: d.manyRows(d.manyValues, func(n int) string {
			const row = "(?, ?, ?, ?, ?, ?, ?, ?, {now})"
			return d.insertNew + " INTO zabor_references (reference, installation, provider, account, address, " + keyColumns + ", noted_at) VALUES " +
				row + strings.Repeat(", "+row, n-1) + d.elseNothing
		}),
		finish: d.manyRows(d.manyCases, func(n int) string {
			query := head + erase
			for _, column := range finishColumns {
				value := "?"
				if n > 1 && varies[column] {
					value = "CASE attempt_id" + strings.Repeat(" WHEN ? THEN ?", n) + " END"
				}
				query += column + " = " + value + ", "
			}
			return strings.TrimSuffix(query, ", ") + " WHERE " + claimed + strings.Repeat(" OR "+claimed, n-1)
		}),
		update: d.sql(head + set(askedColumns, stateColumns, answerColumns, openColumns) +
			", parked = CASE WHEN ? = 1 THEN ? ELSE parked END, forwarded = CASE WHEN ? = 1 THEN ? ELSE forwarded END, send_until = {greatest}(send_until, ? * {now} + ?), replay_until = CASE WHEN ? = 1 THEN ? * {now} + ? ELSE replay_until END, due_at = " + dueAt +
			", watched = CASE WHEN ? = 1 THEN 0 ELSE watched END, silent = ?, watcher = CASE WHEN ? = 1 THEN {none} ELSE watcher END, watch_until = CASE WHEN ? = 1 THEN 0 ELSE watch_until END WHERE " + claimed),
		lock:           d.sql("SELECT epoch FROM zabor_fences WHERE " + ofKey + "{lock}"),
		load:           d.sql(selectRow + " WHERE " + ofKey),
		owner:          d.sql("SELECT " + keyColumns + " FROM zabor_references WHERE reference = ? AND installation = ? AND provider = ? AND account = ?"),
		laterSamples:   d.sql(samples + " AND noted_at > ? ORDER BY noted_at LIMIT ?"),
		earlierSamples: d.sql(samples + " AND noted_at <= ? ORDER BY noted_at DESC LIMIT ?"),
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
	query = strings.NewReplacer("{now}", d.now, "{greatest}", d.greatest, "{lock}", d.lock, "{none}", d.none, "{div}", d.div, "{recent}", d.recent).Replace(query)
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
	first      statement
	ending     *ending // what first is made of, where it finishes the row
	references []reference
}

// statement is one with its arguments, which must hit so many rows.
type statement struct {
	query string
	args  []any
	rows  int
}

// ending is the last write of a row.
type ending struct {
	state  any
	values []any // of finishColumns
	claim  []any // the key, and the claim that it follows
}

// finishAll is the statement that finishes the rows of all, which differ in the columns
// of varies alone.
func finishAll(text string, all []*ending) statement {
	args := []any{all[0].state}
	for i, column := range finishColumns {
		if len(all) == 1 || !varies[column] {
			args = append(args, all[0].values[i])
			continue
		}
		for _, f := range all {
			args = append(args, f.claim[len(f.claim)-1], f.values[i])
		}
	}
	for _, f := range all {
		args = append(args, f.claim...)
	}
	return statement{text, args, len(all)}
}

// reference is one reference that a change adds. Where its statement hits nothing it is
// there already, and its owner decides.
type reference struct {
	statement
	value string
	of    zabor.Row
}

// insertion is the write of row where there is none.
func (s *Store) insertion(row zabor.Row, w zabor.Write) (change, error) {
	c := change{key: row.Key}
	if !row.Unfinished() {
		row.Open = zabor.Open{}
	}
	answer, err := s.answerArgs(row)
	if err != nil {
		return c, err
	}
	c.first = statement{s.text.insert[0], slices.Concat(keyArgs(row.Key), askedArgs(row), stateArgs(row), markArgs(row), answer, s.openArgs(row),
		fromNow(w.Lease), fromNow(w.ReplayFor), due(row, w.DueIn), []any{micros(row.Open.Silent)}), 1}
	s.addReferences(&c, zabor.Row{}, row)
	return c, nil
}

// succession is the write of next in place of prev.
func (s *Store) succession(prev, next zabor.Row, w zabor.Write) (change, error) {
	c := change{key: next.Key}
	if !next.Unfinished() {
		next.Open = zabor.Open{}
	}
	answer, err := s.answerArgs(next)
	if err != nil {
		return c, err
	}
	state, claim := []any{string(next.State)}, append(keyArgs(next.Key), prev.Claim.Epoch, prev.Claim.ID[:])
	sameMarks := prev.Parked == next.Parked && prev.Forwarded == next.Forwarded
	if !next.Unfinished() && asksTheSame(prev, next) && sameMarks {
		c.ending = &ending{state[0], append(answer, stateArgs(next)...), claim}
		c.first = finishAll(s.text.finish[0], []*ending{c.ending})
	} else {
		moved, sent, silent := next.State != prev.State, next.Open.Send != prev.Open.Send, next.Open.Silent
		if sent {
			silent = 0
		}
		left := number(moved || sent)
		c.first = statement{s.text.update, slices.Concat(state, askedArgs(next), stateArgs(next), answer, s.openArgs(next),
			[]any{number(prev.Parked != next.Parked), []byte(next.Parked), number(prev.Forwarded != next.Forwarded || prev.Generation != next.Generation), number(next.Forwarded)}, fromNow(w.Lease), []any{number(w.ReplayFor != 0)}, fromNow(w.ReplayFor), due(next, w.DueIn), []any{number(moved), micros(silent), left, left}, claim), 1}
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
		c.references = append(c.references, reference{statement{s.text.insertReference[0], slices.Concat(
			[]any{[]byte(r.is), []byte(installation(next.Scope)), []byte(next.Provider), []byte(next.Account), next.Endpoint.Address}, keyArgs(next.Key)), 1}, r.is, next})
	}
}

// fromNow binds «? * now + ?»: the end of a time that starts now, or 0.
func fromNow(d time.Duration) []any {
	if d <= 0 {
		return []any{int64(0), int64(0)}
	}
	return []any{int64(1), micros(d)}
}

// due binds dueAt: that far from now, never, or NULL for a finished row.
func due(row zabor.Row, in time.Duration) []any {
	switch {
	case !row.Unfinished():
		return []any{int64(0), nil}
	case in == zabor.Never:
		return []any{int64(0), never}
	}
	return []any{int64(1), micros(in)}
}

// never is the end of all time, far enough from the greatest number to be moved.
const never = int64(1 << 62)

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
	if w.Hook == nil && w.Note == nil {
		if err := s.atOnce(ctx, c); !errors.Is(err, errNotAtOnce) {
			return err
		}
	}
	if err := s.prepareAll(ctx, c.all()); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := s.run(ctx, tx, c.first); err != nil {
		return err
	}
	for _, r := range c.references {
		err := s.run(ctx, tx, r.statement)
		if errors.Is(err, errMissed) {
			err = s.checkOwner(ctx, tx, r)
		}
		if err != nil {
			return err
		}
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

// all are the statements of c.
func (c change) all() []statement {
	all := []statement{c.first}
	for _, r := range c.references {
		all = append(all, r.statement)
	}
	return all
}

// prepareAll prepares statements that a transaction will run: one that has its connection
// must not wait for another.
func (s *Store) prepareAll(ctx context.Context, all []statement) error {
	for _, one := range all {
		if _, err := s.statement(ctx, one.query); err != nil {
			return err
		}
	}
	return nil
}

// errNotAtOnce: nothing was written. One statement after the other tells which one missed.
var errNotAtOnce = errors.New("it is to be written one statement after the other")

// atOnce commits c in one round trip where that can be.
func (s *Store) atOnce(ctx context.Context, c change) error {
	switch {
	case len(c.references) == 0:
		return s.alone(ctx, c.first)
	case !s.dialect.pipelined:
		return errNotAtOnce
	}
	err := s.dialect.batch(ctx, s, s.merged([]change{c}))
	if errors.Is(err, errMissed) || errors.Is(err, errNoBatch) {
		return errNotAtOnce
	}
	return err
}

// alone runs one in a transaction of its own. errMissed: it hit fewer rows than it must.
func (s *Store) alone(ctx context.Context, one statement) error {
	n, err := s.exec(ctx, one.query, one.args...)
	if err == nil && n != int64(one.rows) {
		return errMissed
	}
	return err
}

// run runs one in tx. errMissed: it hit fewer rows than it must.
func (s *Store) run(ctx context.Context, tx *sql.Tx, one statement) error {
	st, err := s.statement(ctx, one.query)
	if err != nil {
		return err
	}
	result, err := tx.StmtContext(ctx, st).ExecContext(ctx, one.args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != int64(one.rows) {
		err = errMissed
	}
	return err
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

// rows runs a SELECT of whole rows. A [zabor.ErrUnfit] names those that cannot be read,
// beside the others.
func (s *Store) rows(ctx context.Context, query string, args ...any) (found []zabor.Row, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		found = nil
		var unread []error
		err := s.query(ctx, func(rows *sql.Rows) error {
			row, err := s.scanRow(rows)
			if errors.Is(err, zabor.ErrUnfit) {
				unread = append(unread, err)
				return nil
			}
			found = append(found, row)
			return err
		}, query, args...)
		if err != nil {
			return err
		}
		return errors.Join(unread...)
	})
	return found, err
}
