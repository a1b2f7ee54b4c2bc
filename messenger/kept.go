package messenger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"zabor/internal/php"
	"zabor/worker"
)

// Kept is a message that a failure transport holds.
type Kept struct {
	ID string // of the row or of the stream entry
	At time.Time
	Parked
}

var (
	// ErrNotKept says that the failure transport has no such message of this
	// transport.
	ErrNotKept = errors.New("no such failed message")

	// ErrInHand says that a worker of the failure transport's own has the
	// message. It may run it, or may have died: then the message is free again
	// when the redeliver_timeout is over.
	ErrInHand = errors.New("a worker that takes from the failure transport has it")
)

// handling is how long a row that a PHP worker has taken is left to it: the
// redeliver_timeout that Symfony's Doctrine transport has by default.
const handling = time.Hour

// List gives the table's messages, the newest first; not those that a PHP worker
// handles or has handled; see [Failed].
func (t *Table) List(ctx context.Context, before string) iter.Seq2[Kept, error] {
	const page = 100 // a page at a time: no statement is open while the caller works
	return func(yield func(Kept, error) bool) {
		last := int64(math.MaxInt64)
		if before != "" {
			var err error
			if last, err = strconv.ParseInt(before, 10, 64); err != nil {
				yield(Kept{}, fmt.Errorf("the failure transport's table has no id %.40q", before))
				return
			}
		}
		for {
			kept, err := t.rows(ctx, t.db, t.list, t.queue, t.taken(), last, page)
			if err != nil {
				yield(Kept{}, err)
				return
			}
			for _, k := range kept {
				last, _ = strconv.ParseInt(k.ID, 10, 64)
				if !yield(k, nil) {
					return
				}
			}
			if len(kept) < page {
				return
			}
		}
	}
}

// Get is the message of that id, or ErrNotKept.
func (t *Table) Get(ctx context.Context, id string) (Kept, error) { return t.one(ctx, t.db, id) }

// Take deletes the message of that id after push has put it elsewhere. It stays
// when anything fails, and is locked meanwhile, so that of two that take it at the
// same time one finds it gone.
func (t *Table) Take(ctx context.Context, id string, push func(Parked) error) error {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return ErrNotKept
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("failure transport's table: %w", err)
	}
	defer tx.Rollback()
	// An update that changes nothing locks in every database, and first, so that
	// SQLite need not raise a read lock.
	if _, err := tx.ExecContext(ctx, t.lock, t.queue, n); err != nil {
		return fmt.Errorf("lock a row of the failure transport's table: %w", err)
	}
	kept, err := t.one(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := push(kept.Parked); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, t.remove, t.queue, n)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", worker.ErrBoth, err)
	}
	return nil
}

// Remove deletes the message of that id; ErrNotKept: there was none.
func (t *Table) Remove(ctx context.Context, id string) error {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return ErrNotKept
	}
	result, err := t.db.ExecContext(ctx, t.remove, t.queue, n)
	if err != nil {
		return fmt.Errorf("delete from the failure transport's table: %w", err)
	}
	if hit, err := result.RowsAffected(); err == nil && hit == 0 {
		return ErrNotKept
	}
	return nil
}

func (t *Table) one(ctx context.Context, db querier, id string) (Kept, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return Kept{}, ErrNotKept
	}
	kept, err := t.rows(ctx, db, t.get, t.queue, t.taken(), n)
	if err == nil && len(kept) == 0 {
		err = ErrNotKept
	}
	if err != nil {
		return Kept{}, err
	}
	return kept[0], nil
}

// taken is the time before which a row that was taken is free again.
func (t *Table) taken() string { return time.Now().Add(-handling).In(t.zone).Format(time.DateTime) }

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (t *Table) rows(ctx context.Context, db querier, query string, args ...any) ([]Kept, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the failure transport's table (messenger:setup-transports creates it): %w", err)
	}
	defer rows.Close()
	var all []Kept
	for rows.Next() {
		var k Kept
		var at string
		if err := rows.Scan(&k.ID, &k.Body, &k.Headers, &at); err != nil {
			return nil, fmt.Errorf("read the failure transport's table: %w", err)
		}
		at, _, _ = strings.Cut(at, ".")
		k.At, _ = time.ParseInLocation(time.DateTime, at, t.zone)
		all = append(all, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the failure transport's table: %w", err)
	}
	return all, nil
}

