package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is the release; set by the linker.
var version = "0.1.0-dev"

type versionCommand struct {
	JSON bool `name:"json" help:"One JSON value."`
}

func (c *versionCommand) Run(p *program) error {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(map[string]string{
			"version": version, "revision": revision, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	fmt.Fprintf(p.stdout, "zabor %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
