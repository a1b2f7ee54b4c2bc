// Package audit compares what a provider did with what the fence knows: 200s
// against rows, rows against the application's payments, rows against messages.
// It reads and never writes to any of them; what it joins is in a file of its
// own, so that millions of rows need little memory.
package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	_ "modernc.org/sqlite" // the driver of the work file

	"zabor"
)

// Success is one thing that a provider says it did: a charge, a refund.
type Success struct {
	Provider  string // its name in the configuration; empty: any
	Reference string // the provider's id of it; not empty
	Alias     string // another id of the same thing, such as the charge of an intent; may be empty
	Key       string // the idempotency key that it came with; may be empty

	// What it was for, as far as the provider knows. Order may be empty, and
	// nothing is known then; with an order, an empty Step is any step and a nil
	// Scope any scope.
	Order, Step string
	Scope       *string

	Amount zabor.Money // zero: not known
	At     time.Time   // zero: not known
	Place  string      // where it was read, for people

	// Back is what the provider says of money that went back: refunded, charged back;
	// empty: nothing. Gone: it is no success, and perhaps never was one.
	Back string
	Gone bool
}

// Payment is a row of the application's own table of payments.
type Payment struct {
	Order     string // not empty
	Step      string // empty: any
	Scope     string // of the step's own, or the whole; empty: none. An import needs it, an audit does not
	Reference string // empty: none
	Amount    zabor.Money
	Place     string
}

// Message is a message on a queue or in a failure transport whose step has a
// fence.
type Message struct {
	zabor.Key
	Queue     string
	ID        string
	Failed    bool // it is in the failure transport
	Delivered bool // a worker has had it
}

// Ledger is the work file of one audit. It is used by one goroutine at a time:
// first the Add methods, then [Ledger.Join], then the rest.
type Ledger struct {
	db   *sql.DB
	file string
	temp bool
}

// schema of the work file. A source's place is where to go on reading it, as its
// Add method writes it; began is when its reading began, and skew what a database's
// clock is behind the clock of this host, both in microseconds. Rows of other
// installations have ids below zero.
const schema = `
CREATE TABLE IF NOT EXISTS sources (name TEXT PRIMARY KEY, n INTEGER NOT NULL, complete INTEGER NOT NULL, place TEXT NOT NULL, began INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS fences (id INTEGER PRIMARY KEY, scope BLOB, order_id BLOB, step BLOB, state TEXT, provider TEXT, key BLOB,
  reference BLOB, other BLOB, amount INTEGER, currency TEXT, captured INTEGER, since INTEGER, skew INTEGER, expired INTEGER, reason TEXT);
CREATE VIEW IF NOT EXISTS own AS SELECT * FROM fences WHERE id >= 0;
CREATE TABLE IF NOT EXISTS successes (id INTEGER PRIMARY KEY, provider TEXT, reference BLOB, alias BLOB, key BLOB,
  scope BLOB, order_id BLOB, step BLOB, amount INTEGER, currency TEXT, at INTEGER, place TEXT);
CREATE TABLE IF NOT EXISTS reversals (provider TEXT, reference BLOB, alias BLOB, what TEXT, place TEXT, PRIMARY KEY (provider, reference, what));
CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, order_id BLOB, step BLOB, reference BLOB, amount INTEGER, currency TEXT, place TEXT);
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, scope BLOB, order_id BLOB, step BLOB, queue TEXT, message TEXT, failed INTEGER, delivered INTEGER);
CREATE TABLE IF NOT EXISTS unfetched (id INTEGER PRIMARY KEY, scope BLOB, order_id BLOB, step BLOB);
CREATE TABLE IF NOT EXISTS refunded (id INTEGER PRIMARY KEY, scope BLOB, order_id BLOB, step BLOB);
CREATE TABLE IF NOT EXISTS unlisted (provider TEXT, step BLOB);
CREATE TABLE IF NOT EXISTS skipped (file TEXT, why TEXT, n INTEGER NOT NULL, PRIMARY KEY (file, why));
`