// List gives the stream's messages, the newest first, whoever has taken them; see
// [Failed].
func (f *Stream) List(ctx context.Context, before string) iter.Seq2[Kept, error] {
	const page = 100
	return func(yield func(Kept, error) bool) {
		last := "+"
		if before != "" {
			last = "(" + before
		}
		for {
			entries, err := f.Client.XRevRangeN(ctx, f.Config.Stream, last, "-", page).Result()
			if err != nil {
				yield(Kept{}, fmt.Errorf("read the failure transport's stream %s: %w", f.Config.Stream, err))
				return
			}
			for _, e := range entries {
				if last = "(" + e.ID; !yield(keptEntry(e), nil) {
					return
				}
			}
			if len(entries) < page {
				return
			}
		}
	}
}

// keptEntry reads an entry. One that cannot be read has its bytes as the body.
func keptEntry(e redis.XMessage) Kept {
	ms, _, _ := strings.Cut(e.ID, "-")
	at, _ := strconv.ParseInt(ms, 10, 64)
	k := Kept{ID: e.ID, At: time.UnixMilli(at)}
	fields := map[string]string{}
	for name, value := range e.Values {
		fields[name], _ = value.(string)
	}
	raw, read, err := readEntry(fields)
	if err != nil || read == nil {
		k.Body, k.Headers = string(raw), "[]"
		return k
	}
	k.Body, k.Headers, k.Origin = read.body, string(read.headersJSON), read.header(originHeader)
	return k
}

// Get is the message of that id, or ErrNotKept.
func (f *Stream) Get(ctx context.Context, id string) (Kept, error) {
	entries, err := f.Client.XRange(ctx, f.Config.Stream, id, id).Result()
	switch {
	case err != nil && strings.Contains(err.Error(), "Invalid stream ID"):
		return Kept{}, ErrNotKept
	case err != nil:
		return Kept{}, fmt.Errorf("read the failure transport's stream %s: %w", f.Config.Stream, err)
	case len(entries) == 0:
		return Kept{}, ErrNotKept
	}
	return keptEntry(entries[0]), nil
}

// Take removes the message of that id after push has put it elsewhere. It stays
// when push fails. A stream has no locks: two that take it at the same time may
// both push it, see move.
func (f *Stream) Take(ctx context.Context, id string, push func(Parked) error) error {
	kept, err := f.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := push(kept.Parked); err != nil {
		return err
	}
	if err := f.Remove(ctx, id); err != nil && !errors.Is(err, ErrNotKept) {
		return fmt.Errorf("%w: %w", worker.ErrBoth, err)
	}
	return nil
}

// moveKept moves an entry of a failure transport to the end of another stream. It
// answers 1, or 0 if the entry is not there any more, and -1 if a worker has it.
//
//	KEYS[1] the failure transport's stream   KEYS[2] the other stream
//	ARGV[1] its group   ARGV[2] id
//	ARGV[3] idle time after which a worker that has it counts as dead, ms
//	ARGV[4] the new entry's field message
var moveKept = redis.NewScript(`
if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then return 0 end
local p = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if p[1] and p[1][3] < tonumber(ARGV[3]) then return -1 end
redis.call('XADD', KEYS[2], '*', 'message', ARGV[4])
redis.pcall('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
`)

// move moves the message of that id to the end of another stream of the same
// slot, so that of two that move it at the same time one finds it gone. One that a
// worker of PHP has is left to it: ErrInHand.
func (f *Stream) move(ctx context.Context, id, stream string, value []byte) error {
	n, err := moveKept.Run(ctx, f.Client, []string{f.Config.Stream, stream},
		f.Config.Group, id, f.Config.RedeliverTimeout.Milliseconds(), value).Int()
	switch {
	case err != nil:
		return fmt.Errorf("move from the failure transport's stream %s to %s: %w", f.Config.Stream, stream, err)
	case n == -1:
		return fmt.Errorf("%w: group %s of stream %s; it is left to it for %v at most", ErrInHand, f.Config.Group, f.Config.Stream, f.Config.RedeliverTimeout)
	case n == 0:
		return ErrNotKept
	}
	return nil
}

