package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sheet describes one line of a built-in profile, for people.
type Sheet struct {
	Name    string `json:"name"`
	Does    Does   `json:"does,omitempty"`
	Request string `json:"request"`           // method, path and conditions on the body
	Refused string `json:"refused,omitempty"` // the reason never to send it; the rest is then empty
	Key     string `json:"key,omitempty"`
	Again   string `json:"again,omitempty"` // the same request is sent again within it
	Lookup  string `json:"lookup,omitempty"`
	Absent  string `json:"absent,omitempty"` // when silence is proof
	Money   string `json:"money,omitempty"`  // currencies by decimals
	Facts   []Fact `json:"facts,omitempty"`
}

// Fact is one part of a line, with its source.
type Fact struct {
	Part       string   `json:"part"`
	Says       []string `json:"says"`
	Source     string   `json:"source,omitempty"`
	Unverified string   `json:"unverified,omitempty"`
}

// Sheets are the lines of b's table in their order.
func (b Builtin) Sheets() []Sheet {
	var all []Sheet
	for _, l := range b.Base.Calls {
		s := l.sheet(b.Base.Timeout)
		for _, a := range b.Base.After {
			if a.Of == l.Name {
				s.Facts = append(s.Facts, Fact{"money back", a.words(), a.From, a.Unverified})
			}
		}
		all = append(all, s)
	}
	return all
}

func (a After) words() []string {
	var says []string
	for _, at := range slices.Sorted(maps.Keys(a.Back)) {
		values := strings.Join(a.Back[at], ", ")
		if values == anything {
			values = "above zero"
		}
		says = append(says, at+" is "+values)
	}
	says = append(says, "a status that is no yes any more")
	where := "the look-up"
	if a.Path != "" {
		where = "GET " + a.Path
	}
	return []string{"seen by " + where + ": " + strings.Join(says, "; or ")}
}

func (l Line) sheet(timeout time.Duration) Sheet {
	s := Sheet{Name: l.Name, Does: l.Does, Request: l.request(), Refused: l.Refused}
	if l.Refused != "" {
		return s
	}
	s.Key, s.Again, s.Lookup, s.Absent, s.Money = l.Key.words(), "never", "none", "never", l.Amount.Units.words()
	if d := l.Key.replayFor(timeout); d > 0 {
		s.Again = span(d)
	}
	s.Facts = append(s.Facts, Fact{"key", []string{s.Key}, l.Key.From, l.Key.Unverified}, Fact{"answers", l.Answers.words(), l.Answers.From, l.Answers.Unverified})
	if money := l.Amount.words(); len(money) > 0 {
		s.Facts = append(s.Facts, Fact{"amount", []string{strings.Join(money, "; ")}, l.Amount.From, l.Amount.Unverified})
	}
	u := l.Lookup
	if u == nil {
		return s
	}
	s.Lookup = u.words()
	if u.Path != "" || u.Target != "" || u.Prepared != "" {
		s.Absent = "after " + span(u.AbsentAfter)
	}
	s.Facts = append(s.Facts, Fact{"look-up", []string{s.Lookup + "; silence is proof: " + s.Absent}, u.From, u.Unverified})
	for _, read := range []struct {
		part string
		*Reading
	}{{"what is found", u.Hit}, {"what has an id", u.Object}} {
		if read.Reading != nil {
			s.Facts = append(s.Facts, Fact{read.part, read.Answers.words(), read.Answers.From, read.Answers.Unverified})
		}
	}
	return s
}

// request is the call with the conditions on its body.
func (l Line) request() string {
	text := l.Call
	for i, at := range slices.Sorted(maps.Keys(l.Where)) {
		text += []string{" with ", " and "}[min(i, 1)] + where{text: at, values: l.Where[at]}.String()
	}
	return text
}

func (k Key) words() string {
	where := "none"
	switch {
	case k.Header != "":
		where = k.Header
	case k.Field != "":
		where = "the field " + k.Field
	default:
		return where
	}
	if k.UUID {
		where += " as a UUID"
	}
	life := "how long is not relied on"
	if k.Life > 0 {
		life = "known for " + span(k.Life)
	}
	again := map[Replays]string{
		ReplaysAll: "a repeat gets the first answer", ReplaysState: "a repeat gets the present state",
		ReplaysSuccess: "a repeat gets the first answer if it was a success", ReplaysNone: "a repeat proves nothing",
	}[k.Replays]
	text := where + ", " + life + ", " + again
	if k.Scope != "" {
		text += ", one within " + k.Scope
	}
	return text
}

// words has one sentence for each meaning of an answer.
func (a Answers) words() []string {
	said := map[string][]string{}
	add := func(means, text string) { said[means] = append(said[means], text) }
	for _, r := range a.Rules {
		add(r.Means, r.words())
	}
	for _, m := range []struct {
		means, at string
		values    []string
		statuses  []int
	}{
		{"settled", a.Settled.Pointer, a.Settled.Values, nil}, {"pending", a.Pending.Pointer, a.Pending.Values, nil},
		{"declined", a.Declined.Pointer, a.Declined.Values, a.Declined.Statuses}, {"malformed", a.Malformed.Pointer, a.Malformed.Values, a.Malformed.Statuses},
	} {
		if len(m.values) > 0 {
			add(m.means, m.at+" is "+strings.Join(m.values, ", "))
		}
		for _, status := range m.statuses {
			add(m.means, fmt.Sprint(status))
		}
	}
	var all []string
	for _, w := range []struct{ means, words string }{
		{"settled", "done"}, {"pending", "pending, not final"}, {"declined", "declined, final"}, {"malformed", "wrong in form, nothing done"},
		{"unbegun", "nothing done yet"}, {"transient", "nothing done, may be sent later"}, {"earlier", "about an earlier request"},
		{"lingers", "may still be carried out: silence frees nothing, and nothing is sent again"}, {"unclear", "no proof"},
	} {
		if len(said[w.means]) > 0 {
			all = append(all, w.words+": "+strings.Join(said[w.means], "; or "))
		}
	}
	if a.Later != "" {
		all = append(all, "afterwards: "+a.Later)
	}
	return all
}

