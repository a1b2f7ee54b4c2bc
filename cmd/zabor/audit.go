package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/internal/app"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sqlstore"
	"zabor/worker"
)

type auditCommand struct {
	Since          string        `placeholder:"WHEN" help:"Only what was done since then: a duration such as 48h, or a time such as 2026-03-02T10:00:00Z. What is open is always looked at."`
	ProviderExport []string      `placeholder:"[NAME=]FILE" help:"A provider's list of payments: CSV, or a JSON object on each line. NAME is the provider's in the configuration. Stripe's, PayPal's, YooKassa's and Adyen's exports are known."`
	ProviderList   []string      `placeholder:"NAME" help:"Read the provider's own list of payments, by GETs alone. NAME is the provider's in the configuration; zabor providers show says which have one."`
	Columns        string        `placeholder:"MAP" help:"What the export's columns mean: reference=Txn,amount=Total,currency=Cur,order=Order,status=State:paid|captured (minor=… for minor units)."`
	PaymentsQuery  string        `placeholder:"SQL" help:"A SELECT on the application's own payments, with columns order and, as far as there are, step, reference, amount (minor units) or major, currency."`
	Database       string        `placeholder:"NAME" help:"The environment variable with the address of the application's database, for --payments-query. Else database: or fence: of the configuration."`
	App            string        `placeholder:"PATH" help:"A Laravel or Symfony application, which is not run: --payments-query is sent to the database of its own configuration."`
	Replica        string        `placeholder:"NAME" help:"The environment variable with the address of a replica of the fence's database, to read there."`
	NoQueues       bool          `help:"Do not look at the queues: nothing can be said about lost messages then."`
	Work           string        `placeholder:"FILE" help:"Keep the work file here until the audit is complete: one that was broken off goes on. Else a temporary file."`
	Watch          time.Duration `placeholder:"TIME" help:"Audit again and again, this far apart, and alert when something has changed."`
	Publish        bool          `help:"Keep what was found in the fence's database, for the dashboard: nothing else is written."`
	JSON           bool          `name:"json" xor:"form" help:"One JSON object."`
	CSV            bool          `name:"csv" xor:"form" help:"The differences as comma-separated values."`
}

func (c *auditCommand) Run(p *program) error {
	a, err := c.prepare(p)
	if err != nil {
		return err
	}
	defer a.close()
	if c.Watch > 0 {
		return a.watch(c.Watch)
	}
	ledger, total, err := a.run(p.ctx)
	if err != nil {
		return err
	}
	if c.Publish {
		if err := a.publish(p.ctx, ledger, total, "zabor audit"); err != nil {
			return errors.Join(exit.Store(err), ledger.Close())
		}
	}
	for _, name := range total.Empty {
		fmt.Fprintf(a.stderr, "%s has no success: nothing was compared with it\n", name)
	}
	for _, s := range total.Skipped {
		fmt.Fprintf(a.stderr, "%s: %d skipped: %s\n", s.File, s.N, console.Printable(s.Why))
	}
	if a.store == nil && total.Nameless > 0 {
		fmt.Fprintf(a.stderr, "%d of %d successes name no order: without a fence they are compared with nothing. --columns order=COLUMN says where the order is\n", total.Nameless, total.Successes)
	}
	if err := a.print(ledger, total); err != nil {
		return errors.Join(err, ledger.Close())
	}
	if err := ledger.Remove(); err != nil {
		return err
	}
	if !total.Good() {
		return exit.Bad(errors.New(differences(total)), "docs/audit.md says what each kind means and what to do about it")
	}
	if why := total.Uncompared(); why != "" {
		return exit.Bad(fmt.Errorf("nothing was compared: %s", why), "is it the right file? --columns says what its columns mean: order=COLUMN,status=COLUMN:paid|captured")
	}
	return nil
}

// differences is how many there are, as far as they are bad and else.
func differences(total audit.Total) string {
	all := int64(0)
	for _, n := range total.Differences {
		all += n
	}
	text := fmt.Sprintf("%d differences", total.Bad)
	if total.Bad == 1 {
		text = "1 difference"
	}
	if more := all - total.Bad; more > 0 {
		text += fmt.Sprintf(", and %d for information", more)
	}
	return text
}

