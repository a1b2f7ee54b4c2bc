package config

import (
	"cmp"
	"strings"
)

// unbuilt lists what a file may say and this version does not act on yet. A key
// is a path in which * stands for any one key. It counts only where its value
// is not empty, false or 0.
var unbuilt = [...]struct {
	key  string
	lost string // what does not happen
	fix  string // empty: take it out
}{}

// Unbuilt lists the settings of c that are valid and that this version does not
// act on. A program that would need them must not start: none is taken and
// silently left out.
func (c *Config) Unbuilt() []Finding {
	var findings []Finding
	for _, s := range c.all {
		for _, u := range unbuilt {
			if s.empty || !matches(u.key, s.path) {
				continue
			}
			findings = append(findings, Finding{
				File: c.Path, Line: s.key.line, Column: s.key.column, Key: s.path.String(),
				What: "not acted on in this version: " + u.lost, Fix: cmp.Or(u.fix, "take it out"),
			})
		}
	}
	inOrder(findings)
	return findings
}

// matches reports whether a setting's path is the one that key means.
func matches(key string, at path) bool {
	parts := strings.Split(key, ".")
	if len(parts) != len(at) {
		return false
	}
	for i, part := range parts {
		if part != "*" && part != at[i] {
			return false
		}
	}
	return true
}
