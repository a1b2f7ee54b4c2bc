package prove

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"zabor"
	"zabor/internal/produce"
	"zabor/sandbox"
)

// SoakReport is what a soak found. Seconds are of wall time.
type SoakReport struct {
	Good    bool      `json:"good"` // each order was charged exactly once and has its row
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	Version string    `json:"version"`
	Place   string    `json:"place"`

	Wanted      int64          `json:"wanted"`       // workers that were to be ended by SIGKILL
	Kills       int64          `json:"kills"`        // and were
	TimeOver    bool           `json:"time_over"`    // the time was over first: Kills is below Wanted
	AtMoments   map[string]int `json:"at_moments"`   // of these, at each moment of [Moments] as workers name them; "any": at whatever they did
	Stalls      int64          `json:"stalls"`       // workers stopped past the reserve, and let go on
	Restarts    int64          `json:"restarts"`     // workers stopped by SIGTERM
	ServerKills map[string]int `json:"server_kills"` // servers ended and started again, by name

	Orders            int   `json:"orders"`
	ProviderSuccesses int64 `json:"provider_successes"`
	UniqueRows        int   `json:"unique_rows"` // settled, with the reference of a charge of their order
	Mismatched        int   `json:"mismatched"`  // settled, with another reference or for no order that there was
	DoubleCharged     int   `json:"double_charged"`
	Lost              int   `json:"lost"`
	Held              int   `json:"held"`

	ByLookup  int `json:"resolved_by_lookup"`    // settled because a look-up found the charge
	Repeated  int `json:"called_again"`          // settled by another call, after it was certain that the one before did nothing
	Slowest   int `json:"slowest_resolution_ms"` // from the first capture to the settled row, over all orders
	Unsettled int `json:"unsettled"`             // rows that are neither settled nor held

	Error   string `json:"error,omitempty"`   // why not everything was finished
	Trouble string `json:"trouble,omitempty"` // where the time was over: what the last worker said that could not start
}

// soak is one under way.
type soak struct {
	place *Place
	gate  *gate
	args  []string
	env   []string
	times Times
	want  int64

	kills, stalls, restarts, orders atomic.Int64
	killing                         context.Context // ends when there were enough kills, or no time is left
	timeOver                        bool            // no time was left

	mu      sync.Mutex
	moments map[string]int
	servers map[string]int
	armed   []*process // to be killed when the provider has next charged
	last    string     // line of a worker that ended by itself
}

// Workers of a soak.
const (
	soakName  = "soak"
	killed    = 8 // lives that are short
	soakLanes = 4
	backlog   = 6               // messages of each queue that nobody has yet
	slow      = 5 * time.Second // what a worker needs at most, on a busy machine, to come anywhere
	toStart   = time.Minute     // and to start
	never     = 24 * time.Hour  // no row is given to a person: one that nobody could decide is counted at the end
)

// soakTimes leave a look-up more room than [times]: nothing waits for it here.
func soakTimes() Times {
	t := times()
	t.AbsentAfter = 1500 * time.Millisecond
	return t
}

// Soak lets workers take orders from both queues, and kills them at random, at
// their moments and at any, until kills of them were killed or limit (0: none)
// has passed. Some are stopped past the reserve and go on, some end in order, and
// the place's own servers are killed and started again. Then the queues are
// drained and everything is counted. tell, which may be nil, is told how many
// were killed.
func Soak(ctx context.Context, p *Place, kills int, limit time.Duration, tell func(killed int64)) (*SoakReport, error) {
	g, err := newGate()
	if err != nil {
		return nil, err
	}
	defer g.close()
	ctx, cancel := p.while(ctx)
	defer cancel()
	start := time.Now()
	m := &matrix{place: p, gate: g, times: soakTimes()}
	if err := m.control(ctx, p.queues()); err != nil {
		return nil, err
	}
	address, err := p.Fence("")
	if err != nil {
		return nil, err
	}
	fencing := p.Fencing
	fencing.Attempts = 1000 // an order may lose many workers
	fencing.MissingRow = map[Queue]string{Laravel: "doubt", Symfony: "doubt"}
	file, env, err := p.write(setup{
		name: soakName, queues: p.queues(), lanes: soakLanes, fencing: fencing, times: m.times, hold: never, provider: g.url, fence: address,
	})
	if err != nil {
		return nil, err
	}
	s := &soak{
		place: p, gate: g, env: env, times: m.times, want: int64(kills), moments: map[string]int{}, servers: map[string]int{},
		args: []string{"worker", "-c", file, "--log-format", "json"},
	}
	g.watchAll(s)
	s.run(ctx, limit, tell)
	r := &SoakReport{Begun: start.UTC().Truncate(time.Second), Version: p.Version, Place: p.Name, AtMoments: s.moments, ServerKills: s.servers}
	drained := s.drain(ctx)
	r.Wanted, r.TimeOver = s.want, s.timeOver
	if s.timeOver {
		r.Trouble = p.veil.over(s.last)
	}
	r.Kills, r.Stalls, r.Restarts = s.kills.Load(), s.stalls.Load(), s.restarts.Load()
	if err := s.count(context.WithoutCancel(ctx), r); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	if drained != nil {
		r.Error = p.veil.over(drained.Error())
	}
	r.Good = r.Error == "" && r.Orders == r.UniqueRows && r.ProviderSuccesses == int64(r.Orders) && r.Mismatched == 0 && r.DoubleCharged == 0 && r.Lost == 0 && r.Held == 0 && r.Unsettled == 0
	return r, context.Cause(ctx)
}

