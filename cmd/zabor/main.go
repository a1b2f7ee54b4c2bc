// Command zabor is a fence around payment calls: each (order, step) is charged
// at most once, although the queue that asks for it delivers at least once.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

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
			exit(reportFault(stderr, fault))
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	redis.SetLogger(quiet{}) // what it says comes back as an error too
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

// quiet is a logger of nothing.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
