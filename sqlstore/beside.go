package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"zabor"
)

// Note appends to what is known of k, see [zabor.Store]. A text above 4000 bytes
// is cut. A key that has a scope alone stands for the installation, for what is about
// none of its rows.
func (s *Store) Note(ctx context.Context, k zabor.Key, n zabor.Note) error {
	about := k
	if k.Order == "" && k.Step == "" {
		about.Order, about.Step = "any", "any"
	}
	if err := about.Validate(); err != nil {
		return fmt.Errorf("note on %s: %w", k, err)
	}
	if err := s.write(ctx, s.text.note, noteArgs(k, n)...); err != nil {
		return fmt.Errorf("note on %s: %w", k, err)
	}
	return nil
}

// noteArgs binds the insert of a note. Its id makes a repeat recognisable. It begins
// with this machine's time in nanoseconds: two notes of one process keep their order
// where the database's clock has only milliseconds.
func noteArgs(k zabor.Key, n zabor.Note) []any {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixNano()))
	rand.Read(id[8:])
	return append(append([]any{id[:]}, keyArgs(k)...), n.Epoch, clean(n.Kind, maxKind), []byte(clean(n.By, maxActor)), clean(n.Text, maxNote))
}

// Of lists what was noted on k, oldest first.
func (h History) Of(ctx context.Context, k zabor.Key) ([]zabor.Note, error) {
	query := h.s.dialect.sql(notesQuery)
	var notes []zabor.Note
	err := h.s.repeat(ctx, func(ctx context.Context) error {
		notes = nil
		return h.s.query(ctx, func(rows *sql.Rows) error {
			var n zabor.Note
			var at int64
			var actor []byte
			err := rows.Scan(&n.Epoch, &at, &n.Kind, &actor, &n.Text)
			n.At, n.By = moment(at), string(actor)
			notes = append(notes, n)
			return err
		}, query, keyArgs(k)...)
	})
	if err != nil {
		return nil, fmt.Errorf("read notes on %s: %w", k, err)
	}
	return notes, nil
}

const notesQuery = "SELECT epoch, at, kind, actor, note FROM zabor_notes WHERE " + ofKey + " ORDER BY at, epoch, id"

// NoteOn is a note with the key that it is on.
type NoteOn struct {
	Key zabor.Key
	zabor.Note
}

// Current are the notes of these kinds about rows as they are now, that is of
// their present epoch, in the installation of that scope, see [zabor.Key.In]; oldest
// first. It reads all notes of these kinds: there must be few.
func (h History) Current(ctx context.Context, scope string, kinds ...string) ([]NoteOn, error) {
	query, args := currentNotes(scope, kinds)
	return h.s.notesOn(ctx, query, args)
}

func currentNotes(scope string, kinds []string) (query string, args []any) {
	var parts []string
	for i, kind := range kinds {
		where, whereArgs := within(scope, "kind = ?", []any{kind})
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT %s FROM zabor_notes WHERE %s) n%d", noteColumns, where, i))
		args = append(args, whereArgs...)
	}
	return "SELECT n.* FROM (" + strings.Join(parts, " UNION ALL ") + ") n JOIN zabor_fences f ON f.scope = n.scope AND f.order_id = n.order_id AND f.step = n.step AND f.epoch = n.epoch" +
		" ORDER BY n.at", args
}

// Latest are the notes of these kinds in the installation of that scope, see
// [zabor.Key.In], the newest first, at most limit.
func (h History) Latest(ctx context.Context, scope string, limit int, kinds ...string) ([]NoteOn, error) {
	query, args := latestNotes(scope, int64(limit), kinds)
	return h.s.notesOn(ctx, query, args)
}

