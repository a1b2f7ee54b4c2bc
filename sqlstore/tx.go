package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"zabor"
)

// Tx is how [zabor.Fence.CaptureTx] writes in tx, a transaction of the caller's on
// the fence's database. It is of no use once tx has ended. Where the key is there
// already its row stays locked until then.
func (s *Store) Tx(tx *sql.Tx) zabor.InsertTx {
	return s.insertTx(carrier{
		exec: func(ctx context.Context, query string, args ...any) (int64, error) {
			result, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return 0, err
			}
			return result.RowsAffected()
		},
		row: func(ctx context.Context, query string, args ...any) scanner {
			return tx.QueryRowContext(ctx, query, args...)
		},
	})
}

// PgxTx is Tx for a transaction of a pgx connection or pool.
func (s *Store) PgxTx(tx pgx.Tx) zabor.InsertTx {
	return s.insertTx(carrier{
		exec: func(ctx context.Context, query string, args ...any) (int64, error) {
			tag, err := tx.Exec(ctx, query, args...)
			return tag.RowsAffected(), err
		},
		row: func(ctx context.Context, query string, args ...any) scanner { return tx.QueryRow(ctx, query, args...) },
	})
}

// carrier runs statements in a transaction of the caller's.
type carrier struct {
	exec func(ctx context.Context, query string, args ...any) (int64, error)
	row  func(ctx context.Context, query string, args ...any) scanner
}

// insertTx inserts as [Store.Insert] does, in a transaction that is not its own:
// nothing is repeated, and a duplicate is undone alone, since PostgreSQL would
// give the whole transaction up for it.
func (s *Store) insertTx(tx carrier) zabor.InsertTx {
	return func(ctx context.Context, row zabor.Row) (zabor.Row, error) {
		if err := validate(row); err != nil {
			return zabor.Row{}, fmt.Errorf("insert %s: %w", row.Key, err)
		}
		c, err := s.insertion(row, zabor.Write{DueIn: cmp.Or(row.Open.HoldAfter, zabor.Never)})
		if err != nil {
			return zabor.Row{}, fmt.Errorf("insert %s: %w", row.Key, err)
		}
		there, err := s.insertOrRead(ctx, tx, row, c)
		switch {
		case s.dialect.judge(err) == missing:
			err = fmt.Errorf("%w, or the transaction is on another database (%w)", ErrNotMigrated, err)
		case errors.Is(err, sql.ErrNoRows), errors.Is(err, pgx.ErrNoRows):
			err = errVanished // or its row was committed after this transaction's snapshot
		}
		if err != nil {
			return zabor.Row{}, fmt.Errorf("insert %s: %w", row.Key, err)
		}
		return there, nil
	}
}

// insertOrRead is row, inserted, or the row that has its key.
func (s *Store) insertOrRead(ctx context.Context, tx carrier, row zabor.Row, c change) (zabor.Row, error) {
	if _, err := tx.exec(ctx, "SAVEPOINT zabor_capture"); err != nil {
		return zabor.Row{}, err
	}
	n, err := tx.exec(ctx, c.first.query, c.first.args...)
	switch {
	case err != nil && s.dialect.judge(err) == duplicate:
		if _, err := tx.exec(ctx, "ROLLBACK TO SAVEPOINT zabor_capture"); err != nil {
			return zabor.Row{}, err
		}
		var epoch int64
		if err := tx.row(ctx, s.text.lock, keyArgs(row.Key)...).Scan(&epoch); err != nil {
			return zabor.Row{}, err
		}
		return s.scanRow(tx.row(ctx, s.text.load, keyArgs(row.Key)...))
	case err != nil:
		return zabor.Row{}, err
	case n != 1:
		return zabor.Row{}, errMissed
	}
	_, err = tx.exec(ctx, "RELEASE SAVEPOINT zabor_capture")
	return asWritten(row), err
}
