package prove

import (
	"cmp"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"zabor/messenger"
)

// veil takes addresses, users and passwords out of what workers say: a report is
// passed on to people who are to know none of them.
type veil struct{ known []named }

// named is a text that is not to be shown, and what stands for it.
type named struct {
	text *regexp.Regexp
	as   string
}

// tellers are the errors that name what they could not reach: those of Go's net and
// crypto/x509, of pgx, PostgreSQL and MySQL, and addresses by number in any.
var tellers = []named{
	{regexp.MustCompile(`\b(dial|read|write|connect) (tcp|udp|unix)([46]?) [^\s]*[^\s:]`), "$1 $2$3 (address)"},
	{regexp.MustCompile(`\blookup [^\s]*[^\s:]( on [^\s]*[^\s:])?`), "lookup (host)"},
	{regexp.MustCompile("failed to connect to `[^`]*`"), "failed to connect to (database)"},
	{regexp.MustCompile(`'[^']*'@'[^']*'`), "(user)"}, // MySQL's
	{regexp.MustCompile(`\b(user|role|database|User) ["'][^"']*["']`), "$1 (name)"},
	{regexp.MustCompile(`certificate is valid for [^;]*?, not \S+`), "certificate is valid for other hosts"},
	{regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b`), "(address)"},
	{regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\](?::\d+)?`), "(address)"},
}

// newVeil is over what the addresses have in them, and the folders.
func newVeil(addresses, folders []string) *veil {
	v := &veil{}
	for _, folder := range folders {
		if len(folder) > 1 {
			v.hide(regexp.QuoteMeta(folder), "(folder)")
		}
	}
	for _, address := range addresses {
		v.address(address)
	}
	slices.SortStableFunc(v.known, func(a, b named) int { return cmp.Compare(len(b.text.String()), len(a.text.String())) }) // a name in another is found after it
	return v
}

func (v *veil) hide(pattern, as string) {
	v.known = append(v.known, named{regexp.MustCompile(pattern), as})
}

// address hides what an address of a server or a transport's DSN has in it. One
// that cannot be read has reached nobody, and no error quotes it.
func (v *veil) address(address string) {
	if address == "" {
		return
	}
	v.hide(regexp.QuoteMeta(address), "(address)")
	if c, err := messenger.ParseDSN(address); err == nil {
		v.server(c.Username, c.Password, c.Addrs...)
	}
	for part := range strings.SplitSeq(address, ",") {
		u, err := url.Parse(part)
		if err != nil {
			continue
		}
		password, _ := u.User.Password()
		query := u.Query()
		v.server(u.User.Username(), password, append(query["addr"], u.Host)...)
		v.server(query.Get("username"), query.Get("password"))
		if u.Host == "" && len(u.Path) > 1 { // a socket, or SQLite's file
			v.hide(regexp.QuoteMeta(u.Path), "(path)")
		}
	}
}

func (v *veil) server(user, password string, addresses ...string) {
	if len(password) > 3 { // a shorter one is in many a word
		v.hide(regexp.QuoteMeta(password), "(password)")
	}
	if user != "" {
		v.hide(`\b`+regexp.QuoteMeta(user)+`@`, "(user)@")
	}
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		switch {
		case host == "" || net.ParseIP(host) != nil: // tellers know it
		case strings.HasPrefix(host, "/"):
			v.hide(regexp.QuoteMeta(host), "(path)")
		case strings.Contains(host, "."):
			v.hide(`\b`+regexp.QuoteMeta(host)+`(?::\d+)?\b`, "(host)")
		default: // redis, db: words that a sentence may have too
			v.hide(`\b`+regexp.QuoteMeta(host)+`:\d+\b`, "(host)")
		}
	}
}

// over is text without them. A nil veil takes away what errors are known to tell.
func (v *veil) over(text string) string {
	if v != nil {
		for _, n := range v.known {
			text = n.text.ReplaceAllLiteralString(text, n.as)
		}
	}
	for _, n := range tellers {
		text = n.text.ReplaceAllString(text, n.as)
	}
	return text
}
