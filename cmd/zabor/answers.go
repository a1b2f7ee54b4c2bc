package main

import (
	"context"
	"time"

	"zabor/sqlstore"
)

// The pace at which stored answers are erased: a page of rows, a rest, and a long one
// behind the last page.
const (
	answersPage  = 500
	answersRest  = time.Second
	answersEvery = time.Hour
)

// eraseAnswers erases stored answers of the installation of that scope when their time is
// over, until ctx ends. Each process goes through the rows for itself, from the front.
func (p *proc) eraseAnswers(ctx context.Context, store *sqlstore.Store, scope string, keep time.Duration) {
	for from := (time.Time{}); ; {
		n, next, err := store.EraseAnswers(ctx, scope, keep, from, answersPage)
		rest := answersRest
		if from = next; from.IsZero() {
			rest = answersEvery
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.log.Warn("cannot erase stored answers; trying again", "error", err)
			rest = time.Minute
		case n > 0:
			p.log.Info("stored answers erased", "number", n, "keep_answers", keep)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}
