package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// rule is a [Rule] that has been checked.
type rule struct {
	means     word
	statuses  []int
	header    map[string]string
	values    []match
	reference pointer // nil: the profile's
	wait      time.Duration
}

// ruleWords are the meanings that a rule can have.
var ruleWords = map[string]word{
	"settled": settled, "pending": pending, "unbegun": unbegun, "declined": declined,
	"malformed": malformed, "transient": transient, "earlier": earlier, "unclear": unclear, "lingers": lingers,
}

func compileRules(rules []Rule) ([]rule, error) {
	var compiled []rule
	for i, r := range rules {
		c, err := r.compile()
		if err != nil {
			return nil, fmt.Errorf("rules.%d: %w", i, err)
		}
		compiled = append(compiled, c)
	}
	return compiled, nil
}

func (r Rule) compile() (rule, error) {
	means, known := ruleWords[r.Means]
	c := rule{means: means, statuses: r.Statuses, header: r.Header, wait: r.Wait}
	switch {
	case !known:
		return c, fmt.Errorf("means %q: one of %q", r.Means, slices.Sorted(maps.Keys(ruleWords)))
	case len(r.Statuses)+len(r.Header)+len(r.Values) == 0:
		return c, errors.New("no condition; it would be met by every answer")
	case r.Reference != "" && means != settled && means != pending:
		return c, fmt.Errorf("reference: an answer that means %s has none", means)
	case means == transient && len(r.Header)+len(r.Values) == 0:
		return c, errors.New("transient by a status alone; anything that stands between may answer so")
	}
	for _, status := range r.Statuses {
		if status < 200 || status > 599 {
			return c, fmt.Errorf("statuses: %d is not one of an answer", status)
		}
	}
	for name := range r.Header {
		if !isToken(name) {
			return c, fmt.Errorf("header: %q is not the name of a header", name)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(r.Values)) {
		m, err := compileMatch("values", Match{at, r.Values[at]})
		if err != nil {
			return c, err
		}
		c.values = append(c.values, m)
	}
	var err error
	if r.Reference != "" {
		if c.reference, err = parsePointer(r.Reference); err != nil {
			return c, fmt.Errorf("reference: %w", err)
		}
	}
	return c, nil
}

// met reports whether an answer with that status and header, and document in its
// body, meets all conditions of r. A hit of a look-up has status 0: only its
// values speak.
func (r rule) met(status int, header http.Header, document any) bool {
	if len(r.statuses) > 0 && !slices.Contains(r.statuses, status) {
		return false
	}
	for name, value := range r.header {
		if header.Get(name) != value {
			return false
		}
	}
	for _, m := range r.values {
		if !m.met(document) {
			return false
		}
	}
	return true
}
