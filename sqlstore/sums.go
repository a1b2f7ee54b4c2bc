package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"zabor"
)

// Sums is what the table says in numbers.
type Sums struct {
	Rows map[zabor.State]int64
	// References is how many rows have a reference of the provider's: those that are
	// settled, pending and declined each under its state, all others under none.
	// Others is how many have a second, different one.
	References map[zabor.State]int64
	Others     int64
	ReadAt     time.Time // the database's clock
}

// Successes is how many times a provider has said yes, as far as the rows know: a
// reference of a declined row is that of a no.
func (s Sums) Successes() int64 {
	n := s.Others
	for state, references := range s.References {
		if state != zabor.Declined {
			n += references
		}
	}
	return n
}

// Unique is how many rows say that their side effect was made, or has begun.
func (s Sums) Unique() int64 { return s.References[zabor.Settled] + s.References[zabor.Pending] }

// Sums counts all rows, from indexes alone. It goes through all of their entries:
// ask for it seldom.
func (s *Store) Sums(ctx context.Context) (Sums, error) {
	var sums Sums
	err := s.repeat(ctx, func(ctx context.Context) error {
		sums.Rows = map[zabor.State]int64{}
		return s.query(ctx, func(rows *sql.Rows) error {
			var state zabor.State
			var n, now int64
			err := rows.Scan(&state, &n, &now)
			sums.Rows[state], sums.ReadAt = n, moment(now)
			return err
		}, s.dialect.sql(sumRows))
	})
	if err == nil {
		err = s.repeat(ctx, func(ctx context.Context) error {
			return s.query(ctx, func(rows *sql.Rows) error {
				var all, settled, pending, declined int64
				err := rows.Scan(&all, &settled, &pending, &declined)
				sums.References = map[zabor.State]int64{zabor.Settled: settled, zabor.Pending: pending, zabor.Declined: declined, "": all - settled - pending - declined}
				return err
			}, s.dialect.sql(sumReferences))
		})
	}
	if err == nil {
		err = s.repeat(ctx, func(ctx context.Context) error {
			return s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&sums.Others) }, s.dialect.sql(sumOthers))
		})
	}
	if err != nil {
		return Sums{}, fmt.Errorf("count rows: %w", err)
	}
	return sums, nil
}

const (
	sumRows = "SELECT state, COUNT(*), {now} FROM zabor_fences GROUP BY state"
	// Not by groups: the index has the states in no order, and SQLite would sort all
	// of its entries.
	sumReferences = "SELECT COUNT(*), COUNT(CASE WHEN state = 'settled' THEN 1 END), COUNT(CASE WHEN state = 'pending' THEN 1 END), " +
		"COUNT(CASE WHEN state = 'declined' THEN 1 END) FROM zabor_fences{references} WHERE reference > {none}"
	sumOthers = "SELECT COUNT(*) FROM zabor_fences WHERE other_reference > {none}"
)

// Entered counts the rows that are in a state and entered it at from or later, in
// buckets of the given width, which begin at from. Buckets without any are missing.
func (s *Store) Entered(ctx context.Context, state zabor.State, from time.Time, width time.Duration) (map[int]int64, error) {
	return s.buckets(ctx, enteredQuery, []any{from.UnixMicro(), micros(width), string(state), from.UnixMicro()})
}

const enteredQuery = "SELECT (state_since - ?) {div} ? AS bucket, COUNT(*) FROM zabor_fences WHERE state = ? AND state_since >= ? GROUP BY bucket"

// NotedIn counts the notes of a kind as [Store.Entered] counts rows.
func (s *Store) NotedIn(ctx context.Context, kind string, from time.Time, width time.Duration) (map[int]int64, error) {
	return s.buckets(ctx, notedInQuery, []any{from.UnixMicro(), micros(width), kind, from.UnixMicro()})
}

const notedInQuery = "SELECT (at - ?) {div} ? AS bucket, COUNT(*) FROM zabor_notes WHERE kind = ? AND at >= ? GROUP BY bucket"

func (s *Store) buckets(ctx context.Context, query string, args []any) (map[int]int64, error) {
	var counts map[int]int64
	err := s.repeat(ctx, func(ctx context.Context) error {
		counts = map[int]int64{}
		return s.query(ctx, func(rows *sql.Rows) error {
			var bucket, n int64
			err := rows.Scan(&bucket, &n)
			counts[int(bucket)] = n
			return err
		}, s.dialect.sql(query), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("count by time: %w", err)
	}
	return counts, nil
}
