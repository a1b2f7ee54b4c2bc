package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Join finds the row of each success. A success belongs to the row that has its
// reference; else to the row whose provider key it came with; else to the one row
// of its order and step, or of those the one with its amount. By its order it belongs
// to a row of another installation only where both are known to have one account: each
// may number its orders from 1 on.
func (l *Ledger) Join(ctx context.Context) error {
	var others bool
	if err := l.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM fences WHERE id < 0)").Scan(&others); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for _, query := range append(slices.Concat(joining, matching(others)), "CREATE INDEX IF NOT EXISTS matches_fence ON matches (fence)") {
		if _, err := l.db.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// unmatched are the successes that have no row so far.
const unmatched = "NOT EXISTS (SELECT 1 FROM matches m WHERE m.success = s.id)"

var joining = []string{
	"CREATE INDEX IF NOT EXISTS fences_reference ON fences (reference) WHERE reference > x''",
	"CREATE INDEX IF NOT EXISTS fences_other ON fences (other) WHERE other > x''",
	"CREATE INDEX IF NOT EXISTS fences_key ON fences (key) WHERE key > x''",
	"CREATE INDEX IF NOT EXISTS fences_order ON fences (order_id, step, scope)",
	"CREATE INDEX IF NOT EXISTS fences_state ON fences (state)",
	"CREATE INDEX IF NOT EXISTS successes_reference ON successes (provider, reference)",
	"CREATE INDEX IF NOT EXISTS successes_order ON successes (order_id, step, scope) WHERE order_id IS NOT NULL",
	"CREATE INDEX IF NOT EXISTS payments_order ON payments (order_id, step)",
	"CREATE INDEX IF NOT EXISTS payments_reference ON payments (reference) WHERE reference > x''",
	"CREATE INDEX IF NOT EXISTS messages_order ON messages (order_id, step, scope)",
	"CREATE INDEX IF NOT EXISTS refunded_order ON refunded (order_id, step, scope)",
	// Two exports may overlap: the same success is one. One that names two orders is not.
	"DROP TABLE IF EXISTS shared",
	`CREATE TABLE shared AS SELECT a.reference AS reference, a.provider AS provider, a.scope AS scope, a.order_id AS order_id, a.step AS step, b.order_id AS other,
	   a.amount AS amount, a.currency AS currency, a.at AS at, a.place AS place
	   FROM successes a JOIN successes b ON b.provider = a.provider AND b.reference = a.reference AND b.id <> a.id AND b.order_id <> a.order_id
	   WHERE a.order_id IS NOT NULL GROUP BY a.provider, a.reference, a.order_id`,
	`DELETE FROM successes WHERE id IN (SELECT s.id FROM (SELECT provider, reference, MIN(id) AS first FROM successes GROUP BY provider, reference HAVING COUNT(*) > 1) d
	   JOIN successes s ON s.provider = d.provider AND s.reference = d.reference WHERE s.id > d.first)`,
	"DROP TABLE IF EXISTS back",
	"CREATE TABLE back AS " + reversedBy("reference") + " UNION " + reversedBy("alias"),
	"CREATE INDEX back_fence ON back (fence)",
	"DROP TABLE IF EXISTS matches",
	"CREATE TABLE matches (success INTEGER PRIMARY KEY, fence INTEGER NOT NULL, how TEXT NOT NULL)",
}

// matching finds rows for the successes that have none yet. What names a row for
// certain comes before what only fits it, and there own rows before those of others.
func matching(others bool) (queries []string) {
	tables := []string{"own"}
	if others {
		tables = append(tables, "fences")
	}
	for _, m := range []struct{ how, on, where string }{
		{"reference", "f.reference = s.reference AND f.reference > x''", ""},
		{"reference", "f.other = s.reference AND f.other > x''", ""},
		{"reference", "f.reference = s.alias AND f.reference > x''", " AND s.alias IS NOT NULL"},
		{"key", "f.key = s.key AND f.key > x''", " AND s.key IS NOT NULL"},
	} {
		for _, table := range tables {
			queries = append(queries, match(table, m.how, m.on, m.where))
		}
	}
	queries = append(queries, "DROP TABLE IF EXISTS accounts", sharedAccounts)
	for _, table := range tables {
		queries = append(queries, matchOrder(table, ""), matchOrder(table, " AND f.amount = s.amount AND f.currency = s.currency"))
	}
	return queries
}

