// Package doctor finds what in an application's configuration, in its source and
// on its servers will charge twice or lose a message. It never changes anything.
package doctor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zabor/internal/app"
)

// Severity is how bad a finding is.
type Severity string

// The severities. Error: money moves twice or a message is lost in a situation
// that does come. Warning: it depends on something that the doctor does not see.
// Note: worth knowing; it does not change the exit code.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Finding is one thing that is wrong, or that could not be found out.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Where    string   `json:"where"` // the file, from where the doctor was started; of a server: which
	Line     int      `json:"line"`  // from 1; 0: none
	Found    string   `json:"found"`
	Fix      string   `json:"fix"` // the line to write, and where

	Excerpt string `json:"-"` // the source line, without secrets; may be empty
}

// Fingerprint is the same for a finding whose line only moved. n tells findings
// that are alike otherwise apart.
func (f Finding) Fingerprint(n int) string {
	about := strings.TrimSpace(f.Excerpt)
	if about == "" {
		about = f.Found
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", f.Code, f.Where, about, n))
	return hex.EncodeToString(sum[:12])
}

// Rule is one kind of finding.
type Rule struct {
	Code     string // stable: ZB and three digits
	Name     string // in a few words, for lists
	Severity Severity
	Incident string // the public report that it comes from; empty: documentation of the framework or the server
	check    func(*check)
}

// Options are what is known beside the application.
type Options struct {
	// Fenced are the classes of messages that zabor takes from the queue itself,
	// in place of the application's handlers.
	Fenced []string
	// Zabor reports whether the application uses zabor at all.
	Zabor bool
	// StopNeeds is how long a zabor worker needs to stop; 0: not known.
	StopNeeds time.Duration
	// Hosts are those of payment providers, beside the built-in ones.
	Hosts []string
}

// Examine applies all rules that need no server to a project. The findings are in
// the order of files and lines.
func Examine(p *app.Project, o Options) []Finding { return examine(p, o, Rules()) }

func examine(p *app.Project, o Options, rules []Rule) []Finding {
	var findings []Finding
	money := newMoney(p, o)
	o.Zabor = o.Zabor || len(money.fenced) > 0
	for _, rule := range rules {
		if rule.check != nil {
			c := &check{Project: p, o: o, rule: rule, money: money, findings: &findings}
			rule.check(c)
		}
	}
	inOrder(findings)
	return slices.Compact(findings)
}

func inOrder(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Found, b.Found))
	})
}

// check is one rule at work on one project.
type check struct {
	*app.Project
	o        Options
	rule     Rule
	money    *money
	findings *[]Finding
}

// at adds a finding at the place of o.
func (c *check) at(o app.Origin, fix, found string, args ...any) {
	c.add(c.rule.Severity, o, fix, found, args...)
}

// warn is at, as a warning.
func (c *check) warn(o app.Origin, fix, found string, args ...any) {
	c.add(Warning, o, fix, found, args...)
}

func (c *check) add(s Severity, o app.Origin, fix, found string, args ...any) {
	*c.findings = append(*c.findings, Finding{
		Code: c.rule.Code, Severity: s, Where: Place(c.Project, o.File), Line: o.Line,
		Found: fmt.Sprintf(found, args...), Fix: fix, Excerpt: c.Excerpt(o.File, o.Line),
	})
}

// Place is a file of the project as it is reached from where the doctor was
// started.
func Place(p *app.Project, file string) string {
	if file == "" || path.IsAbs(file) {
		return file
	}
	return path.Join(filepath.ToSlash(p.Root), file)
}

// source is the place of a line of a class.
func source(c *app.Class, line int) app.Origin { return app.Origin{File: c.File, Line: line} }

// from is a value with its origin, for findings: "90 (config/queue.php:67)".
func from(v *app.Value) string {
	o := v.Origin().String()
	if o == "" {
		return v.String()
	}
	return fmt.Sprintf("%s (%s)", v, o)
}

// secs is a number of seconds with its origin: "90 s (config/queue.php:67)". What has a
// unit of its own keeps it.
func secs(v *app.Value) string {
	text := v.String()
	if _, ok := v.Int(); ok {
		text += " s"
	}
	if o := v.Origin().String(); o != "" {
		text += " (" + o + ")"
	}
	return text
}

// seconds is v as a time; ok is false when it is no number.
func seconds(v *app.Value) (d time.Duration, ok bool) {
	n, ok := v.Int()
	return time.Duration(n) * time.Second, ok
}
