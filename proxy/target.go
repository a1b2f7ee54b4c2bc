package proxy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"zabor/provider"
)

// target is where a request goes.
type target struct {
	provider string
	path     string   // at the provider, escaped as it came, with the query
	segments []string // of the path, unescaped
}

// parseTarget reads /{provider}/{path as at the provider}?{query}. Whatever two
// programs could read as two paths is refused: dots, encoded slashes, empty
// segments, what is encoded twice.
func parseTarget(raw string) (target, error) {
	rest, ok := strings.CutPrefix(raw, "/")
	if !ok || strings.HasPrefix(rest, "/") {
		return target{}, refuse(400, "the target of the request must begin with exactly one slash")
	}
	before, query, hasQuery := strings.Cut(rest, "?")
	first, path, _ := strings.Cut(before, "/")
	t := target{path: "/" + path}
	var err error
	if t.provider, err = segment(first); err != nil {
		return target{}, refuse(403, "path: %s", err)
	}
	if path != "" {
		parts := strings.Split(path, "/")
		for i, part := range parts {
			if part == "" && i == len(parts)-1 {
				t.segments = append(t.segments, "") // a slash at the end
				continue
			}
			plain, err := segment(part)
			if err != nil {
				return target{}, refuse(403, "path: %s", err)
			}
			t.segments = append(t.segments, plain)
		}
	}
	if hasQuery {
		t.path += "?" + query
	}
	if err := provider.CheckPath(t.path); err != nil {
		return target{}, refuse(403, "%s", visible(err.Error()))
	}
	return t, nil
}

// segment is one segment of a path, unescaped.
func segment(raw string) (string, error) {
	plain, err := url.PathUnescape(raw)
	switch name, _, _ := strings.Cut(plain, ";"); {
	case raw == "":
		return "", errors.New("an empty segment")
	case err != nil:
		return "", errors.New("a segment is not percent-encoded as it should be")
	case strings.ContainsAny(plain, `/\`):
		return "", errors.New("an encoded slash")
	case strings.Contains(plain, "%"):
		return "", errors.New("a segment that is encoded twice")
	case strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", errors.New("a control character")
	case strings.Trim(name, ". ") == "":
		return "", errors.New("a segment of dots")
	}
	return plain, nil
}

// pattern is METHOD /provider/path: which requests a rule of the configuration is
// about. The method may be *, a segment * is any one, and ** at the end is any
// number of them.
type pattern struct {
	method   string
	provider string
	segments []string
	rest     bool
}

func parsePattern(text string) (pattern, error) {
	method, path, ok := strings.Cut(text, " ")
	if !ok || method != "*" && strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return pattern{}, fmt.Errorf("%q: write METHOD /provider/path, such as POST /stripe/v1/customers", text)
	}
	t, err := parseTarget(path)
	if err != nil {
		return pattern{}, fmt.Errorf("%q: %w", text, err)
	}
	p := pattern{method: method, provider: t.provider, segments: t.segments}
	if n := len(p.segments); n > 0 && p.segments[n-1] == "**" {
		p.segments, p.rest = p.segments[:n-1], true
	}
	return p, nil
}

func (p pattern) matches(method string, t target) bool {
	if p.method != "*" && p.method != method || p.provider != t.provider {
		return false
	}
	if len(t.segments) < len(p.segments) || len(t.segments) > len(p.segments) && !p.rest {
		return false
	}
	for i, want := range p.segments {
		if want != "*" && want != t.segments[i] {
			return false
		}
	}
	return true
}

// visible is s with everything but visible ASCII and blanks shown as a question
// mark, for the value of a header.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, s)
}
