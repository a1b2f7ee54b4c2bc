package keyschema

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/sqlstore"
	"zabor/step"
)

// Installation is what is configured.
type Installation struct {
	Store  *sqlstore.Store
	Scope  string
	Steps  []*step.Step
	Queues []Queue // empty: this process takes from none

	// Messages gives what lies on all queues of the configuration and in their failure
	// transports. It is asked only if a schema has changed.
	Messages func(ctx context.Context) iter.Seq2[Message, error]
}

// Message is a message where it lies.
type Message struct {
	step.Message
	IDs   []string // its own id, and that of the message that it is a retry of
	Queue string
	Place string // ready, reserved, delayed or failed
	Err   error  // it cannot be read; nil: it can
}

// Failed is the Place of a message in a failure transport.
const Failed = "failed"

// Change is a step whose configured schema is not the one in force.
type Change struct {
	Step *step.Step
	Next Record   // what would be in force
	From []Record // what makes the keys of its messages until now

	Renamed []string // other installations that queues are marked for
	Lost    bool     // a marker names a schema that the table does not know

	// What stands in the way.
	Processes []Process
	Open      int64          // rows
	Messages  map[string]int // on queues, by queue and place
}

// Review compares what is configured with what is in force.
type Review struct {
	Records Records
	Changes []Change

	writes []Record // what needs no word: new steps, more defaults and enum cases
}