// Remove deletes the message of that id; ErrNotKept: there was none.
func (f *Stream) Remove(ctx context.Context, id string) error {
	if _, err := f.Get(ctx, id); err != nil {
		return err
	}
	pipe := f.Client.TxPipeline()
	pipe.XAck(ctx, f.Config.Stream, f.Config.Group, id) // a PHP worker may have it
	removed := pipe.XDel(ctx, f.Config.Stream, id)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("delete from the failure transport's stream %s: %w", f.Config.Stream, err)
	}
	if removed.Val() == 0 {
		return ErrNotKept
	}
	return nil
}

// FailedMessage is a message of this transport in its failure transport.
type FailedMessage struct {
	Kept
	Reason  string // of its last ErrorDetailsStamp, or the exception's class where it says nothing; empty: there is no such stamp
	Message *worker.Message
}

// Failed gives this transport's messages in its failure transport, the newest
// first. A failure transport may be that of several: a message names its own in
// its SentToFailureTransportStamp, and one that names none belongs to all.
func (s *Source) Failed(ctx context.Context) iter.Seq2[FailedMessage, error] {
	return s.FailedBefore(ctx, "")
}

// FailedBefore is Failed for the messages that are older than the one of that id,
// which need not be there any more; empty: for all.
func (s *Source) FailedBefore(ctx context.Context, id string) iter.Seq2[FailedMessage, error] {
	return func(yield func(FailedMessage, error) bool) {
		if s.failed == nil {
			return
		}
		for k, err := range s.failed.List(ctx, id) {
			if err != nil {
				yield(FailedMessage{}, err)
				return
			}
			if m, ours := s.kept(k); ours && !yield(m, nil) {
				return
			}
		}
	}
}

// FailedMessage is the message of that id, or ErrNotKept.
func (s *Source) FailedMessage(ctx context.Context, id string) (FailedMessage, error) {
	if s.failed == nil {
		return FailedMessage{}, ErrNotKept
	}
	k, err := s.failed.Get(ctx, id)
	if err != nil {
		return FailedMessage{}, err
	}
	m, ours := s.kept(k)
	if !ours {
		return FailedMessage{}, ErrNotKept
	}
	return m, nil
}

// Retry puts the message of that id at the end of its stream, with the body and
// headers that it has, and only then removes it. It is a new entry, and its RetryOf
// is the ID that the message was parked with. Whatever fails or dies in
// between leaves it in both, never in neither. Of two that retry it at the same
// time one gets ErrNotKept; but for a failure transport whose stream is in another
// slot of a cluster: there both may put it back. ErrInHand: nothing was done.
func (s *Source) Retry(ctx context.Context, id string) error {
	return s.requeue(ctx, id, s.cfg.Stream)
}

// MoveOn puts the message of that id at the end of another stream of the same
// connection, as Retry does at that of its own, but without the stamp that says
// that it is in a failure transport, and without zabor's own headers.
func (s *Source) MoveOn(ctx context.Context, id, stream string) error {
	return s.requeue(ctx, id, stream)
}

func (s *Source) requeue(ctx context.Context, id, stream string) error {
	m, err := s.FailedMessage(ctx, id)
	if err != nil {
		return err
	}
	if f := s.besideFailed(stream); f != nil {
		value, err := s.value(m.Parked, stream != s.cfg.Stream)
		if err != nil {
			return fmt.Errorf("not put on stream %s: %w", stream, err)
		}
		return f.move(ctx, m.ID, stream, value)
	}
	return s.failed.Take(ctx, id, func(p Parked) error {
		value, err := s.value(p, stream != s.cfg.Stream)
		if err != nil {
			return fmt.Errorf("not put on stream %s: %w", stream, err)
		}
		return s.push(ctx, stream, value)
	})
}

// besideFailed is the failure transport where it is a stream that one script may
// touch together with the given one; else nil.
func (s *Source) besideFailed(stream string) *Stream {
	f, ok := s.failed.(*Stream)
	if !ok || f.Client != s.client || s.cfg.Cluster && hashed(f.Config.Stream) != hashed(stream) {
		return nil
	}
	return f
}

