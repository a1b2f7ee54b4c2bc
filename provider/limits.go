package provider

import (
	"fmt"
	"strings"
)

// Limit is something that no code can promise about the calls of a step.
type Limit struct {
	Code string `json:"code"` // stable
	Text string `json:"text"` // a sentence for people
}

// StepLimit is a [Limit] of one configured step at its provider.
type StepLimit struct {
	Step     string `json:"step"` // its name in the key
	Provider string `json:"provider"`
	Limit
}

// Limits is what no code can promise about calls with these requests, by what p
// says of the provider; prepare is nil where there is one request. Requests that
// [Profile.Terms] refuses have none.
func (p Profile) Limits(prepare *RequestSpec, request RequestSpec) []Limit {
	_, lines, err := p.linesOf(prepare, request)
	if err != nil {
		return nil
	}
	l := lines[0]
	var limits []Limit
	add := func(code, format string, args ...any) {
		limits = append(limits, Limit{code, fmt.Sprintf(format, args...)})
	}
	key := l.Key.Travels()
	found, silent := l.finds(prepare, request)
	replayFor := l.Key.replayFor(p.Timeout)
	switch {
	case !found && replayFor == 0:
		add("held", "a call whose answer is lost is held for a person: it cannot be looked up, and it is not sent again")
	case !found:
		add("held-later", "a call whose answer is lost cannot be looked up; what sending it again within %s does not settle is held for a person", replayFor)
	case silent != "":
		add("not-carried", "a call whose answer is lost is looked up by what it carried, and this one does not carry {{provider_key}} as %s: it is not found, and is held for a person", silent)
	}
	switch {
	case key && l.Key.Life > 0:
		add("key-life", "the provider's key protects from a lost row, and from a worker that was paused before its first byte, for %s and no longer", l.Key.Life)
	case key:
		add("key-life-unknown", "how long the provider knows a key is not relied upon: from a worker that was paused before its first byte, only the provider's limit on idle connections protects for certain")
	case found:
		add("look-up-only", "a worker that was paused between its look at the clock and its first byte is stopped only by the provider's limit on idle connections: there is no key that stops a second call")
	}
	if !key && (!found || silent != "") {
		add("lost-commits", "a database that loses commits (asynchronous replication and a failover) makes two charges possible: nothing at this provider tells the second call from the first")
	}
	return limits
}

// finds reports whether a call whose answer is lost can be looked up, and where its
// request should carry the provider key for it and does not; empty: it does, or
// need not.
func (l *line) finds(prepare *RequestSpec, request RequestSpec) (found bool, silent string) {
	u := l.Lookup
	switch {
	case u == nil:
		return false, ""
	case prepare != nil && u.Prepared != "", u.Target != "":
		return true, ""
	case u.Path == "":
		return false, ""
	case u.Carried == "" || u.Carried == "/"+l.Key.Field:
		return true, ""
	}
	document := request.JSON
	if len(request.Form) > 0 {
		document = nested(request.Form)
	}
	at, err := parsePointer(u.Carried)
	if err == nil && strings.Contains(at.scalarIn(document), "provider_key") {
		return true, ""
	}
	return true, strings.Join(at, ".")
}
