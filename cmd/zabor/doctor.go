package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"zabor/dashboard"
	"zabor/doctor"
	"zabor/internal/app"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/sqlstore"
)

type doctorCommand struct {
	Paths         []string `arg:"" optional:"" name:"path" help:"Laravel or Symfony applications, folders of the host's configuration, or single files of it (supervisor, systemd, compose, Kubernetes). Without one, and without -c and --app: this folder."`
	App           string   `placeholder:"PATH" help:"An application whose servers are asked too, by the addresses in its own configuration. With -c those of zabor's file are."`
	Redis         string   `placeholder:"NAME" help:"Ask this Redis too: the name of an environment variable with its address."`
	Database      string   `placeholder:"NAME" help:"Ask this database too: the name of an environment variable with its address."`
	FenceTable    []string `placeholder:"TABLE" help:"A table that the application uses as a fence, beside those that its source shows."`
	Environment   string   `name:"env" placeholder:"NAME" help:"Read for this environment. Else APP_ENV, or production where that is for development."`
	DebugConfig   string   `placeholder:"FILE" help:"Symfony: the output of debug:config framework --format=json, read instead of config/packages."`
	JSON          bool     `name:"json" xor:"format" help:"One JSON object."`
	SARIF         bool     `name:"sarif" xor:"format" help:"SARIF 2.1.0, for code scanning."`
	FixHint       bool     `help:"Say what to write with each finding."`
	Baseline      string   `placeholder:"FILE" help:"Findings that are known: they are counted and not shown."`
	Publish       bool     `help:"Keep the findings in the fence's database, for the dashboard; with -c."`
	WriteBaseline string   `placeholder:"FILE" help:"Write all findings to FILE, for --baseline, and end well."`
}

// doctorWait is how long one server has to answer all that it is asked.
const doctorWait = 20 * time.Second

func (c *doctorCommand) Run(p *program) error {
	var known doctor.Baseline
	var err error
	if c.Baseline != "" {
		if known, err = doctor.ReadBaseline(c.Baseline); err != nil {
			return exit.Usage(err, "--write-baseline FILE makes one")
		}
	}
	var file *config.Config
	if p.cli.Config != "" {
		if file, err = p.load(); err != nil {
			return err
		}
	}
	var report doctor.Report
	var servers doctorServers
	defer servers.close()
	for i, path := range c.paths(file) {
		project, err := app.Open(path, app.Options{Lookup: os.LookupEnv, Environment: c.Environment, DebugConfig: c.DebugConfig})
		if err != nil {
			return exit.Usage(fmt.Errorf("nothing was examined: %w", err), "name the folder of an application: the one that composer.json is in")
		}
		if project.Framework == app.None && len(project.Workers) == 0 {
			return exit.Usage(fmt.Errorf("%s is neither a Laravel nor a Symfony application, and nothing in it starts a worker", path), "name the folder of an application: the one that composer.json is in")
		}
		report.Findings = append(report.Findings, doctor.Examine(project, doctorOptions(project, file))...)
		report.Values = append(report.Values, doctor.Values(project)...)
		if c.App != "" && i == 0 {
			report.Findings = append(report.Findings, servers.application(project)...)
		}
	}
	if err := servers.named(c); err != nil {
		return err
	}
	if file != nil {
		report.Limits = file.Limits()
		if err := servers.file(file); err != nil {
			return err
		}
	}
	findings, unreached := servers.examine(p.ctx, c.FenceTable)
	report.Findings = append(report.Findings, findings...)
	if asked := servers.names(); len(asked) > 0 {
		fmt.Fprintf(p.stderr, "zabor: asked: %s\n", strings.Join(asked, ", "))
	}
	if c.WriteBaseline != "" {
		if unreached != nil {
			return unreached
		}
		if err := doctor.NewBaseline(report.Findings).Write(c.WriteBaseline); err != nil {
			return exit.Usage(err, "")
		}
		fmt.Fprintf(p.stderr, "%d findings are in %s\n", len(report.Findings), c.WriteBaseline)
		return nil
	}
	report.Findings, report.Known = known.Without(report.Findings)
	if c.Publish {
		if err := p.publishDoctor(file, report.Findings, unreached); err != nil {
			return err
		}
	}
	if err := c.print(p, report); err != nil {
		return err
	}
	if unreached != nil {
		return unreached
	}
	if n := report.Bad(); n > 0 {
		return exit.Bad(fmt.Errorf("%d findings are errors or warnings; nothing was changed", n), "")
	}
	return nil
}

