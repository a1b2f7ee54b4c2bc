package alert

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"zabor"
	"zabor/provider"
)

// Longest texts, in characters.
const (
	longText = 1500 // of one alert
	longLine = 300  // of an alert in a summary
)

// message is one alert as a person reads it.
func message(a zabor.Alert) string {
	var b strings.Builder
	fmt.Fprintf(&b, "zabor %s: %s", strings.ToUpper(string(cmp.Or(a.Severity, zabor.Warning))), a.Code)
	if a.Key.Order != "" {
		fmt.Fprintf(&b, "\norder %s, step %s", clean(zabor.EncodeText(a.Key.Order), longLine), clean(zabor.EncodeText(a.Key.Step), longLine))
		if a.Key.Scope != "" {
			fmt.Fprintf(&b, ", scope %s", clean(zabor.EncodeText(a.Key.Scope), longLine))
		}
	}
	var facts []string
	if a.State != "" {
		facts = append(facts, "state "+string(a.State))
	}
	if a.Amount.Currency != "" {
		facts = append(facts, "amount "+money(a.Amount))
	}
	if a.Provider != "" {
		facts = append(facts, "provider "+clean(a.Provider, longLine))
	}
	if len(facts) > 0 {
		b.WriteString("\n" + strings.Join(facts, ", "))
	}
	b.WriteString("\n" + clean(a.Text, longText))
	if a.Next != "" {
		b.WriteString("\nnext: " + clean(a.Next, longText))
	}
	return b.String()
}

// summary is what came in the time since the last message about the same cause.
func (b *burst) summary(since time.Duration) string {
	first := b.alerts[0]
	var out strings.Builder
	fmt.Fprintf(&out, "zabor %s: %s: %d more in %s", strings.ToUpper(string(cmp.Or(first.Severity, zabor.Warning))), first.Code, b.count, since)
	if first.Provider != "" {
		out.WriteString(", provider " + clean(first.Provider, longLine))
	}
	for _, a := range b.alerts {
		out.WriteString("\n- ")
		if a.Key.Order != "" {
			out.WriteString(clean(a.Key.String(), longLine))
			if a.Amount.Currency != "" {
				out.WriteString(", " + money(a.Amount))
			}
			out.WriteString(": ")
		}
		out.WriteString(clean(a.Text, longLine))
	}
	if rest := b.count - len(b.alerts); rest > 0 {
		fmt.Fprintf(&out, "\n- and %d others", rest)
	}
	next := first.Next
	if first.Key.Order != "" && first.State != "" {
		next = "zabor fence list --state " + string(first.State)
	}
	if next != "" {
		out.WriteString("\nnext: " + clean(next, longText))
	}
	return out.String()
}

func money(m zabor.Money) string { return provider.Major(m) + " " + m.Currency }

// clean is s on one line and without what a terminal or a chat would act on, at
// most n characters of it.
func clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return s
}
