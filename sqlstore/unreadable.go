package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Unreadable is a message that cannot be decoded, so that it has no key and no
// failure transport would know what to do with it.
type Unreadable struct {
	Queue  string // name in the configuration, at most 255 bytes
	Bytes  []byte // as they were on the queue, up to 512 MiB where the server takes them
	Reason string // cut at 1000 bytes
}

// KeptUnreadable is an [Unreadable] that was saved.
type KeptUnreadable struct {
	Unreadable
	ID string // 64 hexadecimal digits
	At time.Time
	// Sealed is why Bytes cannot be decrypted, and are nil; empty: they are there.
	Sealed string
}

// ErrNoUnreadable says that there is no such entry.
var ErrNoUnreadable = errors.New("no such unreadable message")

// Save commits u. The same bytes of the same queue are one entry while
// it is there, with the reason that was saved first.
func (q Quarantine) Save(ctx context.Context, u Unreadable) error {
	if len(u.Queue) > 255 {
		return fmt.Errorf("save an unreadable message: queue name too long: %d bytes, at most 255", len(u.Queue))
	}
	query := q.s.dialect.sql("INSERT INTO zabor_unreadable (id, queue, bytes, reason, at) VALUES (?, ?, ?, ?, {now})")
	err := q.s.write(ctx, query, u.id(), []byte(u.Queue), q.s.sealedBytes(u), clean(u.Reason, maxReason))
	if err != nil {
		return fmt.Errorf("save an unreadable message of queue %s: %w", u.Queue, err)
	}
	return nil
}

// id is the same for the same bytes of the same queue.
func (u Unreadable) id() []byte {
	h := sha256.New()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(u.Queue)))
	h.Write(n[:])
	h.Write([]byte(u.Queue))
	h.Write(u.Bytes)
	return h.Sum(nil)
}

// List lists a queue's entries, the newest first, from the entry behind
// after on; limit 0 is 100.
func (q Quarantine) List(ctx context.Context, queue string, after KeptUnreadable, limit int) ([]KeptUnreadable, error) {
	where, args, err := unreadableAfter(queue, after, int64(cmp.Or(limit, 100)))
	if err != nil {
		return nil, err
	}
	found, err := q.s.unreadable(ctx, where, args...)
	if err != nil {
		return nil, fmt.Errorf("list the unreadable messages of queue %s: %w", queue, err)
	}
	return found, nil
}

// unreadableAfter walks backwards in an index.
func unreadableAfter(queue string, after KeptUnreadable, limit int64) (where string, args []any, err error) {
	where, args = "queue = ?", []any{[]byte(queue)}
	if after.ID != "" {
		id, err := hex.DecodeString(after.ID)
		if err != nil {
			return "", nil, fmt.Errorf("list unreadable messages after %.70q: %w", after.ID, err)
		}
		where += " AND at <= ? AND (at < ? OR id < ?)"
		at := after.At.UnixMicro()
		args = append(args, at, at, id)
	}
	return where + " ORDER BY at DESC, id DESC LIMIT ?", append(args, limit), nil
}

// Load is the entry of a queue whose id starts with the given digits, at
// least 8 of them, or [ErrNoUnreadable].
func (q Quarantine) Load(ctx context.Context, queue, id string) (KeptUnreadable, error) {
	low, high, ok := idRange(id)
	if !ok {
		return KeptUnreadable{}, ErrNoUnreadable
	}
	found, err := q.s.unreadable(ctx, "queue = ? AND id >= ? AND id <= ? LIMIT 2", []byte(queue), low, high)
	switch {
	case err != nil:
		return KeptUnreadable{}, fmt.Errorf("read unreadable message %s of queue %s: %w", id, queue, err)
	case len(found) == 0:
		return KeptUnreadable{}, ErrNoUnreadable
	case len(found) > 1:
		return KeptUnreadable{}, fmt.Errorf("unreadable message %s of queue %s: several start so; write more digits", id, queue)
	}
	if found[0].Sealed != "" {
		return KeptUnreadable{}, fmt.Errorf("unreadable message %s of queue %s: %s", id, queue, found[0].Sealed)
	}
	return found[0], nil
}

// Forget deletes the entry with that whole id; it is ErrNoUnreadable when
// there is none.
func (q Quarantine) Forget(ctx context.Context, queue, id string) error {
	key, err := hex.DecodeString(id)
	if err != nil {
		return ErrNoUnreadable
	}
	var n int64
	err = q.s.repeat(ctx, func(ctx context.Context) error {
		hit, err := q.s.exec(ctx, q.s.dialect.sql("DELETE FROM zabor_unreadable WHERE queue = ? AND id = ?"), []byte(queue), key)
		n += hit // of all tries: one may have been committed without an answer
		return err
	})
	if err != nil {
		return fmt.Errorf("delete unreadable message %s of queue %s: %w", id, queue, err)
	}
	if n == 0 {
		return ErrNoUnreadable
	}
	return nil
}

const selectUnreadable = "SELECT id, queue, bytes, reason, at FROM zabor_unreadable WHERE "

func (s *Store) unreadable(ctx context.Context, where string, args ...any) ([]KeptUnreadable, error) {
	query := s.dialect.sql(selectUnreadable + where)
	var found []KeptUnreadable
	err := s.repeat(ctx, func(ctx context.Context) error {
		found = nil
		return s.query(ctx, func(rows *sql.Rows) error {
			var u KeptUnreadable
			var id, queue []byte
			var at int64
			if err := rows.Scan(&id, &queue, &u.Bytes, &u.Reason, &at); err != nil {
				return err
			}
			u.ID, u.Queue, u.At = hex.EncodeToString(id), string(queue), moment(at)
			var err error
			if u.Bytes, err = s.keys.Open(u.Bytes, unreadablePlace(u.Queue, id)); err != nil {
				u.Bytes, u.Sealed = nil, err.Error()
			}
			found = append(found, u)
			return nil
		}, query, args...)
	})
	return found, err
}

// idRange is the lowest and the highest id that starts with the given digits.
func idRange(digits string) (low, high []byte, ok bool) {
	if len(digits) < 8 || len(digits) > 2*sha256.Size {
		return nil, nil, false
	}
	text := [2][]byte{}
	for i, fill := range []byte("0f") {
		t := []byte(digits)
		for len(t) < 2*sha256.Size {
			t = append(t, fill)
		}
		b, err := hex.DecodeString(string(t))
		if err != nil {
			return nil, nil, false
		}
		text[i] = b
	}
	return text[0], text[1], true
}