// match joins by a unique id. CROSS: SQLite reads the successes in their order
// and looks the rows up.
func match(table, how, on, where string) string {
	return "INSERT OR IGNORE INTO matches SELECT s.id, f.id, '" + how + "' FROM successes s CROSS JOIN " + table + " f ON " + on +
		" AND (s.provider = '' OR f.provider IN (s.provider, '')) WHERE " + unmatched + where
}

// installation is whose a row f is, as far as its scope says: "shop" of "shop/7".
const installation = "CASE instr(f.scope, x'2f') WHEN 0 THEN f.scope ELSE substr(f.scope, 1, instr(f.scope, x'2f') - 1) END"

// sharedAccounts are the accounts that another installation has too: of their
// successes, one at least names a row of that installation for certain.
const sharedAccounts = "CREATE TABLE accounts AS SELECT DISTINCT s.provider AS listed, f.provider AS provider, " + installation + " AS installation" +
	" FROM matches m JOIN fences f ON f.id = m.fence JOIN successes s ON s.id = m.success WHERE m.fence < 0"

// mayBeOf are rows f that a success s may belong to by its order.
const mayBeOf = "(f.id >= 0 OR EXISTS (SELECT 1 FROM accounts a WHERE a.listed = s.provider AND (f.provider = '' OR a.provider = f.provider) AND a.installation = " + installation + "))"

// matchOrder joins by order and step, where that is one row.
func matchOrder(table, and string) string {
	on := " FROM successes s CROSS JOIN " + table + " f ON f.order_id = s.order_id AND (s.step IS NULL OR f.step = s.step)" +
		" AND (s.scope IS NULL OR f.scope = s.scope) AND (s.provider = '' OR f.provider = s.provider OR f.provider = '') AND " + mayBeOf
	return "INSERT INTO matches SELECT s.id, MIN(f.id), 'order'" + on + and +
		" WHERE s.order_id IS NOT NULL AND " + unmatched + " GROUP BY s.id HAVING COUNT(*) = 1"
}

// Kind is what is wrong, in a word that does not change.
type Kind string

// The kinds.
const (
	ChargedTwice      Kind = "charged-twice"       // two successes, or two references, for one key
	SuccessWithoutRow Kind = "success-without-row" // the provider did it, and no row knows it
	SuccessUnknown    Kind = "success-not-saved"   // the provider did it, and its row says otherwise
	ReferenceDiffers  Kind = "reference-differs"   // the row has another reference than the provider
	ReferenceTwice    Kind = "reference-twice"     // one reference for two orders: one of them was not charged, or its answer is another's
	AmountDiffers     Kind = "amount-differs"      // amount or currency
	RowWithoutSuccess Kind = "row-without-success" // a row has a reference that the provider's export has not
	Held              Kind = "held"                // a person must decide
	InDoubt           Kind = "in-doubt"            // not known yet
	Waiting           Kind = "waiting"             // free to be called again, and nobody has
	Lost              Kind = "lost"                // a row is open, and its message is nowhere
	SettledButQueued  Kind = "settled-but-queued"  // done, and its message is still there: it will be acked without a call
	Refunded          Kind = "refunded"            // a row has two references, and a person has dealt with the second
	Reversed          Kind = "reversed"            // the provider says of a settled row that its money went back
	Unfetched         Kind = "unfetched"           // the proxy's caller was gone when the answer came; a repeat may have fetched it since
	MessageWithoutRow Kind = "message-without-row" // a worker had it, and there is no row
	PaymentTwice      Kind = "payment-twice"       // the application has two payments for one order and step
	PaymentDiffers    Kind = "payment-differs"     // the application's payment has another reference than the row
	PaymentWithoutRow Kind = "payment-without-row" // the application says paid, and no row knows it
	RowWithoutPayment Kind = "row-without-payment" // a settled row that the application has no payment for
)

// Severity says whether an audit with such a difference is good.
type Severity string

// The severities. An audit with none above Info is good.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
	Info     Severity = "info"
)

