package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// reader is a checked [Reading].
type reader struct {
	reference pointer
	prefix    string
	given     bool // the reference is the row's prepared id
	settled   match
	pending   match
	declined  match
	malformed match
	statuses  map[int]word // declined or malformed
	rules     []rule
	prepared  pointer // id in the answer to a first request of two
	echoKey   pointer
	echoOrder pointer

	minor    pointer // at most one of minor and major
	major    pointer
	currency pointer
	asked    pointer // nil: the amount is not looked at in the request
	askedIn  pointer // its currency
	optional bool
	units    Units
}

type match struct {
	at     pointer
	values []string
}

func (m match) met(document any) bool {
	if len(m.values) == 0 {
		return false
	}
	text := m.at.scalarIn(document)
	return slices.Contains(m.values, text) || text != "" && m.values[0] == anything
}

// anything stands for any value.
const anything = "*"

// compileReader checks a reading. prepares: its line does not need settled.
func compileReader(r Reading, prepares bool) (*reader, error) {
	c := &reader{prefix: r.Prefix, optional: r.Amount.Optional, units: r.Amount.Units}
	var err error
	if c.given = r.Reference == "{{prepared}}"; c.given {
		r.Reference = ""
	} else if c.reference, err = parsePointer(r.Reference); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	if len(r.Settled.Values) == 0 && !prepares && !slices.ContainsFunc(r.Rules, func(r Rule) bool { return r.Means == "settled" }) {
		return nil, errors.New("settled: no values; without them no answer is ever a yes")
	}
	for _, m := range []struct {
		name string
		Match
		to *match
	}{
		{"settled", r.Settled, &c.settled}, {"pending", r.Pending, &c.pending},
		{"declined", Match{r.Declined.Pointer, r.Declined.Values}, &c.declined},
		{"malformed", Match{r.Malformed.Pointer, r.Malformed.Values}, &c.malformed},
	} {
		if *m.to, err = compileMatch(m.name, m.Match); err != nil {
			return nil, err
		}
	}
	if err := disjoint(r.Answers); err != nil {
		return nil, err
	}
	if c.statuses, err = compileStatuses(r.Answers); err != nil {
		return nil, err
	}
	if r.Amount.Minor != "" && r.Amount.Major != "" {
		return nil, errors.New("amount: minor and major exclude each other; keep the one that the answer has")
	}
	for _, o := range []struct {
		name, text string
		to         *pointer
	}{
		{"amount.minor", r.Amount.Minor, &c.minor},
		{"amount.major", r.Amount.Major, &c.major},
		{"currency", r.Amount.Currency, &c.currency},
		{"amount.asked", r.Amount.Asked, &c.asked},
		{"amount.asked_currency", cmp.Or(r.Amount.AskedCurrency, r.Amount.Currency), &c.askedIn},
		{"prepare.reference", cmp.Or(r.Prepare.Reference, r.Reference), &c.prepared},
		{"echo.key", r.Echo.Key, &c.echoKey},
		{"echo.order", r.Echo.Order, &c.echoOrder},
	} {
		if *o.to, err = optional(o.name, o.text); err != nil {
			return nil, err
		}
	}
	if err := c.units.validate(); err != nil {
		return nil, err
	}
	c.rules, err = compileRules(r.Rules)
	return c, err
}

func compileStatuses(a Answers) (map[int]word, error) {
	all := map[int]word{}
	for _, r := range [...]struct {
		word
		statuses []int
	}{{declined, a.Declined.Statuses}, {malformed, a.Malformed.Statuses}} {
		for _, status := range r.statuses {
			if !mayRefuse(status) || classOf(status) == answered {
				return nil, fmt.Errorf("%s.statuses: %d is not a definite no; only a 4xx other than 401, 407, 408, 409, 421, 423, 424, 425 and 429 can be", r.word, status)
			}
			if other, twice := all[status]; twice && other != r.word {
				return nil, fmt.Errorf("%d is both %s and %s; keep one", status, other, r.word)
			}
			all[status] = r.word
		}
	}
	return all, nil
}

func compileMatch(name string, m Match) (match, error) {
	if m.Pointer == "" && len(m.Values) == 0 {
		return match{}, nil
	}
	at, err := parsePointer(m.Pointer)
	switch {
	case err != nil:
		return match{}, fmt.Errorf("%s.pointer: %w", name, err)
	case len(m.Values) == 0:
		return match{}, fmt.Errorf("%s: a pointer without values; list what stands at %s", name, m.Pointer)
	case slices.Contains(m.Values, ""):
		return match{}, fmt.Errorf("%s.values: an empty value would be met by an answer that has none", name)
	case slices.Contains(m.Values, anything) && len(m.Values) > 1:
		return match{}, fmt.Errorf("%s.values: %q is met by all the others; keep one", name, anything)
	}
	return match{at, m.Values}, nil
}

// disjoint refuses a value with two meanings.
func disjoint(a Answers) error {
	seen := map[[2]string]string{}
	for _, m := range []struct {
		name string
		Match
	}{
		{"settled", a.Settled}, {"pending", a.Pending}, {"declined", Match{a.Declined.Pointer, a.Declined.Values}},
		{"malformed", Match{a.Malformed.Pointer, a.Malformed.Values}},
	} {
		for _, value := range m.Values {
			other, twice := seen[[2]string{m.Pointer, value}]
			if twice && other != m.name {
				return fmt.Errorf("%q at %s is both %s and %s; keep one", value, m.Pointer, other, m.name)
			}
			seen[[2]string{m.Pointer, value}] = m.name
		}
	}
	return nil
}

// id returns the reference at a pointer of document; empty: there is none with the prefix.
func (c *reader) id(at pointer, document any) string {
	id := at.id(document)
	if !strings.HasPrefix(id, c.prefix) {
		return ""
	}
	return id
}
