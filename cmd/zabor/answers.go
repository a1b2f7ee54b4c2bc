package main

import (
	"context"
	"time"

	"zabor/sqlstore"
)

// The pace at which stored answers are erased: a few, a rest, and a long one when there
// are no more.
const (
	answersPage  = 500
	answersRest  = time.Second
	answersEvery = time.Hour
)

// eraseAnswers erases stored answers of the installation of that scope when their time is
// over, until ctx ends.
func (p *program) eraseAnswers(ctx context.Context, store *sqlstore.Store, scope string, keep time.Duration) {
	for {
		n, err := store.EraseAnswers(ctx, scope, keep, answersPage)
		rest := answersEvery
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.log.Warn("cannot erase stored answers; trying again", "error", err)
			rest = time.Minute
		case n > 0:
			p.log.Info("stored answers erased", "number", n, "keep_answers", keep)
			rest = answersRest
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}
