package sqlstore

import (
	"context"
	"fmt"
	"time"
)

// EraseAnswers erases header and body of up to limit answers that are older than keep,
// of the installation of that scope, see [zabor.Key.In]; the empty scope is of all. The
// status stays, and so does all else of the row: a key never ends. It returns how many
// it erased; fewer than limit: there are no more now. Answers of unfinished rows stay.
func (s *Store) EraseAnswers(ctx context.Context, scope string, keep time.Duration, limit int) (erased int64, err error) {
	where, args := "answered_at > 0 AND answered_at <= {now} - ?", []any{micros(keep)}
	if scope != "" {
		where += " AND " + inScope
		args = append(args, scopeArgs(scope)...)
	}
	const unfinished = " AND NOT EXISTS (SELECT 1 FROM zabor_open o WHERE o.scope = a.scope AND o.order_id = a.order_id AND o.step = a.step)"
	query := s.dialect.sql("SELECT " + keyColumns + " FROM zabor_answers a WHERE " + where + unfinished + " ORDER BY answered_at LIMIT ?")
	err = s.repeat(ctx, func(ctx context.Context) error {
		st, err := s.statement(ctx, query)
		if err != nil {
			return err
		}
		keys, err := scanKeyList(st.QueryContext(ctx, append(args, int64(limit))...))
		if err != nil || len(keys) == 0 {
			return err
		}
		result, err := s.db.ExecContext(ctx, s.dialect.sql("UPDATE zabor_answers SET header = NULL, body = NULL, answered_at = 0 WHERE "+anyOf("", len(keys))), keysArgs(keys)...)
		if err == nil {
			erased, err = result.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("erase stored answers: %w", err)
	}
	return erased, nil
}
