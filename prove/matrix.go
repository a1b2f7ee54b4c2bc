package prove

import (
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

// Settings are the times of a proof, in seconds.
type Settings struct {
	Timeout     float64 `json:"timeout"`
	Reserve     float64 `json:"reserve"`
	LockLife    float64 `json:"lock_life"`
	AbsentAfter float64 `json:"absent_after"`
	MissingRow  string  `json:"missing_row"`
}

// matrix is a proof under way.
type matrix struct {
	place *Place
	gate  *gate
	times Times
}

// lanes is how many cells run at the same time: nearly all of a cell is waiting
// for a reserve to end.
const lanes = 24

// firstOrder is the number of the first order; the one before is the control.
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
	m := &matrix{place: p, gate: g, times: times()}
	r := &Report{Begun: time.Now().UTC().Truncate(time.Second), Version: p.Version, Place: p.Name, Cells: make([]Result, len(cells)), Settings: Settings{
		Timeout: m.times.Timeout.Seconds(), Reserve: m.times.Reserve.Seconds(), LockLife: m.times.LockLife.Seconds(),
		AbsentAfter: m.times.AbsentAfter.Seconds(), MissingRow: "capture",
	}}
	start := time.Now()
	if err := m.control(ctx, f.Queues[0]); err != nil {
		return nil, err
	}
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
	return r, ctx.Err()
}

// control has one order charged through the fence before anything else, so that
// a look-up which finds nothing is worth something.
func (m *matrix) control(ctx context.Context, q Queue) error {
	const name = "control"
	if err := m.place.put(ctx, q, name, produce.Charge{Order: firstOrder - 1, Minor: 100}); err != nil {
		return err
	}
	address, err := m.place.Fence("")
	if err != nil {
		return err
	}
	file, env, err := m.place.write(setup{
		name: name, queues: []Queue{q}, lanes: 1, missingRow: "capture", times: m.times, hold: time.Minute, provider: m.gate.url, fence: address,
	})
	if err != nil {
		return err
	}
	worker, err := m.place.start(nil, env, nil, "worker", "--drain", "-c", file, "--log-format", "json")
	if err != nil {
		return err
	}
	defer worker.kill()
	ctx, cancel := context.WithTimeout(ctx, cellLimit)
	defer cancel()
	if err := worker.wait(ctx); err != nil {
		return fmt.Errorf("the first order, which nothing disturbs, was not charged: %w: %s", err, worker.log.tail())
	}
	if worker.code() != 0 {
		return fmt.Errorf("the first order, which nothing disturbs, was not charged: the worker ended with code %d: %s", worker.code(), worker.log.tail())
	}
	return nil
}
