package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/user"
	"slices"
	"time"

	"zabor"
	"zabor/audit/sources"
	"zabor/card"
	"zabor/dashboard"
	"zabor/dashboard/access"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/console"
	"zabor/internal/decision"
	"zabor/internal/exit"
	"zabor/internal/failures"
	"zabor/internal/preflight"
	"zabor/internal/takeover"
	"zabor/metrics"
	"zabor/provider"
	"zabor/sqlstore"
	"zabor/worker"
)

type dashboardCommand struct{}

func (c *dashboardCommand) Run(p *program) error {
	file, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if file.Dashboard == nil {
		return exit.Usage(fmt.Errorf("%s: no dashboard is configured", file.Path), `write dashboard: {listen: "127.0.0.1:8071"}`)
	}
	endAlerts, err := p.alerts(file)
	if err != nil {
		return err
	}
	defer endAlerts()
	fence, err := p.decisionFence(file, store)
	if err != nil {
		return err
	}
	list, closeAll, err := p.queues(file, store)
	if err != nil {
		return err
	}
	defer closeAll()
	served, err := p.measureDashboard(file, store, workerQueues(list))
	if err != nil {
		return err
	}
	ended, err := p.serveDashboard(p.ctx, &office{program: p, file: file, store: store, fence: fence, queues: list})
	if err != nil {
		return err
	}
	defer served()
	stopTelling := p.tellAlive(store, func() dashboard.Status { return p.status("dashboard", file.Scope) })
	defer stopTelling()
	return ended()
}

// measureDashboard answers at metrics.listen for a dashboard that runs alone; it
// does nothing where there is none. done waits for the end.
func (p *program) measureDashboard(file *config.Config, store *sqlstore.Store, queues []worker.Queue) (done func(), err error) {
	if file.Metrics == nil {
		return func() {}, nil
	}
	m, err := newMetrics(file)
	if err != nil {
		return nil, err
	}
	listener, err := p.listenMetrics(file)
	if err != nil {
		return nil, err
	}
	p.count = m.Alert
	m.Watch(p.watched(file, store, queues))
	return p.serveAt(p.ctx, m, listener, checks(store, queues)), nil
}

// workerQueues are the queues as the worker has them.
func workerQueues(list []connect.Queue) []worker.Queue {
	all := make([]worker.Queue, len(list))
	for i, q := range list {
		all[i] = q.Queue
	}
	return all
}

// office is what the dashboard's pages ask. It calls no provider.
type office struct {
	*program
	file   *config.Config
	store  *sqlstore.Store
	fence  *zabor.Fence
	queues []connect.Queue // of the configuration; open
}

// serveDashboard listens and serves the dashboard until ctx ends. ended waits for
// that.
func (p *program) serveDashboard(ctx context.Context, o *office) (ended func() error, err error) {
	board, err := o.dashboard()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.file.Dashboard.Listen)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: dashboard.listen: %w", o.file.Path, err), "write an address that is free on this host")
	}
	done := make(chan error, 1)
	go func() { done <- board.Serve(ctx, listener) }()
	p.log.Info("the dashboard listens", "address", "http://"+listener.Addr().String(), "users", len(o.file.Dashboard.Users), "second_person", o.file.Dashboard.SecondPerson)
	return func() error { return <-done }, nil
}

func (o *office) dashboard() (*dashboard.Dashboard, error) {
	c := o.file.Dashboard
	guard, err := access.New(access.Options{Users: c.Accounts(), Alone: alone(), URL: string(c.URL), Log: o.log})
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("%s: dashboard: %w", o.file.Path, err), "")
	}
	options := dashboard.Options{
		Store: o.store, Scope: o.file.Scope, Version: version, Guard: guard, SecondPerson: c.SecondPerson, Log: o.log,
		Look: o.look, Take: o.take, Audit: o.audit, Doctor: o.doctor,
		Health: metrics.Health(checks(o.store, workerQueues(o.queues)), func(reasons map[string]string) {
			o.log.Warn("not ready", "reasons", reasons)
		}),
	}
	for _, name := range slices.Sorted(maps.Keys(o.file.Providers)) {
		options.Providers = append(options.Providers, o.provider(name))
	}
	for _, q := range o.queues {
		kind := "laravel"
		if q.Config != nil {
			kind = "symfony"
		}
		options.Queues = append(options.Queues, dashboard.Queue{Name: q.Name(), Kind: kind, Depth: depthOf(q)})
	}
	if len(o.queues) > 0 {
		options.Failed = dashboard.Failures{List: o.failedList, Older: o.failedOlder, Count: o.failedCount, Times: o.failedTimes, One: o.failedOne, Retry: o.retry, Forget: o.forget}
	}
	return dashboard.New(options)
}

// alone is under whose name decisions are kept where there are no users.
func alone() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if access.CheckName(name) != nil {
		return "local"
	}
	return name
}

