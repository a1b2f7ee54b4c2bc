package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/provider"
)

// Spec is a step as it is configured. Paths lead to a property of the message,
// with dots to a property of a property: order.id.
type Spec struct {
	Name    string   // of the step in the key; no colon
	Classes []string // of its messages

	Installation string // the top-level scope; may be empty, no slash
	Scope        string // path of the inner scope; with a slash before it, beside the message; empty: none
	Order        string // path
	Part         string // path; empty: none

	// Defaults are properties that a message has although they are not in it:
	// Laravel leaves out what equals the class's default.
	Defaults map[string]any

	// Enums are the values of a PHP enum's cases, by class and case. A case that
	// is not among them is refused where it is used.
	Enums map[string]map[string]string

	Load    string  // one SELECT that gives exactly one row; empty: none
	Dialect Dialect // of Load and Hooks

	Amount   string // path; empty: the step has no money
	Major    bool   // the amount is a decimal; else minor units
	Currency string // path, or three upper-case letters

	Provider  string                // name, or a template that makes one
	Providers map[string]Provider   // those that it may name
	Prepare   *provider.RequestSpec // the harmless first request; nil: none
	Request   provider.RequestSpec

	// Volatile is what may differ in two requests that are the same: top-level
	// fields of a body or a query, by their names, and properties of the
	// message, with a point before their path: .requestedAt.
	Volatile []string

	Hooks map[zabor.State]Hook // by captured, pending, settled, declined, held
	Then  string               // queue on which the message goes on afterwards; empty: none

	Attempts   int
	HoldAfter  time.Duration
	PendingFor time.Duration
}

// Provider is what a step must know of a provider.
type Provider struct {
	Account     string
	Timeout     time.Duration // of all requests of the step together
	AbsentAfter time.Duration // 0: there is no look-up
	ReplayFor   time.Duration // as in [zabor.Effect]
	HoldAfter   time.Duration // the provider's own horizon; where it is longer than the Spec's, it counts
	PendingFor  time.Duration // likewise
	Units       provider.Units
}

// FieldError says which field of a [Spec] is wrong, by the name that the
// configuration has for it: order, load, request.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// Step is a compiled [Spec]. It may be used concurrently.
type Step struct {
	// DB is where Load is read: the primary. It is set before first use, and
	// may be nil where there is no Load.
	DB *sql.DB

	spec     Spec
	classes  map[string]bool
	selects  *statement // nil: none
	provider *provider.Template
	prepare  *provider.Template // nil: none
	request  *provider.Template
	hooks    map[zabor.State]hook
	bound    []string          // properties and columns that hooks bind
	rendered []string          // paths that templates name
	used     []string          // paths that the requests, the money, Load and the hooks are made of
	volatile map[string]bool   // fields of a body or a query
	exempt   []string          // paths that are no part of the message's fingerprint
	defaults map[string]string // digests of spec.Defaults
}

