package doctor

import (
	"encoding/json"
	"io"
	"path/filepath"
)

// SARIF prints the findings in the format of code scanning, SARIF 2.1.0.
func (r Report) SARIF(w io.Writer, version string) error {
	type text struct {
		Text string `json:"text"`
	}
	type descriptor struct {
		ID               string `json:"id"`
		Name             string `json:"name"`
		ShortDescription text   `json:"shortDescription"`
		HelpURI          string `json:"helpUri,omitempty"`
		Default          struct {
			Level Severity `json:"level"`
		} `json:"defaultConfiguration"`
	}
	type region struct {
		StartLine int `json:"startLine"`
	}
	type artifact struct {
		URI string `json:"uri"`
	}
	type physical struct {
		Artifact artifact `json:"artifactLocation"`
		Region   *region  `json:"region,omitempty"`
	}
	type logical struct {
		Name string `json:"fullyQualifiedName"`
	}
	type location struct {
		Physical *physical `json:"physicalLocation,omitempty"`
		Logical  []logical `json:"logicalLocations,omitempty"`
	}
	type result struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        Severity          `json:"level"`
		Message      text              `json:"message"`
		Locations    []location        `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	rules := []descriptor{}
	index := map[string]int{}
	for i, rule := range Rules() {
		d := descriptor{ID: rule.Code, Name: rule.Name, ShortDescription: text{rule.Name}}
		if rule.Incident != "" {
			d.HelpURI = incidentURL(rule.Incident)
		}
		d.Default.Level = rule.Severity
		rules = append(rules, d)
		index[rule.Code] = i
	}
	results := []result{}
	for i, print := range fingerprints(r.Findings) {
		f := r.Findings[i]
		one := result{
			RuleID: f.Code, RuleIndex: index[f.Code], Level: f.Severity, Message: text{f.Found + ". Fix: " + f.Fix},
			Fingerprints: map[string]string{"zabor/v1": print},
		}
		l := location{Logical: []logical{{f.Where}}}
		if f.Line > 0 || f.Excerpt != "" {
			l = location{Physical: &physical{Artifact: artifact{filepath.ToSlash(f.Where)}}}
			if f.Line > 0 {
				l.Physical.Region = &region{f.Line}
			}
		}
		one.Locations = []location{l}
		results = append(results, one)
	}
	out := map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []any{map[string]any{
			"tool":    map[string]any{"driver": map[string]any{"name": "zabor doctor", "version": version, "rules": rules}},
			"results": results,
		}},
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
