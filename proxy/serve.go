package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve takes requests from l until ctx ends, and returns when every call that
// was begun has been saved and answered. What has no fence has as long as the
// longest call may take, and is cut off then. Callers speak TLS where secure is
// not nil. It closes l.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	passing, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           p,
		BaseContext:       func(net.Listener) context.Context { return passing },
		ReadHeaderTimeout: headTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    2 * maxHead, // guard has the say
		ErrorLog:          slog.NewLogLogger(p.o.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		longest := time.Duration(0)
		for _, up := range p.o.Upstreams {
			longest = max(longest, up.Timeout())
		}
		defer time.AfterFunc(longest, cut).Stop()
		// Not cancelled: a call's own time-out and that of its saving end it.
		_ = server.Shutdown(context.WithoutCancel(ctx))
	})
	err := server.Serve(guarded{l})
	if stop() {
		close(stopped) // it failed by itself
		server.Close()
	}
	<-stopped
	p.calls.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
