// Package console prints for people and scripts: text for a terminal, and
// documented JSON.
package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"zabor"
	"zabor/internal/exit"
	"zabor/provider"
)

// Confirm asks at the terminal whether to go on. Any answer but y and yes is an error,
// and so is a standard input without a terminal. With yes it does not ask.
func Confirm(w io.Writer, yes bool) error {
	if yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return exit.Usage(errors.New("nothing was changed: there is no terminal to ask on"), "add --yes")
	}
	fmt.Fprint(w, "zabor: go on? [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return exit.Bad(errors.New("nothing was changed"), "")
	}
	return nil
}

// Progress returns a printer of progress to w. It prints only if w is a
// terminal.
func Progress(w io.Writer) func(format string, args ...any) {
	if f, ok := w.(interface{ Fd() uintptr }); !ok || !term.IsTerminal(int(f.Fd())) {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
}

// Time returns t in UTC as RFC 3339 has it; the zero time is empty.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Money returns m in major units with its currency; without a currency it is empty.
func Money(m zabor.Money) string {
	if m.Currency == "" {
		return ""
	}
	return provider.Major(m) + " " + m.Currency
}

// Printable returns s for a terminal. It quotes text with control characters, and bytes
// of no UTF-8.
func Printable(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// formula holds the characters with which a spreadsheet begins a formula.
const formula = "=+-@"

// Cell returns s for a cell of a CSV file. It quotes as [Printable] does, and puts an
// apostrophe before a spreadsheet's formula.
func Cell(s string) string {
	s = Printable(s)
	if s != "" && strings.Contains(formula, s[:1]) {
		return "'" + s
	}
	return s
}

// KeyCell returns a part of a key for a CSV file. [zabor.DecodeText] gives its bytes
// back.
func KeyCell(s string) string {
	s = zabor.EncodeText(s)
	if s != "" && strings.Contains(formula, s[:1]) {
		return fmt.Sprintf("%%%02X", s[0]) + s[1:]
	}
	return s
}
