package access

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

const (
	opsPassword  = "correct horse battery"
	viewPassword = "just looking around"
)

// hashes are of passwords above; made once, since they take time.
var hashes = sync.OnceValues(func() (ops, view string) {
	a := cheap(opsPassword)
	b, err := bcrypt.GenerateFromPassword([]byte(viewPassword), minCost)
	if err != nil {
		panic(err)
	}
	return a, strings.Replace(string(b), "$2a$", "$2y$", 1) // as PHP writes it
})

// cheap is a hash that takes as little as is allowed.
func cheap(password string) string {
	a := argon{memory: minMemory, time: 1, threads: 1, salt: []byte("saltsalt")}
	a.sum = a.of(password, 32)
	return a.String()
}

func users() []User {
	ops, view := hashes()
	return []User{{"ops", ops, Operator}, {"finance", ops, Operator}, {"view", view, Viewer}}
}

// site is a dashboard that says who asks, at a real address.
type site struct {
	*httptest.Server
	guard   *Guard
	decided chan string // who decided something
	log     *bytes.Buffer
}

func newSite(t *testing.T, o Options, start func(*httptest.Server)) *site {
	s := &site{decided: make(chan string, 16), log: &bytes.Buffer{}}
	var mu sync.Mutex
	o.Log = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return s.log.Write(p)
	}), nil))
	var err error
	if s.guard, err = New(o); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{rest...}", func(w http.ResponseWriter, r *http.Request) {
		id := From(r.Context())
		fmt.Fprintf(w, "%s %s %s", id.Name, id.Role, r.URL.RequestURI())
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.Handle("POST /decide", s.guard.Operator(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.decided <- From(r.Context()).Name
	})))
	s.Server = httptest.NewUnstartedServer(s.guard.Handler(mux))
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func plain(s *httptest.Server)  { s.Start() }
func secure(s *httptest.Server) { s.StartTLS() }

// browser keeps cookies and follows nothing.
type browser struct {
	*http.Client
	t    *testing.T
	base string
}

func (s *site) browser(t *testing.T) *browser {
	jar, _ := cookiejar.New(nil)
	c := *s.Client()
	c.Jar = jar
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{&c, t, s.URL}
}

func (b *browser) do(method, path string, form url.Values, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Add(name, value)
	}
	resp, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(body)
}

func (b *browser) login(name, password string, headers ...string) (*http.Response, string) {
	return b.do("POST", "/login", url.Values{"name": {name}, "password": {password}, "next": {"/fences?state=held"}}, headers...)
}

func TestSessions(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users()}, plain)
	b := s.browser(t)

	resp, _ := b.do("GET", "/fences?order=1%262", nil, "Accept: text/html")
	if got, want := resp.Header.Get("Location"), "/login?next=%2Ffences%3Forder%3D1%25262"; resp.StatusCode != 303 || got != want {
		t.Errorf("a stranger's page: %d to %q, want 303 to %q", resp.StatusCode, got, want)
	}
	if resp, body := b.do("GET", "/live", nil, "Sec-Fetch-Mode: cors"); resp.StatusCode != 401 || strings.Contains(body, "/live") {
		t.Errorf("a stranger's script: %d %q, want 401", resp.StatusCode, body)
	}
	if resp, _ := b.do("POST", "/decide", url.Values{}); resp.StatusCode != 401 {
		t.Errorf("a stranger's decision: %d, want 401", resp.StatusCode)
	}

	resp, _ = b.login("ops", opsPassword)
	if got, want := resp.Header.Get("Location"), "/fences?state=held"; resp.StatusCode != 303 || got != want {
		t.Fatalf("login: %d to %q, want 303 to %q", resp.StatusCode, got, want)
	}
	if _, body := b.do("GET", "/a?b", nil); body != "ops operator /a?b" {
		t.Errorf("signed in: %q", body)
	}
	if resp, _ := b.do("POST", "/decide", url.Values{}); resp.StatusCode != 200 || <-s.decided != "ops" {
		t.Errorf("an operator's decision: %d", resp.StatusCode)
	}

	// Another browser of a viewer's.
	v := s.browser(t)
	if resp, body := v.login("view", viewPassword); resp.StatusCode != 303 {
		t.Fatalf("login by a hash of PHP's: %d %s", resp.StatusCode, body)
	}
	if resp, body := v.do("POST", "/decide", url.Values{}); resp.StatusCode != 403 || len(s.decided) > 0 {
		t.Errorf("a viewer's decision: %d %q, %d decided; want 403 and none", resp.StatusCode, body, len(s.decided))
	}

	// A stolen cookie is worth nothing after logout, and what is streamed ends.
	base, _ := url.Parse(s.URL)
	stolen := b.Jar.Cookies(base)
	stream, err := b.Get(s.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if resp, _ := b.do("POST", "/logout", url.Values{}); resp.StatusCode != 303 {
		t.Errorf("logout: %d", resp.StatusCode)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	thief := s.browser(t)
	thief.Jar.SetCookies(base, stolen)
	if resp, _ := thief.do("GET", "/", nil); len(stolen) != 1 || resp.StatusCode != 401 {
		t.Errorf("%d stolen cookies: %d, want 1 and 401", len(stolen), resp.StatusCode)
	}
	if _, body := v.do("GET", "/", nil); !strings.HasPrefix(body, "view viewer") {
		t.Errorf("another's logout: %q", body)
	}
}

// A session id that was there before the login is worth nothing after it, and one
// that the server did not make never is.
func TestFixation(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users()}, plain)
	b := s.browser(t)
	base, _ := url.Parse(s.URL)
	b.Jar.SetCookies(base, []*http.Cookie{{Name: "zabor-session", Value: "planted"}})
	b.login("view", viewPassword)
	first := b.Jar.Cookies(base)[0].Value
	b.login("ops", opsPassword)
	second := b.Jar.Cookies(base)[0].Value
	for _, id := range []string{"planted", first} {
		if id == second {
			t.Errorf("the login kept the id %q", id)
		}
		other := s.browser(t)
		if resp, _ := other.do("GET", "/", nil, "Cookie: zabor-session="+id); resp.StatusCode != 401 {
			t.Errorf("id %q: %d, want 401", id, resp.StatusCode)
		}
	}
	if len(second) < 40 {
		t.Errorf("an id of %d signs can be guessed", len(second))
	}
}

