// Package pipe sends the commands of concurrent callers to Redis in one pipeline.
package pipe

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"zabor/worker"
)

// most is how many commands one pipeline has at most.
const most = 128

// Pipe sends commands through one client. It may be used concurrently.
//
// A command is sent at once if no pipeline is under way. Commands that come
// meanwhile go in the next pipeline, together. Each has its own reply, and an error
// of one is no error of another. A connection that breaks is an error of all whose
// reply has not come: Redis may have run them.
type Pipe struct {
	client redis.UniversalClient

	mu      sync.Mutex
	busy    bool // a pipeline is under way, or its leader was woken
	waiting []*call
}

// New makes a pipe of client.
func New(client redis.UniversalClient) *Pipe { return &Pipe{client: client} }

// call is a command and its caller.
type call struct {
	ctx    context.Context
	script *redis.Script // nil: args are a plain command
	keys   []string
	args   []any
	reply  *redis.Cmd
	wake   chan bool // true: send the next pipeline; false: the reply is there
}

// Do runs a command. ctx is looked at before it is sent, and not while it waits
// for its reply: the client's own time-outs bound that.
func (p *Pipe) Do(ctx context.Context, args ...any) *redis.Cmd {
	return p.run(&call{ctx: ctx, args: args})
}

// Run runs a script, as Do runs a command.
func (p *Pipe) Run(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	return p.run(&call{ctx: ctx, script: script, keys: keys, args: args})
}

func (p *Pipe) run(c *call) *redis.Cmd {
	p.mu.Lock()
	p.waiting = append(p.waiting, c)
	if p.busy {
		c.wake = make(chan bool, 1)
		p.mu.Unlock()
		if lead := <-c.wake; !lead {
			return c.reply
		}
	} else {
		p.busy = true
		p.mu.Unlock()
	}
	p.lead(c)
	return c.reply
}

// lead sends the pipeline of c, the first of those that wait, and then wakes the
// leader of the next one.
func (p *Pipe) lead(c *call) {
	p.mu.Lock()
	n := min(len(p.waiting), most)
	calls := p.waiting[:n:n]
	p.waiting = p.waiting[n:]
	p.mu.Unlock()
	defer func() { // also after a panic
		for _, other := range calls {
			if other == c {
				continue
			}
			if other.reply == nil {
				other.reply = failed(other.ctx, redis.ErrClosed)
			}
			other.wake <- false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.busy = len(p.waiting) > 0; p.busy {
			p.waiting[0].wake <- true
		} else {
			p.waiting = nil
		}
	}()
	p.send(calls)
}

// send gives each call its reply.
func (p *Pipe) send(calls []*call) {
	wanted := make([]*call, 0, len(calls))
	for _, c := range calls {
		if err := c.ctx.Err(); err != nil {
			c.reply = failed(c.ctx, err)
			continue
		}
		wanted = append(wanted, c)
	}
	p.exec(wanted, false)
	unknown := wanted[:0]
	for _, c := range wanted {
		if c.script != nil && redis.HasErrorPrefix(c.reply.Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	p.exec(unknown, true)
}

// exec runs calls in one pipeline. whole: scripts are sent as their text.
func (p *Pipe) exec(calls []*call, whole bool) {
	if len(calls) == 0 {
		return
	}
	ctx := calls[0].ctx
	if len(calls) > 1 {
		var acks []context.Context
		for _, c := range calls {
			acks = append(acks, c.ctx)
		}
		ctx = worker.JoinAcks(context.WithoutCancel(ctx), acks...)
	}
	if len(calls) == 1 {
		calls[0].reply = calls[0].add(ctx, p.client, whole)
		return
	}
	pipeline := p.client.Pipeline()
	replies := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		replies[i] = c.add(ctx, pipeline, whole)
	}
	_, _ = pipeline.Exec(ctx) // each command has its own error
	for i, c := range calls {
		c.reply = replies[i]
	}
}

// commander is a client or a pipeline.
type commander interface {
	redis.Scripter
	Do(ctx context.Context, args ...any) *redis.Cmd
}

func (c *call) add(ctx context.Context, to commander, whole bool) *redis.Cmd {
	switch {
	case c.script == nil:
		return to.Do(ctx, c.args...)
	case whole:
		return c.script.Eval(ctx, to, c.keys, c.args...)
	}
	return c.script.EvalSha(ctx, to, c.keys, c.args...)
}

func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
