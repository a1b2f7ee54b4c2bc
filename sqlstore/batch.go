package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"zabor"
)

// The writes of many goroutines share a commit: while one commit is under way,
// whoever comes waits, and the next commit takes all that wait by then. There is
// no timer: a lone writer commits at once, by itself.
//
// Sharing is only ever a short cut. Where a batch fails, or it is not known
// whether it was committed, or it hit fewer rows than it should, each of its
// writers does its own write alone, as if there had been no batch, and finds its
// own claim in the row where the batch had written it.

const (
	maxBatch = 128
	// batchLimit is how long a batch may take: one stalled row must not hold up
	// those who share a commit with it past their calls' deadlines.
	batchLimit = time.Second
)

// batched is a write of a row that may share a commit.
type batched struct {
	change change
	turn   chan turn
}

// turn is what a waiting writer is told.
type turn uint8

const (
	committed turn = iota + 1 // your write is in the table
	byOneself                 // do it alone
	lead                      // commit your own, and those who wait
)

// gathering is one line of writers.
type gathering struct {
	mu      sync.Mutex
	leading bool // somebody commits
	waiting []*batched
}

// share commits c together with others that wait. It reports whether c is in the table
// by that; otherwise the caller writes it alone. Call done after that, so that the next
// may commit. A write with a hook or a note shares nothing.
func (s *Store) share(c change, w zabor.Write) (shared bool, done func()) {
	if w.Hook != nil || w.Note != nil {
		return false, func() {}
	}
	op, g := &batched{change: c}, &s.line
	g.mu.Lock()
	if g.leading {
		op.turn = make(chan turn, 1)
		g.waiting = append(g.waiting, op)
		g.mu.Unlock()
		switch <-op.turn {
		case committed:
			return true, func() {}
		case byOneself:
			return false, func() {}
		}
		g.mu.Lock()
	}
	g.leading = true
	ops := g.gather(op)
	g.mu.Unlock()
	if len(ops) == 1 {
		// However long this write takes: a row that somebody else has locked
		// must not hold up the others.
		next := sync.OnceFunc(g.next)
		timer := time.AfterFunc(batchLimit, next)
		return false, func() {
			timer.Stop()
			next()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchLimit)
	defer cancel()
	tell := byOneself
	defer func() { // also where the driver panics: the others wait without a limit
		for _, other := range ops {
			if other != op {
				other.turn <- tell
			}
		}
		g.next()
	}()
	var changes []change
	for _, other := range ops {
		changes = append(changes, other.change)
	}
	if s.dialect.batch(ctx, s, s.merged(changes)) == nil {
		tell = committed
	}
	return tell == committed, func() {}
}

// gather takes a batch out of the line: first and those that wait, one of each key, in
// key order, so that no two batches can lock each other out.
func (g *gathering) gather(first *batched) []*batched {
	ops := []*batched{first}
	keys := map[zabor.Key]bool{first.change.key: true}
	g.waiting = slices.DeleteFunc(g.waiting, func(op *batched) bool {
		if len(ops) == maxBatch || keys[op.change.key] {
			return false
		}
		keys[op.change.key] = true
		ops = append(ops, op)
		return true
	})
	slices.SortFunc(ops, func(a, b *batched) int { return a.change.key.Compare(b.change.key) })
	return ops
}

// next lets the next in line commit.
func (g *gathering) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.leading = false
		return
	}
	op := g.waiting[0]
	g.waiting = g.waiting[1:]
	op.turn <- lead
}

// merged is what writes all of changes: few statements, each of as many rows as the
// database has a form for.
func (s *Store) merged(changes []change) (all []statement) {
	var inserts, references []statement
	var finishes []*ending
	for _, c := range changes {
		switch {
		case c.ending != nil:
			finishes = append(finishes, c.ending)
		case c.first.query == s.text.insert[0]:
			inserts = append(inserts, c.first)
		default:
			all = append(all, c.first)
		}
		for _, r := range c.references {
			references = append(references, r.statement)
		}
	}
	all = append(all, inOne(s.text.insert, inserts)...)
	for len(finishes) > 0 {
		var alike []*ending
		alike, finishes = allLike(finishes)
		for len(alike) > 0 {
			text, n := s.text.finish.most(len(alike))
			all, alike = append(all, finishAll(text, alike[:n])), alike[n:]
		}
	}
	return append(all, inOne(s.text.insertReference, references)...)
}

// inOne puts statements of one row into statements of many.
func inOne(texts forRows, ones []statement) (all []statement) {
	for len(ones) > 0 {
		text, n := texts.most(len(ones))
		m := statement{query: text, rows: n}
		for _, one := range ones[:n] {
			m.args = append(m.args, one.args...)
		}
		all, ones = append(all, m), ones[n:]
	}
	return all
}

// allLike divides finishes into those that can be written with the first, and the rest.
func allLike(finishes []*ending) (alike, rest []*ending) {
	claims := map[string]bool{}
	for _, f := range finishes {
		id := string(f.claim[len(f.claim)-1].([]byte))
		if claims[id] || !f.like(finishes[0]) { // the claim alone tells the rows apart
			rest = append(rest, f)
			continue
		}
		claims[id] = true
		alike = append(alike, f)
	}
	return alike, rest
}

// like reports whether f and g differ in the columns of varies alone.
func (f *ending) like(g *ending) bool {
	for i, column := range finishColumns {
		if varies[column] {
			continue
		}
		if a, ok := f.values[i].([]byte); ok {
			if !bytes.Equal(a, g.values[i].([]byte)) {
				return false
			}
		} else if f.values[i] != g.values[i] {
			return false
		}
	}
	return true
}

// errNoBatch: the driver of a given pool is not pgx itself but something around it.
var errNoBatch = errors.New("the driver sends no batches")

// batchPostgres sends all statements at once. Without a BEGIN they are one transaction that
// commits by itself: a statement that misses must fail.
func batchPostgres(ctx context.Context, s *Store, all []statement) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error {
		pg, ok := driver.(*stdlib.Conn)
		if !ok {
			return errNoBatch
		}
		b := &pgx.Batch{}
		for _, one := range all {
			// A division by zero, where it hits fewer.
			b.Queue(fmt.Sprintf("WITH hit AS (%s RETURNING 1) SELECT 1 / (count(*) / %d) FROM hit", one.query, one.rows), one.args...)
		}
		err := pg.Conn().SendBatch(ctx, b).Close()
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "22012" { // division_by_zero
			return errMissed
		}
		return err
	})
}

// batchTx runs all statements in one transaction. An insert alone is one by itself.
func batchTx(ctx context.Context, s *Store, all []statement) error {
	if len(all) == 1 && strings.HasPrefix(all[0].query, "INSERT INTO zabor_fences") {
		return s.alone(ctx, all[0])
	}
	if err := s.prepareAll(ctx, all); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, one := range all {
		if err := s.run(ctx, tx, one); err != nil {
			return err
		}
	}
	return tx.Commit()
}
