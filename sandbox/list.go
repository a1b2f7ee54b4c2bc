package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// pages says how a dialect lists all payments, page by page. Its names are those of
// parameters in the address.
type pages struct {
	limit       string // how many are wanted at most
	most        int    // that many are given at most
	since       string // only those that were made since then, as RFC 3339 or Unix seconds; empty: there is no such filter
	next        string // where the page begins
	at          where
	oldestFirst bool
	order       string // parameter that is ASC for the oldest first; empty: there is none
	page        func(p page) any
}

// where is what stands in the parameter next.
type where uint8

const (
	behind where = iota // the id of the last payment of the page before
	from                // the id of the first payment of the page
	nth                 // the number of the page, from 1
)

// page is a part of a list.
type page struct {
	entries []any
	next    string // the parameter next of the page behind it; empty: it is the last
	link    string // its address; empty: it is the last
}

// serveList answers with a page of all payments of d.
func (s *Sandbox) serveList(d *dialect, l *pages, w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	size := l.most
	if n, err := strconv.Atoi(query.Get(l.limit)); err == nil && n > 0 {
		size = min(n, l.most)
	}
	since, err := l.sinceOf(query)
	if err != nil {
		d.failWith(w, err)
		return
	}
	s.mu.Lock()
	all := s.listed(d, since)
	if !l.oldestFirst && (l.order == "" || query.Get(l.order) != "ASC") {
		slices.Reverse(all)
	}
	begin, ok := s.beginning(d, l, query, all, size)
	end := min(begin+size, len(all))
	p := page{entries: []any{}}
	for _, n := range all[min(begin, end):end] {
		p.entries = append(p.entries, d.object(s.result(n, false)))
	}
	s.mu.Unlock()
	if !ok {
		d.failWith(w, refuse(invalidRequest, "there is no such page"))
		return
	}
	if end < len(all) {
		switch l.at {
		case behind:
			p.next = d.id(all[end-1])
		case from:
			p.next = d.id(all[end])
		case nth:
			p.next = strconv.Itoa(begin/size + 2)
		}
		query.Set(l.next, p.next)
		p.link = (&url.URL{Scheme: "http", Host: req.Host, Path: req.URL.Path, RawQuery: query.Encode()}).String()
	}
	answer(w, l.page(p))
}

func (l *pages) sinceOf(query url.Values) (time.Time, error) {
	text := query.Get(l.since)
	if l.since == "" || text == "" {
		return time.Time{}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(n, 0), nil
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return since, refuse(invalidRequest, l.since+" is no time")
	}
	return since, nil
}

// listed are the payments of d since then that a list sees, oldest first. The
// caller holds mu.
func (s *Sandbox) listed(d *dialect, since time.Time) []int32 {
	seen := s.now().Add(-s.o.LookupLag).UnixNano()
	var all []int32
	for n, p := range s.payments {
		if p.speaks == d && p.at <= seen && (since.IsZero() || p.at >= since.UnixNano()) {
			all = append(all, int32(n))
		}
	}
	return all
}

// beginning is where in all the page begins that is asked for; false: nowhere.
func (s *Sandbox) beginning(d *dialect, l *pages, query url.Values, all []int32, size int) (int, bool) {
	text := query.Get(l.next)
	switch {
	case text == "":
		return 0, true
	case l.at == nth:
		n, err := strconv.Atoi(text)
		return (n - 1) * size, err == nil && n > 0
	}
	n, ok := s.number(d, text)
	i := slices.Index(all, n)
	if l.at == behind {
		return i + 1, ok && i >= 0
	}
	return max(i, 0), ok && i >= 0
}