// publishDoctor keeps findings for the dashboard.
func (p *program) publishDoctor(file *config.Config, findings []doctor.Finding, unreached error) error {
	if file == nil {
		return exit.Usage(errors.New("--publish: no zabor.yaml was named, and the findings are kept in its fence's database"), "add -c FILE")
	}
	store, err := sqlstore.Open(string(file.Fence))
	if err != nil {
		return exit.Usage(fmt.Errorf("%s: fence: %w", file.Path, err), "")
	}
	defer store.Close()
	kept := dashboard.DoctorReport{At: time.Now().UTC(), By: "zabor doctor", Findings: findings}
	if unreached != nil {
		kept.Failed = unreached.Error()
	}
	if err := dashboard.KeepDoctor(p.ctx, store, file.Scope, kept); err != nil {
		return exit.Store(err)
	}
	return nil
}

// paths are the folders and files to read, that of --app first.
func (c *doctorCommand) paths(file *config.Config) []string {
	paths := c.Paths
	if c.App != "" {
		paths = append([]string{c.App}, slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return filepath.Clean(path) == filepath.Clean(c.App) })...)
	}
	if len(paths) == 0 && file == nil && c.Redis == "" && c.Database == "" {
		paths = []string{"."}
	}
	return paths
}

func (c *doctorCommand) print(p *program, report doctor.Report) error {
	switch {
	case c.SARIF:
		return report.SARIF(p.stdout, version)
	case c.JSON:
		if report.Values == nil {
			report.Values = []doctor.Value{}
		}
		e := json.NewEncoder(p.stdout)
		e.SetEscapeHTML(false)
		return e.Encode(report)
	}
	return report.Text(p.stdout, c.FixHint)
}

// doctorOptions is what zabor's own file says about an application.
func doctorOptions(project *app.Project, file *config.Config) doctor.Options {
	var o doctor.Options
	if _, err := os.Stat(filepath.Join(project.Root, "zabor.yaml")); err == nil {
		o.Zabor = true
	}
	if file == nil {
		return o
	}
	o.Zabor = true
	o.StopNeeds = time.Duration(secondsToStop(file)) * time.Second
	for _, step := range file.Steps {
		for _, class := range step.Message {
			o.Fenced = append(o.Fenced, string(class))
		}
	}
	for _, one := range file.Providers {
		if u, err := url.Parse(string(one.BaseURL)); err == nil && u.Host != "" {
			o.Hosts = append(o.Hosts, u.Hostname())
		}
	}
	return o
}

// doctorServers are the servers to ask.
type doctorServers struct {
	redis     []doctor.RedisServer
	databases []doctorDatabase
	closers   []func()
}

// doctorDatabase is a database; zabors: it holds zabor's own tables.
type doctorDatabase struct {
	store  *sqlstore.Store
	where  string
	fences []string
	zabors bool
}

// names are what the servers are, for people.
func (t *doctorServers) names() (all []string) {
	for _, s := range t.redis {
		all = append(all, s.Where)
	}
	for _, d := range t.databases {
		all = append(all, d.where)
	}
	return all
}

func (t *doctorServers) close() {
	for _, f := range t.closers {
		f()
	}
}