// provider is what the pages know of a provider of the configuration.
func (o *office) provider(name string) dashboard.Provider {
	configured := o.file.Providers[name]
	one := dashboard.Provider{Name: name}
	known, ok := provider.BuiltinNamed(configured.Profile)
	if !ok { // the application's own: what its pages find is not known
		return one
	}
	test := known.IsTest(configured.Account, string(configured.Secret))
	one.Title, one.Mode = known.Title, "LIVE"
	if test {
		one.Mode = "TEST"
	}
	one.Console = func(row zabor.Row) dashboard.Console {
		clues, query := known.Console.Search(row), ""
		if len(clues) > 0 {
			query = clues[0].Text
		}
		return dashboard.Console{URL: known.Console.Find(query, row.Account, test), Search: clues, How: known.Console.How}
	}
	return one
}

// depthOf counts what a queue holds. How long its first ready message is there is
// known where the framework writes it: into a stream's ids, and into the payloads
// of Laravel 12 and of Horizon.
func depthOf(q connect.Queue) func(context.Context) (dashboard.Depth, error) {
	return func(ctx context.Context) (dashboard.Depth, error) {
		d, err := q.Depth(ctx)
		depth := dashboard.Depth{Ready: d.Ready, Reserved: d.Reserved, Delayed: d.Delayed}
		if err != nil || d.Ready == 0 {
			return depth, err
		}
		depth.Oldest, _ = connect.OldestReady(ctx, q.Queue) // the counts are good without it
		return depth, nil
	}
}

// desk decides for one request: it keeps what it has read of the failure transports.
func (o *office) desk() *decision.Decider {
	k := &decision.Decider{File: o.file, Store: o.store, Fence: o.fence, At: func(zabor.Checkpoint, zabor.Key) {}}
	if len(o.queues) == 0 {
		k.Kept = "no queues are configured: its message is not looked for"
	} else {
		k.Failures = failures.New(o.file, o.store, o.queues)
	}
	return k
}

func (o *office) look(ctx context.Context, d zabor.Decision) (dashboard.Prospect, error) {
	k := o.desk()
	m, err := k.Plan(ctx, d)
	prospect := dashboard.Prospect{Row: m.Row}
	if err == nil {
		err = m.Refused()
	}
	if err != nil {
		return prospect, plainly(m, err)
	}
	prospect.Lines, prospect.Warnings = k.Preview(ctx, m), m.Warnings()
	return prospect, nil
}

func (o *office) take(ctx context.Context, d zabor.Decision) (dashboard.Taken, error) {
	k := o.desk()
	m, err := k.Plan(ctx, d)
	if err != nil {
		return dashboard.Taken{Row: m.Row}, plainly(m, err)
	}
	row, messages, err := k.Take(ctx, m)
	if err != nil {
		return dashboard.Taken{Row: row}, plainly(m, err)
	}
	taken := dashboard.Taken{Row: row, Lines: []string{fmt.Sprintf("%s is %s now", console.Printable(row.Key.String()), row.State)}}
	for _, one := range messages {
		taken.Lines = append(taken.Lines, one.String())
	}
	if len(messages) == 0 && k.Failures != nil && m.Action != zabor.Hold {
		taken.Lines = append(taken.Lines, k.Elsewhere(ctx, m))
	}
	return taken, nil
}

// plainly is err as a page says it: with what is to be done next, and what callers
// branch on still in it.
func plainly(m decision.Planned, err error) error {
	if errors.Is(err, zabor.ErrStale) {
		return err
	}
	err = decision.Failure(m, err)
	if f, ok := errors.AsType[*exit.Error](err); ok && errors.Is(err, zabor.ErrRefused) && m.WantsProof() {
		return fmt.Errorf("%w; look there first, and say that you did", f.Err)
	}
	return err
}

// failed is a message of a failure transport as a page shows it.
func (o *office) failed(f *failures.Transports, queue string, m failures.Failed) dashboard.FailedMessage {
	one := dashboard.FailedMessage{FailedID: dashboard.FailedID{Queue: queue, Transport: m.Kind, ID: m.FailedID}, Mark: m.Mark, At: m.At, Reason: card.Mask(m.Reason)}
	if m.Err != nil {
		one.Err, one.Raw = m.Err.Error(), m.Raw
		return one
	}
	one.Class, one.Data = m.Class, m.Data
	if one.Data == nil {
		one.Data = map[string]any{}
	}
	if k, ok := f.Key(m.Message); ok {
		one.Key = &k
	}
	return one
}

func (o *office) failedList(ctx context.Context, limit int) ([]dashboard.FailedList, error) {
	f := failures.New(o.file, o.store, o.queues)
	var lists []dashboard.FailedList
	for _, t := range f.All {
		lists = append(lists, o.failedPart(ctx, f, t, "", limit))
	}
	return lists, nil
}

// mostGivenUp is how many messages of a failure transport the picture of the last
// hours counts: reading one decodes it.
const mostGivenUp = 2000

