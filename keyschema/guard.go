package keyschema

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"zabor"
	"zabor/sqlstore"
	"zabor/step"
)

// Beat is how long a confirmed schema may be captured by. A process says twice in that
// time that it is alive.
const Beat = 10 * time.Second

// Said is what a process says of its key schemas, in its row of zabor_processes.
type Said struct {
	Epochs map[string]int `json:"epochs"` // of the steps that it may capture; others it does not

	// GoneAfter is how long after its last beat the process counts as dead: no call of
	// its has a lease then, and the queues have given its messages to others.
	GoneAfter time.Duration `json:"gone_after"`
}

// status is what is read of a process's own words.
type status struct {
	Scope string `json:"scope"`
	Kind  string `json:"kind"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Said  *Said  `json:"key_schemas"`
}

// processes are those that capture and are not dead.
func processes(ctx context.Context, store *sqlstore.Store) ([]Process, error) {
	all, err := store.Processes().List(ctx)
	if err != nil {
		return nil, err
	}
	var alive []Process
	for _, p := range all {
		var s status
		if json.Unmarshal(p.Status, &s) != nil || s.Said == nil || p.ReadAt.Sub(p.Seen) > s.Said.GoneAfter {
			continue
		}
		alive = append(alive, Process{p.ID, s.Scope, s.Kind, s.Host, s.PID, *s.Said, p.Seen})
	}
	return alive, nil
}

// Guard lets a process capture only under schemas that are in force. Its methods may be
// called concurrently.
type Guard struct {
	store  *sqlstore.Store
	scope  string
	steps  map[string]*step.Step
	id     [16]byte
	after  time.Duration // see Said.GoneAfter
	status func(Said) ([]byte, error)
	queues []Queue

	// Taken is told once that another installation takes from a queue of this process,
	// which captures nothing from then on; nil: it is only refused. It is set before Run.
	Taken func(error)

	mu      sync.Mutex        // of a beat
	records map[string]Record // those that the next beat says
	fence   string            // of fenceID; empty: not read yet
	drains  atomic.Bool
	view    atomic.Pointer[view]
	held    map[string]heldStep
}

// heldStep is what is held for a step since a version of its record.
type heldStep struct {
	version  int
	messages map[string]string
}

// view is what the last beat has found.
type view struct {
	at      time.Time        // before anything was read
	refused map[string]error // steps that may not be captured
	changed map[string]bool  // steps whose schema was changed ever
	taken   error            // why nothing may be captured at all; nil: it may
	held    map[string]heldStep
}

// NewGuard is the guard of a process that has adopted r. GoneAfter is beside a beat:
// the longest lease and the longest reserve. Status is what the process says of itself
// as JSON, with the Said as "key_schemas". Nothing may be captured before a Beat.
func (i *Installation) NewGuard(r *Review, goneAfter time.Duration, status func(Said) ([]byte, error)) *Guard {
	g := &Guard{
		store: i.Store, scope: i.Scope, after: Beat + goneAfter, status: status, queues: i.Queues,
		steps: map[string]*step.Step{}, records: map[string]Record{}, held: map[string]heldStep{},
	}
	rand.Read(g.id[:])
	for _, s := range i.Steps {
		g.steps[s.Name()] = s
		if own, ok := r.Records[stepID{i.Scope, s.Name()}]; ok {
			g.records[s.Name()] = own
		}
	}
	return g
}

// Beat says that the process is alive and by which schemas it captures, and only then
// reads which are in force: of two processes that differ one sees the other. After an
// error what was confirmed before stays so for the rest of its time.
func (g *Guard) Beat(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Now()
	said := Said{Epochs: map[string]int{}, GoneAfter: g.after}
	if !g.drains.Load() {
		for name, r := range g.records {
			said.Epochs[name] = r.Epoch
		}
	}
	text, err := g.status(said)
	if err == nil {
		err = g.store.Processes().Alive(ctx, g.id, text)
	}
	if err != nil {
		return err
	}
	records, err := Read(ctx, g.store)
	if err != nil {
		return err
	}
	alive, err := processes(ctx, g.store)
	if err != nil {
		return err
	}
	v := &view{at: at, refused: map[string]error{}, changed: map[string]bool{}}
	for name, s := range g.steps {
		now, known := records[stepID{g.scope, name}]
		v.changed[name] = now.Epoch > 1
		if err := g.judge(s, now, known, said, alive); err != nil {
			v.refused[name] = err
			continue
		}
		if err := g.readHeld(ctx, now); err != nil {
			return err
		}
	}
	if v.taken, err = g.taken(ctx); err != nil {
		return err
	}
	if last := g.view.Load(); v.taken != nil && g.Taken != nil && (last == nil || last.taken == nil) {
		g.Taken(v.taken)
	}
	v.held = maps.Clone(g.held)
	g.view.Store(v)
	return nil
}

// taken says that another installation takes from a queue of this process; nil: none
// does. After an error it is not known.
func (g *Guard) taken(ctx context.Context) (foreign, err error) {
	if g.fence == "" {
		if g.fence, err = fenceID(ctx, g.store); err != nil {
			return nil, err
		}
	}
	for _, q := range g.queues {
		if foreign := q.taken(ctx, g.scope, g.fence); foreign != nil {
			return foreign, nil
		}
	}
	return nil, nil
}

// judge says why s may not be captured now; nil: it may. It sets what the next beat
// says of s.
func (g *Guard) judge(s *step.Step, now Record, known bool, said Said, alive []Process) error {
	name, schema := s.Name(), s.KeySchema()
	if !known || !now.Schema.Extends(schema) {
		delete(g.records, name)
		return fmt.Errorf("step %s: its key schema in force is %s, and this process has %s; start it again with the configuration that was accepted", name, now.Schema, schema)
	}
	g.records[name] = now
	if said.Epochs[name] != now.Epoch {
		return fmt.Errorf("step %s: its key schema has just been accepted; the next beat of this process confirms it", name)
	}
	for _, p := range alive {
		if epoch, captures := p.Said.Epochs[name]; p.ID != g.id && p.Scope == g.scope && captures && epoch != now.Epoch {
			return fmt.Errorf("step %s: %s", name, p)
		}
	}
	return nil
}

// readHeld reads the held messages of a step once for each version of its record.
func (g *Guard) readHeld(ctx context.Context, now Record) error {
	if now.Epoch < 2 || g.held[now.Step].version == now.Version {
		return nil
	}
	messages, err := readHeld(ctx, g.store, now)
	if err == nil {
		g.held[now.Step] = heldStep{now.Version, messages}
	}
	return err
}

// Refuse returns why nothing may be captured for k at present; nil: it may. It asks no
// server. A step that is not configured has no schema.
func (g *Guard) Refuse(k zabor.Key) error {
	if g.drains.Load() {
		return fmt.Errorf("this process is stopping")
	}
	v, now := g.view.Load(), time.Now()
	// One of the two clocks stands still while a machine sleeps.
	if v == nil || now.Sub(v.at) > Beat || now.Round(0).Sub(v.at.Round(0)) > Beat {
		return fmt.Errorf("this process could not confirm its key schemas for %s: the fence's database does not answer", Beat)
	}
	if v.taken != nil {
		return v.taken
	}
	name, _, _ := strings.Cut(k.Step, ":")
	return v.refused[name]
}

// Changed reports whether a schema of the step was replaced ever. A message that was
// delivered before then may have been called for under another key.
func (g *Guard) Changed(step string) bool {
	v := g.view.Load()
	return v != nil && v.changed[step]
}

// Holds returns why a message of the step is held if it has no row; empty: it is not.
// ids are its own and that of the message that it is a retry of.
func (g *Guard) Holds(step string, ids ...string) string {
	v := g.view.Load()
	if v == nil {
		return ""
	}
	for _, id := range ids {
		key, found := v.held[step].messages[id]
		switch {
		case id == "" || !found:
		case key == "":
			return "the key schema of its step was changed after this message had been with a worker: it may have been called for under another key, which is not known"
		default:
			return "the key schema of its step was changed after this message had been with a worker: it may have been called for as " + key
		}
	}
	return ""
}

// Run beats until ctx ends. When drain ends, nothing is captured any more, and the
// process says so. At the end it says that the process has ended. warn is told of the
// first error of each outage.
func (g *Guard) Run(ctx, drain context.Context, warn func(error)) {
	tick := time.NewTicker(Beat / 2)
	defer tick.Stop()
	stopping := drain.Done()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			g.gone(ctx)
			return
		case <-stopping:
			g.drains.Store(true)
			stopping = nil
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, Beat)
		err := g.Beat(limited)
		cancel()
		if err != nil && !failed && ctx.Err() == nil {
			warn(err)
		}
		failed = err != nil
	}
}

// gone says that the process has ended.
func (g *Guard) gone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = g.store.Processes().Gone(ctx, g.id) // else it counts as dead later
}

// Refused are the steps that the last beat has found not to be in force.
func (g *Guard) Refused() (all []error) {
	if v := g.view.Load(); v != nil {
		for _, err := range v.refused {
			all = append(all, err)
		}
	}
	return all
}
