package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"zabor/internal/decision"
	"zabor/internal/exit"
	"zabor/internal/stopat"
)

// whoDecides returns the name of the person: by, else the user of this session, else the owner
// of this process.
func whoDecides(by string) (string, error) {
	if by == "" {
		by = os.Getenv("USER")
	}
	if u, err := user.Current(); by == "" && err == nil {
		by = u.Username
	}
	if by == "" {
		return "", exit.Usage(errors.New("nobody knows who decides: $USER is not set, and this process's user has no name"), "add --by NAME")
	}
	return by, nil
}

// announce prints the effect of m.
func announce(ctx context.Context, to io.Writer, k *decision.Decider, m decision.Planned) {
	fmt.Fprintf(to, "zabor: %s\n", strings.Join(k.Preview(ctx, m), "\nzabor: "))
	for _, warning := range m.Warnings() {
		fmt.Fprintf(to, "zabor: warning: %s\n", warning)
	}
}

// openDecider opens the fence and the failure transports. With keep, messages stay where
// they are.
func (p *program) openDecider(keep bool, stop string) (k *decision.Decider, closeAll func(), err error) {
	file, store, err := p.openFence()
	if err != nil {
		return nil, nil, err
	}
	k = &decision.Decider{File: file, Store: store, At: stopat.Checkpoint(stop)}
	if k.Fence, err = decision.NewFence(p.ctx, file, store, p.Alert); err != nil {
		store.Close()
		return nil, nil, err
	}
	closeAll = func() { store.Close() }
	switch {
	case keep:
		k.Kept = "its message stays where it is (--keep)"
	case len(file.Queues) == 0:
		k.Kept = "no queues are configured: its message is not looked for"
	default:
		var closeQueues func()
		if k.Failures, closeQueues, err = p.failuresOf(file, store, nil); err != nil {
			store.Close()
			return nil, nil, err
		}
		closeAll = func() { closeQueues(); store.Close() }
	}
	return k, closeAll, nil
}
