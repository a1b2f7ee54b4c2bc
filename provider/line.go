package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// line is a [Line] that has been checked.
type line struct {
	Line
	*reader // of an answer to the call
	hit     *reader
	object  *reader // nil where the line has no look-up
	header  http.Header
	method  string
	path    []string // segments; nil: every request
	where   []where  // by pointer
	target  pointer  // nil: the first * of the path

	find *finder // nil: there is no look-up
}

// where is one condition on a request's body.
type where struct {
	at     pointer
	text   string
	values []string
}

// met reports whether v, which a body has there, meets w.
func (w where) met(v any) bool {
	text, isText := scalar(v)
	switch {
	case v == nil || isText && text == "":
		return slices.Contains(w.values, "")
	case slices.Contains(w.values, anything):
		return true
	}
	return isText && slices.Contains(w.values, text)
}

// apart reports whether no body meets both.
func (w where) apart(other where) bool {
	if w.text != other.text {
		return false
	}
	some := func(values []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return v != "" && v != anything })
	}
	for _, v := range w.values {
		if slices.Contains(other.values, v) || v != "" && slices.Contains(other.values, anything) || v == anything && some(other.values) {
			return false
		}
	}
	return true
}

func (w where) String() string {
	var all []string
	for _, v := range w.values {
		switch v {
		case "":
			all = append(all, "nothing")
		case anything:
			all = append(all, "something")
		default:
			all = append(all, fmt.Sprintf("%q", v))
		}
	}
	return fmt.Sprintf("%s at %s", strings.Join(all, " or "), w.text)
}

func compileLines(p Profile) ([]*line, error) {
	if len(p.Calls) == 0 {
		one, err := p.Line.compile()
		if err == nil && one.path != nil {
			err = errors.New("call: a line about some requests belongs into calls")
		}
		return []*line{one}, err
	}
	if p.Line.Reference != "" || p.Line.Settled.Pointer != "" || p.Line.Key.Header != "" || p.Line.Lookup != nil {
		return nil, errors.New("calls: there is a table, and what stands beside it would be about no request")
	}
	var lines []*line
	for i, l := range p.Calls {
		c, err := l.compile()
		switch {
		case err != nil:
			return nil, fmt.Errorf("calls.%d: %w", i, err)
		case c.path == nil || c.Name == "" || c.Does == "" && c.Refused == "":
			return nil, fmt.Errorf("calls.%d: a line of a table has a name, a call such as POST /payments, and what it does", i)
		}
		for j, other := range lines {
			if other.Name == c.Name {
				return nil, fmt.Errorf("calls.%d: %s is the name of calls.%d too", i, c.Name, j)
			}
			if other.meets(c) {
				return nil, fmt.Errorf("calls.%d: a request could meet %s and %s", i, other.Name, c.Name)
			}
		}
		lines = append(lines, c)
	}
	return lines, nil
}

func (l Line) compile() (*line, error) {
	c := &line{Line: l}
	var err error
	if l.Call != "" {
		method, path, ok := strings.Cut(l.Call, " ")
		if !ok || CheckPath(path) != nil || strings.ContainsAny(path, "?%") || (Request{Method: method, Path: "/"}).validate() != nil {
			return nil, fmt.Errorf("call %q: a method and a path, such as POST /payments/*/refunds", l.Call)
		}
		c.method, c.path = method, strings.Split(path[1:], "/")
	}
	for _, text := range slices.Sorted(maps.Keys(l.Where)) {
		w := where{text: text, values: l.Where[text]}
		if w.at, err = parsePointer(text); err != nil || len(w.values) == 0 {
			return nil, fmt.Errorf("where.%s: a pointer and its values", text)
		}
		c.where = append(c.where, w)
	}
	if l.Refused != "" {
		return c, nil
	}
	switch l.Does {
	case Charges, Captures, Refunds, PaysOut, Cancels, Prepares:
	case "":
		if l.Call == "" {
			break
		}
		fallthrough
	default:
		return nil, fmt.Errorf("does %q: charge, capture, refund, payout, cancel or prepare", l.Does)
	}
	if c.target, err = optional("target", l.Target); err != nil {
		return nil, err
	}
	if c.header, err = compileFields(l.Headers); err != nil {
		return nil, err
	}
	if err := l.Key.validate(); err != nil {
		return nil, err
	}
	if l.HoldAfter < 0 || l.PendingFor < 0 {
		return nil, fmt.Errorf("hold_after %s, pending_for %s: 0 or more", l.HoldAfter, l.PendingFor)
	}
	if c.reader, err = compileReader(Reading{l.Answers, l.Amount}, l.Does == Prepares); err != nil {
		return nil, err
	}
	return c, c.compileLookup()
}

