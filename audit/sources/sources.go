// Package sources reads the sources of an audit: rows, exports and lists of providers, the
// application's payments, and messages on the queues. It writes only into the
// ledger.
package sources

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"zabor"
	"zabor/audit"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/provider"
	"zabor/proxy"
	"zabor/sqlstore"
	"zabor/worker"
)

// Sources are the sources of an audit. A nil one is not read.
type Sources struct {
	Since    time.Time // of the running audit; zero: the beginning
	Exports  []audit.Export
	Lists    []*provider.Provider
	File     *config.Config
	Store    *sqlstore.Store // of the fence
	App      *sqlstore.Store // of the application
	Query    string          // for App: a SELECT on the application's payments
	NoQueues bool            // the queues of File are not read

	Log   *slog.Logger                     // not nil; of the queues
	Alert func(zabor.Alert)                // not nil; of the queues
	Say   func(format string, args ...any) // not nil; gets the progress
}

// Read reads all sources since then, and joins them. work is the path of a work file; it
// is kept until the audit is complete. Empty means a temporary one. The ledger is the
// caller's to close.
func (a *Sources) Read(ctx context.Context, work string, since time.Time) (*audit.Ledger, audit.Total, error) {
	a.Since = since
	ledger, err := audit.Open(work)
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

func (a *Sources) fill(ctx context.Context, ledger *audit.Ledger) (audit.Total, error) {
	seen := func(what string) func(int64) {
		return func(n int64) { a.Say("\r%s: %d read%20s", what, n, "") }
	}
	if err := a.fillFirst(ctx, ledger, seen); err != nil {
		return audit.Total{}, err
	}
	if a.Store != nil {
		if err := ledger.AddRows(ctx, a.File.Scope, a.rows(ctx), seen("rows")); err != nil {
			return audit.Total{}, exit.Store(err)
		}
		if err := ledger.AddUnfetched(ctx, a.Store.History().Keys(ctx, proxy.Unfetched)); err != nil {
			return audit.Total{}, exit.Store(err)
		}
		if err := ledger.AddRefunded(ctx, a.Store.History().Keys(ctx, sqlstore.Refunded)); err != nil {
			return audit.Total{}, exit.Store(err)
		}
	}
	for _, e := range a.Exports {
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
	if a.App != nil {
		if err := ledger.AddPayments(ctx, audit.WithOrder(audit.QueryPayments(ctx, a.App, a.Query, true)), seen("payments")); err != nil {
			return audit.Total{}, exit.Usage(err, "the query must give a column order, and may give step, reference, amount or major, currency")
		}
	}
	a.Say("\rcomparing%40s", "")
	if err := ledger.Join(ctx); err != nil {
		return audit.Total{}, err
	}
	total, err := ledger.Total(ctx)
	a.Say("\r%60s\r", "")
	return total, err
}

// mostReasons is how many reasons to skip entries are told of a file.
const mostReasons = 30

// fillFirst reads the sources before the rows. A charge in a list, or a
// taken message, has its row before; the other way round a shop at work
// would look like one with differences.
func (a *Sources) fillFirst(ctx context.Context, ledger *audit.Ledger, seen func(string) func(int64)) error {
	if a.File == nil {
		return nil
	}
	if err := a.unlisted(ctx, ledger); err != nil {
		return err
	}
	for _, one := range a.Lists {
		if err := ledger.AddPages(ctx, "list of "+one.Name(), a.listed(ctx, one), seen(one.Name())); err != nil {
			return exit.Unreachable(err, "nothing was compared; with --work FILE the next audit goes on where this one was")
		}
	}
	if a.NoQueues || len(a.File.Queues) == 0 {
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

// unlisted tells ledger the steps with calls missing in their provider's list.
func (a *Sources) unlisted(ctx context.Context, ledger *audit.Ledger) error {
	providers, err := connect.OpenProviders(a.File, a.File.Rotation(func(err error) { a.Log.Error(err.Error()) }))
	if err != nil {
		return err
	}
	for name, s := range a.File.Steps {
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

// listed returns a reader of the pages of a provider's list.
func (a *Sources) listed(ctx context.Context, one *provider.Provider) func(string) ([]audit.Success, string, error) {
	return func(place string) (found []audit.Success, next string, err error) {
		page, next, err := one.List(ctx, a.Since, place)
		for _, l := range page {
			found = append(found, audit.Success{
				Provider: one.Name(), Reference: l.Reference, Alias: l.Alias, Key: l.Key, Order: l.Order, Amount: l.Amount, At: l.At, Place: "list of " + one.Name(),
				Back: l.Back, Gone: l.Gone,
			})
		}
		return found, next, err
	}
}

// rows returns a reader of pages of the fence. Closed rows are left out from an hour before
// Since: a row is saved after the provider's own time.
func (a *Sources) rows(ctx context.Context) func(zabor.Key) ([]zabor.Row, error) {
	const page = 5000
	return func(after zabor.Key) ([]zabor.Row, error) {
		for {
			rows, err := a.Store.Reports().Outline(ctx, after, page)
			if err != nil || len(rows) == 0 || a.Since.IsZero() {
				return rows, err
			}
			after = rows[len(rows)-1].Key
			rows = slices.DeleteFunc(rows, func(r zabor.Row) bool { return r.State.Closed() && r.StateSince.Before(a.Since.Add(-time.Hour)) })
			if len(rows) > 0 {
				return rows, nil
			}
		}
	}
}

// recent passes over successes before the time asked for.
func (a *Sources) recent(all iter.Seq2[audit.Success, error]) iter.Seq2[audit.Success, error] {
	return func(yield func(audit.Success, error) bool) {
		for s, err := range all {
			if err == nil && !s.At.IsZero() && s.At.Before(a.Since) {
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// messages gives the messages of steps on all queues and in their failure transports.
func (a *Sources) messages(ctx context.Context) iter.Seq2[audit.Message, error] {
	return func(yield func(audit.Message, error) bool) {
		queues, closeQueues, err := connect.Queues(a.File, a.Store, a.Log, a.Alert)
		if err != nil {
			yield(audit.Message{}, err)
			return
		}
		defer closeQueues()
		f := failures.New(a.File, a.Store, queues)
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