// Open makes a ledger. With a path it is kept there when it is closed before
// [Ledger.Remove], and a later Open goes on with what it has; with none it is a
// temporary file. The file holds order ids, amounts and references, and nobody
// else can read it.
func Open(path string) (*Ledger, error) {
	l := &Ledger{file: path}
	if path == "" {
		f, err := os.CreateTemp("", "zabor-audit-*.db")
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		f.Close()
		l.file, l.temp = f.Name(), true
	} else if f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	} else {
		f.Close()
	}
	file, err := filepath.Abs(l.file)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	// What is lost in a crash is read again. The cache is the memory that an
	// audit takes: 64 MiB.
	u := url.URL{Scheme: "file", Path: file, RawQuery: "_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=cache_size(-65536)&_pragma=temp_store(1)&_pragma=busy_timeout(1000)"}
	if l.db, err = sql.Open("sqlite", u.String()); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	l.db.SetMaxOpenConns(1)
	if _, err := l.db.Exec(schema + evidenceSchema); err != nil {
		l.db.Close()
		return nil, fmt.Errorf("audit: %s is not the work file of an audit: %w; give another path, or delete it", l.file, err)
	}
	return l, nil
}

// Close ends the use of the ledger. A temporary file is deleted, another is kept.
func (l *Ledger) Close() error {
	err := l.db.Close()
	if l.temp {
		err = errors.Join(err, l.remove())
	}
	return err
}

// Remove closes the ledger and deletes its file: the audit is complete.
func (l *Ledger) Remove() error { return errors.Join(l.db.Close(), l.remove()) }

func (l *Ledger) remove() error {
	err := os.Remove(l.file)
	for _, beside := range []string{"-wal", "-shm"} {
		if e := os.Remove(l.file + beside); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// batch is how many entries a transaction of the work file has.
const batch = 5000

// source is what the ledger has of one source of entries.
type source struct {
	name     string
	n        int64  // entries so far
	complete bool   // these are all
	place    string // where to go on; its Add method knows what it means
	began    int64  // in microseconds
}

// open is what the ledger has of the source of that name; a new one begins now.
func (l *Ledger) open(ctx context.Context, name string) (source, error) {
	s := source{name: name, began: time.Now().UnixMicro()}
	err := l.db.QueryRowContext(ctx, "SELECT n, complete, place, began FROM sources WHERE name = ?", name).Scan(&s.n, &s.complete, &s.place, &s.began)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("audit: %w", err)
	}
	return s, nil
}

// put writes entries, and that s has them, in one transaction. arguments are those
// of insert for one of them.
func put[T any](ctx context.Context, l *Ledger, s source, insert string, entries []T, arguments func(T) []any) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	st, err := tx.PrepareContext(ctx, insert)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer st.Close()
	for _, e := range entries {
		if _, err := st.ExecContext(ctx, arguments(e)...); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?)", s.name, s.n, s.complete, s.place, s.began); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// fill puts what entries gives behind the first s.n of them, which are there, in
// batches. seen is told the number after each; nil: nobody is.
func fill[T any](ctx context.Context, l *Ledger, s source, entries iter.Seq2[T, error], insert string, arguments func(T) []any, seen func(int64)) error {
	if s.complete {
		return nil
	}
	skip := s.n
	held := make([]T, 0, batch)
	write := func() error {
		s.n += int64(len(held))
		err := put(ctx, l, s, insert, held, arguments)
		held = held[:0]
		if seen != nil {
			seen(s.n)
		}
		return err
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if skip > 0 {
			skip--
			continue
		}
		if held = append(held, e); len(held) == batch {
			if err := write(); err != nil {
				return err
			}
		}
	}
	s.complete = true
	return write()
}

// fillAnew is fill of the table of that name, which is also the source's, where
// entries may come in another order when they are read again: of a source that was
// broken off none is kept.
func fillAnew[T any](ctx context.Context, l *Ledger, table string, entries iter.Seq2[T, error], insert string, arguments func(T) []any, seen func(int64)) error {
	s, err := l.open(ctx, table)
	if err != nil || s.complete {
		return err
	}
	if _, err := l.db.ExecContext(ctx, "DELETE FROM "+table); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return fill(ctx, l, source{name: table, began: time.Now().UnixMicro()}, entries, insert, arguments, seen)
}

// AddRows adds the fence's rows. page gives a page of them in key order, after
// the given key; an empty page is the end. An audit that was broken off goes on
// behind the last page that it has.
//
// The audit is of the installation of that scope, see [zabor.Key.In]. Rows of others
// only say which successes are theirs, and are neither compared nor counted: two
// installations may have one account at a provider.
func (l *Ledger) AddRows(ctx context.Context, scope string, page func(after zabor.Key) ([]zabor.Row, error), seen func(int64)) error {
	s, err := l.open(ctx, "fence")
	if err != nil || s.complete {
		return err
	}
	after, other, err := l.lastRow(ctx)
	if err != nil {
		return err
	}
	for !s.complete {
		rows, err := page(after)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.In(scope) {
				s.n++
			}
		}
		s.complete = len(rows) == 0
		now := time.Now()
		err = put(ctx, l, s, "INSERT INTO fences VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows, func(r zabor.Row) []any {
			var id any // nil: the next one
			if !r.In(scope) {
				other--
				id = other
			}
			amount, currency := money(r.Amount)
			expired := r.State == zabor.Captured && r.ReadAt.After(r.Open.SendUntil)
			return []any{id, []byte(r.Scope), []byte(r.Order), []byte(r.Step), string(r.State), r.Provider, []byte(r.ProviderKey), []byte(r.Reference),
				[]byte(r.OtherReference), amount, currency, micros(r.CapturedAt), micros(r.StateSince), now.Sub(r.ReadAt).Microseconds(), expired, r.Reason}
		})
		if err != nil {
			return err
		}
		if seen != nil {
			seen(s.n)
		}
		if !s.complete {
			after = rows[len(rows)-1].Key
		}
	}
	return nil
}

