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
	revision, dirty := builtFrom()
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(map[string]any{
			"version": version, "revision": revision, "dirty": dirty, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	commit := ""
	if revision != "" {
		commit = " (commit " + revision + ")"
		if dirty {
			commit = " (commit " + revision + ", dirty)"
		}
	}
	fmt.Fprintf(p.stdout, "zabor %s%s %s %s/%s\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// builtFrom is the commit of the build, and whether the tree
// had other changes. It is empty where the build did not know it: go run and go
// test do not tell it, and neither does a tree without its repository.
func builtFrom() (revision string, dirty bool) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	return revision, dirty
}
