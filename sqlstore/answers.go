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
// longer than keep, on one page of the rows of the installation of that scope, see
// [zabor.Key.In]: up to limit of them in key order, behind the given key. Of an answer
// its status stays, and of the row everything else: a key never ends. It returns how
// many answers it erased, and behind which key the next page is; the zero Key: there
// are no more rows.
//
// An answer that a hook which is due may still bind is left alone. The claim of
// a row does not change; a write that was under way may bring its answer back,
// to be erased the next time.
func (s *Store) EndAnswers(ctx context.Context, scope string, keep time.Duration, after zabor.Key, limit int) (erased int64, last zabor.Key, err error) {
	where, args := s.dialect.answersAfter(scope, after)
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
	switch {
	case n == limit:
	case scope != "" && after.Scope <= scope: // the scope itself is done; next those in it
		last = zabor.Key{Scope: scope + "/"}
	default:
		last = zabor.Key{}
	}
	return erased, last, nil
}

// answersAfter is the condition for a page of an installation's rows: first those of
// the scope itself, then those of the scopes in it. Between the two the index may
// have any number of others (shop, shop-2, shop/7).
func (d *dialect) answersAfter(scope string, after zabor.Key) (where string, args []any) {
	key := keyArgs(after)
	switch {
	case scope == "" && after == zabor.Key{}:
		return "", nil
	case scope == "":
		where, args = d.after(after, "")
	case after.Scope <= scope:
		where, args = "scope = ? AND order_id >= ? AND (order_id > ? OR step > ?)", []any{[]byte(scope), key[1], key[1], key[2]}
	default:
		where, args = d.after(after, "")
		where, args = where+" AND scope < ?", append(args, []byte(scope+"0"))
	}
	return " WHERE " + where, args
}

// answerOver is met by a closed row whose answer is older than is bound.
const answerOver = "(state IN ('settled', 'declined') AND answer_body IS NOT NULL AND hook_due = '' AND state_since < {now} - ?)"
