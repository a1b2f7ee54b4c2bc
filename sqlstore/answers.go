package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// EraseAnswers erases header and body of answers of finished rows that are in their state
// for longer than keep, among up to limit rows that were captured at from or later, of the
// installation of that scope, see [zabor.Key.In]; the empty scope is of all. The status
// stays, and so does all else of the row: a key never ends. It returns how many it erased,
// and where to go on; the zero time: there are no more.
func (s *Store) EraseAnswers(ctx context.Context, scope string, keep time.Duration, from time.Time, limit int) (erased int64, next time.Time, err error) {
	start := int64(0)
	if !from.IsZero() {
		start = from.UnixMicro()
	}
	// All that were captured in one moment are looked at together.
	last := int64(0)
	err = s.repeat(ctx, func(ctx context.Context) error {
		last = 0
		return s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&last) }, s.dialect.sql(answersEnd), start, micros(keep), int64(limit-1))
	})
	where, args := within(scope, "captured_at >= ?", []any{start})
	if last != 0 {
		where, args = where+" AND captured_at <= ?", append(args, last)
		next = moment(last + 1)
	}
	update := s.dialect.sql("UPDATE zabor_fences SET answer_header = NULL, answer_body = NULL WHERE " + where + " AND captured_at <= {now} - ? AND due_at IS NULL AND answer_body IS NOT NULL AND state_since <= {now} - ?")
	if err == nil {
		err = s.repeat(ctx, func(ctx context.Context) error {
			result, err := s.db.ExecContext(ctx, update, append(args, micros(keep), micros(keep))...)
			if err == nil {
				erased, err = result.RowsAffected()
			}
			return err
		})
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("erase stored answers: %w", err)
	}
	return erased, next, nil
}

// answersEnd is the moment of the last row that is looked at.
const answersEnd = "SELECT captured_at FROM zabor_fences WHERE captured_at >= ? AND captured_at <= {now} - ? ORDER BY captured_at LIMIT 1 OFFSET ?"
