package audit

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"
	"time"

	"zabor"
)

// Difference is one thing that is not as it should be.
type Difference struct {
	Kind     Kind
	Severity Severity
	Key      zabor.Key // what is known of it
	State    zabor.State
	// Reference is the row's, or the provider's where there is no row; Other is
	// the one that does not fit it.
	Reference, Other string
	Amount           zabor.Money // the row's; else the provider's
	OtherAmount      zabor.Money // the provider's, where it differs or the row may not have it
	Since            time.Time   // zero: not known
	Place            string      // where it was read, or why the row is as it is
}

// Total is the sum of an audit.
type Total struct {
	ProviderSuccesses int64 // by the exports; without one, references that the fence knows, but those of declined rows; without the second ones that a person has dealt with
	UniqueRows        int64 // keys with at least one success
	DoubleCharged     int64 // successes beyond the first of a key
	Lost              int64 // open rows whose message is nowhere; 0 where the queues were not read

	// What was read, without what is of other installations.
	Rows, Successes, Payments, Messages int64
	// Empty are the exports and lists that were read and have no success: nothing
	// was compared with them.
	Empty []string
	// Skipped are the entries of exports that were passed over, by file and why.
	Skipped []Skipped
	// Nameless are successes that name no order and have no row: without a fence they
	// are compared with nothing.
	Nameless int64

	Differences map[Kind]int64
	Bad         int64 // differences above Info
	// AtRisk is the money of rows that are in doubt, held or lost, by currency,
	// and Double what was charged beyond the first time: what a fence would have
	// stopped. Differences without an amount are not in them.
	AtRisk, Double []zabor.Money
}

// Skipped is how many entries of a file were passed over, and why.
type Skipped struct {
	File string `json:"file"`
	Why  string `json:"why"`
	N    int64  `json:"n"`
}

// Good reports whether 200s equal rows and nothing waits for a person.
func (t Total) Good() bool { return t.Bad == 0 }

// Uncompared is why an export was compared with nothing, so that an audit without
// differences says nothing about it; "": all were.
func (t Total) Uncompared() string {
	for _, name := range t.Empty {
		if !strings.HasPrefix(name, "list of ") {
			return name + " has no success that was read"
		}
	}
	if t.Rows == 0 && t.Nameless > 0 && t.Nameless == t.Successes {
		return fmt.Sprintf("none of %d successes names an order", t.Nameless)
	}
	return ""
}

// Total counts. It follows [Ledger.Join].
func (l *Ledger) Total(ctx context.Context) (Total, error) {
	t := Total{Differences: map[Kind]int64{}}
	for _, c := range []struct {
		query string
		n     *int64
	}{
		{"SELECT COUNT(*) FROM own", &t.Rows},
		{"SELECT COUNT(*) FROM successes s WHERE NOT EXISTS (SELECT 1 FROM matches m WHERE m.success = s.id AND m.fence < 0)", &t.Successes},
		{"SELECT COUNT(*) FROM successes s WHERE s.order_id IS NULL AND " + unmatched, &t.Nameless},
		{"SELECT COUNT(*) FROM payments", &t.Payments},
		{"SELECT COUNT(*) FROM messages", &t.Messages},
		{"SELECT COALESCE(SUM(n - 1), 0) FROM (" + chargesPerRow + ")", &t.DoubleCharged},
	} {
		if err := l.db.QueryRowContext(ctx, c.query).Scan(c.n); err != nil {
			return t, fmt.Errorf("audit: %w", err)
		}
	}
	if err := l.skipped(ctx, &t); err != nil {
		return t, err
	}
	exported, err := l.exported(ctx, &t)
	if err != nil {
		return t, err
	}
	if err := l.successes(ctx, &t, exported); err != nil {
		return t, fmt.Errorf("audit: %w", err)
	}
	for d, err := range l.Differences(ctx) {
		if err != nil {
			return t, err
		}
		t.Differences[d.Kind]++
		if d.Severity != Info {
			t.Bad++
		}
		switch d.Kind {
		case Held, InDoubt:
			t.AtRisk = AddMoney(t.AtRisk, d.Amount)
		case ChargedTwice:
			t.Double = AddMoney(t.Double, d.Amount)
		case PaymentTwice:
			if t.Rows == 0 && t.Successes == 0 {
				t.Double = AddMoney(t.Double, d.Amount)
			}
		case Lost:
			t.Lost++
		}
	}
	return t, nil
}