func (t *doctorServers) database(address, what string, fences []string, zabors bool) error {
	store, err := sqlstore.Open(address)
	if err != nil {
		return err
	}
	t.closers = append(t.closers, func() { store.Close() })
	t.databases = append(t.databases, doctorDatabase{store, what, fences, zabors})
	return nil
}

// application adds the servers in an application's own configuration.
func (t *doctorServers) application(project *app.Project) []doctor.Finding {
	servers, findings := doctor.Servers(project)
	for _, s := range servers {
		t.closers = append(t.closers, func() { s.Client.Close() })
	}
	t.redis = append(t.redis, servers...)
	address := project.DatabaseAddress()
	if address == nil {
		return findings
	}
	if err := t.database(address.Str(), "the application's database", doctor.Fences(project), false); err != nil {
		findings = append(findings, doctor.Finding{
			Code: "ZB101", Severity: doctor.Warning, Where: doctor.Place(project, address.From.File), Line: address.From.Line,
			Found: fmt.Sprintf("the application's database is not asked: %v", err), Fix: "--database NAME, with the name of an environment variable that holds its address",
		})
	}
	return findings
}

var variableName = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// address is what the environment variable of that name holds. What was given
// may be an address itself, with a password: it is not repeated.
func address(flag, name string) (string, error) {
	if !variableName.MatchString(name) {
		return "", exit.Usage(fmt.Errorf("--%s takes the name of an environment variable, and what was given is none", flag), "export SHOP_ADDRESS='…' first, and then --"+flag+" SHOP_ADDRESS: an address on the command line is seen by everybody on the machine")
	}
	value := os.Getenv(name)
	if value == "" {
		return "", exit.Usage(fmt.Errorf("--%s: the environment variable %s is not set", flag, name), "")
	}
	return value, nil
}

// named adds the servers that flags name.
func (t *doctorServers) named(c *doctorCommand) error {
	if c.Redis != "" {
		value, err := address("redis", c.Redis)
		if err != nil {
			return err
		}
		client, err := doctor.OpenRedis(value)
		if err != nil {
			return exit.Usage(fmt.Errorf("--redis %s: %w", c.Redis, err), "")
		}
		t.closers = append(t.closers, func() { client.Close() })
		t.redis = append(t.redis, doctor.RedisServer{Where: "Redis of " + c.Redis, Client: client})
	}
	if c.Database != "" {
		value, err := address("database", c.Database)
		if err != nil {
			return err
		}
		if err := t.database(value, "database of "+c.Database, nil, false); err != nil {
			return exit.Usage(fmt.Errorf("--database %s: %w", c.Database, err), "")
		}
	}
	return nil
}

// file adds the servers of zabor's own configuration.
func (t *doctorServers) file(file *config.Config) error {
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
	if err := t.database(string(file.Fence), "the fence's database", nil, true); err != nil {
		return exit.Usage(fmt.Errorf("%s: fence: %w", file.Path, err), "")
	}
	t.databases[len(t.databases)-1].store.Encrypt(file.Keys()) // its check reads what is encrypted
	return nil
}

// examine asks all of them. The error is that of those that did not answer; the
// findings of the others are good.
func (t *doctorServers) examine(ctx context.Context, fences []string) ([]doctor.Finding, error) {
	var all []doctor.Finding
	var failed []error
	for _, s := range t.redis {
		ctx, cancel := context.WithTimeout(ctx, doctorWait)
		findings, err := doctor.ExamineRedis(ctx, s)
		cancel()
		all = append(all, findings...)
		if err != nil {
			failed = append(failed, err)
		}
	}
	for _, d := range t.databases {
		ctx, cancel := context.WithTimeout(ctx, doctorWait)
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

func (d doctorDatabase) examine(ctx context.Context, fences []string) ([]doctor.Finding, error) {
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

// settings are what a check of the store says that is a finding of its own already.
var settings = regexp.MustCompile(`innodb_flush|sync_binlog|synchronous_commit|fsync|full_page_writes|read-only|read_only`)

// tableProblems is what keeps a worker from starting on the fence's database.
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
