package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"zabor/provider"
)

// authorized reports whether r, a request in d with these fields, comes with
// credentials: of [Options.Secret] where that is set, else any.
func (s *Sandbox) authorized(d *dialect, r *http.Request, fields map[string]any) bool {
	if s.o.Secret == "" && d.auth != provider.AuthGrant {
		return true
	}
	_, secret, basic := r.BasicAuth()
	bearer, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch d.auth {
	case provider.AuthBasic:
		return basic && secret == s.o.Secret
	case provider.AuthBearer:
		return isBearer && bearer == s.o.Secret
	case provider.AuthHeader:
		return r.Header.Get("X-API-Key") == s.o.Secret
	case provider.AuthFields:
		return at(fields, "password") == s.o.Secret
	case provider.AuthSigned:
		return signature(fields, s.o.Secret) == at(fields, "Token")
	case provider.AuthGrant:
		s.mu.Lock()
		defer s.mu.Unlock()
		until, ok := s.tokens[bearer]
		return isBearer && ok && s.now().Before(until)
	}
	return true
}

// signature is T-Bank's digest of a request.
func signature(fields map[string]any, password string) string {
	values := map[string]string{"Password": password}
	for name := range fields {
		switch fields[name].(type) {
		case map[string]any, []any:
		default:
			if name != "Token" {
				values[name] = at(fields, name)
			}
		}
	}
	text := ""
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text += values[name]
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// tokenLife is how long an access token holds.
const tokenLife = 8 * time.Hour

// serveGrant gives an access token to whoever has the secret.
func (s *Sandbox) serveGrant(d *dialect, w http.ResponseWriter, r *http.Request, fields map[string]any) {
	_, secret, ok := r.BasicAuth()
	if !ok || s.o.Secret != "" && secret != s.o.Secret || at(fields, "grant_type") != "client_credentials" {
		d.fail(w, http.StatusUnauthorized, failed{code: unauthorized, text: "client authentication failed"})
		return
	}
	s.mu.Lock()
	token := fmt.Sprintf("A21AA%d", len(s.tokens)+1)
	s.tokens[token] = s.now().Add(tokenLife)
	s.mu.Unlock()
	answer(w, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(tokenLife.Seconds())})
}
