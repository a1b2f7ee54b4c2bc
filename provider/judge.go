package provider

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
)

// class is what a status says by itself.
type class uint8

const (
	unproven    class = iota // something may have been done
	answered                 // the body decides
	turnedAway               // nothing was done; the same request may be sent later
	misdirected              // wrong address or form; no machine may send it again
)

// classOf is the one table of statuses. What is not in it proves nothing: a 4xx
// may be about an earlier request under the same key, a 5xx may come from
// whoever stands between, after the provider has acted.
func classOf(status int) class {
	switch status {
	case 401, 403, 407, 421, 425, 429:
		return turnedAway
	case 404, 405, 406, 411, 413, 414, 415, 417, 431, 501, 505, 307, 308:
		return misdirected
	}
	if status/100 == 2 {
		return answered
	}
	return unproven
}

// mayRefuse reports whether an answer of this status can be a definite no when
// the profile lists it, or its body. 5xx and 3xx come from others as easily as
// from the provider, 408 and 425 speak of the connection, 409, 423 and 424 of
// another request, 401, 407, 421 and 429 of the caller.
func mayRefuse(status int) bool {
	switch status {
	case 401, 407, 408, 409, 421, 423, 424, 425, 429:
		return false
	}
	return status/100 == 2 || status/100 == 4
}

// word is what an answer's body says by the profile's lists.
type word uint8

const (
	nothing   word = iota // none of the lists is met
	settled               // a final yes
	pending               // begun
	declined              // a no
	malformed             // a no about the request's form
	unbegun               // something is there that has moved nothing
	transient             // nothing was done; later
	earlier               // it is about another request
	unclear               // it proves nothing, whatever else is in it
	lingers               // the same, and it may still be carried out
	ambiguous             // more than one list is met
)

var words = [...]string{
	"nothing that the profile lists", "settled", "pending", "declined", "malformed",
	"that nothing was begun", "that it should be tried later", "that an earlier request was or is executed",
	"something that proves nothing", "that it failed inside the provider, which may still carry it out",
	"more than one of the things that the profile lists",
}

func (w word) String() string { return words[w] }

// saying is what an answer says, and where it has its reference.
type saying struct {
	word
	reference pointer
	named     bool          // by a rule that is about a 409, or about such a status
	wait      time.Duration // 0: it does not say
}

// moved reports whether money moved by what is said, or may still.
func (s saying) moved() bool { return s.word == settled || s.word == pending || s.word == ambiguous }

// says reads an answer by the lists and rules of c. A document that is nil is none; a
// status of 0 makes it a hit of a look-up.
func (c *reader) says(status int, header http.Header, document any) saying {
	for _, r := range c.rules {
		if !r.met(status, header, document) {
			continue
		}
		said := saying{word: r.means, reference: c.reference, wait: r.wait}
		if r.reference != nil {
			said.reference, said.named = r.reference, status == http.StatusConflict || slices.Contains(r.statuses, status)
		}
		return said
	}
	w := nothing
	for _, m := range [...]struct {
		match
		word
	}{{c.settled, settled}, {c.pending, pending}, {c.declined, declined}, {c.malformed, malformed}} {
		if !m.met(document) {
			continue
		}
		if w != nothing {
			return saying{word: ambiguous, reference: c.reference}
		}
		w = m.word
	}
	return saying{word: w, reference: c.reference}
}

