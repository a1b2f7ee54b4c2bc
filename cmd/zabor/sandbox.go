package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"zabor/internal/exit"
	"zabor/sandbox"
)

type sandboxCommand struct {
	Listen     string        `default:"127.0.0.1:8099" placeholder:"HOST:PORT" help:"Where to listen; port 0 takes a free one."`
	KeyLife    time.Duration `help:"After which an idempotency key is forgotten; 0: never."`
	IgnoreKeys bool          `help:"A provider without idempotency: each POST charges."`
	LookupLag  time.Duration `help:"How much later its look-up sees a payment."`
}

func (c *sandboxCommand) Run(p *program) error {
	s := sandbox.New(sandbox.Options{KeyLife: c.KeyLife, IgnoreKeys: c.IgnoreKeys, LookupLag: c.LookupLag})
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return exit.Usage(err, "write another address after --listen")
	}
	fmt.Fprintf(p.stdout, "http://%s\n", listener.Addr())
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(p.ctx, func() { server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
