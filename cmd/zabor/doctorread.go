package main

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"zabor/doctor"
	"zabor/internal/app"
	"zabor/internal/config"
	"zabor/internal/serve"
)

// doctorOptions returns the facts about an application in zabor's own file.
func doctorOptions(project *app.Project, file *config.Config) doctor.Options {
	var o doctor.Options
	if _, err := os.Stat(filepath.Join(project.Root, "zabor.yaml")); err == nil {
		o.Zabor = true
	}
	if file == nil {
		return o
	}
	o.Zabor = true
	o.StopNeeds = time.Duration(serve.SecondsToStop(file)) * time.Second
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

// paths returns the folders and files to read, the one of --app first.
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
