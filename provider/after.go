package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"zabor"
)

// After says how a payment is read again that was a final yes: what it looks like once
// its money went back. Nothing of it makes a row callable.
type After struct {
	Source `yaml:",inline"`
	// Of is the name of the line whose payments these are; Prefix begins their ids.
	Of     string `yaml:"of"`
	Prefix string `yaml:"prefix"`
	// Path gets a payment by its {{reference}}, in the form of an answer to a call.
	// Empty: by the line's look-up.
	Path string `yaml:"path"`
	// Back has, by pointer, what a payment says whose money went back, wholly or in part.
	// "*" is anything but nothing, zero and false. One of them is enough. What the line
	// reads as a no, or has in no list, says so too.
	Back map[string][]string `yaml:"back"`
}

// later is a checked [After].
type later struct {
	After
	line *line
	path *Template // nil: by the line's look-up
	back []match
}

func compileAfter(all []After, lines []*line) (compiled []later, err error) {
	for i, a := range all {
		c := later{After: a}
		at := slices.IndexFunc(lines, func(l *line) bool { return l.Name == a.Of && l.Refused == "" })
		if at < 0 {
			return nil, fmt.Errorf("after.%d.of %q: there is no line of that name", i, a.Of)
		}
		if c.line = lines[at]; a.Path == "" && c.line.find == nil {
			return nil, fmt.Errorf("after.%d.path: empty, and %s has no look-up", i, a.Of)
		}
		if a.Path != "" {
			if c.path, err = newLookupTemplate(a.Path, nil, nil); err != nil {
				return nil, fmt.Errorf("after.%d.path: %w", i, err)
			}
		}
		for _, text := range slices.Sorted(maps.Keys(a.Back)) {
			m, err := compileMatch("back", Match{text, a.Back[text]})
			if err != nil {
				return nil, fmt.Errorf("after.%d: %w", i, err)
			}
			c.back = append(c.back, m)
		}
		compiled = append(compiled, c)
	}
	return compiled, nil
}

// laterOf is how payments are read again at a provider without a table: by the one line.
func laterOf(l *line) []later { return []later{{line: l}} }

// says is what an object says of money that went back; empty: it did not. An object that
// says nothing is an error.
func (a later) says(c *reader, object any) (string, error) {
	for _, m := range a.back {
		text := m.at.scalarIn(object)
		some := m.values[0] == anything && strings.Trim(text, "0.") != "" && text != "false"
		if some || m.values[0] != anything && slices.Contains(m.values, text) {
			return fmt.Sprintf("/%s is %.60q", strings.Join(m.at, "/"), text), nil
		}
	}
	said, status := c.says(0, nil, object), strings.TrimPrefix(c.status(object), ": ")
	switch {
	case said.word == settled, said.word == pending, said.word == unbegun:
		return "", nil
	case status != "" && (said.word == declined || said.word == nothing):
		return status, nil
	}
	return "", errors.New("the answer says " + said.String())
}

// way is how the payment of row is got.
func (a later) way(row zabor.Row) way {
	f := a.line.find
	switch {
	case f == nil && a.path == nil:
		return way{}
	case a.path != nil:
		return way{a.path, a.Path, true, a.line.reader}
	case f.getPrepared != nil && row.Prepared != "":
		return way{f.getPrepared, "", true, a.line.reader}
	case f.getPending != nil && !names(a.line.Lookup.Reference, "target"):
		return way{f.getPending, "", true, a.line.object}
	case f.byCarried != nil && !names(a.line.Lookup.Path, "target"):
		return way{f.byCarried, "", false, a.line.hit}
	}
	return way{}
}

// WentBack asks the provider about the payment of a settled row, by a request that moves
// no money. It returns what the provider says of money that went back: refunded,
// reversed, charged back; empty: nothing of the kind. [ErrNoObject]: the provider has no
// request for it, or does not know it there. A row of another account, such as one with
// Stripe-Account, is such: its request is kept no more.
func (p *Provider) WentBack(ctx context.Context, row zabor.Row) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for _, a := range p.after {
		w := a.way(row)
		if w.path == nil || row.Reference == "" || !strings.HasPrefix(row.Reference, a.Prefix) {
			continue
		}
		l := a.line
		if l.find == nil {
			l = &line{Line: l.Line, reader: l.reader, find: &finder{}}
		}
		got, err := p.look(ctx, l, w, nil, row)
		switch {
		case err != nil:
			return "", fmt.Errorf("ask %s about %s: %w", p.name, row.Reference, err)
		case got.status == http.StatusNotFound:
			continue
		case got.status/100 != 2:
			return "", fmt.Errorf("ask %s about %s: it answered %d %s", p.name, row.Reference, got.status, http.StatusText(got.status))
		}
		document, err := decodeAnswer(got.body)
		if err != nil {
			return "", fmt.Errorf("ask %s about %s: the answer is not one JSON value: %w", p.name, row.Reference, err)
		}
		objects := []any{document}
		if l.find.items != nil && !w.byID {
			list, _ := l.find.items.in(document)
			objects, _ = list.([]any)
		}
		for _, object := range objects {
			if !w.byID {
				object = l.find.shaped(object)
			}
			if id := w.id(w.says(0, nil, object).reference, object); id != row.Reference && !w.given {
				continue
			}
			text, err := a.says(w.reader, object)
			if err != nil {
				return "", fmt.Errorf("ask %s about %s: %w", p.name, row.Reference, err)
			}
			return text, nil
		}
	}
	return "", fmt.Errorf("%s: %w", row.Key, ErrNoObject)
}
