package provider

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"
)

// dialer makes connections to one provider.
type dialer struct {
	host  string      // host:port
	tls   *tls.Config // nil: plain
	proxy *url.URL    // nil: none
}

// sessions is how many TLS sessions a dialer keeps: one, as it has one host.
const sessions = 1

func newDialer(base *url.URL, o Options) (*dialer, error) {
	d := &dialer{host: hostPort(base), proxy: o.Proxy}
	if o.Proxy != nil && (o.Proxy.Scheme != "http" || o.Proxy.Hostname() == "" || base.Scheme != "https") {
		return nil, errors.New("proxy: an address http://host:port of a proxy that takes CONNECT, and a base_url with https")
	}
	if base.Scheme != "https" {
		return d, nil
	}
	d.tls = &tls.Config{}
	if o.TLS != nil {
		d.tls = o.TLS.Clone()
	}
	// Never HTTP/2: it sends a request again after some resets, whatever its
	// method (golang/go#47635).
	d.tls.NextProtos = []string{"http/1.1"}
	// Go's caches know a session by its host alone. A cache of this dialer's own
	// keeps sessions apart by account, client certificate and root certificates.
	d.tls.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
	if d.tls.ServerName == "" {
		d.tls.ServerName = base.Hostname()
	}
	return d, nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// dial makes a connection over which nothing of a request has been sent. tcp is
// the connection beneath TLS. After an error nothing is open.
func (d *dialer) dial(ctx context.Context) (conn net.Conn, tcp *net.TCPConn, err error) {
	first := d.host
	if d.proxy != nil {
		first = hostPort(d.proxy)
	}
	nd := net.Dialer{KeepAlive: -1} // its life is one call, which has a deadline
	c, err := nd.DialContext(ctx, "tcp", first)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = d.open(ctx, c); err != nil {
		c.Close()
		return nil, nil, err
	}
	return conn, c.(*net.TCPConn), nil
}

// open goes over c through the proxy and TLS, where there are any.
func (d *dialer) open(ctx context.Context, c net.Conn) (net.Conn, error) {
	if d.proxy != nil {
		if err := d.connect(ctx, c); err != nil {
			return nil, fmt.Errorf("proxy %s: %w", hostPort(d.proxy), err)
		}
	}
	if d.tls == nil {
		return c, nil
	}
	secure := tls.Client(c, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// ownFault reports whether a request was not sent because of this machine: it has no
// descriptors, memory or ports left, or the call's time was over although the provider
// had less than half of it. begun is when the send began, and why is for people.
func (p *Provider) ownFault(ctx context.Context, begun time.Time, err error) (why string, local bool) {
	for _, own := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, own) {
			return "this machine has no room for a connection: ", true
		}
	}
	deadline, ok := ctx.Deadline()
	if !ok || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errTooLate) {
		return "", false
	}
	before := begun.Sub(deadline.Add(-p.timeout))
	if time.Since(begun) >= p.timeout/2 {
		return "", false
	}
	return fmt.Sprintf("%s of the call's %s were over before the connection was begun (the fence's database was slow, or this machine stood still): ",
		before.Round(time.Millisecond), p.timeout), true
}

// connect asks the proxy at the other end of c for a tunnel.
func (d *dialer) connect(ctx context.Context, c net.Conn) error {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: d.host}, Host: d.host, Header: http.Header{}}
	if user := d.proxy.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(c); err != nil {
		return err
	}
	// TLS is spoken next, and there the client speaks first: the reader cannot
	// have taken any of it.
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(c, maxAnswerHeader)), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // of a yes it is empty
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("CONNECT was answered %s", resp.Status)
	}
	return nil
}