// New compiles spec. The error joins a [FieldError] for each field that is
// wrong.
func New(spec Spec) (*Step, error) {
	s := &Step{spec: spec, classes: map[string]bool{}, hooks: map[zabor.State]hook{}, defaults: map[string]string{}}
	var errs []error
	wrong := func(field string, err error) {
		if err != nil {
			errs = append(errs, &FieldError{field, err})
		}
	}
	wrong("step", checkName(spec.Name, spec.Part != ""))
	for _, class := range spec.Classes {
		s.classes[strings.TrimPrefix(class, `\`)] = true
	}
	wrong("order", checkPath(spec.Order))
	if spec.Scope != "" {
		wrong("scope", checkScope(spec.Scope))
	}
	if spec.Part != "" {
		wrong("part", checkPath(spec.Part))
	}
	used := map[string]bool{}
	if spec.Load != "" {
		selects, err := compileSelect(spec.Load, spec.Dialect)
		wrong("load", err)
		s.selects = &selects
		for _, name := range selects.names {
			if !slices.Contains(keyNames[:], name) {
				used[name] = true
			}
		}
	}
	wrong("amount", checkAmount(spec, used))
	wrong("currency", checkCurrency(spec, used))

	rendered := map[string]bool{}
	var err error
	s.request, err = provider.NewTemplate(spec.Request)
	wrong("request", err)
	templatePaths(rendered, texts(spec.Request)...)
	if spec.Prepare != nil {
		s.prepare, err = provider.NewTemplate(*spec.Prepare)
		wrong("prepare", err)
		templatePaths(rendered, texts(*spec.Prepare)...)
	}
	wrong("prepare", checkPrepare(spec))
	s.provider, err = provider.NewTemplate(provider.RequestSpec{Path: "/", Form: map[string]string{"provider": spec.Provider}})
	wrong("provider", err)
	templatePaths(rendered, spec.Provider)
	if spec.Provider == "" {
		wrong("provider", errors.New("it is empty"))
	}
	s.rendered = slices.Sorted(maps.Keys(rendered))
	maps.Copy(used, rendered)
	s.compileHooks(used, wrong)
	wrong("volatile", s.compileVolatile())
	for name, value := range spec.Defaults {
		s.defaults[name] = canonical(value)
	}
	s.used = slices.Sorted(maps.Keys(used))
	return s, errors.Join(errs...)
}

// keyNames are the parameters of Load that come from the key.
var keyNames = [...]string{"order", "scope", "step"}

// checkPrepare demands that the id of the first request, and only that, is what
// the second one confirms.
func checkPrepare(spec Spec) error {
	switch confirms := namesPrepared(texts(spec.Request)...); {
	case spec.Prepare == nil && confirms:
		return errors.New("it is missing: {{prepared}} in the request is the id that it gets; write prepare: with the request that gets it")
	case spec.Prepare == nil:
		return nil
	case namesPrepared(texts(*spec.Prepare)...):
		return errors.New("{{prepared}} is the id that this request gets; write it into request: only")
	case !confirms:
		return errors.New("the request after it does not confirm the id that it gets; write {{prepared}} there")
	}
	return nil
}

func checkName(name string, parts bool) error {
	limit := zabor.MaxStep
	if parts {
		limit -= len(":x") // a part has at least one byte
	}
	switch {
	case name == "":
		return errors.New("the name is empty")
	case strings.Contains(name, ":"):
		return fmt.Errorf("%q has a colon: it is what divides a step from its part", name)
	case len(name) > limit:
		return fmt.Errorf("the name is %d bytes long: at most %d", len(name), limit)
	}
	return nil
}

func checkPath(path string) error {
	if path == "" {
		return errors.New("it is empty: the path of a property is wanted, such as order.id")
	}
	for name := range strings.SplitSeq(path, ".") {
		if name == "" || strings.ContainsAny(name, " \t\n{}$\\") {
			return fmt.Errorf("%q is not the path of a property; order.id is one", path)
		}
	}
	return nil
}

// checkAmount notes the path of the amount in used.
func checkAmount(spec Spec, used map[string]bool) error {
	switch {
	case spec.Amount != "":
		used[spec.Amount] = true
		return checkPath(spec.Amount)
	case spec.Currency != "":
		return errors.New("it is empty: a currency needs an amount")
	}
	return nil
}

// checkCurrency notes the path of the currency in used, where it is one.
func checkCurrency(spec Spec, used map[string]bool) error {
	switch {
	case IsCurrency(spec.Currency):
		if _, ok := provider.Digits(spec.Currency); !ok {
			return unknownCurrency(spec.Currency)
		}
	case len(spec.Currency) == 4 && strings.Trim(spec.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "":
		return fmt.Errorf("%s is no currency of ISO 4217; write three letters such as EUR, or the path of a property of the message", spec.Currency)
	case spec.Currency != "":
		used[spec.Currency] = true
		return checkPath(spec.Currency)
	case spec.Amount != "":
		return errors.New("it is empty: an amount needs a currency, a path or three letters such as EUR")
	}
	return nil
}

// Name is the step's name in keys, without a part.
func (s *Step) Name() string { return s.spec.Name }

// HasPart reports whether the step in a key always has a part.
func (s *Step) HasPart() bool { return s.spec.Part != "" }

// HasScope reports whether a key always has a scope of the step's own.
func (s *Step) HasScope() bool { return s.spec.Scope != "" }

// Then is the queue on which a message goes on once its row is settled, declined
// or pending; empty: it does not.
func (s *Step) Then() string { return s.spec.Then }

// Timeout is the longest that a call of the step may take.
func (s *Step) Timeout() time.Duration {
	longest := time.Duration(0)
	for _, p := range s.spec.Providers {
		longest = max(longest, p.Timeout)
	}
	return longest
}

// PendingFor is how long a reference without a verdict is waited for, at the
// provider of the given name.
func (s *Step) PendingFor(provider string) time.Duration {
	return max(s.spec.PendingFor, s.spec.Providers[provider].PendingFor)
}

// HoldAfter is how long doubt is waited for likewise.
func (s *Step) HoldAfter(provider string) time.Duration {
	return max(s.spec.HoldAfter, s.spec.Providers[provider].HoldAfter)
}

// Matches reports whether messages of class ask for s.
func (s *Step) Matches(class string) bool { return s.classes[strings.TrimPrefix(class, `\`)] }

// Classes are those of the messages that ask for s, in byte order.
func (s *Step) Classes() []string { return slices.Sorted(maps.Keys(s.classes)) }

// JoinScope is a key's whole scope: the installation's and, where there is one,
// a slash and the inner one. An installation has no slash, so that no two pairs
// are joined to the same.
func JoinScope(installation, inner string) string {
	if inner == "" {
		return installation
	}
	return installation + "/" + inner
}

// Key is the key of m. An error wraps [ErrRefused]: the message has none and
// never will.
func (s *Step) Key(m Message) (zabor.Key, error) { return s.key(m, s.data(m)) }

func (s *Step) key(m Message, data map[string]any) (zabor.Key, error) {
	var k zabor.Key
	var err error
	if k.Order, err = s.identity("order", s.spec.Order, m, data); err != nil {
		return zabor.Key{}, err
	}
	k.Scope = s.spec.Installation
	if s.spec.Scope != "" {
		inner, err := s.identity("scope", s.spec.Scope, m, data)
		if err != nil {
			return zabor.Key{}, err
		}
		k.Scope = JoinScope(k.Scope, inner)
	}
	k.Step = s.spec.Name
	if s.spec.Part != "" {
		part, err := s.identity("part", s.spec.Part, m, data)
		if err != nil {
			return zabor.Key{}, err
		}
		k.Step += ":" + part
	}
	if err := k.Validate(); err != nil {
		return zabor.Key{}, refuse("step %s: %w", s.spec.Name, err)
	}
	return k, nil
}

// identity is the part of the key that path leads to.
func (s *Step) identity(what, path string, m Message, data map[string]any) (string, error) {
	v, err := s.at(path, m, data)
	if err != nil {
		return "", refuse("step %s: %s: %w", s.spec.Name, what, err)
	}
	text, err := identity(v, m.Rewritten)
	if err != nil {
		return "", refuse("step %s: %s %s: %w", s.spec.Name, what, path, err)
	}
	return text, nil
}

// at is the value that a path of the key leads to.
func (s *Step) at(path string, m Message, data map[string]any) (any, error) {
	if beside(path) {
		return lookupBeside(m, path)
	}
	v, ok := lookup(data, path)
	if !ok {
		return nil, missing(data, path)
	}
	return v, nil
}

// data is m's properties and the defaults of those that are not there, with the
// values of enums in place of their cases.
func (s *Step) data(m Message) map[string]any {
	data := m.Data
	if len(s.spec.Defaults) > 0 {
		data = maps.Clone(s.spec.Defaults)
		maps.Copy(data, m.Data)
	}
	if len(s.spec.Enums) == 0 {
		return data
	}
	valued, _ := s.valued(data).(map[string]any)
	return valued
}

// valued is v with the values of enums in place of their cases, to any depth.
func (s *Step) valued(v any) any {
	switch v := v.(type) {
	case Enum:
		if value, ok := s.spec.Enums[v.Class][v.Case]; ok {
			return value
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = s.valued(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			out[name] = s.valued(v[name])
		}
		return out
	}
	return v
}

// checkEnums refuses a message with an enum in its request whose value is not
// known.
func (s *Step) checkEnums(data map[string]any) error {
	for _, path := range s.rendered {
		if v, ok := lookup(data, path); ok {
			if e, ok := enumWithin(v); ok {
				return refuse("step %s: %s is %s", s.spec.Name, path, kind(e))
			}
		}
	}
	return nil
}

// Effect is the whole of what m asks for. It reads Load's row, and makes the
// request once to see that it can be made.
//
// An error wraps [ErrRefused] when the message can never be run, and
// [ErrNoRow] when Load found no row, which may come with a commit that is on
// its way. Any other error is the database's. With an error Effect.Key and
// Effect.Fingerprint.Message are set as far as they are known, so that a repeat of what is
// done already can be answered from its row.
//
// MissingRow is Captured, or Doubt where m was delivered before. It is for the
// caller to say otherwise for its queue.
func (s *Step) Effect(ctx context.Context, m Message) (zabor.Effect, error) {
	data := s.data(m)
	key, err := s.key(m, data)
	if err != nil {
		return zabor.Effect{}, err
	}
	message := s.besidePart(m, s.messageParts(m.Data))
	e := zabor.Effect{
		Key:         key,
		Fingerprint: zabor.Fingerprint{Message: messageSum(message)},
		MaxAttempts: s.spec.Attempts,
		HoldAfter:   s.spec.HoldAfter,
		PendingFor:  s.spec.PendingFor,
		MissingRow:  zabor.Captured,
	}
	if m.DeliveredBefore {
		e.MissingRow = zabor.Doubt
	}
	if m.Rewritten {
		if err := s.checkRounded(data); err != nil {
			return e, err
		}
	}
	row, err := s.load(ctx, key, data)
	if err != nil {
		return e, err
	}
	vars := provider.Vars{Data: merge(data, row), Order: key.Order, Step: key.Step, Scope: key.Scope}
	if err := s.checkEnums(vars.Data); err != nil {
		return e, err
	}
	if vars.Money, err = s.money(vars.Data); err != nil {
		return e, err
	}
	e.Amount = vars.Money
	if e.Provider, err = s.providerName(vars); err != nil {
		return e, err
	}
	p, ok := s.spec.Providers[e.Provider]
	if !ok {
		return e, refuse("step %s: provider %q is not configured; there is %s", s.spec.Name, e.Provider, strings.Join(slices.Sorted(maps.Keys(s.spec.Providers)), ", "))
	}
	vars.Units = p.Units
	e.Account, e.Timeout, e.AbsentAfter, e.ReplayFor = p.Account, p.Timeout, p.AbsentAfter, p.ReplayFor
	e.HoldAfter, e.PendingFor = s.HoldAfter(e.Provider), s.PendingFor(e.Provider)
	request, unkept, err := s.requestParts(e, vars, row)
	if err != nil {
		return e, err
	}
	e.Sensitive = unkept
	e.Fingerprint.Request = sum("zabor request 2", request)
	e.Fingerprint.Fields = fields(request, message)
	if e.HookData, err = s.hookData(vars.Data); err != nil {
		return e, err
	}
	freeze := func(what string, t *provider.Template, keys zabor.ProviderKeys, prepared string) ([]byte, error) {
		vars := vars
		vars.ProviderKey, vars.Prepared = keys.Request, prepared
		r, err := t.Render(vars)
		if err != nil {
			return nil, refuse("step %s: %s: %w", s.spec.Name, what, err)
		}
		return provider.Freeze(r)
	}
	e.Render = func(keys zabor.ProviderKeys, prepared string) ([]byte, error) {
		return freeze("request", s.request, keys, prepared)
	}
	if s.prepare != nil {
		// {{provider_key}} is that of the request here too: what was prepared
		// can then be found by the key that look-ups have.
		e.Prepare = func(keys zabor.ProviderKeys) ([]byte, error) { return freeze("prepare", s.prepare, keys, "") }
	}
	return e, nil
}

// merge is the properties and the row's columns. A column wins: whoever wrote
// it into the SELECT wanted the database's word.
func merge(data, row map[string]any) map[string]any {
	if len(row) == 0 {
		return data
	}
	merged := maps.Clone(data)
	if merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, row)
	return merged
}

// checkRounded refuses a message whose used numbers an earlier pop may have
// rounded: the provider would get another id or another amount.
func (s *Step) checkRounded(data map[string]any) error {
	for _, path := range s.used {
		if v, ok := lookup(data, path); ok {
			if n, ok := roundedWithin(v); ok {
				return refuse("step %s: the number %s in %s may have been rounded by an earlier delivery: send it as text", s.spec.Name, n, path)
			}
		}
	}
	return nil
}

func (s *Step) money(data map[string]any) (zabor.Money, error) {
	if s.spec.Amount == "" {
		return zabor.Money{}, nil
	}
	code := s.spec.Currency
	if !IsCurrency(code) {
		v, ok := lookup(data, code)
		if !ok {
			return zabor.Money{}, refuse("step %s: currency: %w", s.spec.Name, missing(data, code))
		}
		var err error
		if code, err = currencyCode(v); err != nil {
			return zabor.Money{}, refuse("step %s: currency %s: %w", s.spec.Name, s.spec.Currency, err)
		}
	}
	v, ok := lookup(data, s.spec.Amount)
	if !ok {
		return zabor.Money{}, refuse("step %s: amount: %w", s.spec.Name, missing(data, s.spec.Amount))
	}
	read := minorAmount
	if s.spec.Major {
		read = majorAmount
	}
	m, err := read(v, code)
	if err != nil {
		return zabor.Money{}, refuse("step %s: amount %s: %w", s.spec.Name, s.spec.Amount, err)
	}
	return m, nil
}

// providerName renders the provider's name, where it is a template, as a form, so
// that the rules of every other template hold for it.
func (s *Step) providerName(vars provider.Vars) (string, error) {
	if !strings.Contains(s.spec.Provider, "{{") {
		return s.spec.Provider, nil
	}
	r, err := s.provider.Render(vars)
	if err != nil {
		return "", refuse("step %s: %s", s.spec.Name, strings.TrimPrefix(err.Error(), "form."))
	}
	form, err := url.ParseQuery(string(r.Body))
	if err != nil {
		return "", refuse("step %s: provider: %w", s.spec.Name, err)
	}
	return form.Get("provider"), nil
}
