package prove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"zabor/internal/produce"
	"zabor/sandbox"
	"zabor/sqlstore"
)

// cellLimit bounds one cell, and the control orders. Nothing in it takes half of
// that, unless the machine has no time for it or an order is stuck; a machine on
// which the control orders took long has so much more, see [matrix.limit].
const cellLimit = 75 * time.Second

// death is one cell under way. It watches its order at the provider.
type death struct {
	Cell
	scope string // of its rows; its queue's and its files' name too
	t     *timeline
	times Times

	once    sync.Once
	reached chan struct{} // closed: the provider sees the moment
	struck  chan struct{} // closed: the worker has been dealt with
}

func (d *death) asked(gone <-chan struct{}) bool {
	d.t.add(provides, Asked, "a payment request")
	if d.Moment != Sent || !d.strike() || d.Death != Kill {
		return true
	}
	<-gone
	d.t.add(provides, Said, "the client is gone; nothing was done")
	return false
}

func (d *death) charged(c sandbox.Charge) {
	d.t.add(provides, Moved, "charged: %s", c.ID)
	if d.Moment == Charged {
		d.strike()
	}
}

func (d *death) lookedUp() { d.t.add(provides, LookedUp, "a look-up") }

// strike reports whether this is the request at which the worker dies, after it
// has.
func (d *death) strike() bool {
	now := false
	d.once.Do(func() { now = true })
	if now {
		close(d.reached)
		<-d.struck
	}
	return now
}

// cell runs one cell.
func (m *matrix) cell(ctx context.Context, c Cell, number int64) Result {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	return m.try(ctx, c, number, 0)
}

// errAsleep says that a cell shows nothing: whoever was stopped holds SQLite's lock,
// because another part of it was just writing, and nobody else can write anything,
// under whatever strategy.
var errAsleep = errors.New("the worker that was stopped holds the lock of SQLite's file")

// again is how much higher the number of a cell's order is when it is run again.
const again = 100_000

// try runs a cell for the first time (0) or once more.
func (m *matrix) try(ctx context.Context, c Cell, number int64, try int) Result {
	d := &death{Cell: c, scope: c.name(), t: m.place.newTimeline(), times: m.times, reached: make(chan struct{}), struck: make(chan struct{})}
	if try > 0 {
		d.scope += fmt.Sprint(".", try)
	}
	order := fmt.Sprint(number)
	m.gate.watch(order, d)
	result := Result{Cell: c}
	err := m.die(ctx, d, number)
	if errors.Is(err, errAsleep) && try < 3 && ctx.Err() == nil {
		return m.try(ctx, c, number+again, try+1)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not finished after %s", m.limit.Round(time.Second))
	}
	// What was charged is counted even where the cell could not be finished.
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if count := m.count(counting, &result, d.scope, order); err == nil {
		err = count
	}
	if err != nil {
		result.Error = m.place.veil.over(err.Error())
	}
	result.Seconds = time.Since(d.t.start).Seconds()
	result.Timeline = d.t.all()
	return result
}

// die puts the order on its queue, lets a first worker take it, deals with that
// at the moment, and lets a second one finish what is left.
func (m *matrix) die(ctx context.Context, d *death, number int64) error {
	strike := sync.OnceFunc(func() { close(d.struck) })
	defer strike()
	if err := m.place.put(ctx, d.Queue, d.scope, produce.Charge{Order: number, Minor: 1999}); err != nil {
		return err
	}
	d.t.add(queued, Put, "order %d is on the queue", number)
	start, err := m.starter(d)
	if err != nil {
		return err
	}
	if d.Moment == Recaptured {
		zero, err := d.come(ctx, before, start)
		if zero != nil {
			defer zero.kill()
		}
		if err != nil {
			return err
		}
		d.t.add(before, Died, "SIGKILL")
		zero.kill()
	}
	one, err := d.come(ctx, first, start)
	if one != nil {
		defer one.kill()
	}
	if err != nil {
		return err
	}
	if err := d.deal(ctx, one); err != nil {
		return err
	}
	struck := time.Now()
	strike()
	if d.Death == Term {
		if err := one.wait(ctx); err != nil {
			return fmt.Errorf("%w: worker 1 does not stop: %s", err, one.log.tail())
		}
		d.t.add(first, Ended, "ends by itself")
	}

	two, err := start(second, "")
	if err != nil {
		return err
	}
	defer two.kill()
	if err := two.wait(ctx); err != nil {
		return fmt.Errorf("%w: worker 2 has not emptied the queue: %s", err, two.log.tail())
	}
	d.t.add(second, Ended, "ends by itself, with code %d", two.code())
	if d.Death == Stall && two.code() != 0 && strings.Contains(two.log.tail(), "SQLITE_BUSY") {
		return errAsleep
	}
	if d.Death == Stall {
		// Past the reserve, also where there was nothing to do for another.
		select {
		case <-time.After(time.Until(struck.Add(d.times.Reserve + time.Second))):
		case <-ctx.Done():
			return ctx.Err()
		}
		d.t.add(first, Thawed, "SIGCONT")
		if err := one.signal(syscall.SIGCONT); err != nil {
			return err
		}
		if err := one.wait(ctx); err != nil {
			return fmt.Errorf("%w: worker 1 has not ended after SIGCONT: %s", err, one.log.tail())
		}
		d.t.add(first, Ended, "ends by itself, with code %d", one.code())
	}
	if two.code() != 0 {
		return fmt.Errorf("worker 2 ended with code %d: %s", two.code(), two.log.tail())
	}
	return nil
}

