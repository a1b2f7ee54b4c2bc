package zabor

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EncodeText returns s as printable UTF-8. [DecodeText] gives the bytes back. Each byte
// of invalid UTF-8 or of a rune that does not print, and each percent sign, is written
// as % and two hexadecimal digits. Two different texts stay different.
func EncodeText(s string) string { return encodeText(s, "") }

// encodeText also encodes the bytes in also, which are ASCII.
func encodeText(s, also string) string {
	keep := func(r rune) bool {
		return r != utf8.RuneError && unicode.IsPrint(r) && r != '%' && !strings.ContainsRune(also, r)
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !keep(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if keep(r) {
			b.WriteString(s[:n])
		} else {
			for _, c := range []byte(s[:n]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		s = s[n:]
	}
	return b.String()
}

// DecodeText returns the bytes that [EncodeText] has made text of. It is an error if a
// percent sign is not followed by two hexadecimal digits. Any other byte stands for
// itself.
func DecodeText(text string) (string, error) {
	if !strings.Contains(text, "%") {
		return text, nil
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		high, low := -1, -1
		if i+2 < len(text) {
			high, low = hexDigit(text[i+1]), hexDigit(text[i+2])
		}
		if high < 0 || low < 0 {
			return "", fmt.Errorf("%q has a percent sign without two hexadecimal digits: a percent sign itself is %%25", text)
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), nil
}

// hexDigit is the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// String is k as printable text: scope:order/step, without a scope order/step. Each
// part is encoded as by [EncodeText], a slash in the step and a slash or a colon in the
// order too. So different keys have different texts. [ParseKey] gives k back.
func (k Key) String() string {
	text := encodeText(k.Order, ":/") + "/" + encodeText(k.Step, "/")
	if k.Scope == "" {
		return text
	}
	return EncodeText(k.Scope) + ":" + text
}

// ParseKey returns the key whose [Key.String] is text. Another spelling of the same key
// is an error, as is a key that is not valid.
func ParseKey(text string) (Key, error) {
	head, step, found := cutLast(text, "/")
	if !found {
		return Key{}, fmt.Errorf("%q is not a key: scope:order/step, or order/step", text)
	}
	scope, order, found := cutLast(head, ":")
	if !found {
		scope, order = "", head
	}
	var k Key
	var errs [3]error
	k.Scope, errs[0] = DecodeText(scope)
	k.Order, errs[1] = DecodeText(order)
	k.Step, errs[2] = DecodeText(step)
	if err := errors.Join(errs[:]...); err != nil {
		return Key{}, fmt.Errorf("%q is not a key: %w", text, err)
	}
	if err := k.Validate(); err != nil {
		return Key{}, fmt.Errorf("%q is not a key: %w", text, err)
	}
	if k.String() != text {
		return Key{}, fmt.Errorf("%q is not a key as it is written here: %s", text, k)
	}
	return k, nil
}

// cutLast cuts s around its last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
