package dashboard

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"zabor/card"
	"zabor/internal/php"
)

// What is shown to nobody is known by the name of the field that it is in, and, in
// any text, by its look.

// plain is the last part of a name without the signs between its words.
func plain(name string) string {
	if i := strings.LastIndexAny(name, ".["); i >= 0 {
		name = name[i+1:]
	}
	return withoutSigns.Replace(strings.ToLower(name))
}

var withoutSigns = strings.NewReplacer("_", "", "-", "", "]", "")

// secretWords are in the names of fields whose values are shown to nobody.
var secretWords = [...]string{
	"secret", "password", "passwd", "passphrase", "token", "nonce", "authorization", "apikey", "accesskey", "privatekey", "signingkey", "encryptionkey", "appkey",
	"signature", "cookie", "credential", "cryptogram", "iban", "accountnumber", "otp", "pincode",
}

// secretNames are such names whole.
var secretNames = map[string]bool{"pin": true, "auth": true, "bearer": true, "pwd": true, "pass": true, "jwt": true, "hmac": true, "rebillid": true}

// holders are names of what is secret as a text, and a holder of other fields, some
// of them secret, where it is none: a card, or a source of money by its one-time id.
var holders = map[string]bool{"card": true, "source": true, "sourceid": true}

// secret reports whether v, in a field of this name, is shown to nobody.
func secret(name string, v any) bool {
	p := plain(name)
	if holders[p] {
		_, isMap := v.(map[string]any)
		return !isMap
	}
	if card.Field(name) || secretNames[p] || p == "key" && strings.Contains(strings.ToLower(name), "api") {
		return true
	}
	for _, word := range secretWords {
		if strings.Contains(p, word) {
			return true
		}
	}
	return false
}

const hidden = "•••• not shown"

const mask = "••••"

// secretLooks are texts that are secrets whatever field they are in: keys and
// one-time tokens as providers write them, what follows Bearer, and signed tokens.
var secretLooks = regexp.MustCompile(`\b(?:sk|rk)_(?:live|test|sbox)\w*|\b(?:whsec|tok)_\w{4,}|\b(?:pi|seti|cs)_\w+_secret_\w+|\b(?:cnon|ccof):[\w-]+|` +
	`\b(?i:bearer)\s+[\w.~+/=-]*[\d._~+/=-][\w.~+/=-]*|\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*|\b(?:live|test)_[\w-]{30,}|\bEAAA[\w-]{20,}|\bAQE[\w+/-]{20,}\S*`)

// addressPasswords are in addresses such as mysql://user:password@host.
var addressPasswords = regexp.MustCompile(`(://[^/\s:@]*:)[^@\s/]+@`)

// secretHeaders and secretFields are fields in texts that cannot be read as fields.
var (
	secretHeaders = regexp.MustCompile(`(?i)((?:authorization|cookie)\\*["']?\]?\s*(?:=>|[:=])\s*\\*["']?)([^\r\n"'\\]+)`)
	secretFields  = regexp.MustCompile(`(?i)((?:passw(?:or)?d|pwd|passphrase|secret|token|nonce|api[_-]?key|access[_-]?key|private[_-]?key|signature|rebillid|source_id|` +
		`cvc|cvv2?|cvn|security_?code|iban)\\*["']?\]?\s*(?:=>|[:=])\s*\\*["']?)([^\s"'\\,;&}\]]+)`)
)

// withoutSecrets is a text with a mask for each secret in it that can be told by its
// look.
func withoutSecrets(s string) string {
	if !strings.ContainsAny(s, "_:=. ") {
		return s
	}
	s = secretLooks.ReplaceAllString(s, mask)
	s = addressPasswords.ReplaceAllString(s, "${1}"+mask+"@")
	s = secretHeaders.ReplaceAllString(s, "${1}"+mask)
	return secretFields.ReplaceAllString(s, "${1}"+mask)
}

// serialized is how values of PHP's serialization begin, wherever they stand, with
// the slashes that Symfony writes before its quotes.
var serialized = regexp.MustCompile(`(?:^|[{;|])(?:[OCE]:\d+:\\*"|a:\d+:\{|s:\d+:\\*")`)

// unpacked is what a text holds that is itself JSON or PHP's serialization. known is
// false where it is neither; a serialization that cannot be read is a note that says
// so, since nobody knows what is in it.
func unpacked(s string) (v any, known bool) {
	switch {
	case strings.HasPrefix(s, "{") || strings.HasPrefix(s, "["):
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if d.Decode(&v) == nil && !d.More() {
			return v, true
		}
	case !serialized.MatchString(s):
		return nil, false
	default:
		for _, text := range [][]byte{[]byte(s), unslashed([]byte(s))} {
			value, err := php.Unmarshal(text)
			if err != nil {
				continue
			}
			if v, err := php.Plain(value); err == nil {
				return v, true
			}
		}
	}
	if serialized.MatchString(s) {
		return unread{len(s)}, true
	}
	return nil, false
}

// unread is a text of so many bytes that is not shown.
type unread struct{ bytes int }

func (u unread) String() string {
	return fmt.Sprintf("%s: %d bytes of PHP's serialization, which cannot be read here", hidden, u.bytes)
}

// unslashed is PHP's stripslashes.
func unslashed(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) {
			if i++; b[i] == '0' {
				out = append(out, 0)
				continue
			}
		}
		out = append(out, b[i])
	}
	return out
}
