package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"zabor"
)

// Look sets LookedAt and Asking in rows that stand as they were read, see [zabor.Store]. A
// server without SKIP LOCKED (MariaDB before 10.6, MySQL before 8.0) waits for
// whoever is writing one of them.
func (s *Store) Look(ctx context.Context, rows []zabor.Row, at time.Time, asking bool) ([]zabor.Row, error) {
	if len(rows) > zabor.MaxLooks {
		return nil, fmt.Errorf("look: %d rows, at most %d", len(rows), zabor.MaxLooks)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	looked := looking{at, asking}
	var set []zabor.Row
	err := s.repeat(ctx, func(ctx context.Context) error {
		keys, err := s.setLooked(ctx, rows, looked)
		if s.noSkip(err) {
			s.waits.Store(true)
			keys, err = s.setLooked(ctx, rows, looked)
		}
		if err != nil {
			return err
		}
		set = set[:0]
		for _, row := range rows {
			if keys[row.Key] {
				looked.in(&row)
				set = append(set, row)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("note a look-up: %w", err)
	}
	return set, nil
}

// noSkip reports whether err is that of a MySQL or MariaDB that does not know SKIP
// LOCKED.
func (s *Store) noSkip(err error) bool {
	const syntax = 1064 // ER_PARSE_ERROR
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == syntax && !s.waits.Load()
}

// setLooked does Look in one transaction and says which rows it set.
func (s *Store) setLooked(ctx context.Context, rows []zabor.Row, looked looking) (map[zabor.Key]bool, error) {
	lock := s.dialect.skip
	if s.waits.Load() {
		lock = s.dialect.lock
	}
	const unmoved = " AND epoch = ? AND attempt_id = ? AND looked_at = ?"
	var args []any
	for _, row := range rows {
		args = append(append(args, keyArgs(row.Key)...), row.Claim.Epoch, row.Claim.ID[:], looking{row.LookedAt, row.Asking}.micros())
	}
	// Made before the transaction: one that has its connection must not wait for
	// another.
	st, err := s.statement(ctx, s.dialect.sql("SELECT "+keyColumns+" FROM zabor_fences WHERE "+anyOf(len(rows), unmoved)+lock))
	if err != nil {
		return nil, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	set, err := scanKeySet(tx.StmtContext(ctx, st).QueryContext(ctx, args...))
	if err != nil || len(set) == 0 {
		return nil, err
	}
	args = []any{looked.micros()}
	for k := range set {
		args = append(args, keyArgs(k)...)
	}
	if _, err := tx.ExecContext(ctx, s.dialect.sql("UPDATE zabor_fences SET looked_at = ? WHERE "+anyOf(len(set), "")), args...); err != nil {
		return nil, err
	}
	return set, tx.Commit()
}

// scanKeySet reads what a SELECT of keyColumns gives.
func scanKeySet(found *sql.Rows, err error) (map[zabor.Key]bool, error) {
	if err != nil {
		return nil, err
	}
	defer found.Close()
	keys := map[zabor.Key]bool{}
	for found.Next() {
		var scope, order, step []byte
		if err := found.Scan(&scope, &order, &step); err != nil {
			return nil, err
		}
		keys[zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}] = true
	}
	return keys, found.Err()
}

// anyOf is the condition of n keys, each with more behind it.
func anyOf(n int, more string) string {
	one := "(scope = ? AND order_id = ? AND step = ?" + more + ")"
	return one + strings.Repeat(" OR "+one, n-1)
}

// looking is what the table says of look-ups, in one column: while somebody is
// asking, the time is below zero.
type looking struct {
	at     time.Time
	asking bool
}

func lookingOf(column int64) looking {
	if column < 0 {
		return looking{moment(-column), true}
	}
	return looking{moment(column), false}
}

func (l looking) micros() int64 {
	switch {
	case l.at.IsZero():
		return 0
	case l.asking:
		return -l.at.UnixMicro()
	}
	return l.at.UnixMicro()
}

// in puts l into row as it will be read.
func (l looking) in(row *zabor.Row) {
	l = lookingOf(l.micros())
	row.LookedAt, row.Asking = l.at, l.asking
}
