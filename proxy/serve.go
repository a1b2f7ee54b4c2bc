package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"zabor"
	"zabor/listen"
)

// Serve takes requests from l until ctx ends, and closes l. It returns when every call that
// was begun has been saved. A request without a fence is cut off after the longest call's
// time. Callers speak TLS if secure is not nil. It may be called once.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	longest := bodyTime
	for _, up := range p.o.Upstreams {
		longest = max(longest, up.Timeout())
	}
	defer context.AfterFunc(ctx, func() { time.AfterFunc(longest, p.cut) })()
	err := listen.Serve(ctx, guarded{l}, listen.Options{Handler: p, Read: bodyTime, Finish: longest + zabor.SaveTimeout, Log: p.o.Log})
	p.calls.Wait()
	p.cut()
	return err
}

// unhurried is the context of a request whose caller cannot end it: a caller may close
// its sending side and still wait for the answer. It ends with a stop of the proxy.
func (p *Proxy) unhurried(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(p.passing, cancel)
	return ctx, func() { stop(); cancel() }
}
