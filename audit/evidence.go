package audit

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"zabor"
)

// Evidence says that something was done before there was a fence.
type Evidence struct {
	Key       zabor.Key // with an empty Order: only the Reference is known
	Provider  string    // its name in the configuration; empty: not known
	Reference string    // empty: none
	Alias     string    // another id of the same thing; may be empty
	Amount    zabor.Money
	Place     string // where it was read, for people
	Source    int    // as numbered in AddEvidence, which sets it
}

// Evidence returns what p says of its order.
func (p Payment) Evidence() Evidence {
	return Evidence{Key: zabor.Key{Scope: p.Scope, Order: p.Order, Step: p.Step}, Reference: p.Reference, Amount: p.Amount, Place: p.Place}
}

// Evidence returns what s says of its order.
func (s Success) Evidence() Evidence {
	e := Evidence{Key: zabor.Key{Order: s.Order, Step: s.Step}, Provider: s.Provider, Reference: s.Reference, Alias: s.Alias, Amount: s.Amount, Place: s.Place}
	if s.Scope != nil {
		e.Key.Scope = *s.Scope
	}
	return e
}

// placeholders are what applications write in the place of a reference that they do
// not have, without the blanks and signs around them.
var placeholders = []string{
	"", "none", "null", "nil", "na", "n/a", "unknown", "undefined", "false", "true", "empty", "todo", "tbd", "test", "dummy",
	"new", "open", "pending", "processing", "started", "created", "waiting", "failed", "error", "paid", "manual", "ok",
}

// WithoutPlaceholder is e without blanks around its ids, and without those that are
// none: every order that has not been paid may have the same.
func (e Evidence) WithoutPlaceholder() Evidence {
	for _, id := range []*string{&e.Reference, &e.Alias} {
		text := strings.TrimSpace(*id)
		if slices.Contains(placeholders, strings.ToLower(strings.Trim(text, " -_.?0()<>*"))) {
			if text != "" {
				e.Place += fmt.Sprintf(" (%q is no reference)", text)
			}
			text = ""
		}
		*id = text
	}
	return e
}

// Claimed is what all evidence for one key says together.
type Claimed struct {
	Key       zabor.Key
	Provider  string
	Reference string   // empty: nothing names one
	Aliases   []string // other ids of the same payment
	Amount    zabor.Money
	Places    []string // a few of them
	From      []int64  // pieces of evidence by source, as numbered in AddEvidence

	// Against is why it cannot be one payment: two references, or two amounts, or a
	// reference that is another key's too. Empty: it can.
	Against string

	payments [][]string // ids of one payment each
}

const evidenceSchema = `
CREATE TABLE IF NOT EXISTS evidence (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, scope BLOB, order_id BLOB, step BLOB, provider TEXT NOT NULL,
  reference BLOB NOT NULL, alias BLOB NOT NULL, amount INTEGER, currency TEXT, place TEXT NOT NULL, shared TEXT);
CREATE TABLE IF NOT EXISTS names (name BLOB NOT NULL, evidence INTEGER NOT NULL);
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
	err = fill(ctx, l, source{name: fmt.Sprintf("evidence %d", number), began: time.Now().UnixMicro()}, counted, "INSERT INTO evidence VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
		func(e Evidence) []any {
			amount, currency := money(e.Amount)
			var scope, order, step any
			if e.Key.Order != "" {
				scope, order, step = []byte(e.Key.Scope), []byte(e.Key.Order), []byte(e.Key.Step)
			}
			return []any{number, scope, order, step, e.Provider, []byte(e.Reference), []byte(e.Alias), amount, currency, e.Place}
		}, seen)
	return n, err
}

// named joins evidence o to the ids of evidence: what has one of them, at the same
// provider as far as both name one. CROSS: SQLite reads the ids first.
const named = `FROM names n CROSS JOIN evidence o ON o.id = n.evidence WHERE n.name IN (evidence.reference, evidence.alias) AND o.order_id IS NOT NULL
  AND (o.provider = '' OR evidence.provider = '' OR o.provider = evidence.provider)`

// JoinEvidence gives evidence that names no order the key of that which has the same
// id, and finds the ids that several keys have. It follows all AddEvidence.
func (l *Ledger) JoinEvidence(ctx context.Context) error {
	for _, query := range []string{
		"DELETE FROM names",
		"INSERT INTO names SELECT reference, id FROM evidence WHERE reference > x''",
		"INSERT INTO names SELECT alias, id FROM evidence WHERE alias > x'' AND alias <> reference",
		"CREATE INDEX IF NOT EXISTS names_name ON names (name, evidence)",
		"UPDATE evidence SET (scope, order_id, step) = (SELECT o.scope, o.order_id, o.step " + named + " ORDER BY o.id LIMIT 1) WHERE order_id IS NULL",
		"UPDATE evidence SET shared = (SELECT CAST(o.order_id || '/' || o.step AS TEXT) " + named + `
		   AND (o.scope <> evidence.scope OR o.order_id <> evidence.order_id OR o.step <> evidence.step) LIMIT 1) WHERE order_id IS NOT NULL`,
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
	source                                         int
	scope, order, step, provider, reference, alias []byte
	amount                                         sql.NullInt64
	currency, shared                               sql.NullString
	place                                          string
}

const pieces = "SELECT source, scope, order_id, step, provider, reference, alias, amount, currency, place, shared FROM evidence "

func scanPiece(rows *sql.Rows) (p piece, err error) {
	err = rows.Scan(&p.source, &p.scope, &p.order, &p.step, &p.provider, &p.reference, &p.alias, &p.amount, &p.currency, &p.place, &p.shared)
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
				if c.Key.Order != "" && !yield(c.whole(), nil) {
					return false
				}
				c = Claimed{Key: k}
			}
			c.add(p)
			return true
		}, func(err error) { failed = true; yield(c, err) })
		if more && !failed && c.Key.Order != "" {
			yield(c.whole(), nil)
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
	c.name(string(p.reference), string(p.alias))
	if p.shared.Valid && c.Against == "" {
		c.Against = fmt.Sprintf("the reference %s is that of %s too", cmp.Or(string(p.reference), string(p.alias)), p.shared.String)
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

// name takes the ids of one piece: those of a payment that is known, or of one more.
func (c *Claimed) name(ids ...string) {
	var one []string
	add := func(ids []string) {
		for _, id := range ids {
			if id != "" && !slices.Contains(one, id) {
				one = append(one, id)
			}
		}
	}
	at := len(c.payments)
	for i, known := range c.payments {
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(known, id) }) {
			at = min(at, i)
			add(known)
			c.payments[i] = nil
		}
	}
	add(ids)
	if len(one) == 0 {
		return
	}
	c.payments = append(c.payments, nil)
	c.payments[at] = one
	c.payments = slices.DeleteFunc(c.payments, func(ids []string) bool { return ids == nil })
}

// whole is c when all of its pieces are in it.
func (c Claimed) whole() Claimed {
	if len(c.payments) == 0 {
		return c
	}
	c.Reference, c.Aliases = c.payments[0][0], c.payments[0][1:]
	if len(c.payments) > 1 && c.Against == "" {
		c.Against = fmt.Sprintf("two payments, %s and %s", c.Reference, c.payments[1][0])
	}
	return c
}