// meets reports whether a request could meet both.
func (l *line) meets(other *line) bool {
	if l.method != other.method || len(l.path) != len(other.path) {
		return false
	}
	for i, segment := range l.path {
		if segment != other.path[i] && segment != anything && other.path[i] != anything {
			return false
		}
	}
	for _, w := range l.where {
		if slices.ContainsFunc(other.where, w.apart) {
			return false
		}
	}
	return true
}

// UncoveredError says that no line of a profile is about a request, or that its line
// refuses it. Nothing was sent.
type UncoveredError struct {
	What string // the request, as in POST /v1/transfers
	Why  string // a sentence for people: what is missing
}

func (e *UncoveredError) Error() string { return e.What + ": " + e.Why }

// request is what chooses a line: of a request that is sent, or of a template for some.
type request struct {
	method string
	path   string // with its query
	// at is what the body has there; known is false where a template decides.
	at    func(pointer) (v any, known bool)
	holes []bool // the segments of the path that a template decides; shorter: the rest is plain
}

func (r request) open(segment int) bool { return segment < len(r.holes) && r.holes[segment] }

// covers are the lines that r meets, or may meet where a template decides.
func (c *compiled) covers(r request) ([]*line, error) {
	if len(c.lines) == 1 && c.lines[0].path == nil {
		return c.lines, nil
	}
	path, _, query := strings.Cut(r.path, "?")
	what := r.method + " " + strings.ReplaceAll(path, hole, anything)
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		if !r.open(i) && !plainSegment(s) {
			return nil, &UncoveredError{what, "its path can be read as another one; write it without a slash at its end, and with no more escapes than it needs"}
		}
	}
	var met, near []*line
	for _, l := range c.lines {
		if l.method != r.method || !l.onPath(segments, r) {
			continue
		}
		if near = append(near, l); l.onBody(r) {
			met = append(met, l)
		}
	}
	if query && len(near) > 0 {
		return nil, &UncoveredError{what, "it has a query, which may change what it does; write it into the body"}
	}
	taken := slices.DeleteFunc(slices.Clone(met), func(l *line) bool { return l.Refused != "" })
	switch {
	case len(taken) > 0:
		return taken, nil
	case len(met) > 0:
		return nil, &UncoveredError{what, met[0].Refused}
	case len(near) > 0:
		var want []string
		for _, l := range near {
			var conditions []string
			for _, w := range l.where {
				conditions = append(conditions, w.String())
			}
			want = append(want, l.Name+" has "+strings.Join(conditions, " and "))
		}
		return nil, &UncoveredError{what, "the profile knows it only otherwise: " + strings.Join(want, "; ")}
	}
	return nil, &UncoveredError{what, "the profile has no line about it, so that nothing is known of its key, of what its answers prove, or of how it is looked up; describe the provider for this call with profile: custom"}
}

// plainSegment reports whether all that read a segment of a path read the same.
func plainSegment(s string) bool {
	plain, err := url.PathUnescape(s)
	return err == nil && plain != "" && url.PathEscape(plain) == s && !strings.ContainsAny(plain, "/\\;") && !strings.ContainsFunc(plain, notInHeader)
}

func (l *line) onPath(segments []string, r request) bool {
	if len(l.path) != len(segments) {
		return false
	}
	for i, s := range l.path {
		if s != anything && s != segments[i] && !r.open(i) {
			return false
		}
	}
	return true
}

