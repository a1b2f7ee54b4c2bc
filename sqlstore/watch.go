package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"zabor"
)

// Watch leases open rows that are due, see [zabor.Store]. A server without SKIP LOCKED
// (MariaDB before 10.6, MySQL before 8.0) waits for a writer of one of them.
func (s *Store) Watch(ctx context.Context, w zabor.Watch) ([]zabor.Row, error) {
	var found []zabor.Row
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		found, err = s.watch(ctx, w)
		if s.noSkip(err) {
			s.waits.Store(true)
			found, err = s.watch(ctx, w)
		}
		return err
	})
	if err != nil {
		return found, fmt.Errorf("lease open rows: %w", err)
	}
	return found, nil
}

// noSkip reports whether err is that of a MySQL or MariaDB that does not know SKIP
// LOCKED.
func (s *Store) noSkip(err error) bool {
	const syntax = 1064 // ER_PARSE_ERROR
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == syntax && !s.waits.Load()
}

// watch is Watch, once: the keys are chosen and leased, and their rows are read.
func (s *Store) watch(ctx context.Context, w zabor.Watch) ([]zabor.Row, error) {
	query, args := s.dueOpen(w)
	choose, err := s.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	keys, err := scanKeyList(tx.StmtContext(ctx, choose).QueryContext(ctx, args...))
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	keyed := keysArgs(keys)
	rows, err := tx.QueryContext(ctx, s.dialect.sql(selectRow+" WHERE "+anyOf(len(keys))), keyed...)
	if err != nil {
		return nil, err
	}
	var found []zabor.Row
	var unread []error
	defer rows.Close()
	for rows.Next() {
		row, err := s.scanRow(rows)
		switch {
		case errors.Is(err, zabor.ErrUnfit):
			unread = append(unread, err)
		case err != nil:
			return nil, err
		default:
			found = append(found, row)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b zabor.Row) int {
		return cmp.Compare(slices.Index(keys, a.Key), slices.Index(keys, b.Key))
	})
	lease := append([]any{w.By[:], micros(w.For), micros(w.For)}, keyed...)
	if _, err := tx.ExecContext(ctx, s.dialect.sql("UPDATE zabor_fences SET watcher = ?, watch_until = {now} + ?, due_at = {now} + ? WHERE "+anyOf(len(keys))), lease...); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	return found, errors.Join(unread...)
}

// dueOpen selects the keys of w's rows.
func (s *Store) dueOpen(w zabor.Watch) (query string, args []any) {
	lock := s.dialect.skip
	if s.waits.Load() {
		lock = s.dialect.lock
	}
	// If the clock was set back, times seem further away than any that is written. Only a
	// reminder of a released row may be so far.
	where := "(due_at <= {now} OR due_at > {now} + ? AND due_at < ? AND state <> 'released') AND (watcher = ? OR watch_until <= {now} OR watch_until > {now} + ?)"
	args = []any{micros(longestLease), never, w.By[:], micros(longestLease)}
	if w.Scope != "" {
		where += " AND " + inScope
		args = append(args, scopeArgs(w.Scope)...)
	}
	if w.Providers != nil || w.Others {
		not := ""
		if w.Others {
			not = "NOT "
		}
		if len(w.Providers) == 0 {
			where += " AND 1 = " + fmt.Sprint(number(w.Others))
		} else {
			where += " AND " + not + "provider IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(w.Providers)), ", ") + ")"
			for _, name := range w.Providers {
				args = append(args, []byte(name))
			}
		}
	}
	return s.dialect.sql("SELECT " + keyColumns + " FROM zabor_fences WHERE " + where + " ORDER BY CASE WHEN state = 'pending' THEN 1 ELSE 0 END, due_at LIMIT ?" + lock), append(args, int64(w.Limit))
}

// longestLease is longer than any gap between two looks, and than the lease that a
// resolver keeps for one.
const longestLease = 2 * 60 * 60 * 1e9

