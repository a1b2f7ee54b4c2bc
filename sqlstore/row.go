package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"zabor"
	"zabor/card"
)

// A row is kept in up to four tables. zabor_fences has its permanent part, and its
// primary key alone decides a capture. The others hang on it and decide nothing:
// zabor_open has what an unfinished row needs, zabor_answers the provider's answer,
// zabor_references whose reference is whose.
const (
	keyColumns = "scope, order_id, step"
	// What is asked for: written by a capture.
	askedColumns = "provider, account, address, generation, provider_key, amount_minor, currency, message_fp, request_fp, fields"
	// What comes of it: written by every change. They stand last in the table, so that
	// PostgreSQL logs nothing else of a settlement.
	stateColumns = "state, cause, reason, epoch, attempt_id, prepared, reference, other_reference, hook_due, parked, forwarded, tries, unproven"
	timeColumns  = "captured_at, state_since"

	openColumns = "provider, pending, request, prepare_key, hook_data, hook_done, send_id, replays, lease, absent_after, hold_after, pending_for"
	// Set by the database's clock or by a resolver.
	watchColumns = "send_until, replay_until, due_at, watcher, watched, silent"
)

// selectRow reads whole rows, as scanRow scans them.
var selectRow = "SELECT f." + strings.ReplaceAll(strings.Join([]string{keyColumns, askedColumns, stateColumns, timeColumns}, ", "), ", ", ", f.") +
	", o.request, o.prepare_key, o.hook_data, o.hook_done, o.send_id, o.replays, o.lease, o.absent_after, o.hold_after, o.pending_for" +
	", o.send_until, o.replay_until, o.watcher, o.watched, o.silent, a.status, a.header, a.body, {now} AS read_at FROM zabor_fences f" + joins

const (
	joins = " LEFT JOIN zabor_open o ON o.scope = f.scope AND o.order_id = f.order_id AND o.step = f.step" +
		" LEFT JOIN zabor_answers a ON a.scope = f.scope AND a.order_id = f.order_id AND a.step = f.step"
	ofKey = "scope = ? AND order_id = ? AND step = ?"
)

// The longest values, in bytes. A reason that is longer is cut; all else is
// refused before anything is sent.
const (
	maxReason    = 1000
	maxNote      = 4000
	maxKind      = 32
	maxActor     = 128
	maxReference = 1024
	maxBlob      = 4 << 20
)

// keyArgs binds keyColumns, as bytes: no collation and no number may come between.
func keyArgs(k zabor.Key) []any {
	return []any{[]byte(k.Scope), []byte(k.Order), []byte(k.Step)}
}

// askedArgs binds askedColumns.
func askedArgs(r zabor.Row) []any {
	return []any{
		[]byte(r.Provider), []byte(r.Account), r.Endpoint.Address, int64(r.Generation), r.ProviderKey, r.Amount.Minor, r.Amount.Currency,
		[]byte(r.Fingerprint.Message), []byte(r.Fingerprint.Request), []byte(r.Fingerprint.Fields),
	}
}

// asksTheSame reports whether askedColumns are equal in both.
func asksTheSame(a, b zabor.Row) bool {
	return a.Endpoint == b.Endpoint && a.Generation == b.Generation && a.ProviderKey == b.ProviderKey && a.Amount == b.Amount && a.Fingerprint == b.Fingerprint
}

// stateArgs binds stateColumns.
func stateArgs(r zabor.Row) []any {
	return []any{
		string(r.State), string(r.Cause), clean(r.Reason, maxReason), r.Claim.Epoch, r.Claim.ID[:],
		[]byte(r.Prepared), []byte(r.Reference), []byte(r.OtherReference), r.HookDue, []byte(r.Parked), number(r.Forwarded),
		int64(r.Tries), int64(r.Unproven),
	}
}

