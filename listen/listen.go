// Package listen serves HTTP within bounds: times for each part of a request, a limit of
// connections, and a stop that ends.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options are the bounds of one listener.
type Options struct {
	Handler http.Handler
	TLS     *tls.Config // nil: callers speak HTTP without TLS

	// Read bounds the head and the body of a request, from its first byte. A handler
	// may move it by [http.ResponseController.SetReadDeadline].
	Read time.Duration
	// Write bounds the answer, from the end of the head; 0: the handler bounds it.
	Write time.Duration
	// Finish is how long requests may go on after the context has ended. Then their
	// connections are closed.
	Finish time.Duration

	Log *slog.Logger // gets what net/http says, at debug level; nil: nothing is logged
}

// Bounds that every listener has.
const (
	headTime = 10 * time.Second // of a request's head
	idleTime = time.Minute      // between two requests of a connection
	maxHead  = 32 << 10         // bytes of a request's head
	maxConns = 2048
)

// Serve answers at l until ctx ends, and closes l. It returns after the last handler, but
// at most o.Finish after the end of ctx. The context of a request does not end with ctx.
//
// A listener has at most 2,048 connections, and at most a quarter of the descriptors that
// the process may open. At the limit a new connection takes the place of the oldest one
// without a request. If all have one, the new connection is closed.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	if o.TLS != nil {
		l = tls.NewListener(l, o.TLS)
	}
	conns := connections{most: limit(), waiting: map[net.Conn]time.Time{}, busy: map[net.Conn]bool{}}
	server := &http.Server{
		Handler:     o.Handler,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnState:   conns.changed,
		ReadTimeout: o.Read, ReadHeaderTimeout: min(headTime, o.Read), WriteTimeout: o.Write, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHead,
	}
	if o.Log != nil {
		server.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Finish)
		defer cancel()
		if server.Shutdown(limit) != nil {
			_ = server.Close() // their time is over
		}
	})
	err := server.Serve(l)
	if stop() { // it failed by itself
		_ = server.Close()
		return err
	}
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// limit is the number of connections that one listener may have.
func limit() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return maxConns
	}
	return int(min(maxConns, max(files.Cur/4, 16)))
}

// connections counts the connections of one listener.
type connections struct {
	most int

	mu      sync.Mutex
	waiting map[net.Conn]time.Time // have no request at present, since then
	busy    map[net.Conn]bool
}

// changed follows a connection. It is called by its server.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.waiting)+len(c.busy) >= c.most && !c.closeOldest() {
			_ = conn.Close()
			return
		}
		c.waiting[conn] = time.Now()
	case http.StateIdle:
		delete(c.busy, conn)
		c.waiting[conn] = time.Now()
	case http.StateActive:
		delete(c.waiting, conn)
		c.busy[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.waiting, conn)
		delete(c.busy, conn)
	}
}

// closeOldest closes the connection that has waited longest for a request. It returns
// false if none waits.
func (c *connections) closeOldest() bool {
	var oldest net.Conn
	var since time.Time
	for conn, at := range c.waiting {
		if oldest == nil || at.Before(since) {
			oldest, since = conn, at
		}
	}
	if oldest == nil {
		return false
	}
	delete(c.waiting, oldest)
	_ = oldest.Close()
	return true
}
