package zabor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// MinSecret is the shortest installation secret, in bytes.
const MinSecret = 32

// Which of a step's requests a provider key belongs to. Providers refuse one
// key on two endpoints.
const (
	requestMain    = "request"
	requestPrepare = "prepare"
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// providerKey is the idempotency key that travels to the provider: 26
// characters of lower-case base32, derived and never random, so that a lost
// row gets the same key again. The parts are length-prefixed: no two different
// keys give the same input.
func providerKey(secret []byte, k Key, generation int, request string) string {
	var text []byte
	for _, part := range []string{k.Scope, k.Order, k.Step} {
		text = appendPart(text, part)
	}
	text = binary.BigEndian.AppendUint64(text, uint64(generation))
	text = appendPart(text, request)
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return lowerBase32.EncodeToString(mac.Sum(nil))[:26]
}

func appendPart(text []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
}

// UUIDFromProviderKey is a provider key in the shape of a version 8 UUID, for
// providers that demand one. It holds the first 122 bits of the key.
func UUIDFromProviderKey(key string) (string, error) {
	raw, err := lowerBase32.DecodeString(strings.ToLower(key))
	if err != nil {
		return "", err
	}
	var u [16]byte
	// 122 bits of the key around the six fixed bits of RFC 9562.
	bits := 0
	next := func() byte {
		b := raw[bits/8] >> (7 - bits%8) & 1
		bits++
		return b
	}
	for i := range 128 {
		var b byte
		switch {
		case i >= 48 && i < 52:
			b = 8 >> (51 - i) & 1
		case i == 64:
			b = 1
		case i == 65:
			b = 0
		default:
			b = next()
		}
		u[i/8] |= b << (7 - i%8)
	}
	const hex = "0123456789abcdef"
	out := make([]byte, 0, 36)
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, hex[b>>4], hex[b&15])
	}
	return string(out), nil
}
