package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zabor"
	"zabor/provider"
	"zabor/sandbox"
)

// front stands before a bank: it notes what is asked, and answers the first
// requests with what stands in answers.
type front struct {
	bank http.Handler

	mu      sync.Mutex
	asked   []string
	answers []func(w http.ResponseWriter)
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	var first func(http.ResponseWriter)
	if len(f.answers) > 0 {
		first, f.answers = f.answers[0], f.answers[1:]
	}
	f.mu.Unlock()
	if first != nil {
		first(w)
		return
	}
	f.bank.ServeHTTP(w, r)
}

// lister is a provider that reads p's list at f, two entries on a page.
func lister(t *testing.T, p provider.Profile, f *front, below string) *provider.Provider {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	l := *p.List
	for _, size := range []string{"limit=1000", "limit=500", "limit=250", "limit=100", "perPage=100"} {
		name, _, _ := strings.Cut(size, "=")
		l.Path = strings.Replace(l.Path, size, name+"=2", 1)
	}
	p.List = &l
	pr, err := provider.New("bank", p, provider.Options{BaseURL: server.URL + below})
	if err != nil {
		t.Fatal(err)
	}
	pr.PauseBetweenPages(time.Millisecond)
	return pr
}

// read reads the whole list.
func read(t *testing.T, p *provider.Provider, since time.Time) (all []provider.Listed) {
	t.Helper()
	for page := ""; ; {
		found, next, err := p.List(t.Context(), since, page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
		if page = next; page == "" {
			return all
		}
	}
}

// What a pretend provider that speaks a built-in profile has charged is in its
// list, once, whatever its way of paging; nothing but GETs is sent.
func TestBuiltinLists(t *testing.T) {
	t.Parallel()
	lists := 0
	for _, b := range builtinShops {
		known, _ := provider.BuiltinNamed(b.profile())
		if known.Base.List == nil {
			if why := known.Why["list"]; !strings.Contains(why, "Export") {
				t.Errorf("%s: it has no list, and nothing says what to export: %q", known.Name, why)
			}
			continue
		}
		lists++
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := b.open(t, 0)
			s.timeout = 30 * time.Second
			for _, order := range []string{"1", "2", "no", "3", "4"} {
				call := s.provider.Call
				if order == "no" {
					call = s.faulty(sandbox.Fault{Kind: sandbox.Declined})
				}
				if err := s.do(order, call); err != nil {
					t.Fatal(err)
				}
			}
			p, err := known.Profile(b.account, "s3cret")
			if err != nil {
				t.Fatal(err)
			}
			f := &front{bank: s.bank}
			pr := lister(t, p, f, "/"+known.Name)
			got, want, gone := []string{}, []string{}, 0
			for _, one := range read(t, pr, time.Now().Add(-time.Hour)) {
				if one.Gone && one.Back != "" {
					gone++ // the refusal: no yes
					continue
				}
				if one.Key == "" && one.Order == "" || p.List.Key != "" && one.Key == "" {
					t.Errorf("%s: neither key nor order: %+v", one.Reference, one)
				}
				if one.Amount != s.money || time.Since(one.At) > time.Hour {
					t.Errorf("%+v", one)
				}
				got = append(got, one.Reference)
			}
			for _, order := range []string{"control", "1", "2", "3", "4"} {
				for _, c := range s.bank.Charges(order) {
					want = append(want, c.ID)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if len(want) != 5 || !slices.Equal(got, want) || gone > 1 {
				t.Errorf("listed %q and %d that are no yes, want %q", got, gone, want)
			}
			if late := read(t, pr, time.Now().Add(time.Hour)); len(late) > 0 {
				t.Errorf("made in an hour from now: %+v", late)
			}
			for _, asked := range f.asked {
				if !strings.HasPrefix(asked, "GET ") {
					t.Errorf("sent: %s", asked)
				}
			}
			if len(f.asked) < 4 {
				t.Errorf("%d pages", len(f.asked))
			}
			if !pr.ListsPath(firstPath(b)) || pr.ListsPath("/v1/refunds") {
				t.Errorf("paths: %q", p.List.Paths)
			}
		})
	}
	if lists < 6 {
		t.Errorf("%d profiles have a list", lists)
	}
}

func firstPath(b builtinShop) string {
	if b.prepare.Path != "" {
		return b.prepare.Path
	}
	return b.request.Path
}

// charged is a bank with n charges, and its profile.
func charged(t *testing.T, n int) (*front, provider.Profile) {
	s := newShop(t, sandbox.Options{}, 0, own).asks(provider.RequestSpec{}, posts("/payments", object{"amount": "{{minor}}", "currency": "{{currency}}", "order": "{{order}}"}))
	s.timeout = 30 * time.Second
	for i := range n {
		if err := s.do(fmt.Sprint(i), s.provider.Call); err != nil {
			t.Fatal(err)
		}
	}
	return &front{bank: s.bank}, sandbox.Profile("http://127.0.0.1:1", time.Second)
}

func status(code int, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// A limit of rate is waited for as long as it says, an outage for a while, and a
// list that is broken off goes on at the page that it had.
func TestListPatience(t *testing.T) {
	t.Parallel()
	f, p := charged(t, 5)
	pr := lister(t, p, f, "")
	f.answers = []func(http.ResponseWriter){status(429, "Retry-After", "1"), status(503), func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }}
	begin := time.Now()
	first, next, err := pr.List(t.Context(), time.Time{}, "")
	if err != nil || len(first) != 2 || next == "" {
		t.Fatalf("%d entries, next %q, %v", len(first), next, err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("after %s, and Retry-After was a second", took)
	}
	again := lister(t, p, f, "")
	var rest []provider.Listed
	for page := next; page != ""; {
		var found []provider.Listed
		if found, page, err = again.List(t.Context(), time.Time{}, page); err != nil {
			t.Fatal(err)
		}
		rest = append(rest, found...)
	}
	if got := len(first) + len(rest); got != 5 || rest[0].Order != "2" {
		t.Errorf("%d entries, and page two begins with order %s", got, rest[0].Order)
	}
	for _, one := range rest {
		if one.Key == "" || one.Amount != (zabor.Money{Minor: 1999, Currency: "EUR"}) || one.At.IsZero() {
			t.Errorf("%+v", one)
		}
	}
}

// What cannot be read ends the list, with the reason: one that leaves entries out
// would say that all is well.
func TestListRefused(t *testing.T) {
	t.Parallel()
	body := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
	}
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   string
	}{
		{"a secret that may not", status(403), "403 Forbidden to GET /payments"},
		{"a wrong address", status(404), "404"},
		{"a redirect", status(302, "Location", "http://127.0.0.1:1/"), "302"},
		{"no list", body(`{}`), "no list"},
		{"no JSON", body(`<html>`), "not one JSON value"},
		{"no time", body(`{"data": [{"id": "a", "status": "paid", "created": "soon"}]}`), `"soon", which is no time`},
		{"no reference", body(`{"data": [{"status": "paid", "created": "2026-03-02T10:00:00Z"}]}`), "no reference"},
		{"no amount", body(`{"data": [{"id": "a", "status": "paid", "created": "2026-03-02T10:00:00Z", "currency": "EUR", "amount": "x"}]}`), "a: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &front{answers: []func(http.ResponseWriter){tt.answer}}
			pr := lister(t, sandbox.Profile("http://127.0.0.1:1", time.Second), f, "")
			if _, _, err := pr.List(t.Context(), time.Time{}, ""); err == nil || !strings.Contains(err.Error(), tt.want) || len(f.asked) != 1 {
				t.Errorf("after %d requests: %v, want %s", len(f.asked), err, tt.want)
			}
		})
	}
	f := &front{}
	for range 8 {
		f.answers = append(f.answers, status(500))
	}
	pr := lister(t, sandbox.Profile("http://127.0.0.1:1", time.Second), f, "")
	if _, _, err := pr.List(t.Context(), time.Time{}, ""); err == nil || !strings.Contains(err.Error(), "asked 8 times") {
		t.Errorf("an outage that does not end: %v", err)
	}
}

