package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"zabor"
	"zabor/card"
)

// The columns of zabor_fences: the key, what is asked for, what comes of it, and
// the times that only the database sets. Beside them there is looked_at, which no
// write of a row touches.
const (
	keyColumns   = "scope, order_id, step"
	askedColumns = "provider, account, generation, provider_key, prepare_key, amount_minor, currency, " +
		"message_fp, fingerprint, fields, lease, absent_after, hold_after, pending_for"
	outcomeColumns = "state, basis, epoch, attempt_id, request, prepared, reference, other_reference, " +
		"answer_status, answer_header, answer_body, reason, hook_due, parked, " +
		"captures, free, allowance, hook_data, hooked, replays, moved_on"
	timeColumns = "captured_at, send_until, replay_until, state_since"
	allColumns  = keyColumns + ", " + askedColumns + ", " + outcomeColumns + ", " + timeColumns
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
		[]byte(r.Provider), accountColumn(r), int64(r.Generation), r.ProviderKey, r.PrepareKey, r.Amount.Minor, r.Amount.Currency,
		[]byte(r.Message), []byte(r.Fingerprint), []byte(r.Fields),
		micros(r.Lease), micros(r.AbsentAfter), micros(r.HoldAfter), micros(r.PendingFor),
	}
}

// placeMark divides the account and the place in their column.
const placeMark = "\x00"

// accountColumn is the account of r, and behind a mark its place, where there is one:
// an account with a mark in it has one behind it too.
func accountColumn(r zabor.Row) []byte {
	if r.Place == "" && !strings.Contains(r.Account, placeMark) {
		return []byte(r.Account)
	}
	return []byte(r.Account + placeMark + r.Place)
}

// readAccount reads what accountColumn has made. A row of an earlier version has no
// place.
func readAccount(column []byte) (account, place string) {
	text := string(column)
	if i := strings.LastIndex(text, placeMark); i >= 0 {
		return text[:i], text[i+len(placeMark):]
	}
	return text, ""
}

// asksTheSame reports whether askedColumns are equal in both.
func asksTheSame(a, b zabor.Row) bool {
	return a.Provider == b.Provider && a.Account == b.Account && a.Place == b.Place && a.Generation == b.Generation &&
		a.ProviderKey == b.ProviderKey && a.PrepareKey == b.PrepareKey && a.Amount == b.Amount &&
		a.Message == b.Message && a.Fingerprint == b.Fingerprint && a.Fields == b.Fields &&
		a.Lease == b.Lease && a.AbsentAfter == b.AbsentAfter && a.HoldAfter == b.HoldAfter && a.PendingFor == b.PendingFor
}

// outcomeArgs binds outcomeColumns.
func (s *Store) outcomeArgs(r zabor.Row) ([]any, error) {
	request := s.keys.Seal(r.Request, place(r.Key, "request"))
	hookData := s.keys.Seal(r.HookData, place(r.Key, "hook_data"))
	status, header, body, err := s.answerArgs(r)
	if err != nil {
		return nil, err
	}
	if sealed := r.Sealed; sealed != nil { // what could not be read stays as it is
		if request == nil {
			request = sealed.Request
		}
		if hookData == nil {
			hookData = sealed.HookData
		}
	}
	hooked := int64(0)
	if r.Hooked {
		hooked = 1
	}
	return []any{
		string(r.State), string(r.Basis), r.Claim.Epoch, r.Claim.ID[:], orNull(request),
		[]byte(r.Prepared), []byte(r.Reference), []byte(r.OtherReference),
		status, header, body, clean(r.Reason, maxReason), r.HookDue, []byte(r.Parked),
		int64(r.Captures), int64(r.Free), int64(r.Allowance), orNull(hookData), hooked, int64(r.Replays), int64(r.MovedOn),
	}, nil
}

// orNull binds b, and NULL where it is nil: a nil slice in an interface is not
// NULL everywhere.
func orNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// scanner is one row of a result.
type scanner interface{ Scan(...any) error }