func (l *line) onBody(r request) bool {
	for _, w := range l.where {
		if v, known := r.at(w.at); known && !w.met(v) {
			return false
		}
	}
	return true
}

// lineFor is the one line about r.
func (c *compiled) lineFor(r Opened) (*line, error) {
	document := r.values()
	lines, err := c.covers(request{method: r.Method, path: r.Path, at: func(at pointer) (any, bool) {
		v, _ := at.in(document)
		return v, true
	}})
	if err != nil || lines[0].path == nil {
		return first(lines, err)
	}
	if len(r.Body) > 0 && (document == nil || r.CheckReading() != nil || ambiguousForm(r)) {
		return nil, &UncoveredError{r.Method + " " + r.Path, "its body is neither JSON nor a form that can be read in one way"}
	}
	return lines[0], nil
}

func first(lines []*line, err error) (*line, error) {
	if err != nil {
		return nil, err
	}
	return lines[0], nil
}

// ambiguousForm reports whether r is a form that two programs could read as two.
func ambiguousForm(r Opened) bool {
	if kind, _ := mediaType(r.ContentType); kind != formType {
		return false
	}
	form, err := url.ParseQuery(string(r.Body))
	for name, values := range form {
		if len(values) > 1 && !strings.HasSuffix(name, "[]") {
			return true
		}
		for i := range name { // a[b] beside a
			if name[i] == '[' && form.Has(name[:i]) {
				return true
			}
		}
	}
	return err != nil
}

// Line is the line about r. The error is an [*UncoveredError]: there is none.
func (p *Provider) Line(r Opened) (Line, error) {
	l, err := p.lineFor(r)
	if err != nil {
		return Line{}, err
	}
	return l.Line, nil
}

// Terms are what must be known of a call before it is made.
type Terms struct {
	AbsentAfter time.Duration // how long after the last possible send a look-up that finds nothing is proof; 0: there is no look-up
	HoldAfter   time.Duration // for how long doubt is nothing unusual; 0: it is not known
	PendingFor  time.Duration // how long a verdict may take; 0: it is not known
	// ReplayFor is how long after the first capture the same request may be sent again
	// under its key; 0: never. The room that a send and its late execution need is taken
	// off the life of the key.
	ReplayFor time.Duration
	Units     Units // for [Vars]
}

// Terms are those of a call with r. The error is an [*UncoveredError].
func (p *Provider) Terms(r Opened) (Terms, error) {
	l, err := p.lineFor(r)
	if err != nil {
		return Terms{}, err
	}
	return l.terms(p.timeout), nil
}

func (l *line) terms(timeout time.Duration) Terms {
	t := Terms{HoldAfter: l.HoldAfter, PendingFor: l.PendingFor, ReplayFor: l.Key.replayFor(timeout), Units: l.Amount.Units}
	if l.Lookup != nil {
		t.AbsentAfter = l.Lookup.AbsentAfter
	}
	return t
}

// replayFor is the life of the key less a tenth of it, and less two whole calls:
// one that is under way, and one that is executed late. A provider that runs a
// request again unless the first one was a success may charge by a replay.
func (k Key) replayFor(timeout time.Duration) time.Duration {
	if k.Replays != ReplaysAll && k.Replays != ReplaysState {
		return 0
	}
	return max(0, k.Life-max(k.Life/10, 2*timeout))
}

// storesNo reports whether a refusal is stored under the key.
func (k Key) storesNo() bool {
	return k.Life > 0 && (k.Replays == ReplaysAll || k.Replays == ReplaysState)
}

