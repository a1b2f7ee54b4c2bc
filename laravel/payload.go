package laravel

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"zabor/internal/php"
	"zabor/worker"
)

// handler is the field job of every payload that carries a serialized command.
const handler = `Illuminate\Queue\CallQueuedHandler@call`

// Decode reads a payload of a Laravel queue as it was before a pop. The
// message's ID is the payload's uuid, else its id, else one made from its
// content. `queue:retry` keeps it; Horizon's Retry makes a new one, and RetryOf is
// the old. Keys decrypt the commands of ShouldBeEncrypted classes.
//
// Err wraps [worker.ErrUnreadable] if raw is no payload; any other Err says why
// only PHP can run this job, and ID and Class are set then.
func Decode(raw []byte, keys []AppKey) *worker.Message {
	m, _ := decode(raw, keys)
	return m
}

// decode also gives the next job of a chain; nil: there is none.
func decode(raw []byte, keys []AppKey) (*worker.Message, *successor) {
	m := &worker.Message{Raw: raw}
	p, err := parse(raw)
	if err != nil {
		m.ID = digest(raw)
		m.Err = fmt.Errorf("%w: %w", worker.ErrUnreadable, err)
		return m, nil
	}
	m.ID, m.RetryOf = p.id(), p.retryOf()
	m.Traceparent, m.Tracestate = p.trace()
	m.Sent, m.Beside = p.sent(), p.beside()
	m.DeliveredBefore = p.attempts > 0 || p.fields["retry_of"] != nil || p.hasSign()
	if job := p.text("job"); job != handler {
		class, _, _ := strings.Cut(job, "@")
		m.Class = strings.TrimPrefix(class, `\`)
		m.Data = properties(p.fields["data"])
		m.Rewritten = p.attempts > 0
		return m, nil
	}
	var next *successor
	m.Class, m.Data, next, m.Err = p.command(keys)
	m.Chained = next != nil
	return m, next
}

// payload is the JSON object that Laravel calls a payload. Names of fields are
// compared exactly, as PHP does and a Go struct would not.
type payload struct {
	fields   map[string]any // numbers are json.Number
	attempts float64
}

func parse(raw []byte) (payload, error) {
	if !utf8.Valid(raw) {
		return payload{}, errors.New("the payload is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var p payload
	if err := d.Decode(&p.fields); err != nil {
		return p, fmt.Errorf("the payload is not a JSON object: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return p, errors.New("something follows the payload's JSON object")
	}
	if p.text("job") == "" {
		return p, errors.New("the payload has no field job")
	}
	switch n := p.fields["attempts"].(type) {
	case json.Number:
		p.attempts, _ = n.Float64()
	case string: // counts, if it is all digits
		u, err := strconv.ParseUint(n, 10, 63)
		if err != nil {
			return p, errNoAttempts
		}
		p.attempts = float64(u)
	default:
		return p, errNoAttempts
	}
	return p, nil
}

var errNoAttempts = errors.New("the payload has no number of attempts")

// text is the field of that name, empty if it is not there or no string.
func (p payload) text(name string) string {
	s, _ := p.fields[name].(string)
	return s
}

// trace is what the application's tracing has put into the payload: that of
// OpenTelemetry's instrumentation of Laravel (open-telemetry/opentelemetry-auto-laravel
// injects W3C's two fields), else that of Sentry's (sentry/sentry-laravel; its form
// has no version, and flags only where it is decided whether to sample).
func (p payload) trace() (parent, state string) {
	if parent = p.text("traceparent"); parent != "" {
		return parent, p.text("tracestate")
	}
	parts := strings.Split(p.text("sentry_trace_parent_data"), "-")
	switch {
	case len(parts) < 2 || len(parts) > 3:
		return "", ""
	case len(parts) == 3 && parts[2] == "0":
		return "00-" + parts[0] + "-" + parts[1] + "-00", ""
	}
	return "00-" + parts[0] + "-" + parts[1] + "-01", ""
}

// ownMembers are the members of a payload that Laravel, Horizon and zabor write.
var ownMembers = [...]string{
	"attempts", "backoff", "createdAt", "data", "deleteWhenMissingModels", "delay", "displayName", "failOnTimeout", "id", "job", "maxExceptions", "maxTries",
	"pushedAt", "retryUntil", "retry_of", "silenced", "tags", "timeout", "timeoutAt", "type", "uuid", signKey,
}

// contextMember has what Laravel's Context had at the dispatch, each value serialized.
const contextMember = "illuminate:log:context"

// beside is the payload's members that are not the framework's own, and the context;
// nil: there is none.
func (p payload) beside() (all map[string]any) {
	for name, v := range p.fields {
		if slices.Contains(ownMembers[:], name) {
			continue
		}
		if name == contextMember {
			name, v = "context", plainContext(v)
		}
		if all == nil {
			all = map[string]any{}
		}
		all[name] = v
	}
	return all
}

// plainContext is a context with its values unserialized. What cannot be read is left out.
func plainContext(context any) map[string]any {
	plain := map[string]any{}
	both, _ := context.(map[string]any)
	for _, kind := range []string{"hidden", "data"} { // of one name, the visible one counts
		values, _ := both[kind].(map[string]any)
		for name, v := range values {
			text, _ := v.(string)
			value, err := php.Unmarshal([]byte(text))
			if err != nil {
				continue
			}
			if one, err := php.Plain(value); err == nil {
				plain[name] = one
			}
		}
	}
	return plain
}

// sent is when the job was to be run first: what Laravel (from 12.11 on) or Horizon says
// of its push, and its delay. Zero: the payload does not say.
func (p payload) sent() time.Time {
	number := func(name string) float64 {
		switch v := p.fields[name].(type) {
		case json.Number:
			n, _ := v.Float64()
			return n
		case string:
			n, _ := strconv.ParseFloat(v, 64)
			return n
		}
		return 0
	}
	at := cmp.Or(number("createdAt"), number("pushedAt"))
	if at == 0 {
		return time.Time{}
	}
	const far = 1e11 // some thousand years
	if delay := number("delay"); delay > 0 {
		at += delay
	}
	if !(at > 0 && at < far) { // nor NaN
		return time.Time{}
	}
	return time.UnixMilli(int64(1000 * at))
}

// signKey is the payload's key that says that a call for the job may have acted.
// PHP keeps keys that it does not know: `queue:retry` sets attempts to 0, and the
// sign stays.
const signKey = "zabor_delivered"

// hasSign reports whether the payload has the sign, with whatever value.
func (p payload) hasSign() bool {
	_, ok := p.fields[signKey]
	return ok
}

// withSign returns the payload to put back for m. It is m.Raw, with the sign behind
// its last member if m.MayHaveActed.
func withSign(m *worker.Message) []byte {
	if !m.MayHaveActed {
		return m.Raw
	}
	if p, err := parse(m.Raw); err != nil || p.hasSign() {
		return m.Raw
	}
	return withMember(m.Raw, `"`+signKey+`":true`)
}

// withMember returns raw, a JSON object with members, with one more at its end.
func withMember(raw []byte, member string) []byte {
	end := bytes.LastIndexByte(raw, '}')
	return slices.Concat(raw[:end], []byte(","+member), raw[end:])
}

func (p payload) id() string { return cmp.Or(p.text("uuid"), p.ownID()) }

// retryOf is the ID of the parked job that this one retries, if that is another than
// its own: Horizon's Retry makes a new uuid, and one without a uuid got one when it
// was parked, see withUUID.
func (p payload) retryOf() string {
	if of := p.text("retry_of"); of != "" {
		return of
	}
	if uuid := p.text("uuid"); len(uuid) == 36 && uuid[14] == '8' { // one of digest's
		if own := p.ownID(); uuid == digest([]byte(own)) {
			return own
		}
	}
	return ""
}

// ownID is the ID of a payload without a uuid.
func (p payload) ownID() string {
	if s := p.text("id"); s != "" {
		return s
	}
	// What a pop leaves as it is: it changes attempts and the order of names.
	rest := map[string]any{"job": p.fields["job"], "data": p.fields["data"]}
	text, err := json.Marshal(rest)
	if err != nil {
		panic(err) // it came from JSON
	}
	return digest(text)
}

// digest makes an id of 36 characters, in the form of a uuid (version 8).
func digest(b []byte) string {
	h := sha256.Sum256(b)
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// command reads the job's class and its properties. With an error the class is
// still the best that is known.
func (p payload) command(keys []AppKey) (class string, data map[string]any, next *successor, err error) {
	envelope, _ := p.fields["data"].(map[string]any)
	name, _ := envelope["commandName"].(string)
	text, _ := envelope["command"].(string)
	name = strings.TrimPrefix(name, `\`)
	if class = name; class == "" {
		class = p.text("displayName")
	}
	refuse := func(format string, args ...any) (string, map[string]any, *successor, error) {
		return class, nil, nil, fmt.Errorf("job %s of class %s was not run: %w", p.id(), class, fmt.Errorf(format, args...))
	}
	if text == "" {
		return refuse("it has no command")
	}
	encrypted := !strings.HasPrefix(text, "O:") // Laravel's own test
	if encrypted {
		if text, err = decrypt(text, keys); err != nil {
			return refuse("%w", err)
		}
	}
	v, err := php.Unmarshal([]byte(text))
	if err != nil {
		return refuse("its command cannot be read: %w", err)
	}
	object, ok := v.(*php.Object)
	if !ok {
		return refuse("its command is no object")
	}
	is := strings.TrimPrefix(object.Class, `\`)
	if name != "" && !strings.EqualFold(name, is) {
		return refuse("its command is a %s; PHP would run that one", is)
	}
	class = carried(object)
	plain, err := php.Plain(object)
	if err != nil {
		return refuse("%w", err)
	}
	data = plain.(map[string]any)
	if why := onlyPHP(is, envelope, data); why != "" {
		return refuse("%s; "+toPHP, why)
	}
	if !empty(data["chained"]) {
		if next, err = p.next(object, encrypted); err != nil {
			return refuse("%w; "+toPHP, err)
		}
	}
	return class, data, next, nil
}

const toPHP = "send this class to a queue that PHP workers take from"

// carried is the class that matters: the command's own, or that of the listener,
// mail, notification or event that the command only carries.
func carried(command *php.Object) string {
	class := strings.TrimPrefix(command.Class, `\`)
	var inner php.Value
	switch class {
	case `Illuminate\Events\CallQueuedListener`:
		inner, _ = command.Prop("class")
	case `Illuminate\Mail\SendQueuedMailable`:
		inner, _ = command.Prop("mailable")
	case `Illuminate\Notifications\SendQueuedNotifications`:
		inner, _ = command.Prop("notification")
	case `Illuminate\Broadcasting\BroadcastEvent`:
		inner, _ = command.Prop("event")
	}
	switch v := inner.(type) {
	case php.String:
		class = strings.TrimPrefix(string(v), `\`)
	case *php.Object:
		class = strings.TrimPrefix(v.Class, `\`)
	}
	return class
}

// onlyPHP says what would go missing if anyone but PHP ran the command; empty:
// nothing that can be seen in it.
func onlyPHP(class string, envelope, data map[string]any) string {
	switch {
	case class == closure:
		return "it is a closure, PHP source text that only PHP can run"
	case !empty(data["batchId"]), !empty(envelope["batchId"]):
		return "it is part of a batch, and only PHP keeps the batch's books"
	case !empty(data["middleware"]):
		return "it has middleware, and only PHP applies that"
	case !empty(data["debounceOwner"]):
		return "it is debounced, and only PHP knows whether a later one has replaced it"
	}
	return ""
}

// empty: absent, null, "" or nothing inside.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// properties makes a string job's data, any JSON, a message's data: an object as
// it is, a list by index, anything else under "data". Laravel's default "" and
// null are no properties.
func properties(data any) map[string]any {
	switch data := data.(type) {
	case map[string]any:
		return data
	case []any:
		m := make(map[string]any, len(data))
		for i, v := range data {
			m[strconv.Itoa(i)] = v
		}
		return m
	}
	if empty(data) {
		return map[string]any{}
	}
	return map[string]any{"data": data}
}
