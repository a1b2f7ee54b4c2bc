package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zabor"
	"zabor/provider"
	"zabor/seal"
	"zabor/step"
)

// built is what a file's settings are made into.
type built struct {
	profiles map[string]provider.Profile
	steps    []*step.Step
	keys     *seal.Keys
	limits   []provider.StepLimit
}

// Limits lists what no code can promise, in the order of the steps' map keys.
func (c *Config) Limits() []provider.StepLimit { return slices.Clone(c.limits) }

// Units returns the units in which the provider of that name writes amounts. An empty
// name means the only provider. nil means that they are not known.
func (c *Config) Units(name string) provider.Units {
	if name == "" && len(c.Providers) == 1 {
		for only := range c.Providers {
			name = only
		}
	}
	if p := c.Providers[name]; p != nil {
		if known, ok := provider.BuiltinNamed(p.Profile); ok {
			return known.Units()
		}
	}
	return nil
}

// Keys are those of encryption_key; nil: nothing is encrypted.
func (c *Config) Keys() *seal.Keys { return c.keys }

// Profile is the profile of the provider of the given name, with its credentials;
// false: there is no such provider.
func (c *Config) Profile(name string) (provider.Profile, bool) {
	p, ok := c.profiles[name]
	return p, ok
}

// Compiled lists the steps, in the order of their map keys. A step whose Load
// is set needs its DB set before first use.
func (c *Config) Compiled() []*step.Step { return slices.Clone(c.steps) }

// profileNames are the providers that a profile can name.
func profileNames() []string {
	names := []string{"custom"}
	for _, b := range provider.Builtins() {
		names = append(names, b.Name)
	}
	return names
}

func (v *validator) buildKeys() {
	var err error
	if v.keys, err = seal.Parse(string(v.EncryptionKey)); err != nil {
		what, fix, _ := strings.Cut(err.Error(), "; ")
		v.wrong(path{"encryption_key"}, what, fix)
	}
}

func (v *validator) buildProviders() {
	v.profiles = map[string]provider.Profile{}
	for _, name := range slices.Sorted(maps.Keys(v.Providers)) {
		p, at := v.Providers[name], path{"providers", name}
		switch {
		case p.Profile == "": // it has a finding
		case p.Profile == "custom":
			profile := p.custom()
			if err := profile.Validate(); err != nil {
				v.wrongField(at, err)
				continue
			}
			v.profiles[name] = profile
		default:
			v.buildBuiltin(name, p, at)
		}
	}
}

// buildBuiltin makes the profile of a provider that is built in: of its account
// and secret, and of nothing else; the way there is this host's.
func (v *validator) buildBuiltin(name string, p *Provider, at path) {
	known, ok := provider.BuiltinNamed(p.Profile)
	if !ok {
		names := profileNames()
		fix := "write one of " + strings.Join(names, ", ")
		if like := nearest(p.Profile, names); like != "" {
			fix = "did you mean " + like + "?"
		}
		v.wrong(at.child("profile"), fmt.Sprintf("%q is not a known profile", p.Profile), fix)
		return
	}
	good := true
	for _, s := range v.all {
		if len(s.path) == len(at)+1 && within(s.path.String(), at.String()) && !slices.Contains([]string{"profile", "account", "secret", "proxy"}, s.path[len(at)]) {
			good = false
			v.find(s.key, s.path, fmt.Sprintf("the profile %s says so itself", p.Profile), "take it out, or write profile: custom and describe the provider")
		}
	}
	profile, err := known.Profile(p.Account, string(p.Secret))
	switch {
	case err != nil:
		v.wrongField(at, err)
	case strings.HasPrefix(string(p.Secret), "pk_"): // of Stripe, Checkout.com, Paystack
		v.wrong(at.child("secret"), "this is the publishable key, which browsers have: no charge can be made with it", "write the secret key, which begins with sk_ or rk_")
	case good:
		v.profiles[name] = profile
		p.Timeout = profile.Timeout
	}
}

