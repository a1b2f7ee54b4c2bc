package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"zabor/internal/dotenv"
)

// A text of the file is made of pieces: literal text, and references to
// variables.
type piece struct {
	literal     string
	name        string // of the variable; empty: literal
	fallback    string // text behind :-
	hasFallback bool
}

// hasReference reports whether s holds something that expansion changes.
func hasReference(s string) bool {
	return strings.Contains(s, "${") || strings.Contains(s, "$$")
}

// split takes s apart at ${NAME}, ${NAME:-text} and $$. A dollar before
// anything else is a dollar. The text of a default is taken as it stands, up
// to the next closing brace; it is not expanded.
func split(s string) ([]piece, error) {
	var pieces []piece
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			pieces = append(pieces, piece{literal: literal.String()})
			literal.Reset()
		}
	}
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 || at == len(s)-1 {
			literal.WriteString(s)
			flush()
			return pieces, nil
		}
		literal.WriteString(s[:at])
		switch s = s[at+1:]; s[0] {
		case '$':
			literal.WriteByte('$')
			s = s[1:]
		case '{':
			inner, rest, closed := strings.Cut(s[1:], "}")
			if !closed {
				return nil, errors.New("${ has no closing brace: write ${NAME}, or $${ for a dollar and a brace")
			}
			name, fallback, hasFallback := strings.Cut(inner, ":-")
			if !dotenv.IsName(name) {
				return nil, fmt.Errorf("${%s}: %q is not a name: write ${NAME} or ${NAME:-text}, or $${ for a dollar and a brace", inner, name)
			}
			flush()
			pieces = append(pieces, piece{name: name, fallback: fallback, hasFallback: hasFallback})
			s = rest
		default:
			literal.WriteByte('$')
		}
	}
}

// value looks p up. A variable that is set to nothing has its default too.
func (p piece) value(env Env) (string, error) {
	value, err := env.get(p.name)
	switch {
	case errors.Is(err, errNotSet) && p.hasFallback, err == nil && value == "" && p.hasFallback:
		return p.fallback, nil
	case errors.Is(err, errNotSet):
		return "", fmt.Errorf("%s is not set: set it, or %s_FILE to the name of a file that holds it, or write ${%s:-text} for a default", p.name, p.name, p.name)
	}
	return value, err
}

// expand puts the variables into s, once: a value is not expanded again.
// quote, unless nil, is what becomes of a value on its way in.
func expand(s string, env Env, quote func(pieces []piece, i int, value string) (string, error)) (string, error) {
	pieces, err := split(s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, p := range pieces {
		if p.name == "" {
			b.WriteString(p.literal)
			continue
		}
		value, err := p.value(env)
		if err == nil && quote != nil {
			value, err = quote(pieces, i, value)
		}
		if err != nil {
			return "", err
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// inAddress is the value of piece i of an address as it belongs there. At the
// very start it stands as it is, since it brings the scheme or is the whole
// address. In the host it must be a host; everywhere else it is
// percent-encoded, so that a password may hold any sign.
func inAddress(pieces []piece, i int, value string) (string, error) {
	if i == 0 {
		return value, nil
	}
	var before, after strings.Builder
	for j, p := range pieces {
		text := p.literal
		if p.name != "" {
			text = "x" // where it is matters, not what
		}
		if j < i {
			before.WriteString(text)
		} else if j > i {
			after.WriteString(text)
		}
	}
	scheme, authority, ok := strings.Cut(before.String(), "://")
	if scheme == "unix" || scheme == "sqlite" { // a file's path
		if strings.Contains(authority, "?") {
			return percent(value, ""), nil
		}
		return percent(value, "/"), nil
	}
	if !ok || strings.ContainsAny(authority, "/?#") {
		return percent(value, ""), nil
	}
	rest, _, _ := strings.Cut(after.String(), "/")
	rest, _, _ = strings.Cut(rest, "?")
	if strings.Contains(rest, "@") { // still in name:password@
		return percent(value, ""), nil
	}
	if ip, err := netip.ParseAddr(value); err == nil && ip.Is6() && !strings.HasSuffix(authority, "[") {
		return "[" + value + "]", nil
	}
	if strings.Trim(value, hostSigns) != "" {
		return "", fmt.Errorf("the value of %s holds a sign that no host or port has: it stands where the host is; put a whole address in with \"${%s}\" alone", pieces[i].name, pieces[i].name)
	}
	return value, nil
}

// inPathTemplate is inTemplate for an escaped path, of which a value stays one
// segment; at the very start it may bring several.
func inPathTemplate(pieces []piece, i int, value string) (string, error) {
	if _, err := inTemplate(pieces, i, ""); err != nil {
		return "", err
	}
	if i == 0 {
		return percent(value, "/"), nil
	}
	return percent(value, ""), nil
}

const (
	unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	hostSigns  = unreserved + ":,[]" // a port, a list of hosts, an address of IPv6
)

// percent encodes every byte of s but the unreserved ones and those in keep.
func percent(s, keep string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; strings.IndexByte(unreserved, c) >= 0 || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// inTemplate keeps a value from being read as a part of the template that it
// is put into.
func inTemplate(pieces []piece, i int, value string) (string, error) {
	var before strings.Builder
	for _, p := range pieces[:i] {
		before.WriteString(p.literal)
	}
	open := before.String()
	if strings.LastIndex(open, "{{") > strings.LastIndex(open, "}}") {
		return "", fmt.Errorf("${%s} stands between {{ and }}: put it outside", pieces[i].name)
	}
	return strings.ReplaceAll(value, "{", `{{"{"}}`), nil
}
