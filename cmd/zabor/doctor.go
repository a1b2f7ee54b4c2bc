package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"zabor/dashboard/backend"
	"zabor/doctor"
	"zabor/internal/app"
	"zabor/internal/config"
	"zabor/internal/exit"
	"zabor/internal/preflight"
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
	var servers preflight.Servers
	defer servers.Close()
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
			report.Findings = append(report.Findings, servers.AddApplication(project)...)
		}
	}
	if err := c.named(&servers); err != nil {
		return err
	}
	if file != nil {
		report.Limits = file.Limits()
		if err := servers.AddFile(file); err != nil {
			return err
		}
	}
	findings, unreached := servers.Examine(p.ctx, c.FenceTable)
	report.Findings = append(report.Findings, findings...)
	if asked := servers.Names(); len(asked) > 0 {
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
	_, store, err := p.openFence()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := backend.KeepDoctor(p.ctx, store, file.Scope, "zabor doctor", findings, unreached); err != nil {
		return exit.Store(err)
	}
	return nil
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

// named adds the servers of the flags.
func (c *doctorCommand) named(t *preflight.Servers) error {
	for _, one := range []struct {
		flag, variable string
		add            func(variable, address string) error
	}{{"redis", c.Redis, t.AddRedis}, {"database", c.Database, t.AddDatabase}} {
		if one.variable == "" {
			continue
		}
		value, err := address(one.flag, one.variable)
		if err != nil {
			return err
		}
		if err := one.add(one.variable, value); err != nil {
			return exit.Usage(fmt.Errorf("--%s %s: %w", one.flag, one.variable, err), "")
		}
	}
	return nil
}