// run kills until it is enough.
func (s *soak) run(ctx context.Context, limit time.Duration, tell func(int64)) {
	killing, enough := context.WithCancel(ctx)
	defer enough()
	if limit > 0 {
		killing, enough = context.WithTimeout(killing, limit)
		defer enough()
	}
	s.killing = killing
	var wg sync.WaitGroup
	wg.Go(s.produce)
	for range killed {
		wg.Go(func() { s.lives(s.short) })
	}
	wg.Go(func() { s.lives(s.stalled) })
	// One lives for long enough to see for itself that a charge is absent.
	wg.Go(func() { s.lives(s.long) })
	for i := range s.place.Servers {
		wg.Go(func() { s.outages(s.place.Servers[i]) })
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for killing.Err() == nil {
		select {
		case <-killing.Done():
		case <-tick.C:
			if tell != nil {
				tell(s.kills.Load())
			}
			if s.kills.Load() >= s.want {
				enough()
			}
		}
	}
	wg.Wait()
	s.timeOver = s.kills.Load() < s.want && ctx.Err() == nil
}

// produce keeps messages on the queues that nobody has taken yet.
func (s *soak) produce() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.killing.Done():
			return
		case <-tick.C:
		}
		if s.orders.Load() > 3*s.kills.Load()+100 {
			continue // lives are what is wanted, not orders
		}
		for _, q := range s.place.queues() {
			if n, err := s.place.unread(s.killing, q, soakName); err == nil && n < backlog {
				s.put(q)
			}
		}
	}
}

