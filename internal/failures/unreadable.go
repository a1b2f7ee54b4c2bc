package failures

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"zabor/sqlstore"
	"zabor/worker"
)

// unreadables is the table of a queue's undecoded messages.
type unreadables struct {
	store  *sqlstore.Store
	queue  string
	push   func(ctx context.Context, raw []byte) error
	decode func(raw []byte) *worker.Message // with the settings of the queue now
}

func (u *unreadables) Entries(ctx context.Context, mark string) iter.Seq2[Failed, error] {
	const page = 100
	return func(yield func(Failed, error) bool) {
		last := sqlstore.KeptUnreadable{}
		if at, id, marked := strings.Cut(mark, "-"); marked {
			micros, _ := strconv.ParseInt(at, 10, 64)
			last.At, last.ID = time.UnixMicro(micros), id
		}
		for {
			kept, err := u.store.Quarantine().List(ctx, u.queue, last, page)
			if err != nil {
				yield(Failed{}, err)
				return
			}
			for _, k := range kept {
				if last = k; !yield(u.message(k), nil) {
					return
				}
			}
			if len(kept) < page {
				return
			}
		}
	}
}

// shortID is how many digits of an unreadable message's id are shown.
const shortID = 16

// message returns k as the configuration of now reads it: a wrong secret may be right now.
func (u *unreadables) message(k sqlstore.KeptUnreadable) Failed {
	m := &worker.Message{Raw: k.Bytes, Err: fmt.Errorf("%w: %s", worker.ErrUnreadable, k.Sealed)}
	if k.Sealed == "" {
		m = u.decode(k.Bytes)
	}
	m.ID = k.ID
	return Failed{FailedID: k.ID[:shortID], Mark: fmt.Sprintf("%d-%s", k.At.UnixMicro(), k.ID), Kind: Unreadable, At: k.At, Reason: k.Reason, Message: m}
}

func (u *unreadables) Entry(ctx context.Context, id string) (Failed, error) {
	k, err := u.store.Quarantine().Load(ctx, u.queue, id)
	if err != nil {
		return Failed{}, absent(err, sqlstore.ErrNoUnreadable)
	}
	return u.message(k), nil
}

func (u *unreadables) Retry(ctx context.Context, id string) error {
	m, err := u.Entry(ctx, id)
	if err != nil {
		return err
	}
	if err := u.push(ctx, m.Raw); err != nil {
		return err
	}
	if err := u.store.Quarantine().Forget(ctx, u.queue, m.ID); err != nil && !errors.Is(err, sqlstore.ErrNoUnreadable) {
		return fmt.Errorf("%w: %w", worker.ErrBoth, err)
	}
	return nil
}

func (u *unreadables) Forget(ctx context.Context, id string) error {
	m, err := u.Entry(ctx, id)
	if err != nil {
		return err
	}
	return absent(u.store.Quarantine().Forget(ctx, u.queue, m.ID), sqlstore.ErrNoUnreadable)
}
