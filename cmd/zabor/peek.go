package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/preflight"
	"zabor/internal/takeover"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

type peekCommand struct {
	Queue   string `arg:"" optional:"" help:"Only this queue of the configuration."`
	Message string `placeholder:"FILE" help:"Not the queues: the message whose bytes are in FILE, as it lies on the queue. Redis is not asked."`
	Limit   int    `default:"20" help:"So many messages of each place of a queue at most: ready, reserved, delayed and failed."`
	JSON    bool   `name:"json" help:"One JSON object."`
}

// Help is what zabor peek --help says beside the flags.
func (*peekCommand) Help() string {
	return "What zabor would do with each message, now: its key, the request as it would be sent, and the verdict. No message is taken, nothing is called, and nothing is written, on Redis or in a database. " +
		"It works before \"zabor migrate\" too: then there are no rows yet, and the keys that travel to the provider are not known."
}

// verdict is what a worker would do with a message.
type verdict string

// The verdicts.
const (
	verdictCall    verdict = "call"          // capture a row, and call the provider
	verdictRepeat  verdict = "repeat"        // ack without a call: it is done
	verdictWait    verdict = "wait"          // a call may have been made, and what came of it is found out first
	verdictHold    verdict = "hold"          // park it for a person; nothing is called
	verdictForward verdict = "forward"       // move it to a queue of PHP's workers
	verdictRefuse  verdict = "refuse"        // park it: it has no step, or none can be run
	verdictDecode  verdict = "cannot decode" // keep its bytes in zabor_unreadable
)

