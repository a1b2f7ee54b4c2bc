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

// A row is one row of zabor_fences, whose primary key alone decides a capture. Columns
// that only an unfinished row needs are NULL or meaningless once due_at is NULL. Beside it
// zabor_references says whose reference is whose; it decides nothing.
const (
	keyColumns = "order_id, scope, step" // in the order of the primary key and of [zabor.Key.Compare]
	// What is asked for: written by a capture.
	askedColumns = "provider, account, address, generation, provider_key, amount_minor, currency, message_fp, request_fp, fields"
	// What comes of it: written by every change. The claim is last: MySQL assigns from left
	// to right, and reads what it has just assigned.
	stateColumns = "state, cause, reason, epoch, prepared, reference, other_reference, hook_due, tries, unproven, attempt_id"
	// Marks stand beside the claim.
	markColumns   = "parked, forwarded"
	answerColumns = "answer_status, answer_header, answer_body"
	// What only an unfinished row needs.
	openColumns = "request, prepare_key, hook_data, hook_done, send_id, replays, lingers, lease, absent_after, hold_after, pending_for"
)

// selectRow reads whole rows, as scanRow scans them.
const selectRow = "SELECT " + keyColumns + ", " + askedColumns + ", " + stateColumns + ", " + markColumns + ", " + answerColumns + ", captured_at, state_since, " +
	openColumns + ", send_until, replay_until, due_at, watcher, watched, silent, {now} AS read_at FROM zabor_fences"

const ofKey = "order_id = ? AND scope = ? AND step = ?"

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
	return []any{[]byte(k.Order), []byte(k.Scope), []byte(k.Step)}
}

// scannedKey is the key whose columns were scanned.
func scannedKey(order, scope, step []byte) zabor.Key {
	return zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}
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
		string(r.State), string(r.Cause), clean(r.Reason, maxReason), r.Claim.Epoch,
		[]byte(r.Prepared), []byte(r.Reference), []byte(r.OtherReference), r.HookDue,
		int64(r.Tries), int64(r.Unproven), r.Claim.ID[:],
	}
}

// markArgs binds markColumns.
func markArgs(r zabor.Row) []any { return []any{[]byte(r.Parked), number(r.Forwarded)} }

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
		orNull(request), r.Open.PrepareKey, orNull(hookData), number(r.Open.HookDone), r.Open.Send[:],
		int64(r.Open.Replays), number(r.Open.Lingers), micros(r.Open.Lease), micros(r.Open.AbsentAfter), micros(r.Open.HoldAfter), micros(r.Open.PendingFor),
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

// scanRow reads a row of selectRow. A [zabor.ErrUnfit] is of that row alone.
func (s *Store) scanRow(rows scanner) (zabor.Row, error) {
	var (
		r                                                 zabor.Row
		scope, order, step                                []byte
		provider, account, message, request, fields       []byte
		attempt, prepared, reference, other, parked       []byte
		forwarded, hookDone, lingers, captured, since, at int64
		frozen, hookData, body                            sql.Null[[]byte]
		send, watcher                                     []byte
		lease, absent, hold, pending, until, replayUntil  int64
		watched, silent                                   int64
		due, status                                       sql.NullInt64
		header                                            sql.NullString
	)
	o := &r.Open
	err := rows.Scan(&order, &scope, &step,
		&provider, &account, &r.Endpoint.Address, &r.Generation, &r.ProviderKey, &r.Amount.Minor, &r.Amount.Currency, &message, &request, &fields,
		&r.State, &r.Cause, &r.Reason, &r.Claim.Epoch, &prepared, &reference, &other, &r.HookDue, &r.Tries, &r.Unproven, &attempt, &parked, &forwarded,
		&status, &header, &body, &captured, &since,
		&frozen, &o.PrepareKey, &hookData, &hookDone, &send, &o.Replays, &lingers, &lease, &absent, &hold, &pending,
		&until, &replayUntil, &due, &watcher, &watched, &silent, &at)
	if err != nil {
		return zabor.Row{}, err
	}
	r.Key = scannedKey(order, scope, step)
	if copy(r.Claim.ID[:], attempt) != len(r.Claim.ID) {
		return zabor.Row{}, fmt.Errorf("%w: %s: the attempt id in the table has %d bytes, not 16: the row was written by another program", zabor.ErrUnfit, r.Key, len(attempt))
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
	if !due.Valid { // it is finished
		r.Open = zabor.Open{}
		return r, nil
	}
	o.HookDone, o.Lingers = hookDone != 0, lingers != 0
	copy(o.Send[:], send)
	copy(o.Watcher[:], watcher)
	o.Lease, o.AbsentAfter, o.HoldAfter, o.PendingFor = duration(lease), duration(absent), duration(hold), duration(pending)
	o.SendUntil, o.ReplayUntil = moment(until), moment(replayUntil)
	o.Watched, o.Silent = duration(watched), duration(silent)
	o.Request, o.Sealed.Request = s.unseal(r.Key, "request", frozen, &o.Sealed)
	o.HookData, o.Sealed.HookData = s.unseal(r.Key, "hook_data", hookData, &o.Sealed)
	return r, nil
}

// unseal decrypts a column, or returns the ciphertext that there is no
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

// validate is a [zabor.ErrUnfit] that names the first part of r that the table would not
// take. The table's own refusal, or a cut by a server that is not strict, would come too
// late.
func validate(r zabor.Row) error {
	if err := bounds(r); err != nil {
		return fmt.Errorf("%w: %w", zabor.ErrUnfit, err)
	}
	return nil
}

func bounds(r zabor.Row) error {
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
