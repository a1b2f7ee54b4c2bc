package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
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

// batched is one row's write that may share a commit.
type batched struct {
	key   zabor.Key
	query string
	args  []any
	turn  chan turn
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

// lines are those of s: one, or, where a batch is one statement, one for each of
// which batches can be made.
func lines(s *Store) map[string]*gathering {
	if s.dialect.name == "mysql" {
		return map[string]*gathering{s.text.insert: {}, s.text.outcome: {}}
	}
	one := &gathering{}
	return map[string]*gathering{s.text.insert: one, s.text.outcome: one, s.text.swap: one}
}

// share commits op together with others that wait. It reports whether op is in the table
// by that; otherwise the caller writes it alone. done must be called once the
// caller has, so that the next may commit.
func (s *Store) share(op *batched) (shared bool, done func()) {
	g := s.lines[op.query]
	if g == nil {
		return false, func() {}
	}
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
	tell := committed
	if err := s.dialect.batch(ctx, s, ops); err != nil {
		tell = byOneself
	}
	for _, other := range ops {
		if other != op {
			other.turn <- tell
		}
	}
	g.next()
	return tell == committed, func() {}
}

// gather takes a batch out of the line: first and those who wait, one of each
// key, in key order, so that no two batches can lock each other out. Their
// number is a power of two, so that a few prepared statements serve for all.
func (g *gathering) gather(first *batched) []*batched {
	ops := []*batched{first}
	keys := map[zabor.Key]bool{first.key: true}
	for _, op := range g.waiting {
		if len(ops) < maxBatch && !keys[op.key] {
			keys[op.key] = true
			ops = append(ops, op)
		}
	}
	size := 1
	for size*2 <= len(ops) {
		size *= 2
	}
	ops = ops[:size]
	g.waiting = slices.DeleteFunc(g.waiting, func(op *batched) bool { return slices.Contains(ops, op) })
	slices.SortFunc(ops, func(a, b *batched) int { return a.key.Compare(b.key) })
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

// hitAll is the error of a batch that did not hit each of its rows once.
func hitAll(n int64, ops []*batched) error {
	if n != int64(len(ops)) {
		return fmt.Errorf("a batch of %d rows hit %d", len(ops), n)
	}
	return nil
}

// errNoBatch: the driver of a given pool is not pgx itself but something around it.
var errNoBatch = errors.New("the driver sends no batches")

// batchPostgres sends all statements at once. Without a BEGIN they are one
// transaction that commits by itself.
func batchPostgres(ctx context.Context, s *Store, ops []*batched) error {
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
		var b pgx.Batch
		for _, op := range ops {
			b.Queue(op.query, op.args...)
		}
		results := pg.Conn().SendBatch(ctx, &b)
		hit := int64(0)
		for range ops {
			tag, err := results.Exec()
			if err != nil {
				results.Close()
				return err
			}
			hit += tag.RowsAffected()
		}
		if err := results.Close(); err != nil {
			return err
		}
		return hitAll(hit, ops)
	})
}

// batchSQLite runs all statements in one transaction.
func batchSQLite(ctx context.Context, s *Store, ops []*batched) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	hit := int64(0)
	for _, op := range ops {
		st, err := s.statement(ctx, op.query)
		if err != nil {
			return err
		}
		result, err := tx.StmtContext(ctx, st).ExecContext(ctx, op.args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		hit += n
	}
	if err := hitAll(hit, ops); err != nil {
		return err
	}
	return tx.Commit()
}

// batchMySQL writes all rows by one statement, which commits by itself. Inserts
// and outcomes are never in one batch here.
func batchMySQL(ctx context.Context, s *Store, ops []*batched) error {
	many := s.text.many[ops[0].query]
	before, first, after, other := many[0], many[1], many[2], many[3]
	query := before + first + strings.Repeat(other, len(ops)-1) + after
	args := make([]any, 0, len(ops)*len(ops[0].args))
	for _, op := range ops {
		args = append(args, op.args...)
	}
	n, err := s.exec(ctx, query, args...)
	if err != nil {
		return err
	}
	return hitAll(n, ops)
}
