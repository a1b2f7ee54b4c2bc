package messenger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"strings"

	"zabor/internal/php"
)

// signHeader holds the signature of a message (Symfony 7.4 and later). The key is
// the application's secret.
const signHeader = "Body-Sign"

// signature is of the body alone, or with "v2:" in front (8.2) of the body and
// the headers that matter.
func (e *envelope) signature(secret string, v2 bool) string {
	if !v2 {
		return mac(secret, e.body)
	}
	signed := &php.Array{}
	headers := append([]header(nil), e.headers...)
	sort.Slice(headers, func(i, j int) bool { return headers[i].name < headers[j].name })
	for _, h := range headers {
		if h.name == typeHeader || h.name == "Sign-Trust" || strings.HasPrefix(h.name, stampPrefix) {
			signed.Items = append(signed.Items, php.Item{Key: php.String(h.name), Value: php.String(h.value)})
		}
	}
	text, err := php.Marshal(&php.Array{Items: []php.Item{
		{Key: php.Int(0), Value: php.String(e.body)},
		{Key: php.Int(1), Value: signed},
	}})
	if err != nil {
		panic(err) // strings in two arrays always marshal
	}
	return "v2:" + mac(mac(secret, "v2:"), string(text))
}

func mac(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

// ParseSecrets reads the application's secret and, separated by commas, its previous
// ones. Empty text has none.
func ParseSecrets(text string) []string {
	var secrets []string
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			secrets = append(secrets, one)
		}
	}
	return secrets
}

// signedBy reports whether the signature is that of one of secrets.
func (e *envelope) signedBy(secrets []string) bool {
	have := e.header(signHeader)
	return slices.ContainsFunc(secrets, func(secret string) bool {
		return hmac.Equal([]byte(have), []byte(e.signature(secret, strings.HasPrefix(have, "v2:"))))
	})
}

// sign replaces the signature by one of the same version.
func (e *envelope) sign(secret string) {
	for i, h := range e.headers {
		if h.name == signHeader {
			e.headers[i] = header{name: signHeader, value: e.signature(secret, strings.HasPrefix(h.value, "v2:"))}
		}
	}
}
