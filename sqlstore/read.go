package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// Query runs a query of a person's, of which nobody knows what it does, so that it
// can write nothing: in a read-only transaction, whatever the statement is. The
// caller reads the rows and calls done, which ends both.
func (r Reports) Query(ctx context.Context, query string) (rows *sql.Rows, done func(), err error) {
	conn, err := r.s.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	// SQLite's driver takes no notice of ReadOnly; MySQL and MariaDB end a
	// transaction before a statement such as DROP TABLE, so that the session must
	// be one that only reads.
	only, again := "", ""
	switch r.s.Dialect() {
	case "sqlite":
		only, again = "PRAGMA query_only = 1", "PRAGMA query_only = 0"
	case "mysql":
		only, again = "SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE"
	}
	leave := func() {
		if again != "" {
			if _, err := conn.ExecContext(context.WithoutCancel(ctx), again); err != nil {
				_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // nobody else is given it
			}
		}
		_ = conn.Close() // it goes back to the pool
	}
	if only != "" {
		if _, err := conn.ExecContext(ctx, only); err != nil {
			leave()
			return nil, nil, err
		}
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		leave()
		return nil, nil, err
	}
	end := func() {
		_ = tx.Rollback() // nothing was written
		leave()
	}
	if rows, err = tx.QueryContext(ctx, query); err != nil {
		end()
		return nil, nil, err
	}
	return rows, func() {
		_ = rows.Close() // its error was told while it was read
		end()
	}, nil
}