// auditor is one audit and where it reads.
type auditor struct {
	*program
	c       *auditCommand
	since   time.Time // of the audit that runs; zero: the beginning
	exports []audit.Export
	lists   []*provider.Provider
	file    *config.Config  // nil: there is none
	store   *sqlstore.Store // of the fence; nil: there is none
	app     *sqlstore.Store // for the payments query; nil: there is none
	close   func()
}

func (c *auditCommand) prepare(p *program) (*auditor, error) {
	a := &auditor{program: p, c: c, close: func() {}}
	var err error
	if _, err = since(c.Since, time.Now()); err != nil {
		return nil, err
	}
	if a.exports, err = p.readExports(c.ProviderExport, c.Columns); err != nil {
		return nil, err
	}
	_, err = config.Find(p.cli.Config, os.LookupEnv)
	switch {
	case err == nil:
		if err := a.openConfigured(); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, exit.Usage(err, "")
	case len(c.ProviderList) > 0:
		return nil, exit.Usage(errors.New("--provider-list needs a zabor.yaml with the provider and its secret"), `without one, export the payments and type "zabor audit --provider-export FILE"`)
	case len(a.exports) == 0 && (c.PaymentsQuery == "" || c.Database == "" && c.App == ""):
		return nil, exit.Usage(errors.New("nothing to audit: there is no zabor.yaml, no --provider-export, and no --payments-query with --database or --app"),
			`without a fence, type "zabor audit --provider-export FILE", or "zabor audit --database DATABASE_URL --payments-query SQL"`)
	}
	if c.Publish && (a.store == nil || c.Replica != "") {
		a.close()
		return nil, exit.Usage(errors.New("--publish: what was found is kept in the fence's own database"), "name its configuration with -c, and leave --replica out")
	}
	if err := a.openApplication(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// since is the time that text says; zero where it is empty.
func since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, exit.Usage(fmt.Errorf("--since %s is neither a duration nor a time", text), "write 48h, 2026-03-02 or 2026-03-02T10:00:00Z")
}

func (a *auditor) openConfigured() error {
	file, store, err := a.openFence()
	if err != nil {
		if f, ok := errors.AsType[*exit.Error](err); ok && len(a.exports) > 0 {
			return &exit.Error{Code: f.Code, Err: f.Err, Hint: f.Hint + "; --env-file FILE gives the file's variables, and in a folder without a zabor.yaml an export is looked at alone"}
		}
		return err
	}
	if a.c.Replica != "" {
		store.Close()
		if store, err = openNamed("replica", a.c.Replica); err != nil {
			return err
		}
	}
	for i, e := range a.exports {
		a.exports[i].Units = file.Units(e.Provider)
		if _, known := file.Providers[e.Provider]; e.Provider != "" && !known {
			store.Close()
			return exit.Usage(fmt.Errorf("--provider-export %s=%s: %s has no provider of that name", e.Provider, e.Path, file.Path), "the name before = is the one under providers:")
		}
	}
	a.file, a.store, a.close = file, store, func() { store.Close() }
	if err := a.openLists(); err != nil {
		a.close()
		return err
	}
	return nil
}

// openLists opens the providers whose own lists are read.
func (a *auditor) openLists() error {
	providers, err := connect.OpenProviders(a.file, a.secrets(a.file))
	if err != nil {
		return err
	}
	for _, name := range a.c.ProviderList {
		one, known := providers[name]
		switch {
		case !known:
			return exit.Usage(fmt.Errorf("--provider-list %s: %s has no provider of that name", name, a.file.Path), "the name is the one under providers:")
		case !one.Lists():
			return exit.Usage(fmt.Errorf("--provider-list %s: %s", name, a.noList(name)), "zabor audit --provider-export "+name+"=FILE")
		case slices.ContainsFunc(a.exports, func(e audit.Export) bool { return e.Provider == name }):
			return exit.Usage(fmt.Errorf("--provider-list %s and an export of the same provider: each would be missing in the other", name), "give one of the two")
		}
		a.lists = append(a.lists, one)
	}
	return nil
}

// noList is why the provider of that name cannot be listed.
func (a *auditor) noList(name string) string {
	if known, ok := provider.BuiltinNamed(a.file.Providers[name].Profile); ok {
		return known.Why["list"]
	}
	return "its profile has no list: describe one, or export the payments"
}

func (a *auditor) openApplication() error {
	if a.c.PaymentsQuery == "" {
		return nil
	}
	var err error
	switch {
	case a.c.Database != "":
		a.app, err = openNamed("database", a.c.Database)
	case a.c.App != "":
		a.app, err = openApp(a.c.App)
	case a.file.Database != "":
		if a.app, err = sqlstore.Open(string(a.file.Database)); err != nil {
			err = exit.Usage(fmt.Errorf("%s: database: %w", a.file.Path, err), "")
		}
	default:
		a.app = a.store
		return nil
	}
	if err != nil {
		return err
	}
	before := a.close
	a.close = func() { a.app.Close(); before() }
	return nil
}

// openNamed opens the database whose address is in the environment variable name.
func openNamed(flag, name string) (*sqlstore.Store, error) {
	value, err := address(flag, name)
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.Open(value)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--%s %s: %w", flag, name, err), "")
	}
	return store, nil
}

