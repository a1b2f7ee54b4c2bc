package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"zabor/provider"
)

type providersCommand struct {
	List providersList `cmd:"" help:"Every provider that is known, and what makes it safe, or not callable."`
	Show providersShow `cmd:"" help:"What zabor believes about one, and why."`
}

type providersList struct {
	JSON bool `name:"json" help:"One JSON array."`
}

func (c *providersList) Run(p *program) error {
	all := provider.Builtins()
	if c.JSON {
		out := []any{}
		for _, b := range all {
			out = append(out, summary(b))
		}
		return json.NewEncoder(p.stdout).Encode(out)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROFILE\tPROVIDER\tKEY\tSENT AGAIN\tLOOK-UP\tWRITE")
	for _, b := range all {
		s := summary(b)
		if !s.Callable {
			continue
		}
		write := "secret"
		if b.Account != "" {
			write = fmt.Sprintf("account (%s) and secret", b.Account)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Title, s.Key, cmp.Or(s.ReplayFor, "never"), s.Lookup, write)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, b := range all {
		if b.Uncallable != "" {
			fmt.Fprintf(p.stdout, "\n%s: %s is known and not callable: %s\n", b.Name, b.Title, b.Uncallable)
		}
	}
	return nil
}

// providerSummary is a provider in one line.
type providerSummary struct {
	provider.Builtin
	Callable  bool   `json:"callable"`
	Key       string `json:"key,omitempty"`        // header or field
	ReplayFor string `json:"replay_for,omitempty"` // how long the same request may be sent again; empty: never
	Lookup    string `json:"lookup,omitempty"`     // what a look-up finds a call by
}

func summary(b provider.Builtin) providerSummary {
	s := providerSummary{Builtin: b, Callable: b.Uncallable == ""}
	if !s.Callable {
		return s
	}
	s.Key = cmp.Or(b.Base.Key.Header, b.Base.Key.Field)
	if d := b.Base.ReplayFor(); d > 0 {
		s.ReplayFor = d.String()
	}
	s.Lookup = "none"
	if l := b.Base.Lookup; l != nil {
		var by []string
		if l.Path != "" {
			by = append(by, "key")
		}
		if l.Prepared != "" {
			by = append(by, "prepared id")
		}
		if l.Reference != "" {
			by = append(by, "reference")
		}
		s.Lookup = strings.Join(by, ", ")
	}
	return s
}

type providersShow struct {
	Name string `arg:"" help:"The profile's name, as in providers.*.profile."`
	JSON bool   `name:"json" help:"One JSON object."`
}

func (c *providersShow) Run(p *program) error {
	b, ok := provider.BuiltinNamed(c.Name)
	if !ok {
		return usage(fmt.Errorf("there is no profile %q", c.Name), "\"zabor providers list\" names them all; any other provider is described with profile: custom")
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(struct {
			providerSummary
			Facts []provider.Fact `json:"facts"`
		}{summary(b), b.Facts()})
	}
	fmt.Fprintf(p.stdout, "%s (profile: %s)\n%s\n", b.Title, b.Name, b.Covers)
	if b.Uncallable != "" {
		fmt.Fprintf(p.stdout, "not callable: %s\n", b.Uncallable)
	}
	for _, f := range b.Facts() {
		value := "none"
		if f.Value != nil {
			text, err := json.Marshal(f.Value)
			if err != nil {
				return err
			}
			value = string(text)
		}
		fmt.Fprintf(p.stdout, "\n%s: %s\n    %s\n", f.Setting, value, f.Why)
	}
	return nil
}