// come starts a worker and returns it when it has come to the moment, or with an
// error where it has not; nil: there is none.
func (d *death) come(ctx context.Context, who string, start starter) (*process, error) {
	c, err := start(who, d.Moment.stopAt())
	if err != nil {
		return nil, err
	}
	reached := (<-chan struct{})(d.reached)
	if d.Moment.stopAt() != "" {
		reached = c.frozen()
	}
	select {
	case <-reached:
	case <-c.done:
	case <-ctx.Done():
		return c, fmt.Errorf("%w: %s did not come to %q: %s", ctx.Err(), who, d.Moment.Label(), c.log.tail())
	}
	if ended(c) {
		return c, fmt.Errorf("%s ended with code %d before it came to %q: %s", who, c.code(), d.Moment.Label(), c.log.tail())
	}
	return c, nil
}

func ended(c *process) bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// deal does to the first worker what the cell says.
func (d *death) deal(ctx context.Context, one *process) error {
	switch d.Death {
	case Kill:
		d.t.add(first, Died, "SIGKILL")
		if err := one.signal(syscall.SIGKILL); err != nil {
			return err
		}
		return one.wait(ctx)
	case Stall:
		if err := one.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		select {
		case <-one.frozen():
			d.t.add(first, Froze, "SIGSTOP")
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
	d.t.add(first, Told, "SIGTERM")
	if err := one.signal(syscall.SIGTERM); err != nil {
		return err
	}
	return one.signal(syscall.SIGCONT) // it may have stopped itself at the moment
}

// starter starts a worker of a cell, which stops itself at a moment; empty: nowhere.
type starter func(who, stopAt string) (*process, error)

func (m *matrix) starter(d *death) (starter, error) {
	address, err := m.place.Fence(d.scope)
	if err != nil {
		return nil, err
	}
	var args []string
	var env []string
	var input []byte
	if d.Strategy == Fence {
		var file string
		file, env, err = m.place.write(setup{
			name: d.scope, queues: []Queue{d.Queue}, lanes: 1, fencing: m.place.Fencing, times: m.times, hold: never,
			provider: m.gate.url, fence: address,
		})
		if err != nil {
			return nil, err
		}
		args = []string{"worker", "--drain", "-c", file}
	} else {
		input, err = json.Marshal(WorkerSettings{
			Strategy: d.Strategy, Queue: d.Queue, Scope: d.scope, Redis: m.place.RedisURL, Prefix: m.place.laravelPrefix(d.scope),
			DSN: m.place.dsn(d.scope, m.times), Database: address, Provider: m.gate.url, Reserve: m.times.Reserve, LockLife: m.times.LockLife,
		})
		if err != nil {
			return nil, err
		}
		args = []string{"prove-worker"}
	}
	args = append(args, "--log-format", "json")
	return func(who, stopAt string) (*process, error) {
		all := args
		if stopAt != "" {
			all = append(append([]string{}, args...), "--stop-at", stopAt)
		}
		d.t.add(who, Began, "starts")
		return m.place.start(input, env, func(line []byte) {
			if text := told(line); text != "" {
				d.t.add(who, Said, "%s", text)
			}
		}, all...)
	}, nil
}

// count fills in what the provider and the rows say of the order.
func (m *matrix) count(ctx context.Context, r *Result, scope, order string) error {
	charges := m.gate.sandbox.Charges(order)
	r.Charges = int64(len(charges))
	r.ProviderSuccesses = r.Charges
	switch {
	case r.Charges == 0:
		r.Lost = 1
	case r.Charges > 1:
		r.DoubleCharged = 1
	}
	address, err := m.place.Fence(scope)
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(address)
	if err != nil {
		return err
	}
	defer store.Close()
	said, err := m.place.references(ctx, store, r.Strategy, scope)
	if slices.ContainsFunc(charges, func(c sandbox.Charge) bool { return slices.Contains(said[order], c.ID) }) {
		r.UniqueRows = 1
	}
	return err
}
