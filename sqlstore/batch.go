package sqlstore

import (
	"context"
	"errors"
	"slices"
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

// errNoBatch: the driver of a given pool is not pgx itself but something around it.
var errNoBatch = errors.New("the driver sends no batches")

// batchPostgres runs all statements in one transaction: sent at once, looked at, and
// committed.
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
		err := sendBatch(ctx, pg.Conn(), ops)
		if err != nil && !pg.Conn().IsClosed() {
			if _, undone := pg.Conn().Exec(context.WithoutCancel(ctx), "ROLLBACK"); undone != nil {
				return errors.Join(err, undone)
			}
		}
		return err
	})
}

func sendBatch(ctx context.Context, conn *pgx.Conn, ops []*batched) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	for _, op := range ops {
		for _, one := range op.change.statements {
			b.Queue(one.query, one.args...)
		}
	}
	results := conn.SendBatch(ctx, b)
	_, err := results.Exec()
	for _, op := range ops {
		for _, one := range op.change.statements {
			tag, execErr := results.Exec()
			switch {
			case execErr != nil:
				err = errors.Join(err, execErr)
			case one.need != anyRows && tag.RowsAffected() != 1 && err == nil:
				err = errMissed
			}
			if execErr != nil {
				results.Close()
				return err
			}
		}
	}
	if closeErr := results.Close(); closeErr != nil || err != nil {
		return errors.Join(err, closeErr)
	}
	_, err = conn.Exec(ctx, "COMMIT")
	return err
}

// batchTx runs all statements in one transaction.
func batchTx(ctx context.Context, s *Store, ops []*batched) error {
	for _, op := range ops {
		if err := s.prepare(ctx, op.change); err != nil {
			return err
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, op := range ops {
		if err := s.runAll(ctx, tx, op.change); err != nil {
			return err
		}
	}
	return tx.Commit()
}
