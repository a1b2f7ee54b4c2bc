package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/laravel"
	"zabor/sqlstore"
	"zabor/step"
	"zabor/worker"
)

type importCommand struct {
	PaymentsQuery  string   `placeholder:"SQL" help:"What was charged before: a SELECT on the application's own payments, with columns order and, as far as there are, scope, step, reference, amount (minor units) or major, currency."`
	ProviderExport []string `placeholder:"[NAME=]FILE" help:"What was charged before, as the provider lists it: files as of zabor audit. NAME is the provider's in the configuration."`
	Columns        string   `placeholder:"MAP" help:"What the export's columns mean, as of zabor audit."`
	Step           string   `placeholder:"NAME" help:"The step of payments that name none. Else the one that is configured."`
	Queue          []string `placeholder:"NAME" help:"Only these queues of the configuration."`
	DryRun         bool     `help:"Say what would be written; nothing is."`
	JSON           bool     `name:"json" help:"One JSON object."`
}

// Help is what zabor import --help says beside the flags.
func (*importCommand) Help() string {
	return "Once, before the first start on a queue, with its PHP workers stopped. What --payments-query and --provider-export name was charged before: it gets settled rows, so that no message charges it again. A message that another worker has had (reserved, delivered before, waiting for a retry, or failed) " +
		"may have been charged by it; where no payment explains it and there is no row, one is written that is held for a person. Nothing is called, no message is moved, and no hook runs. It may be run again: what has a row is left alone."
}

// importResult is what an import did; its JSON is documented.
type importResult struct {
	DryRun     bool          `json:"dry_run"`
	Payments   []paidSource  `json:"payments"`
	Problems   []paidProblem `json:"problems"` // examples, a hundred at most
	Queues     []inventory   `json:"queues"`
	WithoutKey []unkeyed     `json:"without_key"` // examples, a hundred at most for each queue
}

func (c *importCommand) Run(p *program) error {
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	choice := workerCommand{Queue: c.Queue}
	if err := choice.choose(file); err != nil {
		return err
	}
	databases := connect.NewDatabases(file, store)
	defer databases.Close()
	i, err := p.newImporter(file, store, databases, c.DryRun)
	if err != nil {
		return err
	}
	list, closeAll, err := p.queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	if !c.DryRun {
		// The rows' keys are those that the steps make now.
		if _, err := p.checkKeys(p.installation(file, store, list), true); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := p.checkOthers(p.ctx, s); err != nil {
			return err
		}
	}
	result := importResult{DryRun: c.DryRun, Payments: []paidSource{}, Problems: []paidProblem{}, Queues: []inventory{}, WithoutKey: []unkeyed{}}
	// First what explains messages, then the messages.
	if i.paid, err = i.importPaid(p, c, databases); err != nil {
		return err
	}
	if i.paid != nil {
		defer i.paid.ledger.Close()
		result.Payments, result.Problems = i.paid.sources, append(result.Problems, i.paid.problems...)
	}
	for _, s := range list {
		found, err := i.queue(p.ctx, s)
		if err != nil {
			return err
		}
		if !c.DryRun {
			if err := imported(p.ctx, file, store, s); err != nil {
				return err
			}
		}
		result.Queues = append(result.Queues, found)
		result.WithoutKey = append(result.WithoutKey, found.examples...)
	}
	if !c.DryRun {
		keys := p.installation(file, store, nil) // queues are marked by the first start
		keys.Steps = slices.DeleteFunc(keys.Steps, func(s *step.Step) bool { return !i.steppedOn[s.Name()] })
		r, err := p.checkKeys(keys, true)
		if err == nil {
			err = keys.Adopt(p.ctx, r)
		}
		if err != nil {
			return keysFailure(err)
		}
	}
	return c.report(p, result, i.paid)
}

