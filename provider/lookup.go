package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"zabor"
)

// newClient makes requests that need no fence, which may share connections. Like
// the calls it asks no environment for a proxy and follows no redirect; the head
// of an answer comes within timeout.
func newClient(d *dialer, timeout time.Duration) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, _, err := d.dial(ctx)
		return c, err
	}
	t := newTransport()
	t.DialContext, t.DialTLSContext = dial, dial
	t.ResponseHeaderTimeout = timeout
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Lookup is a [zabor.Lookup]: it asks the provider about row and moves no money.
// It takes at most the profile's time-out. A pending row is asked about by its
// reference and a prepared one by its id, where the profile has such a request,
// and every other by what its request carried.
//
// Every hit is read by the same pointers and compared with the same amount as
// the answer to a call. That a hit is about this row is the filter's business,
// see [Lookup]. Of several hits:
//
//   - more than one that moved money, or still may (settled and pending, whatever
//     its amount): Several, and the Outcome's reason names them;
//   - one of these: its outcome, however many others were declined;
//   - only declined ones: Refused; only such as were never begun: Absent;
//   - anything that cannot be read beside declined ones: Unproven.
//
// An error says nothing about the row: no connection, a status other than 2xx
// (and 404 where the profile has no list), or an answer that cannot be read.
func (p *Provider) Lookup(ctx context.Context, row zabor.Row) (zabor.Finding, error) {
	found, err := p.find(ctx, row)
	if err != nil {
		return zabor.Finding{}, fmt.Errorf("look up %s at %s: %w", row.Key, p.name, err)
	}
	return found, nil
}