// Review reads only. importing: the rows of an earlier import are about to be made
// anew, so that its schema does not count.
func (i *Installation) Review(ctx context.Context, importing bool) (*Review, error) {
	records, err := Read(ctx, i.Store)
	if err != nil {
		return nil, err
	}
	r := &Review{Records: records}
	renamed, marked, err := i.markers(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range i.Steps {
		own := records[stepID{i.Scope, s.Name()}]
		c := Change{Step: s, Renamed: renamed, From: i.replaced(records, s, renamed)}
		if m := marked[s.Name()]; m.Version > own.Version && m.Digest != digest(s.KeySchema()) {
			c.Lost = true
		}
		c.Next = Record{Scope: i.Scope, Step: s.Name(), Version: max(own.Version, marked[s.Name()].Version) + 1, Epoch: max(own.Epoch, 1), Schema: s.KeySchema(), Classes: s.Classes()}
		if len(renamed) == 0 && !c.Lost && (len(c.From) == 0 || importing && c.imported()) {
			if own.Version > 0 && own.Schema.Extends(c.Next.Schema) {
				c.Next.Schema = own.Schema // it makes the same keys, and more of them
			}
			if importing && own.Epoch == 0 {
				c.Next.Epoch = 0
			}
			if !c.Next.same(own) {
				r.writes = append(r.writes, c.Next)
			}
			continue
		}
		for _, from := range c.From {
			c.Next.Epoch = max(c.Next.Epoch, from.Epoch+1)
		}
		if c.Lost || len(c.From) == 0 {
			c.Next.Epoch = max(c.Next.Epoch, 2)
		}
		if err := i.obstacles(ctx, &c); err != nil {
			return nil, err
		}
		r.Changes = append(r.Changes, c)
	}
	return r, i.lookAtMessages(ctx, r.Changes)
}

// markers returns the other installations that the queues are marked for, and the
// latest schema of each step that a marker of this one names.
func (i *Installation) markers(ctx context.Context) (renamed []string, marked map[string]markedStep, err error) {
	marked = map[string]markedStep{}
	fence, err := fenceID(ctx, i.Store)
	if err != nil {
		return nil, nil, err
	}
	for _, q := range i.Queues {
		m, found, err := q.owner(ctx, i.Store)
		if err == nil {
			err = q.foreign(m, fence)
		}
		switch {
		case err != nil:
			return nil, nil, err
		case !found:
		case m.Scope != i.Scope:
			if !slices.Contains(renamed, m.Scope) {
				renamed = append(renamed, m.Scope)
			}
		default:
			for name, s := range m.Steps {
				if s.Version > marked[name].Version {
					marked[name] = s
				}
			}
		}
	}
	return renamed, marked, nil
}

// replaced are the records under which the keys of s's messages are made until now, if
// they are made in another way.
func (i *Installation) replaced(records Records, s *step.Step, renamed []string) (from []Record) {
	schema := s.KeySchema()
	own, known := records[stepID{i.Scope, s.Name()}]
	if known && !schema.Extends(own.Schema) && !own.Schema.Extends(schema) {
		from = append(from, own)
	}
	for _, id := range records.sorted() {
		r := records[id]
		shares := func() bool {
			return slices.ContainsFunc(s.Classes(), func(c string) bool { return slices.Contains(r.Classes, c) })
		}
		switch {
		case id.scope == i.Scope && id.step != s.Name():
			// A class that another step has had, and does not have any more.
			if slices.ContainsFunc(s.Classes(), func(c string) bool {
				return slices.Contains(r.Classes, c) && !slices.Contains(own.Classes, c) && !i.has(id.step, c)
			}) {
				from = append(from, r)
			}
		case slices.Contains(renamed, id.scope) && (id.step == s.Name() || shares()):
			from = append(from, r)
		}
	}
	return from
}

// has reports whether the configured step of that name has messages of class.
func (i *Installation) has(name, class string) bool {
	return slices.ContainsFunc(i.Steps, func(s *step.Step) bool { return s.Name() == name && s.Matches(class) })
}

func (r Records) sorted() []stepID {
	return slices.SortedFunc(maps.Keys(r), func(a, b stepID) int {
		if c := strings.Compare(a.scope, b.scope); c != 0 {
			return c
		}
		return strings.Compare(a.step, b.step)
	})
}

// Of are the records of an installation, by step.
func (r Records) Of(scope string) (all []Record) {
	for _, id := range r.sorted() {
		if id.scope == scope {
			all = append(all, r[id])
		}
	}
	return all
}

// obstacles fills in the rows and processes that stand in the way of c.
func (i *Installation) obstacles(ctx context.Context, c *Change) error {
	alive, err := processes(ctx, i.Store)
	if err != nil {
		return err
	}
	for _, from := range c.From {
		n, err := i.Store.Reports().Open(ctx, from.Scope, from.Step)
		if err != nil {
			return err
		}
		c.Open += n
		for _, p := range alive {
			if epoch, captures := p.Said.Epochs[from.Step]; p.Scope == from.Scope && captures && (epoch != c.Next.Epoch || from.Scope != i.Scope) {
				c.Processes = append(c.Processes, p)
			}
		}
	}
	return nil
}

// lookAtMessages counts the messages of all changes, in one pass.
func (i *Installation) lookAtMessages(ctx context.Context, changes []Change) error {
	return i.eachMessage(ctx, changes, func(c *Change, m Message) error {
		if c.Messages == nil {
			c.Messages = map[string]int{}
		}
		c.Messages[m.Queue+" "+m.Place]++
		return nil
	})
}

func (i *Installation) eachMessage(ctx context.Context, changes []Change, do func(*Change, Message) error) error {
	if len(changes) == 0 || i.Messages == nil {
		return nil
	}
	for m, err := range i.Messages(ctx) {
		if err != nil {
			return err
		}
		at := slices.IndexFunc(changes, func(c Change) bool { return c.Step.Matches(m.Class) })
		if at < 0 || m.Class == "" {
			continue
		}
		if err := do(&changes[at], m); err != nil {
			return err
		}
	}
	return nil
}

// imported reports whether only an import has made rows under the old schema.
func (c Change) imported() bool {
	return len(c.From) > 0 && !slices.ContainsFunc(c.From, func(r Record) bool { return r.Epoch > 0 })
}

// Free reports whether nothing stands in the way: no row is open, no message is
// there, no process runs under the old schema, and the installation has its old name.
func (c Change) Free() bool {
	return len(c.Renamed) == 0 && !c.Lost && !c.imported() && c.Open == 0 && len(c.Messages) == 0 && len(c.Processes) == 0
}

// InTheWay says what stands in the way, for people; empty: nothing.
func (c Change) InTheWay() string {
	var parts []string
	if c.Open > 0 {
		parts = append(parts, fmt.Sprintf("%d open rows", c.Open))
	}
	if len(c.Messages) > 0 {
		var places []string
		n := 0
		for _, place := range slices.Sorted(maps.Keys(c.Messages)) {
			n += c.Messages[place]
			places = append(places, fmt.Sprintf("%s: %d", place, c.Messages[place]))
		}
		parts = append(parts, fmt.Sprintf("%d messages (%s)", n, strings.Join(places, ", ")))
	}
	for _, p := range c.Processes {
		parts = append(parts, p.String())
	}
	return strings.Join(parts, "; ")
}

// Was says what is replaced, for people.
func (c Change) Was() string {
	var parts []string
	for _, from := range c.From {
		parts = append(parts, from.Schema.String())
	}
	if c.Lost {
		parts = append(parts, "not known to the table, which a marker in Redis is ahead of")
	}
	if len(parts) == 0 {
		return "not known"
	}
	return strings.Join(parts, "; ")
}

// Err is why c is not in force by itself; nil: it may be.
func (c Change) Err(scope string) error {
	if c.Free() {
		return nil
	}
	name := c.Step.Name()
	what := fmt.Sprintf("step %s: its key schema has changed, so messages from before would be charged as new ones", name)
	switch {
	case len(c.Renamed) > 0:
		what = fmt.Sprintf("step %s: the configuration is of scope %q, and its queues are marked as those of scope %q: if the installation was renamed, each message would be charged as a new one", name, scope, strings.Join(c.Renamed, `", "`))
	case c.imported():
		what = fmt.Sprintf("step %s: its key schema has changed since the import: what was paid or held then would be charged as new", name)
	case len(c.From) > 0 && c.From[0].Step != name:
		what = fmt.Sprintf("step %s has messages that step %s had: each would be charged as a new one", name, c.From[0].Step)
	}
	if in := c.InTheWay(); in != "" {
		what += "; in the way: " + in
	}
	next := fmt.Sprintf("step %s was not started; write back what was, or see \"zabor schema\", and accept the new keys with \"zabor schema accept %s\"", name, name)
	switch {
	case c.imported() && len(c.Renamed) == 0:
		next = fmt.Sprintf("step %s was not started; write back what was, or import again, with the same --payments-query and --provider-export: rows of the new keys are made then; or accept with \"zabor schema accept %s\"", name, name)
	case len(c.Processes) > 0:
		next += ", once these processes are stopped"
	}
	return &Refusal{fmt.Errorf("%s (old: %s; new: %s)", what, c.Was(), c.Next.Schema), next}
}

// Err is why not all configured schemas may be in force; nil: they may.
func (r *Review) Err(scope string) error {
	for _, c := range r.Changes {
		if err := c.Err(scope); err != nil {
			return err
		}
	}
	return nil
}

// Process is a process that has said which schemas it captures by.
type Process struct {
	ID    [16]byte
	Scope string
	Kind  string
	Host  string
	PID   int
	Said  Said
	Seen  time.Time // by the database's clock
}

func (p Process) String() string {
	return fmt.Sprintf("%s %s:%d runs under the old schema (it counts as dead after %s)", p.Kind, zabor.EncodeText(p.Host), p.PID, p.Seen.Add(p.Said.GoneAfter).UTC().Format(time.RFC3339))
}
