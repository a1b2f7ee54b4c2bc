// Package stopat stops this process at a checkpoint, for tests and proofs with kills.
package stopat

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"zabor"
	"zabor/worker"
)

// Checkpoint returns a function for the fence and the worker. It stops this process by
// SIGSTOP, once, at moment: a checkpoint, or a checkpoint and an order after a colon. An
// empty moment does not stop it.
func Checkpoint(moment string) func(zabor.Checkpoint, zabor.Key) {
	var once sync.Once
	return func(m zabor.Checkpoint, k zabor.Key) {
		if moment == string(m) || moment == string(m)+":"+k.Order {
			once.Do(func() {
				// To this very thread: sent to the process, the signal would
				// leave this goroutine running for a moment.
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
			})
		}
	}
}

// ackHook calls at for [worker.Acking]: Redis has carried out an ack and replied, and the
// reply has not come back to the worker.
type ackHook struct {
	at func(zabor.Checkpoint, zabor.Key)
}

// AckHook returns a hook for a client of the queues. at is a function of [Checkpoint].
func AckHook(at func(zabor.Checkpoint, zabor.Key)) redis.Hook { return ackHook{at} }

func (h ackHook) told(ctx context.Context, err error, cmds ...redis.Cmder) error {
	acks := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { // and not what begins a connection
		return slices.Contains([]string{"evalsha", "eval", "zrem", "lrem"}, cmd.Name())
	})
	if acks && err == nil { // else a script that Redis does not know yet is sent again
		for _, key := range worker.AcksOf(ctx) {
			h.at(worker.Acking, key)
		}
	}
	return err
}

func (h ackHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h ackHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.told(ctx, next(ctx, cmd), cmd) }
}

func (h ackHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.told(ctx, next(ctx, cmds), cmds...) }
}