func (c *importCommand) report(p *program, r importResult, paid *paidImport) error {
	without, unseen := 0, []string(nil)
	for _, q := range r.Queues {
		without += q.WithoutKey
		if q.NoTransport {
			unseen = append(unseen, q.Queue)
		}
	}
	if c.JSON {
		if err := json.NewEncoder(p.stdout).Encode(r); err != nil {
			return err
		}
	} else {
		if paid != nil {
			if err := paid.print(p.stdout); err != nil {
				return err
			}
		}
		if err := r.print(p.stdout); err != nil {
			return err
		}
	}
	if paid != nil && paid.unsure > 0 {
		return exit.Bad(fmt.Errorf("%d keys have two payments, or a row that says something else than the payment: none was chosen", paid.unsure),
			"look them up at the provider, refund what was charged twice, and decide: zabor fence settle ORDER STEP REFERENCE --reason TEXT")
	}
	if len(unseen) > 0 {
		return exit.Bad(fmt.Errorf("there is no table of failed messages for queue %s: what failed before zabor came was not seen, and no row holds it", strings.Join(unseen, ", ")),
			"where the application keeps it elsewhere (a file, DynamoDB), look there, and retry none of it; make the table, or name it under failed:, and import again")
	}
	if without == 0 {
		return nil
	}
	return exit.Bad(fmt.Errorf("%d messages of steps have been with another worker, and no key can be made of them: no row holds them", without),
		"a worker parks them and calls nothing. Where you mend the configuration so that they get a key, run the import again before they are retried")
}

func (r importResult) print(to io.Writer) error {
	held := "held now"
	if r.DryRun {
		held = "would be held"
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "queue\tmessages\tof no step\tnobody has had\thave a row\t%s\twithout a key\t\n", held)
	for _, q := range r.Queues {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", q.Queue, q.Messages, q.NoStep, q.Fresh, q.Row, q.Held, q.WithoutKey)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, q := range r.Queues {
		if q.FreshPaid > 0 {
			fmt.Fprintf(to, "queue %s: %d of the messages that nobody has had are of orders that were paid (%s): somebody has retried failed messages in PHP, or they were sent twice. "+
				"A payment explains these, and they are not charged again. Of the other %d, PHP may have charged those that were retried: docs/switching.md, \"Somebody has retried\", before a worker starts\n",
				q.Queue, q.FreshPaid, strings.Join(q.paidOrders, ", "), q.Fresh-q.FreshPaid)
		}
	}
	for _, u := range r.WithoutKey {
		fmt.Fprintf(to, "queue %s, %s: message %s of %s: %s\n", u.Queue, u.Where, console.Printable(u.ID), console.Printable(u.Class), console.Printable(u.Reason))
	}
	return nil
}

// inventory counts what lies on a queue and in its failure transport. Messages is
// the sum of NoStep, Fresh, Row, Held and WithoutKey.
type inventory struct {
	Queue      string `json:"queue"`
	Messages   int    `json:"messages"`
	NoStep     int    `json:"no_step"`     // of no step, or unreadable
	Fresh      int    `json:"fresh"`       // of a step, and nobody but zabor has had them
	Row        int    `json:"row"`         // had by others, and have a row
	Held       int    `json:"held"`        // had by others, without a row before
	WithoutKey int    `json:"without_key"` // had by others, and no key can be made

	FreshPaid int `json:"fresh_paid"` // of Fresh, those whose order was paid: retried by PHP, or sent twice

	NoTransport bool `json:"no_transport"` // there is no table of failed messages to look at

	had      map[worker.Place]int // of Held and WithoutKey, where they lie
	examples []unkeyed

	paidOrders []string // a few of FreshPaid
}

// unkeyed is a message that no row can hold.
type unkeyed struct {
	Queue  string       `json:"queue"`
	Where  worker.Place `json:"where"` // ready, reserved, delayed or failed
	ID     string       `json:"id"`
	Class  string       `json:"class"`
	Reason string       `json:"reason"`
}

// hadText says where the messages lie that others have had.
func (v inventory) hadText() string {
	var parts []string
	for _, place := range []worker.Place{worker.Ready, worker.Reserved, worker.Delayed, failedPlace} {
		if n := v.had[place]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, place))
		}
	}
	return strings.Join(parts, ", ")
}

// failedPlace is the failure transport, beside the places of a queue.
const failedPlace worker.Place = "failed"

