// Command zabor is a fence around payment calls: each (order, step) is charged
// at most once, although the queue that asks for it delivers at least once.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"zabor/internal/console"

	"github.com/redis/go-redis/v9"
)

func main() {
	defer func() {
		if fault := recover(); fault != nil {
			os.Exit(console.Fault(os.Stderr, version, fault))
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	redis.SetLogger(quiet{}) // what it says comes back as an error too
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// quiet is a logger of nothing.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
