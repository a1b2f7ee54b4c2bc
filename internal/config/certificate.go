package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// certificates are those of the proxy.
type certificates struct {
	of *ProxyTLS
	followed[*tls.Config]
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
	files := secretFiles{x.Cert: nil, x.Key: nil}
	if x.ClientCA != "" {
		files[x.ClientCA] = nil
	}
	there, _ := files.again(time.Now()) // before they are read
	config, err := x.read()
	return &certificates{of: x, followed: follow("a file of the proxy's certificates", config, there, report)}, err
}

func (c *certificates) current() *tls.Config {
	config, _ := c.latest(func(secretFiles) (*tls.Config, error) { return c.of.read() })
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