// wrongField adds a finding for an error of another package, which begins with
// the name of the setting within at that it is about.
func (v *validator) wrongField(at path, err error) {
	text := err.Error()
	for {
		field, rest, ok := strings.Cut(text, ": ")
		if !ok || strings.ContainsAny(field, " \"") {
			break
		}
		inner := at
		for key := range strings.SplitSeq(field, ".") {
			inner = inner.child(key)
		}
		if _, known := v.byPath[inner.String()]; !known {
			break
		}
		at, text = inner, rest
	}
	if field, rest, ok := strings.Cut(text, " "); ok { // base_url "…": …
		if _, known := v.byPath[at.child(field).String()]; known {
			at, text = at.child(field), rest
		}
	}
	for _, f := range v.findings {
		if within(f.Key, at.String()) || within(at.String(), f.Key) {
			return // what could not be read is not wrong once more
		}
	}
	what, fix, _ := strings.Cut(text, "; ")
	v.wrong(at, what, fix)
}

// within reports whether the setting at inner is that at outer or in it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// custom is p as a profile.
func (p *Provider) custom() provider.Profile {
	headers := provider.Headers{}
	for name, value := range p.Headers {
		headers[name] = string(value)
	}
	profile := provider.Profile{
		BaseURL: string(p.BaseURL),
		Headers: headers,
		Timeout: p.Timeout,
	}
	profile.Reference, profile.Amount.Currency = p.Reference, p.Currency
	if k := p.Key; k != nil {
		profile.Key = provider.Key{Header: k.Header, Field: k.Field, UUID: k.UUID, Life: k.Life, Replays: provider.Replays(k.Replays), Mark: k.Mark}
	}
	if a := p.Malformed; a != nil {
		profile.Malformed = provider.Refusal{Pointer: a.Pointer, Values: a.Values, Statuses: a.Statuses}
	}
	for _, r := range p.Rules {
		profile.Rules = append(profile.Rules, provider.Rule{Means: r.Means, Statuses: r.Statuses, Header: r.Header, Values: r.Values, Reference: r.Reference})
	}
	if p.Prepare != nil {
		profile.Prepare.Reference = p.Prepare.Reference
	}
	if e := p.Echo; e != nil {
		profile.Echo = provider.Echo{Key: e.Key, Order: e.Order}
	}
	profile.HoldAfter, profile.PendingFor = p.HoldAfter, p.PendingFor
	if a := p.Settled; a != nil {
		profile.Settled = provider.Match{Pointer: a.Pointer, Values: a.Values}
	}
	if a := p.Pending; a != nil {
		profile.Pending = provider.Match{Pointer: a.Pointer, Values: a.Values}
	}
	if a := p.Declined; a != nil {
		profile.Declined = provider.Refusal{Pointer: a.Pointer, Values: a.Values, Statuses: a.Statuses}
	}
	if a := p.Amount; a != nil {
		profile.Amount.Minor, profile.Amount.Major = a.Minor, a.Major
	}
	if l := p.Lookup; l != nil {
		profile.Lookup = &provider.Lookup{
			Method: l.Method, Path: string(l.Path), Prepared: string(l.Prepared), Reference: string(l.Reference),
			Items: l.Items, More: l.More, Carried: l.Carried, Paths: l.Paths, AbsentAfter: l.AbsentAfter,
		}
	}
	if l := p.List; l != nil {
		profile.List = &provider.List{Path: l.Path, Since: l.Since, Items: l.Items, As: l.As, Made: l.Made, Alias: l.Alias, Key: l.Key, Orders: l.Orders, Paths: l.Paths}
		if l.Next != nil {
			profile.List.Next = provider.Next(*l.Next)
		}
	}
	return profile
}

// noPart says out loud that an order has only one charge of a step.
const noPart = "none"

func (v *validator) buildSteps() {
	classes := map[Class]string{}
	for _, name := range slices.Sorted(maps.Keys(v.Steps)) {
		s, at := v.Steps[name], path{"steps", name}
		for i, class := range s.Message {
			p := at.child("message")
			if len(s.Message) > 1 {
				p = p.index(i)
			}
			if other, taken := classes[class]; taken {
				v.wrong(p, fmt.Sprintf("%s is a message of step %s too", class, other), "a message has one step: take it out of one of them")
				continue
			}
			classes[class] = name
		}
		if s.Request == nil || s.Provider == "" || s.Order == "" || len(s.Message) == 0 {
			continue // each has a finding
		}
		v.validateIdentity(at, s)
		v.validatePart(at, name, s)
		v.validateProvider(at, s)
		v.validateHooks(at, s)
		if compiled := v.compileStep(at, name, s); compiled != nil {
			v.steps = append(v.steps, compiled)
		}
	}
	v.validateShared()
}

