package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"zabor/audit"
	"zabor/internal/config"
	"zabor/internal/exit"
)

// readExports returns the files of --provider-export.
func (p *program) readExports(named []string, columns string) ([]audit.Export, error) {
	var mapped *audit.Columns
	if columns != "" {
		read, err := audit.ParseColumns(columns)
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("--columns: %w", err), "")
		}
		mapped = &read
		if len(read.Status) == 0 && len(read.Reference) > 0 && len(named) > 0 {
			p.Log.Warn("--columns names no status: every line of the export counts as a payment that went through, also one that failed", "fix", "add status=COLUMN:paid|captured, or take a file in which only such lines are")
		}
	}
	var exports []audit.Export
	for _, text := range named {
		name, path, ok := strings.Cut(text, "=")
		if !ok {
			name, path = "", text
		}
		if _, err := os.Stat(path); err != nil {
			return nil, exit.Usage(fmt.Errorf("--provider-export: %w", err), "")
		}
		exports = append(exports, audit.Export{Path: path, Provider: name, Columns: mapped})
	}
	return exports, nil
}

// exports returns the files of the flags.
func (c *importCommand) exports(p *program, file *config.Config) ([]audit.Export, error) {
	if c.PaymentsQuery == "" && len(c.ProviderExport) == 0 {
		return nil, nil
	}
	exports, err := p.readExports(c.ProviderExport, c.Columns)
	if err != nil {
		return nil, err
	}
	for n, e := range exports {
		if _, known := file.Providers[e.Provider]; e.Provider != "" && !known {
			return nil, exit.Usage(fmt.Errorf("--provider-export %s=%s: %s has no provider of that name", e.Provider, e.Path, file.Path), "the name before = is the one under providers:")
		}
		if e.Provider == "" && len(file.Providers) == 1 {
			exports[n].Provider = slices.Collect(maps.Keys(file.Providers))[0]
		}
		exports[n].Units = file.Units(e.Provider)
	}
	return exports, nil
}
