package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"zabor"
)

// mostKeys is how many keys one query names.
const mostKeys = 200

// References returns the references of the rows of keys, by key: Reference first,
// OtherReference second; empty: there is none. A key without a row is missing.
func (r Reports) References(ctx context.Context, keys []zabor.Key) (map[zabor.Key][2]string, error) {
	all := map[zabor.Key][2]string{}
	for len(keys) > 0 {
		some := keys[:min(len(keys), mostKeys)]
		keys = keys[len(some):]
		query := r.s.dialect.sql("SELECT " + keyColumns + ", reference, other_reference FROM zabor_fences WHERE " + anyOf(len(some)))
		err := r.s.repeat(ctx, func(ctx context.Context) error {
			return r.s.query(ctx, func(rows *sql.Rows) error {
				var scope, order, step, reference, other []byte
				err := rows.Scan(&order, &scope, &step, &reference, &other)
				all[scannedKey(order, scope, step)] = [2]string{string(reference), string(other)}
				return err
			}, query, keysArgs(some)...)
		})
		if err != nil {
			return nil, fmt.Errorf("read references: %w", err)
		}
	}
	return all, nil
}

// StateMoney is the sum of one currency over the rows of a state. The zero Money
// stands for rows of an unknown amount.
type StateMoney struct {
	State zabor.State
	Sum   zabor.Money
	Rows  int64
}

// OpenMoney sums the rows that are not closed, by state and currency, in the given
// scope and the scopes in it; the empty scope sums everywhere. It reads open rows only.
func (r Reports) OpenMoney(ctx context.Context, scope string) ([]StateMoney, error) {
	where, args := within(scope, notClosed, nil)
	var sums []StateMoney
	err := r.s.repeat(ctx, func(ctx context.Context) error {
		sums = nil
		return r.s.query(ctx, func(rows *sql.Rows) error {
			var one StateMoney
			err := rows.Scan(&one.State, &one.Sum.Currency, &one.Rows, &one.Sum.Minor)
			sums = append(sums, one)
			return err
		}, r.s.dialect.sql("SELECT state, currency, COUNT(*), SUM(amount_minor)"+openRows+where+" GROUP BY state, currency ORDER BY state, currency"), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("sum open rows: %w", err)
	}
	return sums, nil
}
