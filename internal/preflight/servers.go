package preflight

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"zabor/doctor"
	"zabor/internal/app"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/sqlstore"
)

// Servers are the servers for zabor doctor to ask. The zero value is empty; the caller
// closes it.
type Servers struct {
	redis     []doctor.RedisServer
	databases []database
	closers   []func()
}

// database is a database to ask. zabors: it holds zabor's own tables.
type database struct {
	store  *sqlstore.Store
	where  string
	fences []string
	zabors bool
}

// Names returns the servers, for people.
func (t *Servers) Names() (all []string) {
	for _, s := range t.redis {
		all = append(all, s.Where)
	}
	for _, d := range t.databases {
		all = append(all, d.where)
	}
	return all
}

// Close ends the connections.
func (t *Servers) Close() {
	for _, f := range t.closers {
		f()
	}
}

func (t *Servers) addDatabase(address, what string, fences []string, zabors bool) error {
	store, err := sqlstore.Open(address)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, func() { store.Close() })
	t.databases = append(t.databases, database{store, what, fences, zabors})
	return nil
}

// AddApplication adds the servers in an application's own configuration. A server with an
// unknown address is a finding.
func (t *Servers) AddApplication(project *app.Project) []doctor.Finding {
	servers, findings := doctor.Servers(project)
	for _, s := range servers {
		t.closers = append(t.closers, func() { s.Client.Close() })
	}
	t.redis = append(t.redis, servers...)
	address := project.DatabaseAddress()
	if address == nil {
		return findings
	}
	if err := t.addDatabase(address.Str(), "the application's database", doctor.Fences(project), false); err != nil {
		findings = append(findings, doctor.Finding{
			Code: "ZB101", Severity: doctor.Warning, Where: doctor.Place(project, address.From.File), Line: address.From.Line,
			Found: fmt.Sprintf("the application's database is not asked: %v", err), Fix: "--database NAME, with the name of an environment variable that holds its address",
		})
	}
	return findings
}

// AddFile adds the servers of zabor's own configuration.
func (t *Servers) AddFile(file *config.Config) error {
	list, closeAll, err := connect.Connections(file)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, closeAll)
	index := map[string]int{}
	for _, s := range list {
		where := "Redis of queue " + s.QueueName
		key := fmt.Sprintf("%p %d", s.Redis, s.DB)
		i, ok := index[key]
		if !ok {
			i, index[key] = len(t.redis), len(t.redis)
			t.redis = append(t.redis, doctor.RedisServer{Where: where, Client: s.Redis})
			for _, k := range file.KeepApart {
				t.redis[i].Caches = append(t.redis[i].Caches, fmt.Sprintf("%q (keep_apart, database %d)", k.Prefix, k.DB))
			}
		}
		server := &t.redis[i]
		server.Queues = append(server.Queues, s.QueueName)
		server.Keys = append(server.Keys, s.Key)
		if s.Config != nil {
			server.Streams = append(server.Streams, doctor.Stream{Transport: s.QueueName, Stream: s.Stream, Group: s.Group})
			continue
		}
		server.Keys[len(server.Keys)-1] = strings.TrimSuffix(s.Key, s.QueueName) // other queues of the application
		if horizon := file.Queues[s.QueueName].Laravel.Horizon; horizon != "" {
			server.Keys = append(server.Keys, horizon)
		}
	}
	if err := t.addDatabase(string(file.Fence), "the fence's database", nil, true); err != nil {
		return exit.Usage(fmt.Errorf("%s: fence: %w", file.Path, err), "")
	}
	t.databases[len(t.databases)-1].store.Encrypt(file.Keys()) // its check reads encrypted rows
	return nil
}

// Examine asks all servers. fences are the application's own fence tables. An
// error names the servers without an answer; the findings of the others are good.
func (t *Servers) Examine(ctx context.Context, fences []string) ([]doctor.Finding, error) {
	var all []doctor.Finding
	var failed []error
	for _, s := range t.redis {
		ctx, cancel := context.WithTimeout(ctx, wait)
		findings, err := doctor.ExamineRedis(ctx, s)
		cancel()
		all = append(all, findings...)
		if err != nil {
			failed = append(failed, err)
		}
	}
	for _, d := range t.databases {
		ctx, cancel := context.WithTimeout(ctx, wait)
		findings, err := d.examine(ctx, fences)
		cancel()
		all = append(all, findings...)
		if err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return all, exit.Unreachable(errors.Join(failed...), "what is said of the others is true; nothing was changed")
	}
	return all, nil
}

func (d database) examine(ctx context.Context, fences []string) ([]doctor.Finding, error) {
	findings, err := doctor.ExamineDatabase(ctx, doctor.Database{Where: d.where, DB: d.store.DB(), Dialect: d.store.Dialect(), Fences: append(slices.Clone(d.fences), fences...)})
	if err != nil || !d.zabors {
		return findings, err
	}
	err = d.store.Setup().Check(ctx)
	if errors.Is(err, sqlstore.ErrUnreachable) {
		return findings, err
	}
	return append(findings, tableProblems(d.where, err)...), nil
}

// settings are problems of the store with a finding of their own.
var settings = regexp.MustCompile(`innodb_flush|sync_binlog|synchronous_commit|fsync|full_page_writes|read-only|read_only`)

// tableProblems returns findings about obstacles for a worker's start on the fence's
// database.
func tableProblems(where string, err error) []doctor.Finding {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	var findings []doctor.Finding
	for _, err := range list {
		if err == nil || settings.MatchString(err.Error()) {
			continue
		}
		f := doctor.Finding{Code: "ZB176", Severity: doctor.Error, Where: where, Found: err.Error(), Fix: "zabor migrate"}
		if problem, ok := errors.AsType[*sqlstore.Problem](err); ok {
			f.Found, f.Fix = problem.Found, problem.Fix
		}
		findings = append(findings, f)
	}
	return findings
}

// AddRedis adds the Redis at address, the value of an environment variable.
func (t *Servers) AddRedis(variable, address string) error {
	client, err := doctor.OpenRedis(address)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, func() { client.Close() })
	t.redis = append(t.redis, doctor.RedisServer{Where: "Redis of " + variable, Client: client})
	return nil
}

// AddDatabase adds the database at address, the value of an environment variable.
// held.
func (t *Servers) AddDatabase(variable, address string) error {
	return t.addDatabase(address, "database of "+variable, nil, false)
}
