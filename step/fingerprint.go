package step

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"zabor"
	"zabor/card"
	"zabor/provider"
)

// A digest is SHA-256 over length-prefixed parts: no two different lists of
// parts give the same input.
type digest struct{ input []byte }

func newDigest(version string) *digest {
	d := &digest{make([]byte, 0, 256)}
	d.part(version)
	return d
}

func (d *digest) part(s string) {
	d.input = append(binary.BigEndian.AppendUint64(d.input, uint64(len(s))), s...)
}

func (d *digest) sum() string {
	sum := sha256.Sum256(d.input)
	return hex.EncodeToString(sum[:])
}

// canonical is the digest of one value.
func canonical(v any) string { return new(digest).canonical(v) }

// canonical is the same in place of what d was of.
func (d *digest) canonical(v any) string {
	d.input = d.input[:0]
	d.part("zabor value")
	d.value(v)
	return d.sum()
}

// part is one of the named parts that a fingerprint is made of.
type part struct{ name, digest string }

// sum is the fingerprint of parts, in their order.
func sum(version string, parts []part) string {
	d := newDigest(version)
	for _, p := range parts {
		d.part(p.name)
		d.part(p.digest)
	}
	return d.sum()
}

// Fingerprint tells m from another message under the same key; it is the Message
// of m's [zabor.Effect].
func (s *Step) Fingerprint(m Message) string {
	return messageSum(s.besidePart(m, s.messageParts(m.Data)))
}

func messageSum(parts []part) string { return sum("zabor message 2", parts) }

// messageParts are the parts of the fingerprint that tells one message from
// another under the same key. It decides whether a message that meets a done row
// is that row's own, so it must be the same for the same message however often
// it is delivered, put back or retried by PHP, and whatever has been deployed
// meanwhile; and another payee or amount must not pass for the same.
//
// Therefore it is made of the whole message and not of what the templates name:
// a property that a new template names was in the old message already. What is
// no part of it:
//
//   - Laravel's queue options: a second dispatch to another queue is the same
//     request. (They are left out whichever framework sent the message.)
//   - A property that is null or equals its default in Defaults: Laravel leaves
//     out what equals the class's default, and a retry by PHP adds the
//     properties that a class has got since. So defaults can be added to the
//     configuration without changing a fingerprint.
//   - Of a Laravel model, which is on the queue as its class and id: the
//     relations to load again and the collection's class.
//   - What is beside the message, but for a tenant's id: see besidePart.
//   - What the key is made of: it is the same already, byte for byte.
//   - What Volatile names, and properties of which only volatile fields are
//     made.
//
// Numbers, texts and empty lists are compared as in digest.value. Enums count by
// class and case, so that the configuration's enums do not matter.
func (s *Step) messageParts(data map[string]any) []part {
	parts, d := make([]part, 0, len(data)), digest{make([]byte, 0, 256)}
	data = blank(data, s.exempt)
	for _, name := range slices.Sorted(maps.Keys(data)) {
		v := data[name]
		if v == nil || slices.Contains(queueOptions[:], name) {
			continue
		}
		digest := d.canonical(v)
		if card.Field(name) {
			digest = d.canonical(cardCode)
		}
		if digest == s.defaults[name] {
			continue
		}
		parts = append(parts, part{"message." + name, digest})
	}
	return parts
}

// queueOptions are the properties by which Laravel's traits and its worker
// steer a job.
var queueOptions = [...]string{
	"afterCommit", "backoff", "batchId", "chainCatchCallbacks", "chainConnection", "chainQueue", "chained", "connection",
	"debounceOwner", "deduplicator", "delay", "deleteWhenMissingModels", "failOnTimeout", "job", "maxExceptions",
	"messageGroup", "middleware", "queue", "retryUntil", "shouldBeEncrypted", "timeout", "tries", "uniqueFor", "uniqueLockOwner",
}

// What stands in a fingerprint for values that the request has and that do not
// make it another one: the key changes with the generation, and what was
// prepared with each attempt.
const (
	keyPlaceholder      = "zaborproviderkeyplaceholder"
	preparedPlaceholder = "zaborpreparedplaceholder"
)

