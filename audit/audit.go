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
}

// Payment is a row of the application's own table of payments.
type Payment struct {
	Order     string // not empty
	Step      string // empty: any
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

const schema = `
CREATE TABLE IF NOT EXISTS sources (name TEXT PRIMARY KEY, n INTEGER NOT NULL, complete INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS fences (id INTEGER PRIMARY KEY, scope BLOB, order_id BLOB, step BLOB, state TEXT, provider TEXT, key BLOB,
  reference BLOB, other BLOB, amount INTEGER, currency TEXT, captured INTEGER, since INTEGER, expired INTEGER, reason TEXT);
CREATE TABLE IF NOT EXISTS successes (id INTEGER PRIMARY KEY, source TEXT, provider TEXT, reference BLOB, alias BLOB, key BLOB,
  scope BLOB, order_id BLOB, step BLOB, amount INTEGER, currency TEXT, at INTEGER, place TEXT);
CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, source TEXT, order_id BLOB, step BLOB, reference BLOB, amount INTEGER, currency TEXT, place TEXT);
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, source TEXT, scope BLOB, order_id BLOB, step BLOB, queue TEXT, message TEXT, failed INTEGER, delivered INTEGER);
CREATE TABLE IF NOT EXISTS unfetched (id INTEGER PRIMARY KEY, source TEXT, scope BLOB, order_id BLOB, step BLOB);
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
	if _, err := l.db.Exec(schema); err != nil {
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

// fill puts what entries gives into the ledger under the name of its source.
// entry returns the arguments of insert. A source that is complete already is
// left alone; of one that was broken off, the first n entries are passed over
// where entries are the same again (again), else all are read anew. seen is told
// the number after each batch; nil: nobody is.
func fill[T any](ctx context.Context, l *Ledger, source string, again bool, entries iter.Seq2[T, error], insert, clear string, entry func(T) []any, seen func(int64)) error {
	n, complete, err := l.source(ctx, source)
	if err != nil || complete {
		return err
	}
	if !again && n > 0 {
		if _, err := l.db.ExecContext(ctx, clear, source); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		n = 0
	}
	skip := n
	var tx *sql.Tx
	var st *sql.Stmt
	defer func() {
		if tx != nil {
			tx.Rollback()
		}
	}()
	commit := func(complete bool) error {
		if tx == nil {
			if tx, err = l.db.BeginTx(ctx, nil); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO sources VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET n = excluded.n, complete = excluded.complete", source, n, complete)
		if err == nil {
			err = tx.Commit()
			tx = nil
		}
		if seen != nil {
			seen(n)
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
		if tx == nil {
			if tx, err = l.db.BeginTx(ctx, nil); err != nil {
				return fmt.Errorf("audit: %w", err)
			}
			if st, err = tx.PrepareContext(ctx, insert); err != nil { //nolint:sqlclosecheck // it ends with its transaction
				return fmt.Errorf("audit: %w", err)
			}
		}
		if _, err := st.ExecContext(ctx, entry(e)...); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if n++; n%batch == 0 {
			if err := commit(false); err != nil {
				return fmt.Errorf("audit: %w", err)
			}
		}
	}
	if err := commit(true); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// source is how many entries of a source are in the ledger, and whether these are
// all.
func (l *Ledger) source(ctx context.Context, name string) (n int64, complete bool, err error) {
	err = l.db.QueryRowContext(ctx, "SELECT n, complete FROM sources WHERE name = ?", name).Scan(&n, &complete)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, false, fmt.Errorf("audit: %w", err)
	}
	return n, complete, nil
}

// AddRows adds the fence's rows. page gives a page of them in key order, after
// the given key; an empty page is the end. An audit that was broken off goes on
// behind the last page that it has.
func (l *Ledger) AddRows(ctx context.Context, page func(after zabor.Key) ([]zabor.Row, error), seen func(int64)) error {
	_, complete, err := l.source(ctx, "fence")
	if err != nil || complete {
		return err
	}
	n, after, err := l.lastRow(ctx)
	if err != nil {
		return err
	}
	for {
		rows, err := page(after)
		if err != nil {
			return err
		}
		tx, err := l.db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		n += int64(len(rows))
		err = addPage(ctx, tx, rows, n)
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			tx.Rollback()
			return fmt.Errorf("audit: %w", err)
		}
		if seen != nil {
			seen(n)
		}
		if len(rows) == 0 {
			return nil
		}
		after = rows[len(rows)-1].Key
	}
}

// lastRow is the row with which a broken off audit ended.
func (l *Ledger) lastRow(ctx context.Context) (n int64, k zabor.Key, err error) {
	var scope, order, step []byte
	err = l.db.QueryRowContext(ctx, "SELECT id, scope, order_id, step FROM fences ORDER BY id DESC LIMIT 1").Scan(&n, &scope, &order, &step)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, zabor.Key{}, nil
	}
	if err != nil {
		return 0, k, fmt.Errorf("audit: %w", err)
	}
	return n, zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}, nil
}

func addPage(ctx context.Context, tx *sql.Tx, rows []zabor.Row, n int64) error {
	st, err := tx.PrepareContext(ctx, "INSERT INTO fences VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer st.Close()
	for _, r := range rows {
		amount, currency := money(r.Amount)
		expired := r.State == zabor.Captured && r.ReadAt.After(r.SendUntil)
		if _, err := st.ExecContext(ctx, []byte(r.Scope), []byte(r.Order), []byte(r.Step), string(r.State), r.Provider, []byte(r.ProviderKey),
			[]byte(r.Reference), []byte(r.OtherReference), amount, currency, micros(r.CapturedAt), micros(r.StateSince), expired, r.Reason); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO sources VALUES ('fence', ?, ?) ON CONFLICT (name) DO UPDATE SET n = excluded.n, complete = excluded.complete", n, len(rows) == 0)
	return err
}

// AddSuccesses adds what a provider did, from a file that gives the same entries
// in the same order when it is read again.
func (l *Ledger) AddSuccesses(ctx context.Context, source string, entries iter.Seq2[Success, error], seen func(int64)) error {
	return fill(ctx, l, "successes "+source, true, entries,
		"INSERT INTO successes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", "DELETE FROM successes WHERE source = ?",
		func(s Success) []any {
			amount, currency := money(s.Amount)
			var scope any
			if s.Scope != nil {
				scope = []byte(*s.Scope)
			}
			return []any{"successes " + source, s.Provider, []byte(s.Reference), orNull(s.Alias), orNull(s.Key), scope, orNull(s.Order), orNull(s.Step), amount, currency, micros(s.At), s.Place}
		}, seen)
}

// AddPayments adds the application's own payments. They come from a query whose
// order is not known, so after a break they are read anew.
func (l *Ledger) AddPayments(ctx context.Context, entries iter.Seq2[Payment, error], seen func(int64)) error {
	return fill(ctx, l, "payments", false, entries,
		"INSERT INTO payments VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", "DELETE FROM payments WHERE source = ?",
		func(p Payment) []any {
			amount, currency := money(p.Amount)
			return []any{"payments", []byte(p.Order), orNull(p.Step), []byte(p.Reference), amount, currency, p.Place}
		}, seen)
}

// AddMessages adds the messages of all queues, read anew after a break.
func (l *Ledger) AddMessages(ctx context.Context, entries iter.Seq2[Message, error], seen func(int64)) error {
	return fill(ctx, l, "messages", false, entries,
		"INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", "DELETE FROM messages WHERE source = ?",
		func(m Message) []any {
			return []any{"messages", []byte(m.Scope), []byte(m.Order), []byte(m.Step), m.Queue, m.ID, m.Failed, m.Delivered}
		}, seen)
}

// AddUnfetched adds the keys whose answer nobody was there to take, read anew after
// a break.
func (l *Ledger) AddUnfetched(ctx context.Context, keys iter.Seq2[zabor.Key, error]) error {
	return fill(ctx, l, "unfetched", false, keys, "INSERT INTO unfetched VALUES (NULL, ?, ?, ?, ?)", "DELETE FROM unfetched WHERE source = ?",
		func(k zabor.Key) []any { return []any{"unfetched", []byte(k.Scope), []byte(k.Order), []byte(k.Step)} }, nil)
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
