package provider

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Harmless is a request that moves no money by itself: the first one of two.
type Harmless struct {
	Path string `yaml:"path"` // without a query
	// Unless are what makes it move money after all: a form's field, or a property
	// of the JSON object, that has one of these values; an empty list: any.
	Unless map[string][]string `yaml:"unless"`
}

// CheckRequests refuses a step whose request moves no money by itself, which would
// look like a payment that never ends, and one whose first request of two does
// move it. prepare is nil where there is one request. What only a template decides
// is let through. The error begins with request or prepare.
//
// A request whose answers the profile cannot read is refused too.
func (p Profile) CheckRequests(prepare *RequestSpec, request RequestSpec) error {
	if pattern, ok := p.unread(request); ok {
		return fmt.Errorf("request: the answers of %s have a shape that the profile does not read, so that each call would be held for a person; describe them with profile: custom", pattern)
	}
	if h := p.harmless(request); h != nil && !h.moves(request, true) {
		fix := "confirm what it makes by a second request, and put this one into prepare"
		if len(h.Unless) > 0 {
			fix = "write " + h.what() + " into it, or put it into prepare and confirm what it makes by a second request"
		}
		return fmt.Errorf("request: %s by itself moves no money; %s", h.Path, fix)
	}
	if prepare == nil {
		return nil
	}
	if h := p.harmless(*prepare); h != nil && h.moves(*prepare, false) {
		return fmt.Errorf("prepare: with %s it moves the money, before an id was saved; take it out, or write this one request as request", h.what())
	}
	return nil
}

// unread is the pattern of Unread that r's path meets, and whether there is one.
func (p Profile) unread(r RequestSpec) (pattern string, ok bool) {
	where, _, _ := strings.Cut(r.Path, "?")
	plain := "" // with a word for each template
	for rest := where; rest != ""; {
		before, after, found := strings.Cut(rest, "{{")
		plain += before
		if !found {
			break
		}
		plain += "x"
		_, rest, _ = strings.Cut(after, "}}")
	}
	i := slices.IndexFunc(p.Unread, func(pattern string) bool { met, _ := path.Match(pattern, plain); return met })
	if i < 0 {
		return "", false
	}
	return p.Unread[i], true
}

// harmless is what p knows of r's path; nil: nothing.
func (p Profile) harmless(r RequestSpec) *Harmless {
	where, _, _ := strings.Cut(r.Path, "?")
	i := slices.IndexFunc(p.Harmless, func(h Harmless) bool { return h.Path == where })
	if i < 0 {
		return nil
	}
	return &p.Harmless[i]
}

// moves reports whether r has what makes it move money; where only a template
// tells, it is as unknown says.
func (h Harmless) moves(r RequestSpec, unknown bool) bool {
	object, _ := r.JSON.(map[string]any)
	for name, values := range h.Unless {
		v, there := object[name]
		if text, ok := r.Form[name]; ok {
			v, there = text, true
		}
		if !there {
			continue
		}
		text, err := asText(v)
		switch {
		case len(values) == 0:
			return true
		case err == nil && strings.Contains(text, "{{"):
			return unknown
		case err == nil && slices.Contains(values, text):
			return true
		}
	}
	return false
}

// what says what makes it move money.
func (h Harmless) what() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(h.Unless)) {
		if values := h.Unless[name]; len(values) > 0 {
			all = append(all, fmt.Sprintf("%s: %q", name, values[0]))
			continue
		}
		all = append(all, name)
	}
	return strings.Join(all, " or ")
}
