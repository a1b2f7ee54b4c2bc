package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Refunded is the kind of a note that a person has looked at both references of a
// row, and that no money has moved twice any more: one was refunded, or both are one
// payment. The row keeps both.
const Refunded = "refunded"

// Reversed is the kind of a note that the provider says of a settled row that its money
// went back: it was refunded, reversed or charged back. The row stays as it is.
const Reversed = "reversed"

// Refunded counts the rows that have two references and a note of kind
// [Refunded], in the given scope and the scopes in it; the empty scope counts
// everywhere.
func (r Reports) Refunded(ctx context.Context, scope string) (n int64, err error) {
	query, args := sumRefunded, []any{Refunded}
	if scope != "" {
		query += " AND " + strings.ReplaceAll(inScope, "scope", "f.scope")
		args = append(args, scopeArgs(scope)...)
	}
	err = r.s.repeat(ctx, func(ctx context.Context) error {
		return r.s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&n) }, r.s.dialect.sql(query), args...)
	})
	if err != nil {
		return 0, fmt.Errorf("count rows with two references: %w", err)
	}
	return n, nil
}

const sumRefunded = "SELECT COUNT(*) FROM (SELECT DISTINCT scope, order_id, step FROM zabor_notes WHERE kind = ?) n JOIN zabor_fences f ON f.scope = n.scope AND f.order_id = n.order_id AND f.step = n.step WHERE f.other_reference > {none}"