// openApp opens the database of an application's own configuration.
func openApp(path string) (*sqlstore.Store, error) {
	project, err := app.Open(path, app.Options{Lookup: os.LookupEnv})
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--app: %w", err), "")
	}
	const hint = "--database NAME, with the name of an environment variable that holds the address"
	found := project.DatabaseAddress()
	if found == nil {
		return nil, exit.Usage(fmt.Errorf("--app %s: its database is not known without running it", path), hint)
	}
	store, err := sqlstore.Open(found.Str())
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--app %s: the address at %s: %w", path, found.From, err), hint)
	}
	return store, nil
}

// run reads everything and joins it. The ledger is the caller's to close.
func (a *auditor) run(ctx context.Context) (*audit.Ledger, audit.Total, error) {
	var err error
	if a.since, err = since(a.c.Since, time.Now()); err != nil {
		return nil, audit.Total{}, err
	}
	ledger, err := audit.Open(a.c.Work)
	if err != nil {
		return nil, audit.Total{}, exit.Usage(err, "")
	}
	total, err := a.fill(ctx, ledger)
	if err != nil {
		ledger.Close()
		return nil, audit.Total{}, err
	}
	return ledger, total, nil
}

func (a *auditor) fill(ctx context.Context, ledger *audit.Ledger) (audit.Total, error) {
	say := console.Progress(a.stderr)
	seen := func(what string) func(int64) {
		return func(n int64) { say("\r%s: %d read%20s", what, n, "") }
	}
	if err := a.fillFirst(ctx, ledger, seen); err != nil {
		return audit.Total{}, err
	}
	if a.store != nil {
		if err := ledger.AddRows(ctx, a.file.Scope, a.rows(ctx), seen("rows")); err != nil {
			return audit.Total{}, exit.Store(err)
		}
		if err := ledger.AddUnfetched(ctx, a.store.History().Keys(ctx, proxy.Unfetched)); err != nil {
			return audit.Total{}, exit.Store(err)
		}
		if err := ledger.AddRefunded(ctx, a.store.History().Keys(ctx, sqlstore.Refunded)); err != nil {
			return audit.Total{}, exit.Store(err)
		}
	}
	for _, e := range a.exports {
		path, err := filepath.Abs(e.Path)
		if err != nil {
			return audit.Total{}, err
		}
		skipped := map[string]int64{}
		e.Skipped = func(why string) {
			if len(skipped) >= mostReasons && skipped[why] == 0 {
				why = "for other reasons"
			}
			skipped[why]++
		}
		if err := ledger.AddSuccesses(ctx, path, a.recent(e.Successes()), seen(e.Path)); err != nil {
			return audit.Total{}, exit.Usage(err, "nothing was compared: mend the line, or say with --columns what the columns mean")
		}
		if err := ledger.AddSkipped(ctx, e.Path, skipped); err != nil {
			return audit.Total{}, err
		}
	}
	if a.app != nil {
		if err := ledger.AddPayments(ctx, audit.WithOrder(audit.QueryPayments(ctx, a.app, a.c.PaymentsQuery, true)), seen("payments")); err != nil {
			return audit.Total{}, exit.Usage(err, "the query must give a column order, and may give step, reference, amount or major, currency")
		}
	}
	say("\rcomparing%40s", "")
	if err := ledger.Join(ctx); err != nil {
		return audit.Total{}, err
	}
	total, err := ledger.Total(ctx)
	say("\r%60s\r", "")
	return total, err
}

