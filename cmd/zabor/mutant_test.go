package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"zabor"
)

// mutantVariable names a mutant: the program is then one whose fence does not do
// what it must.
const mutantVariable = "PROVE_MUTANT"

var mutants = map[string]func(zabor.Store) zabor.Store{
	"capture-after-call": func(s zabor.Store) zabor.Store { return &lateStore{Store: s, late: map[zabor.Key]late{}} },
	"settle-skipped":     func(s zabor.Store) zabor.Store { return forgetfulStore{s} },
	"epoch-ignored":      func(s zabor.Store) zabor.Store { return rudeStore{s} },
}

// mainMutant is main of the named mutant.
func mainMutant(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(runSeeded(ctx, os.Args[1:], os.Stdout, os.Stderr, mutants[name]))
}

// lateStore writes a capture only with what the call ended in.
type lateStore struct {
	zabor.Store

	mu   sync.Mutex
	late map[zabor.Key]late
}

type late struct {
	row zabor.Row
	w   zabor.Write
}

func (s *lateStore) Insert(ctx context.Context, row zabor.Row, w zabor.Write) (zabor.Row, error) {
	if row.State != zabor.Captured {
		return s.Store.Insert(ctx, row, w)
	}
	if there, err := s.Store.Load(ctx, row.Key); err == nil {
		return there, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late[row.Key] = late{row, w}
	return row, nil
}

func (s *lateStore) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	s.mu.Lock()
	l, ok := s.late[prev.Key]
	delete(s.late, prev.Key)
	s.mu.Unlock()
	if ok && l.row.Claim == prev.Claim {
		there, err := s.Store.Insert(ctx, l.row, l.w)
		if err != nil {
			return err
		}
		if there.Claim != prev.Claim {
			return zabor.ErrStale
		}
	}
	return s.Store.Swap(ctx, prev, next, w)
}

// forgetfulStore saves no success but that of the control orders, without which no
// proof begins.
type forgetfulStore struct{ zabor.Store }

func (s forgetfulStore) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	if next.State == zabor.Settled && next.Scope != "control" {
		return nil
	}
	return s.Store.Swap(ctx, prev, next, w)
}

// rudeStore writes over whatever others have written meanwhile.
type rudeStore struct{ zabor.Store }

func (s rudeStore) Swap(ctx context.Context, prev, next zabor.Row, w zabor.Write) error {
	for {
		now, err := s.Load(ctx, prev.Key)
		if err != nil {
			return err
		}
		next.Claim.Epoch = now.Claim.Epoch + 1
		if err := s.Store.Swap(ctx, now, next, w); err != zabor.ErrStale { //nolint:errorlint // the store's own, unwrapped
			return err
		}
	}
}