// scanKeyList reads the keys of a result.
func scanKeyList(rows *sql.Rows, err error) ([]zabor.Key, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []zabor.Key
	for rows.Next() {
		var order, scope, step []byte
		if err := rows.Scan(&order, &scope, &step); err != nil {
			return nil, err
		}
		keys = append(keys, scannedKey(order, scope, step))
	}
	return keys, rows.Err()
}

// anyOf is the condition of n keys.
func anyOf(n int) string {
	one := "(" + ofKey + ")"
	return one + strings.Repeat(" OR "+one, n-1)
}

func keysArgs(keys []zabor.Key) []any {
	var args []any
	for _, k := range keys {
		args = append(args, keyArgs(k)...)
	}
	return args
}

// Watched ends a look at rows, see [zabor.Store].
func (s *Store) Watched(ctx context.Context, by [16]byte, seen []zabor.Seen) error {
	err := s.repeat(ctx, func(ctx context.Context) error {
		st, err := s.statement(ctx, s.text.watched)
		if err != nil {
			return err
		}
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, one := range seen {
			o := one.Row.Open
			until := due(one.Row, zabor.Never)
			if one.DueIn != zabor.Never {
				until = due(one.Row, one.DueIn+zabor.LookupTime)
			}
			args := append([]any{o.Watched.Microseconds(), o.Silent.Microseconds()}, due(one.Row, one.DueIn)...) // rounded down: it proves absence
			args = append(append(append(args, until...), keyArgs(one.Row.Key)...), by[:], o.Send[:])
			if _, err := tx.StmtContext(ctx, st).ExecContext(ctx, args...); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
	if err != nil {
		return fmt.Errorf("end a look-up: %w", err)
	}
	return nil
}

// Samples lists rows that the provider itself has settled, see [zabor.Store].
func (s *Store) Samples(ctx context.Context, like zabor.Row, limit int) ([]zabor.Row, error) {
	sent := like.Open.SendUntil.Add(-like.Open.Lease).UnixMicro()
	args := append([]any{[]byte(like.Provider), []byte(like.Account), like.Endpoint.Address}, stepArgs(like.StepName())...)
	args = append(args, sent, int64(limit))
	found, err := s.rows(ctx, s.text.laterSamples, args...)
	if err == nil && len(found) == 0 {
		found, err = s.rows(ctx, s.text.earlierSamples, args...)
	}
	if err != nil && (len(found) == 0 || !errors.Is(err, zabor.ErrUnfit)) {
		return nil, fmt.Errorf("read settled rows of %s: %w", like.Provider, err)
	}
	return found, nil
}

// Mark sets a mark beside a row, see [zabor.Store].
func (s *Store) Mark(ctx context.Context, k zabor.Key, m zabor.Mark) error {
	query, args := s.text.markParked, append([]any{[]byte(m.Parked)}, keyArgs(k)...)
	if m.Forwarded > 0 {
		query, args = s.text.markForwarded, append(keyArgs(k), int64(m.Forwarded))
	}
	err := s.repeat(ctx, func(ctx context.Context) error {
		_, err := s.exec(ctx, query, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("mark %s: %w", k, err)
	}
	return nil
}

// LoadDigest reads the unfinished row of a digest, see [zabor.Store].
func (s *Store) LoadDigest(ctx context.Context, digest string) (zabor.Row, error) {
	var found zabor.Key
	err := s.repeat(ctx, func(ctx context.Context) error {
		return s.query(ctx, func(rows *sql.Rows) error {
			var order, scope, step []byte
			err := rows.Scan(&order, &scope, &step)
			if k := scannedKey(order, scope, step); k.Digest() == digest {
				found = k
			}
			return err
		}, "SELECT "+keyColumns+" FROM zabor_fences WHERE due_at IS NOT NULL")
	})
	if err != nil {
		return zabor.Row{}, fmt.Errorf("look for a row: %w", err)
	}
	if found == (zabor.Key{}) {
		return zabor.Row{}, zabor.ErrNoRow
	}
	return s.Load(ctx, found)
}
