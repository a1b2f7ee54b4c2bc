package zabor

import (
	"fmt"
	"net/url"
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
	decoded, err := url.PathUnescape(text)
	if err != nil {
		return "", fmt.Errorf("%q has a percent sign without two hexadecimal digits: a percent sign itself is %%25", text)
	}
	return decoded, nil
}

// String is k as printable text: scope:order/step, without a scope order/step. Each
// part is encoded as by [EncodeText], a slash in the step and a slash or a colon in the
// order too. So different keys have different texts.
func (k Key) String() string {
	text := encodeText(k.Order, ":/") + "/" + encodeText(k.Step, "/")
	if k.Scope == "" {
		return text
	}
	return EncodeText(k.Scope) + ":" + text
}