// scanRow reads what selectRow selects.
func (s *Store) scanRow(rows scanner) (zabor.Row, error) {
	var (
		r                            zabor.Row
		scope, order, step           []byte
		attempt, provider, account   []byte
		message, fingerprint         []byte
		prepared, reference, other   []byte
		parked                       []byte
		request, hookData, body      sql.Null[[]byte]
		fields                       []byte
		hooked                       int64
		replayUntil                  int64
		status                       sql.NullInt64
		header                       sql.NullString
		lease, absent, hold, pending int64
		captured, sendUntil, since   int64
		looked, at                   int64
	)
	err := rows.Scan(&scope, &order, &step,
		&provider, &account, &r.Generation, &r.ProviderKey, &r.PrepareKey, &r.Amount.Minor, &r.Amount.Currency,
		&message, &fingerprint, &fields, &lease, &absent, &hold, &pending,
		&r.State, &r.Basis, &r.Claim.Epoch, &attempt, &request, &prepared, &reference, &other,
		&status, &header, &body, &r.Reason, &r.HookDue, &parked,
		&r.Captures, &r.Free, &r.Allowance, &hookData, &hooked, &r.Replays, &r.MovedOn,
		&captured, &sendUntil, &replayUntil, &since, &looked, &at)
	if err != nil {
		return zabor.Row{}, err
	}
	r.Key = zabor.Key{Scope: string(scope), Order: string(order), Step: string(step)}
	if copy(r.Claim.ID[:], attempt) != len(r.Claim.ID) {
		return zabor.Row{}, fmt.Errorf("%s: the attempt id in the table has %d bytes, not 16: the row was written by something else", r.Key, len(attempt))
	}
	r.Provider = string(provider)
	r.Account, r.Place = readAccount(account)
	r.Message, r.Fingerprint = string(message), string(fingerprint)
	r.Prepared, r.Reference, r.OtherReference = string(prepared), string(reference), string(other)
	r.Parked = string(parked)
	if request.Valid {
		var err error
		if r.Request, err = s.keys.Open(notNil(request.V), place(r.Key, "request")); err != nil {
			stillSealed(&r, err)
			r.Request, r.Sealed.Request = nil, r.Request
		}
	}
	r.Fields, r.Hooked, r.ReplayUntil = string(fields), hooked != 0, moment(replayUntil)
	if hookData.Valid {
		var err error
		if r.HookData, err = s.keys.Open(notNil(hookData.V), place(r.Key, "hook_data")); err != nil {
			stillSealed(&r, err)
			r.HookData, r.Sealed.HookData = nil, r.HookData
		}
	}
	if status.Valid {
		var whole []byte // nil: it has ended
		if body.Valid {
			whole = notNil(body.V)
		}
		if err := s.readAnswer(&r, int(status.Int64), header.String, whole); err != nil {
			return zabor.Row{}, err
		}
	}
	r.Lease, r.AbsentAfter, r.HoldAfter, r.PendingFor = duration(lease), duration(absent), duration(hold), duration(pending)
	r.CapturedAt, r.SendUntil, r.StateSince = moment(captured), moment(sendUntil), moment(since)
	lookingOf(looked).in(&r)
	r.ReadAt = moment(at)
	return r, nil
}

// micros is d in microseconds, rounded up: a lease must not be shorter than
// whoever holds it believes.
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
		{"basis", string(r.Basis), 16, true},
		{"provider", r.Provider, 128, false},
		{"account and place", string(accountColumn(r)), 255, false},
		{"place", r.Place, 64, true},
		{"provider key", r.ProviderKey, 64, true},
		{"prepare key", r.PrepareKey, 64, true},
		{"currency", r.Amount.Currency, 8, true},
		{"fingerprint of the message", r.Message, 255, false},
		{"fingerprint", r.Fingerprint, 255, false},
		{"fields of the fingerprint", r.Fields, 4000, false},
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
	if len(r.HookData) > maxBlob {
		return fmt.Errorf("what hooks bind from the message is too long: %d bytes, at most %d", len(r.HookData), maxBlob)
	}
	if len(r.Request) > maxBlob {
		return fmt.Errorf("frozen request too long: %d bytes, at most %d", len(r.Request), maxBlob)
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
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// clean is text for people as every database takes it, valid UTF-8 without NUL,
// cut to limit bytes between two characters; without card numbers, which what it
// quotes may hold.
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
