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

// line is a checked [Line].
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

// met reports whether v meets w. v is the value at w's pointer; nil: there is none.
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

// apart reports whether w and other exclude each other.
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

// meets reports whether one request could meet l and other.
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

// UncoveredError is the error for a request without a line, or with a refused one.
// Nothing was sent.
type UncoveredError struct {
	What string // the request, as in POST /v1/transfers
	Why  string // for people: the missing fact
}

func (e *UncoveredError) Error() string { return e.What + ": " + e.Why }

// request is the part of a request, or of a template, by which a line is chosen.
type request struct {
	method string
	path   string // with its query
	// at returns the body's value. If a template decides it, known is false.
	at    func(pointer) (v any, known bool)
	holes []bool // by segment of the path: a template decides it; if it is shorter, the rest is plain
}

func (r request) open(segment int) bool { return segment < len(r.holes) && r.holes[segment] }

// covers returns the lines for r. There are several only if a template decides.
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

// plainSegment reports whether a segment of a path has only one reading.
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

// lineFor returns the line for r.
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

// ambiguousForm reports whether two programs could read the form r differently.
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

// Line returns the line for r. Without one, the error is an [*UncoveredError].
func (p *Provider) Line(r Opened) (Line, error) {
	l, err := p.lineFor(r)
	if err != nil {
		return Line{}, err
	}
	return l.Line, nil
}

// Terms are the facts that the fence needs before a call.
type Terms struct {
	AbsentAfter time.Duration // from the last possible send until silence of the look-up is proof; 0: there is no look-up
	HoldAfter   time.Duration // doubt is usual for so long; 0: not known
	PendingFor  time.Duration // a verdict may take so long; 0: not known
	// ReplayFor counts from the first capture: the same request may be sent again under
	// its key within it. 0: never. It is shorter than the life of the key by the time of
	// a send and of its late execution.
	ReplayFor time.Duration
	Units     Units // for [Vars]
}

// Terms returns the terms of a call with r. The error is an [*UncoveredError].
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

// replayFor is the life of the key, less a tenth of it or two whole calls: one under
// way and one executed late. With [ReplaysSuccess] a replay could charge, so it is 0.
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

// Terms returns the terms of a step with these requests. prepare is nil for a step with
// one request. If a template decides the line, the most cautious terms count. The error
// begins with request or prepare and says why the step is refused: a request has no
// line; request moves no money by itself, so that the step would never end; or prepare
// does move money.
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

// and returns the more cautious of both.
func (t Terms) and(other Terms) Terms {
	t.AbsentAfter = max(t.AbsentAfter, other.AbsentAfter)
	t.HoldAfter = max(t.HoldAfter, other.HoldAfter)
	t.PendingFor = max(t.PendingFor, other.PendingFor)
	t.ReplayFor = min(t.ReplayFor, other.ReplayFor)
	return t
}

// linesOf returns the lines for the requests of a step. Without prepare, first is nil.
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

// completes says how a request of l, which moves nothing, becomes a payment.
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

// asked is the part of s by which a line is chosen.
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

// hole stands for a template in a path. No path has this byte.
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
