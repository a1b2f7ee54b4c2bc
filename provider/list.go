package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor"
)

// List is how all that the provider did is listed, page by page, by GETs alone.
// What an entry says of status, reference, amount and currency is where an answer
// to a call has it.
type List struct {
	Source `yaml:",inline"`
	// Of is the name of the line by whose answers an entry is read; empty where there
	// is no table.
	Of string `yaml:"of"`
	// Path is that of the first page. {{since}} in it is the time from which on
	// entries are wanted; without it the list must have the newest first, and is
	// read until its entries are older.
	Path  string `yaml:"path"`
	Since string `yaml:"since"` // how {{since}} is written: unix, or rfc3339, which empty means too
	Items string `yaml:"items"` // pointer to the list of entries in a page
	// As is the name under which an answer to a call has what an entry is plainly;
	// empty: they have the same shape.
	As    string `yaml:"as"`
	Made  string `yaml:"made"`  // pointer to when an entry was made, in an entry plainly: RFC 3339 or Unix seconds
	Alias string `yaml:"alias"` // pointer in an entry plainly to another id of the same payment; empty: none
	// Key and Orders are pointers in an entry plainly to the provider key and to the
	// order's id that its request carried; of several the first that is there counts.
	Key    string   `yaml:"key"`
	Orders []string `yaml:"orders"`
	// Paths are the paths of the requests whose payments are listed, without a
	// query, of two steps the first. Empty: of all.
	Paths []string `yaml:"paths"`
	Next  Next     `yaml:"next"`
}

// Next is how the page after a page is asked for. An empty page is the last one.
type Next struct {
	// Link points to the next page's address, which must be below base_url. It
	// excludes the rest; none there: the page is the last.
	Link string `yaml:"link"`
	// Parameter is the query's parameter that asks for the next page, and its value
	// one of: what Cursor points to in the page, where none makes it the last one;
	// what Last points to in the page's last entry plainly; or, with neither, the
	// page's number.
	Parameter string `yaml:"parameter"`
	Cursor    string `yaml:"cursor"`
	Last      string `yaml:"last"`
	More      string `yaml:"more"` // pointer to false in the last page; empty: nothing says so
}

// listing is a List that has been checked.
type listing struct {
	path, since, as          string
	items, made, alias, key  pointer // nil: none, but for items and made
	orders                   []pointer
	link, cursor, last, more pointer
	parameter                string
	newestFirst              bool // it ends with what is older than what is asked for
	paths                    []string
	*reader
}

func compileList(l *List, lines []*line) (*listing, error) {
	if l == nil {
		return nil, nil
	}
	c := &listing{path: l.Path, since: l.Since, as: l.As, parameter: l.Next.Parameter, paths: l.Paths, newestFirst: !strings.Contains(l.Path, "{{since}}")}
	if err := CheckPath(strings.ReplaceAll(l.Path, "{{since}}", "0")); err != nil {
		return nil, fmt.Errorf("list.path: %w", err)
	}
	if l.Since != "" && l.Since != "unix" && l.Since != "rfc3339" {
		return nil, fmt.Errorf("list.since %q: unix or rfc3339", l.Since)
	}
	i := slices.IndexFunc(lines, func(one *line) bool { return one.Name == l.Of && one.Refused == "" })
	if i < 0 {
		return nil, fmt.Errorf("list.of %q: there is no line of that name", l.Of)
	}
	c.reader = lines[i].reader
	for _, at := range []struct {
		name, text string
		to         *pointer
	}{
		{"items", l.Items, &c.items}, {"made", l.Made, &c.made}, {"alias", l.Alias, &c.alias}, {"key", l.Key, &c.key},
		{"next.link", l.Next.Link, &c.link}, {"next.cursor", l.Next.Cursor, &c.cursor}, {"next.last", l.Next.Last, &c.last}, {"next.more", l.Next.More, &c.more},
	} {
		if at.text == "" {
			continue
		}
		var err error
		if *at.to, err = parsePointer(at.text); err != nil {
			return nil, fmt.Errorf("list.%s: %w", at.name, err)
		}
	}
	for _, text := range l.Orders {
		at, err := parsePointer(text)
		if err != nil {
			return nil, fmt.Errorf("list.orders: %w", err)
		}
		c.orders = append(c.orders, at)
	}
	switch {
	case c.items == nil || c.made == nil:
		return nil, errors.New("list: it needs items and made")
	case (c.link != nil) == (c.parameter != "") || c.cursor != nil && c.last != nil || c.link != nil && (c.cursor != nil || c.last != nil):
		return nil, errors.New("list.next: link alone, or parameter with cursor, with last, or with neither")
	}
	return c, nil
}

