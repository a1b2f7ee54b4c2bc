package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

// perUser is how many sessions a user has at the same time at most: the oldest
// ends for a new one.
const perUser = 16

// sessions are those of the signed-in. A session is found by the digest of its
// id, so that how long a look-up takes says nothing about an id.
type sessions struct {
	idle, absolute time.Duration

	mu   sync.Mutex
	byID map[[sha256.Size]byte]*session
}

// session is one browser of a user's, from login to logout.
type session struct {
	who    Identity
	key    [sha256.Size]byte
	begun  time.Time
	unused *time.Timer     // ends it
	ctx    context.Context // ends with it
	end    context.CancelFunc
}

func newSessions(idle, absolute time.Duration) *sessions {
	return &sessions{idle: idle, absolute: absolute, byID: map[[sha256.Size]byte]*session{}}
}

// begin makes a session for who and returns its id.
func (all *sessions) begin(who Identity) (id string) {
	id = rand.Text() + rand.Text()
	s := &session{who: who, key: sha256.Sum256([]byte(id)), begun: time.Now()}
	s.ctx, s.end = context.WithTimeout(context.Background(), all.absolute)
	all.mu.Lock()
	defer all.mu.Unlock()
	var oldest *session
	n := 0
	for _, other := range all.byID {
		if other.who.Name == who.Name {
			n++
			if oldest == nil || other.begun.Before(oldest.begun) {
				oldest = other
			}
		}
	}
	if n >= perUser {
		all.remove(oldest)
	}
	s.unused = time.AfterFunc(all.idle, func() { all.over(s) })
	context.AfterFunc(s.ctx, func() { all.over(s) })
	all.byID[s.key] = s
	return id
}

// get is the session of that id; nil: there is none, or none any more. used: it
// is not idle.
func (all *sessions) get(id string, used bool) *session {
	if id == "" {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	s := all.byID[sha256.Sum256([]byte(id))]
	if s == nil || s.ctx.Err() != nil {
		return nil
	}
	if used {
		s.unused.Reset(all.idle)
	}
	return s
}

func (all *sessions) over(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(s)
}

// remove ends s, under the lock.
func (all *sessions) remove(s *session) {
	s.unused.Stop()
	s.end()
	delete(all.byID, s.key)
}

// cookieName is the session cookie's. A browser takes one with __Host- only over
// https, from the very host that it is sent to, so that no neighbour can set it.
func (g *Guard) cookieName() string {
	if g.secure {
		return "__Host-zabor"
	}
	return "zabor-session"
}

// sessionID is the id that r carries; empty: none.
func (g *Guard) sessionID(r *http.Request) string {
	c, err := r.Cookie(g.cookieName())
	if err != nil {
		return ""
	}
	return c.Value
}

// cookie carries id; empty: it takes the cookie back. Lax, so that a link in an
// alert opens the page of whoever is signed in; what changes something is a POST
// from the dashboard's own pages only.
func (g *Guard) cookie(id string) *http.Cookie {
	c := &http.Cookie{Name: g.cookieName(), Value: id, Path: "/", Secure: g.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if id == "" {
		c.MaxAge = -1
	}
	return c
}