// importer writes rows for what was done, or may have been done, before zabor had a
// queue. Each kind of evidence is a method; what comes first wins, since none
// changes a row that is there.
type importer struct {
	file     *config.Config
	store    *sqlstore.Store
	fence    *zabor.Fence
	steps    []*step.Step
	log      *slog.Logger
	say      func(format string, args ...any)
	readOnly bool
	paid     *paidImport // nil: none

	steppedOn map[string]bool         // steps that have keys of what was imported
	passOver  func(class string) bool // classes that are counted as of no step; nil: none
}

// met notes that the import has come upon k.
func (i *importer) met(k zabor.Key) {
	name, _, _ := strings.Cut(k.Step, ":")
	i.steppedOn[name] = true
}

func (p *program) newImporter(file *config.Config, store *sqlstore.Store, databases *connect.Databases, readOnly bool) (*importer, error) {
	if err := store.Setup().Check(p.ctx); err != nil {
		return nil, exit.Store(err)
	}
	secret, err := store.Setup().Secret(p.ctx)
	if err != nil {
		return nil, exit.Store(err)
	}
	if !readOnly {
		if err := store.Setup().RememberKey(p.ctx); err != nil {
			return nil, exit.Store(err)
		}
	}
	steps, err := connect.Steps(databases)
	if err == nil {
		err = databases.Reachable(p.ctx)
	}
	if err != nil {
		return nil, err
	}
	return &importer{
		file: file, store: store, steps: steps, readOnly: readOnly, log: p.log, say: console.Progress(p.stderr), steppedOn: map[string]bool{},
		fence: &zabor.Fence{Store: store, Secret: secret},
	}, nil
}

// mostLooks bounds how often a queue is looked at. With nobody else at work a
// second look finds nothing new.
const mostLooks = 10

// queue holds what others have had on s and in its failure transport. Messages
// move, even where nobody but zabor takes any: it looks again until it finds nothing
// new.
func (i *importer) queue(ctx context.Context, s connect.Queue) (inventory, error) {
	found, err := i.look(ctx, s)
	for n := 1; err == nil && !i.readOnly; n++ {
		var more inventory
		if more, err = i.look(ctx, s); more.Held == 0 {
			break
		}
		found.Held, found.Messages = found.Held+more.Held, found.Messages+more.Held
		if n == mostLooks {
			return found, exit.Bad(fmt.Errorf("queue %s: each of %d looks found messages that another worker has had: somebody still takes from it", s.Name(), mostLooks),
				"what was found is held; stop all workers of the queue, and import again")
		}
	}
	return found, err
}

// look goes once through everything.
func (i *importer) look(ctx context.Context, s connect.Queue) (inventory, error) {
	v := inventory{Queue: s.Name(), had: map[worker.Place]int{}}
	if !s.Shared {
		// With PHP workers at work, what they have is theirs to finish; what they
		// leave is held by the worker that is given it.
		for m, err := range s.Look(ctx) {
			if err != nil {
				return v, exit.Unreachable(err, "what was held until then stays; import again when Redis is there")
			}
			if err := i.add(ctx, &v, m.Message, m.Place, m.DeliveredBefore); err != nil {
				return v, err
			}
		}
	}
	for m, err := range failures.Own(s.Queue, i.store).Entries(ctx, "") {
		if s.FailedIn.NoTable(err) {
			i.log.Warn("there is no failure transport: nothing can have failed there before, and nothing can be parked there; make its table, or name it under failed:", "queue", s.Name(), "error", err)
			v.NoTransport = true
			break
		}
		if err != nil {
			return v, exit.Usage(fmt.Errorf("queue %s: what failed on it cannot be read: %w", s.Name(), err),
				fmt.Sprintf("a failed charge that is retried would be made again, so nothing was started; mend the table, or name it under queues.%s.failed", s.Name()))
		}
		if err := i.add(ctx, &v, m.Message, failedPlace, true); err != nil {
			return v, err
		}
	}
	if source, ok := s.Source.(*laravel.Source); ok && !v.NoTransport {
		for j, err := range source.FailedElsewhere(ctx) {
			if err != nil {
				return v, exit.Usage(fmt.Errorf("queue %s: what failed on its other connections cannot be read: %w", s.Name(), err), "nothing was started; mend the table")
			}
			if err := i.add(ctx, &v, source.Decode(j.Payload), failedPlace, true); err != nil {
				return v, err
			}
		}
	}
	i.say("\r%-79s\r", "")
	return v, nil
}