// Forget removes the message of that id, or is ErrNotKept.
func (s *Source) Forget(ctx context.Context, id string) error {
	if _, err := s.FailedMessage(ctx, id); err != nil {
		return err
	}
	return s.failed.Remove(ctx, id)
}

// Push adds a value to the end of the stream: the field message of an entry.
func (s *Source) Push(ctx context.Context, raw []byte) error {
	return s.push(ctx, s.cfg.Stream, raw)
}

func (s *Source) push(ctx context.Context, stream string, raw []byte) error {
	if err := s.client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"message", raw}}).Err(); err != nil {
		return fmt.Errorf("transport %s: cannot add to stream %s: %w", s.name, stream, err)
	}
	return nil
}

// value is p as the field message of an entry. outside: for those who know
// nothing of the failure transport.
func (s *Source) value(p Parked, outside bool) ([]byte, error) {
	if !utf8.ValidString(p.Body) {
		return nil, unreadable("its body is not UTF-8, and the JSON of a stream entry cannot hold it")
	}
	headers, err := readHeaders([]byte(p.Headers))
	if err != nil {
		return nil, unreadable("its headers: " + err.Error())
	}
	e := &envelope{bodyJSON: quote(p.Body), headersJSON: writeHeaders(headers), body: p.Body, headers: headers}
	if outside {
		e, _ = e.outside(s.secrets)
		e, _ = e.withoutOurs()
	}
	return s.cfg.Serializer.wrap(e.json()), nil
}

// kept reads k, and says whether it is this transport's.
func (s *Source) kept(k Kept) (FailedMessage, bool) {
	m := FailedMessage{Kept: k, Message: &worker.Message{ID: k.ID, Raw: []byte(k.Body)}}
	headers, err := readHeaders(json.RawMessage(k.Headers))
	if err != nil {
		m.Message.Err = unreadable("the headers: " + err.Error())
		return m, true
	}
	e := &envelope{body: k.Body, headers: headers}
	m.Message.Message, m.Message.Err = e.decode()
	m.Message.ID = cmp.Or(s.retryOf(e), m.Message.ID)
	origin, reason := e.failure()
	m.Reason = reason
	return m, origin == "" || origin == s.name
}

// retryOf is the ID of the message of this transport that zabor parked as e; empty:
// e was never parked, or elsewhere.
func (s *Source) retryOf(e *envelope) string {
	origin := e.header(originHeader)
	id, ours := strings.CutPrefix(origin, s.cfg.Stream+" ")
	if !ours || !entryID.MatchString(id) {
		return ""
	}
	return id
}

// failure is the transport that a parked envelope comes from and its last error.
func (e *envelope) failure() (origin, reason string) {
	if e.header(typeHeader) != "" {
		var sent []struct {
			Name string `json:"originalReceiverName"`
		}
		var errs []struct {
			Class   string `json:"exceptionClass"`
			Message string `json:"exceptionMessage"`
		}
		// What is no list of stamps says nothing.
		if json.Unmarshal([]byte(e.header(stampPrefix+sentToFailureStamp)), &sent) == nil && len(sent) > 0 {
			origin = sent[0].Name
		}
		if json.Unmarshal([]byte(e.header(stampPrefix+errorDetailsStamp)), &errs) == nil && len(errs) > 0 {
			last := errs[len(errs)-1]
			reason = cmp.Or(last.Message, last.Class)
		}
		return origin, reason
	}
	d, err := readDocument(e.body)
	if err != nil {
		return "", ""
	}
	property := func(class, name string, last bool) string {
		for _, it := range d.stamps.Items {
			list, ok := php.Deref(it.Value).(*php.Array)
			if it.Key != php.String(class) || !ok || len(list.Items) == 0 {
				continue
			}
			i := 0
			if last {
				i = len(list.Items) - 1
			}
			if o, ok := php.Deref(list.Items[i].Value).(*php.Object); ok {
				v, _ := o.Prop(name)
				text, _ := v.(php.String)
				return string(text)
			}
		}
		return ""
	}
	reason = cmp.Or(property(errorDetailsStamp, "exceptionMessage", true), property(errorDetailsStamp, "exceptionClass", true))
	return property(sentToFailureStamp, "originalReceiverName", false), reason
}
