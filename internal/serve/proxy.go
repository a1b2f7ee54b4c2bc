package serve

import (
	"fmt"
	"net"
	"strings"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/proxy"
	"zabor/step"
)

// CheckProxy makes the proxy of file as a check.
func (p *Process) CheckProxy(file *config.Config, secrets *config.Rotation, providers connect.Providers) error {
	_, err := p.newProxy(&core{file: file, secrets: secrets, providers: providers})
	return err
}

// newProxy makes the proxy; nil: it is not configured. c may be without a fence, to
// see whether the proxy can be made.
func (p *Process) newProxy(c *core) (*proxy.Proxy, error) {
	x := c.file.Proxy
	if x == nil {
		return nil, nil
	}
	upstreams := map[string]proxy.Upstream{}
	for name, one := range c.providers {
		upstreams[name] = proxy.Upstream{Provider: one, Account: c.file.Providers[name].Account, Volatile: x.Volatile[name]}
	}
	steps := c.file.Compiled()
	options := proxy.Options{
		Fence: c.fence, Upstreams: upstreams, Scope: c.file.Scope,
		Attempts: c.file.Attempts, HoldAfter: c.file.HoldAfter, PendingFor: c.file.PendingFor,
		Check: func(scoped bool, k zabor.Key) error { return checkProxied(steps, scoped, k) },
		Show:  func(row zabor.Row) any { return console.NewRow(row) },
		Allow: x.Allow, Unfenced: x.Unfenced,
		Trusted: x.TLS != nil && x.TLS.ClientCA != "",
		Observe: x.Observe, MaxBody: x.MaxBody, Log: p.Log,
	}
	if x.Token != "" {
		options.Token = c.secrets.ProxyToken
	}
	c.traceProxy(&options)
	door, err := proxy.New(options)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: proxy.%w", c.file.Path, err), "")
	}
	return door, nil
}

// checkProxied checks the key of a proxied call of a configured step: it needs the parts the
// step demands of its messages, and hooks that need no message.
func checkProxied(steps []*step.Step, scoped bool, k zabor.Key) error {
	name, _, part := strings.Cut(k.Step, ":")
	for _, s := range steps {
		if scoped && s.HasPart() && k.Order == s.Name() { // zabor:1001:refund:R-7
			return fmt.Errorf("%s is a step, and stands where the order belongs: write a colon within a part as %%3A: zabor:ORDER:%s%%3A%s", s.Name(), s.Name(), k.Step)
		}
		if s.Name() != name {
			continue
		}
		switch {
		case s.HasPart() && !part:
			return fmt.Errorf("step %s has parts, so that two of an order are two: write %s:ID", name, name)
		case s.HasScope() && !scoped:
			return fmt.Errorf("step %s has a scope of its own: write it into Zabor-Scope", name)
		case len(s.Binds()) > 0:
			return fmt.Errorf("the hooks of step %s bind %s of a message, and a proxied call has none: let them bind the row alone", name, strings.Join(s.Binds(), ", "))
		}
	}
	return nil
}

// loopback reports whether a is an address of this host alone.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