// add counts m, and holds it where it must be held.
func (i *importer) add(ctx context.Context, v *inventory, m *worker.Message, place worker.Place, had bool) error {
	if v.Messages++; v.Messages%100 == 0 {
		i.say("\rqueue %s: %d messages, %d held", v.Queue, v.Messages, v.Held)
	}
	at := slices.IndexFunc(i.steps, func(s *step.Step) bool { return s.Matches(m.Class) })
	switch {
	case at < 0, i.passOver != nil && i.passOver(m.Class):
		v.NoStep++
		return nil
	case !had:
		v.Fresh++
		return i.addFresh(ctx, v, i.steps[at], m)
	}
	e, err := i.effect(ctx, i.steps[at], m)
	if err != nil {
		return err
	}
	if e.Key.Order == "" {
		v.WithoutKey++
		v.had[place]++
		if len(v.examples) < 100 {
			_, err := i.steps[at].Key(m.Message)
			v.examples = append(v.examples, unkeyed{v.Queue, place, m.ID, m.Class, errors.Join(m.Err, err).Error()})
		}
		return nil
	}
	i.met(e.Key)
	inserted, err := i.hold(ctx, e, fmt.Sprintf("%s on queue %s when zabor came to it (message %s): another worker has had it, and may have made the call", place, v.Queue, m.ID))
	if err != nil {
		return err
	}
	if !inserted {
		v.Row++
		return nil
	}
	v.Held++
	v.had[place]++
	return nil
}

// addFresh counts m, which nobody seems to have had, if a payment explains its order:
// a retry of PHP's makes what has failed look so.
func (i *importer) addFresh(ctx context.Context, v *inventory, s *step.Step, m *worker.Message) error {
	if i.paid == nil {
		return nil
	}
	k, err := s.Key(m.Message)
	if errors.Join(m.Err, err) != nil {
		return nil //nolint:nilerr // without a key no payment explains it, and a worker parks it
	}
	paid, err := i.paid.ledger.Knows(ctx, k)
	if err != nil || !paid {
		return err
	}
	if v.FreshPaid++; len(v.paidOrders) < 5 {
		v.paidOrders = append(v.paidOrders, console.Printable(k.Order))
	}
	return nil
}

// effect is what m asks for, as far as it can be told: without a Render the request
// cannot be made any more, and without a key nothing can.
func (i *importer) effect(ctx context.Context, s *step.Step, m *worker.Message) (zabor.Effect, error) {
	if m.Err != nil {
		return zabor.Effect{}, nil //nolint:nilerr // no key can be made of what cannot be read; it is counted as such
	}
	e, err := s.Effect(ctx, m.Message)
	if err == nil {
		return e, nil
	}
	if !errors.Is(err, step.ErrRefused) && !errors.Is(err, step.ErrNoRow) {
		return e, exit.Unreachable(fmt.Errorf("message %s of %s: %w", m.ID, m.Class, err), "what was held until then stays; import again when the database is there")
	}
	return zabor.Effect{Key: e.Key, Fingerprint: zabor.Fingerprint{Message: e.Fingerprint.Message}}, nil
}

// hold writes the row of e, unless there is one, or says whether it would.
func (i *importer) hold(ctx context.Context, e zabor.Effect, reason string) (inserted bool, err error) {
	if !i.readOnly {
		_, inserted, err = i.fence.Import(ctx, e, reason)
	} else if _, err = i.store.Load(ctx, e.Key); errors.Is(err, zabor.ErrNoRow) {
		if i.paid == nil {
			return true, nil
		}
		explained, err := i.paid.ledger.Knows(ctx, e.Key)
		return !explained, err
	}
	if err != nil {
		return false, exit.Store(err)
	}
	return inserted, nil
}