func latestNotes(scope string, limit int64, kinds []string) (query string, args []any) {
	var parts []string
	for i, kind := range kinds {
		where, whereArgs := within(scope, "kind = ?", []any{kind})
		parts = append(parts, fmt.Sprintf("SELECT * FROM (SELECT %s FROM zabor_notes WHERE %s ORDER BY at DESC LIMIT ?) n%d", noteColumns, where, i))
		args = append(append(args, whereArgs...), limit)
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY at DESC LIMIT ?", append(args, limit)
}

const noteColumns = keyColumns + ", epoch, at, kind, actor, note"

func (s *Store) notesOn(ctx context.Context, query string, args []any) ([]NoteOn, error) {
	var all []NoteOn
	err := s.repeat(ctx, func(ctx context.Context) error {
		all = nil
		return s.query(ctx, func(rows *sql.Rows) error {
			var scope, order, step, actor []byte
			var n NoteOn
			var at int64
			err := rows.Scan(&order, &scope, &step, &n.Epoch, &at, &n.Kind, &actor, &n.Text)
			n.Key = zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}
			n.At, n.By = moment(at), string(actor)
			all = append(all, n)
			return err
		}, s.dialect.sql(query), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	return all, nil
}

// Keys gives the key of every note of a kind, in no order. It reads all notes.
func (h History) Keys(ctx context.Context, kind string) iter.Seq2[zabor.Key, error] {
	return func(yield func(zabor.Key, error) bool) {
		var stopped error
		err := h.s.query(ctx, func(rows *sql.Rows) error {
			var scope, order, step []byte
			if err := rows.Scan(&order, &scope, &step); err != nil {
				return err
			}
			if !yield(zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}, nil) {
				stopped = errStopped
			}
			return stopped
		}, h.s.dialect.sql("SELECT order_id, scope, step FROM zabor_notes WHERE kind = ?"), kind)
		if err != nil && stopped == nil {
			yield(zabor.Key{}, fmt.Errorf("read notes of kind %s: %w", kind, err))
		}
	}
}

var errStopped = errors.New("no more is wanted")

// Names in the meta table that this package uses itself.
const (
	metaSecret     = "secret"
	metaMinVersion = "min_version"
)

// Secret is the installation's secret, which the provider keys are derived from.
// A *[Problem] says that there is none, or none that can be used.
func (s Setup) Secret(ctx context.Context) ([]byte, error) {
	secret, ok, err := s.s.Meta().Get(ctx, metaSecret)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, &Problem{Found: "the installation's secret is missing", Fix: `run "zabor migrate"`, Err: ErrNotMigrated}
	case len(secret) < zabor.MinSecret:
		return nil, &Problem{
			Found: fmt.Sprintf("the installation's secret has %d bytes, and it must have %d at least", len(secret), zabor.MinSecret),
			Fix:   "restore zabor_meta from a backup: another secret makes other idempotency keys, and a repeat would be a second charge",
		}
	}
	return secret, nil
}

// Get is the value of name, at most 255 bytes, and whether there is one.
func (m Meta) Get(ctx context.Context, name string) (value []byte, ok bool, err error) {
	query := m.s.dialect.sql("SELECT value FROM zabor_meta WHERE name = ?")
	err = m.s.repeat(ctx, func(ctx context.Context) error {
		value, ok = nil, false
		return m.s.query(ctx, func(rows *sql.Rows) error {
			ok = true
			return rows.Scan(&value)
		}, query, []byte(name))
	})
	if err != nil {
		return nil, false, fmt.Errorf("read %q of zabor_meta: %w", name, err)
	}
	return value, ok, nil
}

// All are the values of all names that begin with prefix, which is not empty, by
// name.
func (m Meta) All(ctx context.Context, prefix string) (map[string][]byte, error) {
	query, args := "SELECT name, value FROM zabor_meta WHERE name >= ?", []any{[]byte(prefix)}
	if end := behind(prefix); end != nil {
		query, args = query+" AND name < ?", append(args, end)
	}
	var all map[string][]byte
	err := m.s.repeat(ctx, func(ctx context.Context) error {
		all = map[string][]byte{}
		return m.s.query(ctx, func(rows *sql.Rows) error {
			var name, value []byte
			err := rows.Scan(&name, &value)
			all[string(name)] = value
			return err
		}, m.s.dialect.sql(query), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read %q… of zabor_meta: %w", prefix, err)
	}
	return all, nil
}

// Add gives name a value unless it has one, and returns the one that it has
// then.
func (m Meta) Add(ctx context.Context, name string, value []byte) ([]byte, error) {
	query := m.s.dialect.sql("INSERT INTO zabor_meta (name, value) VALUES (?, ?)")
	if err := m.s.write(ctx, query, []byte(name), notNil(value)); err != nil {
		return nil, fmt.Errorf("write %q of zabor_meta: %w", name, err)
	}
	kept, _, err := m.s.Meta().Get(ctx, name)
	return kept, err
}

// Set gives name a value, whatever it was before.
func (m Meta) Set(ctx context.Context, name string, value []byte) error {
	query := m.s.dialect.sql("INSERT INTO zabor_meta (name, value) VALUES (?, ?) " + m.s.dialect.setMeta)
	if err := m.s.write(ctx, query, []byte(name), notNil(value)); err != nil {
		return fmt.Errorf("write %q of zabor_meta: %w", name, err)
	}
	return nil
}

// Replace deletes the names of old and gives name a value, in one transaction. done is
// false, and nothing was written, if one of old has another value by now.
func (m Meta) Replace(ctx context.Context, old map[string][]byte, name string, value []byte) (done bool, err error) {
	err = m.s.repeat(ctx, func(ctx context.Context) error {
		done = false
		tx, err := m.s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, one := range slices.Sorted(maps.Keys(old)) { // in one order, lest two wait for each other
			result, err := tx.ExecContext(ctx, m.s.dialect.sql("DELETE FROM zabor_meta WHERE name = ? AND value = ?"), []byte(one), notNil(old[one]))
			if err != nil {
				return err
			}
			if n, err := result.RowsAffected(); err != nil || n != 1 {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, m.s.dialect.sql("INSERT INTO zabor_meta (name, value) VALUES (?, ?)"), []byte(name), notNil(value))
		if m.s.dialect.judge(err) == duplicate {
			return nil // another writer was faster
		}
		if err != nil {
			return err
		}
		done = true
		return tx.Commit()
	})
	if err != nil {
		return false, fmt.Errorf("replace %d values of zabor_meta by %q: %w", len(old), name, err)
	}
	return done, nil
}

// notNil is b as an empty value rather than NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
