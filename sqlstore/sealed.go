package sqlstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"zabor"
	"zabor/seal"
)

// Encrypt has the store encrypt what rows keep of requests, messages and answers,
// and what cannot be read, before it is written; nil: nothing. It is called before
// first use. What was written without it stays readable.
func (s *Store) Encrypt(keys *seal.Keys) { s.keys = keys }

// metaSealed is the name in the meta table under which a sealed word shows with
// which key this installation's rows are encrypted; empty: with none any more.
const metaSealed = "sealed"

// checkKeys demands the keys with which this table was written: with others, or
// with none, open calls could not be repeated and answers not be given again, and
// what should be encrypted would be written as it is.
func (s *Store) checkKeys(ctx context.Context, found *problems) error {
	word, ok, err := s.Meta().Get(ctx, metaSealed)
	if err != nil || !ok || len(word) == 0 {
		return err
	}
	if _, err := s.keys.Open(word, seal.Place{"zabor_meta", metaSealed}); err != nil {
		found.add(err, "write that key into encryption_key, alone or behind a comma; to encrypt nothing from now on, write a comma and that key behind it",
			"what the fence's table keeps of requests and answers is encrypted, and not with encryption_key: %v", err)
	}
	return nil
}

// RememberKey notes with which key this installation encrypts from now on, after
// Check has found no problem.
func (s Setup) RememberKey(ctx context.Context) error {
	place := seal.Place{"zabor_meta", metaSealed}
	word, ok, err := s.s.Meta().Get(ctx, metaSealed)
	if err != nil || !ok && !s.s.keys.Seals() {
		return err
	}
	now := []byte{}
	if s.s.keys.Seals() {
		if s.s.keys.Sealer(word) {
			return nil
		}
		now = s.s.keys.Seal([]byte("zabor"), place)
	} else if len(word) == 0 {
		return nil
	}
	return s.s.Meta().Set(ctx, metaSealed, now)
}

// place is where a column of a row is sealed: what is in it can be opened there
// and nowhere else.
func place(k zabor.Key, column string) seal.Place {
	return seal.Place{"zabor_fences", k.Scope, k.Order, k.Step, column}
}

// answerArgs binds answerColumns. A sealed answer has its headers in its body; an erased
// one has its status alone.
func (s *Store) answerArgs(r zabor.Row) ([]any, error) {
	switch a := r.Answer; {
	case a == nil:
		return []any{nil, nil, nil}, nil
	case a.Sealed != nil:
		return []any{int64(a.Status), "", a.Sealed}, nil
	case a.Erased:
		return []any{int64(a.Status), nil, nil}, nil
	}
	fields := r.Answer.Header
	if fields == nil {
		fields = []zabor.HeaderField{}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if !s.keys.Seals() {
		return []any{int64(r.Answer.Status), string(text), notNil(r.Answer.Body)}, nil
	}
	whole := binary.AppendUvarint(nil, uint64(len(text)))
	whole = append(append(whole, text...), r.Answer.Body...)
	return []any{int64(r.Answer.Status), "", s.keys.Seal(whole, place(r.Key, "answer"))}, nil
}

// readAnswer is the answer that answerArgs has bound.
func (s *Store) readAnswer(k zabor.Key, status int, header string, column sql.Null[[]byte]) (*zabor.Answer, error) {
	a := &zabor.Answer{Status: status}
	if !column.Valid {
		a.Erased = true
		return a, nil
	}
	body := notNil(column.V)
	if seal.Sealed(body) && header == "" {
		whole, err := s.keys.Open(body, place(k, "answer"))
		if err != nil {
			a.Sealed, a.Why = body, err.Error()
			return a, nil //nolint:nilerr // the answer says so
		}
		n, size := binary.Uvarint(whole)
		if size <= 0 || n > uint64(len(whole)-size) {
			return nil, fmt.Errorf("%w: %s: the answer in the table has no headers: the row was written by another program", zabor.ErrUnfit, k)
		}
		header, body = string(whole[size:size+int(n)]), whole[size+int(n):]
	}
	a.Body = body
	if err := json.Unmarshal([]byte(header), &a.Header); err != nil {
		return nil, fmt.Errorf("%w: %s: the answer's headers in the table are not JSON: %w", zabor.ErrUnfit, k, err)
	}
	if len(a.Header) == 0 {
		a.Header = nil
	}
	return a, nil
}

// sealedBytes is what is kept of an unreadable message.
func (s *Store) sealedBytes(u Unreadable) []byte {
	return s.keys.Seal(notNil(u.Bytes), unreadablePlace(u.Queue, u.id()))
}

func unreadablePlace(queue string, id []byte) seal.Place {
	return seal.Place{"zabor_unreadable", queue, hex.EncodeToString(id)}
}