func (p *Provider) find(ctx context.Context, row zabor.Row) (found zabor.Finding, err error) {
	lines, sent, err := p.linesOfRow(row)
	if err != nil {
		return zabor.Finding{Outcome: zabor.Outcome{Reason: oneLine(err)}}, nil
	}
	if sent != nil && lines[0].find == nil {
		return found, fmt.Errorf("the profile has no look-up of %s", cmp.Or(lines[0].Name, "calls"))
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for len(lines) > 0 {
		way := lines[0].wayTo(row)
		alike := func(l *line) bool { return l.wayTo(row).text == way.text }
		if found, err = p.ask(ctx, slices.DeleteFunc(slices.Clone(lines), func(l *line) bool { return !alike(l) }), sent, row); err != nil {
			return found, err
		}
		if found.Several || found.Outcome.Reference != "" {
			break
		}
		lines = slices.DeleteFunc(slices.Clone(lines), alike)
	}
	return found, nil
}

// ask asks about row in the one way that lines have for it. Where it is not known which
// of them row's call was, they must agree.
func (p *Provider) ask(ctx context.Context, lines []*line, sent *Opened, row zabor.Row) (zabor.Finding, error) {
	l := lines[0]
	w := l.wayTo(row)
	if w.path == nil {
		return zabor.Finding{Outcome: zabor.Outcome{Reason: "the provider can only be asked about what it has given an id for"}}, nil
	}
	a, err := p.look(ctx, l, w, sent, row)
	if err != nil {
		return zabor.Finding{}, err
	}
	if a.status == http.StatusNotFound && l.find.items == nil && !w.byID {
		return p.absent(l, sent, row), nil
	}
	if a.status/100 != 2 {
		err := fmt.Errorf("the provider answered %d %s", a.status, http.StatusText(a.status))
		if after := retryAfter(a.header, time.Now()); after > 0 {
			err = &zabor.LaterError{After: after, Err: err}
		}
		return zabor.Finding{}, err
	}
	document, err := decodeAnswer(a.body)
	if err != nil {
		return zabor.Finding{}, fmt.Errorf("the answer is not one JSON value: %w", err)
	}
	found, err := p.findIn(l, w, sent, document, row)
	for _, other := range lines[1:] {
		again, otherErr := p.findIn(other, other.wayTo(row), sent, document, row)
		if (err == nil) != (otherErr == nil) || again.Absent != found.Absent || again.Several != found.Several ||
			again.Outcome.Verdict != found.Outcome.Verdict || again.Outcome.Reference != found.Outcome.Reference {
			return zabor.Finding{Outcome: zabor.Outcome{Reason: oneLine(errNotKept)}}, nil
		}
	}
	return found, err
}

// linesOfRow are the line about row's call, and its request. Where it is not kept they
// are all that row could be looked up by, and there is at least one.
func (p *Provider) linesOfRow(row zabor.Row) (lines []*line, sent *Opened, err error) {
	if row.Open.Request != nil {
		r, err := Thaw(row.Open.Request)
		if err != nil {
			return nil, nil, err
		}
		opened := r.Open()
		l, err := p.lineFor(opened)
		return []*line{l}, &opened, err
	}
	for _, l := range p.lines {
		switch {
		case l.path == nil && l.find == nil:
			return nil, nil, errors.New("the profile has no look-up")
		case l.path == nil:
			return p.lines, nil, nil
		case l.find == nil || !strings.HasPrefix(row.Reference, l.prefix) && row.Reference != "":
		case row.State == zabor.Pending && !l.waits():
		default:
			if w := l.wayTo(row); w.path != nil && !names(w.text, "target") {
				lines = append(lines, l)
			}
		}
	}
	if len(lines) == 0 {
		return nil, nil, errNotKept
	}
	return lines, nil, nil
}

// waits reports whether what a line makes may be pending.
func (l *line) waits() bool {
	return len(l.pending.values) > 0 || slices.ContainsFunc(l.rules, func(r rule) bool { return r.means == pending })
}

var errNotKept = errors.New("the request was not kept, so that it is not known which call it was")

// look asks about row as the way says, for whom the request was made.
func (p *Provider) look(ctx context.Context, l *line, w way, sent *Opened, row zabor.Row) (answer, error) {
	vars := Vars{
		Order: row.Order, Step: row.Step, Scope: row.Scope, ProviderKey: row.ProviderKey,
		Prepared: row.Prepared, Reference: row.Reference, Money: row.Amount, Units: l.units,
	}
	header := l.find.header.Clone()
	if sent != nil {
		vars.Target = l.targetOf(*sent)
		for _, field := range p.asWhom(l, *sent) {
			header.Add(field.Name, field.Value)
		}
	}
	r, err := w.path.Render(vars)
	if err != nil {
		return answer{}, err
	}
	if r, err = p.signed(r); err != nil {
		return answer{}, err
	}
	req, err := p.newRequest(ctx, r, header)
	if err != nil {
		return answer{}, err
	}
	resp, err := p.lookups.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp)
	if err == nil && a.status == http.StatusUnauthorized {
		p.forgetToken()
	}
	return a, err
}

// asWhom are the header fields of a request that say for whom it was made.
func (p *Provider) asWhom(l *line, sent Opened) (fields []zabor.HeaderField) {
	for _, field := range sent.Header {
		if p.whom == nil && !aboutBody(field.Name) && !strings.EqualFold(field.Name, l.Key.Header) ||
			slices.ContainsFunc(p.whom, func(name string) bool { return strings.EqualFold(name, field.Name) }) {
			if !p.Sets(field.Name) {
				fields = append(fields, field)
			}
		}
	}
	return fields
}

// aboutBody reports whether a header field is about a body, or about the wish for one.
func aboutBody(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Accept") || strings.HasPrefix(name, "If-") || name == "Prefer"
}

// targetOf is what a request of l acts on; empty: it does not say.
func (l *line) targetOf(r Opened) string {
	if l.target != nil {
		return l.target.id(r.values())
	}
	path, _, _ := strings.Cut(r.Path, "?")
	segments := strings.Split(path[1:], "/")
	if i := slices.Index(l.path, anything); i >= 0 && i < len(segments) {
		plain, err := url.PathUnescape(segments[i])
		if err == nil {
			return plain
		}
	}
	return ""
}

