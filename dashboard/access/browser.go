package access

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy lets a page take everything from the dashboard itself and nothing from
// elsewhere; no script, style or handler stands in a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// browserSafe sets the headers of every answer. next may say that something may
// be cached.
func (g *Guard) browserSafe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// Not no-referrer: a browser would send Origin: null with our own forms.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// setURL takes the dashboard's own address.
func (g *Guard) setURL(address string) error {
	g.hosts = map[string]bool{"localhost": true}
	if address == "" {
		return nil
	}
	u, err := ParseURL(address)
	if err != nil {
		return err
	}
	g.secure = u.Scheme == "https"
	host := strings.ToLower(u.Host) // as browsers write it in Origin
	host = strings.TrimSuffix(host, map[string]string{"https": ":443", "http": ":80"}[u.Scheme])
	g.hosts[strings.ToLower(u.Hostname())] = true
	return g.cross.AddTrustedOrigin(u.Scheme + "://" + host)
}

// ParseURL reads the address of a dashboard: a scheme and a host, at whose root it
// is. The error does not quote it.
func ParseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the dashboard's url must be https://HOST or http://HOST")
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the dashboard's url is a scheme and a host, and nothing behind: it must be at the root of its host")
	}
	return u, nil
}

// knownHost refuses requests under a foreign name. A page of another site may let
// its own name point to 127.0.0.1, and its browser then takes the dashboard for
// that site (DNS rebinding); an IP address in Host cannot come about so.
func (g *Guard) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if _, err := netip.ParseAddr(host); err != nil && !g.hosts[strings.ToLower(host)] {
			g.o.Log.Warn("a request under a foreign name was refused", "host", r.Host, "remote", r.RemoteAddr)
			http.Error(w, "The dashboard does not go by this name. Write dashboard.url, or ask for it by its IP address.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