// check is one kind of difference and the query that finds it. The query gives
// scope, order, step, state, reference, other, amount, currency, other amount,
// other currency, since, place.
type check struct {
	kind     Kind
	severity Severity
	needs    string // the name of the source without which nothing can be said; empty: none
	query    string
}

// fence are the columns of a difference that come from a row.
const fence = "f.scope, f.order_id, f.step, f.state, f.reference"

// looked is when the look at the queues began.
const looked = "(SELECT began FROM sources WHERE name = 'messages')"

// paymentOf joins payments p to rows f.
const paymentOf = "f.order_id = p.order_id AND (p.step IS NULL OR f.step = p.step)"

var checks = []check{
	{ChargedTwice, Critical, "", `
		SELECT ` + fence + `, COALESCE((SELECT s.reference FROM matches m JOIN successes s ON s.id = m.success
		         WHERE m.fence = f.id AND s.reference <> f.reference AND COALESCE(s.alias, x'') <> f.reference ORDER BY s.id LIMIT 1), f.other),
		       f.amount, f.currency, NULL, NULL, f.since, n.n || ' successes'
		FROM (` + chargesPerRow + `) n JOIN own f ON f.id = n.fence WHERE n.n > 1`},
	{ChargedTwice, Critical, "", `
		SELECT COALESCE(s.scope, x''), s.order_id, COALESCE(s.step, x''), '', MIN(s.reference), MAX(s.reference), MIN(s.amount), MIN(s.currency), NULL, NULL, MIN(s.at),
		       COUNT(*) || ' successes, and no row: ' || MIN(s.place)
		FROM successes s WHERE s.order_id IS NOT NULL AND ` + unmatched + `
		GROUP BY s.order_id, COALESCE(s.step, x''), COALESCE(s.scope, x'') HAVING COUNT(*) > 1`},
	{SuccessWithoutRow, Critical, "fence", `
		SELECT COALESCE(s.scope, x''), COALESCE(s.order_id, x''), COALESCE(s.step, x''), '', s.reference, x'', s.amount, s.currency, NULL, NULL, s.at, s.place
		FROM successes s WHERE ` + unmatched},
	{SuccessUnknown, Critical, "", `
		SELECT ` + fence + `, s.reference, f.amount, f.currency, s.amount, s.currency, f.since, s.place
		FROM matches m JOIN own f ON f.id = m.fence JOIN successes s ON s.id = m.success WHERE f.state NOT IN ('settled', 'pending')`},
	{ReferenceDiffers, Critical, "", `
		SELECT ` + fence + `, s.reference, f.amount, f.currency, s.amount, s.currency, f.since, s.place
		FROM matches m JOIN own f ON f.id = m.fence JOIN successes s ON s.id = m.success
		WHERE m.how <> 'reference' AND f.reference > x'' AND f.state IN ('settled', 'pending')
		  AND NOT EXISTS (SELECT 1 FROM matches o WHERE o.fence = f.id AND o.how = 'reference')`},
	{ReferenceTwice, Critical, "", `
		SELECT ` + fence + `, (SELECT MIN(o.order_id) FROM own o WHERE ` + sharing + `), f.amount, f.currency, NULL, NULL, f.since, f.reason
		FROM own f WHERE f.reference > x'' AND f.state <> 'declined' AND EXISTS (SELECT 1 FROM own o WHERE ` + sharing + `)`},
	{ReferenceTwice, Critical, "", `
		SELECT COALESCE(h.scope, x''), h.order_id, COALESCE(h.step, x''), '', h.reference, h.other, h.amount, h.currency, NULL, NULL, h.at, h.place
		FROM shared h WHERE NOT EXISTS (SELECT 1 FROM own f WHERE f.reference = h.reference AND f.order_id = h.order_id)`},
	{ReferenceTwice, Critical, "payments", `
		SELECT x'', p.order_id, COALESCE(p.step, x''), '', p.reference, MIN(o.order_id), p.amount, p.currency, NULL, NULL, NULL, p.place
		FROM payments p JOIN payments o ON o.reference = p.reference AND o.reference > x'' AND o.order_id <> p.order_id WHERE p.reference > x'' GROUP BY p.id`},
	{AmountDiffers, Critical, "", `
		SELECT ` + fence + `, s.reference, f.amount, f.currency, s.amount, s.currency, f.since, s.place
		FROM matches m JOIN own f ON f.id = m.fence JOIN successes s ON s.id = m.success
		WHERE f.currency IS NOT NULL AND s.currency IS NOT NULL AND (f.amount <> s.amount OR f.currency <> s.currency)`},
	{RowWithoutSuccess, Critical, "successes", `
		SELECT ` + fence + `, x'', f.amount, f.currency, NULL, NULL, f.since, ''
		FROM own f WHERE f.state = 'settled' AND NOT EXISTS (SELECT 1 FROM matches m WHERE m.fence = f.id)
		  AND NOT EXISTS (SELECT 1 FROM back b WHERE b.fence = f.id)
		  AND EXISTS (SELECT 1 FROM covered c WHERE (c.provider = '' OR c.provider = f.provider) AND (c.first IS NULL OR (f.captured >= c.first AND f.since <= c.last)))
		  AND NOT EXISTS (SELECT 1 FROM unlisted u WHERE u.provider = f.provider AND (u.step = f.step OR CAST(u.step || ':' AS BLOB) = substr(f.step, 1, length(u.step) + 1)))`},
	{Held, Warning, "", `SELECT ` + fence + `, f.other, f.amount, f.currency, NULL, NULL, f.since, f.reason FROM own f
		WHERE f.state NOT IN ('captured', 'pending', 'settled', 'declined', 'released', 'doubt')`},
	{InDoubt, Warning, "", `SELECT ` + fence + `, f.other, f.amount, f.currency, NULL, NULL, f.since, f.reason FROM own f
		WHERE f.state = 'doubt' OR (f.state = 'captured' AND f.expired)`},
	{Waiting, Info, "", `SELECT ` + fence + `, f.other, f.amount, f.currency, NULL, NULL, f.since, f.reason FROM own f WHERE f.state = 'released'`},
	{Lost, Critical, "messages", `
		SELECT ` + fence + `, x'', f.amount, f.currency, NULL, NULL, f.since, f.reason FROM own f
		WHERE (f.state IN ('doubt', 'released') OR (f.state = 'captured' AND f.expired)) AND f.captured + f.skew < ` + looked + `
		  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.order_id = f.order_id AND m.step = f.step AND m.scope = f.scope)`},
	{SettledButQueued, Info, "messages", `
		SELECT ` + fence + `, x'', f.amount, f.currency, NULL, NULL, f.since, m.queue || CASE WHEN m.failed THEN ', failed: ' ELSE ': ' END || m.message
		FROM messages m JOIN own f ON f.order_id = m.order_id AND f.step = m.step AND f.scope = m.scope
		WHERE f.state IN ('settled', 'declined') AND f.since + f.skew < ` + looked},
	{Refunded, Info, "refunded", `SELECT ` + fence + `, f.other, f.amount, f.currency, NULL, NULL, f.since, f.reason FROM own f WHERE f.other > x'' AND ` + refunded},
	{Reversed, Info, "", `
		SELECT ` + fence + `, x'', f.amount, f.currency, NULL, NULL, f.since, b.what FROM back b JOIN own f ON f.id = b.fence ORDER BY b.fence, b.what`},
	{Unfetched, Info, "unfetched", `SELECT DISTINCT ` + fence + `, x'', f.amount, f.currency, NULL, NULL, f.since, ''
		FROM unfetched u JOIN own f ON f.order_id = u.order_id AND f.step = u.step AND f.scope = u.scope`},
	{MessageWithoutRow, Warning, "messages", `
		SELECT m.scope, m.order_id, m.step, '', x'', x'', NULL, NULL, NULL, NULL, NULL, m.queue || CASE WHEN m.failed THEN ', failed: ' ELSE ': ' END || m.message
		FROM messages m WHERE (m.failed OR m.delivered) AND NOT EXISTS (SELECT 1 FROM own f WHERE f.order_id = m.order_id AND f.step = m.step AND f.scope = m.scope)`},
	{PaymentTwice, Critical, "payments", `
		SELECT x'', p.order_id, COALESCE(p.step, x''), '', MIN(p.reference), MAX(p.reference), MIN(p.amount), MIN(p.currency), NULL, NULL, NULL, COUNT(*) || ' payments: ' || MIN(p.place)
		FROM payments p GROUP BY p.order_id, COALESCE(p.step, x'') HAVING COUNT(*) > 1`},
	{PaymentDiffers, Critical, "payments", `
		SELECT ` + fence + `, p.reference, f.amount, f.currency, p.amount, p.currency, f.since, p.place
		FROM payments p JOIN own f ON ` + paymentOf + ` WHERE p.reference > x'' AND f.reference > x'' AND p.reference <> f.reference
		  AND NOT EXISTS (SELECT 1 FROM own o WHERE o.order_id = p.order_id AND (p.step IS NULL OR o.step = p.step) AND o.reference = p.reference)`},
	{PaymentWithoutRow, Warning, "payments", `
		SELECT x'', p.order_id, COALESCE(p.step, x''), '', p.reference, x'', p.amount, p.currency, NULL, NULL, NULL, p.place
		FROM payments p WHERE EXISTS (SELECT 1 FROM sources WHERE name = 'fence') AND NOT EXISTS (SELECT 1 FROM own f WHERE ` + paymentOf + `)`},
	{RowWithoutPayment, Warning, "payments", `
		SELECT ` + fence + `, x'', f.amount, f.currency, NULL, NULL, f.since, '' FROM own f
		WHERE f.state = 'settled' AND NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = f.order_id AND (p.step IS NULL OR p.step = f.step))`},
}