// finder is a [Lookup] that has been checked.
type finder struct {
	header      http.Header
	byCarried   *Template // Path; nil: none
	getPrepared *Template // nil: none
	getPending  *Template // nil: none
	getTarget   *Template // nil: none
	byKey       bool      // Path filters by {{provider_key}}
	byOrder     bool      // Path filters by {{order}}
	byKeyAt     bool      // Path filters by {{order}} alone: a hit's key says whether it is the row's
	carried     pointer   // nil: nothing must be in the request
	items       pointer
	elsewhere   pointer // nil: nothing in a request hides what it makes
	more        pointer // nil: nothing says that there is more
	match       pointer // nil: every hit is about the row
	made        pointer
	full        int
	as          string
}

// way is one request of a look-up, and how what it gets is read.
type way struct {
	path *Template // nil: there is none
	text string    // of the request
	byID bool      // it gets one object that the provider itself has named
	*reader
}

// wayTo is how row is looked up.
func (l *line) wayTo(row zabor.Row) way {
	switch f := l.find; {
	case row.State == zabor.Pending && row.Reference != "" && f.getPending != nil:
		return way{f.getPending, l.Lookup.text(l.Lookup.Reference), true, l.object}
	case row.Prepared != "" && f.getPrepared != nil:
		return way{f.getPrepared, l.Lookup.text(l.Lookup.Prepared), true, l.reader}
	case f.getTarget != nil:
		return way{f.getTarget, l.Lookup.text(l.Lookup.Target), true, l.reader}
	default:
		return way{f.byCarried, l.Lookup.text(l.Lookup.Path), false, l.hit}
	}
}

// text is a request of u, to compare it with others.
func (u *Lookup) text(path string) string {
	if u.Body == nil && u.Form == nil {
		return path
	}
	return fmt.Sprint(path, u.Body, u.Form)
}

