package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"zabor/internal/exit"
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
	fmt.Fprintln(w, "PROFILE\tPROVIDER\tCALLS\tWRITE")
	for _, b := range all {
		s := summary(b)
		if !s.Callable {
			continue
		}
		write := "secret"
		if b.Account != "" {
			write = fmt.Sprintf("account (%s) and secret", b.Account)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Title, strings.Join(s.Calls, ", "), write)
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
	Callable bool     `json:"callable"`
	Calls    []string `json:"calls,omitempty"` // names of the supported lines
}

func summary(b provider.Builtin) providerSummary {
	s := providerSummary{Builtin: b, Callable: b.Uncallable == ""}
	for _, line := range b.Base.Calls {
		if line.Refused == "" {
			s.Calls = append(s.Calls, line.Name)
		}
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
		return exit.Usage(fmt.Errorf("there is no profile %q", c.Name), "\"zabor providers list\" names them all; any other provider is described with profile: custom")
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(struct {
			providerSummary
			Table []provider.Sheet  `json:"table"`
			Why   map[string]string `json:"why"`
		}{summary(b), b.Sheets(), b.Why})
	}
	fmt.Fprintf(p.stdout, "%s (profile: %s)\n%s\n", b.Title, b.Name, b.Covers)
	if b.Uncallable != "" {
		fmt.Fprintf(p.stdout, "not callable: %s\n", b.Uncallable)
	}
	if sheets := b.Sheets(); len(sheets) > 0 {
		if err := showTable(p.stdout, sheets); err != nil {
			return err
		}
	}
	fmt.Fprintln(p.stdout)
	for _, name := range slices.Sorted(maps.Keys(b.Why)) {
		fmt.Fprintf(p.stdout, "%s: %s\n", name, b.Why[name])
	}
	return nil
}

// showTable prints the lines of a profile, and below them where each part is from.
func showTable(to io.Writer, sheets []provider.Sheet) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nLINE\tDOES\tREQUEST\tSENT AGAIN WITHIN\tNOTHING FOUND IS PROOF")
	for _, s := range sheets {
		if s.Refused == "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.Name, s.Does, s.Request, s.Again, s.Absent)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range sheets {
		if s.Refused != "" {
			fmt.Fprintf(to, "refused: %s: %s\n", s.Request, s.Refused)
		}
	}
	for _, s := range sheets {
		if s.Refused != "" {
			continue
		}
		fmt.Fprintf(to, "\n%s\n", s.Name)
		for _, f := range s.Facts {
			fmt.Fprintf(to, "  %s: %s\n", f.Part, strings.Join(f.Says, "\n    "))
			if f.Source != "" {
				fmt.Fprintf(to, "    source: %s\n", f.Source)
			}
			if f.Unverified != "" {
				fmt.Fprintf(to, "    not verified: %s\n", f.Unverified)
			}
		}
	}
	return nil
}