// failedTimes is when the messages in the failure transports were put there, as far
// back as from.
func (o *office) failedTimes(ctx context.Context, from time.Time) ([]time.Time, error) {
	var times []time.Time
	for _, t := range failures.New(o.file, o.store, o.queues).All {
		n := 0
		for m, err := range t.Entries(ctx, "") {
			if err != nil {
				return nil, err
			}
			if n++; m.At.Before(from) || n > mostGivenUp {
				break
			}
			times = append(times, m.At)
		}
	}
	return times, nil
}

func (o *office) failedOlder(ctx context.Context, queue, transport, mark string, limit int) (dashboard.FailedList, error) {
	f, t, err := o.transport(dashboard.FailedID{Queue: queue, Transport: transport})
	if err != nil {
		return dashboard.FailedList{}, err
	}
	return o.failedPart(ctx, f, t, mark, limit), nil
}

// failedPart is what t has behind a mark, at most so many.
func (o *office) failedPart(ctx context.Context, f *failures.Transports, t *failures.Transport, mark string, limit int) dashboard.FailedList {
	list := dashboard.FailedList{Queue: t.Queue, Transport: t.Kind()}
	for m, err := range t.Entries(ctx, mark) {
		if err != nil {
			list.Err = err.Error()
			break
		}
		if list.Messages = append(list.Messages, o.failed(f, t.Queue, m)); len(list.Messages) == limit {
			break
		}
	}
	return list
}

func (o *office) failedCount(ctx context.Context, most int) ([]dashboard.FailedCount, error) {
	var counts []dashboard.FailedCount
	for _, t := range failures.New(o.file, o.store, o.queues).All {
		count := dashboard.FailedCount{Queue: t.Queue, Transport: t.Kind()}
		for _, err := range t.Entries(ctx, "") {
			if err != nil {
				count.Err = err.Error()
				break
			}
			if count.N == int64(most) {
				count.More = true
				break
			}
			count.N++
		}
		counts = append(counts, count)
	}
	return counts, nil
}

// transport is the failure transport that is meant.
func (o *office) transport(at dashboard.FailedID) (*failures.Transports, *failures.Transport, error) {
	f := failures.New(o.file, o.store, o.queues)
	i := slices.IndexFunc(f.All, func(t *failures.Transport) bool { return t.Queue == at.Queue && t.Kind() == at.Transport })
	if i < 0 {
		return nil, nil, fmt.Errorf("queue %s has no failure transport %s", console.Printable(at.Queue), console.Printable(at.Transport))
	}
	return f, f.All[i], nil
}

func (o *office) failedOne(ctx context.Context, at dashboard.FailedID) (dashboard.FailedMessage, error) {
	f, t, err := o.transport(at)
	if err != nil {
		return dashboard.FailedMessage{}, err
	}
	m, err := t.Entry(ctx, at.ID)
	if err != nil {
		return dashboard.FailedMessage{}, err
	}
	return o.failed(f, t.Queue, m), nil
}

func (o *office) retry(ctx context.Context, at dashboard.FailedID) error {
	f, t, err := o.transport(at)
	if err != nil {
		return err
	}
	m, err := t.Entry(ctx, at.ID)
	if err != nil {
		return err
	}
	missing, err := takeover.NotImported(ctx, f, failures.Entry{In: t, Failed: m})
	switch {
	case err != nil:
		return err
	case missing:
		return errors.New("another worker may have charged it, and it has no row: put back, it would look like a new one; zabor import holds it first")
	}
	err = t.Retry(ctx, at.ID)
	if errors.Is(err, worker.ErrBoth) {
		return fmt.Errorf("it is on its queue again, and in the failure transport too: the worker meets the fence for it; forget it here then (%w)", err)
	}
	return err
}

func (o *office) forget(ctx context.Context, at dashboard.FailedID) error {
	_, t, err := o.transport(at)
	if err != nil {
		return err
	}
	return t.Forget(ctx, at.ID)
}

// audit compares rows and queues, without any provider's list, and keeps what it
// found.
func (o *office) audit(ctx context.Context) error {
	p := *o.program
	p.ctx, p.stderr = ctx, io.Discard
	a := &auditor{program: &p, c: &auditCommand{}, close: func() {}, Sources: &sources.Sources{File: o.file, Store: o.store, Log: p.log, Alert: p.alert, Say: console.Progress(io.Discard)}}
	ledger, total, err := a.run(ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.publish(ctx, ledger, total, access.From(ctx).Name), ledger.Remove())
}

// doctor examines the servers of the configuration, and keeps what it found.
func (o *office) doctor(ctx context.Context) error {
	var servers preflight.Servers
	defer servers.Close()
	if err := servers.AddFile(o.file); err != nil {
		return err
	}
	findings, err := servers.Examine(ctx, nil)
	report := dashboard.DoctorReport{At: time.Now().UTC(), By: access.From(ctx).Name, Findings: findings}
	if err != nil {
		report.Failed = err.Error()
	}
	return dashboard.KeepDoctor(ctx, o.store, o.file.Scope, report)
}