// put puts the next order on q. Whether an order is on the queue when Redis died
// in the middle is not known: it is put again then, as an application would.
func (s *soak) put(q Queue) {
	number := s.orders.Add(1)
	for {
		err := s.place.put(context.WithoutCancel(s.killing), q, soakName, produce.Charge{Order: firstOrder + number, Minor: 1999})
		if err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lives lets one worker live after another.
func (s *soak) lives(life func(*process)) {
	for s.killing.Err() == nil {
		stopAt := ""
		if all := Moments(); rand.N(10) < 8 {
			stopAt = all[rand.N(len(all))].stopAt() // or nowhere
		}
		args := s.args
		if stopAt != "" {
			args = append(slices.Clone(args), "--stop-at", stopAt)
		}
		ready := make(chan struct{})
		started := sync.OnceFunc(func() { close(ready) })
		c, err := s.place.start(nil, s.env, func(line []byte) {
			if bytes.Contains(line, []byte(`"msg":"started"`)) {
				started()
			}
		}, args...)
		if err != nil {
			s.note(err.Error())
			pause(s.killing, time.Second)
			continue
		}
		s.until(c, ready, toStart) // who is killed before it takes anything shows nothing
		life(c)
		if c.code() > 0 { // it could not start: a server is away
			s.note(c.log.tail())
			pause(s.killing, 100*time.Millisecond)
		}
	}
}

func (s *soak) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = text
}

// short is a life until the worker's moment, until somebody has been charged, or
// for a while; then SIGKILL, seldom SIGTERM.
func (s *soak) short(c *process) {
	at := c.stopAt()
	switch {
	case at != "":
		if !s.until(c, c.frozen(), slow) {
			at = ""
		}
	case rand.N(2) == 0:
		s.arm(c)
		s.until(c, nil, slow)
	default:
		s.until(c, nil, rand.N(time.Second))
	}
	if rand.N(20) == 0 {
		s.term(c)
		return
	}
	s.kill(c, at)
}

// stalled is a life in which the worker is stopped, others have its messages, and
// it goes on.
func (s *soak) stalled(c *process) {
	if c.stopAt() != "" {
		s.until(c, c.frozen(), slow)
	} else {
		s.until(c, nil, rand.N(time.Second))
	}
	if ended(c) || s.killing.Err() != nil {
		s.kill(c, "")
		return
	}
	_ = c.signal(syscall.SIGSTOP)
	pause(s.killing, s.times.Reserve+rand.N(3*time.Second))
	_ = c.signal(syscall.SIGCONT)
	s.stalls.Add(1)
	s.until(c, nil, rand.N(1500*time.Millisecond))
	s.kill(c, "")
}

// long is a life of half a minute or more.
func (s *soak) long(c *process) {
	for end := time.Now().Add(30*time.Second + rand.N(30*time.Second)); time.Now().Before(end) && !ended(c) && s.killing.Err() == nil; {
		_ = c.signal(syscall.SIGCONT) // where it has stopped itself
		s.until(c, nil, 200*time.Millisecond)
	}
	if rand.N(2) == 0 {
		s.term(c)
		return
	}
	s.kill(c, "")
}

// until waits until frozen, until c has ended, or for d. It reports whether c is
// frozen.
func (s *soak) until(c *process, frozen <-chan struct{}, d time.Duration) bool {
	select {
	case <-frozen:
		return !ended(c)
	case <-c.done:
	case <-time.After(d):
	case <-s.killing.Done():
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// kill ends c at once, at the given moment; empty: at any. A worker is counted
// once, and one that has ended by itself not at all.
func (s *soak) kill(c *process, at string) {
	alive := !ended(c)
	c.kill()
	if !alive || c.code() != -1 || !c.counted.CompareAndSwap(false, true) {
		return
	}
	s.kills.Add(1)
	if at == "" {
		at = "any"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moments[at]++
}

// term ends c in order.
func (s *soak) term(c *process) {
	_ = c.signal(syscall.SIGTERM)
	_ = c.signal(syscall.SIGCONT)
	select {
	case <-c.done:
		s.restarts.Add(1)
	case <-time.After(time.Minute):
		s.note("a worker did not stop within a minute: " + c.log.tail())
		c.kill()
	}
}

// arm lets c be killed when the provider has next charged.
func (s *soak) arm(c *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = append(s.armed, c)
}

func (s *soak) asked(<-chan struct{}) bool { return true }
func (s *soak) lookedUp()                  {}

// charged kills those that wait for it, while the provider's answer waits.
func (s *soak) charged(sandbox.Charge) {
	s.mu.Lock()
	armed := s.armed
	s.armed = nil
	s.mu.Unlock()
	for _, c := range armed {
		if !ended(c) {
			s.kill(c, string(Charged))
		}
	}
}

// outages kills a server from time to time and starts it again.
func (s *soak) outages(server Server) {
	for {
		pause(s.killing, 5*time.Second+rand.N(10*time.Second))
		if s.killing.Err() != nil {
			return
		}
		if err := server.Kill(); err != nil {
			s.note(server.Name + ": " + err.Error())
			return
		}
		s.mu.Lock()
		s.servers[server.Name]++
		s.mu.Unlock()
		pause(s.killing, rand.N(1500*time.Millisecond))
		if err := server.Start(); err != nil {
			s.note(server.Name + ": " + err.Error())
			return
		}
	}
}

// drainLimit bounds the end of a soak.
const drainLimit = 3 * time.Minute

// drain lets one worker finish what is left.
func (s *soak) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	c, err := s.place.start(nil, s.env, nil, append(slices.Clone(s.args), "--drain")...)
	if err != nil {
		return err
	}
	defer c.kill()
	if err := c.wait(ctx); err != nil {
		return fmt.Errorf("the queues were not empty after %s: %s", drainLimit, c.log.tail())
	}
	if c.code() != 0 {
		return fmt.Errorf("the last worker ended with code %d: %s", c.code(), c.log.tail())
	}
	return nil
}

// count compares the provider's charges with the rows, order by order.
func (s *soak) count(ctx context.Context, r *SoakReport) error {
	r.Orders = int(s.orders.Load())
	unseen := map[string]bool{} // orders of which no row has told yet
	for i := range r.Orders {
		order := fmt.Sprint(firstOrder + 1 + i)
		unseen[order] = true
		n := len(s.gate.sandbox.Charges(order))
		r.ProviderSuccesses += int64(n)
		switch {
		case n == 0:
			r.Lost++
		case n > 1:
			r.DoubleCharged++
		}
	}
	return eachRow(ctx, s.place.Store, soakName, func(row zabor.Row) {
		switch row.State {
		case zabor.Settled:
			charged := slices.ContainsFunc(s.gate.sandbox.Charges(row.Order), func(c sandbox.Charge) bool { return c.ID == row.Reference })
			if !charged || !unseen[row.Order] {
				r.Mismatched++
				return
			}
			delete(unseen, row.Order)
			r.UniqueRows++
			r.Slowest = max(r.Slowest, int(row.StateSince.Sub(row.CapturedAt).Milliseconds()))
			switch {
			case row.Cause == zabor.ByLookup:
				r.ByLookup++
			case row.Tries > 1:
				r.Repeated++
			}
		case zabor.Held:
			r.Held++
		default:
			r.Unsettled++
		}
	})
}