// lastRow is the key of the row with which a broken off audit ended, and the id of the
// last one of another installation; 0: it has none.
func (l *Ledger) lastRow(ctx context.Context) (after zabor.Key, other int64, err error) {
	var scope, order, step []byte
	err = l.db.QueryRowContext(ctx, "SELECT scope, order_id, step, (SELECT MIN(0, MIN(id)) FROM fences) FROM fences ORDER BY scope DESC, order_id DESC, step DESC LIMIT 1").Scan(&scope, &order, &step, &other)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return zabor.Key{}, 0, fmt.Errorf("audit: %w", err)
	}
	return zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}, other, nil
}

const insertSuccess = "INSERT INTO successes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

func successValues(s Success) []any {
	amount, currency := money(s.Amount)
	var scope any
	if s.Scope != nil {
		scope = []byte(*s.Scope)
	}
	return []any{s.Provider, []byte(s.Reference), orNull(s.Alias), orNull(s.Key), scope, orNull(s.Order), orNull(s.Step), amount, currency, micros(s.At), s.Place}
}

// AddSuccesses adds what a provider did, from a file that gives the same entries
// in the same order when it is read again. An audit that was broken off passes over
// those that it has.
func (l *Ledger) AddSuccesses(ctx context.Context, file string, entries iter.Seq2[Success, error], seen func(int64)) error {
	s, err := l.open(ctx, "successes "+file)
	if err != nil {
		return err
	}
	return fill(ctx, l, s, l.successesOf(ctx, entries), insertSuccess, successValues, seen)
}