// requestParts are the parts of the fingerprint of the whole request: where it
// goes, all that is sent but what is volatile, the money, and the row that was
// loaded.
//
// unkept: a request holds a card's number or code. Of these only what may be
// known of them is in a fingerprint, which is kept: a code can be found from its
// digest, and a number nearly so.
func (s *Step) requestParts(e zabor.Effect, vars provider.Vars, row map[string]any) (parts []part, unkept bool, err error) {
	parts = make([]part, 0, 16)
	d := digest{make([]byte, 0, 256)}
	add := func(name string, v any) { parts = append(parts, part{name, d.canonical(v)}) }
	add("provider", e.Provider)
	add("account", e.Account)
	add("amount", e.Amount.Minor)
	add("currency", e.Amount.Currency)
	vars.ProviderKey = keyPlaceholder
	if s.prepare != nil {
		r, err := s.prepare.Render(vars)
		if err != nil {
			return nil, false, refuse("step %s: prepare: %w", s.spec.Name, err)
		}
		r, unkept = r.Open().WithoutCard()
		addRequest("prepare.", r, s.isVolatile, add)
		vars.Prepared = preparedPlaceholder
	}
	r, err := s.request.Render(vars)
	if err != nil {
		return nil, false, refuse("step %s: request: %w", s.spec.Name, err)
	}
	r, holds := r.Open().WithoutCard()
	addRequest("", r, s.isVolatile, add)
	for _, column := range slices.Sorted(maps.Keys(row)) {
		add("load."+column, row[column])
	}
	return parts, unkept || holds, nil
}

func (s *Step) isVolatile(name string) bool { return s.volatile[name] }

// Printed is what tells a request that comes whole from outside from another under
// the same key, as in [zabor.Effect].
type Printed struct {
	Fingerprint string
	Fields      string
	Unkept      bool
}

// Print is what tells a request from another: where it goes, its body, and the header
// fields that count, as [provider.Provider.Counts] has it. Volatile are what may differ
// in two requests that are the same: top-level fields of a body or a query, by their
// names, and header fields, in any case.
func Print(providerName, account string, opened provider.Opened, volatile []string, counts func(field string) bool) Printed {
	r, unkept := opened.WithoutCard() // as in requestParts
	parts := printing{providerName, account, volatile, counts}.parts(r)
	return Printed{Fingerprint: sum(proxied, parts), Fields: fields(parts), Unkept: unkept}
}

const proxied = "zabor proxied 2"

type printing struct {
	provider, account string
	volatile          []string
	counts            func(field string) bool
}

// parts are the parts of the fingerprint of r.
func (p printing) parts(r provider.Request) []part {
	parts, d := make([]part, 0, 16), digest{make([]byte, 0, 256)}
	add := func(name string, v any) { parts = append(parts, part{name, d.canonical(v)}) }
	add("provider", p.provider)
	add("account", p.account)
	may := func(name string) bool { return slices.Contains(p.volatile, name) }
	r = meaning(r)
	form, ok := r.Parts()
	if ok {
		addPath("", r, provider.MultipartType, may, add)
		addParts(form, may, add)
	} else {
		addRequest("", r, may, add)
	}
	for _, field := range r.Header {
		if p.counts(field.Name) && !slices.ContainsFunc(p.volatile, func(name string) bool { return strings.EqualFold(name, field.Name) }) {
			add("header."+field.Name, field.Value)
		}
	}
	return parts
}

// meaning is r without what a library may write in another way: blanks, escapes and the
// order of members in a JSON body, and the case of the content type. Numbers keep their
// digits.
func meaning(r provider.Request) provider.Request {
	if kind, parameters, err := mime.ParseMediaType(r.ContentType); err == nil {
		if charset, ok := parameters["charset"]; ok {
			parameters["charset"] = strings.ToLower(charset)
		}
		if text := mime.FormatMediaType(kind, parameters); text != "" {
			r.ContentType = text
		}
	}
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.UseNumber()
	var document any
	if d.Decode(&document) != nil {
		return r
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r
	}
	// What is not Unicode would be the same sign, whatever it was.
	if body, err := json.Marshal(document); err == nil && !bytes.ContainsRune(body, utf8.RuneError) && !bytes.Contains(body, []byte(`\ufffd`)) {
		r.Body = body
	}
	return r
}

// addParts adds the fields of a form that is made of parts, each with all of its
// values in their order, and without the boundary, which is another each time.
func addParts(form []provider.Part, volatile func(name string) bool, add func(name string, v any)) {
	values := map[string][]string{}
	for _, one := range form {
		values[one.Name] = append(values[one.Name], one.File, one.Type(), string(one.Content))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !volatile(name) {
			add("body."+name, fmt.Sprintf("%q", values[name]))
		}
	}
}

// addRequest adds the parts of r but those that are volatile. They are taken from
// what is sent, not from what it was made of.
func addRequest(prefix string, r provider.Request, volatile func(name string) bool, add func(name string, v any)) {
	addPath(prefix, r, r.ContentType, volatile, add)
	var document map[string]json.RawMessage
	switch {
	case mediaType(r.ContentType) == "application/x-www-form-urlencoded":
		addForm(prefix+"body", string(r.Body), volatile, add)
	case json.Unmarshal(r.Body, &document) == nil:
		for _, name := range slices.Sorted(maps.Keys(document)) {
			if !volatile(name) {
				add(prefix+"body."+name, string(document[name]))
			}
		}
	default:
		add(prefix+"body", string(r.Body))
	}
}

