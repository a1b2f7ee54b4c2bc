// Package access decides who may see and do what on the dashboard: users and
// their two roles, sessions, and what keeps other sites' pages out.
package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Role is what a user may do.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // sees everything, changes nothing
	Operator Role = "operator" // decides too
)

// User may sign in.
type User struct {
	Name string // 1 to 48 bytes of visible text; it is recorded with each decision
	Hash string // of the password, as [CheckHash] takes it
	Role Role
}

// Identity is who asks. The zero Identity is nobody.
type Identity struct {
	Name string
	Role Role
}

// Options are what a guard is made of.
type Options struct {
	// Users may sign in. Without any there is no login: everybody who reaches the
	// handler is an operator called Alone. It must be reached on loopback only then.
	Users []User
	Alone string // needed where there are no users, and as long as their names may be

	// URL is the dashboard's address as a browser sees it, such as
	// https://zabor.shop.example; empty: it is asked for by an IP address or as
	// localhost. Cookies are Secure where it begins with https.
	URL string

	// Proxies are believed about whom they speak for (X-Forwarded-For), see
	// [ParseProxies]. Of all others the header is ignored.
	Proxies []netip.Prefix

	Idle     time.Duration // a session unused for so long ends; zero: 1 h
	Absolute time.Duration // a session ends then, used or not; zero: 12 h

	Log *slog.Logger // who signed in, who did not; nil: nobody is told
}

// Guard stands before the dashboard. It may be used concurrently.
//
// Its sessions are in memory: a restart ends all of them, and so does what a
// restart brings, such as a user who was taken out. Two processes share none.
type Guard struct {
	o        Options
	secure   bool
	hosts    map[string]bool // lower case, beside IP addresses and localhost
	cross    *http.CrossOriginProtection
	users    map[string]User
	decoys   []string // what the password of a user that is not there is held against
	sessions *sessions
	byName   *limiter
	byPeer   *limiter
	hashing  chan struct{} // each hash takes memory and a processor
}

const maxName = 48 // so that two of them fit where a decision's author is kept

// New makes a guard of o. The error names the user or the option that is wrong.
func New(o Options) (*Guard, error) {
	if o.Idle == 0 {
		o.Idle = time.Hour
	}
	if o.Absolute == 0 {
		o.Absolute = 12 * time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{
		o: o, cross: http.NewCrossOriginProtection(), users: map[string]User{},
		sessions: newSessions(o.Idle, o.Absolute),
		// A person who mistypes is never stopped by these. Who guesses gets some
		// thousand tries a day from one address, which is too few to use up those of a
		// name: one address cannot keep its user out.
		byName:  newLimiter(60, 3*time.Second),
		byPeer:  newLimiter(10, 15*time.Second),
		hashing: make(chan struct{}, 2),
	}
	if err := g.setURL(o.URL); err != nil {
		return nil, err
	}
	if len(o.Users) == 0 {
		if err := CheckName(o.Alone); err != nil {
			return nil, fmt.Errorf("the name for decisions where there are no users: %w", err)
		}
	}
	for _, u := range o.Users {
		if err := u.validate(); err != nil {
			return nil, err
		}
		if _, twice := g.users[u.Name]; twice {
			return nil, fmt.Errorf("user %q is there twice", u.Name)
		}
		g.users[u.Name] = u
		decoy, err := decoyLike(u.Hash)
		if err != nil {
			return nil, fmt.Errorf("user %q: %w", u.Name, err)
		}
		g.decoys = append(g.decoys, decoy)
	}
	g.cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "This was sent by a page of another site. Nothing was done.", http.StatusForbidden)
	}))
	return g, nil
}

func (u User) validate() error {
	if err := CheckName(u.Name); err != nil {
		return fmt.Errorf("user %q: %w", u.Name, err)
	}
	if u.Role != Viewer && u.Role != Operator {
		return fmt.Errorf("user %q: role %q is neither viewer nor operator", u.Name, u.Role)
	}
	if err := CheckHash(u.Hash); err != nil {
		return fmt.Errorf("user %q: %w", u.Name, err)
	}
	return nil
}

// CheckName says why name cannot be a user's.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("a user's name has 1 to %d bytes, and this one %d", maxName, len(name))
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }):
		return errors.New("a user's name has no control characters, and no blanks at its ends")
	}
	return nil
}

type identityKey struct{}

// From is who asks, within the next handler of [Guard.Handler]; elsewhere nobody.
func From(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}

// SignsIn reports whether there are users, and so something to sign out of.
func (g *Guard) SignsIn() bool { return len(g.users) > 0 }

// Handler asks everybody who they are before next. It answers /login, /login.css,
// /favicon.ico and /logout itself, refuses what other sites' pages send and what is sent to
// another name than the dashboard's, and sets the headers that keep a browser
// from running, framing or leaking what it should not.
//
// The context of a request to next ends with its session, so that nothing is
// streamed to somebody who has signed out.
func (g *Guard) Handler(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", g.showLogin)
	mux.HandleFunc("POST /login", g.login)
	mux.HandleFunc("GET /login.css", serveStyle)
	mux.HandleFunc("GET /favicon.ico", serveIcon)
	mux.HandleFunc("POST /logout", g.logout)
	mux.Handle("/", g.signedIn(next))
	return g.browserSafe(g.knownHost(g.cross.Handler(mux)))
}

// Operator lets only operators through to next; others get 403, and nothing is
// done. It belongs behind [Guard.Handler].
func (g *Guard) Operator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := From(r.Context())
		if id.Role != Operator {
			g.o.Log.Warn("a viewer asked for what operators do", "user", id.Name, "method", r.Method, "path", r.URL.Path)
			http.Error(w, "Operators decide, and "+id.Name+" is a viewer. Nothing was done.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// signedIn lets through to next who has a session.
func (g *Guard) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.SignsIn() {
			next.ServeHTTP(w, as(r.Context(), r, Identity{Name: g.o.Alone, Role: Operator}))
			return
		}
		s := g.sessions.get(g.sessionID(r), byPerson(r))
		if s == nil {
			askToSignIn(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		next.ServeHTTP(w, as(ctx, r, s.who))
	})
}

func as(ctx context.Context, r *http.Request, id Identity) *http.Request {
	return r.WithContext(context.WithValue(ctx, identityKey{}, id))
}

// byPerson reports whether a person asks rather than a page that keeps itself
// fresh: such a page, left open, must not keep its session alive. Browsers say so
// over https and on localhost; where they do not, every request counts.
func byPerson(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate" || r.Method != http.MethodGet && r.Method != http.MethodHead
}

// askToSignIn sends a person to the login page and tells a script.
func askToSignIn(w http.ResponseWriter, r *http.Request) {
	mode := r.Header.Get("Sec-Fetch-Mode")
	page := mode == "navigate" || mode == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
	if r.Method == http.MethodGet && page {
		http.Redirect(w, r, loginFor(r.URL), http.StatusSeeOther)
		return
	}
	http.Error(w, "Sign in first: nothing was done.", http.StatusUnauthorized)
}