// peeked is a message and what would become of it; its JSON is documented.
type peeked struct {
	Queue    string       `json:"queue"`
	Place    worker.Place `json:"place"` // ready, reserved, delayed or failed; file: it came from one
	ID       string       `json:"id"`
	Class    string       `json:"class"`
	Until    *time.Time   `json:"until,omitempty"`  // end of the reserve or of the delay
	Holder   string       `json:"holder,omitempty"` // consumer that has it
	Key      *console.Key `json:"key"`              // null: it has none
	State    zabor.State  `json:"state,omitempty"`  // of its row; empty: there is none
	Verdict  verdict      `json:"verdict"`
	Reason   string       `json:"reason,omitempty"`
	Target   string       `json:"target,omitempty"` // of forward
	Amount   string       `json:"amount,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Request  *sentRequest `json:"request"` // null: it cannot be made, or is not wanted
}

// sentRequest is one as it would be sent, without its secrets.
type sentRequest struct {
	Method string            `json:"method"`
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
}

// peekedQueue is what a queue holds.
type peekedQueue struct {
	Queue    string         `json:"queue"`
	Ready    int64          `json:"ready"`
	Reserved int64          `json:"reserved"`
	Delayed  int64          `json:"delayed"`
	More     []worker.Place `json:"more"` // places with more messages than are shown
}

func (c *peekCommand) Run(p *program) error {
	if c.Limit < 1 || c.Limit > 100_000 {
		return exit.Usage(fmt.Errorf("--limit %d: 1 to 100000", c.Limit), "")
	}
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if c.Queue != "" {
		choice := workerCommand{Queue: []string{c.Queue}}
		if err := choice.choose(file); err != nil {
			return err
		}
	} else if len(file.Queues) == 0 {
		return exit.Usage(fmt.Errorf("%s: no queues are configured", file.Path), "write them under queues:")
	}
	databases := connect.NewDatabases(file, store)
	defer databases.Close()
	k, err := p.newPeeker(file, store, databases)
	if err != nil {
		return err
	}
	list, closeAll, err := p.queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	out := &peekOutput{json: c.JSON, to: p.stdout, Queues: []peekedQueue{}, Messages: []peeked{}}
	if c.Message != "" {
		err = c.file(p.ctx, k, list, out)
	} else {
		err = c.queues(p, k, list, out)
	}
	if err != nil {
		return err
	}
	if !k.migrated {
		p.log.Warn("zabor's tables are not there yet: no message has a row, and what travels as the idempotency key is made by \"zabor migrate\"")
	}
	return out.end()
}

// file looks at one message that is in a file.
func (c *peekCommand) file(ctx context.Context, k *peeker, list []connect.Queue, out *peekOutput) error {
	if len(list) != 1 {
		return exit.Usage(fmt.Errorf("--message %s: whose message is it? there are the queues %v", c.Message, slices.Sorted(maps.Keys(k.file.Queues))), "name one: zabor peek QUEUE --message FILE")
	}
	raw, err := os.ReadFile(c.Message)
	if err != nil {
		return exit.Usage(fmt.Errorf("--message: %w", err), "")
	}
	raw = bytes.TrimRight(raw, "\r\n") // of whoever saved it
	var m *worker.Message
	switch source := list[0].Source.(type) {
	case *laravel.Source:
		m = source.Decode(raw)
	case *messenger.Source:
		m = source.Decode(raw)
	}
	one, err := k.foresee(ctx, list[0], m, "file")
	if err != nil {
		return err
	}
	return out.message(one)
}

func (c *peekCommand) queues(p *program, k *peeker, list []connect.Queue, out *peekOutput) error {
	for _, q := range list {
		depth, err := q.Depth(p.ctx)
		if err != nil {
			return exit.Unreachable(fmt.Errorf("queue %s: %w", q.Name(), err), "is Redis up, and is its address right?")
		}
		if depth.Empty() {
			if err := preflight.Require(p.log, q.Name(), preflight.Empty(p.ctx, q)); err != nil {
				return err
			}
			if others := preflight.OtherQueues(p.ctx, k.file, q); len(others) > 0 {
				p.log.Warn("the queue is empty, and others have messages: is it one of these that is meant?", "queue", q.Name(), "others", strings.Join(others, ", "))
			}
		}
		at := peekedQueue{Queue: q.Name(), Ready: depth.Ready, Reserved: depth.Reserved, Delayed: depth.Delayed, More: []worker.Place{}}
		if err := out.queue(at); err != nil {
			return err
		}
		var more []worker.Place
		for _, place := range []worker.Place{worker.Ready, worker.Reserved, worker.Delayed} {
			n := 0
			for seen, err := range q.Look(p.ctx, place) {
				if err != nil {
					return exit.Unreachable(err, "is Redis up, and is its address right?")
				}
				if n++; n > c.Limit {
					more = append(more, place)
					break
				}
				one, err := k.foresee(p.ctx, q, seen.Message, place)
				if err != nil {
					return err
				}
				one.Holder = seen.Holder
				if !seen.Until.IsZero() {
					until := seen.Until.UTC()
					one.Until = &until
				}
				if err := out.message(one); err != nil {
					return err
				}
			}
		}
		n := 0
		for m, err := range failures.Own(q.Queue, k.store).Entries(p.ctx, "") {
			if err != nil {
				p.log.Warn("what failed cannot be read", "queue", q.Name(), "error", err)
				break
			}
			if n++; n > c.Limit {
				more = append(more, takeover.Failed)
				break
			}
			one, err := k.foresee(p.ctx, q, m.Message, takeover.Failed)
			if err != nil {
				return err
			}
			one.ID = m.FailedID // that which "zabor failed" takes
			if err := out.message(one); err != nil {
				return err
			}
		}
		if err := out.more(q.Name(), more); err != nil {
			return err
		}
	}
	return nil
}

// peeker foresees what a worker would do. It writes nothing.
type peeker struct {
	file      *config.Config
	store     *sqlstore.Store
	migrated  bool
	fence     *zabor.Fence
	steps     []*step.Step
	bus       worker.Bus
	providers connect.Providers
	markers   map[string]takeover.Marker // by queue; read once
}

func (p *program) newPeeker(file *config.Config, store *sqlstore.Store, databases *connect.Databases) (*peeker, error) {
	k := &peeker{file: file, store: store, migrated: true, bus: busOf(file), markers: map[string]takeover.Marker{}}
	secret, err := store.Setup().Secret(p.ctx)
	switch {
	case errors.Is(err, sqlstore.ErrNotMigrated):
		k.migrated, secret = false, make([]byte, zabor.MinSecret)
	case err != nil:
		return nil, exit.Store(err)
	}
	k.fence = &zabor.Fence{Store: store, Secret: secret}
	if k.providers, err = connect.OpenProviders(file, p.secrets(file)); err != nil {
		return nil, err
	}
	if k.steps, err = connect.Steps(databases); err == nil {
		err = databases.Reachable(p.ctx)
	}
	return k, err
}

// foresee is what a worker would do with m, which lies at place.
func (k *peeker) foresee(ctx context.Context, q connect.Queue, m *worker.Message, place worker.Place) (peeked, error) {
	one := peeked{Queue: q.Name(), Place: place, ID: m.ID, Class: m.Class}
	at := slices.IndexFunc(k.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	switch {
	case at < 0:
		fate, target, why := k.bus.Fate(m)
		one.Target, one.Reason = target, why
		one.Verdict = map[worker.Fate]verdict{worker.Forwarded: verdictForward, worker.KeptAsItIs: verdictDecode, worker.Refused: verdictRefuse, worker.Parked: verdictRefuse}[fate]
		return one, nil
	case errors.Is(m.Err, worker.ErrUnreadable):
		one.Verdict, one.Reason = verdictDecode, m.Err.Error()
		return one, nil
	case m.Err != nil:
		one.Verdict, one.Reason = verdictRefuse, m.Err.Error()
		return one, nil //nolint:nilerr // the reason is told
	}
	e, err := k.steps[at].Effect(ctx, m.Message)
	if err != nil && !errors.Is(err, step.ErrRefused) && !errors.Is(err, step.ErrNoRow) {
		return one, exit.Unreachable(fmt.Errorf("message %s of %s: %w", m.ID, m.Class, err), "nothing was changed; does load: run on this database?")
	}
	if e.Key.Order == "" {
		one.Verdict, one.Reason = verdictRefuse, err.Error()
		return one, nil
	}
	key := console.NewKey(e.Key)
	one.Key = &key
	row, found := k.row(ctx, e.Key)
	if found != nil {
		return one, found
	}
	before := m.DeliveredBefore || place == takeover.Failed
	if before && row == nil {
		takenOver, err := k.takenOver(ctx, q, m.Class)
		if err != nil {
			return one, err
		}
		if !takenOver && (place == takeover.Failed || !q.Shared) {
			one.Verdict, one.Reason = verdictHold, "another worker has had it, and may have made the call: \"zabor import\" holds it before a worker starts"
			k.show(&one, e)
			return one, nil
		}
	}
	if e.MissingRow == zabor.Doubt {
		e.MissingRow = q.MissingRow
	}
	next, calls, foreseen := k.fence.Plan(row, e)
	if row != nil {
		one.State = row.State
		one.Amount, one.Provider = console.Money(row.Amount), row.Provider
	}
	switch {
	case calls:
		one.Verdict = verdictCall
	case err != nil && (errors.Is(foreseen, zabor.ErrNoRow) || errors.Is(foreseen, zabor.ErrReleased)):
		one.Verdict, one.Reason = verdictRefuse, err.Error()
		return one, nil
	case foreseen == nil:
		one.Verdict, one.Reason = verdictRepeat, doneText(next)
	case zabor.Park(foreseen):
		one.Verdict, one.Reason = verdictHold, foreseen.Error()
	default:
		one.Verdict, one.Reason = verdictWait, foreseen.Error()
	}
	if row == nil || calls {
		k.showRow(&one, e, next)
	}
	return one, nil
}

// doneText says what a row has that is done.
func doneText(row zabor.Row) string {
	if row.Reference != "" {
		return fmt.Sprintf("%s, reference %s: acked without a call", row.State, row.Reference)
	}
	return fmt.Sprintf("%s: acked without a call", row.State)
}

// row is the table's row of a key; nil: there is none.
func (k *peeker) row(ctx context.Context, key zabor.Key) (*zabor.Row, error) {
	if !k.migrated {
		return nil, nil
	}
	row, err := k.store.Reports().Row(ctx, key)
	if err != nil {
		return nil, exit.Store(err)
	}
	return row, nil
}

// takenOver reports whether q was taken over, with messages of class.
func (k *peeker) takenOver(ctx context.Context, q connect.Queue, class string) (bool, error) {
	if !k.migrated {
		return false, nil
	}
	m, asked := k.markers[q.Name()]
	if !asked {
		var err error
		if m, err = takeover.ReadMarker(ctx, k.file.Scope, k.store, q); err != nil {
			return false, err
		}
		k.markers[q.Name()] = m
	}
	return m.Takes(class), nil
}

// show adds the request of e, which nothing would send now.
func (k *peeker) show(one *peeked, e zabor.Effect) {
	if e.Render == nil {
		return
	}
	e.MissingRow = zabor.Captured
	if next, _, err := k.fence.Plan(nil, e); err == nil {
		k.showRow(one, e, next)
	}
}

// showRow adds the request that row would be captured with.
func (k *peeker) showRow(one *peeked, e zabor.Effect, row zabor.Row) {
	one.Amount, one.Provider = console.Money(e.Amount), e.Provider
	from, ok := k.providers[row.Provider]
	if !ok || row.Open.Request == nil {
		return
	}
	preview, err := from.Preview(row)
	if err != nil {
		one.Verdict, one.Reason = verdictRefuse, "nothing would be sent: "+err.Error()
		return
	}
	hide := func(text string) string {
		text = k.file.Hide(text)
		if !k.migrated {
			for _, key := range []string{row.ProviderKey, row.Open.PrepareKey} {
				if key != "" {
					text = strings.ReplaceAll(text, key, "(made by zabor migrate)")
				}
			}
		}
		return text
	}
	one.Request = &sentRequest{Method: preview.Method, URL: hide(preview.URL), Body: hide(preview.Body), Header: map[string]string{}}
	for _, field := range preview.Header {
		one.Request.Header[field.Name] = hide(field.Value)
	}
}

// peekOutput prints what was seen as it comes, or all of it as one JSON object.
type peekOutput struct {
	json     bool
	to       io.Writer
	Queues   []peekedQueue `json:"queues"`
	Messages []peeked      `json:"messages"`
}

func (o *peekOutput) queue(q peekedQueue) error {
	o.Queues = append(o.Queues, q)
	if o.json {
		return nil
	}
	_, err := fmt.Fprintf(o.to, "queue %s: %d ready, %d reserved, %d delayed\n", q.Queue, q.Ready, q.Reserved, q.Delayed)
	return err
}

func (o *peekOutput) message(m peeked) error {
	if o.json {
		o.Messages = append(o.Messages, m)
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s  %s  %s", m.Place, console.Printable(m.ID), console.Printable(m.Class))
	if m.Until != nil {
		fmt.Fprintf(&b, "  until %s", m.Until.Format(time.RFC3339))
	}
	if m.Holder != "" {
		fmt.Fprintf(&b, "  with %s", console.Printable(m.Holder))
	}
	b.WriteString("\n")
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "    %-9s%s\n", name, text)
		}
	}
	if m.Key != nil {
		line("key", m.Key.Plain().String())
	}
	line("amount", m.Amount)
	line("row", string(m.State))
	text := string(m.Verdict)
	if m.Target != "" {
		text += " to " + m.Target
	}
	if m.Reason != "" {
		text += ": " + console.Printable(m.Reason)
	}
	line("verdict", text)
	if r := m.Request; r != nil {
		line("request", r.Method+" "+console.Printable(r.URL))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			fmt.Fprintf(&b, "    %-9s%s: %s\n", "", name, console.Printable(r.Header[name]))
		}
		if r.Body != "" {
			fmt.Fprintf(&b, "    %-9s%s\n", "", console.Printable(cut(r.Body)))
		}
	}
	_, err := io.WriteString(o.to, b.String())
	return err
}

// cut is as much of a body as a terminal is given.
func cut(body string) string {
	const most = 2000
	if len(body) <= most {
		return body
	}
	return fmt.Sprintf("%s … and %d bytes more (--json has them)", strings.ToValidUTF8(body[:most], ""), len(body)-most)
}

func (o *peekOutput) more(queue string, places []worker.Place) error {
	if len(places) == 0 {
		return nil
	}
	o.Queues[len(o.Queues)-1].More = places
	if o.json {
		return nil
	}
	_, err := fmt.Fprintf(o.to, "\nqueue %s has more that is %v: --limit shows more\n", queue, places)
	return err
}

func (o *peekOutput) end() error {
	if !o.json {
		return nil
	}
	e := json.NewEncoder(o.to)
	e.SetEscapeHTML(false)
	return e.Encode(o)
}