// successesOf notes what went back, and gives the successes.
func (l *Ledger) successesOf(ctx context.Context, entries iter.Seq2[Success, error]) iter.Seq2[Success, error] {
	return func(yield func(Success, error) bool) {
		for s, err := range entries {
			if err == nil {
				err = l.reversal(ctx, s)
			}
			if err == nil && s.Gone {
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// reversal notes what s says of money that went back, once.
func (l *Ledger) reversal(ctx context.Context, s Success) error {
	if s.Back == "" {
		return nil
	}
	_, err := l.db.ExecContext(ctx, "INSERT OR IGNORE INTO reversals VALUES (?, ?, ?, ?, ?)", s.Provider, []byte(s.Reference), orNull(s.Alias), s.Back, s.Place)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// AddSkipped says how many entries of a file were passed over, by why. It follows the
// file's AddSuccesses; a file that was complete before keeps what was said of it.
func (l *Ledger) AddSkipped(ctx context.Context, file string, skipped map[string]int64) error {
	for why, n := range skipped {
		if _, err := l.db.ExecContext(ctx, "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?)", file, why, n); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// Span is the time from the first to the last success of provider whose place begins
// with that text, and how many there are; zero: no time is known of any. What two
// exports have is of the first one. It follows [Ledger.Join].
func (l *Ledger) Span(ctx context.Context, provider, place string) (first, last time.Time, n int64, err error) {
	var from, to sql.NullInt64
	err = l.db.QueryRowContext(ctx, "SELECT MIN(at), MAX(at), COUNT(*) FROM successes WHERE provider = ? AND substr(place, 1, length(?)) = ?", provider, place, place).Scan(&from, &to, &n)
	if err != nil {
		return time.Time{}, time.Time{}, 0, fmt.Errorf("audit: %w", err)
	}
	if from.Valid {
		first, last = time.UnixMicro(from.Int64).UTC(), time.UnixMicro(to.Int64).UTC()
	}
	return first, last, n, nil
}

// Began is when the reading of the payments, of the messages or of a list began, and
// how many entries it had; zero: it was not read. source is "payments", "messages", or
// "successes " with the name of the list.
func (l *Ledger) Began(ctx context.Context, source string) (at time.Time, n int64, err error) {
	var micros int64
	switch err := l.db.QueryRowContext(ctx, "SELECT began, n FROM sources WHERE name = ?", source).Scan(&micros, &n); {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, 0, nil
	case err != nil:
		return time.Time{}, 0, fmt.Errorf("audit: %w", err)
	}
	return time.UnixMicro(micros).UTC(), n, nil
}

// AddPages adds what a provider did, from a list that is read page by page: page
// gives one and says where the next is; an empty place is that of the first, and of
// the end. An audit that was broken off goes on behind the last page that it has.
func (l *Ledger) AddPages(ctx context.Context, list string, page func(place string) (found []Success, next string, err error), seen func(int64)) error {
	s, err := l.open(ctx, "successes "+list)
	if err != nil {
		return err
	}
	for !s.complete {
		found, next, err := page(s.place)
		if err != nil {
			return err
		}
		for _, one := range found {
			if err := l.reversal(ctx, one); err != nil {
				return err
			}
		}
		found = slices.DeleteFunc(found, func(one Success) bool { return one.Gone })
		s.n, s.place, s.complete = s.n+int64(len(found)), next, next == ""
		if err := put(ctx, l, s, insertSuccess, found, successValues); err != nil {
			return err
		}
		if seen != nil {
			seen(s.n)
		}
	}
	return nil
}

// Unlisted says that what a step does at a provider is in no list or export of that
// provider's: a refund in none of charges. That its rows have no success means
// nothing.
func (l *Ledger) Unlisted(ctx context.Context, provider, step string) error {
	if _, err := l.db.ExecContext(ctx, "INSERT INTO unlisted VALUES (?, ?)", provider, []byte(step)); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// AddPayments adds the application's own payments. They come from a query whose
// order is not known, so after a break they are read anew.
func (l *Ledger) AddPayments(ctx context.Context, entries iter.Seq2[Payment, error], seen func(int64)) error {
	return fillAnew(ctx, l, "payments", entries, "INSERT INTO payments VALUES (NULL, ?, ?, ?, ?, ?, ?)", func(p Payment) []any {
		amount, currency := money(p.Amount)
		return []any{[]byte(p.Order), orNull(p.Step), []byte(p.Reference), amount, currency, p.Place}
	}, seen)
}

// AddMessages adds the messages of all queues, read anew after a break. Where the
// queues are in use it comes before [Ledger.AddRows]: a message that is taken in
// between is then no lost one.
func (l *Ledger) AddMessages(ctx context.Context, entries iter.Seq2[Message, error], seen func(int64)) error {
	return fillAnew(ctx, l, "messages", entries, "INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", func(m Message) []any {
		return []any{[]byte(m.Scope), []byte(m.Order), []byte(m.Step), m.Queue, m.ID, m.Failed, m.Delivered}
	}, seen)
}

// AddUnfetched adds the keys whose answer nobody was there to take, read anew after
// a break.
func (l *Ledger) AddUnfetched(ctx context.Context, keys iter.Seq2[zabor.Key, error]) error {
	return fillAnew(ctx, l, "unfetched", keys, "INSERT INTO unfetched VALUES (NULL, ?, ?, ?)", func(k zabor.Key) []any {
		return []any{[]byte(k.Scope), []byte(k.Order), []byte(k.Step)}
	}, nil)
}

// AddRefunded adds the keys of rows with two references whose second one a person
// has dealt with, read anew after a break: that one is counted no more. A third
// success of such a row still is.
func (l *Ledger) AddRefunded(ctx context.Context, keys iter.Seq2[zabor.Key, error]) error {
	return fillAnew(ctx, l, "refunded", keys, "INSERT INTO refunded VALUES (NULL, ?, ?, ?)", func(k zabor.Key) []any {
		return []any{[]byte(k.Scope), []byte(k.Order), []byte(k.Step)}
	}, nil)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// money binds an amount and its currency; both NULL where it is not known.
func money(m zabor.Money) (amount, currency any) {
	if m.Currency == "" {
		return nil, nil
	}
	return m.Minor, m.Currency
}

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}
