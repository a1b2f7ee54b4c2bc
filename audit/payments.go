package audit

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"zabor/provider"
	"zabor/sqlstore"
)

// QueryPayments runs the application's query in a transaction that can write nothing,
// and gives its rows up to the first error. With orders, a query without a column of
// orders is an error before its first row.
func QueryPayments(ctx context.Context, store *sqlstore.Store, query string, orders bool) iter.Seq2[Payment, error] {
	return func(yield func(Payment, error) bool) {
		fail := func(err error) { yield(Payment{}, fmt.Errorf("--payments-query: %w", err)) }
		rows, done, err := store.Reports().Query(ctx, query) //nolint:sqlclosecheck // done closes them
		if err != nil {
			fail(err)
			return
		}
		defer done()
		names, err := rows.Columns()
		if err != nil {
			fail(err)
			return
		}
		if orders && !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, "order") || strings.EqualFold(name, "order_id") }) {
			fail(fmt.Errorf("it gives column %s, and none named order or order_id", strings.Join(names, ", ")))
			return
		}
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		for n := 1; rows.Next(); n++ {
			if err := rows.Scan(into...); err != nil {
				fail(err)
				return
			}
			p, err := scanPayment(names, values)
			if err != nil {
				fail(fmt.Errorf("row %d: %w", n, err))
				return
			}
			p.Place = fmt.Sprintf("row %d of the query", n)
			if !yield(p, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			fail(err)
		}
	}
}

// WithOrder ends all with an error at the first payment without an order.
func WithOrder(all iter.Seq2[Payment, error]) iter.Seq2[Payment, error] {
	return func(yield func(Payment, error) bool) {
		for p, err := range all {
			if err == nil && p.Order == "" {
				err = fmt.Errorf("--payments-query: %s: no order", p.Place)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// scanPayment returns the payment of a row with these column names.
func scanPayment(names []string, values []sql.NullString) (p Payment, err error) {
	var minor, major, currency string
	for i, name := range names {
		v := values[i].String
		switch strings.ToLower(name) {
		case "order", "order_id":
			p.Order = v
		case "step":
			p.Step = v
		case "scope":
			p.Scope = v
		case "reference":
			p.Reference = v
		case "amount":
			minor = v
		case "major":
			major = v
		case "currency":
			currency = strings.ToUpper(v)
		default:
			return p, fmt.Errorf("column %s: there are order, scope, step, reference, amount, major and currency; write AS in the query", name)
		}
	}
	switch {
	case minor != "":
		p.Amount.Currency = currency
		if p.Amount.Minor, err = strconv.ParseInt(minor, 10, 64); err != nil {
			return p, fmt.Errorf("amount %q is no whole number of minor units; a decimal is the column major", minor)
		}
	case major != "":
		digits, negative := strings.CutPrefix(major, "-")
		if p.Amount, err = provider.ParseMajor(digits, currency); err != nil {
			return p, err
		}
		if negative {
			p.Amount.Minor = -p.Amount.Minor
		}
	}
	return p, nil
}