// mostReasons is how many reasons to skip entries are told of a file.
const mostReasons = 30

// fillFirst reads what is read before the rows. A charge that a list has, or a
// message that was taken, has its row before; the other way round a shop at work
// would look like one with differences.
func (a *auditor) fillFirst(ctx context.Context, ledger *audit.Ledger, seen func(string) func(int64)) error {
	if a.file == nil {
		return nil
	}
	if err := a.unlisted(ctx, ledger); err != nil {
		return err
	}
	for _, one := range a.lists {
		if err := ledger.AddPages(ctx, "list of "+one.Name(), a.listed(ctx, one), seen(one.Name())); err != nil {
			return exit.Unreachable(err, "nothing was compared; with --work FILE the next audit goes on where this one was")
		}
	}
	if a.c.NoQueues || len(a.file.Queues) == 0 {
		return nil
	}
	if err := ledger.AddMessages(ctx, a.messages(ctx), seen("messages")); err != nil {
		if _, known := errors.AsType[*exit.Error](err); known {
			return err // of the configuration
		}
		return exit.Unreachable(err, "--no-queues leaves the queues out")
	}
	return nil
}

// unlisted tells ledger which steps make what is in no list of their provider's.
func (a *auditor) unlisted(ctx context.Context, ledger *audit.Ledger) error {
	providers, err := connect.OpenProviders(a.file, a.secrets(a.file))
	if err != nil {
		return err
	}
	for name, s := range a.file.Steps {
		first := s.Request
		if s.Prepare != nil {
			first = s.Prepare
		}
		for _, one := range providers {
			if one.ListsPath(string(first.Path)) {
				continue
			}
			if err := ledger.Unlisted(ctx, one.Name(), cmp.Or(s.Step, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// listed gives a page of a provider's list.
func (a *auditor) listed(ctx context.Context, one *provider.Provider) func(string) ([]audit.Success, string, error) {
	return func(place string) (found []audit.Success, next string, err error) {
		page, next, err := one.List(ctx, a.since, place)
		for _, l := range page {
			found = append(found, audit.Success{
				Provider: one.Name(), Reference: l.Reference, Alias: l.Alias, Key: l.Key, Order: l.Order, Amount: l.Amount, At: l.At, Place: "list of " + one.Name(),
			})
		}
		return found, next, err
	}
}

// rows reads a page of the fence; of closed rows only those since the time asked
// for, with an hour before it: a row is saved after the provider's own time.
func (a *auditor) rows(ctx context.Context) func(zabor.Key) ([]zabor.Row, error) {
	const page = 5000
	return func(after zabor.Key) ([]zabor.Row, error) {
		for {
			rows, err := a.store.Reports().Outline(ctx, after, page)
			if err != nil || len(rows) == 0 || a.since.IsZero() {
				return rows, err
			}
			after = rows[len(rows)-1].Key
			rows = slices.DeleteFunc(rows, func(r zabor.Row) bool { return r.State.Closed() && r.StateSince.Before(a.since.Add(-time.Hour)) })
			if len(rows) > 0 {
				return rows, nil
			}
		}
	}
}

// recent passes over successes before the time asked for.
func (a *auditor) recent(all iter.Seq2[audit.Success, error]) iter.Seq2[audit.Success, error] {
	return func(yield func(audit.Success, error) bool) {
		for s, err := range all {
			if err == nil && !s.At.IsZero() && s.At.Before(a.since) {
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// messages are those of all queues and failure transports whose step has a fence.
func (a *auditor) messages(ctx context.Context) iter.Seq2[audit.Message, error] {
	return func(yield func(audit.Message, error) bool) {
		queues, closeQueues, err := a.queues(a.file, a.store)
		if err != nil {
			yield(audit.Message{}, err)
			return
		}
		defer closeQueues()
		f := failures.New(a.file, a.store, queues)
		for _, q := range queues {
			for seen, err := range q.Look(ctx) {
				if err != nil {
					yield(audit.Message{}, err)
					return
				}
				k, ok := f.Key(seen.Message)
				m := audit.Message{Key: k, Queue: q.Name(), ID: seen.Message.ID, Delivered: seen.Message.DeliveredBefore || seen.Place == worker.Reserved}
				if ok && !yield(m, nil) {
					return
				}
			}
		}
		for m, err := range f.Keyed(ctx) {
			if err != nil {
				yield(audit.Message{}, err)
				return
			}
			if !yield(audit.Message{Key: m.Key, Queue: m.In.Queue, ID: m.FailedID, Failed: true}, nil) {
				return
			}
		}
	}
}

func (a *auditor) print(ledger *audit.Ledger, total audit.Total) error {
	switch {
	case a.c.JSON:
		return a.printJSON(ledger, total)
	case a.c.CSV:
		return a.printCSV(ledger)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "provider 200s\tunique rows\tcharged twice\tlost\t")
	fmt.Fprintln(w, "-------------\t-----------\t-------------\t----\t")
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t\n", total.ProviderSuccesses, total.UniqueRows, total.DoubleCharged, total.Lost)
	w.Flush()
	fmt.Fprintf(a.stdout, "\nread: %d rows, %d successes of providers, %d payments, %d messages\n", total.Rows, total.Successes, total.Payments, total.Messages)
	if len(total.Double) > 0 {
		what := "charged beyond the first time"
		if a.store == nil {
			what = "a fence would have stopped"
		}
		fmt.Fprintf(a.stdout, "%s: %s\n", what, moneyList(total.Double))
	}
	if len(total.AtRisk) > 0 {
		fmt.Fprintf(a.stdout, "in doubt or held: %s\n", moneyList(total.AtRisk))
	}
	if len(total.Differences) == 0 {
		if why := total.Uncompared(); why != "" {
			fmt.Fprintf(a.stdout, "nothing was compared: %s\n", why)
			return nil
		}
		fmt.Fprintln(a.stdout, "no differences")
		return nil
	}
	fmt.Fprintln(a.stdout)
	return a.printTable(ledger, total)
}

// mostLines is how many differences of a kind a person is shown.
const mostLines = 20

func (a *auditor) printTable(ledger *audit.Ledger, total audit.Total) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SEVERITY\tKIND\tORDER\tSTEP\tSTATE\tAMOUNT\tAGE\tWHAT")
	shown := map[audit.Kind]int64{}
	for d, err := range ledger.Differences(a.ctx) {
		if err != nil {
			return err
		}
		if shown[d.Kind]++; shown[d.Kind] > mostLines {
			continue
		}
		age := ""
		if !d.Since.IsZero() {
			age = time.Since(d.Since).Round(time.Second).String()
		}
		_, what, _ := strings.Cut(told(d), ", ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Severity, d.Kind, console.Printable(d.Key.Order), console.Printable(d.Key.Step), d.State, console.Money(d.Amount), age, what)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(total.Differences)) {
		if n := total.Differences[kind]; n > mostLines {
			fmt.Fprintf(a.stdout, "%s: %d in all; --csv has them\n", kind, n)
		}
	}
	return nil
}

func moneyList(list []zabor.Money) string {
	var texts []string
	for _, m := range list {
		texts = append(texts, console.Money(m))
	}
	return strings.Join(texts, ", ")
}

func (a *auditor) printCSV(ledger *audit.Ledger) error {
	w := csv.NewWriter(a.stdout)
	w.Write([]string{"severity", "kind", "scope", "order", "step", "state", "reference", "other", "amount", "currency", "other_amount", "other_currency", "since", "place"})
	for d, err := range ledger.Differences(a.ctx) {
		if err != nil {
			return err
		}
		w.Write([]string{string(d.Severity), string(d.Kind), zabor.EncodeText(d.Key.Scope), zabor.EncodeText(d.Key.Order), zabor.EncodeText(d.Key.Step), string(d.State), d.Reference, d.Other,
			minorText(d.Amount), d.Amount.Currency, minorText(d.OtherAmount), d.OtherAmount.Currency, console.Time(d.Since), d.Place})
	}
	w.Flush()
	return w.Error()
}

func minorText(m zabor.Money) string {
	if m.Currency == "" {
		return ""
	}
	return strconv.FormatInt(m.Minor, 10)
}

// auditJSON is the documented shape of an audit, but for its differences.
type auditJSON struct {
	ProviderSuccesses int64                `json:"provider_successes"`
	UniqueRows        int64                `json:"unique_rows"`
	DoubleCharged     int64                `json:"double_charged"`
	Lost              int64                `json:"lost"`
	Rows              int64                `json:"rows"`
	Successes         int64                `json:"successes"`
	Payments          int64                `json:"payments"`
	Messages          int64                `json:"messages"`
	Kinds             map[audit.Kind]int64 `json:"kinds"`
	AtRisk            []moneyJSON          `json:"at_risk"`
	Double            []moneyJSON          `json:"double"`
	Skipped           []audit.Skipped      `json:"skipped"`
	Nameless          int64                `json:"nameless"`
	Uncompared        string               `json:"uncompared"` // empty: all was compared
}

type moneyJSON struct {
	Amount   int64  `json:"amount"` // minor units
	Currency string `json:"currency"`
}

type differenceJSON struct {
	Kind     audit.Kind     `json:"kind"`
	Severity audit.Severity `json:"severity"`
	console.Key
	State       string     `json:"state"` // empty: there is no row
	Reference   string     `json:"reference"`
	Other       string     `json:"other"`
	Amount      *moneyJSON `json:"amount"` // null: not known
	OtherAmount *moneyJSON `json:"other_amount"`
	Since       *string    `json:"since"`
	Place       string     `json:"place"`
}

// printJSON writes the differences one by one: there may be many.
func (a *auditor) printJSON(ledger *audit.Ledger, t audit.Total) error {
	head, err := json.Marshal(auditJSON{
		t.ProviderSuccesses, t.UniqueRows, t.DoubleCharged, t.Lost, t.Rows, t.Successes, t.Payments, t.Messages, t.Differences, moneysJSON(t.AtRisk), moneysJSON(t.Double),
		append([]audit.Skipped{}, t.Skipped...), t.Nameless, t.Uncompared(),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s,\"differences\":[", head[:len(head)-1])
	separator := ""
	for d, err := range ledger.Differences(a.ctx) {
		if err != nil {
			return err
		}
		text, err := json.Marshal(differenceJSON{d.Kind, d.Severity, console.NewKey(d.Key), string(d.State), d.Reference, d.Other,
			moneyOrNull(d.Amount), moneyOrNull(d.OtherAmount), console.JSONTime(d.Since), d.Place})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s\n%s", separator, text)
		separator = ","
	}
	_, err = fmt.Fprintln(a.stdout, "]}")
	return err
}

func moneysJSON(list []zabor.Money) []moneyJSON {
	out := []moneyJSON{}
	for _, m := range list {
		out = append(out, moneyJSON{m.Minor, m.Currency})
	}
	return out
}

func moneyOrNull(m zabor.Money) *moneyJSON {
	if m.Currency == "" {
		return nil
	}
	return &moneyJSON{m.Minor, m.Currency}
}
