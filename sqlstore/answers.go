package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"zabor"
)

// EndAnswers erases the stored answers of closed rows that have been closed for
// longer than keep, on one page of rows: up to limit of them in key order, whose
// key is after the given one. Of an answer its status stays, and of the row
// everything else: a key never ends. It returns how many answers it erased, and
// the last key of the page; the zero Key: there are no more rows.
//
// An answer that a hook which is due may still bind is left alone. The claim of
// a row does not change; a write that was under way may bring its answer back,
// to be erased the next time.
func (s *Store) EndAnswers(ctx context.Context, keep time.Duration, after zabor.Key, limit int) (erased int64, last zabor.Key, err error) {
	where, args := "", []any(nil)
	if after != (zabor.Key{}) {
		where, args = s.dialect.after(after, "")
		where = " WHERE " + where
	}
	query := s.dialect.sql("SELECT " + keyColumns + ", CASE WHEN " + answerOver + " THEN 1 ELSE 0 END FROM zabor_fences" + where + inOrder)
	args = append(append([]any{micros(keep)}, args...), int64(limit))
	var over []any
	n := 0
	err = s.repeat(ctx, func(ctx context.Context) error {
		over, n = nil, 0
		return s.query(ctx, func(rows *sql.Rows) error {
			var scope, order, step []byte
			var is int
			if err := rows.Scan(&scope, &order, &step, &is); err != nil {
				return err
			}
			n++
			last = zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}
			if is == 1 {
				over = append(over, keyArgs(last)...)
			}
			return nil
		}, query, args...)
	})
	if err == nil && len(over) > 0 {
		keys := strings.TrimSuffix(strings.Repeat("(?, ?, ?), ", len(over)/3), ", ")
		if s.dialect.name == "sqlite" {
			keys = "VALUES " + keys
		}
		update := s.dialect.sql("UPDATE zabor_fences SET answer_header = NULL, answer_body = NULL WHERE (" + keyColumns + ") IN (" + keys + ") AND " + answerOver)
		err = s.repeat(ctx, func(ctx context.Context) error {
			result, err := s.db.ExecContext(ctx, update, append(over, micros(keep))...)
			if err == nil {
				erased, err = result.RowsAffected()
			}
			return err
		})
	}
	if err != nil {
		return 0, zabor.Key{}, fmt.Errorf("end stored answers: %w", err)
	}
	if n < limit {
		last = zabor.Key{}
	}
	return erased, last, nil
}

// answerOver is met by a closed row whose answer is older than is bound.
const answerOver = "(state IN ('settled', 'declined') AND answer_body IS NOT NULL AND hook_due = '' AND state_since < {now} - ?)"
