package main

import (
	"context"
	"time"

	"zabor"
	"zabor/sqlstore"
)

// The pace at which stored answers are ended: a page of rows, a rest, and a long
// one when all rows have been gone through. It is far below what a database
// feels, and goes through a million rows in about half an hour.
const (
	answersPage  = 500
	answersRest  = time.Second
	answersEvery = time.Hour
)

// endAnswers erases stored answers of the installation of that scope when their time is
// over, until ctx ends. Each process goes through its rows for itself, from the front.
func (p *program) endAnswers(ctx context.Context, store *sqlstore.Store, scope string, keep time.Duration) {
	for after := (zabor.Key{}); ; {
		n, last, err := store.EndAnswers(ctx, scope, keep, after, answersPage)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.log.Warn("cannot end stored answers; trying again", "error", err)
		case n > 0:
			p.log.Info("stored answers ended", "number", n, "keep_answers", keep)
		}
		rest := answersRest
		if after = last; last == (zabor.Key{}) {
			rest = answersEvery
			if err != nil {
				rest = time.Minute
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}
