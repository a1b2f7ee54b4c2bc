package main

import (
	"fmt"
	"os"

	"zabor/internal/app"
	"zabor/internal/draft"
	"zabor/internal/exit"
)

type initCommand struct {
	Path        string `arg:"" help:"The application: the folder that composer.json is in."`
	Environment string `name:"env" placeholder:"NAME" help:"Read for this environment. Else APP_ENV, or production where that is for development."`
	DebugConfig string `placeholder:"FILE" help:"Symfony: the output of debug:config framework --format=json, read instead of config/packages."`
}

func (c *initCommand) Run(p *program) error {
	project, err := app.Open(c.Path, app.Options{Lookup: os.LookupEnv, Environment: c.Environment, DebugConfig: c.DebugConfig})
	if err != nil {
		return exit.Usage(fmt.Errorf("nothing was read: %w", err), "name the folder of an application: the one that composer.json is in")
	}
	if project.Framework == app.None {
		return exit.Usage(fmt.Errorf("%s is neither a Laravel nor a Symfony application", c.Path), "name the folder of an application: the one that composer.json is in")
	}
	for _, n := range project.Notices {
		p.Log.Warn("not understood: "+n.What, "file", n.File, "line", n.Line)
	}
	_, err = p.stdout.Write([]byte(draft.Of(project)))
	return err
}