// sharing are rows o of another order than f's with the same reference at one provider.
const sharing = "o.reference = f.reference AND o.reference > x'' AND o.id <> f.id AND o.state <> 'declined' AND (o.provider = f.provider OR o.provider = '' OR f.provider = '') AND (o.order_id <> f.order_id OR o.scope <> f.scope)"

// reversedBy are the settled rows whose money went back, by the id that the provider has
// for it. CROSS: SQLite reads what went back, and looks the rows up.
func reversedBy(id string) string {
	return "SELECT f.id AS fence, v.what || ', ' || v.place AS what FROM reversals v CROSS JOIN own f ON f.reference = v." + id +
		" WHERE f.reference > x'' AND f.state = 'settled' AND (v.provider = '' OR f.provider IN (v.provider, ''))"
}

// refunded are rows f whose second reference a person has dealt with.
const refunded = "EXISTS (SELECT 1 FROM refunded r WHERE r.order_id = f.order_id AND r.step = f.step AND r.scope = f.scope)"

// chargesPerRow counts the different references that a row has: its own, the one
// beside it unless a person has dealt with it, and those that the provider knows. An
// alias is no other one.
const chargesPerRow = `SELECT fence, COUNT(DISTINCT reference) AS n FROM (
	SELECT m.fence AS fence, CASE WHEN s.alias = f.reference THEN f.reference ELSE s.reference END AS reference
	  FROM matches m JOIN successes s ON s.id = m.success JOIN own f ON f.id = m.fence
	  WHERE NOT (f.other > x'' AND (s.reference = f.other OR COALESCE(s.alias = f.other, 0)) AND ` + refunded + `)
	UNION ALL SELECT f.id, f.other FROM own f WHERE f.other > x'' AND NOT ` + refunded + `
	UNION ALL SELECT f.id, f.reference FROM own f WHERE f.other > x'' AND f.reference > x'')
	GROUP BY fence HAVING n > 1`

// covered is for which providers and times there are exports.
const covered = "WITH covered AS (SELECT provider, MIN(at) AS first, MAX(at) AS last FROM successes GROUP BY provider) "

// has reports whether a query can say something: its source was read.
func (c check) has(sources []string) bool {
	if c.needs == "" {
		return true
	}
	for _, s := range sources {
		if s == c.needs || strings.HasPrefix(s, c.needs+" ") {
			return true
		}
	}
	return false
}

// Kinds are all kinds of differences, the gravest first, and how grave each is.
func Kinds() (kinds []Kind, severities []Severity) {
	for _, c := range checks {
		if !slices.Contains(kinds, c.kind) {
			kinds, severities = append(kinds, c.kind), append(severities, c.severity)
		}
	}
	return kinds, severities
}
