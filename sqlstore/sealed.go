package sqlstore

import (
	"context"
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
	word, ok, err := s.Meta(ctx, metaSealed)
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
func (s *Store) RememberKey(ctx context.Context) error {
	place := seal.Place{"zabor_meta", metaSealed}
	word, ok, err := s.Meta(ctx, metaSealed)
	if err != nil || !ok && !s.keys.Seals() {
		return err
	}
	now := []byte{}
	if s.keys.Seals() {
		if s.keys.Sealer(word) {
			return nil
		}
		now = s.keys.Seal([]byte("zabor"), place)
	} else if len(word) == 0 {
		return nil
	}
	return s.SetMeta(ctx, metaSealed, now)
}

// place is where a column of a row is sealed: what is in it can be opened there
// and nowhere else.
func place(k zabor.Key, column string) seal.Place {
	return seal.Place{"zabor_fences", k.Scope, k.Order, k.Step, column}
}

// answerArgs binds the columns of r's answer. A sealed one has its headers in
// its body; one that has ended has its status alone.
func (s *Store) answerArgs(r zabor.Row) (status, header, body any, err error) {
	switch {
	case r.Answer != nil:
	case r.Sealed != nil && r.Sealed.Answer != nil:
		return int64(r.Sealed.Status), "", r.Sealed.Answer, nil
	case r.AnswerEnded != 0:
		return int64(r.AnswerEnded), nil, nil, nil
	default:
		return nil, nil, nil, nil
	}
	fields := r.Answer.Header
	if fields == nil {
		fields = []zabor.HeaderField{}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, nil, err
	}
	if !s.keys.Seals() {
		return int64(r.Answer.Status), string(text), notNil(r.Answer.Body), nil
	}
	whole := binary.AppendUvarint(nil, uint64(len(text)))
	whole = append(append(whole, text...), r.Answer.Body...)
	return int64(r.Answer.Status), "", s.keys.Seal(whole, place(r.Key, "answer")), nil
}

// readAnswer puts what answerArgs bound into r.
func (s *Store) readAnswer(r *zabor.Row, status int, header string, body []byte) error {
	if body == nil {
		r.AnswerEnded = status
		return nil
	}
	if seal.Sealed(body) && header == "" {
		whole, err := s.keys.Open(body, place(r.Key, "answer"))
		if err != nil {
			stillSealed(r, err)
			r.Sealed.Answer, r.Sealed.Status = body, status
			return nil
		}
		n, size := binary.Uvarint(whole)
		if size <= 0 || n > uint64(len(whole)-size) {
			return fmt.Errorf("%s: the answer in the table has no headers: the row was written by something else", r.Key)
		}
		header, body = string(whole[size:size+int(n)]), whole[size+int(n):]
	}
	r.Answer = &zabor.Answer{Status: status, Body: body}
	if err := json.Unmarshal([]byte(header), &r.Answer.Header); err != nil {
		return fmt.Errorf("%s: the answer's headers in the table are not JSON: %w", r.Key, err)
	}
	if len(r.Answer.Header) == 0 {
		r.Answer.Header = nil
	}
	return nil
}

// stillSealed notes in r that something of it cannot be opened.
func stillSealed(r *zabor.Row, err error) {
	if r.Sealed == nil {
		r.Sealed = &zabor.Sealed{Why: err.Error()}
	}
}

// sealedBytes is what is kept of an unreadable message.
func (s *Store) sealedBytes(u Unreadable) []byte {
	return s.keys.Seal(notNil(u.Bytes), unreadablePlace(u.Queue, u.id()))
}

func unreadablePlace(queue string, id []byte) seal.Place {
	return seal.Place{"zabor_unreadable", queue, hex.EncodeToString(id)}
}