// Listed is one payment in a provider's list that is a final yes, or was one as far as
// that can be seen.
type Listed struct {
	// Back is what the entry says of money that went back; empty: nothing. Gone: it is no
	// yes, and perhaps never was; only Reference, Alias, Key and At count then.
	Back string
	Gone bool

	Reference string
	Alias     string // another id of the same payment; empty: none
	Key       string // the provider key that it carried; empty: none is known
	Order     string // empty: none is known
	Amount    zabor.Money
	At        time.Time
}

// Lists reports whether the profile has a list, for [Provider.List].
func (p *Provider) Lists() bool { return p.list != nil }

// ListsPath reports whether payments that a request with this path makes are in
// the list; of two steps it is that of the first.
func (p *Provider) ListsPath(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	if p.list == nil || len(p.list.paths) == 0 {
		return true
	}
	return slices.Contains(p.list.paths, path)
}

// listTries is how often one page is asked for: limits of rate are common, and a
// list of millions is read for hours.
const listTries = 8

// List gets one page of what the provider did since then, and says where the next
// one is; an empty next is that of the first page, and of the end. Entries that are
// not a final yes are left out, so that a page may be empty and not the last. The
// zero time asks for everything. Only GETs are sent. A page that the provider
// refuses for now (429, 503, or no answer) is asked for again, a few times, when it
// says so or after a while.
//
// An entry that is a yes and cannot be read is an error: a list that leaves it out
// would say that all is well.
func (p *Provider) List(ctx context.Context, since time.Time, page string) (found []Listed, next string, err error) {
	if p.list == nil {
		return nil, "", fmt.Errorf("list of %s: its profile has none", p.name)
	}
	if page == "" {
		page = strings.ReplaceAll(p.list.path, "{{since}}", p.list.sinceText(since))
	}
	document, err := p.listPage(ctx, page)
	if err != nil {
		return nil, "", fmt.Errorf("list of %s: %w", p.name, err)
	}
	found, next, err = p.readPage(document, since, page)
	if err != nil {
		return nil, "", fmt.Errorf("list of %s: %w", p.name, err)
	}
	return found, next, nil
}

