package audit

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"time"

	"zabor"
)

// Evidence says that something was done before there was a fence.
type Evidence struct {
	Key       zabor.Key // with an empty Order: only the Reference is known
	Provider  string    // its name in the configuration; empty: not known
	Reference string    // empty: none
	Amount    zabor.Money
	Place     string // where it was read, for people
	Source    int    // as numbered in AddEvidence, which sets it
}

// Claimed is what all evidence for one key says together.
type Claimed struct {
	Key       zabor.Key
	Provider  string
	Reference string // empty: nothing names one
	Amount    zabor.Money
	Places    []string // a few of them
	From      []int64  // pieces of evidence by source, as numbered in AddEvidence

	// Against is why it cannot be one payment: two references, or two amounts.
	// Empty: it can.
	Against string
}

const evidenceSchema = `
CREATE TABLE IF NOT EXISTS evidence (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, scope BLOB, order_id BLOB, step BLOB, provider TEXT NOT NULL,
  reference BLOB NOT NULL, amount INTEGER, currency TEXT, place TEXT NOT NULL);
`

// AddEvidence adds evidence from the source with the given number, 0 and up, and
// says how many pieces it had. It does not go on with a ledger that was broken off.
func (l *Ledger) AddEvidence(ctx context.Context, number int, entries iter.Seq2[Evidence, error], seen func(int64)) (n int64, err error) {
	counted := func(yield func(Evidence, error) bool) {
		for e, err := range entries {
			if err == nil {
				n++
			}
			if !yield(e, err) {
				return
			}
		}
	}
	err = fill(ctx, l, source{name: fmt.Sprintf("evidence %d", number), began: time.Now().UnixMicro()}, counted, "INSERT INTO evidence VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		func(e Evidence) []any {
			amount, currency := money(e.Amount)
			var scope, order, step any
			if e.Key.Order != "" {
				scope, order, step = []byte(e.Key.Scope), []byte(e.Key.Order), []byte(e.Key.Step)
			}
			return []any{number, scope, order, step, e.Provider, []byte(e.Reference), amount, currency, e.Place}
		}, seen)
	return n, err
}

// JoinEvidence gives evidence that names no order the key of that which has the
// same reference. It follows all AddEvidence.
func (l *Ledger) JoinEvidence(ctx context.Context) error {
	for _, query := range []string{
		"CREATE INDEX IF NOT EXISTS evidence_reference ON evidence (reference) WHERE order_id IS NOT NULL AND reference > x''",
		`UPDATE evidence SET (scope, order_id, step) = (SELECT k.scope, k.order_id, k.step FROM evidence k WHERE k.order_id IS NOT NULL AND k.reference > x'' AND k.reference = evidence.reference ORDER BY k.id LIMIT 1)
		   WHERE order_id IS NULL`,
		"CREATE INDEX IF NOT EXISTS evidence_key ON evidence (scope, order_id, step)",
	} {
		if _, err := l.db.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// piece is a row of the table.
type piece struct {
	source                                  int
	scope, order, step, provider, reference []byte
	amount                                  sql.NullInt64
	currency                                sql.NullString
	place                                   string
}

const pieces = "SELECT source, scope, order_id, step, provider, reference, amount, currency, place FROM evidence "

func scanPiece(rows *sql.Rows) (p piece, err error) {
	err = rows.Scan(&p.source, &p.scope, &p.order, &p.step, &p.provider, &p.reference, &p.amount, &p.currency, &p.place)
	return p, err
}

// Homeless gives evidence for which there is no key.
func (l *Ledger) Homeless(ctx context.Context) iter.Seq2[Evidence, error] {
	return func(yield func(Evidence, error) bool) {
		l.pieces(ctx, pieces+"WHERE order_id IS NULL ORDER BY id", func(p piece) bool {
			return yield(Evidence{Source: p.source, Provider: string(p.provider), Reference: string(p.reference), Place: p.place}, nil)
		}, func(err error) { yield(Evidence{}, err) })
	}
}

// Claimed gives what is known of each key, in key order. The ledger may not be
// used otherwise until it has ended.
func (l *Ledger) Claimed(ctx context.Context) iter.Seq2[Claimed, error] {
	return func(yield func(Claimed, error) bool) {
		var c Claimed
		failed := false
		more := l.pieces(ctx, pieces+"WHERE order_id IS NOT NULL ORDER BY scope, order_id, step, id", func(p piece) bool {
			k := zabor.Key{Scope: string(p.scope), Order: string(p.order), Step: string(p.step)}
			if c.Key != k {
				if c.Key.Order != "" && !yield(c, nil) {
					return false
				}
				c = Claimed{Key: k}
			}
			c.add(p)
			return true
		}, func(err error) { failed = true; yield(c, err) })
		if more && !failed && c.Key.Order != "" {
			yield(c, nil)
		}
	}
}

// Knows reports whether there is evidence for k.
func (l *Ledger) Knows(ctx context.Context, k zabor.Key) (bool, error) {
	var n int
	err := l.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM evidence WHERE scope = ? AND order_id = ? AND step = ?)", []byte(k.Scope), []byte(k.Order), []byte(k.Step)).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("audit: %w", err)
	}
	return n == 1, nil
}

// pieces passes rows to each until it wants no more, which is false.
func (l *Ledger) pieces(ctx context.Context, query string, each func(piece) bool, fail func(error)) bool {
	rows, err := l.db.QueryContext(ctx, query)
	if err != nil {
		fail(fmt.Errorf("audit: %w", err))
		return false
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanPiece(rows)
		if err != nil {
			fail(fmt.Errorf("audit: %w", err))
			return false
		}
		if !each(p) {
			return false
		}
	}
	if err := rows.Err(); err != nil {
		fail(fmt.Errorf("audit: %w", err))
		return false
	}
	return true
}

// add takes one more piece into c.
func (c *Claimed) add(p piece) {
	for len(c.From) <= p.source {
		c.From = append(c.From, 0)
	}
	c.From[p.source]++
	if len(c.Places) < 5 {
		c.Places = append(c.Places, p.place)
	}
	if len(p.provider) > 0 && c.Provider == "" {
		c.Provider = string(p.provider)
	}
	switch reference := string(p.reference); {
	case reference == "":
	case c.Reference == "":
		c.Reference = reference
	case c.Reference != reference && c.Against == "":
		c.Against = fmt.Sprintf("two payments, %s and %s", c.Reference, reference)
	}
	if !p.currency.Valid {
		return
	}
	m := zabor.Money{Minor: p.amount.Int64, Currency: p.currency.String}
	switch {
	case c.Amount.Currency == "":
		c.Amount = m
	case c.Amount != m && c.Against == "":
		c.Against = fmt.Sprintf("two amounts, %d %s and %d %s in minor units", c.Amount.Minor, c.Amount.Currency, m.Minor, m.Currency)
	}
}