// judge is what a whole answer to a call of l for row proves. preparing: it is that to
// the harmless first request of two.
func (p *Provider) judge(l *line, a answer, row zabor.Row, preparing bool) zabor.Outcome {
	document, err := decodeAnswer(a.body)
	said := l.says(a.status, a.header, document)
	status := fmt.Sprintf("the provider answered %d %s", a.status, http.StatusText(a.status))
	no, listed := l.statuses[a.status]
	if _, ours := document.(map[string]any); listed && !ours {
		no, listed = nothing, false // whoever stands between can answer any status
	}
	if !listed && (said.word == declined || said.word == malformed) && mayRefuse(a.status) {
		no = said.word
	}

	var o zabor.Outcome
	switch c := classOf(a.status); {
	case said.word == earlier, said.word == unclear, said.word == lingers:
		o.Lingers = said.word == lingers
		o.Reason = fmt.Sprintf("%s: it says %s%s", status, said, l.status(document))
	case said.word == transient && c != answered:
		o.Verdict = zabor.TurnedAway
		o.Reason = status + ": nothing was done, and it may be tried later"
	case c == answered && err != nil:
		o.Reason = fmt.Sprintf("%s with something that is not one JSON value: %s", status, oneLine(err))
	case c == answered && preparing && no == nothing && said.word != settled && said.word != ambiguous:
		o = l.prepare(document, row)
	case c == answered:
		o = l.read(document, said, row)
	case a.status/100 == 4 && said.word == pending && said.named && l.id(said.reference, document) != "":
		o = zabor.Outcome{Verdict: zabor.Begun, Reference: l.id(said.reference, document), Reason: status + " and named what was made, which is not over"}
	case said.moved():
		o.Reason = fmt.Sprintf("%s, and yet its body says %s", status, said)
	case no != nothing:
		o = l.refusal(no, document, row)
		o.Reason = status + ": " + o.Reason
	case c == turnedAway:
		o.Verdict = zabor.TurnedAway
		o.Unauthorized = a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
		o.Reason = status
	case c == misdirected:
		o.Verdict = zabor.Misdirected
		o.Reason = status + ": address or form of the request is wrong"
	default:
		o.Reason = status + ", which proves nothing"
	}
	if o.Reference != "" {
		if err := l.sameCall(a.header, document, row); err != nil {
			o = zabor.Outcome{Reason: fmt.Sprintf("%s, reference %q, but %s", status, o.Reference, oneLine(err))}
		}
	}
	o.StoredRefusal = o.Verdict == zabor.Refused && l.Key.storesNo()
	o.Pause = a.status/100 == 3
	if o.RetryAfter = max(retryAfter(a.header, time.Now()), p.later.milliseconds(document), said.wait); o.RetryAfter > 0 {
		o.Reason += ", retry after " + o.RetryAfter.String()
	}
	o.Answer = p.keep.of(a, document)
	return o
}

// prepare reads the answer to a first request that has moved nothing.
func (l *line) prepare(document any, row zabor.Row) zabor.Outcome {
	id := l.id(l.prepared, document)
	switch {
	case id == "":
		return zabor.Outcome{Reason: "the first request of two was answered without an id; the second was not sent"}
	case len(id) > maxReference:
		return zabor.Outcome{Reason: fmt.Sprintf("the first request of two was answered with an id of %d bytes, more than can be kept; the second was not sent", len(id))}
	}
	if err := l.sameMoney(document, row.Amount, false); err != nil {
		return zabor.Outcome{Reason: fmt.Sprintf("the first request of two made %q, but %s; the second was not sent", id, oneLine(err))}
	}
	return zabor.Outcome{Verdict: zabor.Prepared, Reference: id}
}

// sameCall compares what an answer repeats of its request with row. What is
// answered again to a first send must repeat enough to be known.
func (l *line) sameCall(header http.Header, document any, row zabor.Row) error {
	if err := l.sameEcho(document, row); err != nil {
		return err
	}
	first := row.Unproven <= 1
	if l.Key.Mark == "" || !first || !strings.EqualFold(header.Get(l.Key.Mark), "true") || l.echoKey == nil && l.echoOrder == nil {
		return nil
	}
	if l.echoKey.scalarIn(document) == "" && l.echoOrder.scalarIn(document) == "" {
		return errors.New("it is an answer to an earlier request under this key, and nothing in it says that this was ours")
	}
	return nil
}

// sameEcho compares what document repeats of the request that made it with row.
func (c *reader) sameEcho(document any, row zabor.Row) error {
	if c.echoKey != nil {
		if got := c.echoKey.scalarIn(document); got != "" && got != row.ProviderKey {
			return errors.New("it is about a request with another key")
		}
	}
	if c.echoOrder != nil {
		if got := c.echoOrder.scalarIn(document); got != "" && got != row.Order {
			return fmt.Errorf("it is about order %.60q", got)
		}
	}
	return nil
}