func (l *listing) sinceText(since time.Time) string {
	if since.IsZero() {
		since = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if l.since == "unix" {
		return strconv.FormatInt(since.Unix(), 10)
	}
	return url.QueryEscape(since.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// listPage gets a page, with patience.
func (p *Provider) listPage(ctx context.Context, path string) (document any, err error) {
	for try := range listTries {
		var wait time.Duration
		if document, wait, err = p.tryPage(ctx, path); err == nil || wait == 0 {
			return document, err
		}
		if try == listTries-1 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(max(wait, time.Duration(1<<try)*p.listPause)):
		}
	}
	return nil, fmt.Errorf("asked %d times: %w", listTries, err)
}

// tryPage gets a page once. After an error, wait is when to ask again at the
// earliest; 0: asking again is of no use.
func (p *Provider) tryPage(ctx context.Context, path string) (document any, wait time.Duration, err error) {
	const soon = time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := p.newRequest(ctx, Request{Method: http.MethodGet, Path: path}, nil)
	if err != nil {
		return nil, 0, err
	}
	resp, err := p.lookups.Do(req)
	if err != nil {
		return nil, soon, err
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp)
	if err != nil {
		return nil, soon, err
	}
	switch {
	case a.status == http.StatusTooManyRequests, a.status/100 == 5:
		const longest = 5 * time.Minute
		return nil, min(max(retryAfter(a.header, time.Now()), soon), longest), fmt.Errorf("it answered %d %s", a.status, http.StatusText(a.status))
	case a.status != http.StatusOK:
		return nil, 0, fmt.Errorf("it answered %d %s to GET %s; may this secret list payments?", a.status, http.StatusText(a.status), path)
	}
	if document, err = decodeJSON(a.body); err != nil {
		return nil, 0, fmt.Errorf("the answer is not one JSON value: %w", err)
	}
	return document, 0, nil
}

// readPage reads the entries of a page, and where the next one is.
func (p *Provider) readPage(document any, since time.Time, page string) (found []Listed, next string, err error) {
	l := p.list
	value, _ := l.items.in(document)
	entries, ok := value.([]any)
	if !ok {
		return nil, "", errors.New("the answer has no list where list.items points to")
	}
	old := false
	for _, entry := range entries {
		made, err := when(l.made.scalarIn(entry))
		if err != nil {
			return nil, "", err
		}
		if l.newestFirst && made.Before(since) {
			old = true
			continue
		}
		one, ok, err := p.readEntry(entry, made)
		if err != nil {
			return nil, "", err
		}
		if ok {
			found = append(found, one)
		}
	}
	if len(entries) == 0 || old || l.more != nil && l.more.scalarIn(document) == "false" {
		return found, "", nil
	}
	next, err = p.nextPage(document, entries[len(entries)-1], page)
	return found, next, err
}

func (p *Provider) readEntry(entry any, made time.Time) (one Listed, ok bool, err error) {
	l, plain := p.list, entry
	if l.as != "" {
		entry = map[string]any{l.as: entry}
	}
	said := l.says(0, nil, entry)
	back := ""
	for _, a := range p.after {
		if a.line.reader == l.reader {
			back, _ = a.says(l.reader, entry) // what says nothing did not go back
		}
	}
	if said.word != settled && back == "" {
		return one, false, nil
	}
	one = Listed{Back: back, Gone: said.word != settled, Reference: l.id(said.reference, entry), Alias: l.alias.scalarIn(plain), Key: l.key.scalarIn(plain), At: made}
	if one.Gone {
		return one, one.Reference != "", nil
	}
	if one.Reference == "" {
		return one, false, errors.New("an entry that is a yes has no reference")
	}
	for _, at := range l.orders {
		if one.Order == "" {
			one.Order = at.scalarIn(plain)
		}
	}
	if one.Amount, err = l.moneyIn(entry); err != nil {
		return one, false, fmt.Errorf("%s: %w", one.Reference, err)
	}
	return one, true, nil
}

// moneyIn is the amount of an entry; the zero Money where the profile points to
// none.
func (c *reader) moneyIn(document any) (zabor.Money, error) {
	at := c.minor
	if c.major != nil {
		at = c.major
	}
	code := strings.ToUpper(c.currency.scalarIn(document))
	if c.currency == nil || code == "" || at == nil {
		return zabor.Money{}, nil
	}
	return c.money(at.scalarIn(document), code)
}

// nextPage is the path of the page behind the one of that path; empty: there is
// none.
func (p *Provider) nextPage(document, last any, page string) (string, error) {
	l := p.list
	if l.link != nil {
		link := l.link.scalarIn(document)
		if link == "" {
			return "", nil
		}
		path, below := strings.CutPrefix(link, p.base.String())
		if !below {
			return "", fmt.Errorf("the next page is at %.200q, which is not below %s", link, p.base)
		}
		return path, moves(path, page)
	}
	value := ""
	switch {
	case l.cursor != nil:
		if value = l.cursor.scalarIn(document); value == "" {
			return "", nil
		}
	case l.last != nil:
		if value = l.last.scalarIn(last); value == "" {
			return "", errors.New("the last entry of a page has nothing where list.next.last points to")
		}
	}
	u, err := url.Parse(page)
	if err != nil {
		return "", err
	}
	query := u.Query()
	if value == "" {
		n, err := strconv.Atoi(query.Get(l.parameter))
		if err != nil {
			n = 1
		}
		value = strconv.Itoa(n + 1)
	}
	query.Set(l.parameter, value)
	u.RawQuery = query.Encode()
	return u.String(), moves(u.String(), page)
}

// moves refuses a next page that is the page itself: it would be read for ever.
func moves(next, page string) error {
	if next == page {
		return errors.New("its next page is the same page again")
	}
	return CheckPath(next)
}

// when reads when an entry was made.
func when(text string) (time.Time, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(n, 0).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("an entry was made at %.60q, which is no time", text)
	}
	return t.UTC(), nil
}