// Hook is the statement that runs with the write by which row enters its state,
// of the step that row's key names; see [zabor.Fence] and [step.Step.Hook]. A row of
// another installation has other hooks, which are not known here: that is an error.
func (c *Config) Hook(row zabor.Row) (*zabor.Hook, error) {
	if !row.In(c.Scope) {
		return nil, fmt.Errorf("%s is of another installation than %q, whose hooks are not known here", row.Key, c.Scope)
	}
	name, _, _ := strings.Cut(row.Step, ":") // without its part
	for _, s := range c.steps {
		if s.Name() == name {
			return s.Hook(row)
		}
	}
	return nil, step.NoHook(row)
}

// hooks are the hooks of s, by their keys.
func (s *Step) hooks() map[string]*Hook {
	all := map[string]*Hook{"captured": s.Captured, "pending": s.Pending, "settled": s.Settled, "declined": s.Declined, "held": s.Held}
	maps.DeleteFunc(all, func(_ string, h *Hook) bool { return h == nil })
	return all
}

// validateHooks demands that hooks can run in the fence's own transactions.
func (v *validator) validateHooks(at path, s *Step) {
	if v.Database == "" || v.Database == v.Fence {
		return
	}
	for key := range s.hooks() {
		v.wrong(at.child(key), "a hook runs in the transaction of the fence's row, and the application's database is another one here", "put the fence's tables into the application's database, or take the hook out")
	}
}

// validateShared demands that steps of one name, which share their rows, share
// their hooks too: a row knows its step's name and no more.
func (v *validator) validateShared() {
	first := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(v.Steps)) {
		name := cmp.Or(v.Steps[key].Step, key)
		other, shared := first[name]
		if !shared {
			first[name] = key
			continue
		}
		has, want := v.Steps[key].hooks(), v.Steps[other].hooks()
		for _, hook := range slices.Sorted(maps.Keys(both(has, want))) {
			if a, b := has[hook], want[hook]; a == nil || b == nil || *a != *b {
				v.wrong(path{"steps", key, hook}, fmt.Sprintf("steps %s and %s are both the step %s of the key, and this hook is not the same in both", other, key, name), "write the same hook into both, or into neither")
			}
		}
	}
}

func both(a, b map[string]*Hook) map[string]*Hook {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// validateIdentity checks what of a step's key only the whole file tells.
func (v *validator) validateIdentity(at path, s *Step) {
	if most := zabor.MaxScope - len("/x"); s.Scope != "" && len(v.Scope) > most {
		v.wrong(at.child("scope"), fmt.Sprintf("the top-level scope of %d bytes leaves no room for it: at most %d, a slash and the step's scope together", len(v.Scope), zabor.MaxScope), "shorten the top-level scope")
	}
	for property := range s.Defaults {
		if strings.Contains(property, ".") {
			v.wrong(at.child("defaults").child(property), "the class's defaults are those of its own properties, and this is a path", "write the property's name alone")
		}
	}
}

// validatePart demands that a step that may well be wanted twice for an order
// says what tells one from the other.
func (v *validator) validatePart(at path, name string, s *Step) {
	if s.Part != "" {
		return
	}
	for _, word := range []string{"refund", "capture"} {
		for _, text := range []string{name, s.Step, string(s.Request.Path)} {
			if strings.Contains(strings.ToLower(text), word) {
				v.find(v.at(at), at.child("part"), fmt.Sprintf("is missing: an order can have more than one %s, and the second would be taken for the first", word),
					"write part: with the property that tells them apart, such as refundId, or part: none where an order has only one")
				return
			}
		}
	}
}

// providersOf lists the providers that s may name: one, or those that its
// template may become.
func (v *validator) providersOf(s *Step) []string {
	name := string(s.Provider)
	if !strings.Contains(name, "{{") {
		if v.Providers[name] == nil {
			return nil
		}
		return []string{name}
	}
	before := name[:strings.Index(name, "{{")]
	after := name[strings.LastIndex(name, "}}")+2:]
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v.Providers)) {
		if len(name) > len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) {
			names = append(names, name)
		}
	}
	return names
}

func (v *validator) validateProvider(at path, s *Step) {
	if len(v.providersOf(s)) > 0 {
		return
	}
	names := slices.Sorted(maps.Keys(v.Providers))
	fix := "write it into providers:"
	if like := nearest(string(s.Provider), names); like != "" {
		fix = "did you mean " + like + "?"
	} else if len(names) > 0 {
		fix = "write one of " + strings.Join(names, ", ") + ", or write it into providers:"
	}
	v.wrong(at.child("provider"), fmt.Sprintf("there is no provider %q", s.Provider), fix)
}

