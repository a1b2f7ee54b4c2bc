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

// Sums counts all rows of the installation of that scope, see [zabor.Key.In]. It reads
// every row: ask for it seldom.
func (r Reports) Sums(ctx context.Context, scope string) (Sums, error) {
	where, args := within(scope, "1 = 1", nil)
	query := r.s.dialect.sql("SELECT state, COUNT(*), COUNT(CASE WHEN reference > {none} THEN 1 END), COUNT(CASE WHEN other_reference > {none} THEN 1 END), {now}" +
		" FROM zabor_fences WHERE " + where + " GROUP BY state")
	var sums Sums
	err := r.s.repeat(ctx, func(ctx context.Context) error {
		sums = Sums{Rows: map[zabor.State]int64{}, References: map[zabor.State]int64{}}
		return r.s.query(ctx, func(rows *sql.Rows) error {
			var state zabor.State
			var n, references, others, now int64
			err := rows.Scan(&state, &n, &references, &others, &now)
			sums.Rows[state], sums.ReadAt = n, moment(now)
			sums.Others += others
			if state != zabor.Settled && state != zabor.Pending && state != zabor.Declined {
				state = ""
			}
			sums.References[state] += references
			return err
		}, query, args...)
	})
	if err != nil {
		return Sums{}, fmt.Errorf("count rows: %w", err)
	}
	return sums, nil
}

// Entered counts the rows of the installation of that scope, see [zabor.Key.In], that
// are in a state and were captured at from or later, in buckets of the given width, which
// begin at from. Buckets without any are missing.
func (r Reports) Entered(ctx context.Context, scope string, state zabor.State, from time.Time, width time.Duration) (map[int]int64, error) {
	return r.s.buckets(ctx, scope, enteredQuery, []any{from.UnixMicro(), micros(width), string(state), from.UnixMicro()})
}

const enteredQuery = "SELECT (captured_at - ?) {div} ? AS bucket, COUNT(*) FROM zabor_fences WHERE state = ? AND captured_at >= ?"

// Count counts the notes of a kind as [Reports.Entered] counts rows.
func (h History) Count(ctx context.Context, scope, kind string, from time.Time, width time.Duration) (map[int]int64, error) {
	return h.s.buckets(ctx, scope, notedInQuery, []any{from.UnixMicro(), micros(width), kind, from.UnixMicro()})
}

const notedInQuery = "SELECT (at - ?) {div} ? AS bucket, COUNT(*) FROM zabor_notes WHERE kind = ? AND at >= ?"

const byBucket = " GROUP BY bucket"

func (s *Store) buckets(ctx context.Context, scope, query string, args []any) (map[int]int64, error) {
	var counts map[int]int64
	query, args = within(scope, query, args)
	err := s.repeat(ctx, func(ctx context.Context) error {
		counts = map[int]int64{}
		return s.query(ctx, func(rows *sql.Rows) error {
			var bucket, n int64
			err := rows.Scan(&bucket, &n)
			counts[int(bucket)] = n
			return err
		}, s.dialect.sql(query+byBucket), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("count by time: %w", err)
	}
	return counts, nil
}
