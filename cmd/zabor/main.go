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
	stderr := newErrorOutput(os.Stderr)
	exit := func(code int) {
		stderr.close()
		os.Exit(code)
	}
	defer func() {
		if fault := recover(); fault != nil {
			exit(console.Fault(stderr, version, fault))
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	redis.SetLogger(quiet{}) // its messages come back as errors too
	exit(run(ctx, os.Args[1:], os.Stdout, stderr))
}

// stopSignals end a process in order. nohup has SIGHUP ignored, and it stays so.
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// quiet is a logger without output.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
