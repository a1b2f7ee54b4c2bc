package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"zabor/audit"
	"zabor/audit/sources"
	"zabor/dashboard/backend"
	"zabor/internal/config"
	"zabor/internal/console"
	"zabor/internal/exit"
)

type auditCommand struct {
	Since          string        `placeholder:"WHEN" help:"Only what was done since then: a duration such as 48h, or a time such as 2026-03-02T10:00:00Z. What is open is always looked at."`
	ProviderExport []string      `placeholder:"[NAME=]FILE" help:"A provider's list of payments: CSV, or a JSON object on each line. NAME is the provider's in the configuration. Stripe's, PayPal's, YooKassa's and Adyen's exports are known."`
	ProviderList   []string      `placeholder:"NAME" help:"Read the provider's own list of payments, by GETs alone. NAME is the provider's in the configuration; zabor providers show says which have one."`
	Columns        string        `placeholder:"MAP" help:"What the export's columns mean: reference=Txn,amount=Total,currency=Cur,order=Order,status=State:paid|captured (minor=… for minor units), back=State:refunded for money that went back."`
	PaymentsQuery  string        `placeholder:"SQL" help:"A SELECT on the application's own payments, with columns order and, as far as there are, step, reference, amount (minor units) or major, currency."`
	Database       string        `placeholder:"NAME" help:"The environment variable with the address of the application's database, for --payments-query. Else database: or fence: of the configuration."`
	App            string        `placeholder:"PATH" help:"A Laravel or Symfony application, which is not run: --payments-query is sent to the database of its own configuration."`
	Replica        string        `placeholder:"NAME" help:"The environment variable with the address of a replica of the fence's database, to read there."`
	NoQueues       bool          `help:"Do not look at the queues: nothing can be said about lost messages then."`
	Work           string        `placeholder:"FILE" help:"Keep the work file here until the audit is complete: one that was broken off goes on. Else a temporary file."`
	Watch          time.Duration `placeholder:"TIME" help:"Audit again and again, this far apart, and alert when something has changed."`
	Publish        bool          `help:"Keep what was found in the fence's database, for the dashboard, and note in each row whose money went back that it did: nothing else is written."`
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
		if err := backend.KeepAudit(p.ctx, a.Sources, ledger, total, "zabor audit"); err != nil {
			return errors.Join(exit.Store(err), ledger.Close())
		}
		endAlerts, err := a.Alerts(a.File)
		if err == nil {
			err = a.noteReversed(p.ctx, ledger)
			endAlerts()
		}
		if err != nil {
			return errors.Join(err, ledger.Close())
		}
	}
	for _, name := range total.Empty {
		fmt.Fprintf(a.stderr, "%s has no success: nothing was compared with it\n", name)
	}
	for _, s := range total.Skipped {
		fmt.Fprintf(a.stderr, "%s: %d skipped: %s\n", s.File, s.N, console.Printable(s.Why))
	}
	if a.Store == nil && total.Nameless > 0 {
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

// auditor is an audit of the command, with its sources.
type auditor struct {
	*program
	*sources.Sources
	c     *auditCommand
	close func()
}

func (c *auditCommand) prepare(p *program) (*auditor, error) {
	a := &auditor{program: p, c: c, close: func() {}, Sources: &sources.Sources{Query: c.PaymentsQuery, NoQueues: c.NoQueues, Log: p.Log, Alert: p.Alert, Say: console.Progress(p.stderr)}}
	var err error
	if _, err = since(c.Since, time.Now()); err != nil {
		return nil, err
	}
	if a.Exports, err = p.readExports(c.ProviderExport, c.Columns); err != nil {
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
	case len(a.Exports) == 0 && (c.PaymentsQuery == "" || c.Database == "" && c.App == ""):
		return nil, exit.Usage(errors.New("nothing to audit: there is no zabor.yaml, no --provider-export, and no --payments-query with --database or --app"),
			`without a fence, type "zabor audit --provider-export FILE", or "zabor audit --database DATABASE_URL --payments-query SQL"`)
	}
	if c.Publish && (a.Store == nil || c.Replica != "") {
		a.close()
		return nil, exit.Usage(errors.New("--publish: what was found is kept in the fence's own database"), "name its configuration with -c, and leave --replica out")
	}
	if err := a.openApplication(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// since returns the time of text; zero if text is empty.
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

// run reads and joins all sources. The ledger is the caller's to close.
func (a *auditor) run(ctx context.Context) (*audit.Ledger, audit.Total, error) {
	from, err := since(a.c.Since, time.Now())
	if err != nil {
		return nil, audit.Total{}, err
	}
	return a.Read(ctx, a.c.Work, from)
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