// compileStep makes the step of s; nil: there are findings.
func (v *validator) compileStep(at path, name string, s *Step) *step.Step {
	spec := step.Spec{
		Name:         cmp.Or(s.Step, name),
		Installation: v.Scope,
		Scope:        string(s.Scope),
		Order:        string(s.Order),
		Load:         string(s.Load),
		Dialect:      v.dialect(),
		Currency:     s.Currency,
		Provider:     string(s.Provider),
		Providers:    map[string]step.Provider{},
		Request:      s.Request.spec(),
		Volatile:     s.Volatile,
		Enums:        map[string]map[string]string{},
		Hooks:        map[zabor.State]step.Hook{},
		Then:         s.Then,
		Attempts:     v.Attempts,
		HoldAfter:    v.HoldAfter,
		PendingFor:   v.PendingFor,
	}
	for _, class := range s.Message {
		spec.Classes = append(spec.Classes, string(class))
	}
	if s.Part != noPart {
		spec.Part = string(s.Part)
	}
	if len(s.Defaults) > 0 {
		spec.Defaults = map[string]any{}
		for property, value := range s.Defaults {
			spec.Defaults[property] = value.Value
		}
	}
	if s.Amount != nil {
		spec.Amount, spec.Major = string(s.Amount.Path), s.Amount.Major
	}
	requests := 1
	if s.Prepare != nil {
		requests = 2
		prepare := s.Prepare.spec()
		spec.Prepare = &prepare
	}
	for key, hook := range s.hooks() {
		spec.Hooks[zabor.State(key)] = step.Hook{SQL: string(hook.SQL), Rows: hook.Rows}
	}
	for class, cases := range v.Enums {
		spec.Enums[string(class)] = cases
	}
	for _, name := range v.providersOf(s) {
		p := v.Providers[name]
		known := step.Provider{Account: p.Account, Timeout: p.Timeout}
		for range requests - 1 {
			known.Timeout += p.Timeout
		}
		profile, ok := v.profiles[name]
		if !ok { // it has a finding
			spec.Providers[name] = known
			continue
		}
		terms, err := profile.Terms(spec.Prepare, spec.Request)
		if err != nil {
			v.wrongField(at, err)
			return nil
		}
		if _, taken := terms.Units.Decimals(s.Currency); isCurrency(s.Currency) && !taken {
			v.wrong(at.child("currency"), fmt.Sprintf("how %s writes amounts in %s is not known for this call", name, s.Currency), "a currency without a source is refused; describe the provider with profile: custom")
			return nil
		}
		known.ReplayFor, known.Units = terms.ReplayFor, terms.Units
		known.HoldAfter, known.PendingFor, known.AbsentAfter = terms.HoldAfter, terms.PendingFor, terms.AbsentAfter
		spec.Providers[name] = known
		for _, limit := range profile.Limits(spec.Prepare, spec.Request) {
			v.limits = append(v.limits, provider.StepLimit{Step: spec.Name, Provider: name, Limit: limit})
		}
	}
	compiled, err := step.New(spec)
	if err == nil {
		return compiled
	}
	joined, _ := err.(interface{ Unwrap() []error })
	for _, err := range joined.Unwrap() {
		v.wrongField(at, err)
	}
	return nil
}

func (r *Request) spec() provider.RequestSpec {
	spec := provider.RequestSpec{Method: r.Method, Path: string(r.Path)}
	if len(r.Form) > 0 {
		spec.Form = map[string]string{}
		for name, value := range r.Form {
			spec.Form[name] = string(value)
		}
	}
	if r.JSON != nil {
		spec.JSON = r.JSON.Value
	}
	return spec
}

// isCurrency reports whether text is a currency and not where one stands.
func isCurrency(text string) bool {
	_, ok := provider.Digits(text)
	return ok
}

// dialect is that of the database which load is read from.
func (v *validator) dialect() step.Dialect {
	a := v.Fence
	if v.Database != "" {
		a = v.Database
	}
	switch scheme := a.Scheme(); {
	case strings.HasSuffix(scheme, "pgsql"), strings.HasPrefix(scheme, "postgres"):
		return step.Postgres
	case strings.Contains(scheme, "sqlite"):
		return step.SQLite
	}
	return step.MySQL
}