func (l *Ledger) skipped(ctx context.Context, t *Total) error {
	rows, err := l.db.QueryContext(ctx, "SELECT file, why, n FROM skipped ORDER BY file, n DESC, why")
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one Skipped
		if err := rows.Scan(&one.File, &one.Why, &one.N); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		t.Skipped = append(t.Skipped, one)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// exported reports whether an export or a list was read, and notes the empty ones.
func (l *Ledger) exported(ctx context.Context, t *Total) (some bool, err error) {
	rows, err := l.db.QueryContext(ctx, "SELECT substr(name, 11), n FROM sources WHERE name LIKE 'successes %' ORDER BY name")
	if err != nil {
		return false, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return false, fmt.Errorf("audit: %w", err)
		}
		if some = true; n == 0 {
			t.Empty = append(t.Empty, name)
		}
	}
	if err := rows.Err(); err != nil {
		return false, fmt.Errorf("audit: %w", err)
	}
	return some, nil
}

// successes counts 200s and rows.
func (l *Ledger) successes(ctx context.Context, t *Total, exported bool) error {
	one := func(query string) (n int64, err error) {
		err = l.db.QueryRowContext(ctx, query).Scan(&n)
		return n, err
	}
	// Without rows a key is an order and step of the export or of the payments.
	loose, err := one(`SELECT COALESCE(SUM(n - 1), 0) FROM (SELECT COUNT(*) AS n FROM successes s
		WHERE s.order_id IS NOT NULL AND ` + unmatched + ` GROUP BY s.order_id, COALESCE(s.step, x''), COALESCE(s.scope, x''))`)
	if err != nil {
		return err
	}
	t.DoubleCharged += loose
	switch {
	case t.Rows > 0:
		t.UniqueRows, err = one("SELECT COUNT(*) FROM own WHERE reference > x'' AND state IN ('settled', 'pending')")
		if err != nil {
			return err
		}
		if exported {
			dealtWith, err := one("SELECT COUNT(*) FROM own f JOIN matches m ON m.fence = f.id JOIN successes s ON s.id = m.success WHERE f.other > x'' AND (s.reference = f.other OR s.alias = f.other) AND " + refunded)
			t.ProviderSuccesses = t.Successes - dealtWith
			return err
		}
		// A reference of a declined row is that of a no.
		t.ProviderSuccesses, err = one("SELECT (SELECT COUNT(*) FROM own WHERE reference > x'' AND state <> 'declined') + (SELECT COUNT(*) FROM own f WHERE other > x'' AND NOT " + refunded + ")")
	case exported:
		t.ProviderSuccesses, t.UniqueRows = t.Successes, t.Successes-loose
	default:
		t.ProviderSuccesses = t.Payments
		t.UniqueRows, err = one("SELECT COUNT(*) FROM (SELECT 1 FROM payments GROUP BY order_id, COALESCE(step, x''))")
		t.DoubleCharged = t.ProviderSuccesses - t.UniqueRows
	}
	return err
}

// Differences gives all that is not as it should be, kind by kind, the gravest
// kinds first. It follows [Ledger.Join] and ends with the first error.
func (l *Ledger) Differences(ctx context.Context) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		sources, err := l.sources(ctx)
		if err != nil {
			yield(Difference{}, err)
			return
		}
		for _, c := range checks {
			if c.has(sources) && !l.find(ctx, c, yield) {
				return
			}
		}
	}
}

func (l *Ledger) find(ctx context.Context, c check, yield func(Difference, error) bool) bool {
	rows, err := l.db.QueryContext(ctx, covered+c.query)
	if err != nil {
		return yield(Difference{}, fmt.Errorf("audit: %s: %w", c.kind, err))
	}
	defer rows.Close()
	for rows.Next() {
		var scope, order, step, reference, other []byte
		var state, place string
		var amount, otherAmount, since sql.NullInt64
		var currency, otherCurrency sql.NullString
		err := rows.Scan(&scope, &order, &step, &state, &reference, &other, &amount, &currency, &otherAmount, &otherCurrency, &since, &place)
		d := Difference{
			Kind: c.kind, Severity: c.severity, Key: zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}, State: zabor.State(state),
			Reference: string(reference), Other: string(other), Place: place,
			Amount:      zabor.Money{Minor: amount.Int64, Currency: currency.String},
			OtherAmount: zabor.Money{Minor: otherAmount.Int64, Currency: otherCurrency.String},
		}
		if since.Valid {
			d.Since = time.UnixMicro(since.Int64).UTC()
		}
		if !yield(d, err) || err != nil {
			return false
		}
	}
	if err := rows.Err(); err != nil {
		return yield(Difference{}, fmt.Errorf("audit: %s: %w", c.kind, err))
	}
	return true
}

// sources are the names of all that was read.
func (l *Ledger) sources(ctx context.Context) (names []string, err error) {
	rows, err := l.db.QueryContext(ctx, "SELECT name FROM sources")
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// AddMoney returns sums, one for each currency, with m in it. A new currency comes last; an
// unknown amount changes nothing.
func AddMoney(sums []zabor.Money, m zabor.Money) []zabor.Money {
	if m.Currency == "" {
		return sums
	}
	for i := range sums {
		if sums[i].Currency == m.Currency {
			sums[i].Minor += m.Minor
			return sums
		}
	}
	return append(sums, m)
}
