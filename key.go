package zabor

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// The longest parts of a [Key], in bytes.
const (
	MaxScope = 64
	MaxOrder = 255
	MaxStep  = 128
)

// Key names one side effect. It is compared byte for byte: A1 and a1, 7 and
// 007, "x" and "x " are different keys.
type Key struct {
	Scope string // tenant, merchant or installation; may be empty, at most 64 bytes
	Order string // order id as the shop writes it; 1 to 255 bytes
	Step  string // side effect within the order, such as "charge" or "refund:R-7"; 1 to 128 bytes
}

// Validate names the first part of k that breaks a bound, with its length.
func (k Key) Validate() error {
	switch {
	case len(k.Scope) > MaxScope:
		return fmt.Errorf("scope too long: %d bytes, at most %d", len(k.Scope), MaxScope)
	case k.Order == "":
		return errors.New("order id is empty")
	case len(k.Order) > MaxOrder:
		return fmt.Errorf("order id too long: %d bytes, at most %d", len(k.Order), MaxOrder)
	case k.Step == "":
		return errors.New("step is empty")
	case len(k.Step) > MaxStep:
		return fmt.Errorf("step too long: %d bytes, at most %d", len(k.Step), MaxStep)
	}
	return nil
}

// In reports whether k belongs to the installation of that scope: it has this scope,
// or one in it, such as shop/7 in shop. Every key belongs to the empty installation.
func (k Key) In(installation string) bool {
	inner, within := strings.CutPrefix(k.Scope, installation)
	return installation == "" || within && (inner == "" || inner[0] == '/')
}

// StepName is the step without its part: refund of refund:R-7.
func (k Key) StepName() string {
	name, _, _ := strings.Cut(k.Step, ":")
	return name
}

// Compare orders keys by order, scope and step, byte for byte. Statements that
// touch many rows touch them in this order, so that two of them cannot deadlock.
func (k Key) Compare(l Key) int {
	return cmp.Or(strings.Compare(k.Order, l.Order), strings.Compare(k.Scope, l.Scope), strings.Compare(k.Step, l.Step))
}

// ShowCommand is the command line that shows the row of k, safe to be typed into
// a shell whatever is in the order id.
func (k Key) ShowCommand() string {
	command := "zabor fence show"
	if _, inner, ok := strings.Cut(k.Scope, "/"); ok {
		command += " --scope=" + shellWord(inner)
	}
	if strings.HasPrefix(k.Order, "-") || strings.HasPrefix(k.Step, "-") {
		command += " --"
	}
	return command + " " + shellWord(k.Order) + " " + shellWord(k.Step)
}

// shellWord is s as one word of a shell, in printable ASCII: bash, zsh and ksh read
// $'\xFC' as the byte that it names.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	if EncodeText(strings.ReplaceAll(s, "%", "")) == strings.ReplaceAll(s, "%", "") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\x%02X`, c)
			continue
		}
		b.WriteByte(c)
	}
	b.WriteString("'")
	return b.String()
}
