package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"zabor/internal/app"
	"zabor/provider"
)

// Report is all that was found out.
type Report struct {
	Findings []Finding `json:"findings"`
	// Known is how many findings a baseline holds, which are not among Findings.
	Known  int     `json:"known"`
	Values []Value `json:"values"`
	// Limits are what no code can promise for the steps of zabor's own file.
	Limits []provider.StepLimit `json:"limits,omitempty"`
}

// Bad is how many errors and warnings there are.
func (r Report) Bad() int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity != Note {
			n++
		}
	}
	return n
}

// Value is one effective setting of an application. It holds no secret.
type Value struct {
	App   string `json:"app"` // the project's folder
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"` // where it was decided
}

// counted is a number of things: 1 error, 2 errors.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Text prints the report for people; with fixes also what to write.
func (r Report) Text(w io.Writer, fixes bool) error {
	var b strings.Builder
	last := ""
	for _, v := range r.Values {
		if v.App != last {
			fmt.Fprintf(&b, "Effective settings of %s:\n", v.App)
			last = v.App
		}
		fmt.Fprintf(&b, "  %-44s %-28s %s\n", v.Key, v.Value, v.From)
	}
	if len(r.Values) > 0 {
		b.WriteString("\n")
	}
	if len(r.Limits) > 0 {
		b.WriteString("What no code can promise:\n")
		for _, l := range r.Limits {
			fmt.Fprintf(&b, "  %s at %s: %s\n", l.Step, l.Provider, l.Text)
		}
		b.WriteString("\n")
	}
	count := map[Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
		place := f.Where
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d", f.Where, f.Line)
		}
		fmt.Fprintf(&b, "%s: %s %s: %s\n", place, f.Severity, f.Code, rule(f.Code).Name)
		if f.Excerpt != "" {
			fmt.Fprintf(&b, "  %5d | %s\n", f.Line, cut(strings.TrimRight(f.Excerpt, " \t")))
		}
		fmt.Fprintf(&b, "  %s\n", f.Found)
		if fixes {
			fmt.Fprintf(&b, "  fix: %s\n", f.Fix)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s, %s, %s", counted(count[Error], "error"), counted(count[Warning], "warning"), counted(count[Note], "note"))
	if r.Known > 0 {
		fmt.Fprintf(&b, "; %d more are known", r.Known)
	}
	b.WriteString("\n")
	if len(r.Findings) > 0 && !fixes {
		b.WriteString("--fix-hint adds what to write; docs/doctor.md has each code with an example\n")
	}
	_, err := io.WriteString(w, visible(b.String()))
	return err
}

// longestLine is how much of a source line a person is shown, in characters.
const longestLine = 240

func cut(line string) string {
	if r := []rune(line); len(r) > longestLine {
		return string(r[:longestLine]) + "…"
	}
	return line
}

// visible is text for a terminal: what the examined files bring must neither move
// its cursor nor turn the direction of writing.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case r == '\t':
			return ' '
		}
		return '\ufffd'
	}, text)
}

// Values are the settings of a project that the rules rest on.
func Values(p *app.Project) []Value {
	var list []Value
	add := func(key string, v *app.Value) {
		if v != nil {
			list = append(list, Value{p.Root, key, v.String(), v.From.String()})
		}
	}
	if p.Framework == app.None {
		return nil
	}
	if p.Version.Major > 0 {
		add(strings.ToLower(string(p.Framework)), &app.Value{Kind: app.String, Text: fmt.Sprintf("%d.%d", p.Version.Major, p.Version.Minor), From: p.Version.From})
	}
	add("environment", p.Environment)
	if p.Framework == app.Laravel {
		add("queue.default", p.Config.Get("queue.default"))
		add("queue.failed.driver", p.Config.Get("queue.failed.driver"))
	} else {
		add("messenger.failure_transport", p.Config.Get("framework.messenger.failure_transport"))
	}
	for _, q := range p.Queues() {
		key := "queue " + q.Name
		if q.Redis == nil {
			if q.Default || p.Framework == app.Symfony {
				add(key+" driver", &app.Value{Kind: app.String, Text: q.Driver, From: q.From})
			}
			continue
		}
		add(key+" server", &app.Value{Kind: app.String, Text: q.Redis.Server(), From: q.Redis.Host.Origin()})
		add(key+" database", q.Redis.DB)
		if p.Framework == app.Laravel {
			add(key+" prefix", q.Redis.Prefix)
			add(key+" retry_after", q.Reserve)
			continue
		}
		for _, name := range []string{"stream", "group", "consumer", "redeliver_timeout", "delete_after_ack", "stream_max_entries"} {
			add(key+" "+name, q.Options[name])
		}
	}
	for _, s := range p.HorizonSupervisors() {
		add("horizon "+s.Name+" tries", s.Config.Get("tries"))
		add("horizon "+s.Name+" timeout", s.Config.Get("timeout"))
	}
	for _, k := range p.Neighbours() {
		key := k.Use + " " + k.Name
		add(key+" server", &app.Value{Kind: app.String, Text: k.Redis.Server(), From: k.Redis.Host.Origin()})
		add(key+" database", k.Redis.DB)
		if prefix, ok := k.FullPrefix(); ok && p.Framework == app.Laravel {
			add(key+" prefix", &app.Value{Kind: app.String, Text: prefix, From: k.Prefix.Origin()})
		}
	}
	for _, w := range p.Workers {
		add(w.By+" "+w.Name+" stop grace", w.Grace)
	}
	return list
}
