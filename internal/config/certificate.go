package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificates are those of the proxy: what their files hold, or held before they became
// unusable.
type certificates struct {
	of     *ProxyTLS
	report func(error)
	now    func() time.Time

	mu     sync.Mutex
	taken  secretFiles // as they were when config was read
	config *tls.Config
	bad    secretFiles // as they were when they could not be taken
}

// ServerTLS is how callers of the proxy speak TLS; nil: they do not. Files that change
// are read again by the next connection that comes [SettleTime] later; report is told,
// once for each change, why one was not taken. HTTP/1 only, as the requests are checked.
func (p *Proxy) ServerTLS(report func(error)) (*tls.Config, error) {
	if p.TLS == nil {
		return nil, nil
	}
	c, err := p.TLS.certificates(report)
	if err != nil {
		return nil, err
	}
	return c.server(), nil
}

func (c *certificates) server() *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil },
		MinVersion:         tls.VersionTLS12,
	}
}

func (x *ProxyTLS) certificates(report func(error)) (*certificates, error) {
	c := &certificates{of: x, report: report, now: time.Now, taken: secretFiles{x.Cert: nil, x.Key: nil}}
	if x.ClientCA != "" {
		c.taken[x.ClientCA] = nil
	}
	c.taken, _ = c.taken.again(c.now())
	var err error
	c.config, err = x.read()
	return c, err
}

// current looks at the files.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	there, settled := c.taken.again(c.now())
	if there.same(c.taken) || !settled || there.same(c.bad) {
		return c.config
	}
	config, err := c.of.read()
	if after, _ := c.taken.again(c.now()); !after.same(there) {
		return c.config // they changed meanwhile: the next connection looks again
	}
	if err != nil {
		c.bad = there
		c.report(fmt.Errorf("a file of the proxy's certificates has changed and is not taken; what was read before is used on: %w", err))
		return c.config
	}
	c.config, c.taken, c.bad = config, there, nil
	return config
}

func (x *ProxyTLS) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(x.Cert, x.Key)
	if err != nil {
		return nil, fmt.Errorf("proxy.tls.cert: %w", err)
	}
	secure := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	if x.ClientCA == "" {
		return secure, nil
	}
	text, err := os.ReadFile(x.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("proxy.tls.client_ca: %w", err)
	}
	secure.ClientCAs = x509.NewCertPool()
	if !secure.ClientCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("proxy.tls.client_ca: there is no certificate in it")
	}
	secure.ClientAuth = tls.RequireAndVerifyClientCert
	// Their keys outlive a change: whose authority is not taken any more must not come
	// back with one.
	secure.SessionTicketsDisabled = true
	return secure, nil
}