// A next page that leads elsewhere, or round in a circle, is not followed.
func TestListLinks(t *testing.T) {
	t.Parallel()
	const page = `{"data": [{"id": "a", "status": "paid", "created": "2026-03-02T10:00:00Z"}], "next": %q}`
	for _, tt := range []struct{ name, next, want string }{
		{"another host", "http://127.0.0.1:1/payments?after=a", "is not below"},
		{"the same page", "/payments", "the same page"},
		{"dots", "/a/../payments", "dots"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &front{}
			p := sandbox.Profile("http://127.0.0.1:1", time.Second)
			p.List = &provider.List{Path: "/payments", Items: "/data", Made: "/created", Next: provider.Next{Link: "/next"}}
			server := httptest.NewServer(f)
			defer server.Close()
			pr, err := provider.New("bank", p, provider.Options{BaseURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			next := tt.next
			if strings.HasPrefix(next, "/") {
				next = server.URL + next
			}
			f.answers = []func(http.ResponseWriter){func(w http.ResponseWriter) { fmt.Fprintf(w, page, next) }}
			if _, _, err := pr.List(t.Context(), time.Time{}, ""); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestListValidate(t *testing.T) {
	for _, tt := range []struct {
		change func(*provider.List)
		want   string
	}{
		{func(*provider.List) {}, ""},
		{func(l *provider.List) { l.Path = "payments" }, "list.path"},
		{func(l *provider.List) { l.Since = "monday" }, "list.since"},
		{func(l *provider.List) { l.Items = "" }, "items and made"},
		{func(l *provider.List) { l.Made = "created" }, "list.made"},
		{func(l *provider.List) { l.Orders = []string{"order"} }, "list.orders"},
		{func(l *provider.List) { l.Next = provider.Next{} }, "list.next"},
		{func(l *provider.List) { l.Next.Link = "/next" }, "list.next"},
		{func(l *provider.List) { l.Next.Last = "/id" }, "list.next"},
	} {
		p := sandbox.Profile("http://127.0.0.1:1", time.Second)
		tt.change(p.List)
		if err := p.Validate(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