// read is what one object of the provider's proves about row: the body of a
// 2xx, or a look-up's hit.
func (c *reader) read(document any, said saying, row zabor.Row) zabor.Outcome {
	switch said.word {
	case declined, malformed:
		return c.refusal(said.word, document, row)
	case settled, pending:
	default:
		return zabor.Outcome{Reason: "the answer says " + said.String() + c.status(document)}
	}
	reference := c.id(said.reference, document)
	if c.given {
		reference = row.Prepared
	}
	switch {
	case reference == "":
		return zabor.Outcome{Reason: "the answer says " + said.String() + " and has no reference"}
	case len(reference) > maxReference:
		return zabor.Outcome{Reason: fmt.Sprintf("the answer says %s and has a reference of %d bytes, more than can be kept", said, len(reference))}
	}
	if err := c.sameMoney(document, row.Amount, !c.optional); err != nil {
		return zabor.Outcome{Reason: fmt.Sprintf("the answer says %s, reference %q, but %s", said, reference, oneLine(err))}
	}
	if said.word == pending {
		return zabor.Outcome{Verdict: zabor.Begun, Reference: reference}
	}
	return zabor.Outcome{Verdict: zabor.Done, Reference: reference}
}

// refusal is a no that the profile lists, about money or about form. What is
// wrong in form is seldom stored under the key: it says nothing of earlier sends.
func (c *reader) refusal(no word, document any, row zabor.Row) zabor.Outcome {
	if err := c.sameMoney(document, row.Amount, false); err != nil {
		return zabor.Outcome{Reason: "the answer is a no, but " + oneLine(err)}
	}
	if no == malformed {
		return zabor.Outcome{Verdict: zabor.Malformed, Reason: "the request's form is refused" + c.status(document)}
	}
	return zabor.Outcome{Verdict: zabor.Refused, Reason: "declined" + c.status(document)}
}

// status is what stands where the profile's lists look, for people.
func (c *reader) status(document any) string {
	for _, m := range []match{c.malformed, c.declined, c.pending, c.settled} {
		if s := m.at.scalarIn(document); s != "" && len(m.at) > 0 {
			return fmt.Sprintf(": /%s is %.60q", strings.Join(m.at, "/"), s)
		}
	}
	return ""
}

// sameMoney compares the answer's amount and currency with the row's, as far as
// the row has them and the profile points to them. A demanded one must be there.
func (c *reader) sameMoney(document any, want zabor.Money, demanded bool) error {
	if want.Currency == "" {
		return nil
	}
	if c.currency != nil {
		got := c.currency.scalarIn(document)
		if got == "" && demanded {
			return errors.New("it has no currency")
		}
		if got != "" && !strings.EqualFold(got, want.Currency) {
			return fmt.Errorf("its currency is %q and not %s", got, want.Currency)
		}
	}
	at := c.minor
	if c.major != nil {
		at = c.major
	}
	if at == nil {
		return nil
	}
	text := at.scalarIn(document)
	if text == "" {
		if demanded {
			return errors.New("it has no amount")
		}
		return nil
	}
	if got, err := c.money(text, want.Currency); err != nil || got != want {
		return fmt.Errorf("its amount is %q and not that of %s %s", text, Major(want), want.Currency)
	}
	return nil
}

// milliseconds is how long a number there says; 0: none does.
func (p pointer) milliseconds(document any) time.Duration {
	if p == nil {
		return 0
	}
	n, err := strconv.ParseUint(p.scalarIn(document), 10, 63)
	if err != nil || n == 0 {
		return 0
	}
	return time.Duration(min(max(n, 1000), uint64(longestLater/time.Millisecond))) * time.Millisecond
}

// longestLater is how long an answer can ask to be left alone.
const longestLater = 24 * time.Hour

// retryAfter is how long the answer asks to be left alone, at least a second and
// at most a day; 0 where it does not ask, or not so that it can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	const longest = longestLater
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 1), uint64(longest/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now).Round(time.Second), time.Second), longest)
}
