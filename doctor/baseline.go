package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Baseline are the findings that somebody has looked at and lives with.
type Baseline struct {
	Findings []KnownFinding `json:"findings"`
}

// KnownFinding is one of them: its fingerprint, and what it was for readers.
type KnownFinding struct {
	Fingerprint string `json:"fingerprint"`
	Code        string `json:"code"`
	Where       string `json:"where"`
	Found       string `json:"found"`
}

// ReadBaseline reads a baseline. A file that is not there is an error: a
// misspelt name must not bring all findings back in silence.
func ReadBaseline(path string) (Baseline, error) {
	var b Baseline
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, fmt.Errorf("baseline: there is no file %s", path)
	}
	if err != nil {
		return b, fmt.Errorf("baseline: %w", err)
	}
	if err := json.Unmarshal(content, &b); err != nil {
		return b, fmt.Errorf("baseline %s: %w", path, err)
	}
	return b, nil
}

// NewBaseline is a baseline of all findings.
func NewBaseline(findings []Finding) Baseline {
	b := Baseline{Findings: []KnownFinding{}}
	for i, print := range fingerprints(findings) {
		f := findings[i]
		b.Findings = append(b.Findings, KnownFinding{print, f.Code, f.Where, f.Found})
	}
	return b
}

// Write writes the baseline to a file.
func (b Baseline) Write(path string) error {
	content, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	return nil
}

// Without are the findings that b does not hold, and how many it holds.
func (b Baseline) Without(findings []Finding) (left []Finding, known int) {
	have := map[string]bool{}
	for _, f := range b.Findings {
		have[f.Fingerprint] = true
	}
	left = []Finding{}
	for i, print := range fingerprints(findings) {
		if have[print] {
			known++
		} else {
			left = append(left, findings[i])
		}
	}
	return left, known
}

// fingerprints are those of the findings, in their order.
func fingerprints(findings []Finding) []string {
	seen := map[string]int{}
	prints := make([]string, len(findings))
	for i, f := range findings {
		first := f.Fingerprint(0)
		prints[i] = f.Fingerprint(seen[first])
		seen[first]++
	}
	return prints
}

// incidentURL is the page of a public report such as laravel/horizon#72.
func incidentURL(report string) string {
	repository, number, _ := strings.Cut(report, "#")
	return "https://github.com/" + repository + "/issues/" + number
}
