package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"zabor/internal/produce"
)

// Report is what a proof found.
type Report struct {
	Good     bool      `json:"good"` // every cell of the fence charged exactly once and has its row
	Begun    time.Time `json:"begun"`
	Seconds  float64   `json:"seconds"`
	Version  string    `json:"version"`
	Place    string    `json:"place"`
	Settings Settings  `json:"settings"`
	Cells    []Result  `json:"cells"`
}

// Settings are the times of a proof, in seconds, and what its fence had of the
// installation's own.
type Settings struct {
	Timeout     float64 `json:"timeout"`
	Reserve     float64 `json:"reserve"`
	LockLife    float64 `json:"lock_life"`
	AbsentAfter float64 `json:"absent_after"`

	// Of the fence's configuration.
	MissingRow map[Queue]string `json:"missing_row"` // by queue
	Attempts   int              `json:"attempts"`
	Encrypted  bool             `json:"encrypted"` // encryption_key is set
	Journal    bool             `json:"journal"`
}

// matrix is a proof under way.
type matrix struct {
	place *Place
	gate  *gate
	times Times
	limit time.Duration // of one cell
}

// lanes is how many cells run at the same time: nearly all of a cell is waiting
// for a reserve to end.
const lanes = 24

// firstOrder is the number of the first order; those before are the controls.
const firstOrder = 1_001

// Matrix runs the cells that f chooses and for which p has a queue. done is told
// of each that has ended, from many goroutines; it may be nil. The error says
// why nothing could be run, or that ctx has ended; a cell that failed is in the
// report.
func Matrix(ctx context.Context, p *Place, f Filter, done func(Result)) (*Report, error) {
	f.Queues = chosen(f.Queues, p.queues())
	cells := f.Cells()
	if len(cells) == 0 || len(f.Queues) == 0 {
		return nil, errors.New("no cell is left to run")
	}
	g, err := newGate()
	if err != nil {
		return nil, err
	}
	defer g.close()
	ctx, cancel := p.while(ctx)
	defer cancel()
	m := &matrix{place: p, gate: g, times: times()}
	r := &Report{Begun: time.Now().UTC().Truncate(time.Second), Version: p.Version, Place: p.Name, Cells: make([]Result, len(cells)), Settings: Settings{
		Timeout: m.times.Timeout.Seconds(), Reserve: m.times.Reserve.Seconds(), LockLife: m.times.LockLife.Seconds(),
		AbsentAfter: m.times.AbsentAfter.Seconds(), MissingRow: p.Fencing.MissingRow, Attempts: max(LeastAttempts, p.Fencing.Attempts),
		Encrypted: p.Fencing.EncryptionKey != "", Journal: p.Fencing.Journal,
	}}
	start := time.Now()
	if err := m.control(ctx, f.Queues); err != nil {
		return nil, err
	}
	m.limit = cellLimit + 30*time.Since(start)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(lanes, len(cells)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(cells) || ctx.Err() != nil {
					return
				}
				r.Cells[i] = m.cell(ctx, cells[i], firstOrder+int64(i))
				if done != nil {
					done(r.Cells[i])
				}
			}
		})
	}
	wg.Wait()
	r.Seconds = time.Since(start).Seconds()
	r.Good = true
	for _, c := range r.Cells {
		r.Good = r.Good && (c.Strategy != Fence || c.Good())
	}
	return r, context.Cause(ctx)
}

// control has one order of each queue charged through the fence before anything
// else, so that a look-up which finds nothing is worth something, and so that a
// worker which looks for its messages elsewhere is found out here.
func (m *matrix) control(ctx context.Context, queues []Queue) error {
	const name = "control"
	for i, q := range queues {
		if err := m.place.put(ctx, q, name, produce.Charge{Order: firstOrder - 1 - int64(i), Minor: 100}); err != nil {
			return err
		}
	}
	address, err := m.place.Fence("")
	if err != nil {
		return err
	}
	file, env, err := m.place.write(setup{
		name: name, queues: queues, lanes: 1, fencing: m.place.Fencing, times: m.times, hold: never, provider: m.gate.url, fence: address,
	})
	if err != nil {
		return err
	}
	worker, err := m.place.start(nil, env, nil, "worker", "--drain", "-c", file, "--log-format", "json")
	if err != nil {
		return err
	}
	defer worker.kill()
	limited, cancel := context.WithTimeout(ctx, cellLimit)
	defer cancel()
	const failed = "the first orders, which nothing disturbs, were not charged, and nothing else was run: "
	if err := worker.wait(limited); err != nil {
		return fmt.Errorf(failed+"%w: %s", cmp.Or(context.Cause(ctx), err), worker.log.tail())
	}
	if worker.code() != 0 {
		return fmt.Errorf(failed+"the worker ended with code %d: %s", worker.code(), worker.log.tail())
	}
	for i, q := range queues {
		if n := len(m.gate.sandbox.Charges(fmt.Sprint(firstOrder - 1 - i))); n != 1 {
			return fmt.Errorf(failed+"the worker has ended well, and the order of %s's queue was charged %d times: it does not take from where the order was put", q, n)
		}
	}
	return nil
}
