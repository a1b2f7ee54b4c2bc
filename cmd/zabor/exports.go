package main

import (
	"fmt"
	"os"
	"strings"

	"zabor/audit"
	"zabor/internal/exit"
)

// readExports are the files that --provider-export names.
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