// Terms are those of a step with these requests, the most cautious where a template
// decides which line is about one; prepare is nil where there is one request. An error
// begins with request or prepare, and says why such a step is refused: no line is about
// a request, it moves no money by itself and would look like a payment that never
// ends, or it is the first of two and does move it.
func (p Profile) Terms(prepare *RequestSpec, request RequestSpec) (Terms, error) {
	_, second, err := p.linesOf(prepare, request)
	if err != nil {
		return Terms{}, err
	}
	t := second[0].terms(p.Timeout)
	for _, l := range second[1:] {
		t = t.and(l.terms(p.Timeout))
	}
	if prepare == nil {
		return t, nil
	}
	c, _ := compile(p)
	begun, _ := c.covers(prepare.asked())
	for _, l := range begun {
		units := t.Units
		if units == nil {
			units = l.Amount.Units
		}
		t = t.and(l.terms(p.Timeout))
		t.Units = units
	}
	return t, nil
}

// and is what holds for both.
func (t Terms) and(other Terms) Terms {
	t.AbsentAfter = max(t.AbsentAfter, other.AbsentAfter)
	t.HoldAfter = max(t.HoldAfter, other.HoldAfter)
	t.PendingFor = max(t.PendingFor, other.PendingFor)
	t.ReplayFor = min(t.ReplayFor, other.ReplayFor)
	return t
}

// linesOf are the lines that the requests of a step may meet; first is nil where there
// is no prepare.
func (p Profile) linesOf(prepare *RequestSpec, request RequestSpec) (first, second []*line, err error) {
	c, err := compile(p)
	if err != nil {
		return nil, nil, err
	}
	if second, err = c.covers(request.asked()); err != nil {
		return nil, nil, fmt.Errorf("request: %w", err)
	}
	moves := slices.DeleteFunc(slices.Clone(second), func(l *line) bool { return l.Does == Prepares })
	if len(moves) == 0 {
		return nil, nil, fmt.Errorf("request: %s by itself moves no money; %s", second[0].Call, c.completes(second[0]))
	}
	if prepare == nil {
		return nil, moves, nil
	}
	if first, err = c.covers(prepare.asked()); err != nil {
		return nil, nil, fmt.Errorf("prepare: %w", err)
	}
	if l := first[0]; l.Does != Prepares && l.Does != "" && !slices.ContainsFunc(first, func(l *line) bool { return l.Does == Prepares }) {
		return nil, nil, fmt.Errorf("prepare: %s moves the money (%s), before an id was saved; take out what makes it do so, or write this one request as request", l.Call, l.Name)
	}
	return first, moves, nil
}

// completes says what to do with a request that meets l and moves nothing.
func (c *compiled) completes(l *line) string {
	fix := "confirm what it makes by a second request, and put this one into prepare"
	for _, other := range c.lines {
		if other.Call != l.Call || other.Does == Prepares || other.Refused != "" {
			continue
		}
		var differs []string
		for _, w := range other.where {
			if slices.ContainsFunc(l.where, w.apart) {
				differs = append(differs, w.String())
			}
		}
		return fmt.Sprintf("write %s into it, or put it into prepare and confirm what it makes by a second request", strings.Join(differs, " and "))
	}
	return fix
}

// asked is what chooses the line of the requests that s makes.
func (s RequestSpec) asked() request {
	path := blank(s.Path)
	var holes []bool
	before, _, _ := strings.Cut(path, "?")
	for segment := range strings.SplitSeq(strings.TrimPrefix(before, "/"), "/") {
		holes = append(holes, strings.Contains(segment, hole))
	}
	document := s.JSON
	if len(s.Form) > 0 {
		document = nested(s.Form)
	}
	method := s.Method
	if method == "" {
		method = http.MethodPost
	}
	return request{
		method: method, path: path, holes: holes,
		at: func(at pointer) (v any, known bool) {
			for i := range len(at) + 1 {
				v, _ = at[:i].in(document)
				if text, isText := v.(string); isText && strings.Contains(text, "{{") {
					return nil, false
				}
			}
			return v, true
		},
	}
}

// hole stands for a template in a path, which has no such byte.
const hole = "\x00"

// blank is path with a hole for each template.
func blank(path string) string {
	text := ""
	for rest := path; ; {
		before, after, found := strings.Cut(rest, "{{")
		text += before
		if !found {
			return text
		}
		text += hole
		_, rest, _ = strings.Cut(after, "}}")
	}
}