// addPath adds where r goes, and the type of its body.
func addPath(prefix string, r provider.Request, contentType string, volatile func(name string) bool, add func(name string, v any)) {
	path, query, _ := strings.Cut(r.Path, "?")
	add(prefix+"method", r.Method)
	add(prefix+"path", path)
	add(prefix+"type", contentType)
	addForm(prefix+"query", query, volatile, add)
}

func addForm(where, text string, volatile func(name string) bool, add func(name string, v any)) {
	form, err := url.ParseQuery(text)
	if err != nil { // a literal that only the provider understands
		add(where, text)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if !volatile(name) {
			add(where+"."+name, fmt.Sprintf("%q", form[name]))
		}
	}
}

func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return contentType
	}
	return kind
}

// fields is a JSON object of the parts' names and digests that are so short that
// they show a difference and give nothing away. What does not fit into the
// 4,000 bytes that an effect may have is one field, others.
func fields(lists ...[]part) string {
	const most, others = 4000, "others"
	short := func(digest string) string { return digest[:4] }
	named, rest := map[string]string{}, []part{}
	size := len(`{"":"0000"}`) + len(others)
	for _, p := range slices.Concat(lists...) {
		text, _ := json.Marshal(p.name) // a text: it cannot fail
		if size += len(text) + len(`:"0000",`); size > most {
			rest = append(rest, p)
			continue
		}
		named[p.name] = short(p.digest)
	}
	if len(rest) > 0 {
		named[others] = short(sum(others, rest))
	}
	out, _ := json.Marshal(named) // texts: it cannot fail
	return string(out)
}

// value writes v in its canonical form. It is the same for a message however
// often it was delivered and by whom it was queued again:
//
//   - a number and its text are the same, so 7 and "7", and a number of JSON is
//     taken at the 14 significant digits that Redis's cjson leaves of it;
//   - an empty list and an empty object are the same;
//   - the order of an object's properties does not matter;
//   - of a Laravel model only class, id and connection count.
//
// Null, true and false are no texts, and a list is no object. Of a card's number
// the first six digits and the last four count, of its code nothing.
func (d *digest) value(v any) {
	switch v := v.(type) {
	case nil:
		d.part("null")
	case bool:
		d.part("bool")
		d.part(strconv.FormatBool(v))
	case Enum:
		d.part("enum")
		d.part(v.Class)
		d.part(v.Case)
	case []any:
		if len(v) == 0 {
			d.part("empty")
			return
		}
		d.part("list")
		d.part(strconv.Itoa(len(v)))
		for _, entry := range v {
			d.value(entry)
		}
	case map[string]any:
		if len(v) == 0 {
			d.part("empty")
			return
		}
		kind := "map"
		if model, ok := model(v); ok {
			kind, v = "model", model
		}
		d.part(kind)
		d.part(strconv.Itoa(len(v)))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			d.part(name)
			if card.Field(name) {
				d.value(cardCode)
				continue
			}
			d.value(v[name])
		}
	default:
		d.part("text")
		text, isText := v.(string)
		if !isText {
			text = fmt.Sprint(v)
		}
		if card.In(text) {
			d.part(card.Mask(text))
			return
		}
		d.part(scalarText(v))
	}
}

// cardCode stands in a digest for a card's code or number in a field of that
// name: a digest of either gives it away.
const cardCode = "a card's"

// model is a Laravel model without what changes although it is the same one, and
// whether v is a model: as SerializesModels writes it.
func model(v map[string]any) (map[string]any, bool) {
	for _, name := range []string{"class", "id", "relations", "connection"} {
		if _, ok := v[name]; !ok {
			return nil, false
		}
	}
	if _, ok := v["collectionClass"]; len(v) > 5 || len(v) == 5 && !ok {
		return nil, false
	}
	return map[string]any{"class": v["class"], "id": v["id"], "connection": v["connection"]}, true
}

// scalarText is the canonical text of a string or number.
func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return canonicalNumber(strconv.FormatFloat(v, 'g', -1, 64))
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil {
			return v.String() // beyond a float: no cjson ever wrote it
		}
		return canonicalNumber(strconv.FormatFloat(f, 'e', 13, 64))
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// canonicalNumber is the number s as an exact decimal: digits, and a point only
// where something other than zeros stands behind it. Numbers that would be
// longer than 60 digits stay as they are.
func canonicalNumber(s string) string {
	if _, exponent, ok := strings.Cut(strings.ToLower(s), "e"); ok {
		if n, err := strconv.Atoi(exponent); err != nil || n < -40 || n > 40 {
			return s
		}
	}
	value, ok := new(big.Rat).SetString(s)
	if !ok {
		return s
	}
	if text := trimDecimal(value.FloatString(60)); text != "-0" {
		return text
	}
	return "0"
}