func TestCookies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url   string
		start func(*httptest.Server)
		want  string
	}{
		{"", plain, "zabor-session=ID; Path=/; HttpOnly; SameSite=Lax"},
		{"https://zabor.shop.example", secure, "__Host-zabor=ID; Path=/; HttpOnly; Secure; SameSite=Lax"},
	} {
		s := newSite(t, Options{Users: users(), URL: tt.url}, tt.start)
		b := s.browser(t)
		resp, _ := b.login("ops", opsPassword)
		set := resp.Header.Get("Set-Cookie")
		_, rest, _ := strings.Cut(set, ";")
		name, _, _ := strings.Cut(set, "=")
		if got := name + "=ID;" + rest; got != tt.want {
			t.Errorf("url %q: cookie %q, want %q", tt.url, got, tt.want)
		}
		if _, body := b.do("GET", "/", nil); !strings.HasPrefix(body, "ops") {
			t.Errorf("url %q: the cookie does not come back: %q", tt.url, body)
		}
	}
}

// What pages of other sites can send, and what they cannot do by it.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users(), URL: "https://Zabor.shop.example:443"}, secure)
	b := s.browser(t)
	if resp, body := b.login("ops", opsPassword); resp.StatusCode != 303 {
		t.Fatal(resp.StatusCode, body)
	}
	base, _ := url.Parse(s.URL)
	cookie := "Cookie: " + b.Jar.Cookies(base)[0].String()
	b.Jar = nil // it would go by Host
	for _, tt := range []struct {
		name    string
		headers []string
		want    int
	}{
		{"own page", []string{"Sec-Fetch-Site: same-origin"}, 200},
		{"own page behind a proxy that changes Host", []string{"Origin: https://zabor.shop.example"}, 200},
		{"no browser", nil, 200},
		{"other site", []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, 403},
		{"neighbour under one domain", []string{"Sec-Fetch-Site: same-site", "Origin: https://blog.shop.example"}, 403},
		{"old browser, other site", []string{"Origin: https://evil.example"}, 403},
		{"sandboxed frame", []string{"Origin: null"}, 403},
		{"other scheme", []string{"Origin: http://zabor.shop.example"}, 403},
		{"name of another", []string{"Host: evil.example"}, 421},
		{"name that begins alike", []string{"Host: zabor.shop.example.evil.example"}, 421},
		{"own name", []string{"Host: ZABOR.shop.example"}, 200},
		{"localhost", []string{"Host: localhost:8071"}, 200},
		{"IPv6", []string{"Host: [::1]:8071"}, 200},
	} {
		resp, body := b.do("POST", "/decide", url.Values{}, append(slices.Clone(tt.headers), cookie)...)
		if resp.StatusCode != tt.want {
			t.Errorf("%s: %d %q, want %d", tt.name, resp.StatusCode, body, tt.want)
		}
		if got := len(s.decided) == 1; got != (tt.want == 200) {
			t.Errorf("%s: decided=%v", tt.name, got)
		}
		for len(s.decided) > 0 {
			<-s.decided
		}
	}
	// Login and logout are no less worth to forge.
	for _, path := range []string{"/login", "/logout"} {
		if resp, _ := b.do("POST", path, url.Values{"name": {"ops"}, "password": {opsPassword}}, "Sec-Fetch-Site: cross-site"); resp.StatusCode != 403 || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s from another site: %d", path, resp.StatusCode)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users()}, plain)
	b := s.browser(t)
	for _, path := range []string{"/", "/login", "/nothing"} {
		resp, _ := b.do("GET", path, nil)
		policy := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy has no %q: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s", path, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	_, page := b.do("GET", "/login?next="+url.QueryEscape(`/"><script>alert(1)</script>`), nil)
	if strings.Contains(page, "<script") || strings.Contains(page, "style=") || strings.Contains(page, "<style") {
		t.Errorf("the login page has what its policy forbids:\n%s", page)
	}
}

func TestBackTo(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/fences?state=held": "/fences?state=held", "": "/", "/": "/", "fences": "/", "https://evil.example": "/", "//evil.example": "/",
		"/\\evil.example": "/", "/\tevil": "/", "javascript:alert(1)": "/", "/%2f/evil.example": "/%2f/evil.example", "https:/evil": "/", "///evil.example": "/",
	} {
		if got := backTo(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

// One address that guesses at a user's name does not keep the user out, however
// long it goes on.
func TestOneAddressKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	g := newSite(t, Options{Users: users()}, plain).guard
	if g.byName.burst <= g.byPeer.burst || g.byName.every >= g.byPeer.every {
		t.Errorf("%d tries and one in %v by an address, %d and one in %v at a name", g.byPeer.burst, g.byPeer.every, g.byName.burst, g.byName.every)
	}
	s := newSite(t, Options{Users: users(), Proxies: loopback(t)}, plain)
	s.guard.byPeer.every = time.Hour // however slow this machine is
	from := func(address string) string { return "X-Forwarded-For: " + address }
	b := s.browser(t)
	for i := range 12 {
		if resp, _ := b.login("ops", "wrong", from("203.0.113.1")); (resp.StatusCode == 429) != (i >= 10) {
			t.Errorf("try %d: %d", i+1, resp.StatusCode)
		}
	}
	if resp, _ := b.login("ops", opsPassword, from("203.0.113.2")); resp.StatusCode != 303 {
		t.Errorf("the user from elsewhere: %d, want 303", resp.StatusCode)
	}
}

// loopback are this host's addresses, as configured proxies.
func loopback(t *testing.T) []netip.Prefix {
	t.Helper()
	proxies, err := ParseProxies([]string{"127.0.0.1", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	return proxies
}

// A program on this host that forges X-Forwarded-For is one address: it cannot use up
// the tries of an operator's name.
func TestForgedAddressLocksNobodyOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users()}, plain)
	s.guard.byName.every, s.guard.byPeer.every = time.Hour, time.Hour // however slow this machine is
	s.guard.byName.burst = 12                                         // a hash takes its time
	b := s.browser(t)
	for i := range 20 {
		if resp, _ := b.login("ops", "wrong", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)); (resp.StatusCode == 429) != (i >= 10) {
			t.Fatalf("try %d: %d", i+1, resp.StatusCode)
		}
	}
	if _, ok := s.guard.byName.take("ops"); !ok {
		t.Error("the operator's name has no tries left")
	}
}

// Whoever guesses is stopped, by address and by name, and a name that is not there
// is answered as one that is.
func TestGuessing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users(), Proxies: loopback(t)}, plain)
	s.guard.byName.every, s.guard.byPeer.every = time.Hour, time.Hour // however slow this machine is
	s.guard.byName.burst = 10                                         // a hash takes its time
	from := func(address string) string { return "X-Forwarded-For: 8.8.8.8, " + address }
	b := s.browser(t)
	for _, name := range []string{"ops", "nobody"} {
		var first string
		for i := range 11 {
			resp, body := b.login(name, "wrong", from(fmt.Sprintf("203.0.113.%d", i+1)))
			want := 401
			if i == 10 {
				want = 429
			}
			if resp.StatusCode != want || (want == 429) != (resp.Header.Get("Retry-After") != "") {
				t.Fatalf("try %d of %s: %d, want %d", i+1, name, resp.StatusCode, want)
			}
			body = strings.ReplaceAll(body, name, "NAME")
			if first == "" {
				first = body
			}
			if want == 401 && body != first {
				t.Errorf("%s is told:\n%s\nand was:\n%s", name, body, first)
			}
		}
	}
	if resp, _ := b.login("ops", opsPassword, from("203.0.113.99")); resp.StatusCode != 429 {
		t.Errorf("the right password after ten wrong ones: %d, want 429", resp.StatusCode)
	}
	if resp, _ := b.login("view", viewPassword, from("203.0.113.99")); resp.StatusCode != 303 {
		t.Errorf("another user: %d, want 303", resp.StatusCode)
	}

	// One network that tries many names, all at once.
	var wg sync.WaitGroup
	codes := make(chan int, 30)
	for i := range 30 {
		wg.Go(func() {
			resp, _ := s.browser(t).login(fmt.Sprintf("user%d", i), "wrong", from(fmt.Sprintf("2001:db8:1:2::%d", i)))
			codes <- resp.StatusCode
		})
	}
	wg.Wait()
	close(codes)
	tried := 0
	for code := range codes {
		if code == 401 {
			tried++
		}
	}
	if tried > 10 {
		t.Errorf("%d tries of one network in a moment, want 10", tried)
	}
	if resp, _ := b.login("finance", opsPassword, from("2001:db8:1:3::1")); resp.StatusCode != 303 {
		t.Errorf("the network beside: %d, want 303", resp.StatusCode)
	}
	for _, secret := range []string{opsPassword, viewPassword, "nobody", "user7"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// A user who is not there costs as much as one who is.
func TestDecoys(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Users: users()[:2]}, plain)
	ops, _ := parseArgon(users()[0].Hash)
	for _, decoy := range s.guard.decoys {
		a, err := parseArgon(decoy)
		if err != nil || a.memory != ops.memory || a.time != ops.time || a.threads != ops.threads || len(a.sum) != len(ops.sum) || matches(decoy, opsPassword) {
			t.Errorf("decoy %+v, %v", a, err)
		}
	}
	_, view := hashes()
	decoy, err := decoyLike(view)
	if cost, _ := bcrypt.Cost([]byte(decoy)); err != nil || cost != minCost || matches(decoy, viewPassword) {
		t.Errorf("decoy of cost %d, %v", cost, err)
	}
}

func TestAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Alone: "root on this host"}, plain)
	b := s.browser(t)
	if _, body := b.do("GET", "/x", nil); body != "root on this host operator /x" {
		t.Errorf("%q", body)
	}
	if resp, _ := b.do("GET", "/login", nil); resp.StatusCode != 303 || resp.Header.Get("Location") != "/" {
		t.Errorf("login: %d", resp.StatusCode)
	}
	for _, headers := range [][]string{{"Origin: https://evil.example"}, {"Host: evil.example"}, {"Sec-Fetch-Site: cross-site"}} {
		if resp, _ := b.do("POST", "/decide", url.Values{}, headers...); resp.StatusCode < 400 || len(s.decided) > 0 {
			t.Errorf("%v: %d", headers, resp.StatusCode)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	ops, view := hashes()
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, "1 to 48 bytes"},
		{Options{Users: []User{{"", ops, Viewer}}}, "1 to 48 bytes"},
		{Options{Users: []User{{"a\nb", ops, Viewer}}}, "control characters"},
		{Options{Users: []User{{"a", ops, "root"}}}, "neither viewer nor operator"},
		{Options{Users: []User{{"a", "secret", Viewer}}}, "no hash"},
		{Options{Users: []User{{"a", strings.Replace(ops, "m=8192", "m=99999999", 1), Viewer}}}, "KiB to check"},
		{Options{Users: []User{{"a", strings.Replace(ops, "m=8192", "m=64", 1), Viewer}}}, "KiB to check"},
		{Options{Users: []User{{"a", strings.Replace(ops, "t=1", "t=1000000", 1), Viewer}}}, "passes"},
		{Options{Users: []User{{"a", strings.Replace(ops, "$v=19", "$v=16", 1), Viewer}}}, "no hash"},
		{Options{Users: []User{{"a", strings.Replace(view, "$10$", "$04$", 1), Viewer}}}, "bcrypt's cost is 4"},
		{Options{Users: []User{{"a", ops, Viewer}, {"a", ops, Operator}}}, "twice"},
		{Options{Alone: "a", URL: "zabor.example"}, "https://HOST"},
		{Options{Alone: "a", URL: "https://zabor.example/zabor"}, "root of its host"},
	} {
		if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), ops) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	for password, want := range map[string]string{"": "at least", "eleven char": "at least", strings.Repeat("x", 1025): "at most"} {
		if _, err := Hash(password); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a password of %d bytes: %v, want %q", len(password), err, want)
		}
	}
}
