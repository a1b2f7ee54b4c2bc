// Command zabor is a fence around payment calls: each (order, step) is charged
// at most once, although its queue delivers at least once.
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
	redis.SetLogger(quiet{}) // its messages come back as errors too
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// quiet is a logger without output.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
