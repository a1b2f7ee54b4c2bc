package access

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/maphash"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

//go:embed login.html
var loginText string

//go:embed login.css
var loginStyle []byte

//go:embed icon.svg
var icon []byte

var loginPage = template.Must(template.New("login").Parse(loginText))

func serveStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Write(loginStyle)
}

func serveIcon(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Cache-Control", "max-age=86400")
	w.Write(icon)
}

// loginFor is the login page that leads back to u.
func loginFor(u *url.URL) string {
	if u.RequestURI() == "/" {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(u.RequestURI())
}

// backTo is next where it is a path of the dashboard's own, else its front page:
// nobody is sent to another site by our own login.
func backTo(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.ContainsFunc(next, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }) {
		return "/"
	}
	return next
}

// loginForm is what the login page shows.
type loginForm struct {
	Next, Name, Problem string
}

func (g *Guard) showLogin(w http.ResponseWriter, r *http.Request) {
	next := backTo(r.URL.Query().Get("next"))
	if !g.SignsIn() || g.sessions.get(g.sessionID(r), false) != nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	g.writeLogin(w, http.StatusOK, loginForm{Next: next})
}

func (g *Guard) writeLogin(w http.ResponseWriter, status int, form loginForm) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := loginPage.Execute(w, form); err != nil {
		g.o.Log.Debug("the login page was not written", "error", err)
	}
}

// login takes name, password and next of a form.
func (g *Guard) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "This is not the login form.", http.StatusBadRequest)
		return
	}
	form := loginForm{Next: backTo(r.PostForm.Get("next")), Name: r.PostForm.Get("name")}
	if !g.SignsIn() {
		http.Redirect(w, r, form.Next, http.StatusSeeOther)
		return
	}
	user, err := g.authenticate(r, form.Name, r.PostForm.Get("password"))
	var often *tooOften
	switch {
	case errors.As(err, &often):
		w.Header().Set("Retry-After", strconv.Itoa(often.seconds()))
		form.Problem = fmt.Sprintf("Too many tries. Wait %d seconds, then try again.", often.seconds())
		g.writeLogin(w, http.StatusTooManyRequests, form)
		return
	case err != nil:
		form.Problem = "Name or password is wrong."
		g.writeLogin(w, http.StatusUnauthorized, form)
		return
	}
	if old := g.sessions.get(g.sessionID(r), false); old != nil {
		g.sessions.over(old)
	}
	http.SetCookie(w, g.cookie(g.sessions.begin(Identity{Name: user.Name, Role: user.Role})))
	http.Redirect(w, r, form.Next, http.StatusSeeOther)
}

// logout ends the session everywhere.
func (g *Guard) logout(w http.ResponseWriter, r *http.Request) {
	if s := g.sessions.get(g.sessionID(r), false); s != nil {
		g.sessions.over(s)
		g.o.Log.Info("signed out", "user", s.who.Name)
	}
	if g.SignsIn() {
		http.SetCookie(w, g.cookie(""))
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// tooOften says that a login was not even tried.
type tooOften struct{ wait time.Duration }

func (e *tooOften) Error() string { return fmt.Sprintf("too many tries; again in %v", e.wait) }
func (e *tooOften) seconds() int  { return max(1, int(math.Ceil(e.wait.Seconds()))) }

var errWrong = errors.New("name or password is wrong")

// authenticate is the user of that name and password. It takes the same time, and
// is refused as often, whether there is such a user or not. A try counts before it
// is made, so that many at once are no more than one after another.
func (g *Guard) authenticate(r *http.Request, name, password string) (User, error) {
	from := g.peer(r)
	if wait, ok := g.byPeer.take(from); !ok {
		g.o.Log.Warn("login refused: too many tries", "remote", from)
		return User{}, &tooOften{wait}
	}
	if wait, ok := g.byName.take(name); !ok {
		g.o.Log.Warn("login refused: too many tries", "user", g.known(name), "remote", from)
		return User{}, &tooOften{wait}
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	select {
	case g.hashing <- struct{}{}:
		defer func() { <-g.hashing }()
	case <-ctx.Done():
		return User{}, &tooOften{time.Second}
	}
	user, there := g.users[name]
	hash := user.Hash
	if !there {
		hash = g.decoys[maphash.String(g.byName.seed, name)%uint64(len(g.decoys))]
	}
	right := len(password) <= MaxPassword && utf8.ValidString(password) && matches(hash, password)
	if !right || !there {
		g.o.Log.Warn("login refused: name or password is wrong", "user", g.known(name), "remote", from)
		return User{}, errWrong
	}
	g.byPeer.giveBack(from)
	g.byName.giveBack(name)
	g.o.Log.Info("signed in", "user", name, "role", string(user.Role), "remote", from)
	return user, nil
}

// known is name for a log: people type passwords where names belong.
func (g *Guard) known(name string) string {
	if _, ok := g.users[name]; ok {
		return name
	}
	return "(not a user)"
}