func (l *line) compileLookup() error {
	u := l.Lookup
	if u == nil {
		return nil
	}
	if u.Method != "" && u.Method != http.MethodGet {
		return fmt.Errorf("lookup.method %q: only GET is sure not to move money", u.Method)
	}
	if u.AbsentAfter <= 0 {
		return fmt.Errorf("lookup.absent_after %s: above zero; how late may a call still be executed, and how late is it seen by the look-up?", u.AbsentAfter)
	}
	f := &finder{byKey: names(u.Path, "provider_key"), byOrder: names(u.Path, "order"), full: u.Full, as: u.As}
	f.byKeyAt = f.byOrder && !f.byKey && u.Match == ""
	var err error
	if f.header, err = compileFields(u.Headers); err != nil {
		return fmt.Errorf("lookup.headers: %w", err)
	}
	for _, at := range []struct {
		name, text string
		to         *pointer
	}{{"items", u.Items, &f.items}, {"carried", u.Carried, &f.carried}, {"elsewhere", u.Elsewhere, &f.elsewhere}, {"more", u.More, &f.more}, {"match", u.Match, &f.match}, {"made", u.Made, &f.made}} {
		if *at.to, err = optional("lookup."+at.name, at.text); err != nil {
			return err
		}
	}
	l.hit, l.object = l.reader, l.reader
	for _, read := range []struct {
		name string
		from *Reading
		to   **reader
	}{{"hit", u.Hit, &l.hit}, {"object", u.Object, &l.object}} {
		if read.from == nil {
			continue
		}
		if *read.to, err = compileReader(*read.from, false); err != nil {
			return fmt.Errorf("lookup.%s: %w", read.name, err)
		}
	}
	requests := 0
	for _, t := range []struct {
		name, text string
		to         **Template
	}{{"lookup", u.Path, &f.byCarried}, {"lookup.prepared", u.Prepared, &f.getPrepared}, {"lookup.reference", u.Reference, &f.getPending}, {"lookup.target", u.Target, &f.getTarget}} {
		if t.text == "" {
			continue
		}
		requests++
		if *t.to, err = newLookupTemplate(t.text, u.Body, u.Form); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	switch {
	case requests == 0:
		return errors.New("lookup.path: empty; write the request that finds a call, such as /payments?reference={{provider_key}}")
	case f.byOrder && !f.byKey && u.Match == "" && l.hit.echoKey == nil:
		return errors.New("lookup.path: by {{order}} alone it also finds what another part of the step, or a try before, has made; look up by {{provider_key}}, or say with echo.key where the provider repeats it")
	case (u.Body != nil || u.Form != nil) && requests > 1, u.Body != nil && u.Form != nil:
		return errors.New("lookup.body: with form or without, it goes with one of path, prepared, reference and target")
	case u.Path != "" && u.Target != "":
		return errors.New("lookup.target: it takes the place of path; keep one")
	case u.Match == "" && (u.Made != "" || u.Full != 0), u.Match != "" && (u.Items == "" || u.Made == "" || u.Full < 1 || u.Carried == ""):
		return errors.New("lookup.match: it goes with items, carried, made and full")
	}
	l.find = f
	return nil
}

// absent is what a look-up by what the request carried says when it finds
// nothing.
func (p *Provider) absent(l *line, sent *Opened, row zabor.Row) zabor.Finding {
	if err := l.findable(sent, row); err != nil {
		return zabor.Finding{Outcome: zabor.Outcome{Reason: "the look-up finds nothing, which proves nothing: " + oneLine(err)}}
	}
	return zabor.Finding{Absent: true}
}

// findable is why row's request could not be found if it was executed; nil: it
// could.
func (l *line) findable(sent *Opened, row zabor.Row) error {
	f := l.find
	travels := l.Key.Field != "" || l.Key.Header != "" // so that the provider knows the key of every request
	byOrder := f.carried == nil && f.byOrder && !f.byKey
	byKey := f.carried == nil && f.byKey && !travels
	if f.carried == nil && !byOrder && !byKey && l.path == nil && len(l.Lookup.Paths) == 0 && f.elsewhere == nil {
		return nil
	}
	if sent == nil {
		return errors.New("the request was not kept, so that nobody knows whether it could be found")
	}
	switch {
	case f.carried != nil && !slices.Equal(f.carried, pointer{l.Key.Field}) && f.carried.scalarIn(sent.values()) != row.ProviderKey:
		return fmt.Errorf("the request did not carry {{provider_key}} as %s", strings.Join(f.carried, "."))
	case byOrder && !sent.holds(row.Order):
		return errors.New("the request did not carry {{order}}")
	case byKey && !sent.holds(row.ProviderKey):
		return errors.New("the request did not carry {{provider_key}}")
	case f.elsewhere != nil && hasSome(f.elsewhere, sent.values()):
		return fmt.Errorf("what a request with %s makes may be where it does not look", strings.Join(f.elsewhere, "."))
	}
	if path, _, _ := strings.Cut(sent.Path, "?"); len(l.Lookup.Paths) > 0 && !slices.Contains(l.Lookup.Paths, path) {
		return fmt.Errorf("it does not know what %s makes", path)
	}
	return nil
}

// findIn reads the hits of a look-up's answer.
func (p *Provider) findIn(l *line, w way, sent *Opened, document any, row zabor.Row) (zabor.Finding, error) {
	f, byID := l.find, w.byID
	hits := []any{document}
	if f.items != nil && !byID {
		list, _ := f.items.in(document)
		var ok bool
		if hits, ok = list.([]any); !ok {
			return zabor.Finding{}, errors.New("the answer has no list where the profile's lookuf.items points to")
		}
	}
	further := f.more != nil && !byID && hasSome(f.more, document)
	if f.match != nil && !byID {
		reaches := f.reaches(hits, further, row.CapturedAt)
		further = further && !reaches
		hits = slices.DeleteFunc(slices.Clone(hits), func(hit any) bool { return f.match.scalarIn(hit) != row.ProviderKey })
		if len(hits) == 0 && !reaches {
			return zabor.Finding{Outcome: zabor.Outcome{Reason: "it is not among the newest that the provider lists, and these do not reach back to when it was sent"}}, nil
		}
	}
	if f.byKeyAt && !byID {
		hits = slices.DeleteFunc(slices.Clone(hits), func(hit any) bool {
			key := w.echoKey.scalarIn(f.shaped(hit))
			return key != "" && key != row.ProviderKey
		})
	}
	if len(hits) == 0 && !further {
		return p.absent(l, sent, row), nil
	}
	var moved []hit           // moved money, or may still
	var unclear, refused *hit // the first of each
	for _, document := range hits {
		if !byID {
			document = f.shaped(document)
		}
		said := w.says(0, nil, document)
		h := hit{reference: w.id(said.reference, document), outcome: w.read(document, said, row)}
		if err := w.sameEcho(document, row); err != nil {
			h.outcome = zabor.Outcome{Reason: fmt.Sprintf("%.100q was found, but %s", h.reference, oneLine(err))}
		}
		switch {
		case f.byKeyAt && !byID && w.echoKey.scalarIn(document) == "":
			h.outcome = zabor.Outcome{Reason: fmt.Sprintf("%.100q was found for the order, and nothing in it says by which request it was made", h.reference)}
			unclear = firstOf(unclear, h)
		case said.moved():
			moved = h.addTo(moved)
		case said.word == unbegun:
		case h.outcome.Verdict == zabor.Refused:
			refused = firstOf(refused, h)
		default:
			h.outcome.Verdict = zabor.Unproven // no look-up is about a request's form
			unclear = firstOf(unclear, h)
		}
	}
	switch {
	case len(moved) > 1:
		o := zabor.Outcome{}
		for i, h := range moved {
			if i > 0 {
				o.Reason += " and "
			}
			o.Reason += h.String()
		}
		return zabor.Finding{Several: true, Outcome: o}, nil
	case len(moved) == 1:
		return zabor.Finding{Outcome: moved[0].outcome}, nil
	case unclear != nil:
		return zabor.Finding{Outcome: unclear.outcome}, nil
	case further:
		return zabor.Finding{Outcome: zabor.Outcome{Reason: "the provider lists more than one page, and it may be on another"}}, nil
	case refused == nil && sent == nil && l.path != nil:
		return zabor.Finding{Outcome: zabor.Outcome{Reason: oneLine(errNotKept)}}, nil
	case refused == nil: // what is there has moved nothing
		return zabor.Finding{Absent: true}, nil
	}
	return zabor.Finding{Outcome: refused.outcome}, nil
}

// shaped is a hit as an answer to a call has it.
func (f *finder) shaped(hit any) any {
	if f.as != "" {
		return map[string]any{f.as: hit}
	}
	return hit
}

// hasSome reports whether there is something in document, other than false, where at
// points to.
func hasSome(at pointer, document any) bool {
	v, _ := at.in(document)
	return v != nil && v != false && v != ""
}

// reaches reports whether a list of the newest surely has all that was made since
// a row was captured, with room for clocks that differ. A page that is not full may
// have another one behind it.
func (f *finder) reaches(hits []any, further bool, captured time.Time) bool {
	const skew = 15 * time.Minute
	if len(hits) < f.full && !further {
		return true
	}
	return slices.ContainsFunc(hits, func(hit any) bool {
		made, err := when(f.made.scalarIn(hit))
		return err == nil && made.Before(captured.Add(-skew))
	})
}

// hit is one object that a look-up found.
type hit struct {
	reference string // may be empty
	outcome   zabor.Outcome
}

// addTo adds h to hits. Of one object that is there twice the settled one counts.
func (h hit) addTo(hits []hit) []hit {
	for i, other := range hits {
		if h.reference != "" && h.reference == other.reference {
			if h.outcome.Verdict == zabor.Done {
				hits[i] = h
			}
			return hits
		}
	}
	return append(hits, h)
}

func (h hit) String() string {
	if h.reference == "" {
		return fmt.Sprintf("one without reference (%s)", h.outcome.Reason)
	}
	return fmt.Sprintf("%.100q (%s)", h.reference, h.outcome.Verdict)
}

func firstOf(have *hit, h hit) *hit {
	if have != nil {
		return have
	}
	return &h
}