// openArgs binds openColumns. What could not be decrypted stays as it is.
func (s *Store) openArgs(r zabor.Row) []any {
	request, hookData := r.Open.Sealed.Request, r.Open.Sealed.HookData
	if r.Open.Request != nil {
		request = s.keys.Seal(r.Open.Request, place(r.Key, "request"))
	}
	if r.Open.HookData != nil {
		hookData = s.keys.Seal(r.Open.HookData, place(r.Key, "hook_data"))
	}
	return []any{
		[]byte(r.Provider), number(r.State == zabor.Pending), orNull(request), r.Open.PrepareKey, orNull(hookData), number(r.Open.HookDone), r.Open.Send[:],
		int64(r.Open.Replays), micros(r.Open.Lease), micros(r.Open.AbsentAfter), micros(r.Open.HoldAfter), micros(r.Open.PendingFor),
	}
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// orNull binds b, and NULL for nil: a nil slice in an interface is not NULL
// everywhere.
func orNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// scanner is one row of a result.
type scanner interface{ Scan(...any) error }

// scanRow reads a row of selectRow.
func (s *Store) scanRow(rows scanner) (zabor.Row, error) {
	var (
		r                              zabor.Row
		scope, order, step             []byte
		provider, account              []byte
		message, request, fields       []byte
		attempt, prepared              []byte
		reference, other, parked       []byte
		forwarded, captured, since, at int64
		frozen, hookData, body         sql.Null[[]byte]
		send, watcher                  []byte
		prepareKey                     sql.NullString
		hookDone, replays              sql.NullInt64
		lease, absent, hold, pending   sql.NullInt64
		until, replay, watched, silent sql.NullInt64
		status                         sql.NullInt64
		header                         sql.NullString
	)
	err := rows.Scan(&scope, &order, &step,
		&provider, &account, &r.Endpoint.Address, &r.Generation, &r.ProviderKey, &r.Amount.Minor, &r.Amount.Currency, &message, &request, &fields,
		&r.State, &r.Cause, &r.Reason, &r.Claim.Epoch, &attempt, &prepared, &reference, &other, &r.HookDue, &parked, &forwarded, &r.Tries, &r.Unproven,
		&captured, &since,
		&frozen, &prepareKey, &hookData, &hookDone, &send, &replays, &lease, &absent, &hold, &pending,
		&until, &replay, &watcher, &watched, &silent, &status, &header, &body, &at)
	if err != nil {
		return zabor.Row{}, err
	}
	r.Key = zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}
	if copy(r.Claim.ID[:], attempt) != len(r.Claim.ID) {
		return zabor.Row{}, fmt.Errorf("%s: the attempt id in the table has %d bytes, not 16: the row was written by another program", r.Key, len(attempt))
	}
	r.Provider, r.Account = string(provider), string(account)
	r.Fingerprint = zabor.Fingerprint{Message: string(message), Request: string(request), Fields: string(fields)}
	r.Prepared, r.Reference, r.OtherReference, r.Parked = string(prepared), string(reference), string(other), string(parked)
	r.Forwarded = forwarded != 0
	r.CapturedAt, r.StateSince, r.ReadAt = moment(captured), moment(since), moment(at)
	if status.Valid {
		if r.Answer, err = s.readAnswer(r.Key, int(status.Int64), header.String, body); err != nil {
			return zabor.Row{}, err
		}
	}
	if !lease.Valid {
		return r, nil
	}
	o := &r.Open
	o.PrepareKey, o.HookDone, o.Replays = prepareKey.String, hookDone.Int64 != 0, int(replays.Int64)
	copy(o.Send[:], send)
	copy(o.Watcher[:], watcher)
	o.Lease, o.AbsentAfter, o.HoldAfter, o.PendingFor = duration(lease.Int64), duration(absent.Int64), duration(hold.Int64), duration(pending.Int64)
	o.SendUntil, o.ReplayUntil = moment(until.Int64), moment(replay.Int64)
	o.Watched, o.Silent = duration(watched.Int64), duration(silent.Int64)
	o.Request, o.Sealed.Request = s.unseal(r.Key, "request", frozen, &o.Sealed)
	o.HookData, o.Sealed.HookData = s.unseal(r.Key, "hook_data", hookData, &o.Sealed)
	return r, nil
}

// unseal decrypts a column of zabor_open, or returns the ciphertext that there is no
// key for and notes why.
func (s *Store) unseal(k zabor.Key, column string, b sql.Null[[]byte], why *zabor.Sealed) (plain, sealed []byte) {
	if !b.Valid {
		return nil, nil
	}
	plain, err := s.keys.Open(notNil(b.V), place(k, column))
	if err != nil {
		why.Why = err.Error()
		return nil, b.V
	}
	return plain, nil
}

// micros is d in microseconds, rounded up: a lease must not be shorter than its
// holder believes.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if d > time.Duration(us)*time.Microsecond {
		us++
	}
	return us
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func moment(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// installation is the first part of a scope: what stands before a step's own scope.
func installation(scope string) string {
	first, _, _ := strings.Cut(scope, "/")
	return first
}

// validate names the first part of r that the table would not take. The table's
// own refusal, or a cut by a server that is not strict, would come too late.
func validate(r zabor.Row) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if r.State == "" {
		return errors.New("no state")
	}
	if r.Claim.Epoch < 1 {
		return fmt.Errorf("epoch %d: at least 1", r.Claim.Epoch)
	}
	for _, f := range []struct {
		name, value string
		limit       int
		ascii       bool
	}{
		{"state", string(r.State), 16, true},
		{"cause", string(r.Cause), 16, true},
		{"provider", r.Provider, 128, false},
		{"account", r.Account, 255, false},
		{"address", r.Endpoint.Address, 64, true},
		{"provider key", r.ProviderKey, 64, true},
		{"prepare key", r.Open.PrepareKey, 64, true},
		{"currency", r.Amount.Currency, 8, true},
		{"fingerprint of the message", r.Fingerprint.Message, 255, false},
		{"fingerprint", r.Fingerprint.Request, 255, false},
		{"fields of the fingerprint", r.Fingerprint.Fields, 4000, false},
		{"prepared id", r.Prepared, maxReference, false},
		{"reference", r.Reference, maxReference, false},
		{"other reference", r.OtherReference, maxReference, false},
		{"due hook", r.HookDue, 64, true},
		{"parked message's id", r.Parked, 255, false},
	} {
		if len(f.value) > f.limit {
			return fmt.Errorf("%s too long: %d bytes, at most %d", f.name, len(f.value), f.limit)
		}
		if f.ascii && !printable(f.value) {
			return fmt.Errorf("%s %q: only printable ASCII", f.name, f.value)
		}
	}
	if len(r.Open.HookData) > maxBlob {
		return fmt.Errorf("the values that hooks bind from the message are too long: %d bytes, at most %d", len(r.Open.HookData), maxBlob)
	}
	if len(r.Open.Request) > maxBlob {
		return fmt.Errorf("frozen request too long: %d bytes, at most %d", len(r.Open.Request), maxBlob)
	}
	if a := r.Answer; a != nil {
		size := len(a.Body)
		for _, h := range a.Header {
			size += len(h.Name) + len(h.Value)
		}
		if size > maxBlob {
			return fmt.Errorf("answer too long: %d bytes, at most %d", size, maxBlob)
		}
	}
	return nil
}

func printable(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return c < ' ' || c > '~' })
}

// clean is text for people as every database takes it: valid UTF-8 without NUL,
// without card numbers, cut to limit bytes between two characters.
func clean(text string, limit int) string {
	text = card.Mask(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"))
	if len(text) <= limit {
		return text
	}
	const more = "…"
	end := limit - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