func (r Rule) words() string {
	var all []string
	if len(r.Statuses) > 0 {
		var codes []string
		for _, status := range r.Statuses {
			codes = append(codes, fmt.Sprint(status))
		}
		all = append(all, "status "+strings.Join(codes, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		all = append(all, name+": "+r.Header[name])
	}
	for _, at := range slices.Sorted(maps.Keys(r.Values)) {
		values := strings.Join(r.Values[at], ", ")
		if values == anything {
			values = "something"
		}
		all = append(all, at+" is "+values)
	}
	return strings.Join(all, " and ")
}

func (a Amount) words() []string {
	var all []string
	switch {
	case a.Minor != "":
		all = append(all, "answers have it in minor units at "+a.Minor)
	case a.Major != "":
		all = append(all, "answers have it as a decimal at "+a.Major)
	}
	if a.Currency != "" {
		all = append(all, "the currency at "+a.Currency)
	}
	if a.Asked != "" {
		all = append(all, "requests at "+a.Asked)
	}
	if a.Optional {
		all = append(all, "an answer need not have it")
	}
	if text := a.Units.words(); text != "" {
		all = append(all, text)
	}
	return all
}

func (u Units) words() string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(u)) {
		var codes []string
		for _, code := range u[n] {
			if code == rest {
				code = "all others that ISO 4217 gives as many"
			}
			codes = append(codes, code)
		}
		all = append(all, fmt.Sprintf("%d decimals: %s", n, strings.Join(codes, ", ")))
	}
	return strings.Join(all, "; ")
}

func (u Lookup) words() string {
	method := "GET "
	if u.Body != nil || u.Form != nil {
		method = "POST "
	}
	var all []string
	if u.Path != "" {
		text := method + u.Path
		if u.Match != "" {
			text += " where " + u.Match + " is the provider key"
		}
		if u.Carried != "" {
			text += ", if the request has it at " + u.Carried
		}
		all = append(all, text)
	}
	for _, by := range []string{u.Prepared, u.Target, u.Reference} {
		if by != "" && !slices.Contains(all, method+by) {
			all = append(all, method+by)
		}
	}
	return strings.Join(all, "; ")
}

// span is d in days, or in hours and minutes.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	hours, minutes := d/time.Hour, d%time.Hour/time.Minute
	switch {
	case d%day == 0 && d > day:
		return fmt.Sprintf("%d days", d/day)
	case d%time.Minute != 0:
		return d.String()
	case hours == 0:
		return fmt.Sprintf("%d min", minutes)
	case minutes == 0:
		return fmt.Sprintf("%d h", hours)
	}
	return fmt.Sprintf("%d h %d min", hours, minutes)
}

// Markdown is b's part of the manual: the table, the refused calls, and the sources.
func (b Builtin) Markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "### %s: `%s`\n\n%s\n\n", b.Title, b.Name, b.Covers)
	if b.Uncallable != "" {
		fmt.Fprintf(&out, "Not callable: %s.\n\n", strings.TrimSuffix(b.Uncallable, "."))
		return out.String()
	}
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	fmt.Fprintln(&out, "| line | does | request | sent again within | nothing found is proof |\n| --- | --- | --- | --- | --- |")
	sheets := b.Sheets()
	for _, s := range sheets {
		if s.Refused == "" {
			fmt.Fprintf(&out, "| %s | %s | `%s` | %s | %s |\n", s.Name, s.Does, cell(s.Request), s.Again, s.Absent)
		}
	}
	fmt.Fprintln(&out)
	for _, s := range sheets {
		if s.Refused != "" {
			fmt.Fprintf(&out, "* Refused: `%s`: %s.\n", s.Request, strings.TrimSuffix(s.Refused, "."))
		}
	}
	// Lines share parts: print each part once, with the names of its lines.
	var parts []string
	of := map[string][]string{}
	for _, s := range sheets {
		for _, f := range s.Facts {
			text := strings.Join(f.Says, ". ")
			for _, one := range []struct{ name, text string }{{"Source", f.Source}, {"Not verified", f.Unverified}} {
				if one.text != "" {
					text += fmt.Sprintf(". %s: %s", one.name, one.text)
				}
			}
			text = f.Part + ": " + text
			if of[text] == nil {
				parts = append(parts, text)
			}
			of[text] = append(of[text], s.Name)
		}
	}
	for _, text := range parts {
		part, says, _ := strings.Cut(text, ": ")
		fmt.Fprintf(&out, "* **%s of %s.** %s.\n", strings.ToUpper(part[:1])+part[1:], strings.Join(of[text], ", "), strings.TrimSuffix(escapeMarkdown(says), "."))
	}
	if l := b.Base.List; l != nil {
		fmt.Fprintf(&out, "* **List for the audit.** %s.\n", escapeMarkdown(strings.TrimSuffix(l.From, ".")))
	}
	for _, name := range slices.Sorted(maps.Keys(b.Why)) {
		fmt.Fprintf(&out, "* **%s.** %s.\n", name, escapeMarkdown(strings.TrimSuffix(b.Why[name], ".")))
	}
	fmt.Fprintln(&out)
	return out.String()
}

// escapeMarkdown keeps templates and pointers as they are.
func escapeMarkdown(text string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`).Replace(text)
}
